//! What is encoded, and what a failed encoding leaves behind: C-42.

use crate::support::{
    codecs::Fussy,
    journal::Log,
    recorder::{Event, Recorder},
};
use crate::writing::zeros;
use bytes::Bytes;
use netwheel::{
    EncodeError, Error,
    buffer::{KEEP_FROM, OutboundBuffer},
    pipeline::{Codec, Stage, StageContext},
    prelude::*,
    testing::EmbeddedChannel,
};

// A write cannot be cancelled, so there is no cancelled one to skip. What its form here can do, be refused by
// the encoder half-way, must leave its neighbours as whole as a cancelled write would.
#[test]
fn c_42_a_failed_encode_is_rolled_back_and_its_neighbours_are_whole() {
    let log = Log::new();
    let inner = log.clone();
    let handler = Recorder::with(&log, move |ctx, call| match call {
        Event::Active(_) => {
            ctx.write("one".into())?;
            let before = ctx.pending_bytes();
            let failed = ctx.write("fail".into()).unwrap_err();
            assert!(matches!(failed, Error::Encode(EncodeError::Unencodable(_))), "{failed}");
            assert_eq!(ctx.pending_bytes(), before, "its size is returned");
            inner.push("failed");
            ctx.write("two".into())?;
            ctx.write(zeros(KEEP_FROM))?;
            assert!(ctx.write("fail".into()).is_err());
            ctx.write("three".into())
        }
        _ => Ok(()),
    });
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Fussy::new()).handler(handler));
    assert_eq!(log.take(), ["active", "failed"], "the caller has the error, nobody else");
    let mut expected = b"one\ntwo\n".to_vec();
    expected.extend_from_slice(&[0; KEEP_FROM]);
    expected.extend_from_slice(b"\nthree\n");
    assert_eq!(channel.read_outbound(), expected);
    assert_eq!(channel.pending_bytes(), 0);
}

#[test]
fn c_42_a_failed_encode_behind_a_partly_sent_one_takes_back_its_own_bytes_only() {
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
        ["active", "error cannot encode: on purpose"],
        "of a handle's write the handler hears"
    );
}

/// Writes every message twice.
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

/// D-31 in our form: several messages made of one are encoded together.
#[test]
fn c_42_a_message_of_which_a_stage_makes_two_goes_whole_or_not_at_all() {
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

/// Puts every part by its own way.
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
