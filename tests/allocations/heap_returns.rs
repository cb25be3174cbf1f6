//! Closed connections release all their heap memory, except for slots in the loop's lists.

use crate::support::{
    loops::{end, one_loop, some_turns, turn_until},
    servers::Echo,
    tcp::{ANY_PORT, connect, ping},
};
use crate::{heap, own_process};
use netwheel::{codec::LengthField, prelude::*};
use std::{net::TcpStream, time::Duration};

const PEERS: usize = 400;

#[test]
fn closed_connections_leave_nothing_on_the_heap() {
    own_process!();
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| {
            let hour = Duration::from_secs(3600);
            Pipeline::codec(LengthField::u32()).idle(IdleTimeouts::new().reader(hour)).handler(Echo)
        })
        .bind(ANY_PORT)
        .unwrap();
    let come_and_go = |peers: usize| -> (usize, usize) {
        let mut there: Vec<TcpStream> = (0..peers).map(|_| connect(server.local_address())).collect();
        there.iter_mut().for_each(|peer| ping(peer, b"\0\0\0\x05hello"));
        turn_until(&group, |metrics| metrics.channels == peers as u64);
        let full = heap::bytes_in_use();
        drop(there);
        turn_until(&group, |metrics| metrics.channels == 0);
        some_turns(&group);
        (full, heap::bytes_in_use())
    };
    let (_, start) = come_and_go(4);
    for _ in 0..5 {
        let (full, left) = come_and_go(PEERS);
        assert!(full > start + 200 * PEERS, "connections use heap memory");
        // Lists grow by doubling: at most twice 52 bytes per connection, plus a spare read buffer.
        let kept = left.saturating_sub(start);
        assert!(kept <= 104 * PEERS + 64 * 1024, "{kept} bytes are kept, of {}", full - start);
    }
    end(&group);
}
