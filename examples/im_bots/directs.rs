//! What becomes of the direct messages of a run: one record each.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How often a message comes that is never acknowledged: once, and three times again.
const COPIES: u32 = 4;

/// All direct messages of the run, by their number.
#[derive(Default)]
pub(crate) struct Directs(Mutex<State>);

#[derive(Default)]
struct State {
    records: Vec<Record>,
    under_way: u64,
    /// Copies that came to somebody else.
    astray: u64,
    /// The server's timeout, as it told.
    ack_timeout: Duration,
}

struct Record {
    to: usize,
    /// Whether its receiver acknowledges what it gets.
    acks: bool,
    copies: u32,
    end: Option<End>,
    ends: u32,
}

/// How a direct message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Delivered,
    Undelivered,
    /// Too many waited for their acknowledgement already.
    Refused,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) undelivered: u64,
    pub(crate) refused: u64,
    /// Copies besides the first.
    pub(crate) resent: u64,
    pub(crate) under_way: u64,
    /// What is wrong with those that have ended.
    pub(crate) wrong: Vec<(u64, &'static str)>,
}

impl Directs {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message is about to be sent to this bot; its number.
    pub(crate) fn begin(&self, to: usize, acks: bool) -> u64 {
        let mut state = self.lock();
        state.records.push(Record { to, acks, copies: 0, end: None, ends: 0 });
        state.under_way += 1;
        state.records.len() as u64 - 1
    }

    /// The message that was begun last was not sent.
    pub(crate) fn withdraw(&self) {
        let mut state = self.lock();
        state.records.pop();
        state.under_way -= 1;
    }

    /// A copy came to this bot.
    pub(crate) fn note_copy(&self, number: u64, to: usize) {
        let mut state = self.lock();
        match state.record(number) {
            Some(record) if record.to == to => record.copies += 1,
            _ => state.astray += 1,
        }
    }

    /// The sender was told.
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

    /// How long a message may be under way.
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
        wrong.push((state.astray, "direct messages astray"));
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
    /// What must not be. A receiver that acknowledges may get a copy all the same, if it or the server is slow.
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
    /// None if it was not a bot who wrote that.
    pub(crate) fn parse(text: &str) -> Option<Text> {
        let (run, number) = text.strip_prefix("direct ")?.split_once(' ')?;
        Some(Text { run: run.parse().ok()?, number: number.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with one message to bot 3.
    fn wrong(acks: bool, copies: u32, ends: &[End]) -> Vec<(u64, &'static str)> {
        let directs = Directs::default();
        let number = directs.begin(3, acks);
        (0..copies).for_each(|_| directs.note_copy(number, 3));
        ends.iter().for_each(|&end| directs.note_end(number, end));
        directs.summary().wrong
    }

    #[test]
    fn what_should_be_is_not_wrong() {
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
    fn what_should_not_be_is_wrong() {
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
    fn they_are_counted() {
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
        assert_eq!(summary.wrong, [(2, "direct messages astray")]);
    }

    #[test]
    fn a_text_can_be_read_again() {
        let text = Text { run: 12, number: 345 };
        assert_eq!(Text::parse(&text.to_string()), Some(text));
        assert_eq!(Text::parse("direct action"), None);
    }
}
