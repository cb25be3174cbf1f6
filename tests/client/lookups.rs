//! Lookups of names do not need the group's workers.

use crate::support::{
    loops::end,
    servers::Quiet,
    wait::{done, receive},
};
use netwheel::{codec::RawBytes, prelude::*, worker_pool::WorkerPool};
use std::{net::TcpListener, sync::mpsc, time::Duration};

#[test]
fn all_workers_may_wait_for_a_pool_whose_name_has_to_be_looked_up() {
    let workers = WorkerPool::builder().threads(1).build().unwrap();
    let group = EventLoopGroup::builder().threads(1).workers(&workers).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pool = ClientBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet))
        .pool()
        .lookup_ttl(Duration::ZERO)
        .build(("localhost", listener.local_addr().unwrap().port()))
        .unwrap();
    // The addresses of `build` are used once.
    let _first = done(pool.acquire()).unwrap();
    let (told, results) = mpsc::channel();
    let of_worker = pool.clone();
    let work = move || told.send(of_worker.acquire().wait().map(drop)).unwrap();
    workers.execute(work).unwrap();
    receive(&results).unwrap();
    end(&group);
}
