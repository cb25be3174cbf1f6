//! Compares the outbound buffer with a byte vector through the API for codecs. The operations of
//! the channel, consume and roll back, are tested next to the source.

use bytes::{BufMut, Bytes, BytesMut};
use netwheel::buffer::{KEEP_FROM, OutboundBuffer};
use proptest::prelude::*;
use std::io::Write;

#[derive(Debug, Clone)]
enum Put {
    Slice(Vec<u8>),
    Bytes(Vec<u8>),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    Written(String),
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![6 => 0..50_usize, 2 => KEEP_FROM - 2..KEEP_FROM + 3, 1 => 60_000..70_000_usize];
    (size, any::<u8>()).prop_map(|(size, first)| (0..size).map(|n| first.wrapping_add(n as u8)).collect())
}

fn put() -> impl Strategy<Value = Put> {
    prop_oneof![
        content().prop_map(Put::Slice),
        content().prop_map(Put::Bytes),
        any::<u8>().prop_map(Put::U8),
        any::<u16>().prop_map(Put::U16),
        any::<u32>().prop_map(Put::U32),
        any::<u64>().prop_map(Put::U64),
        "[a-zäöü]{0,20}".prop_map(Put::Written),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_buffer_holds_all_bytes_in_order(puts in prop::collection::vec(put(), 0..30)) {
        let (mut out, mut model) = (OutboundBuffer::new(), BytesMut::new());
        for put in puts {
            match put {
                Put::Slice(bytes) => {
                    out.put_slice(&bytes);
                    model.put_slice(&bytes);
                }
                Put::Bytes(bytes) => {
                    model.put_slice(&bytes);
                    out.put(Bytes::from(bytes));
                }
                Put::U8(n) => {
                    out.put_u8(n);
                    model.put_u8(n);
                }
                Put::U16(n) => {
                    out.put_u16(n);
                    model.put_u16(n);
                }
                Put::U32(n) => {
                    out.put_u32(n);
                    model.put_u32(n);
                }
                Put::U64(n) => {
                    out.put_u64(n);
                    model.put_u64(n);
                }
                Put::Written(text) => {
                    write!(out, "{text}").unwrap();
                    out.flush().unwrap();
                    model.put_slice(text.as_bytes());
                }
            }
            prop_assert_eq!(out.len(), model.len());
            prop_assert_eq!(out.is_empty(), model.is_empty());
            prop_assert!(out.to_bytes() == model);
        }
    }
}
