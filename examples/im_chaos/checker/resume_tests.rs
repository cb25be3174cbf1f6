use super::tests::{ALL, LEFT, Run, at};
use crate::journal::{Event, Recovered};

/// Bot 2 leaves, misses a message, and resumes.
fn resume(must_recover: bool, is_own: bool, recovered: Recovered, position: u64) -> Run {
    let mut run = Run::new();
    run.say(at(1, 1), 1, &ALL);
    run.add(2, LEFT);
    run.say(at(1, 2), 2, &[0, 1]);
    run.add(2, Event::Resumed { must_recover, is_own });
    run.join(2, at(1, position), recovered);
    run
}

#[test]
fn a_resume_with_the_expected_answer_is_accepted() {
    let mut run = resume(true, true, Recovered::Yes, 1);
    run.receive(2, at(1, 2), 2);
    let verdict = run.verdict();
    assert!(!verdict.has_faults(), "{verdict:?}");
    assert_eq!((verdict.resumes, verdict.wrong_resumes), (Some(1), 0));
    let verdict = resume(false, true, Recovered::No, 2).verdict();
    assert!(!verdict.has_faults(), "{verdict:?}");
    assert_eq!((verdict.resumes, verdict.noticed), (Some(1), 1));
    assert_eq!(Run::new().verdict().resumes, None);
}

#[test]
fn a_resume_with_another_answer_is_found() {
    for (must_recover, recovered) in
        [(true, Recovered::No), (false, Recovered::Yes), (true, Recovered::New), (false, Recovered::New)]
    {
        let mut run = resume(must_recover, true, recovered, 1);
        run.receive(2, at(1, 2), 2);
        let verdict = run.verdict();
        assert_eq!(verdict.wrong_resumes, 1, "{must_recover} {recovered:?}");
        assert!(verdict.has_faults() && verdict.examples[0].contains("bot 2 has resumed at 1:1"));
    }
}

#[test]
fn a_resume_without_an_answer_is_found() {
    let mut run = resume(true, true, Recovered::Yes, 2);
    (0..2).for_each(|_| run.add(1, Event::Resumed { must_recover: true, is_own: true }));
    let verdict = run.verdict();
    assert_eq!((verdict.resumes, verdict.wrong_resumes), (Some(3), 2));
}

#[test]
fn a_loss_and_a_doubled_message_after_a_resume_are_found() {
    let mut run = resume(true, true, Recovered::Yes, 1);
    run.receive(2, at(1, 1), 1);
    let verdict = run.verdict();
    assert_eq!((verdict.lost, verdict.doubled, verdict.wrong_resumes), (1, 1, 0));
}

#[test]
fn a_stranger_may_receive_again_only_messages_behind_its_new_position() {
    let mut run = resume(false, false, Recovered::No, 0);
    run.receive(2, at(1, 1), 1);
    run.receive(2, at(1, 2), 2);
    let verdict = run.verdict();
    assert!(!verdict.has_faults(), "{verdict:?}");
    run.receive(2, at(1, 2), 2);
    assert_eq!(run.verdict().doubled, 1);
    // A message before that position is doubled, and a missing message behind it is lost.
    let mut run = resume(false, false, Recovered::No, 1);
    run.receive(2, at(1, 1), 1);
    let verdict = run.verdict();
    assert_eq!((verdict.doubled, verdict.lost), (1, 1));
}

#[test]
fn a_member_that_has_seen_a_lost_message_must_be_told() {
    // The store loses the second message.
    let mut run = Run::new();
    run.say(at(1, 1), 1, &ALL);
    run.say(at(1, 2), 2, &[0, 1]);
    run.add(0, Event::Gap { position: at(1, 1) });
    run.say(at(2, 2), 3, &ALL);
    let verdict = run.verdict();
    assert_eq!((verdict.untold, verdict.out_of_order), (1, 0));
    assert!(verdict.has_faults() && verdict.examples[0].contains("bot 1 was at 1:2"), "{verdict:?}");
    // Also a member that comes back.
    let mut run = Run::new();
    run.say(at(1, 1), 1, &ALL);
    run.add(2, LEFT);
    [0, 1].into_iter().for_each(|bot| run.add(bot, Event::Gap { position: at(1, 0) }));
    run.say(at(2, 1), 2, &[0, 1]);
    run.join(2, at(2, 1), Recovered::Yes);
    assert_eq!(run.verdict().untold, 1);
}
