//! Generates valid requests, of which every part can be changed.

use crate::support::random::Random;

/// A request in parts. Lines contain their line endings.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) line: Vec<u8>,
    pub(crate) headers: Vec<Vec<u8>>,
    pub(crate) body: Body,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    None,
    Sized(Vec<u8>),
    /// Chunks with their lines, the last of which is empty, and trailers.
    Chunked {
        chunks: Vec<Chunk>,
        trailers: Vec<Vec<u8>>,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    pub(crate) line: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

/// Methods that llhttp knows.
pub(crate) const METHODS: [&str; 8] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"];
const TARGETS: [&str; 8] = [
    "/",
    "/rooms/7/messages?first=10&after=%20x",
    "/a//b/../c;d=e",
    "/search?q=1+1=2!$&'()*,@:~",
    "http://example.org/path?query",
    "http://example.org:8080/",
    "/index.html?",
    "/-._~",
];
const HOSTS: [&str; 6] = ["example.org", "127.0.0.1:8080", "[::1]:80", "a", "", "xn--bcher-kva.example"];
const FIELDS: [&str; 20] = [
    "Accept: */*",
    "accept-encoding:gzip, deflate",
    "User-Agent: curl/8.5.0 (x86_64; \"quoted\")",
    "Cookie: a=b; c=d",
    "Cookie: e=f",
    "X-Empty:",
    "X-Empty: ",
    "x-!#$%&'*+-.^_`|~9: token",
    "X-Spaces:  \t inner \t space \t ",
    "X-Colon: a:b:c",
    "X-Latin: caf\u{e9}",
    "Connection: keep-alive",
    "Connection: Keep-Alive, x-other",
    "Upgrade: websocket",
    "Connection: upgrade",
    "Content-Type: text/plain; charset=\"utf-8\"",
    "Range: bytes=0-99",
    "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
    "Via: 1.1 proxy, 1.0 other (comment)",
    "TE: trailers",
];
const EXTENSIONS: [&str; 5] = ["", ";a", ";a=b", ";a=\"b c\"", ";a=b;c=d"];

pub(crate) fn pick<'a, T: ?Sized>(random: &mut Random, from: &[&'a T]) -> &'a T {
    from[random.between(0, from.len() - 1)]
}

/// Returns whether an event of probability one in `n` happens.
pub(crate) fn one_in(random: &mut Random, n: usize) -> bool {
    random.between(1, n) == 1
}

impl Draft {
    /// Returns a valid request.
    pub(crate) fn generate(random: &mut Random) -> Self {
        let is_old = one_in(random, 8);
        let version = if is_old { "1.0" } else { "1.1" };
        let (method, target) = match random.between(0, 24) {
            0 => ("CONNECT", "example.org:443"),
            1 => ("OPTIONS", "*"),
            _ => (pick(random, &METHODS), pick(random, &TARGETS)),
        };
        let mut headers: Vec<Vec<u8>> = (0..random.between(0, 6))
            .map(|_| [&latin1(pick(random, &FIELDS)), &b"\r\n"[..]].concat())
            .collect();
        if is_old && one_in(random, 2) {
            headers.push(b"Connection: keep-alive\r\n".to_vec());
        }
        if one_in(random, 12) {
            headers.push(b"Connection: close\r\n".to_vec());
        }
        if !is_old || one_in(random, 2) {
            let at = random.between(0, headers.len());
            headers.insert(at, format!("Host: {}\r\n", pick(random, &HOSTS)).into_bytes());
        }
        let body = match random.between(0, 5) {
            _ if method == "CONNECT" => Body::None,
            0 | 1 => Body::None,
            2 | 3 => Body::Sized(body_bytes(random)),
            _ if is_old => Body::None,
            _ => chunked(random),
        };
        let mut draft = Draft { line: format!("{method} {target} HTTP/{version}\r\n").into(), headers, body };
        draft.add_framing(random);
        draft
    }

    fn add_framing(&mut self, random: &mut Random) {
        let field = match &self.body {
            Body::None if one_in(random, 8) => "Content-Length: 0\r\n".to_owned(),
            Body::None => return,
            Body::Sized(bytes) => format!("Content-Length: {}\r\n", bytes.len()),
            Body::Chunked { .. } => {
                let coding = pick(random, &["chunked", "Chunked", "CHUNKED"]);
                format!("Transfer-Encoding: {coding}\r\n")
            }
        };
        let at = random.between(0, self.headers.len());
        self.headers.insert(at, field.into_bytes());
        if !matches!(self.body, Body::None) && one_in(random, 10) {
            self.headers.push(b"Expect: 100-continue\r\n".to_vec());
        }
    }

    /// Returns the position of the first header of this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.headers.iter().position(|header| {
            let found = header.split(|byte| *byte == b':').next().unwrap_or_default();
            found.eq_ignore_ascii_case(name.as_bytes())
        })
    }

    /// Appends the bytes of the request.
    pub(crate) fn write(&self, stream: &mut Vec<u8>) {
        stream.extend_from_slice(&self.line);
        stream.extend(self.headers.iter().flatten());
        stream.extend_from_slice(b"\r\n");
        match &self.body {
            Body::None => {}
            Body::Sized(bytes) => stream.extend_from_slice(bytes),
            Body::Chunked { chunks, trailers } => {
                for chunk in chunks {
                    for part in [&chunk.line, &chunk.data, &chunk.end] {
                        stream.extend_from_slice(part);
                    }
                }
                stream.extend(trailers.iter().flatten());
                stream.extend_from_slice(b"\r\n");
            }
        }
    }
}

fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(c).unwrap()).collect()
}

/// Returns any bytes, or bytes that look like another request.
fn body_bytes(random: &mut Random) -> Vec<u8> {
    match random.between(0, 3) {
        0 => b"GET /inner HTTP/1.1\r\nHost: inner\r\n\r\n".to_vec(),
        1 => b"0\r\n\r\n".to_vec(),
        _ => {
            let len = random.between(1, 80);
            random.bytes(len).to_vec()
        }
    }
}

fn chunked(random: &mut Random) -> Body {
    let mut chunks: Vec<Chunk> = (0..random.between(0, 3))
        .map(|_| {
            let data = body_bytes(random);
            let zeros = "0".repeat(random.between(0, 2));
            let extension = pick(random, &EXTENSIONS);
            let line = match random.between(0, 1) {
                0 => format!("{zeros}{:x}{extension}\r\n", data.len()),
                _ => format!("{zeros}{:X}{extension}\r\n", data.len()),
            };
            Chunk { line: line.into(), data, end: b"\r\n".to_vec() }
        })
        .collect();
    let last = format!("{}{}\r\n", pick(random, &["0", "00"]), pick(random, &EXTENSIONS));
    chunks.push(Chunk { line: last.into(), data: Vec::new(), end: Vec::new() });
    let trailers = (0..random.between(0, 3).saturating_sub(1))
        .map(|_| pick(random, &["X-Sum: 1\r\n", "ETag: \"x\"\r\n"]).as_bytes().to_vec())
        .collect();
    Body::Chunked { chunks, trailers }
}
