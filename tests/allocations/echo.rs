//! The steady echo path does not allocate after the warm-up.

use crate::support::{
    loops::{end, one_loop},
    servers::Echo,
    tcp::{ANY_PORT, assert_same, connect},
};
use crate::{heap, own_process};
use bytes::Bytes;
use netwheel::{
    Codec,
    codec::{LengthField, RawBytes},
    prelude::*,
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

const WARM_UP: usize = 1_000;
const ECHOES: usize = 3000;

/// Starts a server of one loop with idle timeouts, and connects to it.
fn serve_echo<C>(codec: C) -> (EventLoopGroup, TcpStream)
where
    C: Codec<Read = Bytes, Write = Bytes> + Clone + Send + Sync,
{
    let group = one_loop();
    let minute = Duration::from_secs(60);
    let idle = IdleTimeouts::new().reader(minute).writer(minute);
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(codec.clone()).idle(idle).handler(Echo))
        .bind(ANY_PORT)
        .unwrap();
    (group, connect(server.local_address()))
}

/// Sends the message and reads the reply, `times` times, into existing memory.
fn echo_often(stream: &mut TcpStream, message: &[u8], answer: &mut [u8], times: usize) {
    for _ in 0..times {
        stream.write_all(message).unwrap();
        stream.read_exact(answer).unwrap();
    }
}

/// Returns the number of blocks allocated by ten thousand echoes of `message`, one after the other.
fn blocks_for<C>(codec: C, message: &[u8]) -> u64
where
    C: Codec<Read = Bytes, Write = Bytes> + Clone + Send + Sync,
{
    let (group, mut stream) = serve_echo(codec);
    let mut answer = vec![0; message.len()];
    echo_often(&mut stream, message, &mut answer, WARM_UP);
    assert_same(&answer, message);

    let before = heap::total_blocks();
    echo_often(&mut stream, message, &mut answer, ECHOES);
    let blocks = heap::total_blocks() - before;

    assert_same(&answer, message);
    drop(stream);
    end(&group);
    blocks
}

#[test]
fn the_steady_echo_path_allocates_nothing() {
    own_process!();
    let frame = |payload: usize| {
        let mut frame = (payload as u32).to_be_bytes().to_vec();
        frame.resize(4 + payload, b'x');
        frame
    };
    // Make sure that the counter counts.
    let before = heap::total_blocks();
    std::hint::black_box(Box::new(1));
    assert_eq!(heap::total_blocks() - before, 1);

    let small_frames = blocks_for(LengthField::u32(), &frame(64));
    // 32 frames at once: one read, 32 messages, one write.
    let pipelined = blocks_for(LengthField::u32(), &frame(256).repeat(32));
    // Large enough to be kept by reference instead of copied.
    let large_frames = blocks_for(LengthField::u32(), &frame(16 * 1024));
    let small_bytes = blocks_for(RawBytes, &[b'x'; 64]);
    let large_bytes = blocks_for(RawBytes, &[b'x'; 16 * 1024]);

    let blocks = [small_frames, pipelined, large_frames, small_bytes, large_bytes];
    assert_eq!(
        blocks, [0; 5],
        "allocations in {ECHOES} echoes of: small frames, 32 frames at once, 16 KiB frames, small bytes, 16 KiB"
    );
}
