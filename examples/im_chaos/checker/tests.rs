use super::{Verdict, check};
use crate::journal::{Census, Entry, Event, Journal, Recovered};
use netwheel::broker::Position;
use std::time::Duration;

const BOTS: u32 = 3;
pub(super) const LEFT: Event = Event::Left { stays_away: false };

pub(super) fn at(epoch: u64, offset: u64) -> Position {
    Position::new(epoch, offset)
}

/// A run of three bots in one room, in which the test plants faults.
#[derive(Default)]
pub(super) struct Run(Journal);

impl Run {
    pub(super) fn new() -> Self {
        let mut run = Run::default();
        (0..BOTS).for_each(|bot| run.join(bot, at(1, 0), Recovered::New));
        run
    }

    pub(super) fn add(&mut self, bot: u32, event: Event) {
        let at = Duration::from_millis(self.0.entries.len() as u64);
        self.0.entries.push(Entry { at, bot, event });
    }

    pub(super) fn join(&mut self, bot: u32, position: Position, recovered: Recovered) {
        self.add(bot, Event::Joined { position, recovered });
    }

    pub(super) fn receive(&mut self, bot: u32, position: Position, number: u32) {
        self.add(bot, Event::Received { position, sender: 0, number });
    }

    /// Bot 0 sends a message, which some bots receive.
    pub(super) fn say(&mut self, position: Position, number: u32, receivers: &[u32]) {
        self.add(0, Event::Accepted { position, number });
        receivers.iter().for_each(|bot| self.receive(*bot, position, number));
    }

    pub(super) fn verdict(&self) -> Verdict {
        check(&self.0, BOTS, 1)
    }
}

pub(super) const ALL: [u32; 3] = [0, 1, 2];

#[test]
fn a_run_without_faults_is_accepted() {
    let mut run = Run::new();
    (1..=9).for_each(|number| run.say(at(1, number.into()), number, &ALL));
    let verdict = run.verdict();
    assert!(!verdict.has_faults(), "{verdict:?}");
    assert_eq!((verdict.accepted, verdict.deliveries, verdict.notices), (9, 27, 0));
    assert_eq!((verdict.absent, verdict.ghosts), (None, None));
}

#[test]
fn a_lost_message_is_found_once_for_each_member() {
    let mut run = Run::new();
    run.say(at(1, 1), 1, &ALL);
    run.say(at(1, 2), 2, &[0]);
    run.say(at(1, 3), 3, &ALL);
    let verdict = run.verdict();
    assert_eq!((verdict.lost, verdict.noticed, verdict.out_of_order), (2, 0, 0));
    assert!(verdict.examples[0].contains("bot 1 has not received message 2 of bot 0 at 1:2"), "{verdict:?}");
}

#[test]
fn a_message_before_the_first_join_is_not_due() {
    let mut run = Run::default();
    run.join(0, at(1, 0), Recovered::New);
    run.say(at(1, 1), 1, &[0]);
    run.join(1, at(1, 1), Recovered::New);
    run.say(at(1, 2), 2, &[0, 1]);
    assert!(!run.verdict().has_faults());
}

#[test]
fn a_doubled_message_is_found_by_position_and_by_number() {
    let mut run = Run::new();
    run.say(at(1, 1), 1, &ALL);
    run.receive(2, at(1, 1), 1);
    assert_eq!(run.verdict().doubled, 1);
    run.receive(1, at(1, 2), 1);
    assert_eq!(run.verdict().doubled, 2);
    // Also behind a later message of the sender.
    run.say(at(1, 3), 2, &ALL);
    run.receive(1, at(1, 4), 1);
    let verdict = run.verdict();
    assert_eq!((verdict.doubled, verdict.out_of_order), (3, 0));
}

#[test]
fn reordered_messages_are_found() {
    let mut run = Run::new();
    run.say(at(1, 1), 1, &[0, 1]);
    run.say(at(1, 2), 2, &ALL);
    run.receive(2, at(1, 1), 1);
    let verdict = run.verdict();
    // By its position, and by the number of its sender.
    assert_eq!((verdict.out_of_order, verdict.lost, verdict.doubled), (2, 0, 0));
}

#[test]
fn messages_that_a_resumed_member_misses_are_lost_without_a_notice() {
    for (recovered, lost, noticed) in [(Recovered::Yes, 2, 0), (Recovered::No, 0, 2)] {
        let mut run = Run::new();
        run.say(at(1, 1), 1, &ALL);
        run.add(2, LEFT);
        run.say(at(1, 2), 2, &[0, 1]);
        run.say(at(1, 3), 3, &[0, 1]);
        run.join(2, at(1, 3), recovered);
        run.say(at(1, 4), 4, &ALL);
        let verdict = run.verdict();
        assert_eq!(
            (verdict.lost, verdict.noticed, verdict.notices),
            (lost, noticed, noticed / 2),
            "{recovered:?}"
        );
    }
}

#[test]
fn a_notice_does_not_excuse_later_losses() {
    let mut run = Run::new();
    run.say(at(1, 1), 1, &ALL);
    run.say(at(1, 2), 2, &[0, 1]);
    run.add(2, Event::Gap { position: at(1, 2) });
    run.say(at(1, 3), 3, &[0, 1]);
    run.say(at(1, 4), 4, &ALL);
    let verdict = run.verdict();
    assert_eq!((verdict.lost, verdict.noticed), (1, 1));
}

#[test]
fn a_rewound_store_is_a_fault_only_for_members_without_a_notice() {
    let mut run = Run::new();
    run.say(at(1, 1), 1, &ALL);
    // The store loses this message. Bot 1 has received it. Bot 2 has not, and gets no notice.
    run.say(at(1, 2), 2, &[0, 1]);
    [0, 1].into_iter().for_each(|bot| run.add(bot, Event::Gap { position: at(1, 1) }));
    run.say(at(2, 2), 3, &ALL);
    let verdict = run.verdict();
    assert_eq!((verdict.lost, verdict.without_notice, verdict.noticed, verdict.notices), (0, 1, 0, 2));
    assert_eq!((verdict.doubled, verdict.out_of_order), (0, 0));
    let mut noticed = run;
    noticed.0.entries.insert(
        noticed.0.entries.len() - 4,
        Entry { at: Duration::ZERO, bot: 2, event: Event::Gap { position: at(1, 1) } },
    );
    let verdict = noticed.verdict();
    assert_eq!((verdict.lost, verdict.without_notice, verdict.noticed), (0, 0, 1));
}

#[test]
fn without_epochs_the_positions_in_the_store_tell_what_it_has_lost() {
    let mut run = Run::new();
    run.say(at(1, 1), 1, &ALL);
    run.say(at(1, 2), 2, &[0]);
    run.say(at(1, 3), 3, &[0]);
    run.0.stored = Some([at(1, 1), at(1, 3)].into());
    let verdict = run.verdict();
    assert_eq!((verdict.lost, verdict.without_notice), (2, 2));
}

#[test]
fn a_repetition_of_a_message_that_the_store_has_lost_is_no_fault() {
    let mut run = Run::new();
    run.say(at(1, 1), 1, &ALL);
    // Stored and lost without an answer to the sender, which therefore repeats it.
    run.receive(1, at(1, 2), 2);
    (0..BOTS).for_each(|bot| run.add(bot, Event::Gap { position: at(1, 1) }));
    run.say(at(2, 2), 2, &ALL);
    let verdict = run.verdict();
    assert!(!verdict.has_faults(), "{verdict:?}");
}

#[test]
fn an_old_epoch_does_not_return() {
    let mut run = Run::new();
    run.say(at(1, 1), 1, &ALL);
    run.say(at(2, 2), 2, &ALL);
    run.say(at(1, 3), 3, &ALL);
    assert_eq!(run.verdict().out_of_order, 3);
}

#[test]
fn gaps_in_service_have_quantiles() {
    let mut run = Run::new();
    run.say(at(1, 1), 1, &ALL);
    run.0.entries.push(Entry {
        at: Duration::from_secs(7),
        bot: 2,
        event: Event::Received { position: at(1, 2), sender: 0, number: 2 },
    });
    let verdict = run.verdict();
    assert!(verdict.gap(0.5) < Duration::from_secs(1));
    assert!(verdict.gap(0.99) > Duration::from_secs(6));
    // The time for which a bot stays away is not a gap.
    let last = run.0.entries.len() - 1;
    run.0
        .entries
        .insert(last, Entry { at: Duration::from_secs(1), bot: 2, event: Event::Left { stays_away: true } });
    assert!(run.verdict().gap(1.0) < Duration::from_secs(1));
}

#[test]
fn members_that_are_not_listed_and_ghosts_are_found() {
    let second = Duration::from_secs;
    let mut run = Run::new();
    run.0.entries.push(Entry { at: second(10), bot: 2, event: LEFT });
    let list = |run: &mut Run, asked: u64, users: &[u32]| {
        let at = second(asked) + Duration::from_millis(100);
        run.0.censuses.push(Census { asked: second(asked), at, room: 0, users: users.to_vec() });
    };
    // Too early for bot 1, and then all are there.
    list(&mut run, 1, &[0, 2]);
    list(&mut run, 5, &[0, 1, 2]);
    // Bot 2 is listed for four seconds after its end.
    list(&mut run, 14, &[0, 1, 2]);
    list(&mut run, 16, &[0, 1]);
    let verdict = run.verdict();
    assert_eq!((verdict.absent, verdict.ghosts), (Some(0), Some(second(4))));
    // A bot that is listed just before it has joined again is not a ghost.
    let joined = Event::Joined { position: at(1, 0), recovered: Recovered::Yes };
    run.0.entries.push(Entry { at: second(14) + Duration::from_millis(200), bot: 2, event: joined });
    run.0.censuses.truncate(3);
    assert_eq!(run.verdict().ghosts, Some(Duration::ZERO));
    run.0.entries.pop();
    list(&mut run, 16, &[0, 1]);
    run.0.censuses[1].users.remove(1);
    let verdict = run.verdict();
    assert_eq!((verdict.absent, verdict.absent_for), (Some(1), Some(Duration::from_millis(100))));
    assert_eq!(verdict.no_list_for, Some(second(9)));
    // Until it is listed again.
    run.0.censuses[2].users.remove(1);
    assert_eq!(run.verdict().absent_for, Some(Duration::from_millis(9100)));
}
