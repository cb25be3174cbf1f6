//! The handler and the stage of the play `equipment`. They record what crosses them, and compare it
//! with the wire log and the statistics of their channel.

use super::{
    kit::{MS, Play, SECOND, lock, now},
    wire::{self, Wire},
};
use bytes::Bytes;
use netwheel::{
    Stage, StageContext,
    channel::{LogLevel, TimeLimits, WireLog},
    prelude::*,
    testing::simulation::sometimes,
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// The time in which the first byte of a client must arrive.
pub(super) const FIRST_BYTE: Duration = Duration::from_secs(2);

/// How late a time limit may be: a tick of the wheel, and turns of the loop.
const LATENESS: Duration = Duration::from_millis(400);

/// One end of a connection.
pub(super) struct End {
    pub(super) play: Play,
    pub(super) target: String,
    pub(super) has_filter: bool,
    pub(super) max_bytes: usize,
    /// The messages that the stage has read and written.
    pub(super) input: Mutex<Vec<u8>>,
    pub(super) output: Mutex<Vec<u8>>,
    /// The number of records when the wire log was turned off.
    pub(super) records: Mutex<Option<usize>>,
    pub(super) is_active: AtomicBool,
    pub(super) is_over: AtomicBool,
    /// The pipeline was replaced, which ends the tasks of the channel.
    pub(super) is_replaced: AtomicBool,
    /// The attributes of the channel that have not been dropped.
    attributes: AtomicUsize,
    pub(super) handler: Mutex<Option<HandlerRef<Keeper>>>,
}

impl End {
    pub(super) fn new(play: &Play, has_filter: bool, max_bytes: usize) -> Arc<Self> {
        Arc::new(End {
            play: play.clone(),
            target: wire::new_target(),
            has_filter,
            max_bytes,
            input: Mutex::default(),
            output: Mutex::default(),
            records: Mutex::default(),
            is_active: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
            attributes: AtomicUsize::new(0),
            handler: Mutex::default(),
        })
    }

    pub(super) fn wire_log(&self) -> WireLog {
        let log = WireLog::new().level(LogLevel::Warn).target(self.target.clone());
        log.max_bytes(self.max_bytes).plaintext(true)
    }

    pub(super) fn pipeline(
        self: &Arc<Self>,
        limits: TimeLimits,
        is_server: bool,
        is_mute: bool,
    ) -> Pipeline<Bytes> {
        let begun = now();
        let keeper = Keeper { end: self.clone(), is_server, is_mute, begun, reads: 0 };
        Pipeline::codec(netwheel::codec::RawBytes)
            .time_limits(limits)
            .wire_log(self.wire_log())
            .attribute(Owned::new(self))
            .stage(Recorder { end: self.clone(), due: None })
            .handler(keeper)
    }

    pub(super) fn must(&self, holds: bool, what: impl FnOnce() -> String) {
        self.play.must(holds, || format!("{}: {}", self.target, what()));
    }

    /// Compares the wire log with the messages and the statistics.
    fn check(&self, stats: &netwheel::channel::ChannelStats) {
        let (input, output) = (lock(&self.input), lock(&self.output));
        let Wire { read, written, opened, sealed, events } = wire::contents(&self.target);
        let is_on = lock(&self.records).is_none();
        for (bytes, total, what) in
            [(&read, stats.bytes_read, "read"), (&written, stats.bytes_written, "written")]
        {
            // A pipeline begins, with its log, behind the handshake of the filter.
            let is_same = bytes.length as u64 == total;
            let is_less = (bytes.length as u64) < total && self.has_filter;
            self.must(is_same || is_less || !is_on, || {
                format!("{total} bytes were {what}, but {} are in the log", bytes.length)
            });
        }
        let (received, sent) = if self.has_filter { (&opened, &sealed) } else { (&read, &written) };
        self.must(!is_on || received.length >= input.len(), || "input is not in the log".to_owned());
        self.must(sent.length <= output.len(), || "the log has output that was not written".to_owned());
        if received.are_whole() && is_on {
            self.must(received.shown.starts_with(&input), || "the log has other input".to_owned());
        }
        if sent.are_whole() {
            self.must(output.starts_with(&sent.shown), || "the log has other output".to_owned());
        }
        self.must(events.first().is_some_and(|event| event.starts_with("active, local ")), || {
            format!("the first of {events:?} is not active")
        });
        let last = events.last().map(String::as_str);
        self.must(!is_on || last == Some("inactive"), || format!("the last event is {last:?}"));
    }

    pub(super) fn attributes(&self) -> usize {
        self.attributes.load(SeqCst)
    }
}

/// An attribute, which lives as long as its channel.
pub(super) struct Owned(Arc<End>);

impl Owned {
    pub(super) fn new(end: &Arc<End>) -> Self {
        end.attributes.fetch_add(1, SeqCst);
        Owned(end.clone())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.attributes.fetch_sub(1, SeqCst);
        // A connection that the poll refuses has had a pipeline, but was never active.
        let is_over = self.0.is_over.load(SeqCst) || !self.0.is_active.load(SeqCst);
        self.0.must(is_over, || "an attribute is dropped before its channel".to_owned());
    }
}

/// An attribute that the handler and the stage share.
#[derive(Default)]
struct Reads(u64);

/// Records the messages of both directions, in their order on the wire.
pub(super) struct Recorder {
    pub(super) end: Arc<End>,
    /// The time at which the timer of the stage is due.
    pub(super) due: Option<Duration>,
}

impl Stage for Recorder {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        lock(&self.end.input).extend_from_slice(&message);
        ctx.attributes_mut().get_or_insert_with(Reads::default).0 += 1;
        if self.due.is_none() {
            self.due = Some(ctx.now() + 30 * MS);
            ctx.wake_after(30 * MS);
        }
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message.clone())?;
        lock(&self.end.output).extend_from_slice(&message);
        Ok(())
    }

    fn timer(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        let Some(due) = self.due.take() else { return Ok(()) };
        self.end.must(ctx.now() >= due, || "the timer of a stage is early".to_owned());
        sometimes("the timer of a stage");
        Ok(())
    }
}

pub(super) struct Keeper {
    pub(super) end: Arc<End>,
    pub(super) is_server: bool,
    /// A client that sends nothing.
    pub(super) is_mute: bool,
    pub(super) begun: Instant,
    pub(super) reads: u64,
}

impl Keeper {
    /// Checks that the channel has its own attributes.
    fn check_attributes(&self, ctx: &Context<'_, Self>) {
        let attributes = ctx.attributes();
        let owned = attributes.get::<Owned>();
        self.end.must(owned.is_some_and(|owned| Arc::ptr_eq(&owned.0, &self.end)), || {
            "a channel has not its own attribute".to_owned()
        });
        let reads = attributes.get::<Reads>().map_or(0, |reads| reads.0);
        self.end.must(reads == self.reads, || format!("{reads} reads are noted, not {}", self.reads));
        let count = 1
            + usize::from(reads > 0)
            + usize::from(attributes.contains::<u64>())
            + usize::from(attributes.contains::<AtomicBool>());
        self.end.must(attributes.len() == count && !attributes.is_empty(), || format!("{attributes:?}"));
    }
}

impl Handler for Keeper {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.begun = ctx.now();
        self.end.is_active.store(true, SeqCst);
        *lock(&self.end.handler) = Some(ctx.handler_ref());
        self.check_attributes(ctx);
        if self.is_server || self.is_mute {
            return Ok(());
        }
        ctx.write(Bytes::from_static(b"hello"))
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.reads += 1;
        self.check_attributes(ctx);
        let count = ctx.attributes_mut().get_or_insert_with(|| 0_u64);
        *count += message.len() as u64;
        let (count, length) = (*count, lock(&self.end.input).len() as u64);
        self.end.must(count == length, || format!("{count} of {length} bytes were counted"));
        self.end.must(ctx.channel().in_event_loop(), || "a callback runs elsewhere".to_owned());
        if self.is_server { ctx.write(message) } else { Ok(()) }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let silent = ctx.now().saturating_duration_since(self.begun);
        let is_late = matches!(error, Error::TimedOut { .. }) && self.is_server;
        if is_late && self.reads == 0 {
            sometimes("a mute client was closed");
            self.end.must(silent >= FIRST_BYTE, || format!("mute for {silent:?} only"));
            let is_strict = self.end.play.is_strict();
            self.end.must(!is_strict || silent <= FIRST_BYTE + LATENESS, || format!("mute for {silent:?}"));
        } else {
            let is_calm = self.end.play.is_strict();
            let is_reset = matches!(error, Error::Io { .. } | Error::Closed);
            self.end.must(!is_calm || is_reset, || format!("{error:#}: {error:?}"));
        }
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.check_attributes(ctx);
        self.end.must(!self.end.is_over.swap(true, SeqCst), || "inactive is called twice".to_owned());
        self.end.check(&ctx.stats());
        let handler = lock(&self.end.handler).take();
        drop(handler);
        let lasted = ctx.now().saturating_duration_since(self.begun);
        let had_limit = self.is_server
            && !self.end.is_replaced.load(SeqCst)
            && self.reads == 0
            && self.end.play.is_strict();
        self.end.must(!had_limit || lasted <= FIRST_BYTE + SECOND, || {
            format!("a mute client is connected for {lasted:?}")
        });
        Ok(())
    }
}
