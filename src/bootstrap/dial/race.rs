//! Connects to several addresses of one server: Happy Eyeballs ([RFC 8305]).
//!
//! The addresses are tried in turn, with alternating families. The next one is tried when the one
//! before it has failed, or has not been connected within the connection attempt delay. The first
//! connection wins: its handshake begins, and the other attempts are cancelled. If the handshake of
//! the winner fails, the whole attempt fails. No further address is tried after an error that is
//! not about the address, for example that of a loop that has ended. If the loop is full, an
//! attempt waits for the end of another one, whose place or descriptor it may get.
//!
//! Invariants: the callback is called once, or dropped with the loop. At most one attempt per
//! address reaches the network, all on one loop. No lock is held while an attempt begins, ends or
//! is cancelled. Begins on any thread, and continues on the loop.
//!
//! [RFC 8305]: https://www.rfc-editor.org/rfc/rfc8305

use super::dialer::{is_about_the_address, lacks_room};
use crate::{
    channel::{ChannelShared, ScheduledTask},
    error::{Error, Result},
    event_loop::{Attempt, ConnectCallback, EventLoop},
    machine::Mutex,
    settings::check_range,
    transport::Address,
};
use std::{collections::VecDeque, io::ErrorKind, net::SocketAddr, sync::Arc, time::Duration};

/// The largest number of addresses that are tried. Further ones are not.
const MAX_ADDRESSES: usize = 16;

/// Opens a connection to one address on the loop of the race.
pub(in crate::bootstrap) type ConnectOne = dyn Fn(Address, Attempt, Box<dyn ConnectCallback>) + Send + Sync;

/// An attempt to connect to one of several addresses.
pub(in crate::bootstrap) struct Race {
    event_loop: EventLoop,
    connect: Box<ConnectOne>,
    delay: Duration,
    state: Mutex<RaceState>,
}

struct RaceState {
    waiting: VecDeque<Address>,
    /// Attempts in progress, by their numbers.
    running: Vec<(usize, Attempt)>,
    /// The number of attempts that have begun.
    begun: usize,
    /// The attempt that is connected. The others are cancelled.
    winner: Option<usize>,
    /// Begins the next attempt.
    timer: Option<ScheduledTask>,
    /// The first error that a peer has caused. It says more than that of an address without a
    /// route, which is often the last one.
    from_peer: Option<Error>,
    /// `None` once the result was reported.
    done: Option<Box<dyn ConnectCallback>>,
}

/// Returns an error unless the delay is in the range of RFC 8305, section 8.
///
/// # Errors
/// [`Error::Setting`] if it is out of range.
pub(in crate::bootstrap) fn check_attempt_delay(delay: Duration) -> Result {
    let range = Duration::from_millis(10)..=Duration::from_secs(2);
    check_range("connection_attempt_delay", delay, range, "10 ms to 2 s")
}

impl Race {
    /// Begins to connect. `attempt` cancels all of it.
    pub(in crate::bootstrap) fn begin(
        event_loop: EventLoop,
        addresses: Vec<Address>,
        delay: Duration,
        connect: Box<ConnectOne>,
        attempt: &Attempt,
        done: Box<dyn ConnectCallback>,
    ) {
        let mut waiting = interleave(addresses);
        waiting.truncate(MAX_ADDRESSES);
        let state = RaceState {
            waiting,
            running: Vec::new(),
            begun: 0,
            winner: None,
            timer: None,
            from_peer: None,
            done: Some(done),
        };
        let race = Arc::new(Race { event_loop, connect, delay, state: Mutex::new(state) });
        let weak = Arc::downgrade(&race);
        attempt.cancels_with(move || {
            if let Some(race) = weak.upgrade() {
                race.cancel();
            }
        });
        race.begin_next();
    }

    /// Begins the attempt for the next address, if there is one.
    fn begin_next(self: &Arc<Self>) {
        let attempt = Attempt::new();
        let (number, address, timer) = {
            let mut state = self.state.lock();
            let timer = state.timer.take();
            if state.winner.is_some() {
                return;
            }
            // The consumer may have gone before the race, during the lookup.
            if !state.done.as_ref().is_some_and(|done| done.is_wanted()) {
                state.waiting.clear();
            }
            let Some(address) = state.waiting.pop_front() else {
                let done = if state.running.is_empty() { state.done.take() } else { None };
                drop(state);
                if let Some(done) = done {
                    done.failed(Error::Cancelled);
                }
                return;
            };
            let number = state.begun;
            state.begun += 1;
            state.running.push((number, attempt.clone()));
            (number, address, timer)
        };
        if let Some(timer) = timer {
            timer.cancel();
        }
        self.arm(number);
        (self.connect)(address.clone(), attempt, Box::new(Racer { race: self.clone(), number, address }));
    }

    /// Begins the attempt after `number` when the delay has passed.
    fn arm(self: &Arc<Self>, number: usize) {
        if self.state.lock().waiting.is_empty() {
            return;
        }
        let me = self.clone();
        let due = self.event_loop.after(self.delay);
        // A loop that has ended fails the attempt in progress.
        let Ok(timer) = self.event_loop.schedule_for_reply(due, move || me.begin_next()) else { return };
        let unused = {
            let mut state = self.state.lock();
            // This thread may not be the loop. The next attempt may have begun in the meantime,
            // and the stored timer is then that of a later attempt.
            let is_latest = state.begun == number + 1;
            if !is_latest || state.winner.is_some() || state.waiting.is_empty() {
                Some(timer)
            } else {
                state.timer.replace(timer)
            }
        };
        if let Some(unused) = unused {
            unused.cancel();
        }
    }

    /// Cancels all attempts. The last one reports it.
    fn cancel(&self) {
        let (running, timer) = {
            let mut state = self.state.lock();
            state.waiting.clear();
            let running: Vec<_> = state.running.iter().map(|(_, attempt)| attempt.clone()).collect();
            (running, state.timer.take())
        };
        self.end(running, timer);
    }

    /// Ends attempts, and the wait for the next one.
    fn end(&self, attempts: Vec<Attempt>, timer: Option<ScheduledTask>) {
        if let Some(timer) = timer {
            timer.cancel();
        }
        for attempt in attempts {
            attempt.cancel(&self.event_loop.shared);
        }
    }

    /// Returns whether the connection of an attempt is wanted, and lets the first one win.
    fn wins(&self, number: usize) -> bool {
        let (others, timer) = {
            let mut state = self.state.lock();
            if !state.done.as_ref().is_some_and(|done| done.is_wanted()) {
                return false;
            }
            match state.winner {
                Some(winner) => return winner == number,
                None => state.winner = Some(number),
            }
            state.waiting.clear();
            let (won, others) = state.running.drain(..).partition(|(other, _)| *other == number);
            state.running = won;
            (others, state.timer.take())
        };
        let others: Vec<(usize, Attempt)> = others;
        self.end(others.into_iter().map(|(_, attempt)| attempt).collect(), timer);
        true
    }

    fn connected(&self, number: usize, shared: Arc<ChannelShared>) {
        let done = {
            let mut state = self.state.lock();
            state.running.retain(|(other, _)| *other != number);
            state.done.take()
        };
        if let Some(done) = done {
            done.connected(shared);
        }
    }

    fn failed(self: &Arc<Self>, number: usize, address: Address, error: Error) {
        let ended = {
            let mut state = self.state.lock();
            state.running.retain(|(other, _)| *other != number);
            match state.winner {
                Some(winner) if winner == number => state.done.take().map(|done| (done, error)),
                Some(_) => None,
                None if lacks_room(&error) && !state.running.is_empty() => {
                    state.waiting.push_front(address);
                    return;
                }
                None => state.note_failure(error),
            }
        };
        match ended {
            Some((done, error)) => done.failed(error),
            None => self.begin_next(),
        }
    }
}

impl RaceState {
    /// Records the failure of an attempt. Returns the callback and its error if it was the last
    /// attempt.
    fn note_failure(&mut self, error: Error) -> Option<(Box<dyn ConnectCallback>, Error)> {
        let is_about_the_address = is_about_the_address(&error);
        if !is_about_the_address {
            self.waiting.clear();
        } else if is_from_peer(&error) {
            self.from_peer.get_or_insert_with(|| error.clone());
        }
        if !self.waiting.is_empty() || !self.running.is_empty() {
            return None;
        }
        let done = self.done.take()?;
        let from_peer = self.from_peer.take().filter(|_| is_about_the_address);
        Some((done, from_peer.unwrap_or(error)))
    }
}

/// Returns whether the peer, or the network on the way to it, has caused the error.
fn is_from_peer(error: &Error) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, TimedOut};
    match error {
        Error::Io { source, .. } => matches!(
            source.kind(),
            ConnectionRefused | ConnectionReset | ConnectionAborted | HostUnreachable | TimedOut
        ),
        _ => true,
    }
}

/// The callback of one attempt.
struct Racer {
    race: Arc<Race>,
    number: usize,
    address: Address,
}

impl ConnectCallback for Racer {
    fn is_wanted(&self) -> bool {
        self.race.wins(self.number)
    }

    fn connected(self: Box<Self>, shared: Arc<ChannelShared>) {
        self.race.connected(self.number, shared);
    }

    fn failed(self: Box<Self>, error: Error) {
        self.race.failed(self.number, self.address, error);
    }
}

/// Alternates between the families of the addresses, beginning with that of the first one. The
/// order within a family is kept (RFC 8305, section 4).
fn interleave(addresses: Vec<Address>) -> VecDeque<Address> {
    let is_v6 = |address: &Address| address.as_tcp().is_some_and(|address: SocketAddr| address.is_ipv6());
    let begins_with_v6 = addresses.first().is_some_and(is_v6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| is_v6(address) == begins_with_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut all = VecDeque::new();
    loop {
        let before = all.len();
        all.extend(first.next());
        all.extend(second.next());
        if all.len() == before {
            return all;
        }
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| Address::Tcp(text.parse().unwrap())).collect()
    }

    #[test]
    fn families_alternate_and_keep_their_order() {
        for (given, expected) in [
            (
                &["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"][..],
                &["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"][..],
            ),
            (&["1.1.1.1:1", "2.2.2.2:1", "[::1]:1"], &["1.1.1.1:1", "[::1]:1", "2.2.2.2:1"]),
            (&["1.1.1.1:1"], &["1.1.1.1:1"]),
            (&[], &[]),
        ] {
            assert_eq!(Vec::from(interleave(addresses(given))), addresses(expected));
        }
    }

    #[test]
    fn the_delay_has_the_range_of_the_rfc() {
        for (millis, is_allowed) in [(9, false), (10, true), (250, true), (2000, true), (2001, false)] {
            assert_eq!(check_attempt_delay(Duration::from_millis(millis)).is_ok(), is_allowed, "{millis} ms");
        }
    }
}
