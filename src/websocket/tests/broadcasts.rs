//! Broadcasts to a group of connections.

use super::support::{CLOSE, Echo, TEXT, as_read, client, close_payload, server, settings};
use crate::{
    channel::{BroadcastReport, group::ChannelGroup},
    http::Request,
    testing::EmbeddedChannel,
    websocket::{
        handshake::WebSocketServer,
        message::{CloseCode, Message},
    },
};
use bytes::Bytes;
use std::{collections::BTreeMap, time::Duration};

/// Connections in one group.
#[derive(Default)]
struct Room {
    group: ChannelGroup<Message>,
    members: Vec<EmbeddedChannel<Message>>,
}

impl Room {
    /// Adds connections, whose clients have made this offer.
    fn add(&mut self, n: usize, websocket: &WebSocketServer, offer: Option<&str>) {
        let mut request = Request::get("/")
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
        if let Some(offer) = offer {
            request = request.header("Sec-WebSocket-Extensions", offer);
        }
        let request = as_read(&request);
        for _ in 0..n {
            let pipeline = websocket.accept(&request).unwrap().into_parts().1;
            let mut member = EmbeddedChannel::new(pipeline.handler(Echo::default()));
            self.group.join(member.channel());
            self.members.push(member);
        }
    }

    fn broadcast(&mut self, message: Message) -> BroadcastReport {
        let report = self.group.broadcast(message).unwrap().report();
        for member in &mut self.members {
            member.run_pending();
        }
        report.take().expect("the broadcast is complete").unwrap()
    }

    /// Returns the bytes sent to members, with the number of members.
    fn sent(&mut self) -> BTreeMap<Bytes, usize> {
        let mut sent = BTreeMap::new();
        for member in &mut self.members {
            *sent.entry(member.read_outbound()).or_default() += 1;
        }
        sent
    }
}

fn quiet() -> WebSocketServer {
    WebSocketServer::with(settings()).unwrap()
}

/// A thousand connections, half of them with deflate.
#[cfg(feature = "deflate")]
#[test]
fn a_broadcast_is_encoded_and_compressed_once_per_parameters() {
    use crate::websocket::deflate::{Deflate, compressions};

    let websocket = quiet().deflate(Deflate::new()).unwrap();
    let mut room = Room::default();
    room.add(500, &websocket, None);
    // Two offers with the same result for the server.
    room.add(250, &websocket, Some("permessage-deflate"));
    room.add(250, &websocket, Some("permessage-deflate; client_max_window_bits"));
    let before = compressions();
    let text = "the same words again and again ".repeat(20);
    let report = room.broadcast(Message::text(text.clone()));
    assert_eq!(report.written, 1000);
    assert_eq!(compressions() - before, 1);
    let sent = room.sent();
    assert_eq!(sent.len(), 2, "two encodings");
    assert_eq!(sent.get(&Bytes::from(server(TEXT, text))), Some(&500));
    // Other parameters are another encoding.
    room.add(1, &websocket, Some("permessage-deflate; server_max_window_bits=9"));
    room.add(1, &quiet().deflate(Deflate::new().context_takeover(true)).unwrap(), Some("permessage-deflate"));
    let before = compressions();
    room.broadcast(Message::text("other words again and again ".repeat(20)));
    assert_eq!(compressions() - before, 3);
}

#[test]
fn a_broadcast_close_begins_the_close_handshake_of_each_member() {
    let mut room = Room::default();
    room.add(3, &quiet(), None);
    let report = room.broadcast(Message::close(CloseCode::GOING_AWAY, "bye"));
    assert_eq!(report.written, 3);
    let frame = Bytes::from(server(CLOSE, close_payload(1001, "bye")));
    assert_eq!(room.sent(), BTreeMap::from([(frame, 3)]));
    // Nothing follows the Close frame.
    let report = room.broadcast(Message::text("late"));
    assert_eq!((report.written, report.gone), (0, 3));
    assert_eq!(room.sent(), BTreeMap::from([(Bytes::new(), 3)]));
    room.members[0].write_inbound(&client(CLOSE, close_payload(1001, ""))).unwrap();
    assert!(room.members[0].is_closed());
    for member in &mut room.members[1..] {
        member.advance(Duration::from_millis(10_200));
        assert!(member.is_closed(), "the peer has not answered");
    }
}

#[test]
fn members_that_are_closing_do_not_receive_broadcasts() {
    let mut room = Room::default();
    room.add(3, &quiet(), None);
    room.members[1].channel().write(Message::Close(None)).unwrap();
    room.members[1].run_pending();
    room.members[1].read_outbound();
    let report = room.broadcast(Message::text("hi"));
    assert_eq!((report.written, report.gone), (2, 1));
    let expected = [(Bytes::new(), 1), (Bytes::from(server(TEXT, "hi")), 2)];
    assert_eq!(room.sent(), BTreeMap::from(expected));
}
