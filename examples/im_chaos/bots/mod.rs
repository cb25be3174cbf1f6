//! The bots: users that talk in rooms, come back after each loss of their connection, and write a
//! journal.
//!
//! One thread opens connections and makes bots talk; handlers read on the loops of the bots. A bot
//! has one message under way, and repeats it with the same id until it is accepted.

mod resumes;
mod session;
mod state;
mod stepper;

use crate::journal::{Census, Entry, Event, Journal};
use netwheel::prelude::*;
pub(crate) use resumes::Resume;
use state::{Bot, Place};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use stepper::Stepper;

/// How the bots behave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    pub(crate) bots: u32,
    pub(crate) rooms: u32,
    /// Bots that publish to their rooms and are not members: the first ones. The others are then
    /// silent. Publishers use the first node, and members the other nodes.
    pub(crate) publishers: u32,
    /// Time between two messages of one bot.
    pub(crate) interval: Duration,
    /// Time without a line from the server after which a bot gives its connection up.
    pub(crate) patience: Duration,
    /// Whether the bots ask for the members of their rooms.
    pub(crate) asks_for_members: bool,
}

impl Manners {
    /// Returns the number of the members of a room.
    fn members(&self, room: u32) -> u32 {
        let bots = self.bots.saturating_sub(room).div_ceil(self.rooms);
        bots - self.publishers.saturating_sub(room).div_ceil(self.rooms)
    }
}

/// All bots of a run.
pub(crate) struct Crowd {
    shared: Arc<Shared>,
    stepper: JoinHandle<()>,
}

struct Shared {
    manners: Manners,
    start: Instant,
    bots: Vec<Mutex<Bot>>,
    journal: Mutex<Journal>,
    /// The addresses of the nodes.
    nodes: Vec<SocketAddr>,
    is_talking: AtomicBool,
    is_over: AtomicBool,
    deliveries: AtomicU64,
    /// Deliveries of the messages that are accepted: one to each member of the room.
    expected: AtomicU64,
}

/// The state of all bots at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Bots in their rooms.
    pub(crate) inside: u32,
    /// Bots that have not resumed as planned.
    pub(crate) resuming: u32,
    /// Bots that stay away until they are called.
    pub(crate) away: u32,
    /// Bots whose last message is not accepted.
    pub(crate) waiting: u32,
    pub(crate) deliveries: u64,
    /// Deliveries of the messages that are accepted, if none is lost.
    pub(crate) expected: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crowd {
    /// Starts bots, which connect to the nodes.
    pub(crate) fn start(group: &EventLoopGroup, manners: Manners, nodes: Vec<SocketAddr>) -> Self {
        let bots = (0..manners.bots).map(|number| Mutex::new(Bot::new(number, &manners, nodes.len())));
        let shared = Shared {
            manners,
            start: Instant::now(),
            bots: bots.collect(),
            journal: Mutex::default(),
            nodes,
            is_talking: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            deliveries: AtomicU64::new(0),
            expected: AtomicU64::new(0),
        };
        let shared = Arc::new(shared);
        let stepper = Stepper::new(group, shared.clone());
        Crowd { shared, stepper: thread::spawn(move || stepper.run()) }
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.start.elapsed()
    }

    pub(crate) fn talk(&self, on: bool) {
        self.shared.is_talking.store(on, Ordering::Release);
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
            status.resuming += u32::from(bot.planned.is_some());
            status.waiting += u32::from(bot.is_waiting());
        }
        status.deliveries = self.shared.deliveries.load(Ordering::Relaxed);
        status.expected = self.shared.expected.load(Ordering::Relaxed);
        status
    }

    /// Makes a share of the bots that are connected to a node stay away after their connection
    /// ends: one of `share`. Returns how many.
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
        self.shared.is_over.store(true, Ordering::Release);
        // An error says that the thread has panicked, which was printed.
        let _ = self.stepper.join();
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
            let lost = bot.lose(self.start.elapsed(), hint);
            drop(bot);
            if lost.was_inside {
                self.note(number, Event::Left { stays_away: lost.stays_away });
            }
        }
    }
}
