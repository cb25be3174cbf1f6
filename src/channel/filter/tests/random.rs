//! Filters with everything that may meet them, in random order, compared with a model.
//!
//! The runs combine a PROXY header, stacked filters, filters that wait for a worker, upgrades in
//! the middle and replaced pipelines. They also have auto-read and requested reads, half-close,
//! blocked writes, closes and cuts, with every split of the input. The model states the guarantees
//! for programs: each line is delivered once and in order, a graceful end loses no accepted bytes,
//! and an end is reported with its true cause.
//!
//! `NETWHEEL_FILTER_SEEDS` sets the number of seeds (default 150), `NETWHEEL_FILTER_SEED` the
//! first one.

use super::xor::{Peer, Xor};
use crate::{
    channel::{
        Pipeline,
        config::ChannelOptions,
        filter::{FilterContext, filter_state::FilterState, filter_trait::Filter, filter_waker::FilterWaker},
    },
    codec::Line,
    error::{Error, Result},
    pipeline::{Context, Handler, handler_ref::HandlerRef},
    proxy::{ProxyHeader, ProxyProtocol},
    testing::EmbeddedChannel,
};
use bytes::Bytes;
use std::{
    cell::RefCell,
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{Arc, Mutex},
};

type Wakers = Arc<Mutex<Vec<FilterWaker>>>;

/// A filter that waits for a worker before it handles its first input.
struct Slow {
    filter: Xor,
    /// Taken when it begins to wait.
    wakers: Option<Wakers>,
    waits: bool,
}

impl Filter for Slow {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        self.filter.start(ctx)
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        self.waits = false;
        if !input.is_empty()
            && let Some(wakers) = self.wakers.take()
        {
            wakers.lock().unwrap().push(ctx.waker());
            self.waits = true;
            return Ok(0);
        }
        self.filter.read(ctx, input)
    }

    fn end_of_input(&mut self, ctx: &mut FilterContext<'_>, kept: usize) -> Result {
        self.filter.end_of_input(ctx, kept)
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        self.filter.write(ctx, plain)
    }

    fn sealed_len(&self, plain: usize) -> usize {
        self.filter.sealed_len(plain)
    }

    fn end_output(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        self.filter.end_output(ctx)
    }

    fn state(&self) -> FilterState {
        if self.waits { FilterState::Waiting } else { self.filter.state() }
    }
}

/// What the handlers of a channel share with the test.
#[derive(Clone, Default)]
struct Shared {
    calls: Rc<RefCell<Vec<String>>>,
    /// Lines that were written and accepted.
    accepted: Rc<RefCell<String>>,
    myself: Rc<RefCell<Option<HandlerRef<Talker>>>>,
    wakers: Wakers,
    slow: bool,
}

impl Shared {
    fn filter(&self) -> Slow {
        let wakers = self.slow.then(|| self.wakers.clone());
        Slow { filter: Xor::server(), wakers, waits: false }
    }

    fn note(&self, call: impl Into<String>) {
        self.calls.borrow_mut().push(call.into());
    }
}

struct Talker(Shared);

impl Handler for Talker {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        *self.0.myself.borrow_mut() = Some(ctx.handler_ref());
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.0.note(String::from_utf8_lossy(&line));
        match &line[..] {
            b"go" if ctx.write("ready".into()).is_ok() => {
                self.0.accepted.borrow_mut().push_str("ready\n");
                ctx.start_filter(self.0.filter())
            }
            b"swap" => ctx.replace_pipeline(Pipeline::codec(Line::new()).handler(Talker(self.0.clone()))),
            _ => Ok(()),
        }
    }

    fn read_closed(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.note("(end)");
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.note(format!("(error) {error:#}"));
        Err(error)
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.note("(inactive)");
        Ok(())
    }
}

struct World {
    random: fastrand::Rng,
    channel: EmbeddedChannel<Bytes>,
    shared: Shared,
    peer: Peer,
    filters: usize,
    half_close: bool,
    /// Bytes of the peer on their way.
    wire: Vec<u8>,
    /// Plaintext that the peer has received.
    received: String,
    sent: Vec<String>,
    upgrading: bool,
    /// The peer has sent its last byte.
    ended: bool,
    cut: bool,
    wire_ended: bool,
    closed: bool,
    shut_down: bool,
}

impl World {
    fn new(mut random: fastrand::Rng) -> Self {
        let filters = random.usize(..3);
        let half_close = random.bool();
        let options = ChannelOptions::new()
            .half_close(half_close)
            .auto_read(random.bool())
            .one_message_per_read(random.bool())
            .read_size([1, 7, 65_536][random.usize(..3)]);
        let shared = Shared { slow: random.bool(), ..Shared::default() };
        let mut builder =
            EmbeddedChannel::builder(Pipeline::codec(Line::new()).handler(Talker(shared.clone())))
                .channel_options(options);
        let mut wire = Vec::new();
        if random.bool() {
            let header = ProxyHeader::v2("192.0.2.7:1".parse().unwrap(), "192.0.2.8:2".parse().unwrap());
            let header = if random.bool() { header } else { ProxyHeader::v2_local() };
            header.encode(&mut wire);
            builder = builder.filter(ProxyProtocol::required().trust_unix_sockets().filter());
        }
        for _ in 0..filters {
            builder = builder.filter(shared.filter());
        }
        World {
            channel: builder.build().unwrap(),
            peer: Peer::new(filters),
            random,
            shared,
            filters,
            half_close,
            wire,
            received: String::new(),
            sent: Vec::new(),
            upgrading: false,
            ended: false,
            cut: false,
            wire_ended: false,
            closed: false,
            shut_down: false,
        }
    }

    fn step(&mut self) {
        let talks = self.peer.is_established() && !self.upgrading && !self.ended;
        let active = self.shared.myself.borrow().is_some();
        match self.random.u8(..24) {
            0..=4 if talks => {
                let line = format!("line {}{}", self.sent.len(), "x".repeat(self.random.usize(..40)));
                self.send(line);
            }
            5 if talks => self.send("swap".into()),
            6 if talks && self.filters < 3 => {
                self.send("go".into());
                self.upgrading = true;
            }
            7..=9 => {
                let n = self.random.usize(..=self.wire.len().min(60));
                self.deliver(n);
            }
            10..=12 => self.answer(),
            13 | 14 if active && !self.closed && !self.shut_down => {
                let line = format!("answer {}", self.random.u16(..));
                if self.channel.channel().write(line.clone().into()).is_ok() {
                    *self.shared.accepted.borrow_mut() += &(line + "\n");
                }
            }
            15 | 16 => self.read(),
            17 => self.wake(),
            18 if self.random.u8(..6) == 0 && talks => {
                self.ended = true;
                let marks = self.peer.end();
                self.wire.extend(marks);
            }
            19 if self.random.u8(..12) == 0 && !self.ended => {
                self.ended = true;
                self.cut = self.filters > 0 || !talks;
            }
            20 if self.random.u8(..8) == 0 && active => {
                self.shut_down = true;
                self.channel.channel().shutdown_write();
            }
            21 if self.random.u8(..8) == 0 && active => {
                self.closed = true;
                self.channel.channel().close();
            }
            22 => {
                let room = [None, Some(0), Some(self.random.usize(..50))][self.random.usize(..3)];
                self.channel.set_outbound_room(room);
            }
            23 => {
                let on = self.random.bool();
                self.run(move |ctx| ctx.set_auto_read(on));
            }
            _ => {}
        }
        self.channel.run_pending();
    }

    fn run(&mut self, f: impl FnOnce(&mut Context<'_, Talker>) + Send + 'static) {
        if let Some(myself) = &*self.shared.myself.borrow() {
            let _ = myself.execute(|_, ctx| {
                f(ctx);
                Ok(())
            });
        }
        self.channel.run_pending();
    }

    fn read(&mut self) {
        self.run(|ctx| ctx.read());
    }

    fn wake(&mut self) {
        let wakers = std::mem::take(&mut *self.shared.wakers.lock().unwrap());
        wakers.iter().for_each(FilterWaker::wake);
        self.channel.run_pending();
    }

    fn send(&mut self, line: String) {
        let wire = self.peer.seal(format!("{line}\n").as_bytes());
        self.wire.extend(wire);
        self.sent.push(line);
    }

    fn deliver(&mut self, n: usize) {
        let bytes: Vec<u8> = self.wire.drain(..n).collect();
        if !bytes.is_empty() {
            let _ = self.channel.write_inbound(&bytes);
        }
        if self.ended && self.wire.is_empty() && !self.wire_ended {
            self.wire_ended = true;
            self.channel.end_inbound();
        }
    }

    /// Passes the channel's output to the peer, and the peer's answer to the wire.
    fn answer(&mut self) {
        let output = self.channel.read_outbound();
        let Ok(plain) = self.peer.try_open(&output) else {
            // A close with nothing to send does not wait for the handshake of an upgrade.
            return assert!(self.closed && !self.peer.is_established(), "the peer refuses the output");
        };
        self.received += &String::from_utf8(plain).expect("text");
        if self.upgrading && self.received.contains("ready\n") && self.received.ends_with('\n') {
            let upgrades = self.received.matches("ready\n").count();
            if upgrades == self.sent.iter().filter(|line| *line == "go").count() {
                self.upgrading = false;
                self.filters += 1;
                self.peer.upgrade();
            }
        }
        let wire = self.peer.take();
        if !self.ended {
            self.wire.extend(wire);
        }
    }

    /// Lets everything happen that can.
    fn settle(&mut self) {
        self.channel.set_outbound_room(None);
        for round in 0..400 {
            let n = self.wire.len();
            self.deliver(n);
            self.wake();
            self.answer();
            self.read();
            if round == 200 && !self.ended && !self.upgrading && self.peer.is_established() {
                self.ended = true;
                let marks = self.peer.end();
                self.wire.extend(marks);
            }
        }
    }

    fn check(&mut self) {
        let calls = self.shared.calls.borrow().clone();
        let accepted = self.shared.accepted.borrow().clone();
        let (lines, rest): (Vec<_>, Vec<_>) = calls.iter().cloned().partition(|call| !call.starts_with('('));
        assert!(self.sent.starts_with(&lines), "sent {:?}, delivered {lines:?}", self.sent);
        assert!(accepted.starts_with(&self.received), "accepted {accepted:?}, received {:?}", self.received);
        let errors = rest.iter().filter(|call| call.starts_with("(error)")).count();
        let ends = rest.iter().filter(|call| *call == "(end)").count();
        assert!(errors <= 1 && (self.cut || errors == 0), "{calls:?}");
        if self.cut {
            // Of a cut stream no clean end is reported, if a filter would have had a mark.
            assert!(self.filters == 0 || ends == 0, "{calls:?}");
            if !self.closed && self.shared.myself.borrow().is_some() && self.filters > 0 {
                assert_eq!(lines, self.sent, "each line in front of the cut: {calls:?}");
                assert_eq!(errors, 1, "{calls:?}");
            }
            return;
        }
        // Whatever the channel has accepted has come, with the marks of the ends.
        assert_eq!(self.received, accepted, "{calls:?}");
        if !self.closed {
            assert_eq!(lines, self.sent, "{calls:?}");
            if self.ended {
                assert!(self.channel.is_closed() || self.half_close, "{calls:?}");
                // A channel whose output has ended first may close instead.
                let expected = usize::from(self.half_close);
                assert!(ends == expected || ends == 0 && self.shut_down, "{calls:?}");
            }
        }
        if self.closed {
            assert!(self.channel.is_closed(), "{calls:?}");
        }
        if (self.shut_down || self.channel.is_closed()) && self.filters > 0 && self.peer.is_established() {
            assert!(self.channel.is_closed() || self.channel.is_output_ended());
            assert!(self.peer.has_ended(), "{calls:?}");
        }
    }
}

#[test]
fn filters_keep_their_promises_in_any_order_of_events() {
    let number = |name: &str| env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let first = number("NETWHEEL_FILTER_SEED").unwrap_or(0);
    let mut failed = Vec::new();
    for seed in first..first + number("NETWHEEL_FILTER_SEEDS").unwrap_or(150) {
        let run = || {
            let mut world = World::new(fastrand::Rng::with_seed(seed));
            for _ in 0..world.random.usize(..200) {
                world.step();
            }
            world.settle();
            world.check();
        };
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "{} seeds fail: {:?}", failed.len(), &failed[..failed.len().min(20)]);
}
