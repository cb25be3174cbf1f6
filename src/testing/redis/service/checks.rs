//! The checks before a command runs or is queued.

use super::{
    super::{
        command::{Command, Run, Service, find, find_subcommand, is_container},
        process::{Condition, OUT_OF_MEMORY, READ_ONLY},
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
    command: &Command,
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
    let is_exec = matches!(command.run, Run::Service(Service::Exec));
    // The flags of the queued commands apply to `EXEC`.
    let has = |flag| {
        let queued = queue.filter(|_| is_exec).into_iter().flat_map(|queue| &queue.commands);
        command.has(flag) || queued.into_iter().any(|(command, _)| command.has(flag))
    };
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
    if conditions.has(Condition::Loading) && !command.has("loading") {
        return Err(Refusal::of("LOADING Redis is loading the dataset in memory"));
    }
    if conditions.has(Condition::Busy) && !command.has("allow_busy") {
        return Err(Refusal::of(
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        ));
    }
    Ok(())
}

fn ends_a_queue(command: &Command) -> bool {
    use Service::{Discard, Exec, Quit, Reset};
    matches!(command.run, Run::Service(Discard | Exec | Quit | Reset))
}

fn is_for_subscribers(command: &Command) -> bool {
    matches!(
        command.run,
        Run::Service(Service::Subscribe(_) | Service::Unsubscribe(_) | Service::Quit | Service::Reset)
    ) || command.name == "ping"
}

/// Returns the command of a request.
pub(super) fn look_up(args: &[Bytes]) -> Result<&'static Command, Refusal> {
    let lower = |text: &Bytes| String::from_utf8_lossy(text).to_ascii_lowercase();
    let name = args.first().map(lower).unwrap_or_default();
    if is_container(&name) {
        let Some(subcommand) = args.get(1) else { return Err(Refusal::arity(&name)) };
        return find_subcommand(&name, &lower(subcommand)).ok_or_else(|| {
            let subcommand = repeated(subcommand, REPEATED);
            format!("ERR unknown subcommand '{subcommand}'. Try {} HELP.", name.to_ascii_uppercase()).into()
        });
    }
    find(&name).filter(|command| !command.name.contains('|')).ok_or_else(|| unknown(args))
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
