//! `MULTI`, `EXEC`, `DISCARD` and `WATCH`.

use super::{
    super::{
        command::{CallEffects, CommandInfo, RunCommand, Service},
        pubsub::ClientId,
        refusal::{Refusal, Reply},
        session::CommandQueue,
        state::State,
    },
    ClientRequest, access, call, queue_of, run_one,
};
use crate::{codec::RespValue, testing::redis::command::ok};
use bytes::Bytes;

/// The most commands of a transaction.
const MAX_QUEUE: usize = 100_000;

/// Returns whether a command runs at once inside a transaction.
pub(super) fn runs_at_once(command: &CommandInfo) -> bool {
    use Service::{Discard, Exec, Multi, Quit, Reset, Watch};
    matches!(command.run, RunCommand::Service(Discard | Exec | Multi | Quit | Reset | Watch))
}

/// Adds a command to a transaction.
pub(super) fn enqueue(queue: &mut CommandQueue, command: &'static CommandInfo, args: &[Bytes]) -> Reply {
    let refusal =
        if matches!(command.run, RunCommand::Service(Service::Subscribe(_) | Service::Unsubscribe(_))) {
            Some("ERR subscriptions in a transaction are not supported by the simulated Redis")
        } else if queue.commands.len() >= MAX_QUEUE {
            Some("ERR too many commands in a transaction of the simulated Redis")
        } else {
            None
        };
    if let Some(text) = refusal {
        queue.is_aborted = true;
        return Err(Refusal::of(text));
    }
    queue.commands.push((command, args.to_vec()));
    Ok(RespValue::Simple(Bytes::from_static(b"QUEUED")))
}

pub(super) fn multi(state: &mut State, client: ClientId) -> Reply {
    let Some(session) = state.process.sessions.get_mut(&client) else { return ok() };
    if session.queue.is_some() {
        return Err(Refusal::of("ERR MULTI calls can not be nested"));
    }
    session.queue = Some(CommandQueue::default());
    ok()
}

pub(super) fn discard(state: &mut State, client: ClientId) -> Reply {
    let session = state.process.sessions.get_mut(&client);
    if session.and_then(|session| session.queue.take()).is_none() {
        return Err(Refusal::of("ERR DISCARD without MULTI"));
    }
    state.process.unwatch(client);
    ok()
}

pub(super) fn watch(
    state: &mut State,
    request: ClientRequest,
    keys: &[Bytes],
    effects: &mut CallEffects,
) -> Reply {
    if queue_of(state, request.client).is_some() {
        return Err(Refusal::of("ERR WATCH inside MULTI is not allowed"));
    }
    for key in keys {
        let mut expired = CallEffects::default();
        let mut call = call(state, request, &mut expired);
        call.expire(key);
        let key = (call.database, key.clone());
        // Only clients that have watched the key before it has expired are concerned.
        state.process.notify_watchers(&expired);
        effects.commands.append(&mut expired.commands);
        state.process.watch(request.client, key);
    }
    ok()
}

/// Runs the commands of a transaction, unless one was refused or a watched key has changed.
pub(super) fn exec(state: &mut State, request: ClientRequest, effects: &mut CallEffects) -> Reply {
    let client = request.client;
    let Some(session) = state.process.sessions.get_mut(&client) else { return ok() };
    let queue = session.queue.take().ok_or(Refusal::of("ERR EXEC without MULTI"))?;
    let (is_dirty, watched) = (session.is_dirty, session.watched.clone());
    state.process.unwatch(client);
    if queue.is_aborted {
        return Err(Refusal::of("EXECABORT Transaction discarded because of previous errors."));
    }
    let now = request.now_micros / 1000;
    let has_expired = |(database, key): &(usize, Bytes)| {
        let entry = state.process.keyspace.database(*database).get(key);
        entry.is_some_and(|entry| entry.has_expired(now))
    };
    if is_dirty || watched.iter().any(has_expired) {
        return Ok(RespValue::NullArray);
    }
    let mut replies = Vec::with_capacity(queue.commands.len());
    for (command, args) in &queue.commands {
        let user = state.process.sessions.get(&client).and_then(|session| session.user.clone());
        let permitted = access::check(state, user.as_deref(), command, args);
        let reply = permitted.and_then(|()| run_one(state, request, command, args, effects));
        // Subscriptions, which send their replies themselves, are not queued.
        replies.push(reply.map_or_else(Refusal::reply, |reply| reply.unwrap_or(RespValue::Null)));
    }
    Ok(RespValue::Array(replies))
}

/// Ends a transaction whose `EXEC` is refused. Returns the error that says so.
pub(super) fn abort(state: &mut State, client: ClientId, refusal: Refusal) -> Refusal {
    if let Some(session) = state.process.sessions.get_mut(&client) {
        session.queue = None;
    }
    state.process.unwatch(client);
    refusal.within("EXECABORT Transaction discarded because of: ")
}
