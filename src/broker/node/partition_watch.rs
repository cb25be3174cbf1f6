//! `PartitionWatch`: when a node has to verify a partition. Pure.
//!
//! Invariants: one question is under way at a time. While events follow each other in sequence, and
//! within an interval at least one does, nothing is asked, except that all topics are asked for
//! after a number of intervals, so that the broker keeps them. After a gap, and after each
//! interruption, all topics are asked for, with an answer that has everything before the event that
//! revealed the gap. An event that arrives before the first answer reveals a gap, unless the answer
//! reaches up to it.

use crate::broker::store::Sequence;

/// A question to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ask {
    /// The sequence only.
    Sequence,
    /// The tops of all followed topics, too.
    Topics,
}

#[derive(Debug, Default)]
pub(super) struct PartitionWatch {
    /// The newest sequence of which the node knows that it has missed nothing that it does not
    /// verify.
    sequence: Option<Sequence>,
    /// Whether events are delivered.
    is_live: bool,
    /// Whether there was an event since the last tick.
    has_heard: bool,
    /// The number of ticks since all topics were asked for.
    ticks: u64,
    need: Option<Ask>,
    /// The question that was not answered. It is asked again after the next tick.
    failed: Option<Ask>,
    /// The event that revealed a gap.
    gap: Option<Sequence>,
    asking: Option<Asking>,
    next_question: u64,
}

#[derive(Debug)]
struct Asking {
    question: u64,
    ask: Ask,
    /// The sequence when the question was asked.
    sequence: Option<Sequence>,
    /// Whether the question asks for all topics of the partition.
    is_complete: bool,
}

impl PartitionWatch {
    /// Delivery is in place; earlier events may be missing.
    pub(super) fn following(&mut self) {
        self.is_live = true;
        self.sequence = None;
        self.asking = None;
        self.failed = None;
        self.need = Some(Ask::Topics);
    }

    pub(super) fn interrupted(&mut self) {
        *self = PartitionWatch { next_question: self.next_question, ..PartitionWatch::default() };
    }

    /// A topic was added. The question that is under way does not ask for it.
    pub(super) fn topic_added(&mut self) {
        if let Some(asking) = &mut self.asking {
            asking.is_complete = false;
        }
    }

    /// An event was delivered. Returns whether it reveals a gap.
    pub(super) fn event(&mut self, sequence: Sequence) -> bool {
        self.has_heard = true;
        let Some(known) = self.sequence.replace(sequence) else {
            if self.asking.is_some() {
                // The events before this one may be missing, if the answer is older than them.
                self.need = Some(Ask::Topics);
                self.gap = Some(sequence);
            }
            return false;
        };
        let is_same = known.generation == sequence.generation;
        if is_same && sequence.number <= known.number {
            self.sequence = Some(known);
            return false;
        }
        let is_gap = !is_same || sequence.number != known.number + 1;
        if is_gap {
            self.need = Some(Ask::Topics);
            self.gap = Some(sequence);
        }
        is_gap
    }

    /// An interval has passed. All topics are asked for after `most` intervals without such a
    /// question.
    pub(super) fn tick(&mut self, most: u64) {
        let is_quiet = !std::mem::take(&mut self.has_heard);
        if self.is_live {
            self.ticks += 1;
            let quiet = is_quiet.then_some(Ask::Sequence);
            let ask = if self.ticks >= most { Some(Ask::Topics) } else { quiet };
            self.need = self.need.max(ask);
        }
        self.need = self.need.max(self.failed.take());
    }

    /// Returns the next question, with its number.
    pub(super) fn next_ask(&mut self) -> Option<(u64, Ask)> {
        if self.asking.is_some() || !self.is_live {
            return None;
        }
        let ask = self.need.take()?;
        let question = self.next_question;
        self.next_question += 1;
        self.gap = None;
        self.asking = Some(Asking { question, ask, sequence: self.sequence, is_complete: true });
        Some((question, ask))
    }

    /// A question was answered with the sequence of the partition.
    pub(super) fn answered(&mut self, question: u64, found: Sequence) {
        let Some(Asking { ask, sequence: asked, is_complete, .. }) =
            self.asking.take_if(|asking| asking.question == question)
        else {
            return;
        };
        let is_known = self.sequence.is_some_and(|known| is_covered(found, known));
        if ask == Ask::Sequence {
            // An event that is on its way may be the reason. Then the topics have nothing new.
            self.need = if is_known { self.need } else { Some(Ask::Topics) };
            return;
        }
        self.failed = None;
        self.ticks = 0;
        if self.gap.is_some_and(|gap| has_all_before(found, gap)) {
            (self.need, self.gap) = (None, None);
        }
        if !is_known {
            if self.sequence == asked || self.sequence.is_some_and(|known| is_covered(known, found)) {
                self.sequence = Some(found);
            } else {
                self.need = Some(Ask::Topics);
            }
        }
        if !is_complete {
            self.need = Some(Ask::Topics);
        }
    }

    /// A question was not answered. It is asked again after the next tick, also if events have
    /// arrived until then: they say nothing about the topics that were to be verified.
    pub(super) fn failed(&mut self, question: u64) {
        if let Some(asking) = self.asking.take_if(|asking| asking.question == question) {
            self.failed = self.failed.max(Some(asking.ask));
        }
    }
}

/// Returns whether an answer with the sequence `found` has everything up to `sequence`.
fn is_covered(sequence: Sequence, found: Sequence) -> bool {
    sequence.generation == found.generation && sequence.number <= found.number
}

/// Returns whether an answer with the sequence `found` has everything before an event.
fn has_all_before(found: Sequence, event: Sequence) -> bool {
    event.generation == found.generation && event.number <= found.number.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More intervals than a test has.
    const MANY: u64 = 100;

    fn live() -> PartitionWatch {
        let mut watch = PartitionWatch::default();
        watch.following();
        assert_eq!(watch.next_ask(), Some((0, Ask::Topics)));
        watch.answered(0, Sequence::new(1, 10));
        watch
    }

    #[test]
    fn events_in_sequence_need_no_question() {
        let mut watch = live();
        for number in 8..20 {
            assert!(!watch.event(Sequence::new(1, number)), "late ones and the next ones");
            watch.tick(MANY);
            assert_eq!(watch.next_ask(), None);
        }
    }

    #[test]
    fn a_gap_and_another_generation_need_the_topics() {
        let mut watch = live();
        assert!(watch.event(Sequence::new(1, 12)));
        assert_eq!(watch.next_ask(), Some((1, Ask::Topics)));
        assert!(watch.event(Sequence::new(1, 14)));
        assert_eq!(watch.next_ask(), None, "one question at a time");
        watch.answered(1, Sequence::new(1, 12));
        assert_eq!(watch.next_ask(), Some((2, Ask::Topics)), "the answer is older than the gap");
        watch.answered(2, Sequence::new(1, 14));
        assert_eq!(watch.next_ask(), None);
        assert!(watch.event(Sequence::new(2, 15)));
        assert_eq!(watch.next_ask(), Some((3, Ask::Topics)));
    }

    #[test]
    fn an_answer_that_is_newer_than_the_gap_is_enough() {
        let mut watch = live();
        watch.event(Sequence::new(1, 12));
        watch.next_ask();
        watch.event(Sequence::new(1, 14));
        // The event 14 was delivered.
        watch.answered(1, Sequence::new(1, 13));
        assert_eq!(watch.next_ask(), None);
        assert!(!watch.event(Sequence::new(1, 15)) && !watch.event(Sequence::new(1, 16)));
    }

    #[test]
    fn an_event_before_the_first_answer_may_reveal_a_loss() {
        for (first, is_lost) in [(9, false), (11, false), (12, true)] {
            let mut watch = PartitionWatch::default();
            watch.following();
            watch.next_ask();
            assert!(!watch.event(Sequence::new(1, first)));
            watch.event(Sequence::new(1, first + 1));
            watch.answered(0, Sequence::new(1, 10));
            let expected = is_lost.then_some((1, Ask::Topics));
            assert_eq!(watch.next_ask(), expected, "the first event has the number {first}");
        }
    }

    #[test]
    fn a_topic_that_was_added_after_the_question_needs_another_one() {
        let mut watch = live();
        watch.topic_added();
        assert_eq!(watch.next_ask(), None);
        watch.event(Sequence::new(1, 12));
        watch.next_ask();
        watch.topic_added();
        watch.answered(1, Sequence::new(1, 12));
        assert_eq!(watch.next_ask(), Some((2, Ask::Topics)));
        watch.answered(2, Sequence::new(1, 12));
        assert_eq!(watch.next_ask(), None);
    }

    #[test]
    fn a_quiet_partition_is_asked_for_its_sequence() {
        let mut watch = live();
        watch.tick(MANY);
        assert_eq!(watch.next_ask(), Some((1, Ask::Sequence)));
        watch.answered(1, Sequence::new(1, 10));
        assert_eq!(watch.next_ask(), None);
        watch.tick(MANY);
        watch.next_ask();
        watch.answered(2, Sequence::new(1, 11));
        assert_eq!(watch.next_ask(), Some((3, Ask::Topics)), "an event was lost");
    }

    /// Otherwise the broker would remove the metadata of a topic that has members.
    #[test]
    fn all_topics_are_asked_for_after_some_intervals_also_if_events_arrive() {
        for has_events in [false, true] {
            let mut watch = live();
            let mut asked = Vec::new();
            for number in 11..20 {
                if has_events {
                    assert!(!watch.event(Sequence::new(1, number)));
                }
                watch.tick(3);
                if let Some((question, ask)) = watch.next_ask() {
                    watch.answered(question, Sequence::new(1, if has_events { number } else { 10 }));
                    asked.push((number, ask));
                }
            }
            let (sequence, topics) = (Ask::Sequence, Ask::Topics);
            let quiet = [11, 12, 13, 14, 15, 16, 17, 18, 19]
                .map(|number| (number, if number % 3 == 1 { topics } else { sequence }));
            let expected =
                if has_events { vec![(13, topics), (16, topics), (19, topics)] } else { quiet.into() };
            assert_eq!(asked, expected);
        }
    }

    #[test]
    fn an_unanswered_question_is_asked_again_also_after_events() {
        let mut watch = live();
        watch.event(Sequence::new(1, 12));
        watch.next_ask();
        watch.failed(1);
        assert!(!watch.event(Sequence::new(1, 13)));
        assert_eq!(watch.next_ask(), None, "not before the next tick");
        watch.tick(MANY);
        assert_eq!(watch.next_ask(), Some((2, Ask::Topics)));
        watch.answered(2, Sequence::new(1, 13));
        assert!(!watch.event(Sequence::new(1, 14)));
        watch.tick(MANY);
        assert_eq!(watch.next_ask(), None);
    }

    #[test]
    fn an_unanswered_question_after_an_interruption_is_asked_again() {
        let mut watch = PartitionWatch::default();
        watch.following();
        watch.next_ask();
        watch.failed(0);
        watch.event(Sequence::new(1, 12));
        watch.tick(MANY);
        assert_eq!(watch.next_ask(), Some((1, Ask::Topics)));
    }

    #[test]
    fn an_interruption_ends_questions() {
        let mut watch = live();
        watch.tick(MANY);
        watch.next_ask();
        watch.interrupted();
        watch.tick(MANY);
        assert_eq!(watch.next_ask(), None);
        watch.following();
        watch.answered(1, Sequence::new(1, 10));
        assert_eq!(watch.next_ask(), Some((2, Ask::Topics)));
    }
}
