//! Changes that make a request invalid, ambiguous, or just different; those of heads.

use super::{
    bodies::{chunk_line, end_of_a_chunk, trailer},
    requests::{Body, Draft, one_in, pick},
};
use crate::support::random::Random;

/// A change of a request. Returns `false` if it does not apply to this one.
pub(crate) type Mutate = fn(&mut Draft, &mut Random) -> bool;

/// All changes with their names.
pub(crate) const MUTATIONS: [(&str, Mutate); 19] = [
    ("length and coding", length_and_coding),
    ("coding", coding),
    ("coding in HTTP/1.0", coding_in_http_1_0),
    ("length", length),
    ("two lengths", two_lengths),
    ("space around a name", space_around_a_name),
    ("no name or colon", no_name_or_colon),
    ("folded line", folded_line),
    ("bare LF", bare_lf),
    ("bare CR", bare_cr),
    ("control character", control_character),
    ("empty lines", empty_lines),
    ("request line", request_line),
    ("unknown method", unknown_method),
    ("form of the target", form_of_the_target),
    ("chunk line", chunk_line),
    ("end of a chunk", end_of_a_chunk),
    ("trailer", trailer),
    ("host", host),
];

/// Changes that any stream of bytes may have.
pub(crate) fn mutate_bytes(stream: &mut Vec<u8>, random: &mut Random) {
    const BYTES: &[u8] = b"\r\n\0\t :,;0\"\x0B\x7F\x80\xFFaA/";
    for _ in 0..random.between(1, 3) {
        let at = random.between(0, stream.len() - 1);
        let byte = BYTES[random.between(0, BYTES.len() - 1)];
        match random.between(0, 4) {
            0 => stream[at] = byte,
            1 => stream.insert(at, byte),
            2 => stream[at] ^= 1 << random.between(0, 7),
            3 if stream.len() > 1 => drop(stream.remove(at)),
            _ => {
                let end = (at + random.between(1, 20)).min(stream.len());
                let part = stream[at..end].to_vec();
                stream.splice(at..at, part);
            }
        }
    }
}

fn insert_header(draft: &mut Draft, random: &mut Random, header: &str) -> bool {
    let at = random.between(0, draft.headers.len());
    draft.headers.insert(at, format!("{header}\r\n").into_bytes());
    true
}

fn replace_header(draft: &mut Draft, name: &str, header: &str) -> bool {
    let Some(at) = draft.position(name) else { return false };
    draft.headers[at] = format!("{header}\r\n").into_bytes();
    true
}

fn length_and_coding(draft: &mut Draft, random: &mut Random) -> bool {
    match &draft.body {
        Body::None => false,
        Body::Sized(_) => insert_header(draft, random, "Transfer-Encoding: chunked"),
        Body::Chunked { .. } => {
            let length = pick(random, &["Content-Length: 0", "Content-Length: 5", "content-length:4"]);
            insert_header(draft, random, length)
        }
    }
}

fn coding(draft: &mut Draft, random: &mut Random) -> bool {
    const VALUES: [&str; 18] = [
        "chunked, identity",
        "identity, chunked",
        "identity",
        "gzip",
        "gzip, chunked",
        "xchunked",
        "chunkedx",
        "chunked, chunked",
        "chunked,",
        ",chunked",
        "",
        "\u{b}chunked",
        "\rchunked",
        "chunked\u{b}",
        "chun\u{212a}ed",
        "\"chunked\"",
        "chunked;a=b",
        "chunked\r\nTransfer-Encoding: chunked",
    ];
    replace_header(draft, "transfer-encoding", &format!("Transfer-Encoding: {}", pick(random, &VALUES)))
}

fn coding_in_http_1_0(draft: &mut Draft, _: &mut Random) -> bool {
    if !matches!(draft.body, Body::Chunked { .. }) {
        return false;
    }
    let at = draft.line.len() - 3;
    draft.line[at] = b'0';
    true
}

fn length(draft: &mut Draft, random: &mut Random) -> bool {
    let Body::Sized(bytes) = &draft.body else { return false };
    let n = bytes.len();
    let value = match random.between(0, 13) {
        0 => format!("+{n}"),
        1 => format!("-{n}"),
        2 => format!("{n} {n}"),
        3 => format!("0x{n:x}"),
        4 => format!("{n},"),
        5 => format!("{n}, {}", n + 1),
        6 => format!("{n}, {n}"),
        7 => String::new(),
        8 => "9223372036854775808".to_owned(),
        9 => "18446744073709551616".to_owned(),
        10 => format!("{n}.0"),
        11 => format!("{n}\u{b}"),
        12 => format!("{:018}", n),
        _ => format!("{n}_"),
    };
    replace_header(draft, "content-length", &format!("Content-Length: {value}"))
}

fn two_lengths(draft: &mut Draft, random: &mut Random) -> bool {
    let Body::Sized(bytes) = &draft.body else { return false };
    let second = bytes.len() + random.between(0, 1);
    insert_header(draft, random, &format!("Content-Length: {second}"))
}

fn space_around_a_name(draft: &mut Draft, random: &mut Random) -> bool {
    if draft.headers.is_empty() {
        return false;
    }
    let at = random.between(0, draft.headers.len() - 1);
    let space = if one_in(random, 2) { b' ' } else { b'\t' };
    if one_in(random, 3) {
        draft.headers[0].insert(0, space);
        return true;
    }
    let header = &mut draft.headers[at];
    let Some(colon) = header.iter().position(|byte| *byte == b':') else { return false };
    header.insert(colon, space);
    true
}

fn no_name_or_colon(draft: &mut Draft, random: &mut Random) -> bool {
    let header = pick(random, &["X-Other", ": value", ":", "X Other: value", "X-Other value"]);
    insert_header(draft, random, header)
}

fn folded_line(draft: &mut Draft, random: &mut Random) -> bool {
    let folded = ["X-Fold: a\r\n b", "X-Fold: a\r\n\tb: c", "X-Fold:\r\n a", "X-Fold: a\r\n "];
    let header = pick(random, &folded);
    insert_header(draft, random, header)
}

fn bare_lf(draft: &mut Draft, random: &mut Random) -> bool {
    let count = draft.headers.len();
    let line = match random.between(0, count) {
        0 => &mut draft.line,
        at => &mut draft.headers[at - 1],
    };
    line.remove(line.len() - 2);
    true
}

fn bare_cr(draft: &mut Draft, random: &mut Random) -> bool {
    let header = pick(random, &["X-Cr: a\rb", "X-Cr: a\r", "X\r-Cr: a", "X-Cr: a\rContent-Length: 9"]);
    insert_header(draft, random, header)
}

fn control_character(draft: &mut Draft, random: &mut Random) -> bool {
    const BYTES: &[u8] = b"\0\x01\x08\x0B\x0C\x1F\x7F";
    let byte = BYTES[random.between(0, BYTES.len() - 1)];
    let count = draft.headers.len();
    let line = match random.between(0, count) {
        0 => &mut draft.line,
        at => &mut draft.headers[at - 1],
    };
    let at = random.between(0, line.len() - 2);
    line.insert(at, byte);
    true
}

/// One is valid.
fn empty_lines(draft: &mut Draft, random: &mut Random) -> bool {
    let lines = pick(random, &["\r\n", "\r\n\r\n", "\n", "\r", " ", "\r\n\r\n\r\n"]);
    draft.line.splice(0..0, lines.bytes());
    true
}

fn request_line(draft: &mut Draft, random: &mut Random) -> bool {
    let line = String::from_utf8(draft.line.clone()).unwrap();
    // Another change may have removed a space.
    let Some((method, rest)) = line.trim_end().split_once(' ') else { return false };
    let Some((target, version)) = rest.split_once(' ') else { return false };
    let line = match random.between(0, 20) {
        0 => format!("{method}  {target} {version}"),
        1 => format!("{method} {target}  {version}"),
        2 => format!("{method}\t{target} {version}"),
        3 => format!("{method} {target} {version} "),
        4 => format!("{method} {target}"),
        5 => format!("{method} {version}"),
        6 => format!("{method} {target} {version}x"),
        7 => format!("{method} {target} HTTP/2.0"),
        8 => format!("{method} {target} HTTP/1.2"),
        9 => format!("{method} {target} HTTP/0.9"),
        10 => format!("{method} {target} HTTP/1"),
        11 => format!("{method} {target} HTTP/1.10"),
        12 => format!("{method} {target} http/1.1"),
        13 => format!("{method} {target} HTTP/11"),
        14 => format!("{method} {target}\u{e9} {version}"),
        15 => format!("{method} {target} x {version}"),
        16 => format!("{method}() {target} {version}"),
        17 => format!("{} {target} {version}", method.to_lowercase()),
        18 => format!(" {method} {target} {version}"),
        19 => format!("{method}: {target} {version}"),
        _ => format!("{method} {target} ICE/1.0"),
    };
    draft.line = format!("{line}\r\n").into_bytes();
    true
}

/// A method may be any token. llhttp has a list.
fn unknown_method(draft: &mut Draft, random: &mut Random) -> bool {
    if draft.line.starts_with(b"CONNECT") || draft.line.starts_with(b"OPTIONS") {
        // Their targets have another form.
        return false;
    }
    let Some(end) = draft.line.iter().position(|byte| *byte == b' ') else { return false };
    let method = pick(random, &["FETCH", "Get", "X-!#$%&'*+.^_`|~9", "GETT", "POS"]);
    draft.line.splice(..end, method.bytes());
    true
}

fn form_of_the_target(draft: &mut Draft, random: &mut Random) -> bool {
    const LINES: [&str; 16] = [
        "GET http://user@example.org/ HTTP/1.1",
        "GET ht+tp://example.org/ HTTP/1.1",
        "GET http:///path HTTP/1.1",
        "GET ://example.org/ HTTP/1.1",
        "GET http://example.org?a/b HTTP/1.1",
        "GET HTTP://EXAMPLE.ORG#a/b HTTP/1.1",
        "GET http:/example.org HTTP/1.1",
        "GET http://a:b:c/ HTTP/1.1",
        "GET * HTTP/1.1",
        "GET example.org:443 HTTP/1.1",
        "GET index.html HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "CONNECT example.org HTTP/1.1",
        "CONNECT http://example.org/ HTTP/1.1",
        "OPTIONS *x HTTP/1.1",
        "GET ?query HTTP/1.1",
    ];
    draft.line = format!("{}\r\n", pick(random, &LINES)).into_bytes();
    true
}

fn host(draft: &mut Draft, random: &mut Random) -> bool {
    let Some(at) = draft.position("host") else { return false };
    let hosts = ["Host: b", "Host: a b", "Host: a/b", "Host: user@a", "Host: a\u{e9}", "Host: a, b"];
    match random.between(0, hosts.len() + 1) {
        0 => drop(draft.headers.remove(at)),
        1 => return insert_header(draft, random, "Host: other"),
        n => draft.headers[at] = format!("{}\r\n", hosts[n - 2]).into_bytes(),
    }
    true
}
