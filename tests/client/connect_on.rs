//! The loop of a channel, and connections on a chosen loop.

use crate::support::{
    loops::{end, on, one_loop},
    wait::done,
};
use bytes::Bytes;
use netwheel::{Error, codec::RawBytes, error::Resource, prelude::*, testing::EmbeddedChannel};
use std::sync::mpsc::{Sender, channel};

/// Sends the name of its loop, as the context reports it, when its channel is active.
struct ReportsLoop(Sender<Option<String>>);

impl Handler for ReportsLoop {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let event_loop = ctx.event_loop();
        assert!(event_loop.as_ref().is_none_or(EventLoop::in_event_loop));
        self.0.send(event_loop.map(|event_loop| event_loop.name().to_owned())).unwrap();
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

#[test]
fn a_connection_opens_on_the_chosen_loop_of_any_group() {
    let (servers, others) = (one_loop(), EventLoopGroup::builder().threads(3).build().unwrap());
    let server = ServerBootstrap::new(&servers).pipeline(|_| silent()).bind("127.0.0.1:0").unwrap();
    let (sender, names) = channel();
    let client = ClientBootstrap::new(&servers)
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(ReportsLoop(sender.clone())));
    for chosen in others.event_loops() {
        let one = done(client.connect_on(chosen, server.local_address())).unwrap();
        assert_eq!(names.recv().unwrap().as_deref(), Some(chosen.name()));
        let own = one.event_loop().expect("a channel with a socket has a loop");
        assert_eq!(own.name(), chosen.name());

        // A second connection on the loop of the first, from a task of that loop.
        let (client, address) = (client.clone(), server.local_address());
        let second = done(on(chosen, move || client.connect_on(&own, address))).unwrap();
        assert_eq!(names.recv().unwrap().as_deref(), Some(chosen.name()));
        assert!(on(chosen, move || one.in_event_loop() && second.in_event_loop()));
        assert_eq!(chosen.connections(), 2);
    }
    end(&others);
    end(&servers);
}

#[test]
fn a_full_loop_refuses_although_others_have_room() {
    let group = EventLoopGroup::builder().threads(2).max_connections(1).build().unwrap();
    let servers = one_loop();
    let server = ServerBootstrap::new(&servers).pipeline(|_| silent()).bind("127.0.0.1:0").unwrap();
    let client = ClientBootstrap::new(&group).pipeline(|_| silent());
    let chosen = &group.event_loops()[0];
    let open = done(client.connect_on(chosen, server.local_address())).unwrap();
    let refused = done(client.connect_on(chosen, server.local_address())).unwrap_err();
    assert!(matches!(refused, Error::Full { resource: Resource::Connections, limit: 1, .. }), "{refused}");
    assert!(open.is_open());
    done(client.connect(server.local_address())).expect("the other loop has room");
    end(&group);
    end(&servers);
}

#[test]
fn an_embedded_channel_has_no_loop() {
    let (sender, names) = channel();
    let mut embedded = EmbeddedChannel::new(Pipeline::codec(RawBytes).handler(ReportsLoop(sender)));
    assert_eq!(names.recv().unwrap(), None);
    assert!(embedded.channel().event_loop().is_none());
}

fn silent() -> Pipeline<Bytes> {
    Pipeline::codec(RawBytes).on_read(|_, _| Ok(()))
}
