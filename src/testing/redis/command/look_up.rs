//! Finds the command of a request.

use super::table::{COMMANDS, CommandInfo};
use bytes::Bytes;

/// The reason why a request has no command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoCommand {
    Unknown,
    /// The command has subcommands, and the request has no further argument.
    NoSubcommand,
    UnknownSubcommand,
}

/// Returns a command, or a subcommand with its full name, by its name in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static CommandInfo> {
    let name = name.to_ascii_lowercase();
    let found = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(&name));
    found.ok().map(|at| &COMMANDS[at])
}

/// Returns whether a command has subcommands.
fn is_container(name: &[u8]) -> bool {
    let container = |command: &CommandInfo| command.name.split_once('|').map(|(container, _)| container);
    COMMANDS.iter().filter_map(container).any(|container| name.eq_ignore_ascii_case(container.as_bytes()))
}

/// Returns the command of a request.
pub(crate) fn look_up(args: &[Bytes]) -> Result<&'static CommandInfo, NoCommand> {
    let name = args.first().ok_or(NoCommand::Unknown)?;
    if is_container(name) {
        let subcommand = args.get(1).ok_or(NoCommand::NoSubcommand)?;
        return find(&[name, &b"|"[..], subcommand].concat()).ok_or(NoCommand::UnknownSubcommand);
    }
    find(name).filter(|command| !command.name.contains('|')).ok_or(NoCommand::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subcommand_is_an_argument_of_its_own() {
        for (request, expected) in [
            ("get k", Ok("get")),
            ("SCRIPT Load source", Ok("script|load")),
            ("script|load source", Err(NoCommand::Unknown)),
            ("script", Err(NoCommand::NoSubcommand)),
            ("script bogus", Err(NoCommand::UnknownSubcommand)),
            ("script load|source", Err(NoCommand::UnknownSubcommand)),
            ("bogus", Err(NoCommand::Unknown)),
        ] {
            let args: Vec<Bytes> =
                request.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
            assert_eq!(look_up(&args).map(|command| command.name), expected, "{request}");
        }
        assert_eq!(look_up(&[]).map(|command| command.name), Err(NoCommand::Unknown));
    }
}
