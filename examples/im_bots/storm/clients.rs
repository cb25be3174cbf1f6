//! The clients of a crowd, each with its attempts to get in.
//!
//! The main thread starts attempts, gives them up and starts the next ones. The handlers report
//! from their loops. A report of an attempt that was given up is ignored.

use super::{
    client::{Crowd, Event, Report, Ticket},
    dialer::{self, Dialer},
    manners::{Failure, Manners},
};
use crate::protocol::Request;
use netwheel::prelude::*;
use std::{
    sync::{Arc, mpsc::Receiver},
    time::Duration,
};

/// Attempts that start in one step.
const STARTS: usize = 256;

pub(crate) struct Clients {
    crowd: Arc<Crowd>,
    dialer: Dialer,
    reports: Receiver<Report>,
    clients: Vec<State>,
    policy: Policy,
    /// Number of clients that take part; the others wait.
    active: usize,
    /// Number of attempts in flight at most.
    max_in_flight: usize,
    in_flight: usize,
    inside: usize,
    lost: usize,
    /// Times at which clients got in, since the start of the run.
    entered: Vec<Duration>,
    /// How long the attempts took that ended inside, in microseconds.
    entry_times: Vec<u32>,
    /// Why the first attempt failed.
    first_failure: Option<String>,
}

/// How the clients behave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) manners: Manners,
    pub(crate) retry_delay: Duration,
    /// Time after which a client gives up an attempt.
    pub(crate) give_up: Duration,
}

#[derive(Default)]
struct State {
    /// Number of the current or last attempt.
    attempts: u32,
    /// Failed attempts since the client was last in.
    failures: u32,
    place: Place,
}

enum Place {
    /// Not connected. The next attempt begins at this time.
    Outside(Duration),
    /// Since this time.
    Connecting(Duration, Completion<Channel<Request>>),
    /// Connected, and not yet in a room. Since the beginning of the attempt.
    Entering(Duration, Channel<Request>),
    Inside(Channel<Request>),
    /// An established client whose connection has ended. It does not come back.
    Lost,
}

impl Default for Place {
    fn default() -> Self {
        Place::Outside(Duration::ZERO)
    }
}

impl Clients {
    pub(crate) fn new(
        count: usize,
        crowd: Arc<Crowd>,
        dialer: Dialer,
        reports: Receiver<Report>,
        policy: Policy,
    ) -> Self {
        let mut clients = Vec::new();
        clients.resize_with(count, State::default);
        Clients {
            crowd,
            dialer,
            reports,
            clients,
            policy,
            active: 0,
            max_in_flight: 0,
            in_flight: 0,
            inside: 0,
            lost: 0,
            entered: Vec::new(),
            entry_times: Vec::new(),
            first_failure: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Lets the first `active` clients take part, with at most `max_in_flight` attempts at a time.
    pub(crate) fn open(&mut self, active: usize, max_in_flight: usize) {
        (self.active, self.max_in_flight) = (active.min(self.clients.len()), max_in_flight);
    }

    /// Starts no further attempts.
    pub(crate) fn pause(&mut self) {
        self.max_in_flight = 0;
    }

    /// Sets the time after which a client gives up an attempt.
    pub(crate) fn set_give_up(&mut self, time: Duration) {
        self.policy.give_up = time;
    }

    /// Forgets the records of earlier entries.
    pub(crate) fn forget_entries(&mut self) {
        self.entered.clear();
        self.entry_times.clear();
    }

    pub(crate) fn inside(&self) -> usize {
        self.inside
    }

    pub(crate) fn waiting(&self) -> usize {
        self.active.saturating_sub(self.inside + self.lost)
    }

    pub(crate) fn lost(&self) -> usize {
        self.lost
    }

    pub(crate) fn entered(&self) -> &[Duration] {
        &self.entered
    }

    /// Returns the durations of the attempts that ended inside, in ascending order.
    pub(crate) fn entry_times(&self) -> Vec<u32> {
        let mut times = self.entry_times.clone();
        times.sort_unstable();
        times
    }

    pub(crate) fn first_failure(&self) -> Option<&str> {
        self.first_failure.as_deref()
    }

    /// Closes the connections of all clients that are in.
    pub(crate) fn cut(&mut self) {
        for state in &mut self.clients {
            if let Place::Inside(channel) = &state.place {
                channel.close_now();
                // The report of this end is ignored, because the client is outside already.
                state.place = Place::Outside(Duration::ZERO);
                self.inside -= 1;
            }
        }
    }

    /// Handles the reports of the handlers, gives up attempts, and starts others.
    pub(crate) fn step(&mut self) {
        let now = self.crowd.start.elapsed();
        while let Ok(Report { ticket, event }) = self.reports.try_recv() {
            self.handle(now, ticket, event);
        }
        let mut starts = 0;
        for client in 0..self.active {
            match &self.clients[client].place {
                Place::Outside(until)
                    if *until <= now && self.in_flight < self.max_in_flight && starts < STARTS =>
                {
                    starts += 1;
                    self.start(now, client);
                }
                Place::Connecting(since, _) | Place::Entering(since, _)
                    if now.saturating_sub(*since) >= self.policy.give_up =>
                {
                    self.fail(now, client, Failure::GaveUp);
                }
                Place::Connecting(_, connecting) if connecting.is_done() => self.connected(now, client),
                _ => {}
            }
        }
        let waiting = self.waiting() as u64;
        if !self.crowd.established {
            self.crowd.timeline.note(now, |second| second.waiting = waiting);
        }
    }

    fn start(&mut self, now: Duration, client: usize) {
        let state = &mut self.clients[client];
        state.attempts += 1;
        let ticket = Ticket { client, attempt: state.attempts };
        state.place = Place::Connecting(now, self.dialer.dial(ticket));
        self.in_flight += 1;
        if !self.crowd.established {
            self.crowd.timeline.note(now, |second| second.attempts += 1);
        }
    }

    /// Takes the result of a connect that is done.
    fn connected(&mut self, now: Duration, client: usize) {
        let place = &mut self.clients[client].place;
        let Place::Connecting(since, connecting) = std::mem::take(place) else { return };
        match connecting.wait() {
            Ok(channel) => *place = Place::Entering(since, channel),
            Err(error) => {
                self.first_failure.get_or_insert_with(|| format!("{error:#}"));
                self.fail(now, client, Failure::Refused(dialer::hint(&error)));
            }
        }
    }

    fn handle(&mut self, now: Duration, ticket: Ticket, event: Event) {
        let client = ticket.client;
        if self.clients[client].attempts != ticket.attempt {
            return;
        }
        if let Place::Connecting(_, connecting) = &self.clients[client].place {
            // A handler is called after its connect is done.
            if connecting.is_done() {
                self.connected(now, client);
            }
        }
        match (&self.clients[client].place, event) {
            (Place::Entering(..), Event::Entered) => self.enter(now, client),
            (Place::Entering(..), Event::Refused(hint)) => self.fail(now, client, Failure::Refused(hint)),
            (Place::Entering(..), Event::Ended) => {
                self.first_failure.get_or_insert_with(|| "the server closed the connection".to_owned());
                self.fail(now, client, Failure::Refused(None));
            }
            (Place::Inside(_), Event::Ended) => self.drop_out(now, client),
            _ => {}
        }
    }

    fn enter(&mut self, now: Duration, client: usize) {
        let state = &mut self.clients[client];
        let Place::Entering(since, channel) = std::mem::take(&mut state.place) else { return };
        (state.place, state.failures) = (Place::Inside(channel), 0);
        self.in_flight -= 1;
        self.inside += 1;
        self.entered.push(now);
        let took = now.saturating_sub(since).as_micros();
        self.entry_times.push(u32::try_from(took).unwrap_or(u32::MAX));
        if !self.crowd.established {
            self.crowd.timeline.note(now, |second| second.entered += 1);
        }
    }

    /// Ends an attempt that has failed, and plans the next one.
    fn fail(&mut self, now: Duration, client: usize, failure: Failure) {
        let Policy { manners, retry_delay, .. } = self.policy;
        let state = &mut self.clients[client];
        state.failures = state.failures.saturating_add(1);
        let delay = manners.delay(failure, state.failures, retry_delay, fastrand::f64());
        // Dropping a connect gives it up.
        if let Place::Entering(_, channel) = std::mem::replace(&mut state.place, Place::Outside(now + delay))
        {
            channel.close_now();
        }
        self.in_flight -= 1;
        if !self.crowd.established {
            self.crowd.timeline.note(now, |second| match failure {
                Failure::GaveUp => second.gave_up += 1,
                Failure::Refused(Some(_)) => second.refused_with_hint += 1,
                Failure::Refused(None) => second.refused += 1,
            });
        }
    }

    /// Handles the end of a client that was in.
    fn drop_out(&mut self, now: Duration, client: usize) {
        let state = &mut self.clients[client];
        self.inside -= 1;
        if self.crowd.established {
            self.lost += 1;
            state.place = Place::Lost;
            self.crowd.timeline.note(now, |second| second.lost += 1);
        } else {
            state.place = Place::Outside(now);
            self.crowd.timeline.note(now, |second| second.dropped += 1);
        }
    }
}
