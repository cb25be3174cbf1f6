//! Pipelined requests in random pieces, with handlers that answer in every way: each request gets
//! its own answer, once and in order.

use crate::{
    error::Result,
    http::{Body, Part, Request, Response, server::HttpServer},
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};
use fastrand::Rng;
use std::time::Duration;

const WAYS: u32 = 7;
const REQUESTS: u32 = 20;

/// Answers in the way that the first segment of the path says, with the path.
struct Answers;

impl Handler for Answers {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        let (id, path) = (request.id().unwrap(), request.path().to_owned());
        let way: u32 = path[1..2].parse().unwrap();
        let answer = move |path: String| Response::ok(path).for_request(id);
        if matches!(way, 1 | 3 | 5 | 6) {
            let path = if way == 6 { "stale".into() } else { path.clone() };
            let delay = Duration::from_millis(if way == 5 { 0 } else { 10 });
            ctx.schedule(delay, move |_, ctx| ctx.write(answer(path).into()));
        }
        if matches!(way, 2 | 3) {
            let path = path.clone();
            ctx.offload(move || path, move |_, ctx, path| ctx.write(answer(path?).into()))?;
        }
        if way == 4 {
            ctx.write(Response::ok(Body::Streamed).into())?;
            ctx.write(Part::Body(path.clone().into()))?;
            ctx.write(Part::end())?;
        }
        if matches!(way, 0 | 6) { ctx.write(Response::ok(path).into()) } else { Ok(()) }
    }
}

fn play(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(Answers));
    let paths: Vec<_> = (0..REQUESTS).map(|n| format!("/{}/{n}.", rng.u32(..WAYS))).collect();
    let mut input = String::new();
    for path in &paths {
        let length = rng.usize(..3) * rng.usize(..50);
        let method = if length == 0 { "GET" } else { "POST" };
        input += &format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        input += &"b".repeat(length);
    }
    let (mut rest, mut output) = (input.as_bytes(), Vec::new());
    while !rest.is_empty() {
        let (piece, left) = rest.split_at(rng.usize(1..=rest.len().min(300)));
        channel.write_inbound(piece).unwrap();
        rest = left;
        match rng.u32(..4) {
            0 => channel.advance(Duration::from_millis(rng.u64(..15))),
            1 => drop(channel.run_pending()),
            2 => channel.set_outbound_room(Some(rng.usize(..200))),
            _ => channel.set_outbound_room(None),
        }
        output.extend_from_slice(&channel.read_outbound());
    }
    channel.set_outbound_room(None);
    for _ in 0..3 * REQUESTS {
        channel.run_pending();
        channel.advance(Duration::from_millis(10));
        output.extend_from_slice(&channel.read_outbound());
    }
    let output = String::from_utf8(output).unwrap();
    assert_eq!(output.matches("HTTP/1.1 200 OK").count(), paths.len(), "seed {seed}: {output}");
    let mut from = 0;
    for path in &paths {
        assert_eq!(output.matches(path.as_str()).count(), 1, "seed {seed}: {path}: {output}");
        let at = output[from..].find(path.as_str());
        from += at.unwrap_or_else(|| panic!("seed {seed}: {path} is out of order: {output}"));
    }
    assert!(!output.contains("stale") && channel.is_open(), "seed {seed}: {output}");
}

#[test]
fn each_of_many_pipelined_requests_gets_its_own_answer_whatever_answers_it_and_when() {
    for seed in 0..300 {
        play(seed);
    }
}
