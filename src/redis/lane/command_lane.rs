//! `CommandLane`: the commands of one connection.
//!
//! Invariants: each accepted command completes once. A command is sent at most once, except for a
//! script that the server does not know. While a link is woken, the loop of the connection will
//! look at the queue. So no accepted command is forgotten. The lock is not held while code of the
//! program runs, or while mail is sent. Any thread may call; the functions of `Duty` run on the
//! loop.

use super::{
    queue::{Caller, Given, LaneQueue, Paired, SentKind, SentRequest, WaitingCommand},
    transaction_replies::TransactionReplies,
};
use crate::{
    bootstrap::ReconnectingChannel,
    clock::nanos,
    codec::RespValue,
    error::{Error, PeerError, Resource, Result, SendError},
    event_loop::EventLoop,
    redis::{
        RedisCommand,
        command::{CommandRequest, ScriptCall},
        connection::{Duty, Link, LinkOutput, LinkWake},
        error::RedisError,
        error_reply::ErrorReply,
        server_info::ServerInfo,
        settings::RedisSettings,
    },
    sync::{Completer, Completion, Locked, Waiters, cancellable, completion},
};
use bytes::Bytes;
use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{Arc, OnceLock},
};

/// Deadlines are rounded up to a multiple of this time, so that few timers serve many commands.
const DEADLINE_GRAIN: u64 = 10 * 1_000_000;

/// The largest number of scripts of which a connection knows that the server has them.
const MAX_KNOWN_SCRIPTS: usize = 1024;

pub(in crate::redis) struct CommandLane {
    settings: RedisSettings,
    event_loop: OnceLock<EventLoop>,
    state: Locked<LaneState>,
}

struct LaneState {
    queue: LaneQueue,
    life: LaneLife,
    link: LaneLink,
    channel: Option<ReconnectingChannel<Infallible>>,
    /// The time for which the earliest timer is set.
    armed: u64,
    /// When a full queue may be searched for unwanted commands again.
    next_search: u64,
    awaited: Waiters<Completer<ServerInfo>>,
    counts: LaneCounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneLife {
    Open,
    Closing,
    Ended,
}

enum LaneLink {
    /// Not connected, with the reason if an attempt has failed or a connection was lost.
    Down(Option<Error>),
    Up(UpLink),
}

struct UpLink {
    link: Link,
    /// Whether the loop will look at the queue.
    is_woken: bool,
    /// The digests of scripts that were sent with their source.
    scripts: BTreeSet<Bytes>,
    /// The digests of scripts that were sent with their source again, since the server has first
    /// refused a call whose place later commands must not take.
    sent_again: BTreeSet<Bytes>,
    /// Why nothing more is sent.
    draining: Option<Error>,
}

/// A lane whose connection has not ended. A process that is killed drops it, and with it the
/// callers, which may own the client.
struct AttachedLane(Arc<CommandLane>);

impl Drop for AttachedLane {
    fn drop(&mut self) {
        drop(self.0.take_callers(&Error::Closed));
    }
}

/// What a lane had left at its end.
struct EndedLane {
    given: Given,
    awaited: Vec<Completer<ServerInfo>>,
    is_closing: bool,
}

/// Counters of a lane.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::redis) struct LaneCounts {
    pub(in crate::redis) pending: usize,
    pub(in crate::redis) pending_bytes: usize,
    pub(in crate::redis) sent: u64,
    pub(in crate::redis) uncertain: u64,
    pub(in crate::redis) connects: u64,
    pub(in crate::redis) is_up: bool,
}

impl CommandLane {
    pub(in crate::redis) fn new(settings: RedisSettings) -> Arc<Self> {
        let state = LaneState {
            queue: LaneQueue::default(),
            life: LaneLife::Open,
            link: LaneLink::Down(None),
            channel: None,
            armed: u64::MAX,
            next_search: 0,
            awaited: Waiters::default(),
            counts: LaneCounts::default(),
        };
        Arc::new(CommandLane { settings, event_loop: OnceLock::new(), state: Locked::new(state) })
    }

    /// Sets the connection of the lane, before the first command.
    pub(in crate::redis) fn attach(self: &Arc<Self>, channel: ReconnectingChannel<Infallible>) {
        let _ = self.event_loop.set(channel.event_loop().clone());
        let (closed, lane) = (channel.closed(), AttachedLane(self.clone()));
        self.state.change(|state| ((), state.channel.replace(channel)));
        closed.on_complete(move |result| lane.0.end(result.err().unwrap_or(Error::Closed)));
    }

    fn loop_id(&self) -> Option<u32> {
        self.event_loop.get().map(|event_loop| event_loop.shared.id)
    }

    fn now(&self) -> u64 {
        self.event_loop.get().map_or(0, EventLoop::now)
    }

    // ---- callers ----

    /// Accepts a command, or hands it back.
    pub(in crate::redis) fn submit(
        self: &Arc<Self>,
        command: RedisCommand,
    ) -> Result<Completion<RespValue>, SendError<RedisCommand>> {
        if let Err(error) = command.check() {
            return Err(SendError::new(command, error));
        }
        let limit = command.limit().unwrap_or(self.settings.command_timeout);
        let deadline = self.now().saturating_add(nanos(limit));
        // The undo of an unwanted reply is a no-op.
        let (completer, completion) = cancellable(self.loop_id(), |_| ());
        let caller = Caller { completer, deadline, limit };
        if limit.is_zero() {
            let error = caller.timed_out();
            caller.fail(RedisError::NotSent(error));
            return Ok(completion);
        }
        let waiting = WaitingCommand { command, caller };
        let now = self.now();
        let accepted = self.state.change(|state| {
            let mut refusal = self.refusal(state, &waiting.command);
            let mut unwanted = Vec::new();
            if matches!(refusal, Some(Error::Full { .. })) && state.may_look_for_unwanted(now) {
                unwanted = state.queue.take_unwanted();
                refusal = self.refusal(state, &waiting.command);
            }
            match refusal {
                Some(error) => (Err((waiting, error)), unwanted),
                None => {
                    state.queue.push(waiting);
                    (Ok((state.wake(), state.arm(deadline))), unwanted)
                }
            }
        });
        match accepted {
            Ok((wake, timer)) => {
                self.set_timer(timer);
                if let Some(wake) = wake {
                    wake();
                }
                Ok(completion)
            }
            Err((WaitingCommand { command, .. }, error)) => Err(SendError::new(command, error)),
        }
    }

    fn refusal(&self, state: &LaneState, command: &RedisCommand) -> Option<Error> {
        let RedisSettings { max_pending, max_pending_bytes, .. } = self.settings;
        let full = |resource, limit| Some(Error::Full { resource, limit });
        match state.life {
            LaneLife::Closing | LaneLife::Ended => Some(Error::Closed),
            LaneLife::Open if state.queue.len() >= max_pending => full(Resource::RedisCommands, max_pending),
            LaneLife::Open if state.queue.bytes().saturating_add(command.bytes()) > max_pending_bytes => {
                full(Resource::RedisCommandBytes, max_pending_bytes)
            }
            LaneLife::Open => None,
        }
    }

    /// Completes with the facts about the server, now or when the lane is connected the next time.
    pub(in crate::redis) fn connected(&self) -> Completion<ServerInfo> {
        self.state.change(|state| match (&state.link, state.life) {
            (LaneLink::Up(up), _) => (Completion::ready(Ok(up.link.server.clone())), None),
            (_, LaneLife::Open) => {
                let (completer, completion) = completion(self.loop_id());
                (completion, Some(state.awaited.push(completer)))
            }
            _ => (Completion::ready(Err(RedisError::Closed.into())), None),
        })
    }

    pub(in crate::redis) fn server(&self) -> Option<ServerInfo> {
        self.state.read(|state| match &state.link {
            LaneLink::Up(up) => Some(up.link.server.clone()),
            LaneLink::Down(_) => None,
        })
    }

    pub(in crate::redis) fn counts(&self) -> LaneCounts {
        self.state.read(|state| LaneCounts {
            pending: state.queue.len(),
            pending_bytes: state.queue.bytes(),
            is_up: matches!(state.link, LaneLink::Up(_)),
            ..state.counts
        })
    }

    /// Refuses further commands. Commands in flight have some time to complete.
    pub(in crate::redis) fn close(self: &Arc<Self>) {
        let (not_sent, channel, wake) = self.state.change(|state| {
            if state.life != LaneLife::Open {
                return ((Vec::new(), None, None), ());
            }
            state.life = LaneLife::Closing;
            match &state.link {
                LaneLink::Down(_) => ((state.queue.clear_waiting(), state.channel.clone(), None), ()),
                LaneLink::Up(_) if state.queue.len() == 0 => ((Vec::new(), state.channel.clone(), None), ()),
                LaneLink::Up(_) => ((Vec::new(), None, state.wake()), ()),
            }
        });
        for waiting in not_sent {
            waiting.fail(RedisError::Closed);
        }
        if let Some(channel) = channel {
            return channel.close();
        }
        let Some(wake) = wake else { return self.close_later() };
        wake();
        self.close_later();
    }

    /// Ends the connection when the time for commands in flight is over.
    fn close_later(self: &Arc<Self>) {
        let Some(event_loop) = self.event_loop.get() else { return };
        let lane = Arc::downgrade(self);
        let close = move || {
            if let Some(channel) =
                lane.upgrade().and_then(|lane| lane.state.read(|state| state.channel.clone()))
            {
                channel.close();
            }
        };
        // A loop that shuts down closes the connection.
        let time = event_loop.after(self.settings.close_timeout);
        drop(event_loop.schedule_for_reply(time, close));
    }

    /// Ends the lane: the connection will not be restored.
    fn end(&self, cause: Error) {
        let EndedLane { given, awaited, is_closing } = self.take_callers(&cause);
        let not_sent = || if is_closing { RedisError::Closed } else { RedisError::NotSent(cause.clone()) };
        for waiting in given.not_sent {
            waiting.fail(not_sent());
        }
        self.fail_uncertain(given.in_flight, |_| cause.clone());
        for completer in awaited {
            completer.complete(Err(RedisError::Closed.into()));
        }
    }

    fn take_callers(&self, cause: &Error) -> EndedLane {
        self.state.change(|state| {
            let is_closing = state.life == LaneLife::Closing;
            state.life = LaneLife::Ended;
            let link = std::mem::replace(&mut state.link, LaneLink::Down(Some(cause.clone())));
            let given = Given { not_sent: state.queue.clear_waiting(), in_flight: state.queue.lose() };
            (EndedLane { given, awaited: state.awaited.take(), is_closing }, (link, state.channel.take()))
        })
    }

    // ---- deadlines ----

    /// Sets a timer for this time, if there is one.
    fn set_timer(self: &Arc<Self>, time: Option<u64>) {
        let (Some(time), Some(event_loop)) = (time, self.event_loop.get()) else { return };
        let lane = Arc::downgrade(self);
        let expire = move || {
            if let Some(lane) = lane.upgrade() {
                let next = lane.fail_expired();
                let timer = lane.state.change(|state| (state.arm(next), ()));
                lane.set_timer(timer);
            }
        };
        // A loop that shuts down cancels the timer when it notifies outgoing connections. From then
        // on, the connection calls `Duty::expire`.
        drop(event_loop.schedule_for_reply(time, expire));
    }

    /// Fails the commands whose deadlines have passed. Returns the next deadline.
    fn fail_expired(&self) -> u64 {
        let now = self.now();
        let (given, next, down) = self.state.change(|state| {
            if state.armed <= now {
                state.armed = u64::MAX;
            }
            let (given, next) = state.queue.expire(now);
            let down = match &state.link {
                LaneLink::Down(cause) => cause.clone(),
                LaneLink::Up(up) => up.draining.clone(),
            };
            ((given, next, down), ())
        });
        for waiting in given.not_sent {
            let cause = down.clone().unwrap_or_else(|| waiting.caller.timed_out());
            waiting.fail(RedisError::NotSent(cause));
        }
        self.fail_uncertain(given.in_flight, Caller::timed_out);
        next
    }

    fn fail_uncertain(&self, callers: Vec<Caller>, cause: impl Fn(&Caller) -> Error) {
        let count = callers.iter().filter(|caller| !caller.completer.is_cancelled()).count() as u64;
        self.state.change(|state| (state.counts.uncertain += count, ()));
        for caller in callers {
            let cause = cause(&caller);
            caller.fail(RedisError::MayBeExecuted(cause));
        }
    }

    // ---- sending ----

    /// Sends a command that was taken from the queue.
    ///
    /// # Errors
    /// The reason to close the connection, if only a part of a transaction was written.
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
            Some(error) => output.write(vec!["DISCARD".into()]).map_err(|_| error),
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

impl LaneState {
    /// Returns the function that wakes the loop, unless it was called.
    fn wake(&mut self) -> Option<LinkWake> {
        let LaneLink::Up(up) = &mut self.link else { return None };
        if up.is_woken || up.draining.is_some() {
            return None;
        }
        up.is_woken = true;
        Some(up.link.wake.clone())
    }

    /// Returns whether a full queue may be searched now: not for each refused command.
    fn may_look_for_unwanted(&mut self, now: u64) -> bool {
        let is_due = now >= self.next_search;
        if is_due {
            self.next_search = now.saturating_add(DEADLINE_GRAIN);
        }
        is_due
    }

    /// Returns the time of the timer that is needed for this deadline, if there is none yet.
    fn arm(&mut self, deadline: u64) -> Option<u64> {
        if deadline >= self.armed {
            return None;
        }
        let time = deadline.checked_next_multiple_of(DEADLINE_GRAIN)?;
        if time >= self.armed {
            return None;
        }
        self.armed = time;
        Some(time)
    }

    /// Takes the command that is sent next. Without one, the loop has to be woken for the next.
    fn next(&mut self) -> Option<WaitingCommand> {
        let LaneLink::Up(up) = &mut self.link else { return None };
        if self.queue.is_held() {
            // The link stays woken. `send` is called behind the reply that ends this.
            return None;
        }
        let next = if up.draining.is_none() { self.queue.take() } else { None };
        if next.is_none() {
            up.is_woken = false;
        }
        next
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

#[cfg(test)]
#[path = "command_lane_tests.rs"]
mod tests;
