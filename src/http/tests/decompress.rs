//! Compressed bodies.

use crate::{
    Result,
    http::{Aggregate, Decompress, HttpServer, HttpSettings, Response},
    testing::EmbeddedChannel,
};
use flate2::{
    Compression,
    write::{GzEncoder, ZlibEncoder},
};
use std::io::Write;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Sends a body in pieces, and returns the response.
fn respond(coding: &str, body: &[u8], piece: usize) -> Result<String> {
    let http = HttpServer::with(HttpSettings::new().body(100 << 20))?;
    let pipeline = http.pipeline().stage(Decompress::max(1 << 20)).stage(Aggregate::max(2 << 20)).on_read(
        |ctx, request| {
            let coding = request.head.headers().contains("content-encoding");
            let sum: u64 = request.body.iter().map(|byte| u64::from(*byte)).sum();
            ctx.write(Response::ok(format!("{} {sum} {coding}", request.body.len())).into())
        },
    );
    let mut channel = EmbeddedChannel::new(pipeline);
    let length = body.len();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: {coding}\r\nContent-Length: {length}\r\n\r\n"
    );
    let bytes = [head.as_bytes(), body].concat();
    for bytes in bytes.chunks(piece) {
        // The channel closes when it refuses a body.
        if channel.write_inbound(bytes).is_err() {
            break;
        }
    }
    while channel.has_pending() {
        channel.run_pending();
    }
    Ok(String::from_utf8(channel.read_outbound().to_vec()).unwrap())
}

#[test]
fn compressed_bodies_are_delivered_decompressed_however_they_are_split() {
    let body: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
    for (coding, compressed) in [("gzip", gzip(&body)), ("x-GZIP", gzip(&body)), ("deflate", zlib(&body))] {
        for piece in [1 << 20, 1000, 7] {
            let response = respond(coding, &compressed, piece).unwrap();
            assert!(response.ends_with(&format!("100000 {sum} false")), "{coding} {piece}: {response}");
        }
    }
    assert!(respond("gzip", &gzip(b""), 1).unwrap().ends_with("0 0 false"));
}

#[test]
fn other_codings_pass_unchanged() {
    assert!(respond("br", b"abc", 100).unwrap().ends_with("3 294 true"));
}

#[test]
fn a_decompression_bomb_is_answered_with_413() {
    let bomb = gzip(&vec![0; 10 << 20]);
    assert!(bomb.len() < 15_000);
    for piece in [1 << 20, 100] {
        let response = respond("gzip", &bomb, piece).unwrap();
        assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    }
    assert!(respond("gzip", &gzip(&vec![0; 1 << 20]), 1 << 20).unwrap().starts_with("HTTP/1.1 200 "));
    assert!(respond("gzip", &gzip(&vec![0; (1 << 20) + 1]), 1 << 20).unwrap().starts_with("HTTP/1.1 413 "));
}

#[test]
fn invalid_and_incomplete_data_is_answered_with_400() {
    let whole = gzip(b"hello hello hello");
    let mut altered = whole.clone();
    let crc = altered.len() - 5;
    altered[crc] ^= 1;
    let cases = [
        whole[..whole.len() - 1].to_vec(),
        whole[..5].to_vec(),
        [&whole[..], b"x"].concat(),
        [&whole[..], &whole[..]].concat(),
        altered,
        b"not gzip".to_vec(),
    ];
    for body in cases {
        for piece in [1 << 20, 1] {
            let response = respond("gzip", &body, piece).unwrap();
            assert!(response.starts_with("HTTP/1.1 400 "), "{body:?}: {response}");
        }
    }
}
