//! Records of the direct messages of a run.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Number of copies of a message that is never acknowledged: the first one and three resends.
const COPIES: u32 = 4;

/// All direct messages of the run, indexed by their number.
#[derive(Default)]
pub(crate) struct Directs(Mutex<State>);

#[derive(Default)]
struct State {
    records: Vec<Record>,
    under_way: u64,
    /// Copies delivered to a bot other than the receiver.
    astray: u64,
    /// The server's acknowledgement timeout, as sent in `welcome`.
    ack_timeout: Duration,
}

struct Record {
    to: usize,
    /// Whether the receiver acknowledges direct messages.
    acks: bool,
    copies: u32,
    end: Option<End>,
    ends: u32,
}

/// Outcome of a direct message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Delivered,
    Undelivered,
    /// Too many direct messages were already unacknowledged.
    Refused,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) undelivered: u64,
    pub(crate) refused: u64,
    /// Copies in addition to the first one.
    pub(crate) resent: u64,
    pub(crate) under_way: u64,
    /// Faults of the messages that have ended, with their counts.
    pub(crate) wrong: Vec<(u64, &'static str)>,
}

impl Directs {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a message that is about to be sent to bot `to`. Returns its number.
    pub(crate) fn begin(&self, to: usize, acks: bool) -> u64 {
        let mut state = self.lock();
        state.records.push(Record { to, acks, copies: 0, end: None, ends: 0 });
        state.under_way += 1;
        state.records.len() as u64 - 1
    }

    /// Removes the last record, because the message could not be sent.
    pub(crate) fn withdraw(&self) {
        let mut state = self.lock();
        state.records.pop();
        state.under_way -= 1;
    }

    /// Records a copy received by bot `to`.
    pub(crate) fn note_copy(&self, number: u64, to: usize) {
        let mut state = self.lock();
        match state.record(number) {
            Some(record) if record.to == to => record.copies += 1,
            _ => state.astray += 1,
        }
    }

    /// Records the outcome reported to the sender.
    pub(crate) fn note_end(&self, number: u64, end: End) {
        let mut state = self.lock();
        let Some(record) = state.record(number) else { return };
        record.ends += 1;
        if record.end.is_none() {
            record.end = Some(end);
            state.under_way -= 1;
        }
    }

    pub(crate) fn under_way(&self) -> u64 {
        self.lock().under_way
    }

    pub(crate) fn note_timeout(&self, ack_timeout: Duration) {
        self.lock().ack_timeout = ack_timeout;
    }

    /// Returns the maximum time for which a message may be in flight.
    pub(crate) fn longest(&self) -> Duration {
        self.lock().ack_timeout.saturating_mul(COPIES)
    }

    pub(crate) fn summary(&self) -> Summary {
        let state = self.lock();
        let count = |wanted: &dyn Fn(&Record) -> bool| {
            state.records.iter().filter(|record| wanted(record)).count() as u64
        };
        let ended = |end| count(&|record| record.end == Some(end));
        let mut wrong: Vec<_> = Record::FAULTS.iter().map(|(is, what)| (count(is), *what)).collect();
        wrong.push((state.astray, "direct messages misdelivered"));
        wrong.retain(|(count, _)| *count > 0);
        Summary {
            sent: state.records.len() as u64,
            delivered: ended(End::Delivered),
            undelivered: ended(End::Undelivered),
            refused: ended(End::Refused),
            resent: state.records.iter().map(|record| u64::from(record.copies.saturating_sub(1))).sum(),
            under_way: state.under_way,
            wrong,
        }
    }
}

impl State {
    fn record(&mut self, number: u64) -> Option<&mut Record> {
        self.records.get_mut(usize::try_from(number).ok()?)
    }
}

type Fault = (fn(&Record) -> bool, &'static str);

impl Record {
    /// Faults to look for. Copies to a receiver that acknowledges are not a fault: that receiver or
    /// the server may be slow.
    const FAULTS: [Fault; 6] = [
        (|r| r.ends > 1, "direct messages ended twice"),
        (|r| r.acks && r.end == Some(End::Undelivered), "direct messages undelivered, but acknowledged"),
        (|r| !r.acks && r.end == Some(End::Delivered), "direct messages delivered, but not acknowledged"),
        (|r| r.copies == 0 && r.end == Some(End::Delivered), "direct messages delivered, but never seen"),
        (|r| r.copies > 0 && r.end == Some(End::Refused), "direct messages refused, but seen"),
        (
            |r| !r.acks && r.end == Some(End::Undelivered) && r.copies != COPIES,
            "direct messages not sent again three times",
        ),
    ];
}

/// The text of a direct message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) run: u32,
    pub(crate) number: u64,
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "direct {} {}", self.run, self.number)
    }
}

impl Text {
    /// Parses the text. Returns `None` if it was not written by a bot.
    pub(crate) fn parse(text: &str) -> Option<Text> {
        let (run, number) = text.strip_prefix("direct ")?.split_once(' ')?;
        Some(Text { run: run.parse().ok()?, number: number.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the faults of one message to bot 3.
    fn wrong(acks: bool, copies: u32, ends: &[End]) -> Vec<(u64, &'static str)> {
        let directs = Directs::default();
        let number = directs.begin(3, acks);
        (0..copies).for_each(|_| directs.note_copy(number, 3));
        ends.iter().for_each(|&end| directs.note_end(number, end));
        directs.summary().wrong
    }

    #[test]
    fn correct_outcomes_are_not_faults() {
        for (acks, copies, ends) in [
            (true, 1, &[End::Delivered][..]),
            (true, 2, &[End::Delivered]),
            (false, 4, &[End::Undelivered]),
            (false, 0, &[End::Refused]),
            (false, 2, &[]),
        ] {
            assert_eq!(wrong(acks, copies, ends), [], "{acks} {copies} {ends:?}");
        }
    }

    #[test]
    fn incorrect_outcomes_are_faults() {
        for (acks, copies, ends) in [
            (true, 1, &[End::Delivered, End::Delivered][..]),
            (true, 1, &[End::Delivered, End::Undelivered]),
            (true, 4, &[End::Undelivered]),
            (true, 0, &[End::Delivered]),
            (false, 1, &[End::Delivered]),
            (false, 3, &[End::Undelivered]),
            (false, 5, &[End::Undelivered]),
            (true, 1, &[End::Refused]),
        ] {
            assert_eq!(wrong(acks, copies, ends).len(), 1, "{acks} {copies} {ends:?}");
        }
    }

    #[test]
    fn the_summary_counts_outcomes_and_copies() {
        let directs = Directs::default();
        for n in 0..4 {
            assert_eq!(directs.begin(n, n != 1), n as u64);
        }
        directs.withdraw();
        directs.note_copy(0, 0);
        (0..4).for_each(|_| directs.note_copy(1, 1));
        directs.note_copy(2, 0);
        directs.note_copy(9, 0);
        directs.note_end(0, End::Delivered);
        directs.note_end(1, End::Undelivered);
        let summary = directs.summary();
        assert_eq!((summary.sent, summary.delivered, summary.undelivered), (3, 1, 1));
        assert_eq!((summary.resent, summary.under_way), (3, 1));
        assert_eq!(summary.wrong, [(2, "direct messages misdelivered")]);
    }

    #[test]
    fn a_formatted_text_can_be_parsed() {
        let text = Text { run: 12, number: 345 };
        assert_eq!(Text::parse(&text.to_string()), Some(text));
        assert_eq!(Text::parse("direct action"), None);
    }
}
