//! The first event in which two runs of one seed differ, and its likely cause.

use super::run::SeedRun;
use crate::machine::simulated::{Happening, Record};

/// Describes the first event in which two runs of one seed differ. `None` if they do not.
pub(super) fn difference(first: &SeedRun, second: &SeedRun) -> Option<String> {
    if first.hash == second.hash {
        return (first.message != second.message).then(|| {
            let outcome = |run: &SeedRun| run.message.clone().unwrap_or_else(|| "no failure".to_owned());
            let (first, second) = (outcome(first), outcome(second));
            format!("two runs of the seed have the same events and different outcomes: {first}; {second}")
        });
    }
    let at = first.records.iter().zip(&second.records).position(|(a, b)| a != b);
    let shorter = first.records.len().min(second.records.len());
    let Some(at) = at.or_else(|| (first.records.len() != second.records.len()).then_some(shorter)) else {
        return Some(format!("two runs of the seed differ after the first {shorter} events"));
    };
    let before = at.checked_sub(1).map(|at| first.records[at].to_string()).unwrap_or_default();
    let shown = |run: &SeedRun| run.records.get(at).map_or("no event".to_owned(), ToString::to_string);
    let (a, b) = (shown(first), shown(second));
    let cause = cause(&first.records[at..], &second.records[at..])
        .map_or(String::new(), |cause| format!(" The likely cause: {cause}."));
    Some(format!(
        "two runs of the seed differ at event {at}: `{a}` and `{b}`, after `{before}`.{cause} See \"What a \
         program must not use\" in the documentation of `netwheel::testing::simulation`"
    ))
}

/// Returns the likely cause of a difference, from the events of both runs that begin with it.
/// `None` if the events point to nothing in particular.
fn cause(first: &[Record], second: &[Record]) -> Option<&'static str> {
    let (a, b) = (first.first()?, second.first()?);
    if (a.what, a.node, a.a, a.b) == (b.what, b.node, b.a, b.b) {
        return Some(if a.at == b.at { CONTENTS } else { TIME });
    }
    let is_sent = matches!(a.what, Happening::Wrote | Happening::DatagramSent);
    if is_sent && (a.at, a.what, a.node, a.a) == (b.at, b.what, b.node, b.a) {
        return Some(LENGTH);
    }
    let is_later = |record: &Record, others: &[Record]| {
        others.iter().skip(1).any(|other| action(record) == action(other))
    };
    if a.at == b.at && action(a).is_some() && is_later(a, second) && is_later(b, first) {
        return Some(ORDER);
    }
    let is_of_thread = a.what == Happening::ThreadRan || b.what == Happening::ThreadRan;
    is_of_thread.then_some(THREAD)
}

const CONTENTS: &str = "messages of equal lengths have different contents, for example a random number, an address \
     in memory, or bytes that a cryptographic library draws (see `compare_contents`)";

const TIME: &str = "the same event has another time, for example because a program waits for a random time or \
     depends on the system's clock";

const LENGTH: &str = "a program sends another number of bytes, for example because a message contains a number or \
     a time as text";

const ORDER: &str = "the same events happen in another order, for example that of a `HashMap`, or that of threads \
     that the simulation does not control";

const THREAD: &str = "a thread of a program has run in one run only, or at another time, for example because it \
     was woken by a thread that the simulation does not control, or because it waits for a random time";

/// What identifies an action of a program in both runs. `None` for events that follow from others.
fn action(record: &Record) -> Option<(u8, usize, u64, u64, u64)> {
    use Happening::{Closed, ConnectBegan, DatagramSent, Listened, Operation, ShutDown, ThreadRan, Wrote};
    let Record { what, node, a, b, contents, .. } = *record;
    match what {
        // The number of a new socket depends on the order. Its port does not.
        ConnectBegan | Listened => Some((what as u8, node, 0, b, 0)),
        Closed | DatagramSent | Operation | ShutDown | ThreadRan | Wrote => {
            Some((what as u8, node, a, b, contents))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Happening::{Arrived, Closed, ConnectBegan, Read, ThreadRan, Turn, Wrote};

    fn record(at: u64, what: Happening, a: u64, b: u64, contents: u64) -> Record {
        Record { at, what, node: 0, a, b, contents }
    }

    fn wrote(socket: u64, length: u64, contents: u64) -> Record {
        record(5, Wrote, socket, length, contents)
    }

    fn of(first: &[Record], second: &[Record]) -> Option<&'static str> {
        let cause = cause(first, second);
        assert_eq!(cause, super::cause(second, first), "the order of the runs does not matter");
        cause
    }

    #[test]
    fn contents_differ_only_if_nothing_else_does() {
        assert_eq!(of(&[wrote(1, 4, 1)], &[wrote(1, 4, 2)]), Some(CONTENTS));
        // Equal bytes at another time, and other bytes at another time.
        let later = |contents| Record { at: 6, ..wrote(1, 4, contents) };
        assert_eq!(of(&[wrote(1, 4, 1)], &[later(1)]), Some(TIME));
        assert_eq!(of(&[wrote(1, 4, 1)], &[later(2)]), Some(TIME));
        for what in [Read, Arrived, Closed, Turn, ThreadRan] {
            assert_eq!(of(&[record(5, what, 1, 4, 0)], &[record(6, what, 1, 4, 0)]), Some(TIME), "{what:?}");
        }
    }

    #[test]
    fn lengths_are_those_of_messages_that_a_program_sends() {
        assert_eq!(of(&[wrote(1, 4, 1)], &[wrote(1, 5, 2)]), Some(LENGTH));
        assert_eq!(of(&[wrote(1, 4, 1)], &[wrote(2, 5, 2)]), None);
        assert_eq!(of(&[wrote(1, 4, 1)], &[Record { at: 6, ..wrote(1, 5, 2) }]), None);
        assert_eq!(of(&[record(5, Read, 1, 4, 1)], &[record(5, Read, 1, 5, 2)]), None);
    }

    #[test]
    fn an_order_is_one_of_events_that_both_runs_have() {
        let (one, two) = (wrote(1, 4, 1), wrote(2, 4, 2));
        assert_eq!(of(&[one, two], &[two, one]), Some(ORDER));
        assert_eq!(of(&[one, two], &[two]), None, "the second run has another event only");
        // Another message on the same connection is not the same event.
        assert_eq!(of(&[one, two], &[two, wrote(1, 4, 3)]), None);
        let closed = record(5, Closed, 1, 0, 0);
        assert_eq!(of(&[one, wrote(1, 4, 2), closed], &[closed, wrote(3, 4, 2)]), None);
        // The first new socket of both runs has the same number.
        let connected = |socket, port| record(5, ConnectBegan, socket, port, 0);
        let (first, second) = ([connected(7, 80), connected(8, 90)], [connected(7, 90), connected(8, 80)]);
        assert_eq!(of(&first, &second), Some(ORDER));
        let turn = |event_loop| record(5, Turn, event_loop, 1, 0);
        assert_eq!(of(&[turn(1), turn(2)], &[turn(2), turn(1)]), None, "turns follow from other events");
        let threads = [record(5, ThreadRan, 1, 0, 0), record(5, ThreadRan, 2, 0, 0)];
        assert_eq!(of(&threads, &[threads[1], threads[0]]), Some(ORDER));
    }

    #[test]
    fn a_thread_that_runs_in_one_run_only_is_the_cause() {
        assert_eq!(of(&[record(5, ThreadRan, 1, 0, 0)], &[wrote(1, 4, 1)]), Some(THREAD));
        assert_eq!(of(&[record(5, ThreadRan, 1, 0, 0)], &[record(9, ThreadRan, 2, 0, 0)]), Some(THREAD));
        assert_eq!(of(&[record(5, Closed, 1, 0, 0)], &[wrote(1, 4, 1)]), None);
        assert_eq!(of(&[], &[wrote(1, 4, 1)]), None);
    }
}
