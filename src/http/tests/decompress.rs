//! Compressed bodies.

use crate::{
    Context, Handler, Result,
    http::{Aggregate, Decompress, HttpServer, HttpSettings, Part, Request, Response},
    testing::EmbeddedChannel,
};
use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use std::{cell::RefCell, io::Write, rc::Rc};

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
fn all_members_of_a_gzip_body_are_decompressed() {
    let body = [gzip(b"abc"), gzip(b""), gzip(&[1; 50_000]), gzip(b"d")].concat();
    for piece in [1 << 20, 7, 1] {
        let response = respond("gzip", &body, piece).unwrap();
        assert!(response.ends_with("50004 50394 false"), "{piece}: {response}");
    }
}

#[test]
fn deflate_without_the_zlib_header_is_accepted() {
    for level in [Compression::none(), Compression::fast(), Compression::best()] {
        let mut encoder = DeflateEncoder::new(Vec::new(), level);
        encoder.write_all(&[1; 50_000]).unwrap();
        let body = encoder.finish().unwrap();
        for piece in [1 << 20, 1] {
            let response = respond("deflate", &body, piece).unwrap();
            assert!(response.ends_with("50000 50000 false"), "{piece}: {response}");
        }
    }
}

#[test]
fn an_empty_body_may_have_a_content_encoding() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n";
    for framing in ["Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Content-Length: 0\r\n\r\n"] {
        let pipeline = HttpServer::new()
            .pipeline()
            .stage(Decompress::max(9))
            .stage(Aggregate::max(9))
            .on_read(|ctx, request| ctx.write(Response::ok(request.body.len().to_string()).into()));
        let mut channel = EmbeddedChannel::new(pipeline);
        channel.write_inbound(format!("{head}{framing}").as_bytes()).unwrap();
        let output = channel.read_outbound();
        assert!(output.starts_with(b"HTTP/1.1 200 ") && output.ends_with(b"\r\n\r\n0"), "{output:?}");
    }
}

/// Answers at the first piece of a body, or at the end of a request.
#[derive(Default)]
struct Early {
    answered: bool,
    received: Rc<RefCell<Vec<&'static str>>>,
}

impl Handler for Early {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let kind = match part {
            Part::Head(_) => "head",
            Part::Body(_) => "body",
            Part::End(_) => "end",
        };
        self.received.borrow_mut().push(kind);
        if kind == "head" {
            self.answered = false;
        } else if !self.answered {
            self.answered = true;
            ctx.write(Response::ok(kind).into())?;
        }
        Ok(())
    }
}

#[test]
fn no_decompressed_parts_arrive_behind_a_complete_response() {
    for junk in [&b""[..], b"junk"] {
        let body = [&gzip(&vec![0; 200_000])[..], junk].concat();
        let length = body.len();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n"
        );
        let input = [head.as_bytes(), &body, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let received = Rc::new(RefCell::new(Vec::new()));
        let early = Early { answered: false, received: received.clone() };
        let pipeline = HttpServer::new().pipeline().stage(Decompress::max(1 << 20)).handler(early);
        let mut channel = EmbeddedChannel::new(pipeline);
        channel.write_inbound(&input).unwrap();
        while channel.has_pending() {
            channel.run_pending();
        }
        assert_eq!(*received.borrow(), ["head", "body", "head", "end"]);
        let output = channel.read_outbound();
        assert_eq!(String::from_utf8_lossy(&output).matches("HTTP/1.1 200 OK").count(), 2);
        assert!(channel.is_open());
    }
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
        [&whole[..], &whole[..20]].concat(),
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
