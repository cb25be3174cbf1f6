//! One client of a storm: logs in, joins a room, talks, and measures the round trips.

use super::timeline::Timeline;
use crate::{
    message_id::MessageId,
    protocol::{Reply, Request},
};
use netwheel::{prelude::*, time::Delay};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

/// Members of a room.
const ROOM: usize = 10;

/// State that all clients of a crowd share.
pub(crate) struct Crowd {
    /// Distinguishes the names of this run and this crowd from others.
    pub(crate) name: String,
    /// Start of the run.
    pub(crate) start: Instant,
    pub(crate) timeline: Arc<Timeline>,
    /// Whether the clients are established before the storm, and measure.
    pub(crate) established: bool,
    /// Time between two messages of a client.
    pub(crate) interval: Duration,
    /// Time without an answer after which an established client gives its connection up.
    pub(crate) dead_after: Duration,
    /// Set at the end of the run, when closed connections are expected.
    pub(crate) over: AtomicBool,
    pub(crate) reports: Sender<Report>,
}

/// An attempt of a client to get in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Position of the client in its crowd.
    pub(crate) client: usize,
    /// Number of the attempt of this client.
    pub(crate) attempt: u32,
}

/// An event of an attempt.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) ticket: Ticket,
    pub(crate) event: Event,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// The client is in its room.
    Entered,
    /// The server has refused the client, and asks it to wait.
    Refused(Option<Duration>),
    /// The connection has ended.
    Ended,
}

pub(crate) struct Client {
    crowd: Arc<Crowd>,
    ticket: Ticket,
    user: String,
    is_in: bool,
    /// Number of the last message.
    said: u64,
    /// Messages that are not answered, and when they were sent.
    unanswered: VecDeque<(u64, Duration)>,
    /// When the next message is due.
    next: Duration,
}

impl Handler for Client {
    type Read = Reply;
    type Write = Request;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(Request::login(self.user.clone()))
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, reply: Reply) -> Result {
        match reply {
            Reply::Message { id: Some(id), .. } => {
                self.answered(&id);
                Ok(())
            }
            Reply::Ping { .. } => ctx.write(Request::Pong),
            Reply::Welcome { idle_ms, .. } => {
                // In a busy room the server never sends a heartbeat, so pings are sent unasked.
                ctx.set_idle_timeouts(IdleTimeouts::new().writer(Duration::from_millis(idle_ms) / 2));
                ctx.write(Request::join(self.room()))
            }
            Reply::Joined { user, .. } if user == self.user && !self.is_in => {
                self.is_in = true;
                self.report(Event::Entered);
                self.begin_talking(ctx);
                Ok(())
            }
            Reply::Bye { reason, retry_after_ms } if !self.is_in => {
                log::debug!("{}: {reason:?}", self.user);
                self.report(Event::Refused(retry_after_ms.map(Duration::from_millis)));
                ctx.close();
                Ok(())
            }
            Reply::Error { message, .. } if !self.is_in => {
                log::debug!("{}: {message}", self.user);
                self.report(Event::Refused(None));
                ctx.close();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        ctx.write(Request::Ping)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        log::debug!("{}: {error:#}", self.user);
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.report(Event::Ended);
        Ok(())
    }
}

impl Client {
    pub(crate) fn new(crowd: Arc<Crowd>, ticket: Ticket) -> Self {
        // The server may still know the name of an attempt that was given up.
        let user = format!("{}-{}-{}", crowd.name, ticket.client, ticket.attempt);
        let (unanswered, next) = (VecDeque::new(), Duration::ZERO);
        Client { crowd, ticket, user, is_in: false, said: 0, unanswered, next }
    }

    fn room(&self) -> String {
        format!("{}-{}", self.crowd.name, self.ticket.client / ROOM)
    }

    fn begin_talking(&mut self, ctx: &mut Context<'_, Self>) {
        // Spread over the interval, and the same in each run.
        let part = (self.ticket.client as f64 * 0.618_034).fract();
        let first = self.crowd.interval.mul_f64(part);
        self.next = self.crowd.start.elapsed() + first;
        ctx.schedule(Delay::exact(first), Self::talk);
    }

    /// Says the next message. The times are fixed in advance: a slow answer does not delay the next
    /// message.
    fn talk(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let now = self.crowd.start.elapsed();
        self.said += 1;
        if self.crowd.established {
            let longest = self.unanswered.front().map(|(_, at)| now.saturating_sub(*at));
            if longest > Some(self.crowd.dead_after) {
                log::warn!("{}: no answer for {:?}", self.user, self.crowd.dead_after);
                ctx.close();
                return Ok(());
            }
            self.unanswered.push_back((self.said, now));
            self.crowd.timeline.note(now, |second| second.said += 1);
        }
        let id = self.crowd.established.then(|| MessageId::from(self.said));
        ctx.write(Request::Say { room: self.room(), text: "hello".to_owned(), id })?;
        self.next += self.crowd.interval;
        ctx.schedule(Delay::exact(self.next.saturating_sub(now)), Self::talk);
        Ok(())
    }

    /// Records the round trip of a message. Earlier ones, which the server has refused, stay
    /// without an answer.
    fn answered(&mut self, id: &MessageId) {
        while let Some((number, at)) = self.unanswered.pop_front() {
            if id.as_u64() == Some(number) {
                self.crowd.timeline.note_round_trip(at, self.crowd.start.elapsed().saturating_sub(at));
                return;
            }
        }
    }

    fn report(&self, event: Event) {
        if !self.crowd.over.load(Ordering::Acquire) {
            // Fails when the main thread has ended, which means that the program is about to exit.
            let _ = self.crowd.reports.send(Report { ticket: self.ticket, event });
        }
    }
}
