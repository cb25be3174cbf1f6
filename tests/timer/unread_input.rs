//! Unread bytes in the socket are activity: the loop checks for them before it reports a channel as
//! idle or late.
//!
//! Each test blocks the loop on a manual clock for longer than the timeout, as a stopped process, a
//! suspended machine or a slow callback does. The peer sends during that time.

use crate::support::{
    journal::Journal,
    loops::{Gate, advance, settle, single},
    tcp::connect,
};
use bytes::Bytes;
use netwheel::{
    Pipeline,
    channel::TimeLimits,
    codec::Line,
    prelude::*,
    stage::Heartbeat,
    testing::{EmbeddedChannel, ManualClock},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_secs(10);
const HELD_UP: Duration = Duration::from_secs(35);
/// Time for which a client's "pause" command makes the server not read.
const PAUSE: Duration = Duration::from_secs(100);
const TICK: Duration = Duration::from_millis(1);
const CLIENTS: usize = 40;

/// Echoes lines, closes when idle, and records how it ends.
struct Echo(Journal<String>);

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.push("active".to_owned());
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        if line == "pause" {
            ctx.set_auto_read(false);
            let resume = |_: &mut Echo, ctx: &mut Context<'_, Echo>| {
                ctx.set_auto_read(true);
                Ok(())
            };
            let _ = ctx.schedule(PAUSE, resume);
        }
        ctx.write(line)
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        self.0.push(format!("idle {:?}", event.state));
        ctx.close();
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.push(format!("{error:#}"));
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.push("inactive".to_owned());
        Ok(())
    }
}

/// A server on one loop with a manual clock.
struct Held {
    event_loop: EventLoop,
    clock: ManualClock,
    server: Server,
    journal: Journal<String>,
    _group: EventLoopGroup,
}

impl Held {
    fn new<P>(pipeline: P) -> Self
    where
        P: Fn(Echo) -> Pipeline<Bytes> + Send + Sync + 'static,
    {
        let (clock, journal) = (ManualClock::new(), Journal::new());
        let builder = EventLoopGroup::builder().clock(clock.clone()).wheel_tick(TICK);
        let (group, event_loop) = single(builder);
        let events = journal.clone();
        let server = ServerBootstrap::new(&group).pipeline(move |_| pipeline(Echo(events.clone())));
        let server = server.bind("127.0.0.1:0").unwrap();
        Held { event_loop, clock, server, journal, _group: group }
    }

    fn connect(&self, clients: usize) -> Vec<Client> {
        let active = self.count("active") + clients;
        let clients = (0..clients).map(|_| Client::connect(&self.server)).collect();
        while self.count("active") < active {
            settle(&self.event_loop);
        }
        clients
    }

    /// Blocks the loop for longer than the timeout while `act` runs.
    fn hold_up(&self, act: impl FnOnce()) {
        let gate = Gate::shut(&self.event_loop);
        act();
        self.clock.advance(HELD_UP);
        drop(gate);
        settle(&self.event_loop);
    }

    fn count(&self, entry: &str) -> usize {
        self.journal.all().iter().filter(|e| *e == entry).count()
    }

    /// Returns the journal without the `active` entries.
    fn ends(&self) -> Vec<String> {
        self.journal.all().into_iter().filter(|entry| entry != "active").collect()
    }
}

struct Client(TcpStream);

impl Client {
    fn connect(server: &Server) -> Self {
        let stream = connect(server.local_address());
        Client(stream)
    }

    fn reset(self) {
        socket2::SockRef::from(&self.0).set_linger(Some(Duration::ZERO)).unwrap();
    }

    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    #[track_caller]
    fn expect(&mut self, text: &str) {
        let mut got = vec![0; text.len()];
        self.0.read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8_lossy(&got), text);
    }
}

/// Like [`Echo`], but stays open when it is idle.
struct Patient(Echo);

impl Handler for Patient {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.0.push("active".to_owned());
        ctx.set_auto_read(false);
        let _ = ctx.schedule(PAUSE, |_, ctx| {
            ctx.set_auto_read(true);
            Ok(())
        });
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        ctx.write(line)
    }

    fn idle(&mut self, _: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        self.0.0.push("idle".to_owned());
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.0.push(format!("{:?}", ctx.close_cause().unwrap()));
        Ok(())
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_loop_that_was_held_up_reports_no_client_as_idle_that_has_sent_bytes() {
    for timeouts in [IdleTimeouts::new().reader(TIMEOUT), IdleTimeouts::new().all(TIMEOUT)] {
        let held = Held::new(move |echo| Pipeline::codec(Line::new()).idle(timeouts).handler(echo));
        let mut clients = held.connect(CLIENTS);
        held.hold_up(|| clients.iter_mut().for_each(|client| client.send("still here\n")));
        for client in &mut clients {
            client.expect("still here\n");
        }
        assert_eq!(held.ends(), NOTHING);
        // Activity has the time of the check, so the next event is a whole timeout later.
        advance(&held.event_loop, &held.clock, TIMEOUT - TICK);
        assert_eq!(held.ends(), NOTHING);
        advance(&held.event_loop, &held.clock, 2 * TICK);
        assert_eq!(held.ends().len(), 2 * CLIENTS, "a client that sends nothing more is idle");
    }
}

#[test]
fn a_loop_that_was_held_up_reports_only_the_silent_clients_as_idle() {
    let timeouts = IdleTimeouts::new().reader(TIMEOUT);
    let held = Held::new(move |echo| Pipeline::codec(Line::new()).idle(timeouts).handler(echo));
    let mut clients = held.connect(2);
    held.hold_up(|| clients[0].send("here\n"));
    clients[0].expect("here\n");
    assert_eq!(held.ends(), ["idle Reader", "inactive"]);
}

#[test]
fn no_time_limit_on_input_expires_while_the_input_waits_in_the_socket() {
    let each = [
        ("read", TimeLimits::new().read(TIMEOUT), "", "a line\n"),
        ("first_byte", TimeLimits::new().first_byte(TIMEOUT), "", "a line\n"),
        ("first_message", TimeLimits::new().first_message(TIMEOUT), "a l", "ine\n"),
        ("progress", TimeLimits::new().progress(3, TIMEOUT), "a l", "ine\n"),
    ];
    for (name, limits, before, during) in each {
        let held = Held::new(move |echo| Pipeline::codec(Line::new()).time_limits(limits).handler(echo));
        let mut clients = held.connect(CLIENTS);
        clients.iter_mut().for_each(|client| client.send(before));
        // The server has read these bytes before it is held up.
        let bytes = (before.len() * CLIENTS) as u64;
        while held.event_loop.metrics().bytes_read < bytes {
            settle(&held.event_loop);
        }
        held.hold_up(|| clients.iter_mut().for_each(|client| client.send(during)));
        for client in &mut clients {
            client.expect("a line\n");
        }
        assert_eq!(held.ends(), NOTHING, "{name}");
    }
}

#[test]
fn a_heartbeat_checks_for_a_reply_before_it_gives_up_on_the_peer() {
    let heartbeat = || Heartbeat::new(TIMEOUT, || Bytes::from_static(b"PING")).max_misses(0);
    let held = Held::new(move |echo| Pipeline::codec(Line::new()).stage(heartbeat()).handler(echo));
    let mut clients = held.connect(CLIENTS);
    advance(&held.event_loop, &held.clock, TIMEOUT);
    clients.iter_mut().for_each(|client| client.expect("PING\n"));
    held.hold_up(|| clients.iter_mut().for_each(|client| client.send("PONG\n")));
    clients.iter_mut().for_each(|client| client.expect("PONG\n"));
    assert_eq!(held.ends(), NOTHING);
}

#[test]
fn unread_bytes_are_activity_even_while_the_program_does_not_read() {
    let timeouts = IdleTimeouts::new().reader(TIMEOUT);
    let held = Held::new(move |echo| Pipeline::codec(Line::new()).idle(timeouts).handler(echo));
    let mut clients = held.connect(2);
    for client in &mut clients {
        client.send("pause\n");
        client.expect("pause\n");
    }
    clients[0].send("later\n");
    for _ in 0..5 {
        advance(&held.event_loop, &held.clock, TIMEOUT + TICK);
    }
    assert_eq!(held.ends(), ["idle Reader", "inactive"], "the client without unread bytes");
    advance(&held.event_loop, &held.clock, PAUSE);
    clients[0].expect("later\n");
    advance(&held.event_loop, &held.clock, TIMEOUT + TICK);
    assert_eq!(held.count("idle Reader"), 2, "once its bytes are read, it becomes idle");
}

#[test]
fn the_end_of_a_stream_is_reported_as_such_and_not_as_idle() {
    let timeouts = IdleTimeouts::new().reader(TIMEOUT);
    let held = Held::new(move |echo| Pipeline::codec(Line::new()).idle(timeouts).handler(echo));
    let mut clients = held.connect(CLIENTS);
    held.hold_up(|| {
        for client in &mut clients {
            client.send("bye\n");
            client.0.shutdown(std::net::Shutdown::Write).unwrap();
        }
    });
    clients.iter_mut().for_each(|client| client.expect("bye\n"));
    while held.count("inactive") < CLIENTS {
        settle(&held.event_loop);
    }
    assert_eq!(held.count("idle Reader"), 0);
}

#[test]
fn a_reset_is_not_taken_for_the_end_of_the_stream_by_a_loop_that_was_held_up() {
    for timeouts in [IdleTimeouts::new().reader(TIMEOUT), IdleTimeouts::new().all(TIMEOUT)] {
        let held = Held::new(move |echo| Pipeline::codec(Line::new()).idle(timeouts).handler(echo));
        let clients = held.connect(CLIENTS);
        held.hold_up(|| clients.into_iter().for_each(Client::reset));
        while held.count("inactive") < CLIENTS {
            settle(&held.event_loop);
        }
        let resets = held.ends().iter().filter(|end| end.starts_with("reading failed")).count();
        assert_eq!(resets, CLIENTS, "{:?}", held.ends());
    }
}

#[test]
fn a_reset_that_is_noticed_while_reading_is_off_fails_the_next_read() {
    let timeouts = IdleTimeouts::new().reader(TIMEOUT);
    let held = Held::new(move |echo| Pipeline::codec(Line::new()).idle(timeouts).handler(Patient(echo)));
    let clients = held.connect(CLIENTS);
    clients.into_iter().for_each(Client::reset);
    for _ in 0..3 {
        advance(&held.event_loop, &held.clock, TIMEOUT + TICK);
    }
    assert_eq!(held.ends().len(), held.count("idle"), "nothing was read");
    assert_eq!(held.count("idle"), 3 * CLIENTS);
    advance(&held.event_loop, &held.clock, PAUSE);
    while held.ends().len() < held.count("idle") + CLIENTS {
        settle(&held.event_loop);
    }
    assert_eq!(held.count("Reset"), CLIENTS, "{:?}", held.ends());
}

#[test]
fn unread_bytes_of_an_embedded_channel_are_activity() {
    let (clock, journal) = (ManualClock::new(), Journal::new());
    let pipeline = Pipeline::codec(Line::new()).idle(IdleTimeouts::new().reader(TIMEOUT));
    let pipeline = pipeline.handler(Echo(journal.clone()));
    let mut channel = EmbeddedChannel::builder(pipeline).clock(clock).build().unwrap();
    channel.write_inbound(b"pause\n").unwrap();
    channel.write_inbound(b"later\n").unwrap();
    channel.advance(PAUSE - TICK);
    assert_eq!(journal.all(), ["active"]);
    assert_eq!(channel.read_outbound(), "pause\n");
    channel.advance(TICK);
    assert_eq!(channel.read_outbound(), "later\n");
    channel.advance(TIMEOUT + TICK);
    assert_eq!(journal.all(), ["active", "idle Reader", "inactive"]);
}
