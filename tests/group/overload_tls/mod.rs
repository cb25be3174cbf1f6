//! Overload control of a server with TLS and WebSocket: a storm of handshakes beside established
//! clients, whose Pings are answered. The clients use rustls and tungstenite. The loop is on a
//! manual clock, and logins take time by advancing it.

mod client;
mod storm;

use crate::support::{
    tcp::{assert_reset, connect},
    wait::ms,
};
use client::{Answer, Client};
use netwheel::worker_pool::WorkerPool;
use std::{net::TcpStream, sync::mpsc::channel};
use storm::{LOGIN, Storm};

/// Returns the hint of an answer that refuses a login.
fn hint(answer: &Answer) -> Option<u64> {
    let Ok(tungstenite::Message::Close(Some(frame))) = answer else { return None };
    assert_eq!(u16::from(frame.code), 1013);
    let hint = frame.reason.strip_prefix("retry after ")?.strip_suffix(" ms")?;
    Some(hint.parse().unwrap())
}

/// Handshakes are computed on the loop first, and then on workers.
#[test]
fn a_late_loop_refuses_tls_clients_and_keeps_the_pongs_of_established_ones() {
    const SILENT: usize = 60;
    let workers = WorkerPool::builder().threads(2).build().unwrap();
    for workers in [None, Some(&workers)] {
        let mut storm = Storm::new(workers, 8);
        let established: Vec<Client> = (0..4).map(|_| storm.connect()).collect();
        let guests: Vec<Client> = (0..8).map(|_| storm.connect()).collect();
        let mut silent = storm.connect_silent(SILENT);
        assert_eq!(storm.metrics().handshakes, 12);

        // Each turn has another login, which blocks the loop.
        storm.busy = LOGIN;
        storm.turn_until(|metrics| (metrics.overload_level == 4).then_some(()));
        storm.send_hellos(&mut silent);
        let answered = storm.count_answered(&mut silent);
        let metrics = storm.metrics();
        assert!(answered < SILENT / 4, "{answered} handshakes were begun");
        let refused = (SILENT - answered) as u64;
        assert_eq!((metrics.shed_handshakes, metrics.handshakes_failed), (refused, refused));
        for n in 0..5 {
            let mut new: Vec<TcpStream> = (0..10).map(|_| connect(storm.address)).collect();
            let mut shed = 0;
            storm.turn_until(|metrics| {
                shed = metrics.shed_accepts;
                (metrics.shed_accepts + metrics.accepted == (12 + SILENT + 10 * (n + 1)) as u64).then_some(())
            });
            assert!(shed >= 8 * (n as u64 + 1), "{shed} connections were refused");
            assert_reset(&mut new[9]);
            for client in &established {
                storm.assert_pong(client, &format!("ping {n}"));
            }
        }
        guests.iter().for_each(|guest| guest.command("login".into()));
        let answers: Vec<Answer> = guests.iter().map(|guest| storm.answer_of(guest)).collect();
        let hints: Vec<u64> = answers.iter().filter_map(hint).collect();
        assert!(hints.len() >= 5 && hints.iter().all(|hint| (100..=60_000).contains(hint)), "{answers:?}");
        assert_eq!(storm.metrics().shed_logins, hints.len() as u64);
        let before = storm.metrics();

        storm.recover();
        let new = storm.connect();
        new.command("login".into());
        assert_eq!(storm.answer_of(&new), Ok("welcome".into()));
        for client in &established {
            storm.assert_pong(client, "calm");
        }
        let metrics = storm.metrics();
        assert_eq!((metrics.overload_level, metrics.shed_logins), (0, before.shed_logins));
        assert_eq!(metrics.handshakes, 13, "no established client has connected again");
        if let Some(workers) = workers {
            assert!(workers.metrics().finished >= 13, "{:?}", workers.metrics());
        }
    }
}

/// Workers that do not keep up leave handshakes to the loop, which computes one per turn.
#[test]
fn handshakes_that_a_full_pool_leaves_to_the_loop_are_refused_when_they_wait_for_too_long() {
    const SILENT: usize = 150;
    let workers = WorkerPool::builder().threads(1).max_pending(1).build().unwrap();
    let (release, released) = channel::<()>();
    workers.execute(move || released.recv()).unwrap();
    let mut storm = Storm::new(Some(&workers), 1);
    let mut silent = storm.connect_silent(SILENT);
    storm.send_hellos(&mut silent);
    // Well within the target.
    storm.busy = ms(20);
    storm.turn_until(|metrics| (metrics.shed_handshakes > 10).then_some(()));
    assert!(workers.metrics().refused > 10, "{:?}", workers.metrics());
    drop(release);
    let answered = storm.count_answered(&mut silent);
    let metrics = storm.metrics();
    assert!(answered > 40, "{answered} handshakes were computed");
    assert_eq!(metrics.shed_handshakes as usize, SILENT - answered);
    assert_eq!((metrics.shed_accepts, metrics.shed_logins), (0, 0));
}
