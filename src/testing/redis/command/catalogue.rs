//! Commands that describe commands.

use super::{
    super::refusal::Reply,
    look_up::find,
    reply::count,
    table::{COMMANDS, CommandInfo},
};
use crate::codec::RespValue;
use bytes::Bytes;

pub(crate) fn count_commands() -> Reply {
    count(COMMANDS.iter().filter(|command| !command.name.contains('|')).count())
}

/// Replies the first six fields of the descriptions of commands.
pub(crate) fn command_info(names: &[Bytes]) -> Reply {
    let describe = |name: &Bytes| find(name).map_or(RespValue::Null, description);
    Ok(RespValue::Array(names.iter().map(describe).collect()))
}

fn description(command: &CommandInfo) -> RespValue {
    let (first, last, step) = command.keys;
    let name = RespValue::Bulk(Bytes::from_static(command.name.as_bytes()));
    let flags = command.flags().map(|flag| RespValue::Simple(flag.into())).collect();
    let mut fields = vec![name, RespValue::Integer(command.arity), RespValue::Set(flags)];
    fields.extend([first, last, step].map(RespValue::Integer));
    RespValue::Array(fields)
}
