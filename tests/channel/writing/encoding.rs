//! Encoding, and the rollback of a failed encoding: C-42.

use crate::support::{
    codecs::Fussy,
    journal::Log,
    recorder::{Event, Recorder},
};
use crate::writing::zeros;
use bytes::Bytes;
use netwheel::{
    Codec, Error, Stage, StageContext,
    buffer::{KEEP_FROM, OutboundBuffer},
    error::EncodeError,
    prelude::*,
    testing::EmbeddedChannel,
};

// A write cannot be cancelled, so Netty's case of a cancelled write does not exist. Instead the
// encoder may fail after some output, which must not affect the messages before and after it.
#[test]
fn c_42_a_failed_encode_is_rolled_back_without_affecting_other_messages() {
    let log = Log::new();
    let inner = log.clone();
    let handler = Recorder::with(&log, move |ctx, call| match call {
        Event::Active(_) => {
            ctx.write("one".into())?;
            let before = ctx.pending_bytes();
            let failed = ctx.write("fail".into()).unwrap_err();
            assert!(matches!(failed, Error::Encode(EncodeError::Unencodable(_))), "{failed}");
            assert_eq!(ctx.pending_bytes(), before, "its bytes are no longer counted");
            inner.push("failed");
            ctx.write("two".into())?;
            ctx.write(zeros(KEEP_FROM))?;
            assert!(ctx.write("fail".into()).is_err());
            ctx.write("three".into())
        }
        _ => Ok(()),
    });
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Fussy::new()).handler(handler));
    assert_eq!(log.take(), ["active", "failed"], "only the caller receives the error");
    let mut expected = b"one\ntwo\n".to_vec();
    expected.extend_from_slice(&[0; KEEP_FROM]);
    expected.extend_from_slice(b"\nthree\n");
    assert_eq!(channel.read_outbound(), expected);
    assert_eq!(channel.pending_bytes(), 0);
}

#[test]
fn c_42_a_failed_encode_after_a_partly_sent_message_removes_only_its_own_bytes() {
    let log = Log::new();
    let mut channel =
        EmbeddedChannel::new(Pipeline::codec(Fussy::new()).handler(Recorder::exactly(&log, |_, _| Ok(()))));
    channel.set_outbound_room(Some(2));
    channel.channel().write("one".into()).unwrap();
    channel.run_pending();
    channel.channel().write("fail".into()).unwrap();
    channel.run_pending();
    assert_eq!(channel.pending_bytes(), 2);
    channel.channel().write("two".into()).unwrap();
    channel.set_outbound_room(None);
    assert_eq!(channel.read_outbound(), "one\ntwo\n");
    assert_eq!(
        log.take(),
        ["active", "error the message cannot be encoded: on purpose"],
        "a failed write of a handle is reported to the handler"
    );
}

/// Writes `first` before every message.
struct Twice;

impl Stage for Twice {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write("first".into())?;
        ctx.write(message)
    }
}

/// D-31 with a difference: messages that a stage makes of one message are encoded together.
#[test]
fn c_42_two_messages_made_of_one_by_a_stage_are_sent_both_or_not_at_all() {
    let log = Log::new();
    let handler = Recorder::exactly(&log, |ctx, call| match call {
        Event::Active(_) => {
            assert!(ctx.write("fail".into()).is_err());
            assert_eq!(ctx.pending_bytes(), 0);
            ctx.write("good".into())
        }
        _ => Ok(()),
    });
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Fussy::new()).stage(Twice).handler(handler));
    assert_eq!(channel.read_outbound(), "first\ngood\n");
}

/// Encodes a number with each `put` method.
struct Parts;

impl Codec for Parts {
    type Read = Bytes;
    type Write = u64;

    fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
        Ok(None)
    }

    fn encode(&mut self, message: u64, output: &mut OutboundBuffer) -> Result {
        use std::io::Write as _;
        output.put_u8(message as u8);
        output.put_u16(message as u16);
        output.put_u32(message as u32);
        output.put_u64(message);
        write!(output, "{message}").map_err(Error::from)
    }
}

struct Silent;

impl Handler for Silent {
    type Read = Bytes;
    type Write = u64;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

#[test]
fn numbers_are_written_with_the_most_significant_byte_first() {
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Parts).handler(Silent));
    channel.channel().write(0x0102_0304_0506_0708).unwrap();
    channel.run_pending();
    let expected: &[u8] = b"\x08\x07\x08\x05\x06\x07\x08\x01\x02\x03\x04\x05\x06\x07\x0872623859790382856";
    assert_eq!(channel.read_outbound(), expected);
}
