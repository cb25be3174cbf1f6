//! Short WebSocket messages are unmasked, delivered and echoed without an allocation.

use crate::support::{
    loops::{end, one_loop},
    tcp::{ANY_PORT, connect},
};
use crate::{heap, own_process};
use netwheel::{
    prelude::*,
    websocket::{Message, WebSocketServer},
};
use std::io::{Read, Write};

const WARM_UP: usize = 1_000;
const ECHOES: usize = 3000;

struct Echo;

impl Handler for Echo {
    type Read = Message;
    type Write = Message;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        ctx.write(message)
    }
}

/// Returns a masked frame with a short payload.
fn frame(opcode: u8, len: u8) -> Vec<u8> {
    let key = [1, 2, 3, 4];
    let payload = (0..len).map(|n| b'x' ^ key[usize::from(n % 4)]);
    [0x80 | opcode, 0x80 | len].into_iter().chain(key).chain(payload).collect()
}

/// Returns the number of blocks allocated by ten thousand echoes of these frames.
fn blocks_for(frames: &[u8], answer_len: usize) -> u64 {
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_peer| WebSocketServer::new().pipeline().handler(Echo))
        .bind(ANY_PORT)
        .unwrap();
    let mut stream = connect(server.local_address());
    let mut answer = vec![0; answer_len];
    let mut echo = |times| {
        for _ in 0..times {
            stream.write_all(frames).unwrap();
            stream.read_exact(&mut answer).unwrap();
        }
    };
    echo(WARM_UP);
    let before = heap::total_blocks();
    echo(ECHOES);
    let blocks = heap::total_blocks() - before;
    assert!(answer.ends_with(b"xxxx"));
    drop(stream);
    end(&group);
    blocks
}

#[test]
fn the_steady_echo_of_short_messages_allocates_nothing() {
    own_process!();
    let text = blocks_for(&frame(1, 64), 66);
    let binary = blocks_for(&frame(2, 125), 127);
    let pipelined = blocks_for(&frame(1, 64).repeat(32), 32 * 66);
    assert_eq!([text, binary, pipelined], [0; 3], "text, binary, 32 messages at once");
}
