//! The name of a connection, and its reset.

use super::super::{
    pubsub::{ClientId, Protocol},
    refusal::{Refusal, Reply, SYNTAX},
    settings::DEFAULT_USER,
    state::State,
};
use crate::{codec::RespValue, testing::redis::command::ok};
use bytes::Bytes;

pub(super) fn name(state: &State, client: ClientId) -> RespValue {
    let name = state.process.sessions.get(&client).map(|session| session.name.clone()).unwrap_or_default();
    if name.is_empty() { RespValue::Null } else { RespValue::Bulk(name) }
}

/// Checks the characters of a name.
pub(super) fn check_name(name: &[u8]) -> Result<(), Refusal> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(());
    }
    Err(Refusal::of("ERR Client names cannot contain spaces, newlines or special characters."))
}

pub(super) fn set_name(state: &mut State, client: ClientId, name: &Bytes) -> Reply {
    check_name(name)?;
    if let Some(session) = state.process.sessions.get_mut(&client) {
        session.name = name.clone();
    }
    ok()
}

pub(super) fn no_evict(on: &[u8]) -> Reply {
    if on.eq_ignore_ascii_case(b"ON") || on.eq_ignore_ascii_case(b"OFF") { ok() } else { Err(SYNTAX) }
}

/// Puts a connection into the state that a new one has.
pub(super) fn reset(state: &mut State, client: ClientId) -> Reply {
    let process = &mut state.process;
    process.unwatch(client);
    process.pubsub.leave_all(client);
    process.pubsub.set_protocol(client, Protocol::Resp2);
    if let Some(session) = process.sessions.get_mut(&client) {
        session.queue = None;
        session.database = 0;
        session.name = Bytes::new();
        session.user = state.settings.password.is_none().then(|| DEFAULT_USER.to_owned());
    }
    Ok(RespValue::Simple(Bytes::from_static(b"RESET")))
}
