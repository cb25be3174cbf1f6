//! A connection is counted until its handler is dropped and its socket is closed.

use crate::support::{
    loops::settle,
    tcp::connect,
    wait::{PATIENCE, done, wait_until},
};
use bytes::Bytes;
use netwheel::{Channel, admission::Admission, codec::RawBytes, prelude::*, shutdown::ShutdownOptions};
use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

const LIMIT: usize = 10;
const CLIENTS: usize = 16;
const ROUNDS: usize = 60;

/// The current and the highest number of live handlers.
#[derive(Default)]
struct Alive {
    now: AtomicUsize,
    most: AtomicUsize,
}

struct Counted {
    alive: Arc<Alive>,
    acceptor: EventLoop,
}

impl Counted {
    fn new(alive: &Arc<Alive>, acceptor: &EventLoop) -> Self {
        let now = alive.now.fetch_add(1, SeqCst) + 1;
        alive.most.fetch_max(now, SeqCst);
        Counted { alive: alive.clone(), acceptor: acceptor.clone() }
    }
}

impl Handler for Counted {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        match &message[..] {
            b"n" => ctx.close_now(),
            _ => ctx.close_with(message)?,
        }
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        // Lets the acceptor poll and accept. It would admit another connection now if this one were
        // no longer counted.
        settle(&self.acceptor);
        Ok(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.now.fetch_sub(1, SeqCst);
    }
}

/// Connects repeatedly. Returns how often the server admitted the connection.
fn churn(to: SocketAddr, client: usize) -> usize {
    let mut served = 0;
    for round in 0..ROUNDS {
        let mut stream = connect(to);
        let how = [&b"n"[..], b"y"][(client + round) % 2];
        let _ = stream.write_all(how);
        served += usize::from(matches!(stream.read(&mut [0; 8]), Ok(1)));
    }
    served
}

#[test]
fn live_handlers_never_exceed_the_connection_limit() {
    let acceptors = EventLoopGroup::builder().threads(1).build().unwrap();
    let children = EventLoopGroup::builder().threads(2).build().unwrap();
    let alive = Arc::<Alive>::default();
    let (handlers, acceptor) = (alive.clone(), acceptors.next().clone());
    let server = ServerBootstrap::new(&children)
        .acceptor_group(&acceptors)
        .admission(Admission::new().max_connections(LIMIT))
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(Counted::new(&handlers, &acceptor)))
        .bind("127.0.0.1:0")
        .unwrap();
    let to = server.local_address();
    let clients: Vec<_> = (0..CLIENTS).map(|client| thread::spawn(move || churn(to, client))).collect();
    let served: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert!(served > 0, "no connection was served");
    assert!(alive.most.load(SeqCst) <= LIMIT, "{} handlers", alive.most.load(SeqCst));
    for group in [&children, &acceptors] {
        done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE))).unwrap();
    }
    assert_eq!(alive.now.load(SeqCst), 0);
}

#[test]
fn a_connection_is_counted_during_inactive_and_the_drop_of_its_handler() {
    struct Last(EventLoop, std::sync::mpsc::Sender<usize>);
    impl Handler for Last {
        type Read = Bytes;
        type Write = Bytes;

        fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
            Ok(())
        }

        fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
            self.1.send(self.0.connections()).unwrap();
            Ok(())
        }
    }
    impl Drop for Last {
        fn drop(&mut self) {
            self.1.send(self.0.connections()).unwrap();
        }
    }
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let event_loop = group.next().clone();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closes: [fn(&Channel<Bytes>); 2] = [Channel::close, Channel::close_now];
    for close in closes {
        let (sender, counts) = std::sync::mpsc::channel();
        let me = event_loop.clone();
        let client = ClientBootstrap::new(&group)
            .pipeline(move |_| Pipeline::codec(RawBytes).handler(Last(me.clone(), sender.clone())));
        let channel = done(client.connect(nobody.local_addr().unwrap())).unwrap();
        close(&channel);
        for _ in 0..2 {
            assert_eq!(counts.recv_timeout(PATIENCE).unwrap(), 1);
        }
        drop(nobody.accept().unwrap());
        wait_until("the end of the connection", || event_loop.connections() == 0);
    }
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE))).unwrap();
}
