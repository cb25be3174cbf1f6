//! Scripts: closures in place of Lua.

use super::{
    command::{
        CommandCall, CommandInfo, NoCommand, RunCommand, Service, command_info, count_commands,
        database_index, look_up, ok, run,
    },
    permissions::Lack,
    process::{Conditions, OUT_OF_MEMORY, READ_ONLY},
    pubsub::{Protocol, in_protocol},
    refusal::{Refusal, Reply},
    settings::RedisUser,
};
use crate::codec::RespValue;
use bytes::Bytes;
use sha1_smol::Sha1;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// A script that is running: its arguments, and access to the keys.
pub struct ScriptContext<'a> {
    pub(super) call: CommandCall<'a>,
    pub(super) conditions: Conditions,
    /// The user of the connection, if the server has settings for it.
    pub(super) user: Option<RedisUser>,
    /// Whether the script has run a command that writes.
    pub(super) has_written: bool,
    pub(super) keys: Vec<Bytes>,
    pub(super) arguments: Vec<Bytes>,
}

impl ScriptContext<'_> {
    /// Returns the keys of the call (`KEYS`).
    pub fn keys(&self) -> &[Bytes] {
        &self.keys
    }

    /// Returns the other arguments of the call (`ARGV`).
    pub fn arguments(&self) -> &[Bytes] {
        &self.arguments
    }

    /// Runs a command, as `redis.call` does. Replies are those of RESP2, except that each absent
    /// value is [`RespValue::Null`].
    ///
    /// # Errors
    /// The error reply of the command. To ignore it, as `redis.pcall` does, do not return it.
    pub fn call<B: Into<Bytes>>(
        &mut self,
        command: impl IntoIterator<Item = B>,
    ) -> Result<RespValue, RespValue> {
        let args: Vec<Bytes> = command.into_iter().map(Into::into).collect();
        let reply = self.run(&args).map_err(Refusal::reply)?;
        Ok(in_protocol(in_protocol(reply, Protocol::Resp2), Protocol::Resp3))
    }

    fn run(&mut self, args: &[Bytes]) -> Reply {
        const ARITY: Refusal = Refusal::of("ERR Wrong number of args calling Redis command from script");
        let command = look_up(args).map_err(|reason| match reason {
            NoCommand::NoSubcommand => ARITY,
            _ => Refusal::of("ERR Unknown Redis command called from script"),
        })?;
        if !command.accepts(args.len()) {
            return Err(ARITY);
        }
        self.check(command, args)?;
        self.has_written |= command.has("write");
        match command.run {
            RunCommand::Keyspace(keyspace_command) => run(&mut self.call, keyspace_command, args),
            RunCommand::Service(Service::CommandCount) => count_commands(),
            RunCommand::Service(Service::CommandInfo) => command_info(&args[2..]),
            // The client of the script keeps its database.
            RunCommand::Service(Service::Select) => {
                self.call.database = database_index(&args[1])?;
                ok()
            }
            RunCommand::Service(_) => {
                Err(Refusal::of("ERR the simulated Redis does not run INFO in scripts"))
            }
        }
    }

    fn check(&self, command: &CommandInfo, args: &[Bytes]) -> Result<(), Refusal> {
        if command.has("noscript") {
            return Err(Refusal::of("ERR This Redis command is not allowed from script"));
        }
        let permitted = self.user.as_ref().map_or(Ok(()), |user| user.check(command, args));
        permitted.map_err(|lack| {
            Refusal::of(match lack {
                Lack::CommandInfo => "ERR The user executing the script can't run this command or subcommand",
                Lack::Key => {
                    "ERR The user executing the script can't access at least one of the keys mentioned in the \
                     command arguments"
                }
                Lack::Channel => {
                    "ERR The user executing the script can't publish to the channel mentioned in the command"
                }
            })
        })?;
        if command.has("write") && self.conditions.is_read_only {
            return Err(READ_ONLY);
        }
        // A script that has written is not stopped in the middle.
        if command.has("denyoom") && self.conditions.is_out_of_memory && !self.has_written {
            return Err(OUT_OF_MEMORY);
        }
        Ok(())
    }
}

impl fmt::Debug for ScriptContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptContext").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// A closure in place of Lua.
pub(super) type ScriptBody =
    Arc<dyn Fn(&mut ScriptContext<'_>) -> Result<RespValue, RespValue> + Send + Sync>;

/// The scripts of a server, by the SHA-1 of their sources.
#[derive(Default)]
pub(super) struct Scripts(BTreeMap<String, ScriptBody>);

impl Scripts {
    pub(super) fn insert(&mut self, source: &str, body: ScriptBody) {
        self.0.insert(sha1(source.as_bytes()), body);
    }

    pub(super) fn get(&self, sha: &str) -> Option<&ScriptBody> {
        self.0.get(sha)
    }
}

/// Returns the name under which `EVALSHA` finds a script.
pub(super) fn sha1(source: &[u8]) -> String {
    Sha1::from(source).digest().to_string()
}

/// Converts the result of a script like a value of Lua: numbers become integers, and `false`
/// becomes an absent value.
pub(super) fn converted(value: RespValue) -> RespValue {
    match value {
        RespValue::Boolean(true) => RespValue::Integer(1),
        RespValue::Boolean(false) | RespValue::NullBulk | RespValue::NullArray => RespValue::Null,
        RespValue::Double(number) => RespValue::Integer(number as i64),
        RespValue::Array(items) => RespValue::Array(items.into_iter().map(converted).collect()),
        other => other,
    }
}
