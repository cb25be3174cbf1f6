//! Changes of chunked bodies.

use super::requests::{Body, Draft, pick};
use crate::support::random::Random;

pub(super) fn chunk_line(draft: &mut Draft, random: &mut Random) -> bool {
    let Body::Chunked { chunks, .. } = &mut draft.body else { return false };
    let at = random.between(0, chunks.len() - 1);
    let chunk = &mut chunks[at];
    let n = chunk.data.len();
    let line = match random.between(0, 17) {
        0 => format!("+{n:x}\r\n"),
        1 => format!("-{n:x}\r\n"),
        2 => format!("0x{n:x}\r\n"),
        3 => format!(" {n:x}\r\n"),
        4 => format!("{n:x} \r\n"),
        5 => format!("{n:x}\t;a\r\n"),
        6 => "\r\n".to_owned(),
        7 => format!("{n:017x}\r\n"),
        8 => format!("1{n:016x}\r\n"),
        9 => format!("{n:x}\n"),
        10 => format!("{n:x};a\nb\r\n"),
        11 => format!("{n:x};a\rb\r\n"),
        12 => format!("{n:x};a=\"\r\n\"\r\n"),
        13 => format!("{n:x},a\r\n"),
        14 => format!("{n:x}\r\r\n"),
        15 => format!("{n:x};a\0\r\n"),
        16 => format!("{n:x}g\r\n"),
        _ => format!("{n:x};{}\r\n", "a".repeat(300)),
    };
    chunk.line = line.into_bytes();
    true
}

pub(super) fn end_of_a_chunk(draft: &mut Draft, random: &mut Random) -> bool {
    let Body::Chunked { chunks, .. } = &mut draft.body else { return false };
    if chunks.len() < 2 {
        return false;
    }
    let at = random.between(0, chunks.len() - 2);
    chunks[at].end = pick(random, &["", "\n", "\r", "x\r\n", "\r\n\r\n", "\n\r\n", "\r\r\n"]).into();
    true
}

pub(super) fn trailer(draft: &mut Draft, random: &mut Random) -> bool {
    const TRAILERS: [&str; 8] = [
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Host: other\r\n",
        "Connection: close\r\n",
        "X-Fold: a\r\n b\r\n",
        "X-No-Colon\r\n",
        "X-Lf: a\n",
        "X-Space : a\r\n",
    ];
    let trailer = pick(random, &TRAILERS);
    let Body::Chunked { trailers, .. } = &mut draft.body else { return false };
    trailers.push(trailer.as_bytes().to_vec());
    true
}
