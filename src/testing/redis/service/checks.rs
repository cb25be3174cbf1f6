//! The checks before a command runs or is queued.

use super::{
    super::{
        command::{CommandInfo, NoCommand, RunCommand, Service, look_up},
        process::{OUT_OF_MEMORY, ProcessCondition, READ_ONLY},
        pubsub::ClientId,
        refusal::Refusal,
        state::State,
    },
    access, subscriptions,
};
use bytes::Bytes;

/// How much of a name and of the arguments an error repeats.
const REPEATED: usize = 128;

/// Checks whether a request may run or be queued now.
pub(super) fn check(
    state: &State,
    client: ClientId,
    command: &CommandInfo,
    args: &[Bytes],
) -> Result<(), Refusal> {
    if !command.accepts(args.len()) {
        return Err(Refusal::arity(command.name));
    }
    let session = state.process.sessions.get(&client);
    let user = session.and_then(|session| session.user.as_deref());
    let queue = session.and_then(|session| session.queue.as_ref());
    if user.is_none() && !command.has("no_auth") {
        return Err(Refusal::of("NOAUTH Authentication required."));
    }
    if !command.has("no_auth") {
        access::check(state, user, command, args)?;
    }
    let conditions = &state.process.conditions;
    let is_exec = matches!(command.run, RunCommand::Service(Service::Exec));
    // The flags of the queued commands apply to `EXEC`.
    let queued = queue.filter(|_| is_exec).into_iter().flat_map(|queue| &queue.commands);
    let all = || std::iter::once(command).chain(queued.clone().map(|(command, _)| *command));
    let has = |flag| all().any(|command| command.has(flag));
    // Queued commands take memory, so none is queued.
    if conditions.is_out_of_memory && (has("denyoom") || (queue.is_some() && !ends_a_queue(command))) {
        return Err(OUT_OF_MEMORY);
    }
    if conditions.is_read_only && has("write") {
        return Err(READ_ONLY);
    }
    if subscriptions::has_resp2_subscriptions(state, client) && !is_for_subscribers(command) {
        return Err(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed \
             in this context",
            command.name
        )
        .into());
    }
    if conditions.has(ProcessCondition::Loading) && !all().all(|command| command.has("loading")) {
        return Err(Refusal::of("LOADING Redis is loading the dataset in memory"));
    }
    if conditions.has(ProcessCondition::Busy) && !command.has("allow_busy") {
        return Err(Refusal::of(
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        ));
    }
    Ok(())
}

fn ends_a_queue(command: &CommandInfo) -> bool {
    use Service::{Discard, Exec, Quit, Reset};
    matches!(command.run, RunCommand::Service(Discard | Exec | Quit | Reset))
}

fn is_for_subscribers(command: &CommandInfo) -> bool {
    matches!(
        command.run,
        RunCommand::Service(Service::Subscribe(_) | Service::Unsubscribe(_) | Service::Quit | Service::Reset)
    ) || command.name == "ping"
}

/// Returns the command of a request, or the error that Redis replies.
pub(super) fn command_of(args: &[Bytes]) -> Result<&'static CommandInfo, Refusal> {
    look_up(args).map_err(|reason| match (reason, args) {
        (NoCommand::NoSubcommand, [name, ..]) => {
            Refusal::arity(&String::from_utf8_lossy(name).to_ascii_lowercase())
        }
        (NoCommand::UnknownSubcommand, [name, subcommand, ..]) => {
            let name = String::from_utf8_lossy(name).to_ascii_uppercase();
            format!("ERR unknown subcommand '{}'. Try {name} HELP.", repeated(subcommand, REPEATED)).into()
        }
        _ => unknown(args),
    })
}

fn unknown(args: &[Bytes]) -> Refusal {
    let mut beginning = String::new();
    for arg in &args[1..] {
        if beginning.len() >= REPEATED {
            break;
        }
        beginning += &format!("'{}' ", repeated(arg, REPEATED - beginning.len()));
    }
    let name = args.first().map(|name| repeated(name, REPEATED)).unwrap_or_default();
    format!("ERR unknown command '{name}', with args beginning with: {beginning}").into()
}

fn repeated(text: &Bytes, length: usize) -> String {
    String::from_utf8_lossy(&text[..text.len().min(length)]).into_owned()
}
