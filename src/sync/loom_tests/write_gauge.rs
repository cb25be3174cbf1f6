//! Producers against the loop. A lost notification shows as a producer that waits forever.
//!
//! The models run the gauge that ships, with its slack, with pauses by weight and by messages of
//! unknown size, and with reservations that are given back. [`Output`] repeats the steps of the
//! loop and the handles around it (`channel::core::outbound::writability`, `channel::handle`). If
//! that code changes, change it here too.
//!
//! Left out: messages that are sent partly, marks that a loop without memory lowers, the permits of
//! handles, and the end of the output, which fails all waiters.

use super::{model, model_up_to};
use crate::{
    buffer::WaterMark,
    sync::write_gauge::{MessageWeight, WriteGauge},
};
use loom::{sync::Mutex, thread};
use std::sync::Arc;

/// The smallest mark with a slack, which is a sixteenth of it.
const HIGH: usize = 16 * 1024;

/// A weight that is within the slack.
const SMALL: usize = 100;

/// A weight of which two exceed the mark.
const HALF: usize = HIGH * 3 / 4;

/// What a channel's handles share with its loop.
struct Output {
    gauge: WriteGauge,
    /// The loop's queue.
    queue: Mutex<Vec<Mail>>,
}

enum Mail {
    Message(u32),
    Check,
}

/// What the loop knows.
struct Channel {
    /// The state of which the handler was notified.
    writable: bool,
    /// The number of notifications that the channel is writable again.
    resumed: usize,
}

fn mark() -> WaterMark {
    WaterMark::new(HIGH / 2, HIGH).expect("a mark")
}

fn output() -> Arc<Output> {
    Arc::new(Output { gauge: WriteGauge::new(mark()), queue: Mutex::new(Vec::new()) })
}

impl Output {
    fn reserve(&self, message: MessageWeight) -> u32 {
        self.gauge.reserve(message, true, usize::MAX).expect("there is no limit").weight
    }

    fn queue(&self, mail: Mail) {
        self.queue.lock().unwrap().push(mail);
    }

    /// Writes a message like a handle. Returns whether the producer may continue.
    fn write(&self, message: MessageWeight) -> bool {
        let reserved = self.reserve(message);
        self.queue(Mail::Message(reserved));
        self.gauge.is_writable()
    }

    /// Reserves like a broadcast whose loop refuses it.
    fn be_refused(&self, message: MessageWeight) {
        let reserved = self.reserve(message);
        if self.gauge.release(reserved) {
            self.queue(Mail::Check);
        }
    }
}

impl Channel {
    fn new() -> Self {
        Channel { writable: true, resumed: 0 }
    }

    /// Handles the mail that is there, like a loop whose socket accepts everything. Without mail,
    /// the loop sleeps.
    fn run(&mut self, output: &Output, encoded: usize) {
        let queue = std::mem::take(&mut *output.queue.lock().unwrap());
        for mail in queue {
            match mail {
                Mail::Message(weight) => {
                    output.gauge.take(weight);
                    self.notify(output, encoded);
                    // The flush.
                    self.notify(output, 0);
                }
                Mail::Check => {
                    output.gauge.checked();
                    self.notify(output, 0);
                }
            }
        }
    }

    fn notify(&mut self, output: &Output, buffered: usize) {
        if output.gauge.is_settled(buffered) {
            return;
        }
        loop {
            let writable = output.gauge.update(buffered, mark(), self.writable);
            if writable == self.writable {
                return;
            }
            self.writable = writable;
            self.resumed += usize::from(writable);
        }
    }
}

/// Runs `producers` against a loop that encodes each message to `encoded` bytes. `paused` receives
/// whether any of them has seen a pause.
fn race<const N: usize>(
    producers: [fn(&Output) -> bool; N],
    encoded: usize,
    after: fn(&Channel, bool),
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (output, mut channel) = (output(), Channel::new());
        let threads = producers.map(|produce| {
            let output = output.clone();
            thread::spawn(move || produce(&output))
        });
        channel.run(&output, encoded);
        let writable = threads.map(|thread| thread.join().unwrap());
        channel.run(&output, encoded);
        assert!(channel.writable && output.gauge.is_writable(), "nothing waits, but the channel is paused");
        after(&channel, writable.contains(&false));
    }
}

fn who_saw_a_pause_is_notified(channel: &Channel, paused: bool) {
    assert!(!paused || channel.resumed > 0, "a producer waits forever");
}

/// The message is within the slack of the gauge, so the loop need not publish it. It pauses its
/// producer until it is encoded.
#[test]
fn the_producer_of_a_message_of_unknown_size_is_notified() {
    model(race([|output| output.write(MessageWeight::AtLeast(SMALL))], SMALL, who_saw_a_pause_is_notified));
}

#[test]
fn the_producer_and_the_handler_are_notified_of_a_message_above_the_mark() {
    model(race([|output| output.write(MessageWeight::Known(2 * HALF))], 2 * HALF, |channel, _| {
        assert_eq!(channel.resumed, 1, "whether the producer has seen the pause or not");
    }));
}

/// Neither of the producers exceeds the mark alone.
#[test]
fn a_pause_that_two_producers_make_ends() {
    let write = |output: &Output| output.write(MessageWeight::Known(HALF));
    model_up_to(2, race([write, write], HALF, who_saw_a_pause_is_notified));
}

#[test]
fn small_messages_and_one_of_unknown_size_leave_no_pause() {
    model_up_to(
        2,
        race(
            [
                |output| output.write(MessageWeight::Known(SMALL)),
                |output| output.write(MessageWeight::AtLeast(SMALL)),
            ],
            SMALL,
            who_saw_a_pause_is_notified,
        ),
    );
}

/// Another producer waits only because of the reservation of a refused message.
#[test]
fn a_producer_that_saw_the_pause_of_a_refused_message_is_notified() {
    let refused = |output: &Output| {
        output.be_refused(MessageWeight::AtLeast(SMALL));
        true
    };
    model(race([refused, |output| output.gauge.is_writable()], SMALL, who_saw_a_pause_is_notified));
    let twice = |output: &Output| {
        output.be_refused(MessageWeight::Known(2 * HALF));
        output.be_refused(MessageWeight::Known(2 * HALF));
        true
    };
    model_up_to(2, race([twice, |output| output.gauge.is_writable()], SMALL, who_saw_a_pause_is_notified));
}

/// The models are able to find a fault: a weight that is reserved only after the message was queued
/// may come when the loop has sent it.
#[test]
#[should_panic(expected = "nothing waits, but the channel is paused")]
fn a_weight_that_is_added_behind_the_message_can_pause_forever() {
    model(race(
        [|output| {
            output.queue(Mail::Message(SMALL as u32));
            output.reserve(MessageWeight::AtLeast(SMALL));
            output.gauge.is_writable()
        }],
        SMALL,
        who_saw_a_pause_is_notified,
    ));
}
