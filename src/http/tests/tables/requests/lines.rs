//! Request lines, and the host of a request.

use super::super::row::{Row, go, netty};

/// Returns the rows.
pub(super) fn rows() -> Vec<Row> {
    [targets(), connect_and_asterisk(), versions(), hosts(), leading_bytes()].into_iter().flatten().collect()
}

fn targets() -> Vec<Row> {
    vec![
        go("a plain GET", "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .sees(&["GET / HTTP/1.1 for a.example", "end"])
            .kept(),
        go(
            "an absolute target, a body of a GET, and bytes behind it",
            "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nAccept: text/html,*/*;q=0.8\r\n\
             Keep-Alive: 300\r\nContent-Length: 7\r\nProxy-Connection: keep-alive\r\n\r\nabcdef\n???",
        )
        .sees(&[
            "GET http://a.example/ HTTP/1.1 for a.example",
            "Accept: text/html,*/*;q=0.8",
            "Keep-Alive: 300",
            "Proxy-Connection: keep-alive",
            "body abcdef\n",
            "end",
        ])
        .waits(&[]),
        go("a path like an authority", "GET //user@host/a/path/ HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .sees(&["GET //user@host/a/path/ HTTP/1.1 for a.example", "end"])
            .kept(),
        go("a relative path", "GET ../../etc/passwd HTTP/1.1\r\nHost: a.example\r\n\r\n").refused(400),
        go("no target", "GET  HTTP/1.1\r\nHost: a.example\r\n\r\n").refused(400),
        go("a method that is no token", "GE(T / HTTP/1.1\r\nHost: a.example\r\n\r\n").refused(400),
    ]
}

fn connect_and_asterisk() -> Vec<Row> {
    vec![
        go("CONNECT to a name", "CONNECT b.example:443 HTTP/1.1\r\n\r\n").refused(400).differs(
            "Go does not need Host for CONNECT. RFC 9112, section 3.2: every request of HTTP/1.1 has one.",
        ),
        go("CONNECT to an address", "CONNECT 127.0.0.1:6060 HTTP/1.1\r\nHost: 127.0.0.1:6060\r\n\r\n")
            .sees(&["CONNECT 127.0.0.1:6060 HTTP/1.1 for 127.0.0.1:6060", "end"])
            .handed_over(),
        go("CONNECT to a path", "CONNECT /_goRPC_ HTTP/1.1\r\nHost: a.example\r\n\r\n").refused(400).differs(
            "Go's RPC uses it. RFC 9112, section 3.2.3: the target of CONNECT is a host and a port.",
        ),
        go("CONNECT with an escaped line", "CONNECT []%20HTTP%2f1.1%0aX%3a%20y%0a%0a HTTP/1.0\r\n\r\n")
            .refused(400),
        go("OPTIONS for the server", "OPTIONS * HTTP/1.1\r\nHost: a.example\r\nServer: b\r\n\r\n")
            .sees(&["OPTIONS * HTTP/1.1 for a.example", "Server: b", "end"])
            .kept(),
        go("NOTIFY for the server", "NOTIFY * HTTP/1.1\r\nHost: a.example\r\nServer: b\r\n\r\n")
            .refused(400)
            .differs("SSDP uses it. RFC 9112, section 3.2.4: `*` is for OPTIONS only."),
        go("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").refused(505).differs(
            "Go passes it to handlers of HTTP/2, which we do not have. RFC 9110, section 15.6.6: the answer \
             is 505.",
        ),
    ]
}

fn versions() -> Vec<Row> {
    let go_versions = [("PRI / HTTP/2.0", 505), ("GET / HTTP/3.0", 505), ("GET / HTTP/0.9", 505)];
    let malformed = [
        "HTP/1.1",
        "HTTP",
        "HTTP/1x",
        "Something/1.1",
        "HTTP/1",
        "HTTP/1.11",
        "HTTP/11.1",
        "HTTP/A.1",
        "HTTP/1.B",
    ];
    let mut rows = Vec::from(go_versions.map(|(line, status)| {
        go(format!("the line {line}"), format!("{line}\r\nHost: a.example\r\n\r\n")).refused(status)
    }));
    rows.extend(malformed.map(|version| {
        netty(format!("the version {version}"), format!("GET / {version}\r\nHost: a.example\r\n\r\n"))
            .refused(400)
    }));
    rows.push(
        netty("more behind the version", "GET / HTTP/1.0 with extra\r\nHost: a.example\r\n\r\n").refused(400),
    );
    rows.push(netty("a NUL behind the version", "GET / HTTP/1.1\r\0\nHost: a.example\r\n\r\n").refused(400));
    rows.push(
        netty(
            "a header in the line",
            "POST / HTTP/1.1Transfer-Encoding : chunked\r\nHost: a.example\r\n\r\n",
        )
        .refused(400),
    );
    rows
}

fn hosts() -> Vec<Row> {
    let valid = ["1.2.3.4", "a-b_c.example", "a.example:80", "[::1]", "[::1]:80", "[::1%25en0]:80"];
    let mut rows = Vec::from(valid.map(|host| {
        go(format!("the host {host}"), format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"))
            .sees(&[&format!("GET / HTTP/1.1 for {host}"), "end"])
            .kept()
    }));
    let invalid: [&[u8]; 4] = [b"\x06", b"\xFF", b"{", b"}"];
    rows.extend(invalid.map(|host| {
        let input = [b"GET / HTTP/1.1\r\nHost: ", host, b"\r\n\r\n"].concat();
        go(format!("the host {}", host.escape_ascii()), input).refused(400)
    }));
    rows.extend([
        go("an empty host", "GET / HTTP/1.1\r\nHost: \r\n\r\n").sees(&["GET / HTTP/1.1", "end"]).kept(),
        go("an address of IPv6 without brackets", "GET / HTTP/1.1\r\nHost: ::1\r\n\r\n")
            .refused(400)
            .differs(
                "Go accepts it. RFC 9110, section 7.2: Host is a host of RFC 3986, whose section 3.2.2 needs \
             the brackets.",
            ),
        go("no host", "GET / HTTP/1.1\r\n\r\n").refused(400),
        go("two hosts", "GET / HTTP/1.1\r\nHost: first\r\nHost: second\r\n\r\n").refused(400),
        go("no host in HTTP/1.0", "GET / HTTP/1.0\r\n\r\n").sees(&["GET / HTTP/1.0", "end"]).closed(),
        go("two hosts in HTTP/1.0", "GET / HTTP/1.0\r\nHost: first\r\nHost: second\r\n\r\n").refused(400),
        go("an invalid host in HTTP/1.0", b"GET / HTTP/1.0\r\nHost: \xFF\r\n\r\n").refused(400),
    ]);
    rows
}

fn leading_bytes() -> Vec<Row> {
    vec![
        netty("an empty line ahead", "\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .sees(&["GET / HTTP/1.1 for a.example", "end"])
            .kept(),
        netty("empty lines ahead", "\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .refused(400)
            .differs("Netty skips all of them. RFC 9112, section 2.2: a server ignores at least one."),
        netty("spaces ahead", "   GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .refused(400)
            .differs("Netty skips them. RFC 9112, section 3: a request line begins with the method."),
    ]
}
