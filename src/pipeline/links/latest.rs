//! Messages that replace a waiting message with the same key.
//!
//! Invariant: a message is encoded apart, and so may be replaced, only if its encoding does not
//! depend on other messages ([`Codec::encoding_key`](crate::pipeline::Codec::encoding_key)). Any
//! other message is written like one without a key. Runs on the channel's loop.

use super::Links;
use crate::{
    channel::{ChannelState, LoopServices, Push},
    error::Result,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub(super) fn push_latest<L: Links>(
    links: &mut L,
    state: &mut ChannelState,
    services: &mut LoopServices,
    key: u64,
    message: L::Write,
) -> Result {
    if !state.has_backlog() {
        return links.push(state, services, message);
    }
    let Some(encoder) = links.encoding_key() else {
        links.push(state, services, message)?;
        state.outbound.keep_waiting();
        return Ok(());
    };
    let own = state.outbound.begin_alone(services);
    let pushed = catch_unwind(AssertUnwindSafe(|| links.push(state, services, message)));
    let encoded = state.outbound.end_alone(services, own);
    match pushed {
        Err(panic) => resume_unwind(panic),
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) if encoded.stays => {
            state.append_kept(&encoded.bytes)?;
            state.keep_latest(key);
            Ok(())
        }
        Ok(Ok(())) => state.write_latest_encoded(services, key, encoder, encoded.bytes),
    }
}
