//! Random use of the API in the simulation, amid random faults.
//!
//! Each play has a scenario of its own and checks of its own, which hold in every order of events.
//! `kit` has the common parts. docs/simulation.md describes how to run many seeds.

mod acts;
mod admissions;
mod channels;
mod clients;
mod crowd;
mod datagrams;
mod equipment;
mod equipment_acts;
mod filter;
mod frames;
mod keeper;
mod kit;
mod links;
mod loops;
mod meter;
mod on_loop;
mod player;
mod pools;
mod producers;
mod replier;
mod rest;
mod rooms;
mod settings;
mod shutdowns;
mod streams;
mod timers;
mod traffic;
mod uses;
mod wire;

use netwheel::testing::simulation::{Exploration, Failure, Faults, Simulation};

/// The number of seeds of each test; `NETWHEEL_SEEDS` overrides it, for long runs by hand.
fn seeds() -> u64 {
    std::env::var("NETWHEEL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(4)
}

/// The number of seeds from which on every state has to be reached.
const MANY: u64 = 150;

/// Runs the seeds of a test. Many of them have to reach each of the `states`.
fn explore(
    faults: Faults,
    states: &[&'static str],
    scenario: impl FnMut(&mut Simulation) -> Result<(), Failure>,
) {
    let explored = Exploration::new(seeds()).faults(faults).run(scenario);
    let explored = explored.unwrap_or_else(|failure| panic!("{failure}"));
    let (seeds, events, states_seen) = (explored.seeds(), explored.events(), explored.states());
    eprintln!("{seeds} seeds, {events} events, {states_seen} states of channels");
    for state in states.iter().filter(|_| explored.seeds() >= MANY) {
        assert!(explored.reached(state) > 0, "no seed has reached: {state}");
    }
}

/// All faults that leave the programs running.
fn without_kills() -> Faults {
    Faults::without_kills().with_races()
}

/// Faults that do not end connections and do not lose time.
fn harmless() -> Faults {
    let mut faults = Faults::none().with_races();
    for (name, rate) in [
        ("short-read", 50_000),
        ("short-write", 50_000),
        ("read-would-block", 10_000),
        ("interrupted-call", 10_000),
        ("wake-fails", 2_000),
        ("poll-interrupted", 5_000),
        ("poll-returns-early", 5_000),
        ("poll-spins", 100),
        ("one-event", 20_000),
        ("events-shuffled", 200_000),
        ("spurious-edge", 5_000),
        ("late-edge", 10_000),
        ("datagram-would-block", 20_000),
    ] {
        faults = faults.rate(name, rate);
    }
    faults
}

const CHANNELS: &[&str] =
    &["connect cancelled", "reset behind a relay", "broadcast beyond a limit", "a broadcast has waited"];
const CLIENTS: &[&str] = &["a connect was cancelled", "a pool has no channel", "a hook refuses a channel"];
const TIMERS: &[&str] = &["a silent connection was closed", "a task of a channel was refused"];
const TRAFFIC: &[&str] = &["a channel closes below its limit"];
const EQUIPMENT: &[&str] =
    &["a mute client was closed", "a future has sent a message", "the timer of a stage"];
const LOOPS: &[&str] = &["a rebuild has moved connections", "a queue is full"];
const ADMISSIONS: &[&str] = &["a connection was rejected", "a silent proxy was closed"];
const CROWD: &[&str] = &["a room has too many waiting broadcasts"];
const SHUTDOWNS: &[&str] = &["a shutdown waits for a reply", "a connection arrives in a shutdown"];

#[test]
fn channels_keep_their_promises_in_a_calm_network() {
    explore(harmless(), CHANNELS, |simulation| channels::play(simulation, true));
}

#[test]
fn channels_keep_their_promises_amid_faults() {
    explore(without_kills(), CHANNELS, |simulation| channels::play(simulation, false));
}

#[test]
fn timers_are_exact_in_a_calm_network() {
    // A kernel does not refuse input that has waited in the socket for seconds, and input that
    // waits is no silence.
    let faults = harmless().rate("read-would-block", 0);
    explore(faults, TIMERS, |simulation| timers::play(simulation, true));
}

#[test]
fn timers_are_not_early_amid_faults() {
    explore(without_kills(), TIMERS, |simulation| timers::play(simulation, false));
}

#[test]
fn accepted_datagrams_arrive_once() {
    explore(harmless(), &["a datagram was refused"], datagrams::play);
}

#[test]
fn clients_end_when_they_are_stopped_in_a_calm_network() {
    explore(harmless(), CLIENTS, |simulation| clients::play(simulation, true));
}

#[test]
fn clients_end_when_they_are_stopped_amid_faults() {
    explore(without_kills(), CLIENTS, |simulation| clients::play(simulation, false));
}

#[test]
fn shutdowns_wait_for_replies_in_a_calm_network() {
    explore(harmless(), SHUTDOWNS, |simulation| shutdowns::play(simulation, true));
}

#[test]
fn shutdowns_end_amid_faults() {
    explore(without_kills(), SHUTDOWNS, |simulation| shutdowns::play(simulation, false));
}

#[test]
fn producers_are_told_when_they_may_continue() {
    explore(harmless(), &[], producers::play);
}

#[test]
fn rate_limits_are_kept_in_a_calm_network() {
    explore(harmless(), TRAFFIC, |simulation| traffic::play(simulation, true));
}

#[test]
fn rate_limits_are_kept_amid_faults() {
    explore(without_kills(), TRAFFIC, |simulation| traffic::play(simulation, false));
}

#[test]
fn channels_keep_what_they_own_in_a_calm_network() {
    explore(harmless(), EQUIPMENT, |simulation| equipment::play(simulation, true));
}

#[test]
fn channels_keep_what_they_own_amid_faults() {
    explore(without_kills(), EQUIPMENT, |simulation| equipment::play(simulation, false));
}

#[test]
fn loops_run_each_task_once_in_a_calm_network() {
    explore(harmless(), LOOPS, |simulation| loops::play(simulation, true));
}

#[test]
fn loops_run_each_task_once_amid_faults() {
    explore(without_kills(), LOOPS, |simulation| loops::play(simulation, false));
}

#[test]
fn limits_of_connections_are_kept_in_a_calm_network() {
    explore(harmless(), ADMISSIONS, |simulation| admissions::play(simulation, true));
}

#[test]
fn limits_of_connections_are_kept_amid_faults() {
    explore(without_kills(), ADMISSIONS, |simulation| admissions::play(simulation, false));
}

#[test]
fn broadcasts_that_wait_keep_their_order_in_a_calm_network() {
    explore(harmless(), CROWD, |simulation| crowd::play(simulation, true));
}

#[test]
fn broadcasts_that_wait_keep_their_order_amid_faults() {
    explore(without_kills(), CROWD, |simulation| crowd::play(simulation, false));
}
