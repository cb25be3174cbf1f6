//! Invariants of a loop between two turns. Simulations check them.
//!
//! The cheap checks run after each turn. The checks of all sources run less often on a loop with
//! many sources, so that their cost per turn does not grow.

use crate::{
    channel::Due,
    event_loop::{
        mail::LoopMail,
        shared::LoopShared,
        sources::Slot,
        turn::{Turn, Wait},
    },
};

/// With at most this many sources, all are checked after each turn.
const FEW: usize = 4;

/// The memory of the checks of one loop.
#[derive(Default)]
pub(super) struct Invariants {
    /// Sources that turns have paid for since all were checked.
    paid: usize,
    /// The failed wakes at the end of the last turn.
    failed_wakes: u64,
}

impl Invariants {
    /// Returns a violation after a turn that ended with `wait`, if there is one.
    pub(super) fn violation(&mut self, turn: &mut Turn, wait: Wait) -> Option<String> {
        self.failed_wakes = turn.shared.metrics.wakes_failed.read();
        let is_asleep = matches!(wait, Wait::Until(_) | Wait::Forever);
        if is_asleep && let Some(violation) = violation_asleep(turn, wait) {
            return Some(violation.to_owned());
        }
        self.paid += FEW;
        if self.paid < turn.sources.len() {
            return None;
        }
        self.paid = 0;
        gauge_violation(turn).or_else(|| source_violation(turn, is_asleep))
    }

    /// Returns a violation of a loop that sleeps while others run: mail that has not woken it, or a
    /// wake that has not arrived. `runs_next` is whether the machine is about to run the loop.
    pub(super) fn lost_wakeup(&self, turn: &Turn, wait: Wait, runs_next: bool) -> Option<&'static str> {
        let until = match wait {
            Wait::Until(deadline) => deadline,
            Wait::Forever => u64::MAX,
            Wait::NotAtAll | Wait::Rest(_) => return None,
        };
        if runs_next || turn.shared.metrics.wakes_failed.read() != self.failed_wakes {
            return None;
        }
        if !turn.shared.wake_up.is_asleep() {
            return Some("the loop was woken, and its poll does not return");
        }
        let must_wake = |mail: &LoopMail| mail.due().is_some_and(|due| due < until);
        turn.shared
            .mailbox
            .has(must_wake)
            .then_some("the loop sleeps, and mail in its queue has not woken it")
    }
}

/// Returns a violation if a loop leaves something behind at its end.
pub(super) fn violation_at_end(shared: &LoopShared) -> Option<String> {
    let metrics = &shared.metrics;
    [
        ("channels", metrics.channels.read()),
        ("lingering sockets", metrics.lingering.read()),
        ("datagram channels", metrics.datagram_channels.read()),
        ("bytes of output", metrics.outbound_bytes.read()),
        ("messages in its queue", shared.mailbox.len() as u64),
    ]
    .into_iter()
    .find(|(_, left)| *left > 0)
    .map(|(what, left)| format!("the loop has ended and still has {left} {what}"))
}

/// Returns a violation of a loop that is about to sleep.
fn violation_asleep(turn: &Turn, wait: Wait) -> Option<&'static str> {
    if !turn.io.services.attention.is_empty()
        || !turn.io.carried_over.is_empty()
        || !turn.io.held_handshakes.is_empty()
        || !turn.io.inactive.is_empty()
        || !turn.at_end.is_empty()
        || !turn.inbox.is_empty()
    {
        return Some("the loop sleeps although it has work");
    }
    let services = &turn.io.services;
    let deadlines = [services.queue.next_deadline(), services.wheel.next_expiry()];
    let is_late = deadlines.into_iter().flatten().any(|deadline| match wait {
        Wait::Until(until) => until > deadline,
        _ => true,
    });
    is_late.then_some("the loop sleeps beyond the deadline of a timer")
}

/// Returns a violation if a gauge differs from a count.
fn gauge_violation(turn: &mut Turn) -> Option<String> {
    let (mut channels, mut lingering, mut datagrams, mut output, mut connections) = (0, 0, 0, 0, 0);
    for slot in turn.sources.slots() {
        match slot {
            Slot::Channel(slot) => {
                channels += u64::from(slot.driver.transport.is_some());
                output += slot.driver.core.state.outbound.counted();
                connections += usize::from(slot.assignment.is_some());
            }
            Slot::Lingering(_) => lingering += 1,
            Slot::Other(source) => {
                let counted = source.counted_output();
                datagrams += u64::from(counted.is_some());
                output += counted.unwrap_or(0);
            }
        }
    }
    let metrics = &turn.shared.metrics;
    let services = &turn.io.services;
    for (name, gauge, counted) in [
        ("channels", metrics.channels.read(), channels),
        ("lingering", metrics.lingering.read(), lingering),
        ("datagram_channels", metrics.datagram_channels.read(), datagrams),
        ("outbound_bytes", services.outbound.used() as u64, output as u64),
        ("timers_pending", metrics.timers_pending.read(), services.queue.len() as u64),
        ("wheel_pending", metrics.wheel_pending.read(), services.wheel.len() as u64),
    ] {
        if gauge != counted {
            return Some(format!("the gauge {name} is {gauge}, and a count gives {counted}"));
        }
    }
    let assigned = turn.shared.load.connections();
    (assigned < connections)
        .then(|| format!("the loop counts {assigned} connections, and its channels have {connections}"))
}

/// Returns a violation of a source, or of a timer without one.
fn source_violation(turn: &mut Turn, is_asleep: bool) -> Option<String> {
    let Turn { sources, io, .. } = turn;
    let is_without_source = |due: &Due| match due {
        Due::Channel(token) => !sources.has_timer_owner(*token),
        Due::Source(key) => !sources.has(*key),
        Due::Ages | Due::Task(_) => false,
    };
    if io.services.queue.any(is_without_source)
        || io.services.wheel.values().any(|token| !sources.has_timer_owner(*token))
    {
        return Some("a timer belongs to a source that is gone".to_owned());
    }
    if !is_asleep {
        return None;
    }
    for slot in sources.slots() {
        let violation = match slot {
            Slot::Channel(slot) => {
                let state = &slot.driver.core.state;
                let Some(socket) = slot.driver.transport.as_ref().and_then(|stream| stream.simulated())
                else {
                    return Some(format!("channel {}: it is closed and still in its slot", state.id()));
                };
                let unseen = socket.unseen(state.status_bits());
                state
                    .violation_asleep(unseen.is_racing)
                    .or_else(|| state.violation_of_socket(unseen.input, unseen.room))
                    .map(|violation| format!("channel {}: {violation}", state.id()))
            }
            Slot::Lingering(_) => None,
            Slot::Other(source) => source.violation_asleep().map(ToOwned::to_owned),
        };
        if violation.is_some() {
            return violation;
        }
    }
    None
}
