//! The bots: users that talk in rooms, come back after each loss of their connection, and write a
//! journal.
//!
//! The main thread opens connections and makes bots talk; handlers read on the loops of the bots. A
//! bot has one message under way, and repeats it with the same id until it is accepted.

mod session;
mod state;

use crate::{
    journal::{Census, Entry, Event, Journal},
    wire::{MAX_LINE, Reply, Request},
};
use netwheel::{codec::Line, prelude::*, stage::Json};
use session::Session;
use state::{Bot, Place};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Connections that are being opened at a time.
const IN_FLIGHT: usize = 512;
/// Time between two lists of the members of a room.
const CENSUS: Duration = Duration::from_millis(500);

/// How the bots behave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    pub(crate) bots: u32,
    pub(crate) rooms: u32,
    /// Time between two messages of one bot.
    pub(crate) interval: Duration,
    /// Time without a line from the server after which a bot gives its connection up.
    pub(crate) patience: Duration,
}

/// All bots of a run.
pub(crate) struct Crowd {
    shared: Arc<Shared>,
    bootstrap: ClientBootstrap,
    next_census: Duration,
    censuses: usize,
}

struct Shared {
    manners: Manners,
    start: Instant,
    bots: Vec<Mutex<Bot>>,
    journal: Mutex<Journal>,
    /// The addresses of the nodes.
    nodes: Vec<SocketAddr>,
    is_talking: AtomicBool,
    deliveries: AtomicU64,
}

/// The state of all bots at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Bots in their rooms.
    pub(crate) inside: u32,
    /// Bots that stay away until they are called.
    pub(crate) away: u32,
    /// Bots whose last message is not accepted.
    pub(crate) waiting: u32,
    pub(crate) deliveries: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crowd {
    /// Creates bots that are not connected.
    pub(crate) fn new(group: &EventLoopGroup, manners: Manners, nodes: Vec<SocketAddr>) -> Self {
        let bots = (0..manners.bots).map(|number| Mutex::new(Bot::new(number, &manners, nodes.len())));
        let shared = Shared {
            manners,
            start: Instant::now(),
            bots: bots.collect(),
            journal: Mutex::default(),
            nodes,
            is_talking: AtomicBool::new(false),
            deliveries: AtomicU64::new(0),
        };
        let bootstrap = ClientBootstrap::new(group).connect_timeout(manners.patience);
        Crowd { shared: Arc::new(shared), bootstrap, next_census: Duration::ZERO, censuses: 0 }
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.start.elapsed()
    }

    pub(crate) fn talk(&self, on: bool) {
        self.shared.is_talking.store(on, Ordering::Release);
    }

    /// Opens connections that are due, makes bots talk, and asks for lists of members.
    pub(crate) fn step(&mut self) {
        let now = self.elapsed();
        let is_talking = self.shared.is_talking.load(Ordering::Acquire);
        let mut in_flight = 0;
        for (number, bot) in self.shared.bots.iter().enumerate() {
            let mut bot = lock(bot);
            match &bot.place {
                Place::Outside { until } if *until <= now && in_flight < IN_FLIGHT => {
                    in_flight += 1;
                    let attempt = bot.begin_attempt();
                    let node = self.shared.nodes[bot.node];
                    drop(bot);
                    self.dial(number, attempt, node);
                }
                Place::Entering => in_flight += 1,
                Place::Inside(_) => bot.talk(now, is_talking),
                _ => {}
            }
        }
        if now >= self.next_census {
            self.next_census = now + CENSUS / self.shared.manners.rooms;
            self.ask_for_members();
        }
    }

    fn dial(&self, bot: usize, attempt: u64, node: SocketAddr) {
        let (shared, failed) = (self.shared.clone(), self.shared.clone());
        self.bootstrap
            .clone()
            .pipeline(move |_peer| {
                let lines = Pipeline::codec(Line::new().max_len(MAX_LINE));
                lines.stage(Json::<Reply, Request>::new()).handler(Session::new(shared.clone(), bot, attempt))
            })
            .connect(node)
            .on_complete(move |connected| {
                if connected.is_err() {
                    failed.lost(bot, attempt, None);
                }
            });
    }

    /// Asks for the members of the next room, through its next bot.
    fn ask_for_members(&mut self) {
        let Manners { bots, rooms, .. } = self.shared.manners;
        let (room, round) = (self.censuses as u32 % rooms, self.censuses as u32 / rooms);
        self.censuses += 1;
        let members = (bots.saturating_sub(room)).div_ceil(rooms).max(1);
        let asker = room + round % members * rooms;
        if let Some(bot) = self.shared.bots.get(asker as usize) {
            lock(bot).ask_for_members(self.elapsed());
        }
    }

    pub(crate) fn status(&self) -> Status {
        let mut status = Status::default();
        for bot in &self.shared.bots {
            let bot = lock(bot);
            match bot.place {
                Place::Inside(_) => status.inside += 1,
                Place::Outside { until } if until == Duration::MAX => status.away += 1,
                _ => {}
            }
            status.waiting += u32::from(bot.is_waiting());
        }
        status.deliveries = self.shared.deliveries.load(Ordering::Relaxed);
        status
    }

    /// Makes a share of the bots that are connected to a node stay away after their connection ends:
    /// one of `share`. Returns how many.
    pub(crate) fn plan_to_stay_away(&self, node: usize, share: usize) -> usize {
        let mut bots = self.shared.bots.iter().map(lock).filter(|bot| bot.node == node);
        let mut chosen = 0;
        while let Some(mut bot) = bots.nth(share - 1) {
            bot.stays_away = true;
            chosen += 1;
        }
        chosen
    }

    /// Calls back all bots that stay away.
    pub(crate) fn call_back(&self) {
        let now = self.elapsed();
        self.shared.bots.iter().for_each(|bot| lock(bot).come_back(now));
    }

    /// Sets to which node the bots that are connected to a node return at once, without a delay.
    pub(crate) fn return_at_once(&self, node: usize, on: bool) {
        for bot in &self.shared.bots {
            let mut bot = lock(bot);
            bot.returns_at_once = on && bot.node == node;
        }
    }

    /// Returns the records, and closes all connections.
    pub(crate) fn finish(self) -> Journal {
        for bot in &self.shared.bots {
            if let Place::Inside(channel) = lock(bot).leave_for_good() {
                channel.close();
            }
        }
        std::mem::take(&mut *lock(&self.shared.journal))
    }
}

impl Shared {
    fn note(&self, bot: usize, event: Event) {
        let entry = Entry { at: self.start.elapsed(), bot: bot as u32, event };
        lock(&self.journal).entries.push(entry);
    }

    fn note_census(&self, census: Census) {
        lock(&self.journal).censuses.push(census);
    }

    /// Records the end of an attempt or of a connection.
    fn lost(&self, number: usize, attempt: u64, hint: Option<Duration>) {
        let mut bot = lock(&self.bots[number]);
        if bot.attempt == attempt {
            let lost = bot.lose(self.start.elapsed(), hint, self.nodes.len());
            drop(bot);
            if lost.was_inside {
                self.note(number, Event::Left { stays_away: lost.stays_away });
            }
        }
    }
}
