//! Headers of requests: their form, and their effect on the connection.

use super::super::row::{Row, go, netty};

const CRLF_ONLY: &str = "Netty accepts a bare LF. RFC 9112, section 2.2 permits that. We refuse it, because \
     recipients that need CRLF see other lines.";

/// Returns the rows.
pub(super) fn rows() -> Vec<Row> {
    [forms(), invalid_bytes(), white_space(), connections()].into_iter().flatten().collect()
}

fn forms() -> Vec<Row> {
    const SEEN: [&str; 6] = [
        "GET /a/path HTTP/1.1 for localhost",
        "Upgrade: WebSocket",
        "Sec-WebSocket-Key1: 10  28 8V7 8 48     0",
        "Origin: http://localhost:8080",
        "body 12345678",
        "end",
    ];
    let handshake = |first: &str, second: &str| {
        format!(
            "GET /a/path HTTP/1.1{first}Upgrade: WebSocket{second}Connection: Upgrade{first}\
             Host: localhost{second}Sec-WebSocket-Key1: 10  28 8V7 8 48     0{first}\
             Origin: http://localhost:8080{second}Content-Length: 8{first}\r\n12345678"
        )
    };
    vec![
        netty("a handshake with a body", handshake("\r\n", "\r\n")).sees(&SEEN).kept(),
        netty("a handshake with LF only", handshake("\n", "\n")).refused(400).differs(CRLF_ONLY),
        netty("a handshake with CRLF and LF", handshake("\r\n", "\n")).refused(400).differs(CRLF_ONLY),
        netty("an empty value", "GET / HTTP/1.1\r\nHost: a\r\nEmpty:\r\n\r\n")
            .sees(&["GET / HTTP/1.1 for a", "Empty: ", "end"])
            .kept(),
        netty("the order of headers", "GET / HTTP/1.1\r\nHost: a\r\nB: 1\r\nA: 2\r\nB: 3\r\n\r\n")
            .sees(&["GET / HTTP/1.1 for a", "B: 1", "A: 2", "B: 3", "end"])
            .kept(),
        netty("a name with an underscore", "GET / HTTP/1.1\r\nHost: a\r\nGood_Name: Good Value\r\n\r\n")
            .sees(&["GET / HTTP/1.1 for a", "Good_Name: Good Value", "end"])
            .kept(),
        netty("a name with an equals sign", "GET / HTTP/1.0\r\nGood_Name: 1\r\nBad=Name: 2\r\n\r\n")
            .refused(400),
        netty("a line without a colon", "GET / HTTP/1.1\r\nHost:\r\nnetty.io\r\n\r\n").refused(400),
    ]
}

fn invalid_bytes() -> Vec<Row> {
    let name = |input: &str| input.escape_default().to_string();
    let mut rows = Vec::new();
    for byte in ["\x0C", "\x1C", "\x1D", "\x1E", "\x1F"] {
        let head = "GET / HTTP/1.1\r\nHost: a\r\n";
        rows.push(
            netty(format!("a name behind {}", name(byte)), format!("{head}{byte}A: b\r\n\r\n")).refused(400),
        );
        rows.push(
            netty(format!("a name ahead of {}", name(byte)), format!("{head}A{byte}: b\r\n\r\n"))
                .refused(400),
        );
    }
    for byte in ["\r", "\x0B", "\x0C"] {
        let input = format!("GET / HTTP/1.1\r\nHost: a\r\nA: b{byte}\r\n\r\n");
        rows.push(netty(format!("a value ahead of {}", name(byte)), input).refused(400));
    }
    rows
}

fn white_space() -> Vec<Row> {
    vec![
        netty(
            "white space around values",
            "GET / HTTP/1.1\r\nHost:a\r\nX0:  x0\r\nX1:\tx1\r\nX2: \t x2\r\nX3:x3\t \r\n\r\n",
        )
        .sees(&["GET / HTTP/1.1 for a", "X0: x0", "X1: x1", "X2: x2", "X3: x3", "end"])
        .kept(),
        netty(
            "folded lines",
            "GET / HTTP/1.1\r\nHost: a\r\nA: part1\r\n      part2\r\nB: part3\r\n\t   part4\r\n\r\n",
        )
        .refused(400)
        .differs("Netty joins them. RFC 9112, section 5.2: a server refuses them, or joins them."),
        netty(
            "a space ahead of the colon",
            "GET / HTTP/1.1\r\nTransfer-Encoding : chunked\r\nHost: a\r\n\r\n",
        )
        .refused(400),
        netty(
            "a space ahead of the colon, and a length",
            "GET / HTTP/1.1\r\nTransfer-Encoding : chunked\r\nContent-Length: 1\r\nHost: a\r\n\r\na",
        )
        .refused(400),
        go("a space ahead of the first name", "HEAD / HTTP/1.1\r\n Host: a\r\nContent-Length: 5\r\n\r\n")
            .refused(400),
        go("a tab ahead of the first name", "HEAD / HTTP/1.1\r\n\tHost: a\r\nContent-Length: 5\r\n\r\n")
            .refused(400),
    ]
}

fn connections() -> Vec<Row> {
    vec![
        go("a client that closes", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .sees(&["GET / HTTP/1.1 for a", "end"])
            .closed(),
        go(
            "HEAD with an empty body",
            "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        )
        .sees(&["HEAD / HTTP/1.1 for a", "end"])
        .closed(),
        netty(
            "two requests, the second of HTTP/1.0",
            "GET /one HTTP/1.1\r\nHost: a\r\n\r\nGET /two HTTP/1.0\r\nHost: b\r\ncontent-length: 0\r\n\r\n",
        )
        .sees(&["GET /one HTTP/1.1 for a", "end", "GET /two HTTP/1.0 for b", "end"])
        .closed(),
        netty("keep-alive in HTTP/1.0", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
            .sees(&["GET / HTTP/1.0", "end"])
            .kept(),
        netty(
            "a body beyond the limit that waits for 100 Continue",
            "PUT /file HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1048576000\r\n\r\n",
        )
        .refused(413)
        .differs(
            "Netty leaves the answer to the program, and keeps the connection. RFC 9110, section 15.5.14: \
             a server may close it.",
        ),
    ]
}
