//! `RedisCommand`: a command, and how it is sent.

use super::{
    script::{RedisScript, ScriptCall},
    shared_use,
};
use crate::{
    error::{Error, Result, caught},
    redis::{error::unsendable, server_info::ServerInfo},
};
use bytes::Bytes;
use std::{fmt, time::Duration};

/// The bytes that a command counts for besides those of its arguments.
const OVERHEAD: usize = 64;

/// How often a function of [`RedisCommand::built_with`] may return such a command again.
const MAX_BUILDS: usize = 8;

/// A command for [`RedisClient::call`](super::super::RedisClient::call): its name, its arguments,
/// and how it is sent.
///
/// Arrays and vectors of strings are commands too:
///
/// ```
/// use netwheel::redis::RedisCommand;
/// use std::time::Duration;
///
/// let short = RedisCommand::from(["GET", "colour"]);
/// let long = RedisCommand::new("SET").arg("colour").arg("blue").arg("EX").number(60)
///     .timeout(Duration::from_millis(500));
/// # drop((short, long));
/// ```
#[must_use]
pub struct RedisCommand {
    content: Content,
    timeout: Option<Duration>,
    affinity: Option<u64>,
    weight: usize,
}

type Build = Box<dyn FnOnce(&ServerInfo) -> RedisCommand + Send>;

enum Content {
    Arguments(Vec<Bytes>),
    Script(Box<ScriptCall>),
    Transaction(Vec<RedisCommand>),
    Built(Build),
}

/// The requests for a command.
#[derive(Debug)]
pub(in crate::redis) enum CommandRequest {
    Plain(Vec<Bytes>),
    Script(Box<ScriptCall>),
    /// The commands between `MULTI` and `EXEC`.
    Transaction(Vec<Vec<Bytes>>),
}

impl RedisCommand {
    /// Returns a command without arguments.
    pub fn new(name: impl Into<Bytes>) -> Self {
        Self::of(vec![name.into()])
    }

    fn of(arguments: Vec<Bytes>) -> Self {
        let weight = OVERHEAD + weight_of(&arguments);
        Self::with(Content::Arguments(arguments), weight)
    }

    fn with(content: Content, weight: usize) -> Self {
        RedisCommand { content, timeout: None, affinity: None, weight }
    }

    /// Returns a command that `build` returns when it is sent. `build` gets the facts about the
    /// server of the connection, so a script always gets the run id of the process that executes
    /// it. The timeout and the affinity are those of this command.
    ///
    /// `build` is called on the loop of the connection, at most once. A panic in it fails the
    /// command. While the command waits, it counts for the [`weight`](RedisCommand::weight).
    ///
    /// ```no_run
    /// use netwheel::{prelude::*, redis::{RedisClient, RedisCommand, RedisScript}};
    ///
    /// # fn f(redis: &RedisClient, publish: RedisScript) -> Result {
    /// let command = RedisCommand::built_with(move |server| {
    ///     let run_id = server.run_id().unwrap_or("unknown").to_owned();
    ///     publish.command(["{room:7}:log"], [run_id, "hello".to_owned()])
    /// });
    /// redis.call(command).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn built_with(build: impl FnOnce(&ServerInfo) -> RedisCommand + Send + 'static) -> Self {
        Self::with(Content::Built(Box::new(build)), OVERHEAD)
    }

    /// Returns a transaction: `MULTI`, the commands, and `EXEC`, without other commands between
    /// them. The reply is the array of `EXEC`, in which single commands may have failed. If the
    /// server refuses a command before `EXEC`, none is executed, and the call fails with that
    /// error. If the user may not call `MULTI`, the server executes the commands one by one, and
    /// the call fails with [`MayBeExecuted`](super::super::RedisError::MayBeExecuted).
    ///
    /// The timeouts and affinities of the commands do not matter. Scripts are sent with their
    /// source.
    ///
    /// ```no_run
    /// use netwheel::{prelude::*, redis::{RedisClient, RedisCommand}};
    ///
    /// # fn f(redis: &RedisClient) -> Result {
    /// let both = RedisCommand::transaction([["INCR", "a"], ["INCR", "b"]]);
    /// redis.call(both).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction<C: Into<RedisCommand>>(commands: impl IntoIterator<Item = C>) -> Self {
        let commands: Vec<RedisCommand> = commands.into_iter().map(Into::into).collect();
        let weight = commands.iter().fold(OVERHEAD, |sum, command| sum.saturating_add(command.weight));
        Self::with(Content::Transaction(commands), weight)
    }

    /// Adds an argument. No effect on a transaction and on a command that is built later.
    pub fn arg(mut self, argument: impl Into<Bytes>) -> Self {
        let argument = argument.into();
        let weight = weight_of(std::slice::from_ref(&argument));
        match &mut self.content {
            Content::Arguments(arguments) => arguments.push(argument),
            Content::Script(call) => call.arguments.push(argument),
            Content::Transaction(_) | Content::Built(_) => return self,
        }
        self.weight = self.weight.saturating_add(weight);
        self
    }

    /// Adds arguments, as [`arg`](RedisCommand::arg) does.
    pub fn args<B: Into<Bytes>>(self, arguments: impl IntoIterator<Item = B>) -> Self {
        arguments.into_iter().fold(self, RedisCommand::arg)
    }

    /// Adds a number as an argument.
    pub fn number(self, number: i64) -> Self {
        self.arg(number.to_string())
    }

    /// Sets the time from the call to the reply. The default is
    /// [`command_timeout`](super::super::RedisSettings::command_timeout). `Duration::MAX` turns it
    /// off, and zero fails the command without sending it.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Sends commands with the same affinity on the same connection, in the order of the calls. By
    /// default, the connections take turns.
    pub fn affinity(mut self, affinity: u64) -> Self {
        self.affinity = Some(affinity);
        self
    }

    /// Sets the bytes that the command counts for in
    /// [`max_pending_bytes`](super::super::RedisSettings::max_pending_bytes). The default is the
    /// length of its arguments, and a little for each. A command that is
    /// [built later](RedisCommand::built_with) should state the bytes that its function holds.
    pub fn weight(mut self, bytes: usize) -> Self {
        self.weight = bytes;
        self
    }

    pub(in crate::redis) fn limit(&self) -> Option<Duration> {
        self.timeout
    }

    pub(in crate::redis) fn connection_hint(&self) -> Option<u64> {
        self.affinity
    }

    pub(in crate::redis) fn bytes(&self) -> usize {
        self.weight
    }

    /// Checks whether the client can send this command, as far as it is known yet.
    ///
    /// # Errors
    /// [`Error::Encode`] if it cannot.
    pub(in crate::redis) fn check(&self) -> Result {
        match &self.content {
            Content::Arguments(arguments) => shared_use::check(arguments),
            Content::Script(_) | Content::Built(_) => Ok(()),
            Content::Transaction(commands) => commands.iter().try_for_each(|command| match command.content {
                Content::Transaction(_) => Err(unsendable("a transaction inside another one")),
                _ => command.check(),
            }),
        }
    }

    /// Returns the request for a server.
    ///
    /// # Errors
    /// [`Error::Encode`] if the command cannot be sent, or [`Error::Panicked`] if its function
    /// panics.
    pub(in crate::redis) fn into_request(self, server: &ServerInfo) -> Result<CommandRequest> {
        let mut content = self.content;
        let mut builds = 0;
        loop {
            match content {
                Content::Arguments(arguments) => {
                    shared_use::check(&arguments)?;
                    return Ok(CommandRequest::Plain(arguments));
                }
                Content::Script(call) => return Ok(CommandRequest::Script(call)),
                Content::Transaction(commands) => {
                    let requests = commands.into_iter().map(|command| command.into_queued(server));
                    return Ok(CommandRequest::Transaction(requests.collect::<Result<_>>()?));
                }
                Content::Built(build) => {
                    builds += 1;
                    if builds > MAX_BUILDS {
                        return Err(unsendable("a command that is built again and again"));
                    }
                    let mut built = None;
                    if let Some(message) = caught(|| built = Some(build(server))) {
                        return Err(Error::panicked(message));
                    }
                    content = built.ok_or(Error::Cancelled)?.content;
                }
            }
        }
    }

    /// Returns the arguments of a command of a transaction.
    fn into_queued(self, server: &ServerInfo) -> Result<Vec<Bytes>> {
        match self.into_request(server)? {
            CommandRequest::Plain(arguments) => Ok(arguments),
            // The fallback of a digest would come behind the transaction.
            CommandRequest::Script(call) => Ok(call.by_source()),
            CommandRequest::Transaction(_) => Err(unsendable("a transaction inside another one")),
        }
    }
}

impl RedisScript {
    /// Returns a command that calls the script with these keys and arguments.
    pub fn command<K: Into<Bytes>, A: Into<Bytes>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        arguments: impl IntoIterator<Item = A>,
    ) -> RedisCommand {
        let keys: Vec<Bytes> = keys.into_iter().map(Into::into).collect();
        let arguments: Vec<Bytes> = arguments.into_iter().map(Into::into).collect();
        let weight = OVERHEAD + weight_of(&keys) + weight_of(&arguments);
        let call = ScriptCall { script: self.clone(), keys, arguments };
        RedisCommand::with(Content::Script(Box::new(call)), weight)
    }
}

impl<B: Into<Bytes>, const N: usize> From<[B; N]> for RedisCommand {
    fn from(arguments: [B; N]) -> Self {
        RedisCommand::of(arguments.into_iter().map(Into::into).collect())
    }
}

impl<B: Into<Bytes>> From<Vec<B>> for RedisCommand {
    fn from(arguments: Vec<B>) -> Self {
        RedisCommand::of(arguments.into_iter().map(Into::into).collect())
    }
}

fn weight_of(arguments: &[Bytes]) -> usize {
    arguments.iter().map(|argument| argument.len() + size_of::<Bytes>()).sum()
}

impl fmt::Debug for RedisCommand {
    /// Prints the name, and no arguments, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.content {
            Content::Arguments(arguments) => {
                arguments.first().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
            }
            Content::Script(call) => format!("EVALSHA {}", String::from_utf8_lossy(call.digest())),
            Content::Transaction(commands) => format!("MULTI of {}", commands.len()),
            Content::Built(_) => "built when it is sent".to_owned(),
        };
        f.debug_struct("RedisCommand")
            .field("name", &name)
            .field("weight", &self.weight)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::RespValue;

    fn server() -> ServerInfo {
        ServerInfo::read(&RespValue::Null, &RespValue::Bulk("run_id:r1\r\n".into()))
    }

    fn plain(command: RedisCommand) -> Vec<Bytes> {
        match command.into_request(&server()) {
            Ok(CommandRequest::Plain(arguments)) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands_have_their_arguments_in_order() {
        let expected: Vec<Bytes> = ["SET", "k", "v", "EX", "60"].map(Bytes::from).to_vec();
        assert_eq!(plain(RedisCommand::new("SET").arg("k").args(["v", "EX"]).number(60)), expected);
        assert_eq!(plain(["SET", "k", "v", "EX", "60"].into()), expected);
        assert_eq!(plain(vec!["SET", "k", "v", "EX", "60"].into()), expected);
    }

    #[test]
    fn the_weight_is_that_of_the_arguments_or_stated() {
        let short = RedisCommand::from(["GET", "k"]);
        let long = RedisCommand::new("GET").arg("k").arg("x".repeat(1000));
        assert!(long.bytes() >= short.bytes() + 1000);
        assert_eq!(RedisCommand::built_with(|_| ["GET", "k"].into()).weight(5000).bytes(), 5000);
        let script = RedisScript::new("return 1");
        assert!(script.command(["k"], ["x".repeat(1000)]).bytes() > 1000);
    }

    #[test]
    fn a_function_gets_the_facts_about_the_server() {
        let command =
            RedisCommand::built_with(|server| ["ECHO", server.run_id().unwrap()].map(str::to_owned).into());
        assert_eq!(plain(command), ["ECHO", "r1"].map(Bytes::from).to_vec());
    }

    #[test]
    fn functions_that_fail_are_refused() {
        fn endless() -> RedisCommand {
            RedisCommand::built_with(|_| endless())
        }
        assert!(matches!(endless().into_request(&server()), Err(Error::Encode(_))));
        let panics = RedisCommand::built_with(|_| panic!("on purpose"));
        assert!(matches!(panics.into_request(&server()), Err(Error::Panicked(_))));
        let blocks = RedisCommand::built_with(|_| ["BLPOP", "k", "0"].into());
        assert!(matches!(blocks.into_request(&server()), Err(Error::Encode(_))));
    }

    #[test]
    fn a_transaction_has_plain_commands_only() {
        let script = RedisScript::new("return 1");
        let commands = vec![["GET", "k"].into(), script.command(["k"], ["a"])];
        let transaction = RedisCommand::transaction(commands);
        assert!(transaction.check().is_ok());
        let Ok(CommandRequest::Transaction(requests)) = transaction.into_request(&server()) else {
            panic!("one")
        };
        assert_eq!(requests[1][..2], ["EVAL", "return 1"].map(Bytes::from));
        let nested = RedisCommand::transaction([RedisCommand::transaction([["GET", "k"]])]);
        assert!(nested.check().is_err());
        assert!(RedisCommand::transaction([["MULTI"]]).check().is_err());
        let hidden = RedisCommand::transaction([RedisCommand::built_with(|_| {
            RedisCommand::transaction([["GET", "k"]])
        })]);
        assert!(hidden.check().is_ok() && hidden.into_request(&server()).is_err());
    }
}
