//! The channel driver over TCP.

use crate::{
    bootstrap::ServerBootstrap,
    channel::{Pipeline, config::ChannelOptions},
    codec::Line,
    event_loop::ShutdownOptions,
    group::EventLoopGroup,
    pipeline::{Context, Handler},
    testing::wait::PATIENCE,
};
use bytes::Bytes;
use std::{
    io::Write,
    net::{Shutdown, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

/// Reports each line with the number of pending bytes at its arrival, then echoes and flushes it.
struct Echo(Sender<String>);

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> crate::error::Result {
        ctx.read();
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> crate::error::Result {
        let _ = self.0.send(format!("{} {}", String::from_utf8_lossy(&line), ctx.pending_bytes()));
        ctx.write(line)?;
        ctx.flush();
        // A request from outside the callback, for which the loop turns once more.
        let channel = ctx.channel();
        channel.execute(|scope| {
            scope.read();
            Ok(())
        })
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> crate::error::Result {
        let _ = self.0.send("inactive".into());
        Ok(())
    }
}

struct Fixture {
    group: EventLoopGroup,
    client: TcpStream,
    events: Receiver<String>,
}

impl Fixture {
    fn new(options: ChannelOptions) -> Self {
        let group = EventLoopGroup::builder().threads(1).build().unwrap();
        let (sender, events) = channel();
        let server = ServerBootstrap::new(&group)
            .channel_options(options)
            .pipeline(move |_| Pipeline::codec(Line::new()).handler(Echo(sender.clone())))
            .bind("127.0.0.1:0")
            .unwrap();
        let client = TcpStream::connect(server.local_address()).unwrap();
        let mut fixture = Fixture { group, client, events };
        fixture.client.write_all(b"hello\n").unwrap();
        assert_eq!(fixture.next(), "hello 0");
        fixture
    }

    /// Blocks the loop until the sender is dropped, so that everything until then causes one event.
    fn hold(&self) -> Sender<()> {
        let (entered, is_held) = channel();
        let (release, released) = channel::<()>();
        let task = move || {
            let _ = entered.send(());
            let _ = released.recv();
        };
        self.group.next().execute(task).unwrap();
        is_held.recv_timeout(PATIENCE).unwrap();
        release
    }

    fn next(&self) -> String {
        self.events.recv_timeout(PATIENCE).unwrap()
    }

    fn end(self) {
        drop(self.client);
        self.group
            .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE))
            .wait()
            .unwrap();
    }
}

#[test]
fn a_flush_between_two_messages_goes_out_before_the_second() {
    let mut fixture = Fixture::new(ChannelOptions::new());
    fixture.client.write_all(b"one\ntwo\nthree\n").unwrap();
    assert_eq!([fixture.next(), fixture.next(), fixture.next()], ["one 0", "two 0", "three 0"]);
    fixture.end();
}

#[test]
fn a_hang_up_that_is_reported_with_the_last_bytes_is_not_lost() {
    let mut fixture = Fixture::new(ChannelOptions::new());
    let held = fixture.hold();
    fixture.client.write_all(b"last\n").unwrap();
    fixture.client.shutdown(Shutdown::Write).unwrap();
    drop(held);
    assert_eq!([fixture.next(), fixture.next()], ["last 0", "inactive"]);
    fixture.end();
}

#[test]
fn an_interrupted_decoding_is_resumed_without_a_read() {
    let options = ChannelOptions::new().auto_read(false).one_message_per_read(true);
    let mut fixture = Fixture::new(options);
    let held = fixture.hold();
    fixture.client.write_all(b"one\ntwo\nthree\n").unwrap();
    drop(held);
    assert_eq!(fixture.next(), "one 0");
    let reads = fixture.group.next().metrics().reads;
    assert_eq!([fixture.next(), fixture.next()], ["two 0", "three 0"]);
    assert_eq!(fixture.group.next().metrics().reads, reads);
    fixture.end();
}

#[test]
fn input_beyond_the_read_budget_is_read_in_the_next_turns() {
    let mut fixture = Fixture::new(ChannelOptions::new().read_size(4).reads_per_turn(1));
    let held = fixture.hold();
    fixture.client.write_all(b"one\ntwo\nfor\n").unwrap();
    drop(held);
    assert_eq!([fixture.next(), fixture.next(), fixture.next()], ["one 0", "two 0", "for 0"]);
    fixture.end();
}
