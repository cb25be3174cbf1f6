//! Lateness of a channel's timers, while other connections send at full speed and a flood of tasks
//! runs.

use crate::{
    record::{Record, Snapshot, latencies, micros},
    stage::{Running, Stage, compute, flood_with_tasks, on},
};
use bytes::Bytes;
use hdrhistogram::Histogram;
use netwheel::{Error, codec::RawBytes, prelude::*};
use std::{
    io::{ErrorKind, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Number of pending timers at any time.
const TIMERS: usize = 16;

/// Maximum delay of a timer in microseconds. The minimum is half of it.
const DELAY: u64 = 10_000;

#[derive(Clone)]
struct Lateness {
    histogram: Arc<Mutex<Histogram<u64>>>,
    counts: Arc<AtomicBool>,
}

impl Handler for Lateness {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        (0..TIMERS).for_each(|_| schedule(ctx));
        Ok(())
    }

    fn read(&mut self, _ctx: &mut Context<'_, Self>, _message: Bytes) -> Result {
        Ok(())
    }
}

/// Schedules a timer that records how late it is and schedules the next one.
fn schedule(ctx: &mut Context<'_, Lateness>) {
    let delay = Duration::from_micros(fastrand::u64(DELAY / 2..=DELAY));
    let due = ctx.now() + delay;
    ctx.schedule(delay, move |me, ctx| {
        if me.counts.load(Ordering::Relaxed) {
            let mut histogram = me.histogram.lock().expect("no other thread has panicked");
            histogram.saturating_record(micros(due.elapsed()));
        }
        schedule(ctx);
        Ok(())
    });
}

/// Time that the handler takes for the bytes of one read. It is long enough that the loop cannot
/// keep up with the senders.
const READ: Duration = Duration::from_micros(40);

struct Sink;

impl Handler for Sink {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _ctx: &mut Context<'_, Self>, _message: Bytes) -> Result {
        compute(READ);
        Ok(())
    }
}

pub(crate) fn measure(ratio: u32, connections: u32, time: Duration) -> Result<Record> {
    let stage = Stage::new(ratio)?;
    let lateness =
        Lateness { histogram: Arc::new(Mutex::new(latencies())), counts: Arc::new(AtomicBool::new(false)) };
    let (histogram, counts) = (lateness.histogram.clone(), lateness.counts.clone());
    let timed = ServerBootstrap::new(&stage.group)
        .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(lateness.clone()))
        .bind("127.0.0.1:0")?;
    let _quiet = connect(timed.local_address())?;
    let sink = ServerBootstrap::new(&stage.group)
        .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Sink))
        .bind("127.0.0.1:0")?;
    let senders = (0..connections).map(|_| connect(sink.local_address())).collect::<Result<Vec<_>>>()?;
    let tasks = flood_with_tasks(&stage.event_loop);
    let sending = flood(senders);
    stage.warm_up();
    let begin = Snapshot::take(&stage.event_loop);
    counts.store(true, Ordering::Relaxed);
    thread::sleep(time);
    counts.store(false, Ordering::Relaxed);
    let end = Snapshot::take(&stage.event_loop);
    drop(tasks);
    drop(sending);
    on(&stage.event_loop, || ());
    stage.end();
    let latencies = histogram.lock().map_err(|_| Error::other("a timer has panicked"))?.clone();
    Ok(Record::new(latencies, &begin, &end))
}

fn connect(server: SocketAddr) -> Result<TcpStream> {
    TcpStream::connect(server).map_err(|e| Error::other(format!("connecting: {e}")))
}

/// Sends on all connections as fast as they accept bytes.
fn flood(senders: Vec<TcpStream>) -> Running {
    senders.iter().for_each(|sender| sender.set_nonblocking(true).expect("the socket is valid"));
    let chunk = vec![7; 256 * 1024];
    Running::repeat(move |_| {
        let mut sent = 0;
        for mut sender in &senders {
            match sender.write(&chunk) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => panic!("sending: {e}"),
            }
        }
        if sent == 0 {
            thread::sleep(Duration::from_micros(50));
        }
    })
}
