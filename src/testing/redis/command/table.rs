//! The table of commands.
//!
//! Number of arguments, flags and positions of keys are those of `COMMAND INFO` of Redis 7.0.15; a
//! test compares them.

use super::{
    super::{pubsub::PubSubTopic, refusal::Reply},
    call::CommandCall,
    expiry, hashes, keys, lists, messages, sets, sorted_ranges, sorted_sets, stream_reads, stream_writes,
    strings,
};
use bytes::Bytes;

/// A command, or a subcommand with both names separated by `|`.
#[derive(Debug)]
pub(crate) struct CommandInfo {
    pub(crate) name: &'static str,
    /// The number of arguments with the name; if negative, the least number.
    pub(crate) arity: i64,
    flags: &'static str,
    /// The first and the last argument that is a key, and the step between them. The last one
    /// counts from the end if it is negative.
    pub(crate) keys: (i64, i64, i64),
    pub(crate) run: RunCommand,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum RunCommand {
    /// Needs neither the connection nor the server, so a script can run it.
    Keyspace(fn(&mut CommandCall<'_>, &[Bytes]) -> Reply),
    Service(Service),
}

/// Commands that work on the connection or on the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Service {
    Auth,
    ClientGetName,
    ClientId,
    ClientNoEvict,
    ClientSetName,
    CommandCount,
    CommandInfo,
    Discard,
    Eval,
    EvalSha,
    Exec,
    Hello,
    Info,
    Multi,
    Quit,
    Reset,
    Role,
    ScriptFlush,
    ScriptLoad,
    Select,
    Subscribe(PubSubTopic),
    Unsubscribe(PubSubTopic),
    Unwatch,
    Watch,
}

impl CommandInfo {
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags().any(|other| other == flag)
    }

    pub(crate) fn flags(&self) -> impl Iterator<Item = &'static str> {
        self.flags.split(' ')
    }

    /// Returns whether the command may have this number of arguments, the name included.
    pub(crate) fn accepts(&self, arguments: usize) -> bool {
        let arguments = arguments as i64;
        if self.arity >= 0 { arguments == self.arity } else { arguments >= -self.arity }
    }

    /// Returns the arguments that are keys.
    pub(crate) fn keys_of<'a>(&self, args: &'a [Bytes]) -> Vec<&'a Bytes> {
        let all = |first: usize, last: usize, step: usize| {
            (first..=last).step_by(step.max(1)).filter_map(|at| args.get(at)).collect()
        };
        match self.run {
            RunCommand::Service(Service::Eval | Service::EvalSha) => {
                let number = args.get(2).and_then(|number| super::call::integer(number).ok()).unwrap_or(0);
                let number = usize::try_from(number).unwrap_or(0).min(args.len());
                if number == 0 { Vec::new() } else { all(3, 2 + number, 1) }
            }
            _ if self.name == "xread" => {
                let at = args.iter().position(|arg| arg.eq_ignore_ascii_case(b"STREAMS"));
                let behind = at.map_or(&[][..], |at| &args[at + 1..]);
                behind.iter().take(behind.len() / 2).collect()
            }
            _ => {
                let (first, last, step) = self.keys;
                let last = if last < 0 { args.len() as i64 + last } else { last };
                if first == 0 || last < first {
                    return Vec::new();
                }
                all(first as usize, last as usize, step as usize)
            }
        }
    }
}

const fn row(
    name: &'static str,
    arity: i64,
    flags: &'static str,
    keys: (i64, i64, i64),
    run: RunCommand,
) -> CommandInfo {
    CommandInfo { name, arity, flags, keys, run }
}

const fn keys(run: fn(&mut CommandCall<'_>, &[Bytes]) -> Reply) -> RunCommand {
    RunCommand::Keyspace(run)
}

const fn service(service: Service) -> RunCommand {
    RunCommand::Service(service)
}

/// All commands, sorted by their names.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[CommandInfo] = &[
    row("append", 3, "write denyoom fast", (1, 1, 1), keys(strings::append)),
    row("auth", -2, "noscript loading stale fast no_auth allow_busy", (0, 0, 0), service(Service::Auth)),
    row("client|getname", 2, "noscript loading stale", (0, 0, 0), service(Service::ClientGetName)),
    row("client|id", 2, "noscript loading stale", (0, 0, 0), service(Service::ClientId)),
    row("client|no-evict", 3, "admin noscript loading stale", (0, 0, 0), service(Service::ClientNoEvict)),
    row("client|setname", 3, "noscript loading stale", (0, 0, 0), service(Service::ClientSetName)),
    row("command|count", 2, "loading stale", (0, 0, 0), service(Service::CommandCount)),
    row("command|info", -2, "loading stale", (0, 0, 0), service(Service::CommandInfo)),
    row("dbsize", 1, "readonly fast", (0, 0, 0), keys(keys::dbsize)),
    row("decr", 2, "write denyoom fast", (1, 1, 1), keys(strings::decr)),
    row("decrby", 3, "write denyoom fast", (1, 1, 1), keys(strings::decrby)),
    row("del", -2, "write", (1, -1, 1), keys(keys::del)),
    row("discard", 1, "noscript loading stale fast allow_busy", (0, 0, 0), service(Service::Discard)),
    row("echo", 2, "loading stale fast", (0, 0, 0), keys(keys::echo)),
    row("eval", -3, "noscript stale skip_monitor no_mandatory_keys movablekeys", (0, 0, 0), service(Service::Eval)),
    row("evalsha", -3, "noscript stale skip_monitor no_mandatory_keys movablekeys", (0, 0, 0), service(Service::EvalSha)),
    row("exec", 1, "noscript loading stale skip_slowlog", (0, 0, 0), service(Service::Exec)),
    row("exists", -2, "readonly fast", (1, -1, 1), keys(keys::exists)),
    row("expire", -3, "write fast", (1, 1, 1), keys(expiry::expire)),
    row("expireat", -3, "write fast", (1, 1, 1), keys(expiry::expire)),
    row("expiretime", 2, "readonly fast", (1, 1, 1), keys(expiry::ttl)),
    row("flushall", -1, "write", (0, 0, 0), keys(keys::flushall)),
    row("get", 2, "readonly fast", (1, 1, 1), keys(strings::get)),
    row("hdel", -3, "write fast", (1, 1, 1), keys(hashes::hdel)),
    row("hello", -1, "noscript loading stale fast no_auth allow_busy", (0, 0, 0), service(Service::Hello)),
    row("hexists", 3, "readonly fast", (1, 1, 1), keys(hashes::hexists)),
    row("hget", 3, "readonly fast", (1, 1, 1), keys(hashes::hget)),
    row("hgetall", 2, "readonly", (1, 1, 1), keys(hashes::hgetall)),
    row("hincrby", 4, "write denyoom fast", (1, 1, 1), keys(hashes::hincrby)),
    row("hlen", 2, "readonly fast", (1, 1, 1), keys(hashes::hlen)),
    row("hmget", -3, "readonly fast", (1, 1, 1), keys(hashes::hmget)),
    row("hset", -4, "write denyoom fast", (1, 1, 1), keys(hashes::hset)),
    row("hsetnx", 4, "write denyoom fast", (1, 1, 1), keys(hashes::hsetnx)),
    row("incr", 2, "write denyoom fast", (1, 1, 1), keys(strings::incr)),
    row("incrby", 3, "write denyoom fast", (1, 1, 1), keys(strings::incrby)),
    row("info", -1, "loading stale", (0, 0, 0), service(Service::Info)),
    row("keys", 2, "readonly", (0, 0, 0), keys(keys::keys)),
    row("llen", 2, "readonly fast", (1, 1, 1), keys(lists::llen)),
    row("lpop", -2, "write fast", (1, 1, 1), keys(lists::lpop)),
    row("lpush", -3, "write denyoom fast", (1, 1, 1), keys(lists::lpush)),
    row("lrange", 4, "readonly", (1, 1, 1), keys(lists::lrange)),
    row("mget", -2, "readonly fast", (1, -1, 1), keys(strings::mget)),
    row("mset", -3, "write denyoom", (1, -1, 2), keys(strings::mset)),
    row("multi", 1, "noscript loading stale fast allow_busy", (0, 0, 0), service(Service::Multi)),
    row("persist", 2, "write fast", (1, 1, 1), keys(keys::persist)),
    row("pexpire", -3, "write fast", (1, 1, 1), keys(expiry::expire)),
    row("pexpireat", -3, "write fast", (1, 1, 1), keys(expiry::expire)),
    row("pexpiretime", 2, "readonly fast", (1, 1, 1), keys(expiry::ttl)),
    row("ping", -1, "fast", (0, 0, 0), keys(keys::ping)),
    row("psubscribe", -2, "pubsub noscript loading stale", (0, 0, 0), service(Service::Subscribe(PubSubTopic::Pattern))),
    row("pttl", 2, "readonly fast", (1, 1, 1), keys(expiry::ttl)),
    row("publish", 3, "pubsub loading stale fast", (0, 0, 0), keys(messages::publish)),
    row("pubsub|channels", -2, "pubsub loading stale", (0, 0, 0), keys(messages::channels)),
    row("pubsub|numsub", -2, "pubsub loading stale", (0, 0, 0), keys(messages::numsub)),
    row("punsubscribe", -1, "pubsub noscript loading stale", (0, 0, 0), service(Service::Unsubscribe(PubSubTopic::Pattern))),
    row("quit", -1, "noscript loading stale fast no_auth allow_busy", (0, 0, 0), service(Service::Quit)),
    row("reset", 1, "noscript loading stale fast no_auth allow_busy", (0, 0, 0), service(Service::Reset)),
    row("role", 1, "noscript loading stale fast", (0, 0, 0), service(Service::Role)),
    row("rpop", -2, "write fast", (1, 1, 1), keys(lists::rpop)),
    row("rpush", -3, "write denyoom fast", (1, 1, 1), keys(lists::rpush)),
    row("sadd", -3, "write denyoom fast", (1, 1, 1), keys(sets::sadd)),
    row("scard", 2, "readonly fast", (1, 1, 1), keys(sets::scard)),
    row("script|flush", -2, "noscript", (0, 0, 0), service(Service::ScriptFlush)),
    row("script|load", 3, "noscript stale", (0, 0, 0), service(Service::ScriptLoad)),
    row("select", 2, "loading stale fast", (0, 0, 0), service(Service::Select)),
    row("set", -3, "write denyoom", (1, 1, 1), keys(strings::set)),
    row("sismember", 3, "readonly fast", (1, 1, 1), keys(sets::sismember)),
    row("smembers", 2, "readonly", (1, 1, 1), keys(sets::smembers)),
    row("spublish", 3, "pubsub loading stale fast", (1, 1, 1), keys(messages::spublish)),
    row("srem", -3, "write fast", (1, 1, 1), keys(sets::srem)),
    row("ssubscribe", -2, "pubsub noscript loading stale", (1, -1, 1), service(Service::Subscribe(PubSubTopic::Shard))),
    row("strlen", 2, "readonly fast", (1, 1, 1), keys(strings::strlen)),
    row("subscribe", -2, "pubsub noscript loading stale", (0, 0, 0), service(Service::Subscribe(PubSubTopic::Channel))),
    row("sunsubscribe", -1, "pubsub noscript loading stale", (1, -1, 1), service(Service::Unsubscribe(PubSubTopic::Shard))),
    row("time", 1, "loading stale fast", (0, 0, 0), keys(keys::time)),
    row("ttl", 2, "readonly fast", (1, 1, 1), keys(expiry::ttl)),
    row("type", 2, "readonly fast", (1, 1, 1), keys(keys::type_of)),
    row("unlink", -2, "write fast", (1, -1, 1), keys(keys::del)),
    row("unsubscribe", -1, "pubsub noscript loading stale", (0, 0, 0), service(Service::Unsubscribe(PubSubTopic::Channel))),
    row("unwatch", 1, "noscript loading stale fast allow_busy", (0, 0, 0), service(Service::Unwatch)),
    row("watch", -2, "noscript loading stale fast allow_busy", (1, -1, 1), service(Service::Watch)),
    row("xadd", -5, "write denyoom fast", (1, 1, 1), keys(stream_writes::xadd)),
    row("xdel", -3, "write fast", (1, 1, 1), keys(stream_writes::xdel)),
    row("xlen", 2, "readonly fast", (1, 1, 1), keys(stream_reads::xlen)),
    row("xrange", -4, "readonly", (1, 1, 1), keys(stream_reads::xrange)),
    row("xread", -4, "readonly blocking movablekeys", (0, 0, 0), keys(stream_reads::xread)),
    row("zadd", -4, "write denyoom fast", (1, 1, 1), keys(sorted_sets::zadd)),
    row("zcard", 2, "readonly fast", (1, 1, 1), keys(sorted_sets::zcard)),
    row("zincrby", 4, "write denyoom fast", (1, 1, 1), keys(sorted_sets::zincrby)),
    row("zrange", -4, "readonly", (1, 1, 1), keys(sorted_ranges::zrange)),
    row("zrangebyscore", -4, "readonly", (1, 1, 1), keys(sorted_ranges::zrangebyscore)),
    row("zrem", -3, "write fast", (1, 1, 1), keys(sorted_sets::zrem)),
    row("zremrangebyscore", 4, "write", (1, 1, 1), keys(sorted_ranges::zremrangebyscore)),
    row("zscore", 3, "readonly fast", (1, 1, 1), keys(sorted_sets::zscore)),
];

#[cfg(test)]
mod tests {
    use super::{super::look_up, *};

    #[test]
    fn the_table_is_sorted() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn the_documentation_lists_all_commands() {
        let page = include_str!("../mod.rs");
        for command in COMMANDS {
            let name = command.name.to_ascii_uppercase().replace('|', " ");
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    /// [`ScriptContext`](super::super::super::ScriptContext) handles these itself.
    #[test]
    fn scripts_need_few_commands_that_work_on_the_connection_or_the_server() {
        let needed = COMMANDS.iter().filter_map(|command| match command.run {
            RunCommand::Service(service) if !command.has("noscript") => Some(service),
            _ => None,
        });
        assert_eq!(
            needed.collect::<Vec<_>>(),
            [Service::CommandCount, Service::CommandInfo, Service::Info, Service::Select]
        );
    }

    #[test]
    fn keys_are_found_in_the_arguments() {
        for (command, keys) in [
            ("get a", "a"),
            ("del a b c", "a b c"),
            ("mset a 1 b 2", "a b"),
            ("eval source 2 a b c", "a b"),
            ("eval source 9 a", "a"),
            ("evalsha sha 0 a", ""),
            ("xread count 1 streams a b 0 0", "a b"),
            ("ping a", ""),
        ] {
            let args: Vec<Bytes> =
                command.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
            let found: Vec<_> = look_up(&args).unwrap().keys_of(&args).into_iter().cloned().collect();
            assert_eq!(found.join(&b' '), keys.as_bytes(), "{command}");
        }
    }
}
