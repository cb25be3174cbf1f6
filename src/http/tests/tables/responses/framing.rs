//! Where responses end, and what becomes of the connection.

use super::super::row::{Row, go, netty};
use crate::http::error::HttpError;

/// Returns the rows.
pub(super) fn rows() -> Vec<Row> {
    [until_the_end(), lengths(), without_bodies(), codings(), chunks(), several()]
        .into_iter()
        .flatten()
        .collect()
}

fn until_the_end() -> Vec<Row> {
    vec![
        go("a body of HTTP/1.0", "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nBody here\n")
            .sees(&["200 HTTP/1.0", "body Body here\n"])
            .waits(&["end"]),
        go("a body without a length", "HTTP/1.1 200 OK\r\n\r\nBody here\n")
            .sees(&["200 HTTP/1.1", "body Body here\n"])
            .waits(&["end"]),
        go(
            "parts of a document",
            "HTTP/1.1 206 Partial Content\r\nConnection: close\r\n\
             Content-Type: multipart/byteranges; boundary=18a75608\r\n\r\nsome body",
        )
        .sees(&["206 HTTP/1.1", "Content-Type: multipart/byteranges; boundary=18a75608", "body some body"])
        .waits(&["end"]),
        netty("an empty body without a length", "HTTP/1.1 200 OK\r\n\r\n")
            .sees(&["200 HTTP/1.1"])
            .waits(&["end"]),
    ]
}

fn lengths() -> Vec<Row> {
    let refused = ["", "+3", "-3", "9223372036854775808"];
    let mut rows = Vec::from(refused.map(|length| {
        go(format!("the length {length:?}"), format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"))
            .breaks(HttpError::Header("Content-Length is not a number"))
    }));
    rows.extend([
        go(
            "a length in HTTP/1.0",
            "HTTP/1.0 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nBody here\n",
        )
        .sees(&["200 HTTP/1.0", "body Body here\n", "end"])
        .closed(),
        go("a length of 0", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .sees(&["200 HTTP/1.1", "end"])
            .kept(),
        go(
            "a part of a document",
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-5/1862\r\nContent-Length: 6\r\n\r\nfoobar",
        )
        .sees(&["206 HTTP/1.1", "Content-Range: bytes 0-5/1862", "body foobar", "end"])
        .kept(),
        go("a body that is cut", "HTTP/1.1 200 OK\r\nContent-Length: 123\r\n\r\nShort body.")
            .sees(&["200 HTTP/1.1", "body Short body."])
            .waits(&["truncated"]),
        go(
            "two equal lengths",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        )
        .breaks(HttpError::Header("several Content-Length headers"))
        .differs("Go takes one of them. RFC 9112, section 6.3: a recipient may refuse them."),
        netty("a length and binary data", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n\0\x01\r\n\x04")
            .sees(&["200 HTTP/1.1", "body \0\x01\r\n\x04", "end"])
            .kept(),
        netty(
            "keep-alive in HTTP/1.0",
            "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok",
        )
        .sees(&["200 HTTP/1.0", "body ok", "end"])
        .kept(),
    ]);
    rows
}

fn without_bodies() -> Vec<Row> {
    let head = |name: &str, input: &str| go(name, input).to(&["HEAD"]);
    vec![
        go("204 and bytes behind it", "HTTP/1.1 204 No Content\r\n\r\nBody should not be read!\n")
            .sees(&["204 HTTP/1.1", "end"])
            .breaks(HttpError::UnexpectedResponse),
        head("chunked to HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .sees(&["200 HTTP/1.1", "end"])
            .kept(),
        head("a length to HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 256\r\n\r\n")
            .sees(&["200 HTTP/1.1", "end"])
            .kept(),
        head("a length to HEAD in HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 256\r\n\r\n")
            .sees(&["200 HTTP/1.0", "end"])
            .closed(),
        head("no length to HEAD in HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n")
            .sees(&["200 HTTP/1.0", "end"])
            .closed(),
        head(
            "keep-alive and close",
            "HTTP/1.1 200 OK\r\nContent-Length: 256\r\nConnection: keep-alive, close\r\n\r\n",
        )
        .sees(&["200 HTTP/1.1", "end"])
        .closed(),
        head(
            "keep-alive and close in two headers",
            "HTTP/1.1 200 OK\r\nContent-Length: 256\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
        )
        .sees(&["200 HTTP/1.1", "end"])
        .closed(),
        netty("CONNECT with a length", "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n12345678")
            .to(&["CONNECT"])
            .sees(&["200 HTTP/1.1"])
            .handed_over(),
    ]
}

fn codings() -> Vec<Row> {
    const IGNORED: &str = "Go ignores codings in HTTP/1.0. RFC 9112, section 6.1: the framing of such a \
         message is faulty.";
    const FAULTY: HttpError = HttpError::Header("Transfer-Encoding and Content-Length");
    vec![
        go("a coding in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: bogus\r\n\r\nBody here\n")
            .breaks(HttpError::Header("Transfer-Encoding in HTTP/1.0"))
            .differs(IGNORED),
        go(
            "a coding and a length in HTTP/1.0",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: bogus\r\nContent-Length: 10\r\n\r\nBody here\n",
        )
        .breaks(FAULTY)
        .differs(IGNORED),
        go(
            "chunked and a length",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 10\r\n\r\n0\r\n\r\n",
        )
        .breaks(FAULTY)
        .differs("Go and Netty drop the length. RFC 9112, section 6.3: it ought to be handled as an error."),
        go("an unknown coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: fugazi\r\n\r\n0\r\n\r\n")
            .breaks(HttpError::Header("Transfer-Encoding")),
    ]
}

fn chunks() -> Vec<Row> {
    let chunked = |body: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    vec![
        go("chunks", chunked("0a\r\nBody here\n\r\n09\r\ncontinued\r\n0\r\n\r\n"))
            .sees(&["200 HTTP/1.1", "body Body here\ncontinued", "end"])
            .kept(),
        netty("chunks that are cut at the last line", chunked("5\r\nfirst\r\n6\r\nsecond\r\n0\r\n"))
            .sees(&["200 HTTP/1.1", "body firstsecond"])
            .waits(&["truncated"]),
        netty("no chunk", chunked("")).sees(&["200 HTTP/1.1"]).waits(&["truncated"]),
        netty("chunks that are cut behind data", chunked("8\r\n12345678"))
            .sees(&["200 HTTP/1.1", "body 12345678"])
            .waits(&["truncated"]),
        netty("a chunk without a size", chunked("NOT_A_CHUNK_LENGTH\r\n"))
            .sees(&["200 HTTP/1.1"])
            .breaks(HttpError::Chunk("the size")),
        netty(
            "205 with an empty chunked body",
            "HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        )
        .sees(&["205 HTTP/1.1", "end"])
        .kept(),
        netty("two trailers of one name", chunked("0\r\nSet-Cookie: t1=v1\r\nSet-Cookie: t2=v2; A=b\r\n\r\n"))
            .sees(&["200 HTTP/1.1", "end Set-Cookie: t1=v1; Set-Cookie: t2=v2; A=b"])
            .kept(),
        netty(
            "a trailer that was announced",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: My-Trailer\r\n\r\n0\r\nMy-Trailer: 42\r\n\r\n",
        )
        .sees(&["200 HTTP/1.1", "Trailer: My-Trailer", "end My-Trailer: 42"])
        .kept(),
    ]
}

fn several() -> Vec<Row> {
    const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    vec![
        netty("two responses to two requests", EMPTY.repeat(2))
            .to(&["GET", "GET"])
            .sees(&["200 HTTP/1.1", "end", "200 HTTP/1.1", "end"])
            .kept(),
        go("two responses to one request", EMPTY.repeat(2))
            .sees(&["200 HTTP/1.1", "end"])
            .breaks(HttpError::UnexpectedResponse),
    ]
}
