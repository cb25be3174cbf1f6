//! Well-behaved clients: they talk in small rooms and measure the delivery latency.
//!
//! Every client sends numbered messages at a fixed rate, even if earlier ones have not arrived yet.
//! A server that stalls is therefore measured for the whole stall. The text contains the time at
//! which the message was written.

use crate::protocol::{Reply, Request};
use hdrhistogram::Histogram;
use netwheel::{codec::Line, net::Address, prelude::*, stage::Json};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Members of each room of innocent clients.
const ROOM: u32 = 4;
/// Time limit for the innocent clients to connect and log in before the attack.
const PATIENCE: Duration = Duration::from_secs(20);

/// Measurements of the innocent clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
    pub(crate) received: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) disconnected: u64,
    /// Number of clients that received a `bye` with the reason `shutdown`. Set after the server was
    /// stopped.
    pub(crate) farewells: u64,
}

/// State shared by all innocent clients of one attack.
pub(crate) struct Watch {
    start: Instant,
    state: Mutex<State>,
}

struct State {
    latency: Histogram<u64>,
    /// Messages written before this time count as delivered or lost, but not for the latency.
    measured_from: Duration,
    /// Number of messages sent by each client.
    said: BTreeMap<u32, u64>,
    /// For each listener and speaker: the highest number received, and the number of messages
    /// received.
    heard: BTreeMap<(u32, u32), (u64, u64)>,
    ready: u32,
    talking: bool,
    received: u64,
    doubled: u64,
    disconnected: u64,
    farewells: u64,
    over: bool,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All innocent clients of one attack.
pub(crate) struct Innocents {
    watch: Arc<Watch>,
}

impl Innocents {
    /// Connects the clients and starts them talking.
    ///
    /// # Errors
    /// Fails if the clients have not joined their rooms within 20 seconds.
    pub(crate) fn connect(
        group: &EventLoopGroup,
        address: SocketAddr,
        clients: u32,
        rate: u32,
    ) -> Result<Self> {
        let latency = Histogram::new_with_bounds(1, 600_000_000, 3).map_err(Error::other)?;
        let state = State {
            latency,
            measured_from: Duration::ZERO,
            said: BTreeMap::new(),
            heard: BTreeMap::new(),
            ready: 0,
            talking: false,
            received: 0,
            doubled: 0,
            disconnected: 0,
            farewells: 0,
            over: false,
        };
        let watch = Arc::new(Watch { start: Instant::now(), state: Mutex::new(state) });
        let period = Duration::from_secs(1) / rate;
        for number in 0..clients {
            let watch = watch.clone();
            ClientBootstrap::new(group)
                .pipeline(move |_peer| {
                    let innocent = Innocent {
                        watch: watch.clone(),
                        number,
                        period,
                        next: Duration::ZERO,
                        farewell: false,
                    };
                    Pipeline::codec(Line::new().max_len(1024 * 1024))
                        .stage(Json::<Reply, Request>::new())
                        .handler(innocent)
                })
                .connect(Address::from(address))
                .wait()?;
        }
        let innocents = Innocents { watch };
        let until = Instant::now() + PATIENCE;
        while innocents.watch.lock().ready < clients {
            if Instant::now() > until {
                return Err("the innocent clients cannot log in".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        innocents.watch.lock().talking = true;
        Ok(innocents)
    }

    /// Discards the latencies measured so far. Only messages written from now on are measured.
    pub(crate) fn measure_from_now(&self) {
        let mut state = self.watch.lock();
        state.measured_from = self.watch.start.elapsed();
        state.latency.reset();
    }

    /// Stops talking and waits until all messages have arrived, at most for `patience`.
    pub(crate) fn finish(self, patience: Duration) -> Finished {
        self.watch.lock().talking = false;
        let until = Instant::now() + patience;
        while self.watch.lock().lost() > 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
        let mut state = self.watch.lock();
        state.over = true;
        let at = |quantile| Duration::from_micros(state.latency.value_at_quantile(quantile));
        let measured = Measured {
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
            received: state.received,
            lost: state.lost(),
            doubled: state.doubled,
            disconnected: state.disconnected,
            farewells: 0,
        };
        drop(state);
        Finished { measured, watch: self.watch }
    }
}

/// Results of a finished attack. The farewells are counted when the server stops.
pub(crate) struct Finished {
    measured: Measured,
    watch: Arc<Watch>,
}

impl Finished {
    pub(crate) fn measured(&self) -> Measured {
        Measured { farewells: self.watch.lock().farewells, ..self.measured }
    }
}

impl State {
    /// Returns the number of deliveries that are missing.
    fn lost(&self) -> u64 {
        let of_room = |number: u32| number - number % ROOM..(number - number % ROOM + ROOM).min(self.ready);
        let missing = |(&speaker, &said): (&u32, &u64)| -> u64 {
            let heard = |listener| self.heard.get(&(listener, speaker)).map_or(0, |heard| heard.1);
            of_room(speaker).map(|listener| said.saturating_sub(heard(listener))).sum()
        };
        self.said.iter().map(missing).sum()
    }
}

struct Innocent {
    watch: Arc<Watch>,
    number: u32,
    period: Duration,
    /// Time of the next message, relative to the start of the watch.
    next: Duration,
    farewell: bool,
}

impl Handler for Innocent {
    type Read = Reply;
    type Write = Request;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(Request::login(format!("innocent-{}", self.number)))?;
        ctx.write(Request::join(self.room()))
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, reply: Reply) -> Result {
        match reply {
            Reply::Joined { user, .. } if user == format!("innocent-{}", self.number) => {
                self.watch.lock().ready += 1;
                // A random offset, so that the clients do not all talk at the same instant.
                let offset = self.period.mul_f64(fastrand::f64());
                self.next = self.watch.start.elapsed() + offset;
                ctx.schedule(offset, Self::talk);
            }
            Reply::Message { from, text, .. } => self.heard(&from, &text),
            Reply::Ping { .. } => ctx.write(Request::Pong)?,
            Reply::Bye { reason, .. } => {
                self.farewell = true;
                log::info!("innocent-{}: {reason:?}", self.number);
                if self.watch.lock().over {
                    self.watch.lock().farewells += 1;
                }
            }
            Reply::Error { message, .. } => log::warn!("innocent-{}: {message}", self.number),
            _ => {}
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        log::info!("innocent-{}: {error:#}", self.number);
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        let mut state = self.watch.lock();
        state.disconnected += u64::from(!state.over);
        Ok(())
    }
}

impl Innocent {
    fn room(&self) -> String {
        format!("calm-{}", self.number / ROOM)
    }

    /// Sends the messages whose time has come, and schedules the next call.
    fn talk(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let now = self.watch.start.elapsed();
        let mut due = 0;
        while self.next <= now {
            self.next += self.period;
            due += 1;
        }
        for _ in 0..due {
            let number = {
                let mut state = self.watch.lock();
                if !state.talking {
                    break;
                }
                let said = state.said.entry(self.number).or_default();
                *said += 1;
                *said
            };
            let text = format!("{number} {}", self.watch.start.elapsed().as_nanos());
            ctx.write(Request::Say { room: self.room(), text, id: None })?;
        }
        ctx.schedule(self.next.saturating_sub(now), Self::talk);
        Ok(())
    }

    fn heard(&mut self, from: &str, text: &str) {
        let Some(speaker) = from.strip_prefix("innocent-").and_then(|number| number.parse().ok()) else {
            return;
        };
        let Some((number, nanos)) = text.split_once(' ') else { return };
        let (Ok(number), Ok(nanos)) = (number.parse::<u64>(), nanos.parse()) else { return };
        let (written, now) = (Duration::from_nanos(nanos), self.watch.start.elapsed());
        let mut state = self.watch.lock();
        let heard = state.heard.entry((self.number, speaker)).or_default();
        // A speaker's messages arrive in order, so a number that is not higher is a copy.
        if number <= heard.0 {
            state.doubled += 1;
            return;
        }
        *heard = (number, heard.1 + 1);
        state.received += 1;
        if written >= state.measured_from {
            let latency = now.saturating_sub(written).as_micros();
            state.latency.saturating_record(u64::try_from(latency).unwrap_or(u64::MAX));
        }
    }
}
