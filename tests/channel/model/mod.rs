//! Model tests: a channel under random operations.

mod delivery;
mod read_complete;

use bytes::Bytes;
use netwheel::{
    Error, IdleTimeouts,
    buffer::WaterMark,
    channel::{ChannelOptions, InputGuard, Overflow},
    prelude::*,
};
use proptest::prelude::*;
use std::{ops::Range, time::Duration};

/// An operation that a callback performs on its channel. Shared by the models.
#[derive(Debug, Clone)]
enum Operation {
    Flush,
    Hold(usize),
    AutoRead(bool),
    Read,
    EndOutput,
    Close,
    CloseNow,
    Idle(u64),
    Fail,
}

impl Operation {
    /// Performs the operation. Returns the guard of [`Operation::Hold`].
    fn run<H: Handler<Write = Bytes>>(self, ctx: &mut Context<'_, H>) -> Result<Option<InputGuard>> {
        match self {
            Operation::Flush => ctx.flush(),
            Operation::Hold(bytes) => return Ok(Some(ctx.hold_input(bytes))),
            Operation::AutoRead(on) => ctx.set_auto_read(on),
            Operation::Read => ctx.read(),
            Operation::EndOutput => ctx.shutdown_write(),
            Operation::Close => ctx.close(),
            Operation::CloseNow => ctx.close_now(),
            Operation::Idle(ms) => ctx.set_idle_timeouts(IdleTimeouts::new().all(Duration::from_millis(ms))),
            Operation::Fail => return Err(Error::other("on purpose")),
        }
        Ok(None)
    }
}

/// Returns a random operation. The weights add up to [`OPERATIONS`].
fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => Just(Operation::Flush),
        2 => (0usize..200).prop_map(Operation::Hold),
        2 => any::<bool>().prop_map(Operation::AutoRead),
        3 => Just(Operation::Read),
        1 => Just(Operation::EndOutput),
        1 => Just(Operation::Close),
        1 => Just(Operation::CloseNow),
        2 => (20u64..90).prop_map(Operation::Idle),
        2 => Just(Operation::Fail),
    ]
}

/// The total weight of [`operation`], relative to the operations that a model adds.
const OPERATIONS: u32 = 17;

/// Returns random channel options with `max_outbound` in the given range, and their overflow
/// policy.
fn options(max_outbound: Range<usize>) -> impl Strategy<Value = (ChannelOptions, Overflow)> {
    let policies = [Overflow::Refuse, Overflow::DropNewest, Overflow::DropOldest, Overflow::Close].to_vec();
    (any::<[bool; 4]>(), prop::sample::select(policies), 1usize..300, max_outbound).prop_map(
        |([auto_read, one, choked, half_close], policy, read_size, most)| {
            let options = ChannelOptions::new()
                .auto_read(auto_read)
                .one_message_per_read(one)
                .read_while_writable(choked)
                .half_close(half_close)
                .overflow(policy)
                .read_size(read_size)
                .max_outbound(most)
                .inbound_mark(WaterMark::new(50, 150).unwrap());
            (options, policy)
        },
    )
}
