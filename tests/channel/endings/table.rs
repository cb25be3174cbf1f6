//! Ends channels in every way that docs/endings.md lists, over sockets and embedded, and compares
//! the events with the table there.

use super::{
    filters::Marked,
    rows::{entries, rows},
};
use crate::support::{
    codecs::AtLast,
    journal::{Journal, Log},
    logs::quiet_panics,
    loops::{advance, settle, settle_until, single},
    recorder::Recorder,
    wait::{HOUR, PATIENCE, done, ms, wait_until, wait_until_or},
};
use bytes::Bytes;
use netwheel::{
    ChannelContext, Codec, Pipeline,
    buffer::OutboundBuffer,
    channel::{ChannelOptions, CloseCause, Overflow, TimeLimits},
    error::PeerError,
    prelude::*,
    shutdown::ShutdownOptions,
    testing::{EmbeddedChannel, EmbeddedLoop, ManualClock},
};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::Duration,
};

pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// More bytes than both kernels buffer, and fewer than the outbound limit of a channel.
const MUCH: usize = 15 * 1024 * 1024;

/// Decodes every read as one message, except for one word.
#[derive(Clone)]
pub(super) struct Words;

impl Codec for Words {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if &input[..] == b"bad" {
            return Err(PeerError::Malformed("bad".into()).into());
        }
        let all = input.split_to(input.len());
        Ok((!all.is_empty()).then_some(all))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

const CAUSES: [CloseCause; 6] = [
    CloseCause::Clean,
    CloseCause::Cut,
    CloseCause::Reset,
    CloseCause::TimedOut,
    CloseCause::ShutDown,
    CloseCause::Failed,
];
const NAMES: [&str; 6] = ["Clean", "Cut", "Reset", "TimedOut", "ShutDown", "Failed"];

pub(super) fn name(cause: CloseCause) -> &'static str {
    NAMES[CAUSES.iter().position(|listed| *listed == cause).expect("a listed cause")]
}

pub(super) fn is_cause(event: &&str) -> bool {
    NAMES.contains(event)
}

/// Records its drop.
pub(super) struct Guard(pub(super) Journal<&'static str>, pub(super) &'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.push(self.1);
    }
}

/// Records the completion of `closed`, the cause, and the drop of a task.
pub(super) fn watch_end<H: Handler>(ctx: &mut Context<'_, H>, journal: &Journal<&'static str>) {
    let closed = journal.clone();
    ctx.channel().closed().on_complete(move |cause| {
        closed.push("closed");
        closed.push(name(cause.unwrap()));
    });
    let task = Guard(journal.clone(), "task");
    let _ = ctx.schedule(HOUR, move |_, _| {
        drop(task);
        panic!("the task must not run");
    });
}

/// Records the events at the end of its channel. Closes in `read_closed`, `idle`, `shutdown` and
/// `error`.
struct Mortal {
    journal: Journal<&'static str>,
    stays: bool,
    _dropped: Guard,
}

impl Mortal {
    fn new(journal: &Journal<&'static str>, stays: bool) -> Self {
        Mortal { journal: journal.clone(), stays, _dropped: Guard(journal.clone(), "dropped") }
    }
}

impl Handler for Mortal {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        watch_end(ctx, &self.journal);
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, word: Bytes) -> Result {
        match &word[..] {
            b"upgrade" => ctx.start_filter(Marked::handshaking()),
            b"fail" => Err(Error::other("on purpose")),
            b"panic" => panic!("on purpose"),
            _ => Ok(()),
        }
    }

    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.journal.push("read_closed");
        ctx.close();
        Ok(())
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        self.journal.push("idle");
        ctx.close();
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.journal.push("shutdown");
        if !self.stays {
            ctx.close();
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.journal.push("error");
        if self.stays {
            return Err(error);
        }
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.journal.push("inactive");
        assert_eq!(ctx.close_cause(), ctx.channel().close_cause());
        assert_eq!(self.journal.all().into_iter().find(is_cause), ctx.close_cause().map(name));
        Ok(())
    }
}

/// The settings of a channel.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) options: ChannelOptions,
    idle: IdleTimeouts,
    limits: TimeLimits,
    /// Whether the handler ignores `shutdown` and fails in `error`.
    stays: bool,
}

impl Setup {
    pub(super) fn usual() -> Self {
        Setup {
            options: ChannelOptions::new().close_timeout(CLOSE_TIMEOUT),
            idle: IdleTimeouts::new(),
            limits: TimeLimits::new(),
            stays: false,
        }
    }

    pub(super) fn options(set: fn(ChannelOptions) -> ChannelOptions) -> Self {
        let usual = Self::usual();
        Setup { options: set(usual.options), ..usual }
    }

    pub(super) fn pipeline(&self, journal: &Journal<&'static str>) -> Pipeline<Bytes> {
        let handler = Mortal::new(journal, self.stays);
        Pipeline::codec(Words).idle(self.idle).time_limits(self.limits).handler(handler)
    }
}

pub(super) type Task = dyn FnOnce(&mut ChannelContext<'_, Bytes>) -> Result + Send;

/// A channel and its peer.
pub(super) trait Ends {
    /// Runs a task on the channel.
    fn execute(&mut self, task: Box<Task>);
    /// Waits until the peer's kernel does not accept further bytes.
    fn stall(&mut self);
    /// Makes the peer read everything from now on.
    fn take(&mut self);
    fn say(&mut self, word: &str);
    fn end(&mut self);
    fn reset(&mut self);
    fn await_event(&mut self, journal: &Journal<&'static str>, event: &'static str);
    fn pass(&mut self, time: Duration);
}

/// Writes, and records the result.
pub(super) fn write(channel: &mut dyn Ends, journal: &Journal<&'static str>, bytes: usize) {
    let journal = journal.clone();
    channel.execute(Box::new(move |ctx| {
        let written = ctx.write_tracked(Bytes::from(vec![b'.'; bytes])).unwrap();
        written.on_complete(move |result| journal.push(if result.is_ok() { "written" } else { "unsent" }));
        Ok(())
    }));
}

/// Writes more than the peer accepts.
fn wait(channel: &mut dyn Ends, journal: &Journal<&'static str>) {
    write(channel, journal, MUCH);
    channel.stall();
}

pub(super) fn close(channel: &mut dyn Ends) {
    channel.execute(Box::new(|ctx| {
        ctx.close();
        Ok(())
    }));
}

// ---- sockets and embedded channels -----------------------------------------------------------

/// A channel over TCP on a loop with a manual clock.
struct Socket {
    event_loop: EventLoop,
    clock: ManualClock,
    channel: Channel<Bytes>,
    peer: Option<TcpStream>,
    group: EventLoopGroup,
}

impl Socket {
    fn new(setup: &Setup, journal: &Journal<&'static str>) -> Self {
        let clock = ManualClock::new();
        let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()).wheel_tick(ms(1)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (inner, of_channel) = (journal.clone(), setup.clone());
        let client = ClientBootstrap::new(&group)
            .channel_options(setup.options.clone())
            .pipeline(move |_| of_channel.pipeline(&inner));
        let channel = done(client.connect(listener.local_addr().unwrap())).unwrap();
        let peer = listener.accept().unwrap().0;
        peer.set_nodelay(true).unwrap();
        Socket { event_loop, clock, channel, peer: Some(peer), group }
    }

    fn peer(&mut self) -> &mut TcpStream {
        self.peer.as_mut().expect("the peer is there")
    }
}

impl Ends for Socket {
    fn execute(&mut self, task: Box<Task>) {
        self.channel.execute(task).unwrap();
        settle(&self.event_loop);
    }

    fn stall(&mut self) {
        settle_until(&self.event_loop, |metrics| metrics.writes_blocked > 0);
    }

    fn take(&mut self) {
        let mut peer = self.peer().try_clone().unwrap();
        thread::spawn(move || {
            // Ends when the test has closed the other end, in whichever way.
            let _ = std::io::copy(&mut peer, &mut std::io::sink());
        });
    }

    fn say(&mut self, word: &str) {
        self.peer().write_all(word.as_bytes()).unwrap();
        settle(&self.event_loop);
    }

    fn end(&mut self) {
        self.peer().shutdown(Shutdown::Write).unwrap();
    }

    fn reset(&mut self) {
        let peer = self.peer.take().expect("the peer is there");
        socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    }

    fn await_event(&mut self, journal: &Journal<&'static str>, event: &'static str) {
        wait_until(event, || {
            settle(&self.event_loop);
            journal.all().contains(&event)
        });
    }

    fn pass(&mut self, time: Duration) {
        advance(&self.event_loop, &self.clock, time);
    }
}

impl Ends for EmbeddedChannel<Bytes> {
    fn execute(&mut self, task: Box<Task>) {
        self.channel().execute(task).unwrap();
        self.run_pending();
    }

    fn stall(&mut self) {
        assert!(self.pending_bytes() > 0);
    }

    fn take(&mut self) {
        self.set_outbound_room(None);
    }

    fn say(&mut self, word: &str) {
        self.write_inbound(word.as_bytes()).unwrap();
    }

    fn end(&mut self) {
        self.end_inbound();
    }

    fn reset(&mut self) {
        self.fail_inbound(std::io::ErrorKind::ConnectionReset.into());
    }

    fn await_event(&mut self, journal: &Journal<&'static str>, event: &'static str) {
        assert!(journal.all().contains(&event));
    }

    fn pass(&mut self, time: Duration) {
        self.advance(time);
    }
}

// ---- endings -----------------------------------------------------------------------------------

type Act = fn(&mut dyn Ends, &Journal<&'static str>);

/// Returns the setup and the actions of a row; `None` for rows with a function of their own.
fn scenario(name: &str) -> Option<(Setup, Act)> {
    let usual = Setup::usual();
    Some(match name {
        "`close`, and everything is sent" => (usual, |channel, journal| {
            write(channel, journal, 9);
            close(channel);
        }),
        "`close`, and the peer keeps sending" => (usual, |channel, journal| {
            write(channel, journal, 9);
            close(channel);
            (0..9).for_each(|_| channel.say("ping"));
        }),
        "`close`, and the peer accepts nothing until the close timeout" => (usual, |channel, journal| {
            wait(channel, journal);
            close(channel);
            channel.pass(CLOSE_TIMEOUT);
        }),
        "`close`, and the peer resets the connection before everything is sent" => {
            (usual, |channel, journal| {
                wait(channel, journal);
                close(channel);
                channel.reset();
            })
        }
        "`close_now`" => (usual, |channel, journal| {
            wait(channel, journal);
            channel.execute(Box::new(|ctx| {
                ctx.close_now();
                Ok(())
            }));
        }),
        "the peer ends its stream" => (usual, |channel, _| channel.end()),
        "the peer ends its stream, and accepts all pending bytes" => (usual, |channel, journal| {
            wait(channel, journal);
            channel.end();
            channel.take();
        }),
        "the peer ends its stream, with `half_close`" => {
            (Setup::options(|options| options.half_close(true)), |channel, _| channel.end())
        }
        "the peer resets an idle connection" => (usual, |channel, _| channel.reset()),
        "the peer resets the connection with pending bytes" => (usual, |channel, journal| {
            wait(channel, journal);
            channel.reset();
        }),
        "the handler closes an idle channel" => {
            let idle = IdleTimeouts::new().reader(LIMIT);
            (Setup { idle, ..usual }, |channel, _| channel.pass(LIMIT + ms(1)))
        }
        "a time limit on input is reached" => {
            let limits = TimeLimits::new().read(LIMIT);
            (Setup { limits, ..usual }, |channel, _| channel.pass(LIMIT + ms(1)))
        }
        "a time limit on output is reached" => {
            let limits = TimeLimits::new().write(LIMIT);
            (Setup { limits, ..usual }, |channel, journal| {
                wait(channel, journal);
                channel.pass(LIMIT + ms(1));
            })
        }
        "the output overflows, with `Overflow::Close`" => {
            (Setup::options(|options| options.overflow(Overflow::Close)), |channel, journal| {
                wait(channel, journal);
                channel.execute(Box::new(|ctx| ctx.write(Bytes::from(vec![b'.'; MUCH]))));
            })
        }
        "a callback fails" => (usual, |channel, _| channel.say("fail")),
        "a callback panics with pending bytes, and the peer accepts them" => (usual, |channel, journal| {
            wait(channel, journal);
            channel.say("panic");
            channel.take();
        }),
        "a callback panics with pending bytes, and the peer accepts nothing until the close timeout" => {
            (usual, |channel, journal| {
                wait(channel, journal);
                channel.say("panic");
                channel.await_event(journal, "error");
                channel.pass(CLOSE_TIMEOUT);
            })
        }
        "the codec refuses the input" => (usual, |channel, _| channel.say("bad")),
        "`error` itself fails with pending bytes, and the peer accepts them" => {
            (Setup { stays: true, ..usual }, |channel, journal| {
                wait(channel, journal);
                channel.say("fail");
                channel.take();
            })
        }
        "the peer ends its stream after our output has ended, with `half_close`" => {
            (Setup::options(|options| options.half_close(true)), |channel, _| {
                channel.execute(Box::new(|ctx| {
                    ctx.shutdown_write();
                    Ok(())
                }));
                channel.end();
            })
        }
        _ => return None,
    })
}

fn over_a_socket(setup: &Setup, act: Act) -> Vec<&'static str> {
    let journal = Journal::new();
    let mut channel = Socket::new(setup, &journal);
    act(&mut channel, &journal);
    wait_until_or(
        || format!("the end of the channel: {:?}", journal.all()),
        || {
            settle(&channel.event_loop);
            journal.all().last() == Some(&"dropped")
        },
    );
    // Nothing follows, even if the socket lingers until here.
    drop(channel.peer.take());
    wait_until("the end of the socket", || {
        settle(&channel.event_loop);
        channel.event_loop.connections() == 0
    });
    done(channel.group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE)))
        .unwrap();
    journal.all()
}

fn embedded(setup: &Setup, act: Act) -> Vec<&'static str> {
    let journal = Journal::new();
    let pipeline = setup.pipeline(&journal);
    let mut channel =
        EmbeddedChannel::builder(pipeline).channel_options(setup.options.clone()).build().unwrap();
    channel.set_outbound_room(Some(100));
    act(&mut channel, &journal);
    assert!(channel.is_closed(), "{:?}", journal.all());
    let events = journal.all();
    drop(channel);
    assert_eq!(journal.all(), events, "nothing happens after the end");
    events
}

fn a_factory_fails() -> Vec<&'static str> {
    let (group, _) = single(EventLoopGroup::builder());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = ClientBootstrap::new(&group)
        .pipeline(|_| -> Result<Pipeline<Bytes>> { Err(Error::other("on purpose")) });
    let connected = done(client.connect(listener.local_addr().unwrap()));
    let mut end = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut end).unwrap();
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE))).unwrap();
    connected.err().map(|_| "connect fails").into_iter().collect()
}

fn a_loop_shuts_down(stays: bool) -> Vec<&'static str> {
    let journal = Journal::new();
    let mut channel = Socket::new(&Setup { stays, ..Setup::usual() }, &journal);
    if stays {
        wait(&mut channel, &journal);
    }
    let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(LIMIT);
    let ended = channel.group.shutdown(options);
    if stays {
        wait_until("the call of the handler", || journal.all().contains(&"shutdown"));
        channel.clock.advance(LIMIT);
    }
    done(ended).unwrap();
    journal.all()
}

fn an_embedded_channel_is_dropped(removed: bool) -> Vec<&'static str> {
    let journal = Journal::new();
    let pipeline = Setup::usual().pipeline(&journal);
    if removed {
        let mut event_loop = EmbeddedLoop::new();
        let id = event_loop.open(pipeline);
        event_loop.remove(id);
        return journal.all();
    }
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.set_outbound_room(Some(0));
    wait(&mut channel, &journal);
    drop(channel);
    journal.all()
}

#[test]
fn a_channel_ends_as_the_table_in_the_docs_says() {
    quiet_panics();
    let rows: Vec<[_; 4]> = rows("ending");
    assert!(rows.len() >= 20, "the table is incomplete");
    for [name, told, cause, places] in rows {
        let told = entries(told);
        let ends = match (scenario(name), places) {
            (Some((setup, act)), "both") => vec![over_a_socket(&setup, act), embedded(&setup, act)],
            (Some((setup, act)), "socket") => vec![over_a_socket(&setup, act)],
            (None, _) => vec![match name {
                "the pipeline factory fails" => a_factory_fails(),
                "the loop shuts down, and the handler closes" => a_loop_shuts_down(false),
                "the loop shuts down, and the timeout expires" => a_loop_shuts_down(true),
                "`EmbeddedLoop::remove`" => an_embedded_channel_is_dropped(true),
                "the `EmbeddedChannel` is dropped" => an_embedded_channel_is_dropped(false),
                _ => panic!("nothing tests the row {name:?}"),
            }],
            (Some(_), _) => panic!("{name}: unknown kind of channel {places:?}"),
        };
        for happened in ends {
            let (causes, happened): (Vec<_>, Vec<_>) = happened.into_iter().partition(is_cause);
            assert_eq!(happened, told, "{name}");
            assert_eq!(causes.first().map_or("—", |cause| cause), cause.trim_matches('`'), "{name}");
        }
    }
}

#[test]
fn buffered_bytes_are_decoded_at_the_peers_end_but_not_after_a_local_close_or_a_reset() {
    let end: fn(&mut EmbeddedChannel<Bytes>) = |channel| channel.end_inbound();
    let reset: fn(&mut EmbeddedChannel<Bytes>) = |channel| Ends::reset(channel);
    let close: fn(&mut EmbeddedChannel<Bytes>) = |channel| channel.close();
    for (act, told) in [
        (end, &["read a", "read b", "read_complete", "inactive", "drop"][..]),
        (reset, &["error reading failed: connection reset", "inactive", "drop"]),
        (close, &["inactive", "drop"]),
    ] {
        let log = Log::new();
        let mut channel = EmbeddedChannel::new(Pipeline::codec(AtLast).handler(Recorder::new(&log)));
        channel.write_inbound(b"ab").unwrap();
        assert_eq!(log.take(), ["active", "read_complete"]);
        act(&mut channel);
        assert_eq!(log.take(), told);
    }
}
