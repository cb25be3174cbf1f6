//! `Stepper`: the thread that opens connections and makes bots talk.

use super::{Manners, Shared, lock, session::Session, state::Place};
use crate::{
    MAX_LINE,
    protocol::{Reply, Request},
};
use netwheel::{codec::Line, prelude::*, stage::Json};
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

/// Time between two steps.
const STEP: Duration = Duration::from_millis(5);
/// Connections that are being opened at a time.
const IN_FLIGHT: usize = 512;
/// Time between two lists of the members of a room.
const CENSUS: Duration = Duration::from_millis(500);

pub(super) struct Stepper {
    shared: Arc<Shared>,
    bootstrap: ClientBootstrap,
    next_census: Duration,
    censuses: usize,
}

impl Stepper {
    pub(super) fn new(group: &EventLoopGroup, shared: Arc<Shared>) -> Self {
        let bootstrap = ClientBootstrap::new(group).connect_timeout(shared.manners.patience);
        Stepper { shared, bootstrap, next_census: Duration::ZERO, censuses: 0 }
    }

    /// Moves the bots until the run is over.
    pub(super) fn run(mut self) {
        while !self.shared.is_over.load(Ordering::Acquire) {
            self.step();
            thread::sleep(STEP);
        }
    }

    /// Opens connections that are due, makes bots talk, and asks for lists of members.
    fn step(&mut self) {
        let now = self.shared.start.elapsed();
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
        if now >= self.next_census && self.shared.manners.asks_for_members {
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
        let Manners { rooms, .. } = self.shared.manners;
        let (room, round) = (self.censuses as u32 % rooms, self.censuses as u32 / rooms);
        self.censuses += 1;
        let members = self.shared.manners.members(room).max(1);
        let asker = room + round % members * rooms;
        if let Some(bot) = self.shared.bots.get(asker as usize) {
            lock(bot).ask_for_members(self.shared.start.elapsed());
        }
    }
}
