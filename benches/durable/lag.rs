//! How late a loop's own tasks are, and how long an echo on it takes.

use crate::report::{histogram, micros};
use bytes::Bytes;
use hdrhistogram::Histogram;
use netwheel::{Error, EventLoop, EventLoopGroup, codec::RawBytes, prelude::*};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long a task waits.
const DELAY: Duration = Duration::from_millis(1);

/// The pause between two echoes.
const PAUSE: Duration = Duration::from_millis(1);

/// A task that schedules itself again, and notes by how much it was late.
#[derive(Clone)]
pub(crate) struct TaskLag {
    times: Arc<Mutex<Histogram<u64>>>,
    goes_on: Arc<AtomicBool>,
}

impl TaskLag {
    pub(crate) fn watch(event_loop: &EventLoop) -> Result<Self> {
        let lag =
            TaskLag { times: Arc::new(Mutex::new(histogram())), goes_on: Arc::new(AtomicBool::new(true)) };
        lag.clone().again(event_loop.clone())?;
        Ok(lag)
    }

    fn again(self, event_loop: EventLoop) -> Result {
        let due = Instant::now() + DELAY;
        let next = event_loop.clone();
        event_loop.schedule(DELAY, move || {
            let late = micros(due.elapsed());
            self.times.lock().expect("no other thread has panicked").saturating_record(late);
            if self.goes_on.load(Ordering::Relaxed) {
                // A loop that ends takes no more tasks.
                let _ = self.again(next);
            }
        })?;
        Ok(())
    }

    pub(crate) fn end(self) -> Histogram<u64> {
        self.goes_on.store(false, Ordering::Relaxed);
        self.times.lock().expect("no other thread has panicked").clone()
    }
}

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

/// A client that sends 64 bytes to a channel of the loop and waits for them, again and again.
pub(crate) struct Echoes {
    goes_on: Arc<AtomicBool>,
    client: JoinHandle<std::io::Result<Histogram<u64>>>,
}

impl Echoes {
    pub(crate) fn begin(group: &EventLoopGroup) -> Result<Self> {
        let server = ServerBootstrap::new(group).pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo));
        let address = server.bind("127.0.0.1:0")?.local_address();
        let goes_on = Arc::new(AtomicBool::new(true));
        let client = thread::spawn({
            let goes_on = goes_on.clone();
            move || {
                let mut times = histogram();
                let mut stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                let mut bytes = [7; 64];
                while goes_on.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    stream.write_all(&bytes)?;
                    stream.read_exact(&mut bytes)?;
                    times.saturating_record(micros(begun.elapsed()));
                    thread::sleep(PAUSE);
                }
                Ok(times)
            }
        });
        Ok(Echoes { goes_on, client })
    }

    pub(crate) fn end(self) -> Result<Histogram<u64>> {
        self.goes_on.store(false, Ordering::Relaxed);
        let times = self.client.join().map_err(|_| Error::other("the client of the echo panicked"))?;
        times.map_err(|e| Error::other(format!("the echo failed: {e}")))
    }
}
