//! Status lines and headers of responses.

use super::super::row::{Row, go, netty};
use crate::http::error::HttpError;

/// Returns the rows.
pub(super) fn rows() -> Vec<Row> {
    [statuses(), versions(), lines(), headers(), informational()].into_iter().flatten().collect()
}

fn statuses() -> Vec<Row> {
    const RANGE: &str = "Go accepts it. RFC 9110, section 15: a code begins with one of its classes.";
    let response = |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    let malformed =
        ["20X Unknown", "abcd Unknown", " Unknown", "c8 OK", "0x12d Moved", "20 OK", "00 OK", "-10 OK"];
    let more = ["1000 OK", "-1 OK", "-200 OK", "\u{4E8C}\u{767E} OK"];
    let refuse = |status: &str| {
        go(format!("the status {status:?}"), response(status)).breaks(HttpError::StartLine("the status code"))
    };
    let mut rows: Vec<Row> = malformed.into_iter().chain(more).map(refuse).collect();
    rows.extend(["000 OK", "001 OK"].map(|status| refuse(status).differs(RANGE)));
    for (status, line) in
        [("200 OK", "200 HTTP/1.1"), ("404 NOTFOUND", "404 HTTP/1.1"), ("999 Done", "999 HTTP/1.1")]
    {
        rows.push(go(format!("the status {status:?}"), response(status)).sees(&[line, "end"]).kept());
    }
    rows.push(
        netty("a status without digits", "HTTP/1.0 BAD_CODE Bad Server\r\n\r\n")
            .breaks(HttpError::StartLine("the status code")),
    );
    rows
}

fn versions() -> Vec<Row> {
    const OTHERS: &str = "Go accepts it. RFC 9112, section 2.3: HTTP/1.1 and 1.0 are the versions with this \
         syntax. What others mean for the connection is unknown.";
    let response = |version: &str| format!("{version} 200 OK\r\n\r\n");
    let malformed = ["HTTP/1.100000000002", "HTTP/1.-1", "HTTP/A.B", "HTTP/1", "http/1.1"];
    let mut rows = Vec::from(malformed.map(|version| {
        go(format!("the version {version}"), response(version)).breaks(HttpError::StartLine("the version"))
    }));
    rows.extend(["HTTP/1.2", "HTTP/2.0"].map(|version| {
        go(format!("the version {version}"), response(version)).breaks(HttpError::Version).differs(OTHERS)
    }));
    rows
}

fn lines() -> Vec<Row> {
    vec![
        go("no reason phrase", "HTTP/1.0 303 \r\n\r\n").sees(&["303 HTTP/1.0"]).waits(&["end"]),
        go("no reason phrase and no space", "HTTP/1.0 303\r\n\r\n").sees(&["303 HTTP/1.0"]).waits(&["end"]),
        go("nothing", "").waits(&[]),
        go("a version only", "HTTP/1.1").waits(&["truncated"]),
        go("another version only", "HTTP/2.0").waits(&["truncated"]),
        go("a head that is cut", "HTTP/1.1 301 Moved Permanently\r\nFoo: bar").waits(&["truncated"]),
        netty("a status line only", "HTTP/1.1 200 OK\r\n").waits(&["truncated"]),
        netty(
            "a page without a head",
            "<html>\r\n<head><title>400 Bad Request</title></head>\r\n</html>\r\n",
        )
        .waits(&["truncated"])
        .differs(
            "Netty refuses the first line. We look at a head when its empty line has arrived: RFC 9112, \
             section 2.2.",
        ),
        netty("a page without a head, with an empty line", "<html>\r\n<head></head>\r\n\r\n</html>\r\n")
            .breaks(HttpError::StartLine("the version")),
    ]
}

fn headers() -> Vec<Row> {
    vec![
        netty(
            "spaces behind a value",
            "HTTP/1.1 200 OK\r\nX-Header: h2=h2v2; Expires=Wed, 09-Jun-2021 10:18:14 GMT       \r\n\r\nabc",
        )
        .sees(&["200 HTTP/1.1", "X-Header: h2=h2v2; Expires=Wed, 09-Jun-2021 10:18:14 GMT", "body abc"])
        .waits(&["end"]),
        netty("a space ahead of a colon", "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n")
            .breaks(HttpError::Header("a name"))
            .differs(
                "Netty removes it. RFC 9112, section 5.1: a proxy does that. A client that refuses it \
                 needs no second way to read a name.",
            ),
        netty("a name with an equals sign", "HTTP/1.0 200 Maybe OK\r\nGood_Name: 1\r\nBad=Name: 2\r\n\r\n")
            .breaks(HttpError::Header("a name")),
        go(
            "lines that end in LF",
            "HTTP/1.1 206 Partial Content\nConnection: close\nContent-Type: multipart/byteranges\n\nsome body",
        )
        .breaks(HttpError::Header("a line ends in LF without CR"))
        .differs("Go accepts a bare LF. RFC 9112, section 2.2 permits that, and does not require it."),
    ]
}

fn informational() -> Vec<Row> {
    const HANDSHAKE: &str = "HTTP/1.1 101 WebSocket Protocol Handshake\r\nUpgrade: WebSocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Origin: http://localhost:8080\r\n\r\n1234567812345678";
    vec![
        netty(
            "102 ahead of the response",
            "HTTP/1.1 102 Processing\r\nA: b\r\n\r\nHTTP/1.1 204 None\r\n\r\n",
        )
        .sees(&["102 HTTP/1.1", "A: b", "204 HTTP/1.1", "end"])
        .kept(),
        netty("102 and bytes that are no head", "HTTP/1.1 102 Processing\r\nA: b\r\n\r\n1234567812345678")
            .sees(&["102 HTTP/1.1", "A: b"])
            .waits(&["truncated"]),
        netty(
            "102 ahead of the response to HEAD, and the next response",
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n\
             HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n12345678",
        )
        .to(&["HEAD", "GET"])
        .sees(&["102 HTTP/1.1", "200 HTTP/1.1", "end", "200 HTTP/1.1", "body 12345678", "end"])
        .kept(),
        netty("101 and bytes of the other protocol", HANDSHAKE)
            .to(&["UPGRADE"])
            .sees(&["101 HTTP/1.1", "Upgrade: WebSocket", "Sec-WebSocket-Origin: http://localhost:8080"])
            .handed_over()
            .differs(
                "Netty delivers 16 bytes as a body, for a draft of WebSocket. RFC 9110, section 15.2.2: \
                 the other protocol begins behind the head.",
            ),
        netty("101 that nobody asked for", HANDSHAKE)
            .breaks(HttpError::UnexpectedUpgrade)
            .differs("Netty delivers it. RFC 9110, section 7.8: a server switches only if asked to."),
    ]
}
