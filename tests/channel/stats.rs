//! Statistics and ids of a channel.

use crate::support::{
    loops::single,
    wait::{PATIENCE, done, ms},
};
use bytes::Bytes;
use netwheel::{
    ChannelId, ClientBootstrap,
    channel::{ChannelOptions, ChannelStats, Overflow},
    codec::{LengthField, Line},
    prelude::*,
    shutdown::ShutdownOptions,
    testing::{EmbeddedChannel, ManualClock},
};
use std::{
    collections::HashSet,
    io::{Read, Write},
    net::TcpListener,
    sync::mpsc::{Sender, channel},
};

/// Echoes, and sends the statistics of the channel in each call.
struct Echo(Sender<ChannelStats>);

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        if message != "silent" {
            ctx.write(message)?;
        }
        self.0.send(ctx.stats()).map_err(Error::other)
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let _ = self.0.send(ctx.stats());
        Ok(())
    }
}

#[test]
fn bytes_and_messages_are_counted_and_times_come_from_the_clock_of_the_loop() {
    let clock = ManualClock::new();
    let (told, tells) = channel();
    let begin = netwheel::time::Clock::now(&clock);
    let pipeline = Pipeline::codec(LengthField::u16()).handler(Echo(told));
    let mut peer = EmbeddedChannel::builder(pipeline).clock(clock).build().unwrap();
    let handle = peer.channel();
    let ask = |peer: &mut EmbeddedChannel<Bytes>| {
        let asked = handle.stats();
        peer.run_pending();
        done(asked).unwrap()
    };
    let first = ask(&mut peer);
    assert_eq!((first.bytes_read, first.bytes_written, first.pending_bytes), (0, 0, 0));
    assert_eq!((first.messages_read, first.messages_written, first.messages_dropped), (0, 0, 0));
    assert_eq!((first.connected, first.last_read, first.last_written), (begin, None, None));

    peer.advance(ms(10));
    peer.set_outbound_room(Some(3));
    // A complete frame and the first byte of another.
    peer.write_inbound(b"\0\x02hi\0").unwrap();
    let within = tells.recv().unwrap();
    assert_eq!((within.messages_read, within.messages_written), (1, 1), "the current message is counted");
    assert_eq!((within.bytes_read, within.bytes_written, within.pending_bytes), (5, 0, 4));
    let then = ask(&mut peer);
    assert_eq!((then.bytes_read, then.bytes_written, then.pending_bytes), (5, 3, 1));
    assert_eq!((then.last_read, then.last_written), (Some(begin + ms(10)), Some(begin + ms(10))));

    peer.advance(ms(10));
    peer.write_inbound(b"\x06silent\0").unwrap();
    let later = ask(&mut peer);
    assert_eq!((later.bytes_read, later.messages_read, later.messages_written), (13, 2, 1));
    assert_eq!((later.last_read, later.last_written), (Some(begin + ms(20)), Some(begin + ms(10))));
    assert_eq!(later.connected, begin);
}

#[test]
fn dropped_messages_are_counted_for_each_overflow_policy() {
    for (overflow, dropped, written) in [(Overflow::DropNewest, 1, 2), (Overflow::DropOldest, 2, 3)] {
        let options = ChannelOptions::new().max_outbound(10).overflow(overflow);
        let (told, tells) = channel();
        let pipeline = Pipeline::codec(Line::new()).handler(Echo(told));
        let mut peer = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
        peer.set_outbound_room(Some(0));
        peer.write_inbound(b"seven77\neight88\nnine999\n").unwrap();
        let last = tells.iter().take(3).last().unwrap();
        assert_eq!((last.messages_dropped, last.messages_written), (dropped, written), "{overflow:?}");
    }
}

#[test]
fn a_channel_over_tcp_counts_the_bytes_of_its_socket() {
    const SIZE: usize = 3 * 1024 * 1024;
    let (group, _) = single(EventLoopGroup::builder());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (told, tells) = channel();
    let client = ClientBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(LengthField::u32().max_len(2 * SIZE)).handler(Echo(told.clone())));
    let channel = done(client.connect(listener.local_addr().unwrap())).unwrap();
    let mut peer = listener.accept().unwrap().0;
    let message = vec![7; SIZE];
    // A frame that is read in many pieces and buffered in between.
    peer.write_all(&(SIZE as u32).to_be_bytes()).unwrap();
    peer.write_all(&message).unwrap();
    let mut back = vec![0; SIZE + 4];
    peer.read_exact(&mut back).unwrap();
    peer.write_all(b"\0\0\0\x06silent").unwrap();
    drop(peer);
    let end = tells.iter().take(3).last().unwrap();
    assert_eq!((end.bytes_read, end.messages_read), ((SIZE + 14) as u64, 2));
    assert_eq!((end.bytes_written, end.messages_written, end.pending_bytes), ((SIZE + 4) as u64, 1, 0));
    assert!(end.connected <= end.last_read.unwrap() && end.connected <= end.last_written.unwrap());
    done(channel.closed()).unwrap();
    assert!(matches!(done(channel.stats()), Err(Error::Closed)));
    done(group.shutdown(ShutdownOptions::new().quiet_period(ms(0)).timeout(PATIENCE))).unwrap();
}

#[test]
fn stats_requested_during_a_close_fail_with_closed() {
    let (told, _tells) = channel();
    let mut peer = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Echo(told)));
    let handle = peer.channel();
    handle.close();
    let asked = handle.stats();
    peer.run_pending();
    assert!(matches!(done(asked), Err(Error::Closed)));
}

/// C-12: ids print as short text that is stable and unique in the process.
#[test]
fn c_12_ids_print_as_short_text_that_is_stable_and_unique() {
    let (group, _) = single(EventLoopGroup::builder());
    let another = EventLoopGroup::builder().threads(2).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ids: Vec<(ChannelId, String)> = Vec::new();
    for group in [&group, &another] {
        let client =
            ClientBootstrap::new(group).pipeline(|_| Pipeline::codec(Line::new()).handler(Echo(channel().0)));
        for _ in 0..2 {
            let open: Vec<_> =
                (0..4).map(|_| done(client.connect(listener.local_addr().unwrap())).unwrap()).collect();
            for channel in &open {
                assert_eq!(channel.id().to_string(), format!("{:?}", channel.clone().id()));
                ids.push((channel.id(), channel.id().to_string()));
                channel.close_now();
            }
            // The next channels use the same slots.
            for channel in open {
                done(channel.closed()).unwrap();
            }
        }
    }
    assert_eq!(ids.iter().map(|(_, text)| text).collect::<HashSet<_>>().len(), ids.len(), "{ids:?}");
    for (id, text) in &ids {
        assert_eq!(id.to_string(), *text, "also after the channel has closed");
        let parts: Vec<u32> = text.split(['-', '.']).map(|part| part.parse().unwrap()).collect();
        assert_eq!(format!("{}-{}.{}", parts[0], parts[1], parts[2]), *text);
    }
    for group in [&group, &another] {
        done(group.shutdown(ShutdownOptions::new().quiet_period(ms(0)).timeout(PATIENCE))).unwrap();
    }
}
