//! The loops of clients: each connection takes one turn of the chooser, and nothing else does.

use crate::support::{servers::Quiet, wait::done};
use netwheel::{
    EventLoop,
    codec::RawBytes,
    group::{Chooser, RoundRobin},
    prelude::*,
    reconnect::Backoff,
};
use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

/// Round robin that counts its turns.
#[derive(Clone, Default)]
struct Counting(Arc<(RoundRobin, AtomicUsize)>);

impl Chooser for Counting {
    fn choose(&self, event_loops: &[EventLoop]) -> usize {
        self.0.1.fetch_add(1, SeqCst);
        self.0.0.choose(event_loops)
    }
}

impl Counting {
    fn group() -> (EventLoopGroup, Self) {
        let counting = Counting::default();
        let group = EventLoopGroup::builder().threads(2).chooser(counting.clone()).build().unwrap();
        (group, counting)
    }

    fn turns(&self) -> usize {
        self.0.1.load(SeqCst)
    }
}

fn connections(group: &EventLoopGroup) -> Vec<usize> {
    group.event_loops().iter().map(EventLoop::connections).collect()
}

#[test]
fn reconnecting_clients_use_all_loops() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (group, counting) = Counting::group();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let client = ClientBootstrap::new(&group).pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
            client.reconnect(Backoff::new()).connect(listener.local_addr().unwrap()).unwrap()
        })
        .collect();
    for client in &clients {
        done(client.connected()).unwrap();
    }
    assert_eq!((counting.turns(), connections(&group)), (4, vec![2, 2]));
}

#[test]
fn connections_of_a_pool_use_all_loops() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (group, counting) = Counting::group();
    let pool = ClientBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet))
        .pool()
        .build(listener.local_addr().unwrap())
        .unwrap();
    assert_eq!(counting.turns(), 0);
    let _acquired: Vec<_> = (0..4).map(|_| done(pool.acquire()).unwrap()).collect();
    assert_eq!((counting.turns(), connections(&group)), (4, vec![2, 2]));
}

#[cfg(feature = "http")]
#[test]
fn calls_through_a_pool_take_no_turns() {
    use crate::support::wait::wait_until;
    use netwheel::http::{HttpClient, HttpServer, Part, Request, Response};
    let (server_group, http) = (EventLoopGroup::builder().threads(1).build().unwrap(), HttpServer::new());
    let server = ServerBootstrap::new(&server_group)
        .pipeline(move |_peer| {
            http.pipeline().on_read(|ctx, part| match part {
                Part::Head(_) => ctx.write(Response::ok("hello").into()),
                _ => Ok(()),
            })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let (group, counting) = Counting::group();
    let http = HttpClient::new().host("example.org");
    let client = ClientBootstrap::new(&group).pipeline(move |_peer| http.calls(1024));
    let pool = client.pool().build(server.local_address()).unwrap();
    for _ in 0..3 {
        done(pool.request(Request::get("/").header("Host", "example.org")).send()).unwrap();
        wait_until("the connection is free", || pool.free() == 1);
    }
    assert_eq!((counting.turns(), connections(&group).iter().sum()), (1, 1));
}
