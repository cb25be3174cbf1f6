//! A store that several nodes use: nothing fires without a valid lease.

use super::simulation::{LIMITS, MINUTE, SECOND, Simulation, new_timer};
use crate::durable::{
    engine::{
        Rules,
        message::{EngineMessage, RunAnswer},
    },
    policy::{Delivery, Late, Retry},
    store::{Change, Lease, Loaded, NewTimer, Outcome},
};
use crate::sync::completion;
use std::{cell::RefCell, rc::Rc, time::Duration};

fn nothing() -> Loaded {
    Loaded { rows: Vec::new(), is_complete: true }
}

pub(super) fn lease() -> Lease {
    Lease {
        partitions: vec![(0, 0)],
        draining: Vec::new(),
        suspects: Vec::new(),
        needs_reload: false,
        valid_for: Duration::from_secs(3),
        renew_after: Duration::from_secs(1),
    }
}

fn node(lease: Option<Lease>) -> Simulation {
    let rules = Rules::new(Late::RunOnce, Retry::never(), Delivery::AtLeastOnce);
    Simulation::with(rules, LIMITS, Some(lease))
}

/// P-25.
#[test]
fn nothing_fires_before_the_first_lease() {
    let mut simulation = node(None);
    simulation.start(SECOND);
    simulation.run_until(10 * SECOND);
    assert_eq!(simulation.fired, []);
    simulation.leases = Some(Some(lease()));
    // The pauses between two renewals have grown to two seconds.
    simulation.run_until(12 * SECOND);
    assert_eq!(simulation.fired.len(), 1);
}

/// P-25.
#[test]
fn a_lease_that_is_not_renewed_ends() {
    let mut simulation = node(Some(lease()));
    simulation.start(SECOND);
    simulation.start(MINUTE);
    simulation.run_until(2 * SECOND);
    simulation.leases = Some(None);
    simulation.run_until(2 * MINUTE);
    assert_eq!(simulation.scheduled(), [SECOND]);
}

/// P-25.
#[test]
fn a_node_that_was_stopped_for_longer_than_its_lease_does_not_fire() {
    let mut simulation = node(Some(lease()));
    simulation.start(5 * SECOND);
    simulation.run_until(SECOND);
    // Both clocks go on while the process is stopped, and the store cannot be asked at once.
    simulation.leases = Some(None);
    simulation.pass(9 * SECOND);
    simulation.poll();
    assert_eq!(simulation.fired, []);
}

#[test]
fn other_partitions_are_loaded_anew() {
    let mut simulation = node(Some(lease()));
    simulation.start(30 * SECOND);
    simulation.run_until(2 * SECOND);
    assert_eq!(simulation.metrics.loaded.read(), 1);
    let other = Lease { partitions: vec![(0, 0), (1, 1)], ..lease() };
    let asked = simulation.now.monotonic;
    simulation.leases = Some(Some(other.clone()));
    simulation.tell(EngineMessage::Renewed { asked, lease: Some(other), changed: nothing() });
    simulation.run_until(MINUTE);
    assert_eq!(simulation.times(), [30 * SECOND]);
}

/// The partitions stay the same, but a timer of the window is gone and there is another one.
#[test]
fn a_replaced_store_is_loaded_anew() {
    let mut simulation = node(Some(lease()));
    let gone = simulation.start(30 * SECOND);
    simulation.run_until(2 * SECOND);
    assert_eq!(simulation.metrics.loaded.read(), 1);
    simulation.commit(Change::Cancel(gone));
    simulation.commit(Change::Start(new_timer(20 * SECOND, None, None)));
    let asked = simulation.now.monotonic;
    let replaced = Some(Lease { needs_reload: true, ..lease() });
    simulation.tell(EngineMessage::Renewed { asked, lease: replaced, changed: nothing() });
    simulation.run_until(MINUTE);
    assert_eq!(simulation.times(), [20 * SECOND]);
    assert_eq!(simulation.metrics.stale.read(), 0);
}

#[test]
fn timers_of_other_nodes_are_left_to_them() {
    let other = Lease { partitions: vec![(0, 7)], ..lease() };
    let mut simulation = node(Some(other));
    simulation.run_until(SECOND);
    simulation.start(2 * SECOND);
    simulation.run_until(3 * SECOND);
    assert_eq!((simulation.metrics.loaded.read(), simulation.times()), (0, Vec::new()));
}

/// The node still owns the timer after the renewal, so the window is not loaded again.
#[test]
fn a_claim_that_outlives_the_lease_is_repeated() {
    let mut simulation = node(Some(lease()));
    simulation.start(5 * SECOND);
    simulation.run_until(5 * SECOND - 1);
    simulation.slow_change = 4 * SECOND;
    simulation.run_until(10 * SECOND);
    assert_eq!(simulation.times(), [9 * SECOND]);
}

/// After the clock was set back, more than `near` counts as loaded.
#[test]
fn changes_of_others_are_asked_for_in_all_that_is_loaded() {
    let mut simulation = node(Some(lease()));
    simulation.run_until(2 * SECOND);
    simulation.jump(-40 * SECOND);
    let id = simulation.start_elsewhere(50 * SECOND);
    simulation.run_until(50 * SECOND);
    assert_eq!(simulation.fired.last().map(|fired| (fired.id, fired.at)), Some((id, 50 * SECOND)));
}

#[test]
fn a_node_that_is_closed_keeps_its_lease_until_its_runs_have_ended() {
    let mut simulation = node(Some(lease()));
    simulation.handler(|_| None);
    let id = simulation.start(SECOND);
    simulation.run_until(2 * SECOND);
    let (completer, closed) = completion(None);
    simulation.tell(EngineMessage::Close(completer));
    let renewals = simulation.renewals;
    simulation.run_until(12 * SECOND);
    assert!(!closed.is_done());
    assert_eq!(simulation.drains, 1);
    assert_eq!(simulation.renewals, renewals + 11, "one at once, and one each second");
    simulation.answer(id, RunAnswer::Done(None));
    simulation.run_until(13 * SECOND);
    assert!(closed.is_done());
}

/// The store may have given partitions back, and taken them again, without an answer.
#[test]
fn timers_are_loaded_anew_after_a_renewal_that_failed() {
    let mut simulation = node(Some(lease()));
    simulation.run_until(SECOND);
    let loads = simulation.loads;
    simulation.leases = Some(None);
    simulation.run_until(2 * SECOND);
    assert_eq!(simulation.loads, loads);
    simulation.leases = Some(Some(lease()));
    simulation.run_until(4 * SECOND);
    assert_eq!(simulation.loads, loads + 1);
}

/// A node whose timer is claimed, and fires in the next poll.
fn claimed() -> Simulation {
    let mut simulation = node(Some(lease()));
    simulation.start(SECOND);
    simulation.run_until(SECOND - 1);
    simulation.pass(1);
    simulation.poll();
    assert_eq!((simulation.fired.len(), simulation.metrics.ended.read()), (0, 0));
    simulation
}

#[test]
fn a_claimed_run_fires_in_the_next_turn() {
    let mut simulation = claimed();
    simulation.poll();
    assert_eq!(simulation.times(), [SECOND]);
}

#[test]
fn a_claimed_run_fires_in_a_partition_that_will_be_given_back() {
    let mut simulation = claimed();
    let draining = Some(Lease { partitions: Vec::new(), draining: vec![(0, 0)], ..lease() });
    simulation.leases = Some(draining.clone());
    let asked = simulation.now.monotonic;
    simulation.tell(EngineMessage::Renewed { asked, lease: draining, changed: nothing() });
    simulation.start(SECOND);
    simulation.run_until(2 * SECOND);
    assert_eq!(simulation.fired.len(), 1, "no other run begins");
}

/// The claim says nothing about an owner in between.
#[test]
fn a_claimed_run_does_not_fire_after_its_partition_was_lost() {
    let mut simulation = claimed();
    let other = Some(Lease { partitions: vec![(1, 0)], ..lease() });
    simulation.leases = Some(other.clone());
    let asked = simulation.now.monotonic;
    simulation.tell(EngineMessage::Renewed { asked, lease: other, changed: nothing() });
    simulation.poll();
    assert_eq!(simulation.fired, []);
}

#[test]
fn a_claimed_run_waits_again_after_the_clock_was_set_back() {
    let mut simulation = claimed();
    simulation.jump(-10 * SECOND);
    simulation.poll();
    assert_eq!(simulation.fired, []);
    simulation.run_until(MINUTE);
    assert_eq!(simulation.times(), [SECOND]);
}

/// Replaces the payload of the keyed timer, and sends the stored row to the engine.
fn replace_payload(simulation: &mut Simulation, payload: &[u8]) {
    let timer = NewTimer {
        payload: payload.to_vec(),
        replaces_payload: true,
        ..new_timer(SECOND, None, Some("key"))
    };
    let outcome = simulation.commit(Change::Start(timer));
    let Outcome::AlreadyStarted { changed: Some(row), .. } = outcome else { panic!("{outcome:?}") };
    simulation.tell(EngineMessage::Stored(row));
}

/// Starts a timer with a key. Returns the payloads that its handler gets.
fn start_with_key(simulation: &mut Simulation) -> Rc<RefCell<Vec<Vec<u8>>>> {
    let payloads = Rc::<RefCell<Vec<Vec<u8>>>>::default();
    let seen = payloads.clone();
    simulation.handler(move |firing| {
        seen.borrow_mut().push(firing.row.payload.clone());
        Some(RunAnswer::Done(None))
    });
    let started = simulation.commit(Change::Start(new_timer(SECOND, None, Some("key"))));
    let Outcome::Started(row) = started else { panic!("{started:?}") };
    simulation.tell(EngineMessage::Stored(row));
    payloads
}

/// The handler gets the latest payload, whether the run fires at once or waits again.
#[test]
fn a_payload_that_is_replaced_before_the_handler_is_called_reaches_it() {
    for waits_again in [false, true] {
        let mut simulation = node(Some(lease()));
        let payloads = start_with_key(&mut simulation);
        simulation.run_until(SECOND - 1);
        simulation.pass(1);
        // It is claimed, and fires in the next poll.
        simulation.poll();
        replace_payload(&mut simulation, &[b'2'; 100]);
        if waits_again {
            simulation.jump(-10 * SECOND);
        }
        simulation.poll();
        assert_eq!(payloads.borrow().is_empty(), waits_again);
        simulation.run_until(MINUTE);
        assert_eq!(*payloads.borrow(), [vec![b'2'; 100]]);
        assert_eq!((simulation.metrics.running_bytes.read(), simulation.stored().len()), (0, 0));
    }
}

/// The store has replaced the payload immediately before it ends the run, and keeps neither.
#[test]
fn an_at_most_once_run_gets_a_payload_that_is_replaced_before_the_store_ends_it() {
    let rules = Rules::new(Late::RunOnce, Retry::never(), Delivery::AtMostOnce);
    let mut simulation = Simulation::with(rules, LIMITS, None);
    let payloads = start_with_key(&mut simulation);
    simulation.before_change = Some(Box::new(|simulation| replace_payload(simulation, &[b'2'; 100])));
    simulation.run_until(MINUTE);
    assert_eq!(*payloads.borrow(), [vec![b'2'; 100]]);
    assert_eq!((simulation.metrics.running_bytes.read(), simulation.stored().len()), (0, 0));
}
