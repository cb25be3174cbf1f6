//! Shuts a group with an accepted and an outgoing channel down in every way that docs/endings.md
//! lists.

use super::{
    filters::Marked,
    rows::{Check, rows},
    table::name,
};
use crate::support::{
    journal::Journal,
    loops::manual_group,
    tcp::{connect, patient},
    wait::{SECOND, done, ms, wait_until},
};
use bytes::Bytes;
use netwheel::{channel::ChannelOptions, codec::RawBytes, prelude::*, shutdown::ShutdownOptions};
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpListener,
    time::Duration,
};

/// Records the call of `shutdown` and its end. Closes in `shutdown`, unless it stays.
struct Member {
    journal: Journal<String>,
    kind: &'static str,
    stays: bool,
}

impl Handler for Member {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.journal.push("active".to_owned());
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.journal.push(format!("{}: shutdown", self.kind));
        if !self.stays {
            ctx.close();
        }
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.journal.push(format!("{}: {}", self.kind, name(ctx.close_cause().unwrap())));
        Ok(())
    }
}

/// Returns the events in order, and the ends of the peers' streams.
fn play(row: &str) -> (Vec<String>, Vec<&'static str>) {
    let (accepts, [accepted_stays, outgoing_stays]) = match row {
        "the handlers close in `shutdown`" => (true, [false, false]),
        "no accepted channel is left" => (false, [false, false]),
        "the accepted channel stays until the timeout" => (true, [true, false]),
        "the outgoing channel stays until the timeout" => (true, [false, true]),
        "both stay until the timeout" => (true, [true, true]),
        _ => panic!("nothing tests the row {row:?}"),
    };
    let (group, clock) = manual_group();
    let journal: Journal<String> = Journal::new();
    let member = |kind, stays| {
        let journal = journal.clone();
        move || Pipeline::codec(RawBytes).handler(Member { journal: journal.clone(), kind, stays })
    };
    let (of_server, of_client) = (member("accepted", accepted_stays), member("outgoing", outgoing_stays));
    let server = ServerBootstrap::new(&group).pipeline(move |_| of_server()).bind("127.0.0.1:0").unwrap();
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = ClientBootstrap::new(&group).pipeline(move |_| of_client());
    done(client.connect(backend.local_addr().unwrap())).unwrap();
    let mut peers = vec![backend.accept().unwrap().0];
    patient(&peers[0]);
    if accepts {
        peers.insert(0, connect(server.local_address()));
    }
    wait_until("both channels", || journal.len() == peers.len());
    journal.take();
    let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(SECOND);
    let ended = group.shutdown(options);
    // A graceful end of an accepted channel needs no time.
    let notified = if accepts { "accepted: shutdown" } else { "outgoing: shutdown" };
    wait_until("the shutdown", || journal.all().iter().any(|event| event == notified));
    if !accepted_stays {
        wait_until("the second step", || journal.all().iter().any(|event| event == "outgoing: shutdown"));
    }
    if accepted_stays || outgoing_stays {
        wait_until("the timeout", || {
            clock.advance(SECOND);
            ended.is_done()
        });
    }
    let seen = peers.iter_mut().map(|peer| match peer.read_to_end(&mut Vec::new()) {
        Ok(_) => "end",
        Err(e) if e.kind() == ErrorKind::ConnectionReset => "reset",
        Err(e) => panic!("{e}"),
    });
    let seen = seen.collect();
    drop(peers);
    done(ended).unwrap();
    let mut events = journal.all();
    if accepted_stays {
        // The order of the ends at the timeout is not defined.
        events[2..].sort_unstable();
    }
    (events, seen)
}

#[test]
fn a_shutdown_ends_channels_as_the_table_in_the_docs_says() {
    let mut check = Check::default();
    for [row, events, of_peers] in rows("shutdown with outgoing channels") {
        let (happened, seen) = play(row);
        let happened: Vec<&str> = happened.iter().map(String::as_str).collect();
        check.row(row, &[(&happened, events), (&seen, of_peers)]);
    }
    check.end();
}

/// The filters of a channel that closes in the last step end their output, so the peer does not
/// take the end for a cut.
#[test]
fn a_channel_that_closes_with_its_loop_sends_its_end_mark() {
    assert_eq!(sent_with_the_end_of_the_loop(0), b"E");
}

/// The last step sends what the kernel accepts, also beyond the share of a turn.
#[test]
fn a_channel_that_closes_with_its_loop_sends_more_than_the_share_of_a_turn() {
    const LENGTH: usize = 70_000;
    let sent = sent_with_the_end_of_the_loop(LENGTH);
    assert_eq!((sent.len(), sent.last()), (LENGTH + 1, Some(&b'E')));
}

/// Ends the loop of a channel with a filter, which writes this many bytes then. Returns what the
/// peer receives.
fn sent_with_the_end_of_the_loop(length: usize) -> Vec<u8> {
    let mut by_hand = EventLoopGroup::builder().build_manual().unwrap();
    let server = ServerBootstrap::new(by_hand.group())
        .channel_options(ChannelOptions::new().writes_per_turn(1))
        .filter(|_| Marked::established())
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(LastWords(length)))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    while by_hand.event_loop().metrics().channels == 0 {
        by_hand.run_once(ms(10));
    }
    drop(by_hand);
    let mut received = Vec::new();
    peer.read_to_end(&mut received).unwrap();
    received
}

/// Writes this many bytes when the loop shuts down, and closes.
struct LastWords(usize);

impl Handler for LastWords {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(vec![b'.'; self.0].into())?;
        ctx.close();
        Ok(())
    }
}

/// Stays open in `shutdown`. Each message makes another pipeline take over, which closes.
struct Upgrading(Journal<String>);

impl Handler for Upgrading {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.push("active".to_owned());
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
        let member = Member { journal: self.0.clone(), kind: "new", stays: false };
        ctx.replace_pipeline(Pipeline::codec(RawBytes).handler(member))
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.push(format!("old: {:?}", ctx.shutdown_cause()));
        Ok(())
    }
}

/// The loop notifies each channel once, and the old pipeline was notified.
#[test]
fn a_pipeline_that_takes_over_during_a_shutdown_is_notified_too() {
    let (group, _clock) = manual_group();
    let journal: Journal<String> = Journal::new();
    let of_server = journal.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(Upgrading(of_server.clone())))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    wait_until("the channel", || journal.len() == 1);
    let ended = group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(SECOND));
    wait_until("the shutdown", || journal.len() == 2);
    peer.write_all(b"upgrade").unwrap();
    assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap(), 0);
    drop(peer);
    let report = done(ended).unwrap();
    assert_eq!((report.graceful, report.forced), (1, 0), "{report}");
    let events = ["active", "old: Some(LoopShutdown)", "active", "new: shutdown", "new: Clean"];
    assert_eq!(journal.all(), events);
}
