//! Replacing servers on one listening socket without refusing or losing a connection.

use crate::support::wait::{PATIENCE, done, ms, wait_until};
use netwheel::{
    EventLoopGroup, Handler, Pipeline, Result, Server, ServerBootstrap, codec::RawBytes,
    shutdown::ShutdownOptions,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

struct Echo {
    served: Arc<AtomicUsize>,
}

impl Handler for Echo {
    type Read = bytes::Bytes;
    type Write = bytes::Bytes;

    fn read(&mut self, ctx: &mut netwheel::Context<'_, Self>, message: bytes::Bytes) -> Result {
        self.served.fetch_add(1, Ordering::Relaxed);
        ctx.write(message)
    }
}

struct Generation {
    group: EventLoopGroup,
    server: Server,
    served: Arc<AtomicUsize>,
}

impl Generation {
    fn new(listener: &TcpListener) -> Self {
        let group = EventLoopGroup::builder().threads(1).build().unwrap();
        let served = Arc::new(AtomicUsize::new(0));
        let mine = served.clone();
        let server = ServerBootstrap::new(&group)
            .pipeline(move |_| Pipeline::codec(RawBytes).handler(Echo { served: mine.clone() }))
            .adopt(listener.try_clone().unwrap())
            .unwrap();
        Generation { group, server, served }
    }

    /// Accepts no more connections, lets its connections finish, and ends.
    fn retire(self) -> usize {
        done(self.server.close()).unwrap();
        wait_until("the end of the connections", || self.group.next().connections() == 0);
        let ended = self.group.shutdown(ShutdownOptions::new().quiet_period(ms(0)).timeout(PATIENCE));
        assert_eq!(done(ended).unwrap().forced, 0);
        self.served.load(Ordering::Relaxed)
    }
}

/// Opens one connection and does one round trip.
fn visit(address: SocketAddr, n: usize) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&n.to_le_bytes())?;
    let mut back = [0; size_of::<usize>()];
    stream.read_exact(&mut back)?;
    assert_eq!(usize::from_le_bytes(back), n);
    Ok(())
}

#[test]
fn a_reload_refuses_no_connection() {
    const GENERATIONS: usize = 8;
    const VISITS_EACH: usize = 100;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (visits, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let first = Generation::new(&listener);
    assert_eq!(first.server.local_address(), address);

    let served: usize = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let n = visits.fetch_add(1, Ordering::Relaxed);
                    visit(address, n).unwrap_or_else(|e| panic!("visit {n}: {e}"));
                }
            });
        }
        let mut served = 0;
        let mut serving = first;
        for _ in 1..GENERATIONS {
            wait_until("visits are served", || serving.served.load(Ordering::Relaxed) >= VISITS_EACH);
            let next = Generation::new(&listener);
            served += std::mem::replace(&mut serving, next).retire();
        }
        over.store(true, Ordering::Relaxed);
        // The last visits are served by the last generation, which ends after them.
        wait_until("the last visits are served", || {
            served + serving.served.load(Ordering::Relaxed) >= visits.load(Ordering::Relaxed)
        });
        served + serving.retire()
    });
    assert_eq!(served, visits.load(Ordering::Relaxed), "each visit was served once");
}
