//! A terminal client for the chat server, for people.
//!
//! ```text
//! cargo run --release --features json --example im_server
//! cargo run --release --features json --example im_client -- --user ann --room lobby
//! ```
//!
//! What is typed is said in the current room; `/join ROOM`, `/leave`, `/who`, `/quit` do what they say. What others
//! say appears as `12:34:56 [lobby] bob: hello` (times are UTC). `/direct NAME TEXT` is for one person's eyes, to whom
//! it appears as `12:34:56 bob, to you: hello`; that it has arrived, or has not, is shown. `/whois NAME` asks who that is; the
//! answer may take a while, and come behind those to later questions. A server on a Unix socket is found with
//! `--connect unix:PATH`. The end of the input, `/quit` and Ctrl-C leave
//! cleanly: what was typed before is sent, and its answers are shown. When the server closes, it says why, and the
//! exit status is 1; with `--reconnect` the client comes back instead, as soon as there is a server again, after a delay
//! that grows and is random, so that not all clients come at once.
//!
//! Two threads: the event loop, which prints what comes, and the main thread, which waits for the end; a third one
//! sits in the blocking read of the terminal, which an event loop must never do.

#[path = "im/message_id.rs"]
mod message_id;
#[path = "support/output.rs"]
mod output;
#[path = "im/protocol.rs"]
mod protocol;
#[cfg(unix)]
#[path = "im/unix.rs"]
mod unix;

use clap::Parser;
use message_id::MessageId;
use netwheel::{Backoff, ReconnectEvent, ReconnectingChannel, codec::Line, prelude::*, stage::Json};
use output::{Output, complain, say};
use protocol::{Reason, Reply, Request};
use std::{
    io::BufRead,
    ops::ControlFlow,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    time::Duration,
};

/// The longest line that is read: the list of members of a full room has its place in it.
const MAX_LINE: usize = 4 * 1024 * 1024;
/// How long the server may take to answer the last question; who does not want to wait for it presses Ctrl-C once more.
const FAREWELL: Duration = Duration::from_secs(10);

/// A terminal client for the chat server: type to talk; /join ROOM, /leave, /who, /whois NAME, /direct NAME TEXT, /quit.
#[derive(Parser)]
struct Options {
    /// The server: HOST:PORT, or unix:PATH.
    #[arg(long, default_value = "127.0.0.1:9000")]
    connect: String,
    /// The name to log in with.
    #[arg(long, default_value_t = format!("guest-{}", std::process::id()))]
    user: String,
    /// The room to join first.
    #[arg(long, default_value = "lobby")]
    room: String,
    /// Wait for the server, and come back when the connection is lost.
    #[arg(long)]
    reconnect: bool,
}

/// Why the main thread goes on.
enum Event {
    /// The user wants to leave.
    Leave,
    /// The connection is closed.
    Closed { why: Option<String> },
}

/// What the user wants, as the main thread and the event loop know it.
#[derive(Default)]
struct Leaving {
    /// Set when the user leaves: the pong to the last ping says that everything before has been answered, but for lookups.
    begun: AtomicBool,
    /// Pings without an answer.
    pings: AtomicUsize,
    /// Lookups without an answer; these do not come in order.
    lookups: AtomicUsize,
}

impl Leaving {
    fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// A lookup has its answer, or will have none.
    fn looked_up(&self) {
        one_less(&self.lookups);
    }

    /// A ping has its answer; whether it is the last one of a user who leaves. Any other may have been asked before what
    /// the user still waits for.
    fn ponged(&self) -> bool {
        one_less(&self.pings) == Some(0) && self.has_begun()
    }
}

/// How many are left; none if there was none.
fn one_less(count: &AtomicUsize) -> Option<usize> {
    let before = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    before.ok().map(|before| before - 1)
}

/// The connection; prints what comes.
struct Client {
    user: String,
    room: String,
    events: Sender<Event>,
    /// The last direct message that was shown: a lower one is a copy.
    shown: u64,
    leaving: Arc<Leaving>,
    /// The answer to the last question has come.
    answered: bool,
    /// Why the connection closes, if it was not the user's wish.
    why: Option<String>,
}

impl Handler for Client {
    type Read = Reply;
    type Write = Request;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(Request::Login { user: self.user.clone() })?;
        ctx.write(Request::Join { room: self.room.clone() })
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, reply: Reply) -> Result {
        match reply {
            Reply::Welcome { user, heartbeat_ms, idle_ms, .. } => {
                print(&format!("* you are {user}"));
                // The server may have normalised it.
                self.user = user;
                ctx.set_idle_timeouts(timeouts(heartbeat_ms, idle_ms));
            }
            Reply::Joined { room, user } => print(&format!("* {user} joined {room}")),
            Reply::Left { room, user } => print(&format!("* {user} left {room}")),
            Reply::Presence { room, mut joined, mut left } => {
                // We know where we are, from the server's answers.
                for (users, what) in [(&mut joined, "joined"), (&mut left, "left")] {
                    users.retain(|user| *user != self.user);
                    if !users.is_empty() {
                        print(&format!("* {} {what} {room}", users.join(", ")));
                    }
                }
            }
            Reply::Message { room, from, text, ts, .. } => {
                print(&format!("{} [{room}] {from}: {text}", time_of_day(ts)));
            }
            Reply::Members { room, users } => print(&format!("* in {room}: {}", users.join(", "))),
            Reply::Direct { from, text, ts, id } => {
                ctx.write(Request::Ack { id })?;
                if id > self.shown {
                    self.shown = id;
                    print(&format!("{} {from}, to you: {text}", time_of_day(ts)));
                }
            }
            Reply::Delivered { to, .. } => print(&format!("* {to} has got it")),
            Reply::Profile { user, since, rooms, .. } => {
                let rooms = if rooms.is_empty() { "no room".to_owned() } else { rooms.join(", ") };
                print(&match since {
                    Some(since) => format!("* {user} is here since {}, in {rooms}", time_of_day(since)),
                    None => format!("* nobody is called {user}"),
                });
                self.leaving.looked_up();
            }
            Reply::Missed { count, .. } => {
                print(&format!("! we did not read as fast as it wrote: {count} lines are missing"));
            }
            Reply::Ping => ctx.write(Request::Pong)?,
            Reply::Pong => self.answered |= self.leaving.ponged(),
            Reply::Error { message, id, .. } => {
                print(&format!("! {message}"));
                // We give one to lookups only.
                if id.is_some() {
                    self.leaving.looked_up();
                }
            }
            Reply::Bye { reason } => {
                let why = match reason {
                    Reason::Idle => "nothing was sent for too long",
                    Reason::Shutdown => "it is shutting down",
                    Reason::ProtocolError => "it did not understand us",
                    Reason::SlowConsumer => "we did not read as fast as it wrote",
                    Reason::TooSlow => "it waited for us for too long",
                };
                self.why = Some(format!("the server says goodbye: {why}"));
            }
        }
        if self.answered && self.leaving.lookups.load(Ordering::Acquire) == 0 {
            ctx.close();
        }
        Ok(())
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        match event.state {
            // We only listened for a while: without a sign of life the server would drop us.
            IdleState::Writer => {
                self.leaving.pings.fetch_add(1, Ordering::AcqRel);
                ctx.write(Request::Ping)
            }
            _ => {
                self.why = Some("the server has gone silent".to_owned());
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
        // What was asked on this connection is never answered. Not in `active`: the other threads know of the next connection
        // before that, and may have asked on it already.
        self.leaving.lookups.store(0, Ordering::Release);
        self.leaving.pings.store(0, Ordering::Release);
        let mut why = self.why.take();
        if why.is_none() && !self.leaving.has_begun() {
            why = Some("the server closed the connection".to_owned());
        }
        // If the main thread has gone, nobody wants to know.
        let _ = self.events.send(Event::Closed { why });
        Ok(())
    }
}

/// A sign of life well before the server would miss it; and a server that misses three heartbeats is gone.
fn timeouts(heartbeat_ms: u64, idle_ms: u64) -> IdleTimeouts {
    let heartbeat = Duration::from_millis(heartbeat_ms);
    IdleTimeouts::new().writer(Duration::from_millis(idle_ms) / 2).reader(heartbeat.saturating_mul(3))
}

/// Prints a line; others' words must not move our cursor or change our colours.
fn print(line: &str) {
    let shown: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    say!("{shown}");
}

fn time_of_day(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Reads what is typed until it ends; the error that ended it, if one did.
fn read_input(client: &ReconnectingChannel<Request>, leaving: &Leaving, mut room: String) -> Result {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (command, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let rest = rest.trim();
        let request = match (command, rest.split_once(' ')) {
            ("", _) if rest.is_empty() => continue,
            ("/quit", _) => break,
            ("/join", _) if !rest.is_empty() => {
                room = rest.to_owned();
                Request::Join { room: room.clone() }
            }
            ("/leave", _) => Request::Leave { room: room.clone() },
            ("/who", _) => Request::Who { room: room.clone() },
            ("/whois", _) if !rest.is_empty() => {
                leaving.lookups.fetch_add(1, Ordering::AcqRel);
                Request::Lookup { user: rest.to_owned(), id: Some(MessageId::from(0)) }
            }
            ("/direct", Some((to, text))) => {
                Request::Direct { to: to.to_owned(), text: text.trim_start().to_owned(), id: None }
            }
            _ if command.starts_with('/') => {
                print("! there are /join ROOM, /leave, /who, /whois NAME, /direct NAME TEXT, /quit");
                continue;
            }
            _ => Request::Say { room: room.clone(), text: line, id: None },
        };
        let is_lookup = matches!(request, Request::Lookup { .. });
        if client.channel().is_none_or(|channel| channel.write(request).is_err()) {
            if is_lookup {
                leaving.looked_up();
            }
            print("! this was not sent");
        }
    }
    Ok(())
}

/// Asks one last question: its answer comes after the answers to all that was sent before, but for lookups.
fn say_goodbye(channel: &Channel<Request>, leaving: &Leaving) {
    // Counted first: the pong to one that was sent to be heard of may come in between, and is not the answer to this one.
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
    // It may sit in a read when the program ends, so nobody waits for it.
    let (input, state, room) = (client.clone(), leaving.clone(), options.room);
    std::thread::spawn(move || {
        if let Err(e) = read_input(&input, &state, room) {
            log::debug!("the input ends: {e:#}");
        }
        let _ = events.send(Event::Leave);
    });

    let why = loop {
        match next_event.recv() {
            Ok(Event::Leave) => match client.channel() {
                Some(channel) if leaving.has_begun() => channel.close(),
                Some(channel) => say_goodbye(&channel, &leaving),
                None if options.reconnect => break None,
                // Its last word is on the way.
                None => {}
            },
            Ok(Event::Closed { why: Some(why) }) if options.reconnect && !leaving.has_begun() => {
                print(&format!("* {why}"));
            }
            Ok(Event::Closed { why }) => break why,
            Err(_) => break None,
        }
    };
    group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(1)).wait()?;
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
    let (events, leaving) = (events.clone(), leaving.clone());
    let pipeline = move |_peer: &netwheel::Peer| {
        let client = Client {
            user: user.clone(),
            room: room.clone(),
            events: events.clone(),
            shown: 0,
            leaving: leaving.clone(),
            answered: false,
            why: None,
        };
        Pipeline::codec(Line::new().max_len(MAX_LINE)).stage(Json::<Reply, Request>::new()).handler(client)
    };
    let client = ClientBootstrap::new(group)
        .connect_timeout(Duration::from_secs(10))
        .pipeline(pipeline)
        .reconnect(if again { Backoff::new() } else { Backoff::new().max_attempts(1) })
        .on_event(move |event| match event {
            ReconnectEvent::Failed { error, next: Some(delay), .. } => {
                print(&format!("* {error:#}; once more in {delay:.1?}"));
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
