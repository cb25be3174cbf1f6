//! `PublishLane`: the order of the messages to one partition, also when they are sent again.
//!
//! A message with an id whose reply was lost is sent again, because the script stores it once.
//! Messages behind it that are not sent yet must not overtake it. So a failure begins another
//! attempt: commands of an earlier attempt do nothing when the client sends them, and when none is
//! in flight any more, all messages are sent again in their order. A message is not sent again if a
//! later one was stored.
//!
//! If the server does not know the script, the client itself sends the call again.

use super::{ScriptCalls, WEIGHT};
use crate::{
    broker::{
        pending_limit::PendingPermit,
        redis::{errors::broker_error, reply},
        store::{BrokerError, Partition, Publication, Published},
    },
    codec::RespValue,
    error::{Error, Result},
    machine::{self, Mutex},
    redis::{RedisCommand, RedisError},
    sync::Completer,
};
use std::{mem, sync::Arc, time::Instant};

/// A message without a result.
pub(super) struct PendingMessage {
    publication: Arc<Publication>,
    completer: Completer<Published>,
    deadline: Instant,
    /// Until when a repetition is certainly recognised.
    repeats_until: Instant,
    /// The place in the order of the lane.
    number: u64,
    /// Whether an earlier attempt may have stored the message.
    is_uncertain: bool,
}

#[derive(Default)]
pub(super) struct PublishLane(Mutex<LaneState>);

#[derive(Default)]
struct LaneState {
    attempt: u64,
    next_number: u64,
    in_flight: usize,
    /// Whether messages wait until none of the last attempt is in flight.
    is_recovering: bool,
    is_sending: bool,
    /// Messages that are to be sent again.
    failed: Vec<PendingMessage>,
    /// Messages that were published since then.
    waiting: Vec<(PendingMessage, PendingPermit)>,
    /// The number behind the last message that was stored.
    stored: u64,
}

impl LaneState {
    /// Keeps a message that is sent again. A lane with such messages is recovering.
    fn park(&mut self, pending: PendingMessage) {
        self.failed.push(pending);
        self.is_recovering = true;
    }
}

impl PendingMessage {
    pub(super) fn new(publication: Publication, completer: Completer<Published>, deadline: Instant) -> Self {
        let repeats_until = deadline.min(machine::now() + publication.window);
        let publication = Arc::new(publication);
        PendingMessage { publication, completer, deadline, repeats_until, number: 0, is_uncertain: false }
    }

    pub(super) fn fail(self, error: BrokerError) {
        // What an earlier attempt may have done counts more than why the last one failed.
        let error = if self.is_uncertain && !error.may_be_stored() {
            BrokerError::Uncertain(error.to_string().into())
        } else {
            error
        };
        self.completer.complete(Err(error.into()));
    }

    pub(super) fn weight(&self) -> usize {
        self.publication.payload.len() + WEIGHT
    }

    fn may_be_sent_again(&self, error: &Error) -> bool {
        self.publication.id.is_some()
            && RedisError::of(error).is_some_and(RedisError::may_be_executed)
            && self.repeats_until > machine::now()
    }
}

impl ScriptCalls {
    /// Sends a message, or queues it behind messages that are sent again.
    pub(super) fn submit(self: &Arc<Self>, partition: Partition, mut pending: PendingMessage) {
        let mut lane = self.lane(partition).0.lock();
        pending.number = lane.next_number;
        lane.next_number += 1;
        if lane.is_recovering {
            match self.waiting.take(pending.weight()) {
                Some(permit) => lane.waiting.push((pending, permit)),
                None => {
                    drop(lane);
                    pending.fail(BrokerError::Full("too many messages wait behind a failed one".into()));
                }
            }
            return;
        }
        lane.in_flight += 1;
        let attempt = lane.attempt;
        drop(lane);
        self.send(partition, pending, attempt);
    }

    fn send(self: &Arc<Self>, partition: Partition, pending: PendingMessage, attempt: u64) {
        let (operations, publication) = (self.clone(), pending.publication.clone());
        let weight = pending.weight();
        let command = RedisCommand::built_with(move |server| {
            if operations.lane(partition).0.lock().attempt != attempt {
                return RedisCommand::from(["PING"]);
            }
            operations.publish_command(partition, &publication, server)
        });
        // Later, a repetition could be stored as another message.
        let until = if pending.is_uncertain { pending.repeats_until } else { pending.deadline };
        let left = until.saturating_duration_since(machine::now());
        let command = command.weight(weight).affinity(partition.get().into()).timeout(left);
        let operations = self.clone();
        let replied = self.server(partition).client.call(command);
        replied.on_complete(move |replied| operations.finish(partition, pending, attempt, replied));
    }

    fn finish(
        self: &Arc<Self>,
        partition: Partition,
        mut pending: PendingMessage,
        attempt: u64,
        replied: Result<RespValue>,
    ) {
        let mut lane = self.lane(partition).0.lock();
        lane.in_flight -= 1;
        let done = match replied {
            Ok(value @ RespValue::Array(_)) => {
                lane.stored = lane.stored.max(pending.number + 1);
                Some((pending, Ok(value)))
            }
            // A command of an earlier attempt, which has done nothing.
            Ok(_) => {
                lane.park(pending);
                None
            }
            Err(error) if pending.may_be_sent_again(&error) => {
                // The first failure of an attempt ends it.
                lane.attempt = lane.attempt.max(attempt + 1);
                pending.is_uncertain = true;
                lane.park(pending);
                None
            }
            Err(error) => Some((pending, Err(error))),
        };
        let is_idle = lane.is_recovering && lane.in_flight == 0 && !lane.is_sending;
        lane.is_sending |= is_idle;
        drop(lane);
        match done {
            Some((pending, Ok(value))) => match reply::published(value) {
                Ok(published) => pending.completer.complete(Ok(published)),
                Err(error) => pending.fail(error),
            },
            Some((pending, Err(error))) => pending.fail(broker_error(&error)),
            None => {}
        }
        if is_idle {
            self.send_again(partition);
        }
    }

    /// Sends the messages of the lane again, in their order. The lane `is_sending`.
    fn send_again(self: &Arc<Self>, partition: Partition) {
        loop {
            let mut lane = self.lane(partition).0.lock();
            if lane.in_flight > 0 && !lane.failed.is_empty() {
                // The attempt that has just begun has failed. The last one in flight goes on.
                lane.is_sending = false;
                return;
            }
            let mut again = mem::take(&mut lane.failed);
            again.sort_by_key(|pending| pending.number);
            let stored = lane.stored;
            let (late, mut again): (Vec<_>, Vec<_>) =
                again.into_iter().partition(|pending| pending.number < stored);
            again.extend(mem::take(&mut lane.waiting).into_iter().map(|(pending, _)| pending));
            lane.in_flight += again.len();
            let attempt = lane.attempt;
            let is_done = again.is_empty();
            lane.is_sending = !is_done;
            lane.is_recovering = !is_done;
            drop(lane);
            for pending in late {
                pending.fail(BrokerError::Refused("a later message was stored first".into()));
            }
            for pending in again {
                self.send(partition, pending, attempt);
            }
            if is_done {
                return;
            }
        }
    }
}
