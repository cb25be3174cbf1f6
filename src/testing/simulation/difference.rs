//! The first event in which two runs of one seed differ, and its likely cause.

use super::run::Run;
use crate::machine::simulated::{Happening, Record};

/// How many events behind a difference are searched for the same events in another order.
const WINDOW: usize = 200;

/// Describes the first event in which two runs of one seed differ. `None` if they do not.
pub(super) fn difference(first: &Run, second: &Run) -> Option<String> {
    if first.hash == second.hash {
        return (first.message != second.message).then(|| {
            let outcome = |run: &Run| run.message.clone().unwrap_or_else(|| "no failure".to_owned());
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
    let shown = |run: &Run| run.records.get(at).map_or("no event".to_owned(), ToString::to_string);
    let (a, b) = (shown(first), shown(second));
    let cause = cause(&first.records[at..], &second.records[at..])
        .map_or(String::new(), |cause| format!(" The likely cause: {cause}."));
    Some(format!(
        "two runs of the seed differ at event {at}: `{a}` and `{b}`, after `{before}`.{cause} See \"What a \
         program must not use\" in the documentation of `netwheel::testing::simulation`"
    ))
}

/// Returns the likely cause of a difference, from the events of both runs that begin with it.
fn cause(first: &[Record], second: &[Record]) -> Option<&'static str> {
    let (a, b) = (first.first()?, second.first()?);
    let without_time = |r: &Record| (r.what as u8, r.node, r.a, r.b, r.contents);
    let has_bytes = |what| {
        matches!(what, Happening::Wrote | Happening::DatagramSent | Happening::Read | Happening::Arrived)
    };
    let is_same_call = (a.what, a.node, a.a) == (b.what, b.node, b.a) && has_bytes(a.what);
    if is_same_call && a.b == b.b {
        return Some(
            "messages of equal lengths have different contents, for example a random number, an address \
             in memory, or bytes that a cryptographic library draws (see `compare_contents`)",
        );
    }
    if is_same_call {
        return Some(
            "a message has another length, for example because it contains a number or a time as text",
        );
    }
    if without_time(a) == without_time(b) {
        return Some(
            "the same event has another time: a program waits for a time that depends on the system's clock \
             or on a random number",
        );
    }
    let is_later = |record: &Record, others: &[Record]| {
        others.iter().take(WINDOW).any(|other| (other.what, other.node) == (record.what, record.node))
    };
    if a.what == Happening::ThreadRan || b.what == Happening::ThreadRan {
        return Some(
            "a program was woken at another time, for example by a thread that the simulation does not \
             control, or because it waits for a time that depends on the system's clock",
        );
    }
    if is_later(a, &second[1..]) && is_later(b, &first[1..]) {
        return Some(
            "similar events happen in another order, for example the order of a `HashMap`, or that of \
             threads that the simulation does not control",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: u64, what: Happening, socket: u64, b: u64, contents: u64) -> Record {
        Record { at, what, node: 0, a: socket, b, contents }
    }

    #[test]
    fn the_cause_follows_from_the_first_difference() {
        use Happening::{Closed, ThreadRan, Wrote};
        let wrote = |socket, length, contents| record(5, Wrote, socket, length, contents);
        for (first, second, expected) in [
            (vec![wrote(1, 4, 1)], vec![wrote(1, 4, 2)], "different contents"),
            (vec![wrote(1, 4, 1)], vec![wrote(1, 5, 2)], "another length"),
            (vec![record(5, Closed, 1, 0, 0)], vec![record(6, Closed, 1, 0, 0)], "another time"),
            (vec![wrote(1, 4, 1), wrote(2, 4, 2)], vec![wrote(2, 4, 2), wrote(1, 4, 1)], "another order"),
            (vec![record(5, ThreadRan, 1, 0, 0)], vec![wrote(1, 4, 1)], "woken at another time"),
        ] {
            let cause = cause(&first, &second).unwrap_or_default();
            assert!(cause.contains(expected), "{cause} instead of {expected}");
        }
        let (closed, wrote) = (record(5, Closed, 1, 0, 0), wrote(1, 4, 1));
        assert_eq!(cause(&[closed], &[wrote]), None);
    }
}
