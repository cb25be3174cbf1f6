//! Random operations on a channel without a socket, with a random pipeline.
//!
//! | part | purpose |
//! |---|---|
//! | `plan` | the parts of an input: options, operations, reactions of the handler |
//! | `pipelines` | codecs and stages |
//! | `actor` | the handler, which records its callbacks and reacts |
//! | `journal` | the record, and the checks of it |

mod actor;
mod journal;
mod pipelines;
mod plan;

use crate::support::input;
use actor::Actor;
use journal::Journal;
use netwheel::{bytes::Bytes, testing::EmbeddedChannel};
use plan::{Operation, Plan};
use std::{io, time::Duration};

/// The limits of an input, so that a run is short.
const MOST_OPERATIONS: usize = 48;
const MOST_REACTIONS: usize = 48;

pub fn embedded_channel(data: &[u8]) {
    let Some(mut plan) = input::<Plan>(data) else { return };
    plan.operations.truncate(MOST_OPERATIONS);
    plan.reactions.truncate(MOST_REACTIONS);
    let journal = Journal::new(plan.reactions);
    let pipeline = pipelines::make(plan.framing, plan.stages, Actor::new(&journal, plan.framing));
    let built = EmbeddedChannel::builder(pipeline).channel_options(plan.options.to_channel()).build();
    let Ok(mut channel) = built else {
        assert!(journal.is_empty(), "a handler was called whose channel was not created");
        return;
    };
    for operation in plan.operations {
        perform(&mut channel, &journal, &operation);
        journal.check_callbacks(channel.is_closed());
    }
    // The peer accepts everything, and the channel closes.
    channel.set_outbound_room(None);
    channel.run_pending();
    journal.add_output(&channel.read_outbound());
    channel.close();
    channel.run_pending();
    channel.advance(Duration::from_secs(60));
    channel.run_pending();
    journal.add_output(&channel.read_outbound());
    assert!(channel.is_closed() && !channel.is_open());
    assert_eq!(channel.timers(), 0, "a closed channel has no timers");
    journal.check_callbacks(true);
    drop(channel);
    journal.check_writes(plan.framing);
}

fn perform(channel: &mut EmbeddedChannel<Bytes>, journal: &Journal, operation: &Operation) {
    match operation {
        Operation::Receive(bytes) => {
            let was_closed = channel.is_closed();
            let taken = channel.write_inbound(bytes);
            assert!(!was_closed || taken.is_err(), "a closed channel takes input");
        }
        Operation::EndInbound => channel.end_inbound(),
        Operation::FailInbound => channel.fail_inbound(io::ErrorKind::ConnectionReset.into()),
        Operation::Room(room) => channel.set_outbound_room(room.map(usize::from)),
        Operation::Advance(millis) => channel.advance(Duration::from_millis((*millis).into())),
        Operation::Stall(millis) => {
            channel.stall(Duration::from_millis((*millis).into()));
            channel.run_pending();
        }
        Operation::RunPending => drop(channel.run_pending()),
        Operation::Write(size) => {
            let message = journal.outside_message(*size);
            if channel.channel().write(message).is_err() {
                journal.refused_outside();
            }
        }
        Operation::WriteTracked(size) => {
            let message = journal.outside_message(*size);
            match channel.channel().write_tracked(message) {
                Ok(written) => journal.track_outside(written),
                Err(_) => journal.refused_outside(),
            }
        }
        Operation::ShutdownWrite => channel.channel().shutdown_write(),
        Operation::Close => channel.channel().close(),
        Operation::CloseNow => channel.channel().close_now(),
        Operation::Reset => channel.channel().reset(),
        Operation::TakeOutput => journal.add_output(&channel.read_outbound()),
    }
}
