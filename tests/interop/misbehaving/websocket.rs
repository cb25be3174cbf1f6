//! A WebSocket server with 29 kinds of misbehaviour, and our client.

use super::start;
use crate::support::wait::{PATIENCE, SECOND, done};
use netwheel::{
    prelude::*,
    websocket::{Deflate, Message, WebSocketClient, WebSocketError, WebSocketSettings},
};
use std::sync::{Arc, Mutex};

/// The kind, and what the client's handler sees before the channel closes. Nothing is seen if the
/// handshake fails.
const TABLE: [(&str, &str); 29] = [
    ("valid", "accepted; text hi; close 1000"),
    ("wrong_accept", ""),
    ("no_accept", ""),
    ("two_accepts", ""),
    ("no_upgrade", ""),
    ("wrong_upgrade", ""),
    ("status_200", ""),
    ("status_401", ""),
    ("redirect", ""),
    ("wrong_protocol", ""),
    ("right_protocol", "accepted; protocol chat; close"),
    ("unoffered_extension", ""),
    ("wrong_parameters", ""),
    ("deflate", "accepted; text of 200 bytes; close"),
    ("deflate_bomb", "accepted; MessageTooLong { limit: 1048576 }"),
    ("masked", "accepted; Masked"),
    ("reserved_bit", "accepted; ReservedBits"),
    ("huge_length", "accepted; MessageTooLong { limit: 1048576 }"),
    ("invalid_text", "accepted; InvalidUtf8"),
    ("close_and_stay", "accepted; close 1001"),
    ("silence", ""),
    ("slow_head", ""),
    ("interim_storm", ""),
    ("silence_after_the_handshake", "accepted; TimedOut"),
    ("ping_flood", "accepted; close"),
    ("length_of_101", "accepted; text hello; close"),
    ("http_1_0", ""),
    ("single_bytes", "accepted; text hiho; close 4999"),
    ("close_1005", "accepted; InvalidCloseCode(CloseCode(1005))"),
];

type Log = Arc<Mutex<Vec<String>>>;

struct Recorder(Log);

impl Handler for Recorder {
    type Read = Message;
    type Write = Message;

    fn read(&mut self, _: &mut Context<'_, Self>, message: Message) -> Result {
        let text = match message {
            Message::Text(text) if text.len() > 20 => format!("text of {} bytes", text.len()),
            Message::Text(text) => format!("text {text}"),
            Message::Close(Some(frame)) => format!("close {}", frame.code),
            Message::Close(None) => "close".to_owned(),
            message => format!("{message:?}"),
        };
        self.0.lock().unwrap().push(text);
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let text = match WebSocketError::of(&error) {
            Some(cause) => format!("{cause:?}"),
            None if matches!(error, Error::TimedOut { .. }) => "TimedOut".to_owned(),
            None => format!("{error:#}"),
        };
        self.0.lock().unwrap().push(text);
        ctx.close();
        Ok(())
    }
}

#[test]
fn a_client_ends_every_connection_to_a_misbehaving_server() {
    let Some((_server, address)) = start(include_str!("websocket_server.py")) else { return };
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let mut started = Vec::new();
    for (kind, expected) in TABLE {
        let mut settings = WebSocketSettings::new().close_timeout(SECOND).handshake_time(PATIENCE / 2);
        match kind {
            "silence" | "slow_head" | "interim_storm" => settings = settings.handshake_time(SECOND),
            "silence_after_the_handshake" => settings = settings.ping_interval(SECOND / 2),
            _ => {}
        }
        let client = WebSocketClient::new("localhost").with(settings).unwrap();
        let client = client.protocols(["chat"]).unwrap().deflate(Deflate::new()).unwrap();
        let (log, target) = (Log::default(), format!("/{kind}"));
        let seen = log.clone();
        let connecting = ClientBootstrap::new(&group)
            .pipeline(move |_peer| {
                let seen = seen.clone();
                client.pipeline(&target, move |accepted| {
                    let mut events = seen.lock().unwrap();
                    events.push("accepted".to_owned());
                    events.extend(accepted.protocol().map(|name| format!("protocol {name}")));
                    drop(events);
                    accepted.into_parts().1.handler(Recorder(seen))
                })
            })
            .connect(address);
        started.push((kind, expected, log, done(connecting).unwrap().closed()));
    }
    let mut wrong = Vec::new();
    for (kind, expected, log, closed) in started {
        if closed.wait_timeout(PATIENCE).is_err() {
            wrong.push(format!("{kind}: open"));
        }
        let seen = log.lock().unwrap().join("; ");
        if seen != expected {
            wrong.push(format!("{kind}: {seen:?} instead of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
