//! A filter that opens more plaintext than a read buffer takes.

use crate::{
    bootstrap::ServerBootstrap,
    buffer::RECEIVE_SIZE,
    channel::{
        Pipeline,
        filter::{FilterContext, filter_state::FilterState, filter_trait::Filter},
    },
    codec::Line,
    error::Result,
    group::EventLoopGroup,
    testing::EmbeddedLoop,
};
use bytes::Bytes;
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::mpsc::channel,
    time::Duration,
};

/// Opens a letter of the wire as many of it, and other bytes as they are.
struct Expand;

/// More than half of a read buffer, so that two letters do not fit.
const FACTOR: usize = RECEIVE_SIZE / 2 + 1;

impl Filter for Expand {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        for byte in &*input {
            let count = if byte.is_ascii_lowercase() { FACTOR } else { 1 };
            ctx.deliver(&vec![*byte; count]);
        }
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        Ok(())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

/// The reads of a line, and how often each letter is in it.
const READS: [&str; 3] = ["ab", "cd", "e\n"];
const LETTERS: [(char, usize); 5] =
    [('a', FACTOR), ('b', FACTOR), ('c', FACTOR), ('d', FACTOR), ('e', FACTOR)];

fn lines() -> Line {
    Line::new().max_len(LETTERS.len() * FACTOR)
}

/// Returns how often each letter is in a line, in the order of the letters.
fn count(line: &[u8]) -> Vec<(char, usize)> {
    line.chunk_by(|one, other| one == other).map(|same| (char::from(same[0]), same.len())).collect()
}

#[test]
fn plaintext_beyond_the_read_buffer_is_delivered() {
    let (sender, received) = channel();
    let pipeline = Pipeline::codec(lines()).on_read(move |_, line: Bytes| {
        let _ = sender.send(count(&line));
        Ok(())
    });
    let mut event_loop = EmbeddedLoop::builder().build().unwrap();
    let id = event_loop.open(pipeline.filters(vec![Box::new(Expand)]));
    // The second read finds many kept bytes.
    for read in READS {
        event_loop.change(id, |transport| transport.receive(read.as_bytes()));
        event_loop.run_pending();
    }
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [LETTERS]);
}

#[test]
fn plaintext_beyond_the_read_buffer_is_delivered_over_a_socket() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let answer = |line: Bytes| Bytes::from(format!("{:?}", count(&line)));
    let server = ServerBootstrap::new(&group)
        .filter(|_| Expand)
        .pipeline(move |_| Pipeline::codec(lines()).on_read(move |ctx, line| ctx.close_with(answer(line))))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut client = TcpStream::connect(server.local_address()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    client.write_all(READS.concat().as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, format!("{LETTERS:?}\n"));
}
