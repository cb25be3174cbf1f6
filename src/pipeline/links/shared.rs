//! Messages for many channels, and encodings that many channels can use.
//!
//! Invariants: an encoding is used only for channels whose links have the same types and allow it
//! ([`Codec::encoding_key`](crate::pipeline::Codec::encoding_key)). It is made apart, so the
//! buffer of the channel that made it stays unchanged until that channel's own limits were checked.
//! Runs on the loops of those channels.

use super::Links;
use crate::{
    channel::{ChannelState, Encoding, EncodingMemo, LoopServices, Push, SharedMessage},
    error::{Error, Result},
};
use bytes::Bytes;
use std::{
    any::TypeId,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// Writes a message with a shared encoding if the links allow it, and otherwise with their own.
pub(super) fn write_shared<L: Links>(
    links: &mut L,
    state: &mut ChannelState,
    services: &mut LoopServices,
    message: &dyn SharedMessage,
    memo: &mut EncodingMemo,
) -> Result {
    let EncodingMemo { last, encodings, latest } = memo;
    let Some(key) = links.encoding_key() else {
        *encodings += 1;
        return push_alone(links, state, services, clone_of(message)?, *latest);
    };
    let encoder = (TypeId::of::<L>(), key);
    let (_, encoded) = match last {
        Some(last) if last.0 == encoder => last,
        _ => {
            let encoded = message.encoded(encoder, &mut || {
                *encodings += 1;
                match clone_of(message) {
                    Ok(message) => encode_apart(links, state, services, message),
                    Err(error) => Encoding::Failed(error),
                }
            });
            let encoded = match (encoded, *latest) {
                (Encoding::Shared(bytes), Some(key)) => Encoding::Latest(key, bytes),
                (encoded, _) => encoded,
            };
            last.insert((encoder, encoded))
        }
    };
    match encoded {
        Encoding::Shared(bytes) => state.write_encoded(bytes),
        Encoding::Latest(key, bytes) => write_latest(state, services, *key, encoder.1, bytes),
        Encoding::Alone => {
            *encodings += 1;
            push_alone(links, state, services, clone_of(message)?, *latest)
        }
        Encoding::Failed(error) => Err(error.clone()),
    }
}

/// Writes an encoding that replaces a waiting message. Not inlined, so that other broadcasts do not
/// pay for it.
#[inline(never)]
fn write_latest(
    state: &mut ChannelState,
    services: &mut LoopServices,
    key: u64,
    encoder: u64,
    bytes: &Bytes,
) -> Result {
    if state.has_backlog() {
        state.write_latest_encoded(services, key, encoder, bytes.clone())
    } else {
        state.write_encoded(bytes)
    }
}

/// Encodes a message for this channel only.
fn push_alone<L: Links>(
    links: &mut L,
    state: &mut ChannelState,
    services: &mut LoopServices,
    message: L::Write,
    latest: Option<u64>,
) -> Result {
    match latest {
        None => links.push(state, services, message),
        Some(key) => links.push_latest(state, services, key, message),
    }
}

fn clone_of<M: 'static>(message: &dyn SharedMessage) -> Result<M> {
    let mut place: Option<M> = None;
    message.clone_into(&mut place);
    // The channels of a group write one message type, but this pipeline may have been replaced
    // since.
    place.ok_or(Error::PipelineReplaced)
}

/// Encodes a message with a channel's links into a separate buffer.
fn encode_apart<L: Links>(
    links: &mut L,
    state: &mut ChannelState,
    services: &mut LoopServices,
    message: L::Write,
) -> Encoding {
    let own = state.outbound.begin_apart();
    let pushed = catch_unwind(AssertUnwindSafe(|| links.push(state, services, message)));
    let encoded = state.outbound.end_apart(own);
    match pushed {
        Err(panic) => resume_unwind(panic),
        // Whatever the stage that has refused returns.
        Ok(_) if encoded.is_none() => Encoding::Alone,
        Ok(Err(error)) => Encoding::Failed(error),
        Ok(Ok(())) => Encoding::Shared(encoded.unwrap_or_default()),
    }
}

/// Combines two keys. Different pairs have different results, except for collisions of 64 bits.
pub(crate) fn combine(one: u64, other: u64) -> u64 {
    // The finisher of splitmix64, so that small numbers do not collide.
    let mut mixed = one.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) ^ other
}
