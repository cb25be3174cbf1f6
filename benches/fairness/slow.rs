//! Timer lateness beside slow callbacks: tasks that submit themselves again, and requests of many
//! peers.

use crate::{
    record::{Record, Snapshot, latencies, micros},
    stage::{Running, Stage, compute},
};
use bytes::Bytes;
use hdrhistogram::Histogram;
use netwheel::{Error, EventLoop, EventLoopGroup, codec::Line, prelude::*, time::ScheduledTask};
use std::{
    io::{ErrorKind, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Period of the timer.
const PERIOD: Duration = Duration::from_millis(10);

/// Time that the handler takes for a request.
const REQUEST: Duration = Duration::from_micros(200);

/// A timer that records how late it is.
struct Ticks {
    histogram: Arc<Mutex<Histogram<u64>>>,
    counts: Arc<AtomicBool>,
    _timer: ScheduledTask,
}

impl Ticks {
    fn start(event_loop: &EventLoop) -> Result<Self> {
        let (histogram, counts) = (Arc::new(Mutex::new(latencies())), Arc::new(AtomicBool::new(false)));
        let (mine, on) = (histogram.clone(), counts.clone());
        let mut due = Instant::now() + PERIOD;
        let tick = move || {
            let now = Instant::now();
            // Missed ticks count as late too.
            while due <= now {
                if on.load(Ordering::Relaxed) {
                    let mut histogram = mine.lock().map_err(|_| Error::other("a timer has panicked"))?;
                    histogram.saturating_record(micros(now - due));
                }
                due += PERIOD;
            }
            Ok(())
        };
        let timer = event_loop.schedule_periodic(PERIOD, tick)?;
        Ok(Ticks { histogram, counts, _timer: timer })
    }

    fn measure(self, stage: &Stage, time: Duration) -> Result<Record> {
        stage.warm_up();
        let begin = Snapshot::take(&stage.event_loop);
        self.counts.store(true, Ordering::Relaxed);
        thread::sleep(time);
        self.counts.store(false, Ordering::Relaxed);
        let end = Snapshot::take(&stage.event_loop);
        let latencies = self.histogram.lock().map_err(|_| Error::other("a timer has panicked"))?.clone();
        Ok(Record::new(latencies, &begin, &end))
    }
}

/// Measures beside one task that takes `each` microseconds and submits itself again.
pub(crate) fn measure_tasks(each: u32, time: Duration) -> Result<Record> {
    fn again(event_loop: EventLoop, each: Duration, goes_on: Weak<()>) {
        compute(each);
        if goes_on.strong_count() > 0 {
            let me = event_loop.clone();
            let _ = event_loop.execute(move || again(me, each, goes_on));
        }
    }
    let stage = Stage::new(50)?;
    let ticks = Ticks::start(&stage.event_loop)?;
    let running = Arc::new(());
    let (me, goes_on) = (stage.event_loop.clone(), Arc::downgrade(&running));
    stage.event_loop.execute(move || again(me, Duration::from_micros(each.into()), goes_on))?;
    let record = ticks.measure(&stage, time)?;
    drop(running);
    stage.end();
    Ok(record)
}

struct Requests;

impl Handler for Requests {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _ctx: &mut Context<'_, Self>, _message: Bytes) -> Result {
        compute(REQUEST);
        Ok(())
    }
}

/// Measures beside `peers` connections that send tiny requests at full speed; `max_io_time` is in
/// milliseconds.
pub(crate) fn measure_requests(max_io_time: u32, peers: u32, time: Duration) -> Result<Record> {
    let limit = Duration::from_millis(max_io_time.into());
    let stage = Stage::of(EventLoopGroup::builder().max_io_time(limit))?;
    let server = ServerBootstrap::new(&stage.group)
        .pipeline(|_peer| Pipeline::codec(Line::new()).handler(Requests))
        .bind("127.0.0.1:0")?;
    let failed = |e| Error::other(format!("connecting: {e}"));
    let mut senders = Vec::new();
    for _ in 0..peers {
        let sender = TcpStream::connect(server.local_address()).map_err(failed)?;
        sender.set_nonblocking(true).map_err(failed)?;
        senders.push(sender);
    }
    let ticks = Ticks::start(&stage.event_loop)?;
    // Sends sixteen requests at a time. A packet may end in the middle of a request.
    let requests = b"x\n".repeat(16);
    let sending = Running::repeat(move |_| {
        for mut sender in &senders {
            match sender.write(&requests) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => panic!("sending: {e}"),
            }
        }
        thread::sleep(Duration::from_millis(1));
    });
    let record = ticks.measure(&stage, time)?;
    drop(sending);
    stage.end();
    Ok(record)
}
