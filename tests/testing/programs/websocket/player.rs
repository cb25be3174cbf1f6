//! A side of a conversation on a WebSocket pipeline: sends, answers and closes at random.

use super::{
    super::support::{Calm, Draw, MS, SECOND},
    conversation::{Conversation, Side},
};
use bytes::Bytes;
use netwheel::{
    prelude::*,
    testing::simulation::sometimes,
    websocket::{CloseCode, Message},
};
use std::sync::{Arc, Mutex};

pub(super) struct Player {
    side: Side,
    conversation: Arc<Mutex<Conversation>>,
    draw: Draw,
    calm: Calm,
    is_calm: bool,
    /// Messages that are still to be sent.
    left: u64,
    /// Whether this side has begun to close.
    is_closing: bool,
}

impl Player {
    pub(super) fn new(side: Side, conversation: Arc<Mutex<Conversation>>, calm: &Calm) -> Self {
        let (mut draw, is_calm) = (Draw::new(), calm.is_now());
        let left = 1 + draw.below(20);
        conversation.lock().unwrap().party(side).has_begun = true;
        Player { side, conversation, draw, calm: calm.clone(), is_calm, left, is_closing: false }
    }

    /// Returns a message of a random kind and length.
    fn message(&mut self) -> Message {
        let length = self.draw.pick(&[0, 1, 20, 300, 300, 4000, 30_000]);
        if length > 10_000 {
            sometimes("long message");
        }
        let word = format!("{} ", self.draw.below(1000));
        let mut text = word.repeat(length / word.len() + 1);
        text.truncate(length);
        if self.draw.one_in(2) { Message::text(text) } else { Message::binary(text.into_bytes()) }
    }

    fn send(&mut self, ctx: &mut Context<'_, Self>, message: Message) {
        if !self.is_closing && ctx.write(message.clone()).is_ok() {
            self.conversation.lock().unwrap().sent(self.side, message);
        }
    }

    fn close(&mut self, ctx: &mut Context<'_, Self>, code: CloseCode) -> Result {
        if !self.is_closing {
            self.is_closing = true;
            self.conversation.lock().unwrap().closes(self.side, code);
            ctx.write(Message::close(code, "enough"))?;
        }
        Ok(())
    }

    fn later(&mut self, ctx: &mut Context<'_, Self>) {
        let pauses = if self.is_calm { [MS; 4] } else { [MS, 50 * MS, SECOND, 4 * SECOND] };
        let pause = self.draw.pick(&pauses);
        ctx.schedule(self.draw.time(pause), Self::act);
    }

    /// Does something on its own account.
    fn act(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if self.conversation.lock().unwrap().party(self.side).has_read_close || self.is_closing {
            return Ok(());
        }
        if self.left > 0 {
            for _ in 0..=self.draw.below(4) {
                let message = self.message();
                self.send(ctx, message);
            }
            if self.draw.one_in(4) {
                ctx.write(Message::Ping(Bytes::from_static(b"are you there?")))?;
            }
            self.left -= 1;
            self.later(ctx);
            return Ok(());
        }
        if self.is_calm && self.side == Side::Server {
            // The client closes.
            return Ok(());
        }
        if !self.is_calm && self.draw.one_in(6) {
            self.conversation.lock().unwrap().breaks(self.side);
            match self.draw.below(3) {
                0 => ctx.close(),
                1 => ctx.close_now(),
                _ => ctx.reset(),
            }
            return Ok(());
        }
        let code = CloseCode::new(4000 + self.draw.below(900) as u16);
        self.close(ctx, code)
    }
}

impl Handler for Player {
    type Read = Message;
    type Write = Message;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.later(ctx);
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        self.conversation.lock().unwrap().read(self.side, &message);
        let is_data = matches!(message, Message::Text(_) | Message::Binary(_));
        if is_data && self.side == Side::Server && !self.calm.is_now() && self.draw.one_in(3) {
            self.send(ctx, message);
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let mut conversation = self.conversation.lock().unwrap();
        match error {
            Error::TimedOut { .. } => sometimes("peer does not answer"),
            Error::Closed | Error::Io { .. } => {}
            error => conversation.violated(&format!("{:?} has an error: {error:#}", self.side)),
        }
        conversation.breaks(self.side);
        drop(conversation);
        ctx.close();
        Ok(())
    }

    fn shutdown(&mut self, _: &mut Context<'_, Self>) -> Result {
        // The stage has sent a Close frame before.
        self.conversation.lock().unwrap().closes(self.side, CloseCode::GOING_AWAY);
        self.is_closing = true;
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.conversation.lock().unwrap().ended(self.side, ctx.close_cause());
        Ok(())
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.conversation.lock().unwrap().dropped(self.side);
    }
}
