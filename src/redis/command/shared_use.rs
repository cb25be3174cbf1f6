//! The check for commands on shared connections.
//!
//! A command that changes the state of its connection would affect the commands of other callers,
//! and a command without exactly one reply would give them the wrong replies.

use crate::{error::Error, redis::error::unsendable};
use bytes::Bytes;

/// Commands that change the state of a connection, or do not have exactly one reply.
const STATEFUL: [&str; 24] = [
    "ASKING",
    "AUTH",
    "DISCARD",
    "EXEC",
    "HELLO",
    "MONITOR",
    "MULTI",
    "PSUBSCRIBE",
    "PSYNC",
    "PUNSUBSCRIBE",
    "QUIT",
    "READONLY",
    "READWRITE",
    "REPLCONF",
    "RESET",
    "SELECT",
    "SHUTDOWN",
    "SSUBSCRIBE",
    "SUBSCRIBE",
    "SUNSUBSCRIBE",
    "SYNC",
    "UNSUBSCRIBE",
    "UNWATCH",
    "WATCH",
];

/// Commands that may wait, and the other callers with them.
const BLOCKING: [&str; 10] =
    ["BLMOVE", "BLMPOP", "BLPOP", "BRPOP", "BRPOPLPUSH", "BZMPOP", "BZPOPMAX", "BZPOPMIN", "WAIT", "WAITAOF"];

/// Subcommands of `CLIENT` that change the state of a connection.
const CLIENT: [&str; 9] =
    ["CACHING", "NO-EVICT", "NO-TOUCH", "PAUSE", "REPLY", "SETINFO", "SETNAME", "TRACKING", "UNPAUSE"];

/// Checks whether a request can be sent on a connection that others use too.
///
/// # Errors
/// [`Error::Encode`] if it cannot, or if it is empty.
pub(super) fn check(arguments: &[Bytes]) -> Result<(), Error> {
    let [name, rest @ ..] = arguments else { return Err(unsendable("a command without a name")) };
    let is = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
    let refuse = |why: &str| {
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        Err(unsendable(format!("{name} {why}")))
    };
    if STATEFUL.iter().any(is) {
        return refuse("changes the state of a connection that other callers use");
    }
    if BLOCKING.iter().any(is) {
        return refuse("would block the other callers of the connection");
    }
    let subcommand = rest.first();
    if is(&"CLIENT") && subcommand.is_some_and(|name| CLIENT.iter().any(|known| has(name, known))) {
        return refuse("changes the state of a connection that other callers use");
    }
    if is(&"SCRIPT") && subcommand.is_some_and(|name| has(name, "DEBUG")) {
        return refuse("DEBUG changes the state of a connection that other callers use");
    }
    if (is(&"XREAD") || is(&"XREADGROUP")) && has_block(rest) {
        return refuse("with BLOCK would block the other callers of the connection");
    }
    Ok(())
}

/// Returns whether the arguments of `XREAD` or `XREADGROUP` have the option `BLOCK`, and not only a
/// name that is equal to it.
fn has_block(arguments: &[Bytes]) -> bool {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if has(argument, "BLOCK") {
            return true;
        }
        if has(argument, "STREAMS") {
            // The names of streams follow.
            return false;
        }
        if has(argument, "GROUP") {
            // The names of the group and of the consumer follow.
            arguments.nth(1);
        }
    }
    false
}

fn has(argument: &Bytes, known: &str) -> bool {
    argument.eq_ignore_ascii_case(known.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(request: &str) -> Result<(), Error> {
        let arguments: Vec<Bytes> =
            request.split_whitespace().map(|argument| Bytes::copy_from_slice(argument.as_bytes())).collect();
        check(&arguments)
    }

    #[test]
    fn commands_of_the_connection_are_refused() {
        for request in [
            "",
            "multi",
            "Select 1",
            "SUBSCRIBE c",
            "client REPLY OFF",
            "CLIENT setname x",
            // A server does not reply to it.
            "REPLCONF ACK 0",
            "script debug yes",
            "BLPOP k 0",
            "XREAD BLOCK 0 STREAMS s 0",
            "xreadgroup group g c count 1 block 5 streams s >",
            "XREADGROUP GROUP streams c BLOCK 0 STREAMS s >",
            "XREADGROUP COUNT 1 GROUP g streams BLOCK 0 STREAMS s >",
        ] {
            assert!(matches!(check_text(request), Err(Error::Encode(_))), "{request}");
        }
    }

    #[test]
    fn other_commands_are_accepted() {
        for request in [
            "GET k",
            "CLIENT ID",
            "XREAD COUNT 5 STREAMS BLOCK 0",
            "XREADGROUP GROUP block block COUNT 5 STREAMS block >",
            "EVAL return 0",
            "SCRIPT FLUSH",
            "unknown",
            "BLOCK",
        ] {
            assert!(check_text(request).is_ok(), "{request}");
        }
    }
}
