//! Direct messages of the chat server: two or three sessions on one manual clock.

use crate::im::*;
use serde_json::{Value, json};
use std::time::Duration;

const MAX_UNACKED: usize = SETTINGS.max_unacked;
const TIMEOUT: Duration = SETTINGS.ack_timeout;
/// The smallest step of the clock.
const INSTANT: Duration = Duration::from_nanos(1);

fn psst(from: &str, id: u64) -> Value {
    json!({"type": "direct", "from": from, "text": "psst", "id": id})
}

fn delivered(to: &str, id: impl Into<Value>) -> Value {
    json!({"type": "delivered", "to": to, "id": id.into()})
}

#[test]
fn the_sender_is_notified_of_the_acknowledgement() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    ann.direct("bob", "mine");
    ann.hear_nothing();
    assert_eq!(bob.hear_one(), psst("ann", 1));
    assert_eq!(bob.armed(), 1);
    bob.ack(1);
    bob.hear_nothing();
    assert_eq!(bob.armed(), 0, "its timeout is cancelled");
    assert_eq!(ann.hear_one(), delivered("bob", "mine"));
    bob.0.advance(10 * TIMEOUT);
    bob.hear_nothing();
    ann.hear_nothing();
}

#[test]
fn an_id_belongs_to_its_sender_and_is_optional() {
    let world = World::new();
    let (mut ann, mut bob, mut cy) = (world.login("ann"), world.login("bob"), world.login("cy"));
    ann.direct("cy", 7);
    bob.direct("cy", 7);
    bob.say(json!({"type": "direct", "to": "cy", "text": "psst"}));
    assert_eq!(cy.hear(), [psst("ann", 1), psst("bob", 2), psst("bob", 3)], "the server's own ids");
    cy.ack(3);
    cy.ack(1);
    cy.ack(2);
    assert_eq!(ann.hear(), [delivered("cy", 7)]);
    assert_eq!(bob.hear(), [json!({"type": "delivered", "to": "cy"}), delivered("cy", 7)]);
}

#[test]
fn a_user_can_send_a_message_to_itself() {
    let mut ann = World::new().login("ann");
    ann.direct("ann", 1);
    assert_eq!(ann.hear_one(), psst("ann", 1));
    ann.ack(1);
    assert_eq!(ann.hear_one(), delivered("ann", 1));
}

#[test]
fn an_unacknowledged_message_is_sent_again_three_times() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    ann.direct("bob", 1);
    assert_eq!(bob.hear_one(), psst("ann", 1));
    for _ in 0..3 {
        bob.0.advance(TIMEOUT - INSTANT);
        bob.hear_nothing();
        bob.0.advance(INSTANT);
        assert_eq!(bob.hear_one(), psst("ann", 1), "the same line");
        ann.hear_nothing();
    }
    bob.0.advance(TIMEOUT - INSTANT);
    ann.hear_nothing();
    bob.0.advance(INSTANT);
    assert_eq!(ann.hear_error(), refused("undelivered", 1));
    bob.hear_nothing();
    assert_eq!(bob.armed(), 0);
    bob.ack(1);
    bob.0.advance(10 * TIMEOUT);
    bob.hear_nothing();
    ann.hear_nothing();
}

#[test]
fn a_retransmitted_message_can_be_acknowledged() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    ann.direct("bob", 1);
    assert_eq!(bob.hear_one(), psst("ann", 1));
    bob.0.advance(TIMEOUT);
    assert_eq!(bob.hear_one(), psst("ann", 1));
    bob.0.advance(TIMEOUT / 2);
    bob.ack(1);
    assert_eq!(ann.hear_one(), delivered("bob", 1));
    assert_eq!(bob.armed(), 0);
    bob.0.advance(10 * TIMEOUT);
    bob.hear_nothing();
    ann.hear_nothing();
}

#[test]
fn each_message_has_its_own_timeout() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    ann.direct("bob", 1);
    bob.hear();
    bob.0.advance(TIMEOUT / 2);
    ann.direct("bob", 2);
    assert_eq!(bob.hear_one(), psst("ann", 2));
    bob.0.advance(TIMEOUT / 2);
    assert_eq!(bob.hear_one(), psst("ann", 1));
    bob.ack(1);
    bob.0.advance(TIMEOUT / 2);
    assert_eq!(bob.hear_one(), psst("ann", 2));
}

#[test]
fn unexpected_acknowledgements_are_ignored() {
    let world = World::new();
    let (mut ann, mut bob, mut cy) = (world.login("ann"), world.login("bob"), world.login("cy"));
    ann.direct("bob", 1);
    assert_eq!(bob.hear_one(), psst("ann", 1));
    cy.ack(1);
    ann.ack(1);
    bob.ack(2);
    bob.ack(0);
    ann.hear_nothing();
    bob.ack(1);
    bob.ack(1);
    assert_eq!(ann.hear_one(), delivered("bob", 1), "once");
    bob.hear_nothing();
    cy.hear_nothing();
    assert!(ann.0.is_open() && bob.0.is_open() && cy.0.is_open());
}

#[test]
fn a_message_to_an_absent_user_fails_immediately() {
    let world = World::new();
    let mut ann = world.login("ann");
    ann.direct("bob", "x");
    assert_eq!(ann.hear_error(), refused("undelivered", "x"));
    let mut bob = world.login("bob");
    bob.leave();
    ann.direct("bob", "y");
    assert_eq!(ann.hear_error(), refused("undelivered", "y"), "closed, but not dropped yet");
    drop(bob);
    ann.direct("bob", "z");
    assert_eq!(ann.hear_error(), refused("undelivered", "z"));
}

#[test]
fn messages_fail_when_their_receiver_leaves() {
    let world = World::new();
    let (mut ann, mut bob, mut cy) = (world.login("ann"), world.login("bob"), world.login("cy"));
    ann.direct("bob", 1);
    cy.direct("bob", 2);
    assert_eq!(bob.hear(), [psst("ann", 1), psst("cy", 2)]);
    // The third message is still in transit to bob's loop.
    ann.direct("bob", 3);
    bob.0.fail_inbound(std::io::ErrorKind::ConnectionReset.into());
    assert!(bob.0.is_closed());
    let mut failed: Vec<_> = ann.hear().iter().map(|reply| reply["id"].as_u64().unwrap()).collect();
    failed.sort_unstable();
    assert_eq!(failed, [1, 3]);
    assert_eq!(cy.hear_error(), refused("undelivered", 2));
    drop(bob);
    let mut bob = world.login("bob");
    bob.hear_nothing();
    bob.ack(1);
    ann.hear_nothing();
}

#[test]
fn messages_fail_when_the_receivers_loop_ends() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    ann.direct("bob", 1);
    bob.hear();
    ann.direct("bob", 2);
    drop(bob);
    assert_eq!(ann.hear().len(), 2, "one unacknowledged, one queued");
}

#[test]
fn a_sender_that_leaves_does_not_affect_the_receiver() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    ann.direct("bob", 1);
    ann.direct("bob", 2);
    assert_eq!(bob.hear().len(), 2);
    ann.leave();
    drop(ann);
    bob.ack(1);
    bob.0.advance(TIMEOUT);
    assert_eq!(bob.hear_one(), psst("ann", 2));
    bob.0.advance(3 * TIMEOUT);
    assert_eq!(bob.armed(), 0);
    let mut ann = world.login("ann");
    ann.hear_nothing();
}

#[test]
fn unacknowledged_messages_of_a_sender_are_limited() {
    let world = World::new();
    let (mut ann, mut bob, mut cy) = (world.login("ann"), world.login("bob"), world.login("cy"));
    for id in 1..=MAX_UNACKED {
        ann.direct(if id == 1 { "bob" } else { "cy" }, id);
    }
    ann.direct("bob", "more");
    assert_eq!(ann.hear_error(), refused("too_many_unacked", "more"));
    assert_eq!((bob.hear().len(), cy.hear().len()), (1, MAX_UNACKED - 1));
    cy.direct("bob", "others may");
    assert_eq!(bob.hear_one(), psst("cy", 2));
    bob.ack(1);
    assert_eq!(ann.hear_one(), delivered("bob", 1));
    ann.direct("bob", "next");
    assert_eq!(bob.hear_one(), psst("ann", 3));
    ann.direct("bob", "more");
    assert_eq!(ann.hear_error(), refused("too_many_unacked", "more"));
}

#[test]
fn unacknowledged_messages_of_a_receiver_are_limited() {
    let world = World::new();
    let (mut ann, mut bob, mut cy) = (world.login("ann"), world.login("bob"), world.login("cy"));
    ann.direct("cy", "a1");
    ann.direct("cy", "a2");
    bob.direct("cy", "b1");
    bob.direct("cy", "b2");
    assert_eq!(cy.hear(), [psst("ann", 1), psst("ann", 2), psst("bob", 3)]);
    assert_eq!(bob.hear_error(), refused("too_many_unacked", "b2"));
    cy.ack(2);
    assert_eq!(ann.hear_one(), delivered("cy", "a2"));
    bob.direct("cy", "b3");
    assert_eq!(cy.hear_one(), psst("bob", 4));
    cy.ack(1);
    cy.ack(3);
    cy.ack(4);
    assert_eq!(ann.hear_one(), delivered("cy", "a1"), "nothing else is lost");
    assert_eq!(bob.hear(), [delivered("cy", "b1"), delivered("cy", "b3")]);
}

#[test]
fn failed_messages_no_longer_count() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    for round in 0..3 {
        for id in 1..=MAX_UNACKED {
            ann.direct("bob", id);
        }
        bob.0.run_pending();
        ann.hear_nothing();
        bob.0.advance(4 * TIMEOUT);
        assert_eq!(bob.hear().len(), 4 * MAX_UNACKED, "round {round}");
        assert_eq!(ann.hear().len(), MAX_UNACKED);
    }
}

#[test]
fn direct_messages_require_a_login() {
    let world = World::new();
    let (mut ann, mut bob) = (world.connect(), world.login("bob"));
    ann.direct("bob", 1);
    assert_eq!(ann.hear_error(), refused("not_logged_in", 1));
    ann.ack(1);
    assert_eq!(ann.hear_error(), refused("not_logged_in", Value::Null));
    bob.direct("a name with blanks", 2);
    assert_eq!(bob.hear_error(), refused("bad_request", 2));
    bob.say(json!({"type": "ack", "id": "1"}));
    assert_eq!(bob.hear_error(), refused("bad_request", Value::Null));
    bob.hear_nothing();
}

#[test]
fn a_receiver_that_does_not_read_does_not_close_its_sender() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    bob.0.set_outbound_room(Some(0));
    ann.direct("bob", 1);
    bob.hear_nothing();
    bob.0.advance(4 * TIMEOUT);
    assert_eq!(ann.hear_error(), refused("undelivered", 1));
    assert!(ann.0.is_open());
}
