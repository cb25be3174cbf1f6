//! What does a channel cost when there are a million of them: memory, time to open and to close, and its heartbeats?
//!
//! ```sh
//! cd benches
//! cargo bench --bench scale                                # a million, three virtual minutes
//! cargo bench --bench scale -- --channels 100000
//! cargo bench --bench scale -- --test                      # a moment: does it run?
//! ```
//!
//! Channels without sockets, with frames and a read timeout of 75 s, on one loop's wheel and one manual clock. Each peer sends
//! a heartbeat every 30 s, spread evenly, which is answered; so every wheel entry comes due although nobody is quiet, and
//! is armed again for the rest. Nothing here waits, so the time that passes is CPU time if the machine is quiet. Memory
//! is what the process gained (Linux only), the two ends of the simulated stream included, after each channel has echoed once.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

use bytes::Bytes;
use clap::Parser;
use netwheel::{
    ChannelId, ChannelOptions, Error, codec::LengthField, prelude::*, testing::EmbeddedLoop,
    testing::ManualClock,
};
use std::{
    fs,
    time::{Duration, Instant},
};

#[derive(Parser)]
#[command(name = "scale", about = "What a channel costs when there are many")]
struct Settings {
    /// Channels; one number in a process, since memory is what the process gains.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(300..=10_000_000))]
    channels: u32,
    /// Minutes of heartbeats, of virtual time.
    #[arg(long, default_value_t = 3)]
    minutes: u32,
    /// Only sees whether it works, in a moment.
    #[arg(long)]
    test: bool,
    /// Given by `cargo bench`; means nothing here.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Between two heartbeats of one peer.
const BEAT: Duration = Duration::from_secs(30);

/// Quiet of a peer that is given up.
const READ_TIMEOUT: Duration = Duration::from_secs(75);

/// Time that passes between two batches of heartbeats, and the tick of the wheel.
const STEP: Duration = Duration::from_millis(100);

/// A heartbeat, and its answer.
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
        "| channels | bytes each | open, ns each | first echo, ns each | a heartbeat, ns | % of a cpu | close, ns each |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    measure(channels, minutes)
}

fn measure(count: u32, minutes: u32) -> Result {
    let idle = IdleTimeouts::new().reader(READ_TIMEOUT);
    let pipeline = || Pipeline::codec(LengthField::u32()).idle(idle).handler(Heart);
    let event_loop = EmbeddedLoop::with(&ChannelOptions::new(), ManualClock::new(), STEP)?;
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
            // The list of ids is the bench's own.
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
    /// A heartbeat on one channel, and its answer.
    fn beat(&mut self, n: u32) -> Result {
        let id = self.channels[n as usize];
        self.event_loop.write_inbound(id, &FRAME)?;
        if self.event_loop.read_outbound(id) == FRAME[..] {
            Ok(())
        } else {
            Err(Error::other(format!("channel {id} does not answer")))
        }
    }

    /// A virtual minute, in which every peer sends twice.
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

/// Nanoseconds for each of `count`.
fn time(count: u32, work: impl FnOnce() -> Result) -> Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_nanos() as f64 / f64::from(count))
}

/// Bytes of resident memory, where the system says.
fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib * 1024.0)
}
