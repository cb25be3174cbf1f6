//! The permissions of a user.

use super::{
    command::{CommandInfo, RunCommand, Service},
    glob,
    pubsub::PubSubTopic,
    settings::RedisUser,
};
use bytes::Bytes;

/// A permission that a user lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    CommandInfo,
    Key,
    Channel,
}

impl RedisUser {
    /// Checks whether the user may run a command with these arguments.
    pub(super) fn check(&self, command: &CommandInfo, args: &[Bytes]) -> Result<(), Lack> {
        if self.is_denied(command.name) {
            return Err(Lack::CommandInfo);
        }
        let matches = |patterns: &[String], name: &Bytes| {
            patterns.iter().any(|pattern| glob::matches(pattern.as_bytes(), name))
        };
        let has_keys = !is_for_channels(command);
        let may_access = |key: &&Bytes| self.keys.is_empty() || matches(&self.keys, key);
        if has_keys && !command.keys_of(args).iter().all(may_access) {
            return Err(Lack::Key);
        }
        // A pattern of a subscription has to be one of the user's patterns, letter for letter.
        let is_pattern = matches!(command.run, RunCommand::Service(Service::Subscribe(PubSubTopic::Pattern)));
        let may_use = |channel: &Bytes| {
            self.channels.is_empty()
                || if is_pattern {
                    self.channels.iter().any(|pattern| pattern.as_bytes() == channel)
                } else {
                    matches(&self.channels, channel)
                }
        };
        if channels(command, args).iter().all(may_use) { Ok(()) } else { Err(Lack::Channel) }
    }

    /// Returns whether a command is denied, or all subcommands of its command are.
    fn is_denied(&self, name: &str) -> bool {
        let container = name.split_once('|').map(|(container, _)| container);
        self.denied.contains(name) || container.is_some_and(|container| self.denied.contains(container))
    }
}

/// Returns whether the positions of keys are those of channels.
fn is_for_channels(command: &CommandInfo) -> bool {
    matches!(command.run, RunCommand::Service(Service::Subscribe(_) | Service::Unsubscribe(_)))
        || command.name == "spublish"
}

fn channels<'a>(command: &CommandInfo, args: &'a [Bytes]) -> &'a [Bytes] {
    match command.run {
        RunCommand::Service(Service::Subscribe(_)) => &args[1..],
        _ if matches!(command.name, "publish" | "spublish") => &args[1..2],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::{super::command::look_up, *};

    #[test]
    fn a_command_is_denied_with_all_its_subcommands() {
        let user = RedisUser::new("eve", "pw").deny("SCRIPT").deny("client|id");
        for (request, expected) in [
            ("script load source", Err(Lack::CommandInfo)),
            ("client id", Err(Lack::CommandInfo)),
            ("client getname", Ok(())),
            ("get k", Ok(())),
        ] {
            let args: Vec<Bytes> =
                request.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
            assert_eq!(user.check(look_up(&args).unwrap(), &args), expected, "{request}");
        }
    }
}
