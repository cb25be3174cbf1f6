//! `ProgramClient`: a client for programs of simulated nodes.

use super::SECOND;
use netwheel::{
    codec::{Resp, RespValue},
    prelude::*,
    testing::simulation::Journal,
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

type Waiting = Arc<Mutex<VecDeque<Completer<RespValue>>>>;

/// Gives each reply to the oldest request, and records push messages.
struct Replies {
    waiting: Waiting,
    pushes: Journal<RespValue>,
}

impl Handler for Replies {
    type Read = RespValue;
    type Write = RespValue;

    fn read(&mut self, _ctx: &mut Context<'_, Self>, message: RespValue) -> Result {
        if let RespValue::Push(_) = message {
            self.pushes.push(message);
        } else if let Some(waiting) = self.waiting.lock().unwrap().pop_front() {
            waiting.complete(Ok(message));
        }
        Ok(())
    }

    fn inactive(&mut self, _ctx: &mut Context<'_, Self>) -> Result {
        // Requests without a reply fail.
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        drop(waiting);
        Ok(())
    }
}

/// A connection with RESP3.
pub(super) struct ProgramClient {
    event_loop: EventLoop,
    channel: Channel<RespValue>,
    waiting: Waiting,
    /// The push messages so far.
    pub(super) pushes: Journal<RespValue>,
}

impl ProgramClient {
    pub(super) fn connect(group: &EventLoopGroup) -> Result<Self> {
        Self::connect_to(group, "redis:6379")
    }

    pub(super) fn connect_to(group: &EventLoopGroup, address: &str) -> Result<Self> {
        let (waiting, pushes) = (Waiting::default(), Journal::new());
        let (replies, heard) = (waiting.clone(), pushes.clone());
        let client = ClientBootstrap::new(group).pipeline(move |_peer| {
            Pipeline::codec(Resp::client())
                .handler(Replies { waiting: replies.clone(), pushes: heard.clone() })
        });
        let channel = client.connect(address).wait()?;
        let client = ProgramClient { event_loop: group.next().clone(), channel, waiting, pushes };
        client.ask(&["HELLO", "3"])?;
        Ok(client)
    }

    /// Sends a command and returns the reply. Fails if the connection ends, or if there is no reply
    /// within 20 seconds; the channel closes then.
    pub(super) fn ask(&self, command: &[&str]) -> Result<RespValue> {
        let (completer, reply) = self.event_loop.completer();
        self.waiting.lock().unwrap().push_back(completer);
        self.channel.write(RespValue::command(command.iter().map(|arg| arg.to_string())))?;
        match reply.wait_timeout(20 * SECOND) {
            Ok(reply) => reply,
            Err(_) => {
                self.channel.close_now();
                Err(Error::Closed)
            }
        }
    }

    /// Sends a command, whose arguments are separated by spaces, and returns the reply as text.
    pub(super) fn text(&self, command: &str) -> String {
        let reply = self.ask(&command.split(' ').collect::<Vec<_>>()).unwrap();
        match &reply {
            RespValue::Integer(number) => number.to_string(),
            reply if reply.is_null() => "nil".to_owned(),
            reply => match reply.as_bytes() {
                Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                None => format!("{reply:?}"),
            },
        }
    }

    /// Subscribes to a channel. The confirmation is a push message, not a reply.
    pub(super) fn subscribe(&self, channel: &str) -> Result {
        self.channel.write(RespValue::command(["SUBSCRIBE".to_owned(), channel.to_owned()]))?;
        Ok(())
    }

    pub(super) fn is_open(&self) -> bool {
        self.channel.is_open()
    }
}

impl Drop for ProgramClient {
    fn drop(&mut self) {
        self.channel.close_now();
    }
}
