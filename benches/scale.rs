//! Cost of a channel when there are a million: memory, time to open and to close, and heartbeats.
//!
//! ```sh
//! cd benches
//! cargo bench --bench scale                          # a million, three virtual minutes
//! cargo bench --bench scale -- --channels 100000
//! cargo bench --bench scale -- --test                # a moment: checks that it works
//! ```
//!
//! Channels without sockets, with frames and a read timeout of 75 s, on one loop's wheel and one
//! manual clock. Each peer sends a heartbeat every 30 s, spread evenly, and receives a reply. So
//! every wheel entry expires although no peer is silent, and is re-armed for the remaining time.
//! Nothing waits, so the elapsed time is CPU time if the machine is otherwise idle. The memory is
//! the growth of the process (Linux only) after each channel has echoed once, including both ends
//! of the simulated stream.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

use bytes::Bytes;
use clap::Parser;
use netwheel::{ChannelId, Error, codec::LengthField, prelude::*, testing::EmbeddedLoop};
use std::{
    fs,
    time::{Duration, Instant},
};

#[derive(Parser)]
#[command(name = "scale", about = "Measures the cost of a channel when there are many")]
struct Settings {
    /// Channels. A process measures only one number, because the memory is the growth of the
    /// process.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(300..=10_000_000))]
    channels: u32,
    /// Minutes of heartbeats, in virtual time.
    #[arg(long, default_value_t = 3)]
    minutes: u32,
    /// Checks only that it works, in a moment.
    #[arg(long)]
    test: bool,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Interval between two heartbeats of a peer.
const BEAT: Duration = Duration::from_secs(30);

/// Read timeout, after which a peer is closed.
const READ_TIMEOUT: Duration = Duration::from_secs(75);

/// Virtual time between two batches of heartbeats, and the wheel's tick.
const STEP: Duration = Duration::from_millis(100);

/// A heartbeat, and its reply.
const FRAME: [u8; 8] = [0, 0, 0, 4, b'p', b'i', b'n', b'g'];

struct Heart;

impl Handler for Heart {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, beat: Bytes) -> Result {
        ctx.write(beat)
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        ctx.close();
        Ok(())
    }
}

struct Run {
    event_loop: EmbeddedLoop,
    channels: Vec<ChannelId>,
}

fn main() -> Result {
    let settings = Settings::parse();
    let (channels, minutes) = if settings.test { (30_000, 1) } else { (settings.channels, settings.minutes) };
    println!(
        "| channels | bytes each | open, ns each | first echo, ns each | heartbeat, ns | % of a cpu | close, ns each |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    measure(channels, minutes)
}

fn measure(count: u32, minutes: u32) -> Result {
    let idle = IdleTimeouts::new().reader(READ_TIMEOUT);
    let pipeline = || Pipeline::codec(LengthField::u32()).idle(idle).handler(Heart);
    let event_loop = EmbeddedLoop::builder().wheel_tick(STEP).build()?;
    let mut run = Run { event_loop, channels: Vec::with_capacity(count as usize) };
    let before = resident();
    let open = time(count, || {
        for _ in 0..count {
            let id = run.event_loop.open(pipeline());
            run.channels.push(id);
        }
        Ok(())
    })?;
    let echo = time(count, || (0..count).try_for_each(|n| run.beat(n)))?;
    let bytes = match (before, resident()) {
        (Some(before), Some(after)) => {
            // The list of ids belongs to the bench.
            format!("{:.0}", (after - before) / f64::from(count) - size_of::<ChannelId>() as f64)
        }
        _ => String::new(),
    };
    let beats_per_minute = f64::from(count) * 60.0 / BEAT.as_secs_f64();
    let began = Instant::now();
    for _ in 0..minutes {
        run.minute()?;
    }
    let took = began.elapsed().as_secs_f64();
    let beat = took * 1e9 / (beats_per_minute * f64::from(minutes));
    let cpu = took / (f64::from(minutes) * 60.0) * 100.0;
    run.expect_open(count)?;
    let close = time(count, || {
        run.channels.iter().for_each(|id| run.event_loop.remove(*id));
        Ok(())
    })?;
    run.expect_open(0)?;
    println!("| {count} | {bytes} | {open:.0} | {echo:.0} | {beat:.0} | {cpu:.2} | {close:.0} |");
    Ok(())
}

impl Run {
    /// Does one heartbeat on a channel, and checks the reply.
    fn beat(&mut self, n: u32) -> Result {
        let id = self.channels[n as usize];
        self.event_loop.write_inbound(id, &FRAME)?;
        if self.event_loop.read_outbound(id) == FRAME[..] {
            Ok(())
        } else {
            Err(Error::other(format!("channel {id} does not answer")))
        }
    }

    /// Runs a virtual minute, in which every peer sends twice.
    fn minute(&mut self) -> Result {
        let steps = (BEAT.as_millis() / STEP.as_millis()) as u32;
        for step in 0..2 * steps {
            for n in (step % steps..self.channels.len() as u32).step_by(steps as usize) {
                self.beat(n)?;
            }
            self.event_loop.advance(STEP);
        }
        Ok(())
    }

    fn expect_open(&self, count: u32) -> Result {
        let open = self.channels.iter().filter(|id| self.event_loop.is_open(**id)).count();
        if open == count as usize {
            Ok(())
        } else {
            Err(Error::other(format!("{open} of {count} channels are open")))
        }
    }
}

/// Returns nanoseconds per item for `count` items.
fn time(count: u32, work: impl FnOnce() -> Result) -> Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_nanos() as f64 / f64::from(count))
}

/// Returns the resident memory in bytes, if the system reports it.
fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib * 1024.0)
}
