//! Memory for lengths and counts that a peer announces.

use crate::{heap, own_process};
use bytes::Bytes;
use netwheel::{
    Codec,
    codec::{Resp, RespLimits, RespValue, Varint},
};

/// Returns the bytes that a codec holds after `input`, and checks that it takes few blocks.
fn held<C: Codec>(codec: impl Fn() -> C, input: &'static [u8]) -> usize {
    // A thread of the test harness may allocate too, so the smallest of three results counts.
    let results = [(); 3].map(|()| {
        let mut codec = codec();
        let (blocks, bytes) = (heap::total_blocks(), heap::bytes_in_use());
        let mut input = Bytes::from_static(input);
        while let Ok(Some(_)) | Err(_) = codec.decode(&mut input) {}
        (heap::total_blocks() - blocks, heap::bytes_in_use() - bytes)
    });
    let (blocks, bytes) = results.into_iter().min().expect("three results");
    // The state of the message, its stack, and an error.
    assert!(blocks <= 4, "{blocks} blocks");
    bytes
}

#[test]
fn announced_lengths_and_counts_reserve_no_memory() {
    own_process!();
    let unlimited =
        || RespLimits::new().max_bulk_len(512 << 20).max_elements(i32::MAX as usize).max_depth(128);
    for limits in [RespLimits::new(), unlimited()] {
        for input in [
            &b"*2147483647\r\n"[..],
            b"*2147483647\r\n$1\r\nx\r\n",
            b"*1\r\n$536870912\r\nx",
            b"*1\r\n$536870913\r\nx",
            b"*1\r\n$9223372036854775807\r\nx",
        ] {
            let held = held(|| Resp::server().limits(limits.clone()).unwrap(), input);
            assert!(held <= 256, "{held} bytes after {input:?}");
        }
        for input in [
            &b"*2147483647\r\n*2147483647\r\n"[..],
            b"%1073741823\r\n",
            b"~2147483647\r\n",
            b"|1000000000\r\n+a\r\n",
            b"$536870912\r\nx",
            b"=536870912\r\ntxt:",
            b"!536870912\r\n",
        ] {
            let held = held(|| Resp::client().limits(limits.clone()).unwrap(), input);
            assert!(held <= 256, "{held} bytes after {input:?}");
        }
    }
    for max_len in [1 << 20, usize::MAX] {
        let held = held(|| Varint::new().max_len(max_len), b"\xFF\xFF\xFF\xFF\x07x");
        assert_eq!(held, 0);
    }
}

/// Each of these levels needs another element, so each has an entry on the stack.
#[test]
fn the_stack_of_the_decoder_is_as_small_as_the_nesting() {
    own_process!();
    let limits = RespLimits::new().max_depth(128);
    let mut codec = Resp::client().limits(limits).unwrap();
    let nested = Bytes::from(b"*2\r\n".repeat(128));
    let before = heap::bytes_in_use();
    assert!(codec.decode(&mut nested.clone()).unwrap().is_none());
    let held = heap::bytes_in_use() - before;
    assert!(held <= 128 * 16 + 256, "{held} bytes");
}

#[test]
fn a_value_takes_only_its_elements_and_a_request_one_block() {
    own_process!();
    let mut codec = Resp::server();
    let mut input = Bytes::from_static(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n");
    let blocks = heap::total_blocks();
    let request = codec.decode(&mut input).unwrap();
    assert_eq!(heap::total_blocks() - blocks, 1);
    drop(request);

    let many = Bytes::from([&b"*60000\r\n"[..], &b"_\r\n".repeat(60_000)].concat());
    let before = heap::bytes_in_use();
    let value = Resp::client().decode(&mut many.clone()).unwrap();
    let held = heap::bytes_in_use() - before;
    assert!(held <= 60_000 * size_of::<RespValue>() + 256, "{held} bytes");
    drop(value);
}
