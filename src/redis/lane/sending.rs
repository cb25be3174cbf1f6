//! What a lane sends on its connection, and the replies.
//!
//! Invariants: a command is sent at most once, except for a script that the server does not know.
//! Runs on the loop of the connection.

use super::{
    command_lane::CommandLane,
    lane_state::{LaneLife, LaneLink, UpLink},
    queue::{Caller, Paired, SentKind, SentRequest, WaitingCommand},
    transaction_replies::TransactionReplies,
};
use crate::{
    codec::RespValue,
    error::{Error, PeerError, Result},
    redis::{
        command::{CommandRequest, ScriptCall},
        connection::{Duty, Link, LinkOutput},
        error::RedisError,
        error_reply::ErrorReply,
        server_info::ServerInfo,
    },
};
use bytes::Bytes;
use std::collections::BTreeSet;

/// The largest number of scripts of which a connection knows that the server has them.
const MAX_KNOWN_SCRIPTS: usize = 1024;

impl CommandLane {
    /// Sends a command that was taken from the queue.
    ///
    /// # Errors
    /// The reason to close the connection, if a transaction was begun and cannot be discarded.
    fn send_one(&self, waiting: WaitingCommand, server: &ServerInfo, output: &mut dyn LinkOutput) -> Result {
        let WaitingCommand { command, caller } = waiting;
        let bytes = command.bytes();
        let skip = |error: Option<Error>, caller: Caller| {
            self.state.change(|state| (state.queue.not_sent(bytes), ()));
            if let Some(error) = error {
                caller.fail(RedisError::NotSent(error));
            }
            Ok(())
        };
        if caller.completer.is_cancelled() {
            return skip(None, caller);
        }
        if caller.deadline <= self.now() {
            let error = caller.timed_out();
            return skip(Some(error), caller);
        }
        let request = match command.into_request(server) {
            Ok(request) => request,
            Err(error) => return skip(Some(error), caller),
        };
        let (first, rest, kind) = match request {
            CommandRequest::Plain(arguments) => (arguments, Vec::new(), SentKind::Command),
            CommandRequest::Script(call) => {
                let (arguments, kind) = self.script_request(call);
                (arguments, Vec::new(), kind)
            }
            CommandRequest::Transaction(commands) => {
                let kind = SentKind::Transaction(TransactionReplies::new(commands.len() + 2, None));
                (vec!["MULTI".into()], [commands, vec![vec!["EXEC".into()]]].concat(), kind)
            }
        };
        if let Err(error) = output.write(first) {
            return skip(Some(error), caller);
        }
        let refused = rest.into_iter().enumerate().find_map(|(at, request)| {
            let error = output.write(request).err()?;
            // `MULTI` and the commands before this one, and `DISCARD`.
            Some((TransactionReplies::new(at + 2, Some(error.clone())), error))
        });
        let (kind, discarded) = match refused {
            Some((replies, error)) => (SentKind::Transaction(replies), Some(error)),
            None => (kind, None),
        };
        self.state.change(|state| {
            state.counts.sent += u64::from(discarded.is_none());
            (state.queue.sent(caller, bytes, kind), ())
        });
        match discarded {
            // The end of the connection discards the commands too.
            Some(error) => output.write_beyond_limit(vec!["DISCARD".into()]).map_err(|_| error),
            None => Ok(()),
        }
    }

    /// Returns the arguments for a call of a script: its source the first time.
    fn script_request(&self, call: Box<ScriptCall>) -> (Vec<Bytes>, SentKind) {
        let is_known = self.state.change(|state| {
            let LaneLink::Up(up) = &mut state.link else { return (false, ()) };
            if up.scripts.len() >= MAX_KNOWN_SCRIPTS {
                up.scripts.clear();
            }
            (!up.scripts.insert(call.digest().clone()), ())
        });
        if is_known {
            (call.by_digest(), SentKind::Script(call))
        } else {
            (call.by_source(), SentKind::Command)
        }
    }

    /// Sends the call of a script again: with its source the first time, and then with its digest.
    fn send_again(
        &self,
        call: Box<ScriptCall>,
        request: SentRequest,
        is_first: bool,
        output: &mut dyn LinkOutput,
    ) {
        let needs_source = self.state.change(|state| {
            let LaneLink::Up(up) = &mut state.link else { return (true, None) };
            let before = if is_first { Some(std::mem::take(&mut up.sent_again)) } else { None };
            (up.sent_again.insert(call.digest().clone()), before)
        });
        let (arguments, kind) = if needs_source {
            (call.by_source(), SentKind::Command)
        } else {
            // The server may forget the script once more before it executes this call.
            (call.by_digest(), SentKind::Script(call))
        };
        match output.write(arguments) {
            Ok(()) => self.state.change(|state| (state.queue.sent_again(request, kind), ())),
            Err(error) => {
                self.state.change(|state| (state.queue.not_sent(request.bytes), ()));
                if let Some(caller) = request.caller {
                    caller.fail(RedisError::NotSent(error));
                }
            }
        }
    }

    /// Completes a command with its reply.
    fn complete(&self, caller: Option<Caller>, reply: RespValue) {
        let result = match ErrorReply::of(&reply) {
            Some(error) => {
                let error = RedisError::from_reply(error);
                if error.reply().is_some_and(|reply| reply.code() == "READONLY") {
                    // The server is a replica. Another one has the role of the master.
                    self.stop_sending(error.clone().into());
                }
                Err(error.into())
            }
            None => Ok(reply),
        };
        if let Some(caller) = caller {
            caller.completer.complete(result);
        }
    }

    fn stop_sending(&self, cause: Error) {
        self.state.change(|state| {
            if let LaneLink::Up(up) = &mut state.link {
                up.draining.get_or_insert(cause);
            }
            ((), ())
        });
    }
}

impl Duty for CommandLane {
    fn opened(&self, link: Link) {
        let server = link.server.clone();
        let awaited = self.state.change(|state| {
            let up = UpLink {
                link,
                is_woken: true,
                scripts: BTreeSet::new(),
                sent_again: BTreeSet::new(),
                draining: None,
            };
            state.counts.connects += 1;
            let before = std::mem::replace(&mut state.link, LaneLink::Up(up));
            (state.awaited.take(), before)
        });
        for completer in awaited {
            completer.complete(Ok(server.clone()));
        }
    }

    fn send(&self, output: &mut dyn LinkOutput) -> Result {
        let Some(server) = self.server() else { return Ok(()) };
        // If the output is full, the link stays woken.
        while output.is_writable() {
            let Some(waiting) = self.state.change(|state| (state.next(), ())) else { break };
            self.send_one(waiting, &server, output)?;
        }
        Ok(())
    }

    fn reply(&self, reply: RespValue, output: &mut dyn LinkOutput) -> Result {
        let (was_held, effect) = self.state.change(|state| {
            let was_held = state.queue.is_held();
            ((was_held, state.queue.reply(reply)), ())
        });
        match effect {
            Paired::Nothing => {}
            Paired::Done(caller, reply) => self.complete(caller, reply),
            Paired::NotSent(caller, cause) => {
                if let Some(caller) = caller {
                    caller.fail(RedisError::NotSent(cause));
                }
            }
            Paired::Uncertain(caller, cause) => {
                self.fail_uncertain(caller.into_iter().collect(), |_| cause.clone());
            }
            Paired::UnknownScript(call, request, is_first) => {
                self.send_again(call, request, is_first, output);
            }
            Paired::Unexpected => {
                return Err(PeerError::Malformed("a reply without a command".into()).into());
            }
        }
        if was_held && !self.state.read(|state| state.queue.is_held()) { self.send(output) } else { Ok(()) }
    }

    fn push(&self, _: Vec<RespValue>) -> Result {
        // Announcements, for example of invalidated keys, for which this client has not asked.
        Ok(())
    }

    fn heartbeat(&self) {
        self.state.change(|state| (state.queue.heartbeat(), ()));
    }

    fn drain(&self) {
        self.stop_sending(Error::ShutDown);
    }

    fn expire(&self) -> u64 {
        self.fail_expired()
    }

    fn finished(&self) -> Option<Error> {
        let (cause, channel) = self.state.read(|state| {
            let LaneLink::Up(up) = &state.link else { return (None, None) };
            if !state.queue.is_settled() {
                return (None, None);
            }
            match (&up.draining, state.life) {
                (Some(cause), _) => (Some(cause.clone()), None),
                (None, LaneLife::Closing) if !state.queue.has_waiting() => {
                    (Some(Error::Closed), state.channel.clone())
                }
                _ => (None, None),
            }
        });
        if let Some(channel) = channel {
            channel.close();
        }
        cause
    }

    fn lost(&self, cause: &Error) {
        let (in_flight, not_sent, channel) = self.state.change(|state| {
            let link = std::mem::replace(&mut state.link, LaneLink::Down(Some(cause.clone())));
            let in_flight = state.queue.lose();
            // A closing lane does not connect again.
            let is_closing = state.life == LaneLife::Closing;
            let not_sent = if is_closing { state.queue.clear_waiting() } else { Vec::new() };
            ((in_flight, not_sent, state.channel.clone().filter(|_| is_closing)), link)
        });
        self.fail_uncertain(in_flight, |_| cause.clone());
        for waiting in not_sent {
            waiting.fail(RedisError::Closed);
        }
        if let Some(channel) = channel {
            channel.close();
        }
    }

    fn unreachable(&self, cause: &Error) {
        self.state.change(|state| match &mut state.link {
            LaneLink::Down(reason) => ((), reason.replace(cause.clone())),
            LaneLink::Up(_) => ((), None),
        });
    }
}
