//! The controller on a model of a loop with its queues, in virtual time.

use super::*;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

const TARGET: u64 = 50 * MILLI;

/// The costs of the model's work.
const ACCEPT: u64 = 20 * MICRO;
const RESET: u64 = 8 * MICRO;
const HANDSHAKE: u64 = 300 * MICRO;
const LOGIN: u64 = 200 * MICRO;
const REFUSED_LOGIN: u64 = 5 * MICRO;
const MESSAGE: u64 = 200 * MICRO;
/// The fixed cost of a turn.
const TURN: u64 = 5 * MICRO;

/// The bounds of a turn.
const ACCEPTS_PER_TURN: usize = 64;
const SHED_PER_TURN: usize = 1024;
const HANDSHAKES_PER_TURN: usize = 8;
const MAX_IO_TIME: u64 = 100 * MILLI;
const BACKLOG: usize = 1024;

/// The time after which a client has gone away.
const CLIENT_PATIENCE: u64 = 2 * SECOND;

/// Messages of established channels per second: a fifth of the loop's time.
const MESSAGES: u64 = 1000;

/// The new clients per second that the loop can serve beside the messages.
const CAPACITY: f64 = (SECOND - MESSAGES * MESSAGE) as f64 / (ACCEPT + HANDSHAKE + LOGIN) as f64;

/// The costs of a client, and the time from the end of its handshake to its login.
#[derive(Debug, Clone, Copy)]
struct ClientCosts {
    handshake: u64,
    login: u64,
    login_after: u64,
}

impl ClientCosts {
    const CHEAP: Self = ClientCosts { handshake: HANDSHAKE, login: LOGIN, login_after: 0 };

    /// Logins that the limits control only after two windows.
    const EXPENSIVE: Self =
        ClientCosts { handshake: MILLI, login: 2 * MILLI, login_after: 2 * WINDOW * TARGET };

    /// Returns the clients per second that the loop can serve beside the messages.
    fn capacity(self) -> f64 {
        (SECOND - MESSAGES * MESSAGE) as f64 / (ACCEPT + self.handshake + self.login) as f64
    }
}

/// A Poisson process.
struct Arrivals {
    rate: f64,
    next: u64,
}

impl Arrivals {
    fn new(rate: f64) -> Self {
        Arrivals { rate, next: 0 }
    }

    /// Returns the times of the arrivals up to `now`.
    fn take(&mut self, now: u64, random: &Random) -> Vec<u64> {
        let mut times = Vec::new();
        while self.rate > 0.0 && self.next <= now {
            times.push(self.next);
            let uniform = (random.below(1 << 52) + 1) as f64 / (1u64 << 52) as f64;
            self.next += (-uniform.ln() / self.rate * SECOND as f64) as u64 + 1;
        }
        times
    }

    fn set_rate(&mut self, rate: f64, now: u64) {
        (self.rate, self.next) = (rate, now);
    }
}

struct Model {
    now: u64,
    random: Random,
    control: OverloadController,
    /// Whether the control's limits are applied.
    is_controlled: bool,
    clients: Arrivals,
    logins_alone: Arrivals,
    messages: Arrivals,
    /// Clients that return until they are served, with the time of their next attempt.
    crowd: Option<BinaryHeap<Reverse<u64>>>,
    /// Whether a refused connection learns the hint. Otherwise it is reset.
    has_farewell: bool,
    costs: ClientCosts,
    // The queues, with the arrival of each client or message.
    backlog: VecDeque<u64>,
    handshakes: VecDeque<(u64, u64)>,
    handshakes_since: u64,
    logins: VecDeque<u64>,
    /// Logins that have not been sent yet, with the time at which they are.
    later_logins: VecDeque<(u64, u64)>,
    waiting_messages: VecDeque<u64>,
    /// Clients that were served before they went away.
    served: u64,
    served_after: Vec<u64>,
    message_delays: Vec<u64>,
}

impl Model {
    fn new(seed: u64, is_controlled: bool) -> Self {
        let target = Duration::from_nanos(TARGET);
        Model {
            now: 0,
            random: Random::new(seed),
            control: OverloadController::new(target, Arc::new(Random::new(seed)), 0),
            is_controlled,
            clients: Arrivals::new(0.0),
            logins_alone: Arrivals::new(0.0),
            messages: Arrivals::new(MESSAGES as f64),
            crowd: None,
            has_farewell: true,
            costs: ClientCosts::CHEAP,
            backlog: VecDeque::new(),
            handshakes: VecDeque::new(),
            handshakes_since: 0,
            logins: VecDeque::new(),
            later_logins: VecDeque::new(),
            waiting_messages: VecDeque::new(),
            served: 0,
            served_after: Vec::new(),
            message_delays: Vec::new(),
        }
    }

    fn level(&self) -> u64 {
        self.control.limits().level()
    }

    fn admits(&mut self, work: Work) -> bool {
        let is_told = work.is_told() || (work == Work::Accept && self.has_farewell);
        let admitted = match work {
            Work::Accept => self.control.limits().admit_connection(self.has_farewell),
            work => self.control.limits().admit(work),
        };
        match admitted {
            Err(refused) if self.is_controlled => {
                let time = if is_told { refused.retry_after() } else { self.own_delay() };
                self.leave(time);
                false
            }
            _ => true,
        }
    }

    /// Returns the time after which a client returns that was reset.
    fn own_delay(&self) -> Duration {
        Duration::from_nanos(SECOND / 2 + self.random.below(SECOND))
    }

    /// A client goes away, and returns after this time if it is one of the crowd.
    fn leave(&mut self, time: Duration) {
        if let Some(crowd) = &mut self.crowd {
            crowd.push(Reverse(self.now + nanos(time)));
        }
    }

    fn arrive(&mut self) {
        while let Some(crowd) = &mut self.crowd
            && self.backlog.len() < BACKLOG
            && crowd.peek().is_some_and(|at| at.0 <= self.now)
        {
            self.backlog.extend(crowd.pop().map(|at| at.0));
        }
        let room = BACKLOG - self.backlog.len();
        self.backlog.extend(self.clients.take(self.now, &self.random).into_iter().take(room));
        self.logins.extend(self.logins_alone.take(self.now, &self.random));
        while self.later_logins.front().is_some_and(|(at, _)| *at <= self.now) {
            self.logins.extend(self.later_logins.pop_front().map(|(_, arrived)| arrived));
        }
        self.waiting_messages.extend(self.messages.take(self.now, &self.random));
    }

    fn is_idle(&self) -> bool {
        self.backlog.is_empty()
            && self.handshakes.is_empty()
            && self.logins.is_empty()
            && self.waiting_messages.is_empty()
    }

    fn turn(&mut self) {
        self.arrive();
        if self.is_idle() {
            let arrivals = [&self.clients, &self.logins_alone, &self.messages];
            let next = arrivals.iter().filter(|a| a.rate > 0.0).map(|a| a.next);
            let returning = self.crowd.as_ref().and_then(|crowd| crowd.peek()).map(|at| at.0);
            let later = self.later_logins.front().map(|(at, _)| *at);
            let next = next.chain(self.control.next_look()).chain(returning).chain(later).min();
            self.now = next.unwrap_or(self.now + SECOND).max(self.now);
            self.arrive();
        }
        let began = self.now;
        self.now += TURN;
        let (messages, logins) = (self.waiting_messages.len(), self.logins.len());
        for _ in 0..messages {
            let Some(arrived) = self.waiting_messages.pop_front() else { break };
            self.now += MESSAGE;
            self.message_delays.push(self.now - arrived);
        }
        self.accept(began);
        for _ in 0..logins {
            if self.now - began > MAX_IO_TIME {
                break;
            }
            let Some(arrived) = self.logins.pop_front() else { break };
            self.log_in(arrived);
        }
        self.shake_hands();
        self.control.note_turn(began, self.now, self.handshakes.len());
    }

    fn accept(&mut self, began: u64) {
        let (mut accepted, mut shed) = (0, 0);
        while accepted < ACCEPTS_PER_TURN && shed < SHED_PER_TURN && self.now - began < MAX_IO_TIME {
            let Some(arrived) = self.backlog.pop_front() else { break };
            if self.admits(Work::Accept) {
                accepted += 1;
                self.now += ACCEPT;
                if self.handshakes.is_empty() {
                    self.handshakes_since = self.now;
                }
                self.handshakes.push_back((arrived, self.now));
            } else {
                shed += 1;
                self.now += RESET;
            }
        }
    }

    fn shake_hands(&mut self) {
        let patience = nanos(self.control.limits().patience());
        if self.is_controlled {
            while self.handshakes.front().is_some_and(|(_, since)| self.now - since > patience) {
                self.handshakes.pop_front();
                let _ = self.control.limits().refuse(Work::Handshake);
                self.leave(self.own_delay());
                self.now += RESET;
            }
        }
        for _ in 0..HANDSHAKES_PER_TURN {
            let newest_first = self.is_controlled && self.now - self.handshakes_since > TARGET;
            let next = if newest_first { self.handshakes.pop_back() } else { self.handshakes.pop_front() };
            let Some((arrived, _)) = next else { break };
            if !self.admits(Work::Handshake) {
                self.now += RESET;
                continue;
            }
            self.now += self.costs.handshake;
            // A client that has gone away does not log in.
            if self.now - arrived < CLIENT_PATIENCE {
                self.later_logins.push_back((self.now + self.costs.login_after, arrived));
            } else {
                self.leave(Duration::ZERO);
            }
        }
    }

    fn log_in(&mut self, arrived: u64) {
        if !self.admits(Work::Login) {
            self.now += REFUSED_LOGIN;
            return;
        }
        self.now += self.costs.login;
        if self.now - arrived < CLIENT_PATIENCE {
            self.served += 1;
            self.served_after.push(self.now - arrived);
        } else {
            self.leave(Duration::ZERO);
        }
    }

    fn run_until(&mut self, end: u64) {
        while self.now < end {
            self.turn();
        }
    }

    /// Runs for a time. Returns the rate of served clients per second.
    fn served_in(&mut self, time: u64) -> f64 {
        let (began, before) = (self.now, self.served);
        self.served_after.clear();
        self.message_delays.clear();
        self.run_until(began + time);
        (self.served - before) as f64 * SECOND as f64 / (self.now - began) as f64
    }
}

fn percentile(mut values: Vec<u64>, part: f64) -> u64 {
    values.sort_unstable();
    values
        .get(((values.len() as f64 * part) as usize).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0)
}

/// Returns the time until nothing is limited and messages are quick again.
fn recovery(model: &mut Model) -> u64 {
    let ended = model.now;
    while model.level() > 0 && model.now < ended + 60 * SECOND {
        model.turn();
    }
    model.now - ended
}

/// Submits this number of pieces of work.
fn offer(limits: &WorkLimits, work: Work, n: usize) {
    for _ in 0..n {
        let _ = limits.admit(work);
    }
}

#[test]
fn a_storm_of_five_times_the_capacity_costs_a_tenth_of_it_at_most() {
    for seed in 0..20 {
        let mut model = Model::new(seed, true);
        model.clients.set_rate(0.3 * CAPACITY, 0);
        let calm = model.served_in(5 * SECOND);
        assert!((calm / CAPACITY - 0.3).abs() < 0.05, "{calm}");
        assert_eq!(model.level(), 0, "nothing is limited below the capacity");
        model.clients.set_rate(5.0 * CAPACITY, model.now);
        // The time in which the limits are found.
        model.run_until(model.now + 2 * SECOND);
        let served = model.served_in(20 * SECOND);
        assert!(served >= 0.9 * CAPACITY, "seed {seed}: {:.2} of the capacity", served / CAPACITY);
        let admitted = percentile(std::mem::take(&mut model.served_after), 0.99);
        assert!(admitted <= 25 * TARGET, "seed {seed}: p99 of admitted {} ms", admitted / MILLI);
        let message = percentile(std::mem::take(&mut model.message_delays), 0.99);
        assert!(message <= 2 * TARGET, "seed {seed}: p99 of messages {} ms", message / MILLI);
        assert!(model.control.limits().refused(Work::Login) < served as u64, "admitted clients are served");
        model.clients.set_rate(0.3 * CAPACITY, model.now);
        let recovery = recovery(&mut model);
        assert!(recovery <= 2 * SECOND, "seed {seed}: {} ms", recovery / MILLI);
        let calm = model.served_in(5 * SECOND);
        assert!((calm / CAPACITY - 0.3).abs() < 0.05, "{calm}");
        assert_eq!(model.level(), 0);
    }
}

#[test]
fn without_control_the_same_storm_serves_nobody_in_time() {
    let mut model = Model::new(1, false);
    model.clients.set_rate(5.0 * CAPACITY, 0);
    model.run_until(10 * SECOND);
    let served = model.served_in(20 * SECOND);
    assert!(served < 0.5 * CAPACITY, "{:.2} of the capacity", served / CAPACITY);
}

#[test]
fn a_storm_of_logins_on_open_channels_is_limited_to_what_the_loop_serves() {
    let capacity = (SECOND - MESSAGES * MESSAGE) as f64 / LOGIN as f64;
    for seed in 0..20 {
        let mut model = Model::new(seed, true);
        model.logins_alone.set_rate(5.0 * capacity, 0);
        model.run_until(3 * SECOND);
        let served = model.served_in(20 * SECOND);
        // Four refusals per login take 8 % of the time.
        assert!(served >= 0.85 * capacity, "seed {seed}: {:.2} of the capacity", served / capacity);
        let message = percentile(std::mem::take(&mut model.message_delays), 0.99);
        assert!(message <= 3 * TARGET, "seed {seed}: p99 of messages {} ms", message / MILLI);
        assert!(model.level() >= 3, "earlier classes are limited first");
        model.logins_alone.set_rate(0.0, model.now);
        let recovery = recovery(&mut model);
        assert!(recovery <= 3 * SECOND, "seed {seed}: {} ms", recovery / MILLI);
    }
}

#[test]
fn a_spike_limits_nothing() {
    let mut model = Model::new(1, true);
    model.clients.set_rate(0.3 * CAPACITY, 0);
    for _ in 0..50 {
        model.run_until(model.now + SECOND);
        // A slow callback.
        let began = model.now;
        model.now += 300 * MILLI;
        model.control.note_turn(began, model.now, 0);
        for _ in 0..20 {
            model.turn();
            assert_eq!(model.level(), 0);
        }
    }
}

#[test]
fn classes_are_limited_in_order_and_lifted_in_reverse() {
    let mut control = OverloadController::new(Duration::from_nanos(TARGET), Arc::new(Random::new(1)), 0);
    let limits = control.limits().clone();
    let mut now = 0;
    // Runs turns that take this time, and sleeps between them. Each turn offers five pieces of work
    // of each class. Returns the levels.
    let mut turns = |control: &mut OverloadController, takes: u64, sleeps: u64, n: u64| {
        let mut seen = Vec::new();
        for _ in 0..n {
            Work::ALL.iter().for_each(|work| offer(&limits, *work, 5));
            control.note_turn(now, now + takes, 0);
            now += takes + sleeps;
            seen.push(limits.level());
        }
        seen.dedup();
        seen
    };
    let seen = turns(&mut control, 2 * TARGET, 0, 400);
    assert_eq!(seen, [0, 1, 2, 3, 4], "one class after the other");
    for class in &control.classes {
        let rate = class.rate.expect("a limit");
        assert!(rate <= control.floor() * 1.01, "all are at their floor");
    }
    let seen = turns(&mut control, MILLI, 4 * MILLI, 2000);
    assert_eq!(seen, [4, 3, 2, 1, 0]);
    assert_eq!(control.next_look(), None);
}

#[test]
fn a_queue_of_handshakes_limits_accepting_only() {
    let mut control = OverloadController::new(Duration::from_nanos(TARGET), Arc::new(Random::new(1)), 0);
    let limits = control.limits().clone();
    let mut now = 0;
    for turn in 0..2000 {
        offer(&limits, Work::Accept, 64);
        offer(&limits, Work::Handshake, 8);
        offer(&limits, Work::Login, 1);
        control.note_turn(now, now + 4 * MILLI, 10_000);
        now += 4 * MILLI;
        assert!(limits.level() <= 1, "turn {turn}");
    }
    assert_eq!(limits.level(), 1);
    assert!(limits.refused(Work::Accept) > 0 && limits.refused(Work::Login) == 0);
}

#[test]
fn an_idle_loop_lifts_its_limits_at_the_times_that_it_asks_for() {
    let mut control = OverloadController::new(Duration::from_nanos(TARGET), Arc::new(Random::new(1)), 0);
    let limits = control.limits().clone();
    let mut now = 0;
    while limits.level() < 4 {
        Work::ALL.iter().for_each(|work| offer(&limits, *work, 1));
        control.note_turn(now, now + 3 * TARGET, 0);
        now += 3 * TARGET;
    }
    let (ended, mut looks) = (now, 0);
    while let Some(at) = control.next_look() {
        assert!(at > now);
        now = at;
        control.note_turn(now, now, 0);
        looks += 1;
    }
    assert_eq!(limits.level(), 0);
    assert!(looks <= 40 && now - ended <= 3 * SECOND, "{looks} looks, {} ms", (now - ended) / MILLI);
}

#[test]
fn clients_return_as_fast_as_the_loop_serves_them() {
    for (seed, has_farewell) in (0..20).flat_map(|seed| [(seed, true), (seed, false)]) {
        let mut model = Model::new(seed, true);
        model.has_farewell = has_farewell;
        let clients = (8.0 * CAPACITY) as u64;
        model.crowd = Some((0..clients).map(|_| Reverse(0)).collect());
        let ended = loop {
            model.turn();
            if model.served == clients || model.now > 60 * SECOND {
                break model.now;
            }
        };
        let drain = clients as f64 / CAPACITY;
        let took = ended as f64 / SECOND as f64 / drain;
        let served = model.served;
        assert!(took <= 1.35, "seed {seed}, farewell {has_farewell}: {served} in {took:.2} drain times");
    }
}

#[test]
fn a_delay_between_the_limit_and_its_effect_costs_a_tenth_of_the_capacity_at_most() {
    for seed in 0..10 {
        let mut model = Model::new(seed, true);
        (model.has_farewell, model.costs) = (false, ClientCosts::EXPENSIVE);
        let clients = (10.0 * model.costs.capacity()) as u64;
        model.crowd = Some((0..clients).map(|_| Reverse(0)).collect());
        model.run_until(2 * SECOND);
        // Without the end, at which most of the clients wait for their next attempt.
        let served = model.served_in(6 * SECOND) / model.costs.capacity();
        assert!(served >= 0.92, "seed {seed}: {served:.2} of the capacity");
        let message = percentile(std::mem::take(&mut model.message_delays), 0.99);
        assert!(message <= 2 * TARGET, "seed {seed}: p99 of messages {} ms", message / MILLI);
    }
}
