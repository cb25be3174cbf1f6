//! Requests that recipients understand differently, or that are malformed.

use super::support::{Server, status};

/// Asserts that a server answers with the status, closes, and delivers nothing.
#[track_caller]
fn assert_refused(input: impl AsRef<[u8]>, expected: u16) {
    let input = input.as_ref();
    let mut server = Server::new();
    let output = server.send(input);
    assert_eq!(status(&output), expected, "{}: {output}", input.escape_ascii());
    assert!(output.contains("Connection: close\r\n"), "{output}");
    assert!(!server.channel.is_open(), "{}", input.escape_ascii());
    assert_eq!(server.take(), <[&str; 0]>::default(), "{}", input.escape_ascii());
    assert_eq!(output.matches("HTTP/1.1").count(), 1, "{output}");
}

/// Asserts that the head is refused with 400.
#[track_caller]
fn assert_bad(head: &str) {
    assert_refused(format!("{head}\r\nsmuggled"), 400);
}

fn with_headers(headers: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

/// D-34
#[test]
fn smuggling_by_transfer_encoding_and_content_length() {
    assert_bad(&with_headers("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"));
    assert_bad(&with_headers("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"));
    assert_bad("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n");
    assert_bad("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n");
}

#[test]
fn smuggling_by_obfuscated_transfer_encoding() {
    for value in [
        "xchunked",
        "chunked, x",
        "chunked, chunked",
        "chunked;q=1",
        "\x0Bchunked",
        "",
        ",chunked",
        "chunked,",
        "identity",
        "gzip",
        "\"chunked\"",
        "chunk ed",
    ] {
        assert_bad(&with_headers(&format!("Transfer-Encoding: {value}\r\n")));
    }
    assert_bad(&with_headers("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"));
    assert_bad(&with_headers("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"));
    assert_bad(&with_headers("Transfer-Encoding : chunked\r\n"));
    assert_bad(&with_headers(" Transfer-Encoding: chunked\r\n"));
    assert_refused(with_headers("Transfer-Encoding: gzip, chunked\r\n"), 501);
}

/// D-34
#[test]
fn smuggling_by_content_length() {
    for value in [
        "+5",
        "-1",
        "5 5",
        "0x5",
        "5,6",
        "5, 5",
        "",
        "5.0",
        "9223372036854775808",
        "18446744073709551617",
        "5\x00",
    ] {
        assert_bad(&with_headers(&format!("Content-Length: {value}\r\n")));
    }
    assert_bad(&with_headers("Content-Length: 5\r\nContent-Length: 5\r\n"));
    assert_bad(&with_headers("Content-Length: 5\r\nContent-Length: 6\r\n"));
}

#[test]
fn smuggling_by_white_space_and_folded_lines() {
    for headers in [
        "A : b\r\n",
        "A\t: b\r\n",
        " A: b\r\n",
        "A: b\r\n c\r\n",
        "A: b\r\n\tc\r\n",
        "A b\r\n",
        ": b\r\n",
        "A\r\n",
        "\r\n A: b\r\n",
    ] {
        // A line that is empty ends the head, so the rest must be refused as another request.
        if headers.starts_with("\r\n") {
            continue;
        }
        assert_bad(&with_headers(headers));
    }
    assert_bad("GET / HTTP/1.1\r\n Host: a\r\n");
}

/// D-34
#[test]
fn smuggling_by_line_endings() {
    for input in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\rb: c\r\n\r\n",
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\0GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_refused(input, 400);
    }
    let mut server = Server::new();
    let output =
        server.send("\r\nGET /one HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /two HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(server.take(), ["GET /one", "end", "GET /two", "end"], "one empty line is ignored: {output}");
}

#[test]
fn invalid_characters_in_names_and_values() {
    for headers in ["A\0: b", "A: b\0", "A: b\x01", "A: b\x7F", "A(: b", "A\u{E9}: b", "\"A\": b", "A/B: c"] {
        assert_bad(&with_headers(&format!("{headers}\r\n")));
    }
    // At each place, because a parser may look at several bytes at once.
    for (length, place) in (1..70).flat_map(|length| (0..length).map(move |place| (length, place))) {
        for control in [0x00, 0x1F, 0x7F] {
            let mut value = vec![b'v'; length];
            value[place] = control;
            assert_bad(&with_headers(&format!("A: {}\r\n", String::from_utf8(value).unwrap())));
        }
    }
    let mut server = Server::new();
    let output = server.send(with_headers("A: \u{E9}\tb\r\nA!#$%&'*+-.^_`|~9: c\r\n"));
    assert_eq!(status(&output), 200, "bytes above ASCII are allowed in values");
}

/// D-34
#[test]
fn malformed_request_lines() {
    for line in [
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1x",
        "GET / http/1.1",
        "GET / HTTP/11",
        "GET / HTTP/1.",
        "GET /",
        "GET",
        "G(T / HTTP/1.1",
        "GET /\0 HTTP/1.1",
        "GET /\u{E9} HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET / XTTP/1.1",
        "/ HTTP/1.1",
        "GET a HTTP/1.1",
        "GET * HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "GET /\x7F HTTP/1.1",
        "GET / HTTP/1.12",
    ] {
        assert_refused(format!("{line}\r\nHost: a\r\n\r\n"), 400);
    }
    for line in ["GET / HTTP/2.0", "GET / HTTP/1.2", "GET / HTTP/0.9", "GET / HTTP/3.0"] {
        assert_refused(format!("{line}\r\nHost: a\r\n\r\n"), 505);
    }
}

#[test]
fn host_is_required_once_and_valid() {
    assert_bad("GET / HTTP/1.1\r\n");
    assert_bad("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n");
    for host in ["a b", "a/b", "user@a", "a,b", "a?b", "a#b", "\u{E9}", "<a>"] {
        assert_bad(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n"));
    }
    for head in [
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
        "GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a.example:8080\r\n\r\n",
    ] {
        assert_eq!(status(&Server::new().send(head)), 200, "{head}");
    }
}

/// Returns a server's response to a chunked body, and the parts its handler read.
fn chunked(body: &str) -> (String, Vec<String>) {
    let mut server = Server::new();
    let output = server.send(with_headers("Transfer-Encoding: chunked\r\n") + body);
    let received = server.take();
    (output, received)
}

#[test]
fn malformed_chunk_sizes() {
    for body in [
        "00000000000000005\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "g\r\n",
        "5_\r\nhello\r\n",
        "5\nhello\r\n0\r\n\r\n",
    ] {
        let (output, received) = chunked(body);
        assert_eq!(status(&output), 400, "{body:?}");
        assert_eq!(received.len(), 2, "the head and the error: {received:?}");
    }
    assert_eq!(status(&chunked("ffffffffffffffff\r\n").0), 413);
    assert_eq!(status(&chunked("ffffffff\r\n").0), 413);
}

/// D-34
#[test]
fn smuggling_in_chunk_extensions() {
    for body in [
        "5;a\nGET / HTTP/1.1\r\nHost: b\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n",
        "5;a\0\r\nhello\r\n0\r\n\r\n",
    ] {
        let (output, received) = chunked(body);
        assert_eq!(status(&output), 400, "{body:?}");
        assert!(!received.iter().any(|part| part.starts_with("GET")), "{received:?}");
    }
    let (output, received) = chunked("5;a=b;c=\"d e\"\r\nhello\r\n0;x\r\n\r\n");
    assert_eq!(status(&output), 200, "{output}");
    assert_eq!(received, ["POST /", "\"hello", "end"]);
}

#[test]
fn chunk_extensions_are_limited_in_a_line_and_in_total() {
    let line = format!("1;a={}\r\nx\r\n", "b".repeat(300));
    assert_eq!(status(&chunked(&line).0), 400);
    let line = format!("1;a={}\r\nx\r\n", "b".repeat(200));
    assert_eq!(status(&chunked(&line.repeat(100)).0), 400, "20 KB of extensions");
    assert_eq!(status(&chunked(&(line.repeat(70) + "0\r\n\r\n")).0), 200, "14 KB of extensions");
}

#[test]
fn chunk_data_must_be_followed_by_crlf() {
    for body in ["5\r\nhello0\r\n\r\n", "5\r\nhelloo\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello\rx"]
    {
        let (output, received) = chunked(body);
        assert_eq!(status(&output), 400, "{body:?}");
        assert_eq!(&received[..2], ["POST /", "\"hello"]);
        assert!(received[2].starts_with("error: "), "{received:?}");
    }
}

#[test]
fn trailers_that_describe_the_message_are_refused() {
    for trailer in
        ["Content-Length: 5", "transfer-encoding: chunked", "Host: b", "Connection: close", "A : b", "A"]
    {
        let (output, _) = chunked(&format!("0\r\n{trailer}\r\n\r\n"));
        assert_eq!(status(&output), 400, "{trailer}");
    }
    let (_, received) = chunked("0\r\nX-Sum: 17\r\n\r\n");
    assert_eq!(received, ["POST /", r#"end {"X-Sum": "17"}"#]);
}

#[test]
fn nothing_behind_an_error_is_interpreted() {
    let mut server = Server::new();
    let output = server.send("GET / HTTP/1.1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(output.matches("HTTP/1.1 ").count(), 1, "{output}");
    assert_eq!(server.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n"), "");
    assert!(server.take().is_empty());
}
