//! A client that writes frames by hand: messages in fragments, with Pings between them.

use super::{
    super::support::{Draw, MS, SECOND},
    conversation::{Conversation, Side},
};
use bytes::Bytes;
use netwheel::{
    prelude::*,
    testing::simulation::sometimes,
    websocket::{CloseCode, CloseFrame, Message},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FINAL: u8 = 0x80;

pub(super) struct Fragments {
    conversation: Arc<Mutex<Conversation>>,
    draw: Draw,
    input: Vec<u8>,
    /// Pings without an answer, oldest first.
    pings: VecDeque<Vec<u8>>,
    left: u32,
    is_closing: bool,
}

impl Fragments {
    pub(super) fn new(conversation: Arc<Mutex<Conversation>>) -> Self {
        let mut draw = Draw::new();
        let left = 1 + draw.below(6) as u32;
        conversation.lock().unwrap().client.has_begun = true;
        Fragments { conversation, draw, input: Vec::new(), pings: VecDeque::new(), left, is_closing: false }
    }

    /// Returns a masked frame.
    fn frame(&mut self, first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![first];
        match payload.len() {
            length @ 0..126 => frame.push(0x80 | length as u8),
            length => {
                frame.push(0x80 | 126);
                frame.extend((length as u16).to_be_bytes());
            }
        }
        let key = (self.draw.below(1 << 32) as u32).to_be_bytes();
        frame.extend(key);
        frame.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
        frame
    }

    /// Sends one message in fragments, some of them empty.
    fn send(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        sometimes("fragments");
        let length = self.draw.pick(&[0, 5, 200, 3000]);
        // Two bytes for each character, so that fragments cut characters.
        let text = "ü".repeat(length / 2);
        let (opcode, message) = if self.draw.one_in(2) {
            (TEXT, Message::text(text.clone()))
        } else {
            (BINARY, Message::binary(text.clone().into_bytes()))
        };
        let mut rest = text.as_bytes();
        let mut first = opcode;
        loop {
            let at = (self.draw.below(rest.len() as u64 + 1) as usize).min(700);
            let is_last = at == rest.len();
            let frame = self.frame(first | if is_last { FINAL } else { 0 }, &rest[..at]);
            ctx.write(frame.into())?;
            if is_last {
                break;
            }
            (rest, first) = (&rest[at..], 0);
            if self.draw.one_in(4) {
                let ping = format!("ping {}", self.draw.below(1000)).into_bytes();
                let frame = self.frame(FINAL | PING, &ping);
                self.pings.push_back(ping);
                ctx.write(frame.into())?;
            }
        }
        self.conversation.lock().unwrap().sent(Side::Client, message);
        Ok(())
    }

    fn close(&mut self, ctx: &mut Context<'_, Self>, code: CloseCode) -> Result {
        self.is_closing = true;
        let frame = self.frame(FINAL | CLOSE, &code.get().to_be_bytes());
        ctx.write(frame.into())
    }

    fn act(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if self.is_closing {
            return Ok(());
        }
        if self.left > 0 {
            self.left -= 1;
            self.send(ctx)?;
            ctx.schedule(self.draw.time(300 * MS), Self::act);
            return Ok(());
        }
        let code = CloseCode::new(4900 + self.draw.below(90) as u16);
        self.conversation.lock().unwrap().closes(Side::Client, code);
        // The server ends the connection, unless it has gone.
        ctx.schedule(10 * SECOND, |me, ctx| {
            me.conversation.lock().unwrap().breaks(Side::Client);
            ctx.close_now();
            Ok(())
        });
        self.close(ctx, code)
    }

    /// Takes a whole frame of the server out of the input.
    fn next_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let (first, length) = (*self.input.first()?, *self.input.get(1)?);
        let (start, length) = match length {
            126 => (4, u16::from_be_bytes(*self.input.get(2..)?.first_chunk()?) as usize),
            127 => (10, u64::from_be_bytes(*self.input.get(2..)?.first_chunk()?) as usize),
            length => (2, length as usize),
        };
        if self.input.len() < start + length {
            return None;
        }
        let payload = self.input[start..start + length].to_vec();
        self.input.drain(..start + length);
        Some((first, payload))
    }

    fn read_frame(&mut self, ctx: &mut Context<'_, Self>, first: u8, payload: Vec<u8>) -> Result {
        let mut conversation = self.conversation.lock().unwrap();
        if first & 0xf0 != FINAL {
            conversation.violated(&format!("a frame begins with {first:#x}"));
        }
        let text = || String::from_utf8_lossy(&payload).into_owned();
        match first & 0x0f {
            _ if self.is_closing && first & 0x0f != CLOSE => {}
            TEXT => conversation.read(Side::Client, &Message::text(text())),
            BINARY => conversation.read(Side::Client, &Message::binary(payload)),
            PING => {
                drop(conversation);
                let frame = self.frame(FINAL | PONG, &payload);
                return ctx.write(frame.into());
            }
            PONG => {
                sometimes("pong");
                // Only the last Ping needs an answer.
                let at = self.pings.iter().position(|ping| *ping == payload);
                match at {
                    Some(at) => drop(self.pings.drain(..=at)),
                    None => conversation.violated("a Pong without its Ping"),
                }
            }
            CLOSE => {
                let code = payload.first_chunk().map(|code| CloseCode::new(u16::from_be_bytes(*code)));
                let frame = code.map(|code| CloseFrame { code, reason: "".into() });
                conversation.read(Side::Client, &Message::Close(frame));
                drop(conversation);
                if let Some(code) = code.filter(|_| !self.is_closing) {
                    return self.close(ctx, code);
                }
            }
            other => conversation.violated(&format!("a frame with the opcode {other}")),
        }
        Ok(())
    }
}

impl Handler for Fragments {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.act(ctx)
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        self.input.extend_from_slice(&bytes);
        while let Some((first, payload)) = self.next_frame() {
            self.read_frame(ctx, first, payload)?;
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, _: Error) -> Result {
        self.conversation.lock().unwrap().breaks(Side::Client);
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.conversation.lock().unwrap().ended(Side::Client, ctx.close_cause());
        Ok(())
    }
}

impl Drop for Fragments {
    fn drop(&mut self) {
        self.conversation.lock().unwrap().dropped(Side::Client);
    }
}
