//! The sizes of batches, and batches that the store refuses as a whole.

use super::*;
use crate::error::Error;

const LARGE: MapLimits =
    MapLimits { entries: 10_000, bytes: 16 << 20, ahead_updates: 100, ahead_bytes: 16 << 20 };

/// Returns a node that has asked for entries of these sizes, the first ones in an update that is
/// under way.
fn holding(sizes: &[usize]) -> Simulation {
    let mut simulation = Simulation::new();
    simulation.map = MapState::new(LARGE, "a".to_owned());
    simulation.read = None;
    simulation.map.holdings.set_node(simulation.lease.clone());
    serve(&mut simulation);
    for (n, size) in sizes.iter().enumerate() {
        let key = Bytes::from(format!("{n:03}"));
        simulation.unanswered += 1;
        let (value, condition) = (vec![b'x'; *size].into(), Some(MapCondition::Absent));
        let request = HoldRequest::Hold { value, condition, caller: (key.clone(), true) };
        simulation.map.holdings.request(key, request);
    }
    simulation.carry_out();
    simulation
}

fn sizes(batch: &HoldBatch) -> Vec<usize> {
    batch.changes.iter().map(|change| change.value.as_ref().map_or(0, Bytes::len)).collect()
}

/// Serves a node by a store that refuses updates with more changes or bytes. Returns the sizes of
/// the updates.
fn serve_with(simulation: &mut Simulation, most_changes: usize, most_bytes: usize) -> Vec<Vec<usize>> {
    let mut updates = Vec::new();
    while let Some((batch, ..)) = &simulation.update {
        let (number, sizes) = (batch.number, sizes(batch));
        updates.push(sizes.clone());
        assert!(updates.len() < 100, "it ends: {updates:?}");
        if sizes.len() > most_changes || sizes.iter().sum::<usize>() > most_bytes {
            simulation.update = None;
            let error = Error::setting("changes", sizes.len(), "fewer");
            locked(&mut simulation.map, |map| map.update_answered(number, Err(error)));
            simulation.run(Op::Deliver(0));
        } else {
            [Op::ExecuteUpdate, Op::UpdateAnswer, Op::Deliver(0)]
                .into_iter()
                .for_each(|op| simulation.run(op));
        }
        for op in [Op::Execute, Op::ReadAnswer] {
            simulation.run(op);
        }
    }
    updates
}

fn lose_lease(simulation: &mut Simulation) {
    [Op::EndLease, Op::NoticeLease].into_iter().for_each(|op| simulation.run(op));
    while !simulation.store.events.is_empty() {
        simulation.run(Op::Deliver(0));
    }
    simulation.run(Op::BeginLease);
}

#[test]
fn a_large_entry_is_alone_in_its_update() {
    let entries = [200 << 10, 850 << 10, 100 << 10, 100 << 10];
    let mut simulation = holding(&entries);
    let expected = [vec![entries[0]], vec![entries[1]], vec![entries[2], entries[3]]];
    assert_eq!(serve_with(&mut simulation, 1000, 900 << 10), expected);
    assert_eq!(simulation.held.len(), 4);
    lose_lease(&mut simulation);
    assert_eq!(
        serve_with(&mut simulation, 1000, 900 << 10),
        expected,
        "entries are restored in the same way"
    );
    assert_eq!((simulation.unanswered, simulation.store.entries.len()), (0, 4));
    simulation.finish();
}

#[test]
fn an_update_that_is_too_large_for_the_store_is_made_in_parts() {
    let mut simulation = holding(&[10; 40]);
    let counts = |updates: Vec<Vec<usize>>| updates.iter().map(Vec::len).collect::<Vec<_>>();
    let made = |counts: &[usize]| counts.iter().filter(|count| **count <= 6).sum::<usize>();
    let first = counts(serve_with(&mut simulation, 6, usize::MAX));
    assert_eq!((&first[..4], made(&first)), (&[40, 20, 10, 5][..], 40), "{first:?}");
    assert_eq!((simulation.unanswered, simulation.held.len()), (0, 40), "no caller gets the error");
    lose_lease(&mut simulation);
    let again = counts(serve_with(&mut simulation, 6, usize::MAX));
    assert_eq!(made(&again), 40, "{again:?}");
    assert!(!simulation.map.has_failed());
    simulation.finish();
}

#[test]
fn an_entry_that_is_too_large_alone_fails_alone() {
    let mut simulation = holding(&[10, 10, 70, 10]);
    let updates = serve_with(&mut simulation, 1000, 60);
    assert_eq!(updates[..2], [vec![10, 10, 70, 10], vec![10, 10]]);
    assert_eq!((simulation.unanswered, simulation.held.len()), (0, 3), "{updates:?}");
    assert!(!simulation.map.holdings.holds(b"002"));
    simulation.finish();
}

/// The store may have made such an update, so callers get the error. The next one is smaller.
#[test]
fn an_update_of_held_entries_that_fails_is_not_repeated_as_it_was() {
    let mut simulation = holding(&[10; 8]);
    serve(&mut simulation);
    lose_lease(&mut simulation);
    let mut counts = Vec::new();
    for _ in 0..3 {
        while simulation.update.is_none() {
            for op in [Op::Retry, Op::Execute, Op::ReadAnswer] {
                simulation.run(op);
            }
        }
        let (batch, ..) = simulation.update.take().unwrap();
        counts.push(batch.changes.len());
        let error = BrokerError::failed("too many elements").into();
        locked(&mut simulation.map, |map| map.update_answered(batch.number, Err(error)));
        simulation.carry_out();
    }
    assert_eq!(counts, [8, 4, 2]);
    simulation.finish();
}
