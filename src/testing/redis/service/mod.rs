//! Requests: the checks before a command runs, and the commands of connections and the server.
//!
//! The order of the checks is that of Redis 7.0, so the same error is replied if several apply.

mod access;
mod checks;
mod client;
mod introspection;
mod scripting;
mod subscriptions;
mod transaction;

use super::{
    command::{
        CallEffects, CommandCall, CommandInfo, RunCommand, Service, command_info, count_commands,
        database_index, look_up, ok, run,
    },
    keyspace::DATABASES,
    pubsub::ClientId,
    refusal::{Refusal, Reply},
    session::CommandQueue,
    state::State,
};
use crate::codec::RespValue;
use bytes::Bytes;

/// The client of a request and the time of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientRequest {
    pub(super) client: ClientId,
    /// Microseconds since the Unix epoch.
    pub(super) now_micros: i64,
}

/// The next step of a connection after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterRequest {
    Continue,
    /// Closes after its replies, as the client has asked.
    Close,
    /// Closes at once, because the process has ended.
    Cut,
}

/// Runs a request. Its replies are in the outbox of the client afterwards.
pub(super) fn serve(state: &mut State, request: ClientRequest, args: &[Bytes]) -> AfterRequest {
    let client = request.client;
    let command = match checks::command_of(args) {
        Ok(command) => command,
        Err(refusal) => return refuse(state, client, refusal),
    };
    if let Err(refusal) = checks::check(state, client, command, args) {
        let is_exec = matches!(command.run, RunCommand::Service(Service::Exec));
        let refusal = if is_exec { transaction::abort(state, client, refusal) } else { refusal };
        return refuse(state, client, refusal);
    }
    if !transaction::runs_at_once(command)
        && let Some(queue) = queue_of(state, client)
    {
        let queued = transaction::enqueue(queue, command, args);
        state.process.pubsub.send(client, queued.unwrap_or_else(Refusal::reply));
        return AfterRequest::Continue;
    }
    let mut effects = CallEffects::default();
    match run_one(state, request, command, args, &mut effects) {
        Ok(Some(reply)) => state.process.pubsub.send(client, reply),
        Ok(None) => {}
        Err(refusal) => state.process.pubsub.send(client, refusal.reply()),
    }
    if !state.commit(request.now_micros, effects) {
        return AfterRequest::Cut;
    }
    match command.run {
        RunCommand::Service(Service::Quit) => AfterRequest::Close,
        _ => AfterRequest::Continue,
    }
}

/// Replies an error to a request that does not run. A transaction fails with it.
fn refuse(state: &mut State, client: ClientId, refusal: Refusal) -> AfterRequest {
    if let Some(queue) = queue_of(state, client) {
        queue.is_aborted = true;
    }
    state.process.pubsub.send(client, refusal.reply());
    AfterRequest::Continue
}

/// Removes a key, or all keys of all databases, as another client would.
pub(super) fn interfere(state: &mut State, now_micros: i64, database: usize, args: &[Bytes]) {
    let Ok(RunCommand::Keyspace(command)) = look_up(args).map(|command| command.run) else { return };
    let mut effects = CallEffects::default();
    let mut call = call(state, ClientRequest { client: 0, now_micros }, &mut effects);
    call.database = database.min(DATABASES - 1);
    let _ = run(&mut call, command, args);
    state.commit(now_micros, effects);
}

fn queue_of(state: &mut State, client: ClientId) -> Option<&mut CommandQueue> {
    state.process.sessions.get_mut(&client)?.queue.as_mut()
}

/// Returns the context of a command of the keyspace.
fn call<'a>(state: &'a mut State, request: ClientRequest, effects: &'a mut CallEffects) -> CommandCall<'a> {
    let process = &mut state.process;
    let database = process.sessions.get(&request.client).map_or(0, |session| session.database);
    let protocol = process.pubsub.protocol(request.client);
    CommandCall {
        keyspace: &mut process.keyspace,
        pubsub: &mut process.pubsub,
        effects,
        database,
        now_micros: request.now_micros,
        protocol,
        is_dirty: false,
    }
}

/// Runs a command that is not queued. Returns `None` if it has sent its replies.
fn run_one(
    state: &mut State,
    request: ClientRequest,
    command: &CommandInfo,
    args: &[Bytes],
    effects: &mut CallEffects,
) -> Result<Option<RespValue>, Refusal> {
    let service = match command.run {
        RunCommand::Service(service) => service,
        RunCommand::Keyspace(keyspace_command) => {
            if command.name == "ping" && subscriptions::has_resp2_subscriptions(state, request.client) {
                return subscriptions::ping(args).map(Some);
            }
            return run(&mut call(state, request, effects), keyspace_command, args).map(Some);
        }
    };
    let client = request.client;
    let reply = match service {
        Service::Subscribe(topic) => {
            subscriptions::subscribe(state, client, topic, &args[1..]);
            return Ok(None);
        }
        Service::Unsubscribe(topic) => {
            subscriptions::unsubscribe(state, client, topic, &args[1..]);
            return Ok(None);
        }
        Service::Auth => access::auth(state, client, args),
        Service::Hello => access::hello(state, client, args),
        Service::Select => select(state, client, args),
        Service::Quit => ok(),
        Service::Reset => client::reset(state, client),
        Service::ClientId => Ok(RespValue::Integer(client)),
        Service::ClientGetName => Ok(client::name(state, client)),
        Service::ClientSetName => client::set_name(state, client, &args[2]),
        Service::ClientNoEvict => client::no_evict(&args[2]),
        Service::CommandCount => count_commands(),
        Service::CommandInfo => command_info(&args[2..]),
        Service::Info => Ok(introspection::info(state, &args[1..])),
        Service::Role => Ok(introspection::role(state)),
        Service::Multi => transaction::multi(state, client),
        Service::Exec => transaction::exec(state, request, effects),
        Service::Discard => transaction::discard(state, client),
        Service::Watch => transaction::watch(state, request, &args[1..], effects),
        Service::Unwatch => {
            state.process.unwatch(client);
            ok()
        }
        Service::ScriptLoad => scripting::load(state, &args[2]),
        Service::ScriptFlush => scripting::flush(state, &args[2..]),
        Service::Eval => scripting::eval(state, request, args, effects),
        Service::EvalSha => scripting::evalsha(state, request, args, effects),
    };
    reply.map(Some)
}

fn select(state: &mut State, client: ClientId, args: &[Bytes]) -> Reply {
    let database = database_index(&args[1])?;
    if let Some(session) = state.process.sessions.get_mut(&client) {
        session.database = database;
    }
    ok()
}
