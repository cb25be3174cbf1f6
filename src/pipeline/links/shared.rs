//! Messages that many channels are to send, and their encodings that many channels can use.
//!
//! Always holds: an encoding is used for channels only whose links are of the same types and say so
//! ([`Codec::shared_encoding`](super::Codec::shared_encoding)); it is made apart, so nothing of it
//! is in the buffer of the channel that made it before that channel's own limits were asked. Runs
//! on the loops of those channels.

use crate::{
    Error, Result,
    channel::{ChannelState, EncodingMemo, Push, SharedMessage},
};
use bytes::Bytes;
use std::{
    any::TypeId,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// Writes the message: the links' own encoding of it, or one that they share.
pub(super) fn write_shared<M: 'static, P: Push<M> + 'static>(
    links: &mut P,
    state: &mut ChannelState,
    key: Option<u64>,
    message: &dyn SharedMessage,
    memo: &mut EncodingMemo,
) -> Result {
    let Some(key) = key else {
        memo.encodings += 1;
        return links.push(state, clone_of(message)?);
    };
    let encoder = (TypeId::of::<P>(), key);
    let EncodingMemo { last, encodings } = memo;
    let (_, encoded) = match last {
        Some(last) if last.0 == encoder => last,
        _ => {
            let encoded = message.encoded(encoder, &mut || {
                *encodings += 1;
                encode_apart(links, state, clone_of(message)?)
            });
            last.insert((encoder, encoded))
        }
    };
    match encoded {
        Ok(bytes) => state.write_encoded(bytes),
        Err(error) => Err(error.again()),
    }
}

fn clone_of<M: 'static>(message: &dyn SharedMessage) -> Result<M> {
    let mut place: Option<M> = None;
    message.clone_into(&mut place);
    // A group has channels of one message type only; but this one's pipeline may have been replaced
    // since it was sent.
    place.ok_or(Error::Replaced)
}

/// Encodes a message with a channel's links, but not into its buffer.
fn encode_apart<M>(links: &mut impl Push<M>, state: &mut ChannelState, message: M) -> Result<Bytes> {
    let own = state.begin_apart();
    let pushed = catch_unwind(AssertUnwindSafe(|| links.push(state, message)));
    let apart = state.end_apart(own);
    match pushed {
        Ok(pushed) => pushed.map(|()| apart.into_bytes()),
        Err(panic) => resume_unwind(panic),
    }
}

/// One key of two: different ones for different pairs, as far as 64 bits can tell.
pub(crate) fn combine(one: u64, other: u64) -> u64 {
    // The finisher of splitmix64, without which small numbers would meet.
    let mut mixed = one.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) ^ other
}
