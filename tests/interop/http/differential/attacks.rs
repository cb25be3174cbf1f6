//! Streams that servers have understood in different ways.

/// A stream of bytes that must be refused.
pub(crate) struct Attack {
    /// The request line, or empty for a valid one.
    line: &'static str,
    /// Headers, after a valid `Host`, unless they contain one.
    headers: &'static str,
    body: &'static str,
    /// The status code of the answer.
    pub(crate) status: &'static str,
}

/// Follows each attack. A recipient that is deceived takes it for a request of its own.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

impl Attack {
    pub(crate) fn stream(&self) -> Vec<u8> {
        let line = if self.line.is_empty() { "POST / HTTP/1.1\r\n" } else { self.line };
        let host = if self.headers.contains("Host") { "" } else { "Host: a\r\n" };
        let text = format!("{line}{host}{}\r\n{}{SMUGGLED}", self.headers, self.body);
        text.chars().map(|c| u8::try_from(c).unwrap()).collect()
    }
}

const fn head(headers: &'static str) -> Attack {
    Attack { line: "", headers, body: "", status: "400" }
}

const fn line(line: &'static str) -> Attack {
    Attack { line, headers: "", body: "", status: "400" }
}

const fn chunks(body: &'static str) -> Attack {
    Attack { line: "", headers: "Transfer-Encoding: chunked\r\n", body, status: "400" }
}

const fn coding(headers: &'static str, status: &'static str) -> Attack {
    Attack { line: "", headers, body: "0\r\n\r\n", status }
}

const fn answered(attack: Attack, status: &'static str) -> Attack {
    Attack { status, ..attack }
}

pub(crate) const ATTACKS: &[Attack] = &[
    // Two lengths.
    coding("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "400"),
    coding("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "400"),
    coding("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "400"),
    Attack {
        line: "POST / HTTP/1.0\r\n",
        headers: "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        body: "0\r\n\r\n",
        status: "400",
    },
    // Codings of which the last is not chunked, or that look like it.
    coding("Transfer-Encoding: chunked, x\r\n", "400"),
    coding("Transfer-Encoding: chunked, identity\r\n", "400"),
    coding("Transfer-Encoding: xchunked\r\n", "400"),
    coding("Transfer-Encoding: chunkedx\r\n", "400"),
    coding("Transfer-Encoding: chunked, chunked\r\n", "400"),
    coding("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "400"),
    coding("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", "400"),
    coding("Transfer-Encoding: \u{b}chunked\r\n", "400"),
    coding("Transfer-Encoding:\u{b}chunked\r\n", "400"),
    coding("Transfer-Encoding: \rchunked\r\n", "400"),
    coding("Transfer-Encoding\u{b}: chunked\r\n", "400"),
    coding("Transfer-Encoding : chunked\r\n", "400"),
    coding("Transfer-Encoding:\r\n chunked\r\n", "400"),
    coding("Transfer-Encoding: \"chunked\"\r\n", "400"),
    coding("Transfer-Encoding: gzip, chunked\r\n", "501"),
    coding("Transfer-Encoding: identity\r\n", "400"),
    coding("Transfer-Encoding:\r\n", "400"),
    Attack {
        line: "POST / HTTP/1.0\r\n",
        headers: "Transfer-Encoding: chunked\r\n",
        body: "0\r\n\r\n",
        status: "400",
    },
    // Invalid lengths.
    head("Content-Length: +5\r\n"),
    head("Content-Length: -1\r\n"),
    head("Content-Length: 5 5\r\n"),
    head("Content-Length: 0x5\r\n"),
    head("Content-Length: 5,6\r\n"),
    head("Content-Length: 5, 5\r\n"),
    head("Content-Length: 5\r\nContent-Length: 5\r\n"),
    head("Content-Length: 5\r\nContent-Length: 6\r\n"),
    head("Content-Length:\r\n"),
    head("Content-Length: 9223372036854775808\r\n"),
    head("Content-Length: 18446744073709551621\r\n"),
    head("Content-Length: 5\u{b}\r\n"),
    answered(head("Content-Length: 9223372036854775807\r\n"), "413"),
    // Names of headers.
    head("Content-Length : 5\r\n"),
    head("Content-Length\t: 5\r\n"),
    line("GET / HTTP/1.1\r\n Host: a\r\n"),
    line("GET / HTTP/1.1\r\n\tHost: a\r\n"),
    head("NoColon\r\n"),
    head(": empty\r\n"),
    head("X Y: z\r\n"),
    head("X\0: z\r\n"),
    head("X\u{e9}: z\r\n"),
    head("X(: z\r\n"),
    head("X\u{7f}: z\r\n"),
    // Values of headers.
    head("X: a\0b\r\n"),
    head("X: a\u{1}b\r\n"),
    head("X: a\u{7f}b\r\n"),
    head("X: a\r\n b\r\n"),
    head("X: a\r\n\tContent-Length: 5\r\n"),
    head("X: a\r\n \r\n"),
    // Line endings.
    line("GET / HTTP/1.1\n"),
    head("X: a\n"),
    head("X: a\nContent-Length: 5\r\n"),
    head("X: a\rContent-Length: 5\r\n"),
    head("X: a\r\r\n"),
    head("X: a\r"),
    // Before the request line.
    line("\r\n\r\nGET / HTTP/1.1\r\n"),
    line("\nGET / HTTP/1.1\r\n"),
    line("\rGET / HTTP/1.1\r\n"),
    line(" GET / HTTP/1.1\r\n"),
    line("\0GET / HTTP/1.1\r\n"),
    line("\u{1}GET / HTTP/1.1\r\n"),
    // The request line.
    line("GET / HTTP/1.1x\r\n"),
    line("GET / HTTP/1.1 x\r\n"),
    line("GET  / HTTP/1.1\r\n"),
    line("GET /  HTTP/1.1\r\n"),
    line("GET\t/ HTTP/1.1\r\n"),
    line("GET / x HTTP/1.1\r\n"),
    line("GET /\0 HTTP/1.1\r\n"),
    line("GET /\u{e9} HTTP/1.1\r\n"),
    line("G\u{e9}T / HTTP/1.1\r\n"),
    line("G(T / HTTP/1.1\r\n"),
    line("GET /\r\n"),
    line("GET HTTP/1.1\r\n"),
    line("GET / http/1.1\r\n"),
    line("GET / HTTP/1,1\r\n"),
    answered(line("GET / HTTP/2.0\r\n"), "505"),
    answered(line("GET / HTTP/1.2\r\n"), "505"),
    answered(line("GET / HTTP/0.9\r\n"), "505"),
    line("GET / HTTP/1.10\r\n"),
    line("GET / HTTP/01.1\r\n"),
    // Hosts.
    head("X-Host: a\r\n"),
    head("Host: a\r\nHost: b\r\n"),
    head("Host: a\r\nHost: a\r\n"),
    head("Host: a b\r\n"),
    head("Host: a/b\r\n"),
    head("Host: user@a\r\n"),
    head("Host: a\u{e9}\r\n"),
    // Sizes of chunks.
    chunks("00000000000000005\r\nhello\r\n0\r\n\r\n"),
    chunks("10000000000000005\r\nhello\r\n0\r\n\r\n"),
    answered(chunks("ffffffffffffffff\r\nhello\r\n0\r\n\r\n"), "413"),
    chunks("+5\r\nhello\r\n0\r\n\r\n"),
    chunks("-5\r\nhello\r\n0\r\n\r\n"),
    chunks("0x5\r\nhello\r\n0\r\n\r\n"),
    chunks(" 5\r\nhello\r\n0\r\n\r\n"),
    chunks("5 \r\nhello\r\n0\r\n\r\n"),
    chunks("\r\nhello\r\n0\r\n\r\n"),
    chunks("g\r\nhello\r\n0\r\n\r\n"),
    chunks("5_\r\nhello\r\n0\r\n\r\n"),
    // Extensions of chunks.
    chunks("5;a\nb\r\nhello\r\n0\r\n\r\n"),
    chunks("5;a\rb\r\nhello\r\n0\r\n\r\n"),
    chunks("5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n"),
    chunks("5;\0\r\nhello\r\n0\r\n\r\n"),
    chunks("5\nhello\r\n0\r\n\r\n"),
    chunks("5\rhello\r\n0\r\n\r\n"),
    // The ends of chunks.
    chunks("5\r\nhello0\r\n\r\n"),
    chunks("5\r\nhelloxx0\r\n\r\n"),
    chunks("5\r\nhello\n0\r\n\r\n"),
    chunks("5\r\nhello\r0\r\n\r\n"),
    chunks("5\r\nhello\r\n\r\n0\r\n\r\n"),
    chunks("5\r\nhello\r\n0\n\n"),
    chunks("5\r\nhello\r\n0\r\n\n"),
    // Trailers.
    chunks("0\r\nContent-Length: 5\r\n\r\n"),
    chunks("0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    chunks("0\r\nHost: b\r\n\r\n"),
    chunks("0\r\nX : a\r\n\r\n"),
    chunks("0\r\nX: a\r\n b\r\n\r\n"),
    chunks("0\r\nX\r\n\r\n"),
    chunks("0\r\nX: a\n\r\n"),
    // A body of CONNECT, which other recipients take for bytes of the tunnel.
    Attack {
        line: "CONNECT a:443 HTTP/1.1\r\n",
        headers: "Content-Length: 5\r\n",
        body: "hello",
        status: "400",
    },
    Attack {
        line: "CONNECT a:443 HTTP/1.1\r\n",
        headers: "Transfer-Encoding: chunked\r\n",
        body: "0\r\n\r\n",
        status: "400",
    },
];
