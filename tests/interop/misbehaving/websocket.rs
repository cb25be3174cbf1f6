//! A WebSocket server with 29 kinds of misbehaviour, and our client.

use super::start;
use crate::support::wait::{PATIENCE, SECOND, done};
use netwheel::{
    prelude::*,
    websocket::{Deflate, HandshakeError, Message, WebSocketClient, WebSocketError, WebSocketSettings},
};
use std::sync::{Arc, Mutex};

/// The kind, and the events of the client: the error of the handshake, or the messages and errors
/// of its handler.
const TABLE: [(&str, &str); 29] = [
    ("valid", "accepted; text hi; close 1000"),
    ("wrong_accept", "AcceptKey"),
    ("no_accept", "AcceptKey"),
    ("two_accepts", "AcceptKey"),
    ("no_upgrade", "NotUpgraded"),
    ("wrong_upgrade", "NotUpgraded"),
    ("status_200", "200"),
    ("status_401", "401"),
    ("redirect", "302"),
    ("wrong_protocol", "Protocol"),
    ("right_protocol", "accepted; protocol chat; close"),
    ("unoffered_extension", "Extension"),
    ("wrong_parameters", "Extension"),
    ("deflate", "accepted; text of 200 bytes; close"),
    ("deflate_bomb", "accepted; MessageTooLong { limit: 1048576 }"),
    ("masked", "accepted; Masked"),
    ("reserved_bit", "accepted; ReservedBits"),
    ("huge_length", "accepted; MessageTooLong { limit: 1048576 }"),
    ("invalid_text", "accepted; InvalidUtf8"),
    ("close_and_stay", "accepted; close 1001"),
    ("silence", "TimedOut"),
    ("slow_head", "TimedOut"),
    ("interim_storm", "TimedOut"),
    ("silence_after_the_handshake", "accepted; TimedOut"),
    ("ping_flood", "accepted; close"),
    ("length_of_101", "accepted; text hello; close"),
    ("http_1_0", "NotUpgraded"),
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
        self.0.lock().unwrap().push(name_of(&error));
        ctx.close();
        Ok(())
    }
}

fn name_of(error: &Error) -> String {
    match (WebSocketError::of(error), HandshakeError::of(error)) {
        (Some(cause), _) => format!("{cause:?}"),
        (_, Some(refusal)) => refusal.status().map_or(format!("{refusal:?}"), |status| status.to_string()),
        _ if matches!(error, Error::TimedOut { .. }) => "TimedOut".to_owned(),
        _ => format!("{error:#}"),
    }
}

#[test]
fn a_client_ends_every_connection_to_a_misbehaving_server() {
    let Some((_server, address)) = start(include_str!("websocket_server.py")) else { return };
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let mut started = Vec::new();
    for (kind, expected) in TABLE {
        let mut settings = WebSocketSettings::new().close_timeout(SECOND);
        let mut handshake_timeout = PATIENCE / 2;
        match kind {
            "silence" | "slow_head" | "interim_storm" => handshake_timeout = SECOND,
            "silence_after_the_handshake" => settings = settings.ping_interval(SECOND / 2),
            _ => {}
        }
        let client = WebSocketClient::new("localhost").with(settings).unwrap();
        let client = client.protocols(["chat"]).unwrap().deflate(Deflate::new()).unwrap();
        let (log, target) = (Log::default(), format!("/{kind}"));
        let seen = log.clone();
        let connecting = ClientBootstrap::new(&group)
            .handshake_timeout(handshake_timeout)
            .websocket(client, &target, move |accepted| {
                let mut events = seen.lock().unwrap();
                events.push("accepted".to_owned());
                events.extend(accepted.protocol().map(|name| format!("protocol {name}")));
                drop(events);
                accepted.into_parts().1.handler(Recorder(seen.clone()))
            })
            .connect(address);
        started.push((kind, expected, log, connecting));
    }
    let mut wrong = Vec::new();
    for (kind, expected, log, connecting) in started {
        match done(connecting) {
            Ok(channel) if channel.closed().wait_timeout(PATIENCE).is_err() => {
                wrong.push(format!("{kind}: open"));
            }
            Ok(_) => {}
            Err(error) => log.lock().unwrap().push(name_of(&error)),
        }
        let seen = log.lock().unwrap().join("; ");
        if seen != expected {
            wrong.push(format!("{kind}: {seen:?} instead of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
