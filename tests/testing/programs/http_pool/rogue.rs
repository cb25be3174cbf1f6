//! A server that breaks HTTP in many ways. It writes its responses by hand.

use super::{
    super::support::{Calm, Draw, MS, SECOND, deploy},
    body_for,
    ledger::Ledger,
};
use bytes::Bytes;
use netwheel::{codec::RawBytes, prelude::*, testing::simulation::sometimes};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

/// What the server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Proper,
    Chunked,
    Late,
    Interim,
    Continue,
    /// 101 without having been asked for another protocol.
    Switch,
    /// Another response behind the right one.
    Extra,
    /// Promises to stay, and closes.
    Leave,
    AnnouncedLeave,
    CloseAtOnce,
    /// Closes within the head or the body.
    Cut,
    Silent,
    /// Announces fewer bytes than follow.
    TooLong,
    /// Announces more bytes than follow, and waits.
    TooShort,
    UntilClose,
    Nonsense,
    SplitHead,
}

use Behaviour::*;

const ALL: [Behaviour; 17] = [
    Proper,
    Chunked,
    Late,
    Interim,
    Continue,
    Switch,
    Extra,
    Leave,
    AnnouncedLeave,
    CloseAtOnce,
    Cut,
    Silent,
    TooLong,
    TooShort,
    UntilClose,
    Nonsense,
    SplitHead,
];

struct Rogue {
    ledger: Arc<Mutex<Ledger>>,
    draw: Draw,
    calm: Calm,
    input: Vec<u8>,
    /// What is left of the current response.
    pieces: VecDeque<Bytes>,
    pause: Duration,
    closes: bool,
    /// Whether a response is under way, or will never come.
    is_answering: bool,
    /// Whether bytes follow the response, so that the client does not wait for them.
    has_more: bool,
}

impl Rogue {
    /// Takes a complete request out of the input. Returns its method and target.
    fn request(&mut self) -> Option<(String, String)> {
        let end = self.input.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&self.input[..end]).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        let end = end + length.unwrap_or(0_usize);
        if self.input.len() < end {
            return None;
        }
        self.input.drain(..end);
        let mut words = head.split(' ').map(str::to_owned);
        Some((words.next()?, words.next()?))
    }

    fn answer(&mut self, ctx: &mut Context<'_, Self>, method: &str, id: u64) -> Result {
        let body = if method == "HEAD" { String::new() } else { body_for(id) };
        let head =
            |first: &str, length: &str| format!("HTTP/1.1 200 OK\r\n{first}X-Id: {id}\r\n{length}\r\n");
        let length = |length: usize| format!("Content-Length: {length}\r\n");
        let proper = head("", &length(body.len())) + &body;
        let behaviour = if self.calm.is_now() || self.draw.one_in(2) { Proper } else { self.draw.pick(&ALL) };
        let mut delay = Duration::ZERO;
        self.closes = matches!(behaviour, Leave | AnnouncedLeave | CloseAtOnce | Cut | UntilClose);
        let response = match behaviour {
            Proper | SplitHead => proper,
            Chunked if method != "HEAD" => {
                let chunk = |bytes: &str| format!("{:x}\r\n{bytes}\r\n", bytes.len());
                let (start, rest) = body.split_at(body.len() / 3);
                head("", "Transfer-Encoding: chunked\r\n") + &chunk(start) + &chunk(rest) + "0\r\n\r\n"
            }
            Late | Chunked => {
                delay = self.draw.time(20 * SECOND);
                proper
            }
            Interim => format!("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n{proper}"),
            Continue => format!("HTTP/1.1 100 Continue\r\n\r\n{proper}"),
            Switch => "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".into(),
            Extra => format!("{proper}HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nanother!"),
            Leave => proper,
            AnnouncedLeave => head("Connection: close\r\n", &length(body.len())) + &body,
            CloseAtOnce | Silent => String::new(),
            Cut => proper[..self.draw.below(proper.len() as u64) as usize].to_owned(),
            TooLong => {
                // The first 16 bytes still tell which response this is.
                let less = body.len() - (body.len().saturating_sub(16)).min(self.draw.below(20) as usize);
                head("X-Part: 1\r\n", &length(less)) + &body
            }
            TooShort => head("", &length(body.len() + 1 + self.draw.below(9) as usize)) + &body,
            UntilClose => head("X-Part: 1\r\n", "") + &body,
            Nonsense => proper.replacen("\r\n", "\n", 1).replacen("200", "2OO", 1),
        };
        self.split(behaviour, response);
        self.is_answering = true;
        self.has_more = matches!(behaviour, Extra | TooLong);
        ctx.schedule(delay, Self::send);
        Ok(())
    }

    /// Splits a response into pieces: none, a few, or one for each byte.
    fn split(&mut self, behaviour: Behaviour, response: String) {
        let mut rest = Bytes::from(response);
        let most = if behaviour == SplitHead || self.draw.one_in(10) { 1 } else { 2000 };
        self.pause = if self.draw.one_in(2) { Duration::ZERO } else { self.draw.time(MS) };
        let mut pieces = VecDeque::new();
        while !rest.is_empty() {
            // The end of a long body is one piece, so that the test is cheap.
            let most = if pieces.len() < 200 { most } else { 2000 };
            let at = rest.len().min(1 + self.draw.below(most) as usize);
            pieces.push_back(rest.split_to(at));
        }
        self.pieces = pieces;
    }

    /// Sends the next piece. Runs as a task of the channel.
    fn send(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some(piece) = self.pieces.pop_front() {
            ctx.write(piece)?;
        }
        if !self.pieces.is_empty() {
            ctx.schedule(self.pause, Self::send);
            return Ok(());
        }
        self.is_answering = false;
        if self.closes {
            ctx.close();
        }
        Ok(())
    }
}

impl Handler for Rogue {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        self.input.extend_from_slice(&bytes);
        while let Some((method, target)) = self.request() {
            let mut ledger = self.ledger.lock().unwrap();
            let id = ledger.arrived(&target);
            if self.is_answering && !self.has_more {
                ledger.overlaps(id);
            }
            drop(ledger);
            self.answer(ctx, &method, id)?;
        }
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        if self.is_answering {
            sometimes("given up");
        }
        Ok(())
    }
}

pub(super) fn serve(ledger: &Arc<Mutex<Ledger>>, calm: &Calm) {
    let time = || 1000 * SECOND;
    deploy(calm, time, |group| {
        let (ledger, calm) = (ledger.clone(), calm.clone());
        let server = ServerBootstrap::new(group)
            .pipeline(move |_peer| {
                Pipeline::codec(RawBytes).handler(Rogue {
                    ledger: ledger.clone(),
                    draw: Draw::new(),
                    calm: calm.clone(),
                    input: Vec::new(),
                    pieces: VecDeque::new(),
                    pause: Duration::ZERO,
                    closes: false,
                    is_answering: false,
                    has_more: false,
                })
            })
            .bind("10.0.0.1:80")?;
        Ok(server.closed())
    });
}
