//! Bodies of requests, and the headers that frame them.

use super::super::row::{Row, go, netty};
use crate::http::error::HttpError;

/// Returns the rows.
pub(super) fn rows() -> Vec<Row> {
    [lengths(), codings(), both_framings(), chunks()].into_iter().flatten().collect()
}

const CUT: &str = "Go's handler reads an error. Here the channel closes, and the body has no end. RFC 9112, \
     section 8: a server may answer, and need not.";

/// Returns a request with these headers, and these bytes after its head.
fn post(headers: &str, rest: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n{rest}")
}

const HEAD: &str = "POST / HTTP/1.1 for a";

fn lengths() -> Vec<Row> {
    let refused = ["", "+3", "-3", "9223372036854775808", "1,1", "1, 1", "1, 2", "1,"];
    let mut rows = Vec::from(refused.map(|length| {
        let input = post(&format!("Content-Length: {length}\r\n"), "abc");
        // Netty has those with commas.
        let row = if length.contains(',') { netty } else { go };
        row(format!("the length {length:?}"), input).refused(400)
    }));
    rows.extend([
        go("a length", post("Content-Length: 3\r\n", "abc")).sees(&[HEAD, "body abc", "end"]).kept(),
        go("the largest length", post("Content-Length: 9223372036854775807\r\n", "abc"))
            .refused(413)
            .differs("Go's parser has no limit. RFC 9110, section 15.5.14: a server may refuse the size."),
        go("a body that is cut", post("Content-Length: 10\r\n", "12345"))
            .sees(&[HEAD, "body 12345"])
            .waits(&[])
            .differs(CUT),
        go("two lengths", post("Content-Length: 3\r\nContent-Length: 4\r\n", "abc")).refused(400),
        go("two equal lengths", post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"))
            .refused(400)
            .differs("Go takes one of them. RFC 9112, section 6.3: a server may refuse them. Netty does."),
        go(
            "two lengths of HEAD",
            "HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n1234",
        )
        .refused(400),
        netty(
            "two lengths around another header",
            post("Content-Length: 1\r\nConnection: close\r\nContent-Length: 0\r\n", "b"),
        )
        .refused(400),
        netty("a folded second length", post("Content-Length: 5\r\nContent-Length:\r\n\t6\r\n", "123456"))
            .refused(400),
    ]);
    rows
}

fn codings() -> Vec<Row> {
    const TWICE: &str = "Go accepts two headers. RFC 9112, section 6.1: chunked occurs once.";
    const UNKNOWN: &str = "Go answers 501. RFC 9112, section 6.3: 400 if chunked is not the last coding.";
    let refused = [
        ("fugazi", UNKNOWN),
        ("", UNKNOWN),
        ("chunked, identity", UNKNOWN),
        ("\x0Bchunked", UNKNOWN),
        ("chunked\r\nTransfer-Encoding: identity", UNKNOWN),
        ("chunked, chunked\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked", UNKNOWN),
        ("chunked\r\nTransfer-Encoding: chunked", TWICE),
    ];
    let mut rows = Vec::from(refused.map(|(coding, why)| {
        let input = post(&format!("Transfer-Encoding: {coding}\r\n"), "0\r\n\r\n");
        go(format!("the coding {coding:?}"), input).refused(400).differs(why)
    }));
    rows.push(
        netty(
            "chunked in HTTP/1.0",
            "GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nBAD_LENGTH\r\n",
        )
        .refused(400)
        .differs(
            "Netty refuses only the chunk. RFC 9112, section 6.1: the framing of such a head is faulty.",
        ),
    );
    rows
}

fn both_framings() -> Vec<Row> {
    const BOTH: &str = "Go and Netty drop the length. RFC 9112, section 6.3: the message may be an attempt \
         at smuggling, and ought to be handled as an error.";
    let mut rows = vec![
        go(
            "chunked ahead of a length",
            post("Transfer-Encoding: chunked\r\nContent-Length: 9999\r\n", "3\r\nfoo\r\n0\r\n\r\n"),
        )
        .refused(400)
        .differs(BOTH),
        netty(
            "chunked behind a length",
            post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        )
        .refused(400)
        .differs(BOTH),
    ];
    for separator in ["\x0B", "\r"] {
        for rest in ["", "0\r\n\r\n"] {
            let headers = format!("Content-Length: 9\r\nTransfer-Encoding:{separator}chunked\r\n");
            let input = post(&headers, &format!("{rest}something\r\n\r\n"));
            rows.push(netty(format!("a length, {separator:?}chunked, {rest:?}"), input).refused(400));
        }
    }
    rows
}

fn chunks() -> Vec<Row> {
    let chunked = |body: &str| post("Transfer-Encoding: chunked\r\n", body);
    vec![
        go(
            "chunks and a trailer",
            chunked("3\r\nfoo\r\n3\r\nbar\r\n0\r\nTrailer-Key: Trailer-Value\r\n\r\n"),
        )
        .sees(&[HEAD, "body foobar", "end Trailer-Key: Trailer-Value"])
        .kept(),
        go("a size of 16 digits", chunked("0000000000000001\r\nx\r\n0000000000000000\r\n\r\n"))
            .sees(&[HEAD, "body x", "end"])
            .kept(),
        go("a size of 17 digits", chunked("00000000000000001\r\nx\r\n0\r\n\r\n"))
            .sees(&[HEAD])
            .breaks(HttpError::Chunk("the size")),
        go("a size of 2^64", chunked("10000000000000000\r\n"))
            .sees(&[HEAD])
            .breaks(HttpError::Chunk("the size")),
        go("a size of 2^64 - 1", chunked("ffffffffffffffff\r\n"))
            .sees(&[HEAD])
            .breaks(HttpError::BodyTooLong)
            .differs("Go's parser has no limit. RFC 9112, section 7.1: a recipient expects large sizes."),
        go("digits and others", chunked("000000000000bogus\r\n"))
            .sees(&[HEAD])
            .breaks(HttpError::Chunk("the size")),
        go("a size without digits", chunked("x\r\n")).sees(&[HEAD]).breaks(HttpError::Chunk("the size")),
        go(
            "extensions",
            chunked("7;a=\"some text\"\r\nhello, \r\n6;b\r\nworld!\r\n0;someextension=sometoken\r\n\r\n"),
        )
        .sees(&[HEAD, "body hello, world!", "end"])
        .kept(),
        go("more data than the size", chunked("7\r\n1234567xx"))
            .sees(&[HEAD, "body 1234567"])
            .breaks(HttpError::Chunk("no CRLF behind the data")),
        go("chunks that are cut at the trailers", chunked("3\r\nfoo\r\n0\r\n"))
            .sees(&[HEAD, "body foo"])
            .waits(&[])
            .differs(CUT),
        netty("a size beyond 31 bits", chunked("8ccccccc\r\n")).sees(&[HEAD]).breaks(HttpError::BodyTooLong),
        netty("a size with an LF in the extension", chunked("bbbbbbbe;\n\r\n"))
            .sees(&[HEAD])
            .breaks(HttpError::Chunk("a line ends in LF without CR")),
    ]
}
