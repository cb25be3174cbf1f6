//! `Resp` through the public API.

mod decoding;
mod encoding;
mod random;
mod refused;

use crate::support::codecs::{EventAt, drive_with_offsets};
use bytes::Bytes;
use netwheel::{
    Codec, Result,
    buffer::OutboundBuffer,
    codec::{Resp, RespError, RespLimits, RespValue},
    error::PeerError,
};

fn bulk(bytes: impl AsRef<[u8]>) -> RespValue {
    RespValue::Bulk(Bytes::copy_from_slice(bytes.as_ref()))
}

fn simple(text: &'static str) -> RespValue {
    RespValue::Simple(text.into())
}

fn request(arguments: &[&'static str]) -> RespValue {
    RespValue::command(arguments.iter().copied())
}

fn client(limits: RespLimits) -> Resp {
    Resp::client().limits(limits).unwrap()
}

fn server(limits: RespLimits) -> Resp {
    Resp::server().limits(limits).unwrap()
}

fn encoded(codec: &Resp, value: RespValue) -> Result<Bytes> {
    let mut output = OutboundBuffer::new();
    codec.clone().encode(value, &mut output)?;
    Ok(output.to_bytes())
}

fn violation(error: RespError) -> Result<RespValue, PeerError> {
    Err(PeerError::protocol("RESP", error))
}

/// Asserts that `stream` has these events at these offsets: in one piece, in two pieces at each
/// position, and byte by byte.
#[track_caller]
fn expect(codec: &Resp, stream: impl AsRef<[u8]>, expected: &[EventAt<RespValue>]) {
    let stream = stream.as_ref();
    let check = |chunks: &[&[u8]]| {
        let (events, _) = drive_with_offsets(&mut codec.clone(), chunks.iter().copied());
        assert_eq!(events, expected, "fed as {chunks:?}");
    };
    check(&[stream]);
    for at in 0..=stream.len() {
        let (first, second) = stream.split_at(at);
        check(&[first, second]);
    }
    check(&stream.chunks(1).collect::<Vec<_>>());
}

/// Asserts that all of `stream` decodes to one value.
#[track_caller]
fn expect_one(codec: &Resp, stream: impl AsRef<[u8]>, expected: RespValue) {
    let length = stream.as_ref().len();
    expect(codec, stream, &[(Ok(expected), length)]);
}

/// Asserts that the stream is refused at `offset`, and that the codec drops all further input.
#[track_caller]
fn expect_broken(codec: &Resp, stream: impl AsRef<[u8]>, error: RespError, offset: usize) {
    let stream = [stream.as_ref(), b"\r\n+OK\r\n*1\r\n$4\r\nPING\r\n"].concat();
    expect(codec, &stream, &[(violation(error), offset)]);
}
