//! A terminal client for the chat server.
//!
//! ```text
//! cargo run --features full --example im_server
//! cargo run --features full --example im_client -- --user ann --room lobby
//! ```
//!
//! Each line of input is sent to the current room. Messages of others appear as
//! `12:34:56 [lobby] bob: hello` (times are UTC). Commands:
//!
//! - `/join ROOM`, `/leave`, `/who` and `/quit` do as their names say. The current room is the one
//!   that was joined last. After `/leave`, it is the one before.
//! - `/away` shows the number of messages to the room instead of messages, until `/back`.
//! - `/direct NAME TEXT` sends a message to one user, to whom it appears as
//!   `12:34:56 bob, to you: hello`. The client shows whether it was delivered.
//! - `/whois NAME` looks up a user. The answer may take a while, and arrive after the answers to
//!   later requests.
//! - `/remind 10m TEXT` sets a reminder. `/reminders` lists them with their numbers, and `/forget
//!   NUMBER` cancels one.
//!
//! `--connect unix:PATH` connects to a Unix socket. With the feature `tls`, `--tls` or `--tls-ca
//! FILE` encrypts the connection. The end of the input, `/quit` and Ctrl-C disconnect cleanly:
//! pending requests are sent, and their answers are shown. When the server closes the connection,
//! the client prints the reason and exits with status 1. With `--reconnect` it connects again
//! instead, with exponential backoff and jitter, and goes on behind the last message of each room.
//!
//! There are three threads. The event loop prints received messages, the main thread waits for the
//! end, and a third thread blocks while it reads the terminal, which an event loop must never do.

#[path = "im/message_id.rs"]
mod message_id;
#[path = "support/output.rs"]
mod output;
#[path = "im/progress.rs"]
mod progress;
#[path = "im/protocol.rs"]
mod protocol;
#[cfg(feature = "tls")]
#[path = "im/tls.rs"]
mod tls;
#[cfg(unix)]
#[path = "im/unix.rs"]
mod unix;

use clap::Parser;
use message_id::MessageId;
use netwheel::{
    codec::Line,
    prelude::*,
    reconnect::{Backoff, ReconnectEvent, ReconnectingChannel},
    shutdown::ShutdownOptions,
    stage::Json,
};
use output::{Output, complain, say};
use progress::Progress;
use protocol::{GapCause, Reason, ReminderInfo, Reply, Request};
use std::{
    collections::BTreeSet,
    io::BufRead,
    ops::ControlFlow,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    time::{Duration, SystemTime},
};

/// Maximum length in bytes of a line from the server; the list of members of a full room fits.
const MAX_LINE: usize = 4 * 1024 * 1024;
/// 9999-12-31 23:59:59 UTC, in milliseconds.
const LATEST: u64 = 253_402_300_799_000;
/// The number of ids by which direct messages that are sent again are recognized.
const MAX_SHOWN: usize = 1000;
/// Time limit for the answers to the last requests. A second Ctrl-C ends the wait.
const FAREWELL: Duration = Duration::from_secs(10);

/// A terminal client for the chat server. Type to talk; commands: /join ROOM, /leave, /who, /away,
/// /back, /whois NAME, /direct NAME TEXT, /remind TIME TEXT, /reminders, /forget NUMBER, /quit.
#[derive(Parser)]
struct Options {
    /// Address of the server: HOST:PORT, or unix:PATH.
    #[arg(long, default_value = "127.0.0.1:9000")]
    connect: String,
    /// User name for the login.
    #[arg(long, default_value_t = format!("guest-{}", std::process::id()))]
    user: String,
    /// Room to join after the login.
    #[arg(long, default_value = "lobby")]
    room: String,
    /// Retry if the server is not reachable, and reconnect when the connection is lost.
    #[arg(long)]
    reconnect: bool,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    tls: tls::TlsOptions,
}

/// An event for the main thread.
enum Event {
    /// The user wants to disconnect.
    Leave,
    /// The connection has closed.
    Closed { why: Option<String> },
}

/// State of a disconnect, shared by the main thread, the input thread and the event loop.
#[derive(Default)]
struct Leaving {
    /// Set when the user disconnects. The pong to the last ping then shows that all earlier
    /// requests except those in `unordered` have been answered.
    begun: AtomicBool,
    /// Unanswered pings.
    pings: AtomicUsize,
    /// Unanswered requests that are not answered in order: lookups, and changes of reminders.
    unordered: AtomicUsize,
}

impl Leaving {
    fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Records that a request that is not answered in order was answered or has failed.
    fn answered(&self) {
        one_less(&self.unordered);
    }

    /// Records a pong. Returns whether it answers the last ping of a disconnect. Earlier pongs do
    /// not count, because their pings may precede requests that are still pending.
    fn ponged(&self) -> bool {
        one_less(&self.pings) == Some(0) && self.has_begun()
    }
}

/// Decrements a counter and returns the new value, or `None` if it was zero.
fn one_less(count: &AtomicUsize) -> Option<usize> {
    let before = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    before.ok().map(|before| before - 1)
}

/// The connection; prints received messages.
struct Client {
    user: String,
    room: String,
    events: Sender<Event>,
    /// Ids of the direct messages and reminders shown, at most [`MAX_SHOWN`].
    shown: BTreeSet<u64>,
    leaving: Arc<Leaving>,
    progress: Arc<Progress>,
    /// Set when the last request has been answered.
    answered: bool,
    /// Reason for a disconnect that the user did not request.
    why: Option<String>,
}

impl Client {
    /// Returns whether a direct message or a reminder has not been shown on this connection. A
    /// message that is sent again may arrive behind later ones.
    fn is_new(&mut self, id: u64) -> bool {
        let is_new = self.shown.insert(id);
        if self.shown.len() > MAX_SHOWN {
            self.shown.pop_first();
        }
        is_new
    }
}

impl Handler for Client {
    type Read = Reply;
    type Write = Request;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let requests = self.progress.requests(&self.user, &self.room);
        requests.into_iter().try_for_each(|request| ctx.write(request))
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, reply: Reply) -> Result {
        match reply {
            Reply::Welcome { user, heartbeat_ms, idle_ms, resume_token, .. } => {
                self.progress.set_token(resume_token);
                print(&format!("* you are {user}"));
                // The server may have normalised the name.
                self.user = user;
                ctx.set_idle_timeouts(timeouts(heartbeat_ms, idle_ms));
            }
            Reply::Joined { room, user, epoch, offset, recovered } => {
                print(&format!("* {user} joined {room}"));
                if recovered == Some(false) {
                    print(&format!("! messages in {room} are missing"));
                }
                self.progress.joined(room, epoch, offset);
            }
            Reply::Left { room, user } => {
                print(&format!("* {user} left {room}"));
                self.progress.left(&room);
            }
            Reply::Gap { room, epoch, offset, cause } => {
                print(&match cause {
                    GapCause::Rewound => format!("! the server has lost messages in {room}"),
                    GapCause::Trimmed => format!("! messages in {room} are missing"),
                });
                self.progress.advance(&room, Some(epoch), Some(offset));
            }
            Reply::Presence { room, count: Some(count), .. } => {
                print(&format!("* {count} members in {room}"));
            }
            Reply::Presence { room, mut joined, mut left, count: None } => {
                // Skip our own name: the server's replies already told us.
                for (users, what) in [(&mut joined, "joined"), (&mut left, "left")] {
                    users.retain(|user| *user != self.user);
                    if !users.is_empty() {
                        print(&format!("* {} {what} {room}", users.join(", ")));
                    }
                }
            }
            Reply::Message { room, from, text, ts, epoch, offset, .. } => {
                print(&format!("{} [{room}] {from}: {text}", time_of_day(ts)));
                self.progress.advance(&room, epoch, offset);
            }
            // Only for messages with an id.
            Reply::Said { .. } => {}
            Reply::Passive { room, total } => {
                print(&format!("* you are away from {room}"));
                self.progress.set_away(room, total);
            }
            Reply::Unread { room, total } => {
                print(&format!("* {} unread messages in {room}", self.progress.unread(&room, total)));
            }
            Reply::Active { room, epoch, offset, .. } => {
                print(&format!("* you are back in {room}"));
                self.progress.set_back(&room);
                self.progress.joined(room, epoch, offset);
            }
            Reply::Members { room, users } => print(&format!("* in {room}: {}", users.join(", "))),
            Reply::Direct { from, text, ts, id } => {
                ctx.write(Request::Ack { id })?;
                if self.is_new(id) {
                    print(&format!("{} {from}, to you: {text}", time_of_day(ts)));
                }
            }
            Reply::Kept { to, .. } => print(&format!("* {to} is not connected and will receive it later")),
            Reply::ReminderSet { reminder, due, .. } => {
                print(&format!("* reminder {reminder} is due at {}", date_and_time(due)));
                self.leaving.answered();
            }
            Reply::Reminders { reminders } => {
                if reminders.is_empty() {
                    print("* no reminders");
                }
                for ReminderInfo { reminder, due, text } in reminders {
                    print(&format!("* reminder {reminder}, due at {}: {text}", date_and_time(due)));
                }
            }
            Reply::Forgotten { reminder } => {
                print(&format!("* reminder {reminder} is cancelled"));
                self.leaving.answered();
            }
            Reply::Reminder { text, due, id, .. } => {
                ctx.write(Request::Ack { id })?;
                if self.is_new(id) {
                    print(&format!("* reminder of {}: {text}", date_and_time(due)));
                }
            }
            Reply::Delivered { to, .. } => print(&format!("* {to} has received it")),
            Reply::Profile { user, since, rooms, .. } => {
                let rooms = if rooms.is_empty() { "no room".to_owned() } else { rooms.join(", ") };
                print(&match since {
                    Some(since) => {
                        format!("* {user} has been online since {}, in {rooms}", time_of_day(since))
                    }
                    None => format!("* no user is called {user}"),
                });
                self.leaving.answered();
            }
            Reply::Missed { count, .. } => {
                print(&format!("! {count} lines were lost: we read too slowly"));
            }
            Reply::Ping { resume_token } => {
                if let Some(token) = resume_token {
                    self.progress.set_token(token);
                }
                ctx.write(Request::Pong)?;
            }
            Reply::Pong => self.answered |= self.leaving.ponged(),
            Reply::Error { message, room, id, .. } => {
                let room = room.map_or_else(String::new, |room| format!("{room}: "));
                print(&format!("! {room}{message}"));
                // Only requests that are not answered in order carry an id.
                if id.is_some() {
                    self.leaving.answered();
                }
            }
            Reply::Bye { reason, retry_after_ms } => {
                if let Some(millis) = retry_after_ms {
                    ctx.reconnect_after(Duration::from_millis(millis));
                }
                let why = match reason {
                    Reason::Idle => "the connection was idle",
                    Reason::Shutdown => "it is shutting down",
                    Reason::ProtocolError => "it received an invalid request",
                    Reason::SlowConsumer => "we read too slowly",
                    Reason::TooSlow => "we sent too slowly",
                    Reason::MaxAge => "it has reached its maximum age",
                    Reason::Replaced => "another one has replaced it",
                    Reason::Overloaded => "it is overloaded",
                };
                self.why = Some(format!("the server closed the connection: {why}"));
            }
        }
        if self.answered && self.leaving.unordered.load(Ordering::Acquire) == 0 {
            ctx.close();
        }
        Ok(())
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        match event.state {
            // Nothing has been sent for a while; the server closes connections that stay idle.
            IdleState::Writer => {
                self.leaving.pings.fetch_add(1, Ordering::AcqRel);
                ctx.write(Request::Ping)
            }
            _ => {
                self.why = Some("the server does not respond".to_owned());
                ctx.close_now();
                Ok(())
            }
        }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.why.get_or_insert_with(|| format!("{error:#}"));
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        // Requests on this connection are not answered any more. Reset the counters here and not in
        // `active`: the other threads can use the next connection before `active` runs on it.
        self.leaving.unordered.store(0, Ordering::Release);
        self.leaving.pings.store(0, Ordering::Release);
        let mut why = self.why.take();
        if why.is_none() && !self.leaving.has_begun() {
            why = Some("the server closed the connection".to_owned());
        }
        // Fails if the main thread has already ended.
        let _ = self.events.send(Event::Closed { why });
        Ok(())
    }
}

/// Returns idle timeouts for this client. It sends a ping after half the server's idle timeout, and
/// gives up on a server that misses three heartbeats.
fn timeouts(heartbeat_ms: u64, idle_ms: u64) -> IdleTimeouts {
    let heartbeat = Duration::from_millis(heartbeat_ms);
    IdleTimeouts::new().writer(Duration::from_millis(idle_ms) / 2).reader(heartbeat.saturating_mul(3))
}

/// Prints a line without control characters, so that others cannot move the cursor or change
/// colours.
fn print(line: &str) {
    let shown: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    say!("{shown}");
}

fn time_of_day(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn date_and_time(unix_ms: u64) -> String {
    // Due times are at most in the year 9999, the last one of this format.
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms.min(LATEST));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Reads and sends input lines until the input ends. Returns an error if reading failed.
fn read_input(client: &ReconnectingChannel<Request>, leaving: &Leaving, first: String) -> Result {
    // The current one is the last.
    let mut rooms = vec![first];
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        if line.split(' ').next() == Some("/quit") {
            break;
        }
        let before = rooms.clone();
        let request = match parse(line, &mut rooms) {
            Ok(request) => request,
            Err(why) => {
                print(&format!("! {why}"));
                continue;
            }
        };
        let is_unordered =
            matches!(request, Request::Lookup { .. } | Request::Remind { .. } | Request::Forget { .. });
        if is_unordered {
            leaving.unordered.fetch_add(1, Ordering::AcqRel);
        }
        if client.channel().is_none_or(|channel| channel.write(request).is_err()) {
            if is_unordered {
                leaving.answered();
            }
            rooms = before;
            print("! not sent");
        }
    }
    Ok(())
}

/// Returns the request of a line of input, and changes the list of the user's rooms accordingly.
fn parse(line: String, rooms: &mut Vec<String>) -> Result<Request, &'static str> {
    let (command, rest) = line.split_once(' ').unwrap_or((&line, ""));
    let rest = rest.trim();
    let id = Some(MessageId::from(0));
    // Requests about one of the rooms.
    let current = || rooms.last().cloned().ok_or("you are in no room: /join ROOM");
    Ok(match (command, rest.split_once(' ')) {
        ("/join", _) if !rest.is_empty() => {
            rooms.retain(|room| room != rest);
            rooms.push(rest.to_owned());
            Request::join(rest)
        }
        ("/leave", _) => {
            let room = current()?;
            rooms.pop();
            Request::Leave { room }
        }
        ("/who", _) => Request::Who { room: current()? },
        ("/away", _) => Request::Passive { room: current()? },
        ("/back", _) => Request::Active { room: current()? },
        ("/whois", _) if !rest.is_empty() => Request::Lookup { user: rest.to_owned(), id },
        ("/remind", Some((after, text))) => {
            Request::Remind { after: after.to_owned(), text: text.trim_start().to_owned(), id }
        }
        ("/reminders", _) => Request::Reminders,
        ("/forget", _) if rest.parse::<u64>().is_ok() => {
            Request::Forget { id: rest.parse().unwrap_or_default() }
        }
        ("/direct", Some((to, text))) => {
            Request::Direct { to: to.to_owned(), text: text.trim_start().to_owned(), id: None }
        }
        _ if command.starts_with('/') => {
            return Err("commands: /join ROOM, /leave, /who, /away, /back, /whois NAME, /direct NAME TEXT, \
                        /remind TIME TEXT, /reminders, /forget NUMBER, /quit");
        }
        _ => Request::Say { room: current()?, text: line, id: None },
    })
}

/// Sends a last ping. Its pong follows the answers to all earlier requests that are answered in
/// order.
fn say_goodbye(channel: &Channel<Request>, leaving: &Leaving) {
    // Count the ping before setting the flag: otherwise the pong to an earlier idle ping could be
    // taken for the last one.
    leaving.pings.fetch_add(1, Ordering::AcqRel);
    leaving.begun.store(true, Ordering::Release);
    let timeout = channel.schedule(FAREWELL, |scope| {
        scope.close();
        Ok(())
    });
    if timeout.is_err() || channel.write(Request::Ping).is_err() {
        channel.close();
    }
}

fn run(options: Options) -> Result<Option<String>> {
    let (events, next_event) = mpsc::channel();
    let leaving = Arc::<Leaving>::default();
    let group = EventLoopGroup::builder().threads(1).name("im-client").build()?;
    let client = connect(&group, &options, &events, &leaving)?;
    client.connected().wait()?;

    let interrupted = events.clone();
    ctrlc::set_handler(move || drop(interrupted.send(Event::Leave))).map_err(Error::other)?;
    // The thread may be blocked in a read when the program ends, so it is not joined.
    let (input, state, room) = (client.clone(), leaving.clone(), options.room);
    std::thread::spawn(move || {
        if let Err(e) = read_input(&input, &state, room) {
            log::debug!("reading the input failed: {e:#}");
        }
        let _ = events.send(Event::Leave);
    });

    let why = loop {
        match next_event.recv() {
            Ok(Event::Leave) => match client.channel() {
                Some(channel) if leaving.has_begun() => channel.close(),
                Some(channel) => say_goodbye(&channel, &leaving),
                None if options.reconnect => break None,
                // The connection has closed, and its `Closed` event is in the channel.
                None => {}
            },
            Ok(Event::Closed { why: Some(why) }) if options.reconnect && !leaving.has_begun() => {
                print(&format!("* {why}"));
            }
            Ok(Event::Closed { why }) => break why,
            Err(_) => break None,
        }
    };
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(1)))
        .wait()?;
    Ok(why)
}

fn connect(
    group: &EventLoopGroup,
    options: &Options,
    events: &Sender<Event>,
    leaving: &Arc<Leaving>,
) -> Result<ReconnectingChannel<Request>> {
    let (user, room) = (options.user.clone(), options.room.clone());
    let (again, left) = (options.reconnect, leaving.clone());
    let progress = Arc::<Progress>::default();
    let (events, leaving) = (events.clone(), leaving.clone());
    let pipeline = move |_peer: &netwheel::Peer| {
        let client = Client {
            user: user.clone(),
            room: room.clone(),
            events: events.clone(),
            shown: BTreeSet::new(),
            leaving: leaving.clone(),
            progress: progress.clone(),
            answered: false,
            why: None,
        };
        Pipeline::codec(Line::new().max_len(MAX_LINE)).stage(Json::<Reply, Request>::new()).handler(client)
    };
    let client = ClientBootstrap::new(group).connect_timeout(Duration::from_secs(10));
    #[cfg(feature = "tls")]
    let client = match options.tls.client(&options.connect, false, true)? {
        Some(tls) => client.tls(tls),
        None => client,
    };
    let client = client
        .pipeline(pipeline)
        .reconnect(if again { Backoff::new() } else { Backoff::new().max_attempts(1) })
        .on_event(move |event| match event {
            ReconnectEvent::Failed { error, next: Some(delay), .. } => {
                print(&format!("* {error:#}; retrying in {delay:.1?}"));
                ControlFlow::Continue(())
            }
            ReconnectEvent::Lost { .. } if !again || left.has_begun() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
    #[cfg(unix)]
    if let Some(address) = unix::unix(&options.connect)? {
        return client.connect(address);
    }
    client.connect(&*options.connect)
}

fn main() -> ExitCode {
    let options = Options::parse();
    let output = Output::start();
    let failure = match run(options) {
        Ok(why) => why,
        Err(e) => Some(format!("{e:#}")),
    };
    if let Some(why) = &failure {
        complain!("{why}");
    }
    output.finish();
    if failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
