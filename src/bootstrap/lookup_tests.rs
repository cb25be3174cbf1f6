//! Lookups of names: when they begin, which attempts wait for them, and how they fail.

use super::{
    Backoff,
    client::ClientBootstrap,
    dial::{Dialer, Target},
};
use crate::{
    channel::{ChannelShared, Pipeline},
    clock::ManualClock,
    codec::RawBytes,
    error::{Error, Resource, Result},
    event_loop::{Attempt, ConnectCallback},
    group::EventLoopGroup,
    testing::wait::{PATIENCE, wait_until},
    transport::Address,
};
use std::{
    io::ErrorKind,
    net::TcpListener,
    sync::{Arc, mpsc},
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

/// Occupies the threads of lookups, and one place of their queue, until the result is dropped.
fn occupy(group: &EventLoopGroup) -> Vec<mpsc::Sender<()>> {
    let mut releases = Vec::new();
    while pending(group) == 0 {
        let (release, released) = mpsc::channel();
        group.lookups().execute(move || released.recv()).unwrap();
        releases.push(release);
    }
    releases
}

fn pending(group: &EventLoopGroup) -> usize {
    group.lookups().metrics().pending
}

/// Returns the number of lookups that have been submitted.
fn submitted(group: &EventLoopGroup) -> u64 {
    let metrics = group.lookups().metrics();
    metrics.finished + (metrics.running + metrics.pending) as u64
}

struct Report(mpsc::Sender<Error>);

impl ConnectCallback for Report {
    fn is_wanted(&self) -> bool {
        true
    }

    fn connected(self: Box<Self>, _: Arc<ChannelShared>) {}

    fn failed(self: Box<Self>, error: Error) {
        self.0.send(error).unwrap();
    }
}

/// Connects with [`Error::Cancelled`] once there are addresses, and reports that.
struct Connecting {
    dialer: Arc<Dialer>,
    sender: mpsc::Sender<Error>,
    results: mpsc::Receiver<Error>,
}

impl Connecting {
    fn new(group: &EventLoopGroup, target: Target, ttl: Duration) -> Self {
        let dialer = Dialer::new(
            group,
            target,
            ttl,
            Box::new(|addresses, _, done| {
                assert!(!addresses.is_empty());
                done.failed(Error::Cancelled);
            }),
        );
        let (sender, results) = mpsc::channel();
        Connecting { dialer, sender, results }
    }

    fn dial(&self) {
        self.dialer.dial(Attempt::new(), Box::new(Report(self.sender.clone())));
    }

    #[track_caller]
    fn result(&self) -> Error {
        self.results.recv_timeout(PATIENCE).unwrap()
    }

    #[track_caller]
    fn connects(&self) {
        let result = self.result();
        assert!(matches!(result, Error::Cancelled), "{result:?}");
    }
}

fn group() -> EventLoopGroup {
    EventLoopGroup::builder().threads(1).build().unwrap()
}

#[test]
fn attempts_at_the_same_time_wait_for_one_lookup() {
    let group = group();
    let connecting = Connecting::new(&group, Target::later("localhost".into(), 7), Duration::ZERO);
    let busy = occupy(&group);
    let before = submitted(&group);
    for _ in 0..3 {
        connecting.dial();
    }
    assert_eq!(submitted(&group) - before, 1);
    assert!(connecting.results.try_recv().is_err());
    drop(busy);
    for _ in 0..3 {
        connecting.connects();
    }
    connecting.dial();
    connecting.connects();
    assert_eq!(submitted(&group) - before, 2, "a later attempt needs another lookup");
}

#[test]
fn a_pool_looks_a_name_up_again_when_its_addresses_are_old() {
    for (ttl, lookups) in [(Duration::ZERO, 2), (15 * SECOND, 1), (60 * SECOND, 0)] {
        let clock = ManualClock::new();
        let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
        let connecting = Connecting::new(&group, Target::resolve(("localhost", 7)).unwrap(), ttl);
        for _ in 0..3 {
            connecting.dial();
            connecting.connects();
            clock.advance(10 * SECOND);
        }
        assert_eq!(submitted(&group), lookups, "{ttl:?}: the addresses of `build` are used once");
    }
}

/// Each lookup may wait for a name server that does not answer.
#[test]
fn known_addresses_are_used_for_a_while_after_a_lookup_that_has_failed() {
    let address = Address::Tcp(([127, 0, 0, 1], 7).into());
    // A reconnecting client has a time of zero, and looks the name up for each attempt.
    for (ttl, time, lookups) in
        [(15 * SECOND, 15 * SECOND, 1), (60 * SECOND, 30 * SECOND, 1), (Duration::ZERO, Duration::ZERO, 3)]
    {
        let clock = ManualClock::new();
        let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
        // No name has a zero byte, so no name server is asked.
        let connecting = Connecting::new(&group, Target::known("a\0b", vec![address.clone()]), ttl);
        let dial = || {
            connecting.dial();
            connecting.connects();
        };
        dial();
        clock.advance(60 * SECOND);
        for _ in 0..3 {
            dial();
        }
        assert_eq!(submitted(&group), lookups, "{ttl:?}");
        clock.advance(time);
        dial();
        assert_eq!(submitted(&group), lookups + 1, "{ttl:?}");
    }
}

#[test]
fn a_lookup_that_is_refused_leaves_the_old_addresses() {
    let group = group();
    let known = Connecting::new(&group, Target::resolve(("localhost", 7)).unwrap(), Duration::ZERO);
    let unknown = Connecting::new(&group, Target::later("localhost".into(), 7), Duration::ZERO);
    known.dial();
    known.connects();
    let busy = occupy(&group);
    while group.lookups().execute(|| ()).is_ok() {}
    known.dial();
    known.connects();
    unknown.dial();
    let refused = unknown.result();
    assert!(matches!(refused, Error::Full { resource: Resource::WorkerQueue, .. }), "{refused:?}");
    drop(busy);
    // The next attempt begins another lookup.
    wait_until("the queue is empty", || pending(&group) == 0);
    unknown.dial();
    unknown.connects();
}

#[test]
fn a_reconnecting_client_that_is_closed_during_a_lookup_does_not_connect() {
    let group = group();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let reconnecting = ClientBootstrap::new(&group)
        .pipeline(|_peer| Pipeline::codec(RawBytes).on_read(|_, _| Ok(())))
        .reconnect(Backoff::new().initial(Duration::from_millis(1)).jitter(false))
        .connect(("localhost", listener.local_addr().unwrap().port()))
        .unwrap();
    let channel = reconnecting.connected().wait_timeout(PATIENCE).unwrap().unwrap();
    let _first = listener.accept().unwrap();
    let busy = occupy(&group);
    let before = pending(&group);
    channel.close();
    wait_until("the lookup waits", || pending(&group) > before);
    reconnecting.close();
    let closed = reconnecting.closed();
    assert!(!closed.is_done());
    drop(busy);
    let result: Result = closed.wait_timeout(PATIENCE).unwrap();
    result.unwrap();
    listener.set_nonblocking(true).unwrap();
    let accepted = listener.accept().map(drop).map_err(|e| e.kind());
    assert_eq!(accepted, Err(ErrorKind::WouldBlock), "the lookup was followed by a connection");
}
