//! The limit on connections that a listener accepts in one turn. Connections beyond it are accepted
//! in later turns.

use crate::support::servers::Quiet;
use netwheel::{
    Error,
    admission::{Admission, IpFilter, IpRule},
    codec::RawBytes,
    group::ManualEventLoop,
    metrics::LoopMetrics,
    prelude::*,
};
use std::{net::TcpStream, time::Duration};

/// Returns how many of `waiting` connections each turn accepts, until all are accepted.
fn shares(
    settings: impl FnOnce(ServerBootstrap) -> ServerBootstrap,
    waiting: usize,
    count: impl Fn(&LoopMetrics) -> u64,
) -> Vec<u64> {
    let mut by_hand = EventLoopGroup::builder().build_manual().unwrap();
    let bootstrap = settings(ServerBootstrap::new(by_hand.group())).accepting(false);
    let server = bootstrap.pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet)).bind("127.0.0.1:0");
    let server = server.unwrap();
    let clients: Vec<_> = (0..waiting).map(|_| TcpStream::connect(server.local_address()).unwrap()).collect();
    while by_hand.run_once(Duration::ZERO) > 0 {}
    let counted = |by_hand: &ManualEventLoop| count(&by_hand.event_loop().metrics());
    assert_eq!(counted(&by_hand), 0, "the listener is not registered yet");
    server.set_accepting(true).unwrap();
    let mut shares = Vec::new();
    while counted(&by_hand) < waiting as u64 {
        let before = counted(&by_hand);
        by_hand.run_once(Duration::ZERO);
        shares.push(counted(&by_hand) - before);
    }
    drop(clients);
    shares
}

#[test]
fn the_rest_of_the_backlog_is_accepted_in_later_turns() {
    assert_eq!(shares(|server| server.accepts_per_turn(3), 10, |m| m.accepted), [3, 3, 3, 1]);
    assert_eq!(shares(|server| server.accepts_per_turn(1), 4, |m| m.accepted), [1, 1, 1, 1]);
    assert_eq!(shares(|server| server.accepts_per_turn(10), 10, |m| m.accepted), [10]);
    assert_eq!(shares(|server| server, 100, |m| m.accepted), [64, 36], "the default is 64");
}

#[test]
fn refused_connections_count_towards_the_limit() {
    let nobody = Admission::new().ip_filter(IpFilter::new([IpRule::deny("0.0.0.0/0").unwrap()]));
    let settings = |server: ServerBootstrap| server.accepts_per_turn(4).admission(nobody);
    assert_eq!(shares(settings, 10, |m| m.rejected_filter), [4, 4, 2]);
}

#[test]
fn a_limit_of_zero_is_refused() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let bootstrap = ServerBootstrap::new(&group).accepts_per_turn(0);
    let refused = bootstrap.pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet)).bind("127.0.0.1:0");
    let Err(Error::Setting(refused)) = refused else { panic!("the setting was accepted") };
    assert_eq!(
        (refused.setting(), refused.value(), refused.allowed()),
        ("accepts_per_turn", "0", "1 connection or more")
    );
}
