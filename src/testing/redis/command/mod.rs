//! The table of commands, and the commands of the keyspace.
//!
//! A command of the keyspace depends on the keyspace, the time and its arguments only. So a
//! [`CommandCall`] that is repeated with a copy of the keyspace has the same effects: this is how
//! [`RedisDisk`](super::RedisDisk) restores a state of the past.

mod call;
mod catalogue;
mod expiry;
mod hashes;
mod keys;
mod lists;
mod look_up;
mod messages;
mod reply;
mod sets;
mod sorted_ranges;
mod sorted_sets;
mod stream_ids;
mod stream_reads;
mod stream_writes;
mod strings;
mod table;

pub(super) use call::{CallEffects, CommandCall, Executed, database_index, integer};
pub(super) use catalogue::{command_info, count_commands};
pub(super) use look_up::{NoCommand, look_up};
pub(super) use reply::ok;
pub(super) use table::{CommandInfo, RunCommand, Service};

use super::refusal::Reply;
use bytes::Bytes;

/// Runs a command of the keyspace, and notes it in the effects if it has changed something.
pub(super) fn run(
    call: &mut CommandCall<'_>,
    run: fn(&mut CommandCall<'_>, &[Bytes]) -> Reply,
    args: &[Bytes],
) -> Reply {
    call.is_dirty = false;
    let reply = run(call, args);
    if call.is_dirty {
        call.effects.commands.push((call.database, args.to_vec()));
    }
    reply
}
