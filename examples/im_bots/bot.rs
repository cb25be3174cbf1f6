//! One simulated user.

use crate::{
    directs::{End, Text},
    message_id::MessageId,
    plan::{Plan, Role, Said, Seat},
    protocol::{Code, Reason, Reply, Request},
    talker::Talker,
    tally::{Arrival, Heard},
};
use netwheel::prelude::*;
use std::{
    sync::{Arc, mpsc::Sender},
    time::{Duration, Instant},
};

/// Reports of the bots to the main thread.
pub(crate) enum Report {
    /// The bot is ready. A talker is reported with a handle through which it can be made to talk.
    Ready(Option<Talker>),
    /// The bot is in its room and has stopped reading. The channel is used to resume reading.
    Slow(Channel<Request>),
    /// The connection failed, or ended before the bot was ready.
    Failed(String),
    /// The user pressed Ctrl-C.
    Interrupted,
}

pub(crate) struct Bot {
    plan: Arc<Plan>,
    reports: Sender<Report>,
    number: usize,
    user: String,
    role: Role,
    /// Whether this bot acknowledges direct messages.
    acks: bool,
    ready: bool,
    /// Time at which the login was written; a silent bot sends nothing after it.
    login_at: Instant,
    heard: Heard,
    /// Epoch and offset of the last message.
    position: Option<(u64, u64)>,
    /// Reason in the server's `bye`.
    bye: Option<Reason>,
    /// Reason for the end of the connection, if known.
    why: Option<String>,
}

impl Handler for Bot {
    type Read = Reply;
    type Write = Request;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.plan.tally.connected.raise();
        self.login_at = Instant::now();
        ctx.write(Request::login(self.user.clone()))
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, reply: Reply) -> Result {
        match reply {
            Reply::Message { room, text, epoch, offset, .. } => {
                self.note_position(epoch.zip(offset));
                self.heard(&room, &text);
            }
            Reply::Ping { .. } if self.role != Role::Silent => {
                self.plan.tally.pings_answered.raise();
                ctx.write(Request::Pong)?;
            }
            Reply::Welcome { idle_ms, ack_timeout_ms, .. } => {
                self.plan.directs.note_timeout(Duration::from_millis(ack_timeout_ms));
                self.welcome(ctx, Duration::from_millis(idle_ms))?;
            }
            Reply::Joined { user, .. } if user == self.user => {
                self.plan.tally.joined.raise();
                match self.role {
                    Role::Talker(seat) => {
                        let talker = Talker { bot: self.number, seat, channel: ctx.channel(), said: 0 };
                        self.report_ready(Some(talker));
                    }
                    Role::Slow { room } => self.stop_reading(ctx, room),
                    Role::Passive { room } => {
                        ctx.write(Request::Passive { room: self.plan.room(room) })?;
                    }
                    Role::Quiet | Role::Silent => {}
                }
            }
            Reply::Direct { text, id, .. } => self.direct(ctx, &text, id)?,
            Reply::Delivered { id, .. } => self.ended(id, End::Delivered),
            Reply::Error { code: Code::Undelivered, id, .. } => self.ended(id, End::Undelivered),
            Reply::Error { code: Code::TooManyUnacked, id, .. } => self.ended(id, End::Refused),
            Reply::Error { message, .. } => {
                self.why = Some(message);
                ctx.close();
            }
            Reply::Bye { reason, .. } => {
                self.bye = Some(reason);
                self.why = Some(format!("the server closed the connection: {reason:?}"));
            }
            Reply::Missed { total, .. } if matches!(self.role, Role::Slow { .. }) => {
                self.plan.slows.note_missed(self.number, total);
            }
            // The lost messages among these lines are counted at the end.
            Reply::Missed { count, .. } => log::warn!("{}: {count} lines were lost", self.user),
            Reply::Joined { .. } | Reply::Left { .. } | Reply::Presence { .. } => {}
            Reply::Passive { total, .. } => {
                if let Role::Passive { room } = self.role {
                    self.plan.passives.enter(self.number, room, total);
                    self.report_ready(None);
                }
            }
            Reply::Unread { total, .. } => self.plan.passives.note(self.number, total),
            Reply::Active { .. } => {}
            Reply::Members { .. } | Reply::Profile { .. } | Reply::Ping { .. } | Reply::Pong => {}
            // A bot sends direct messages to connected bots only, and sets no reminders.
            Reply::Said { .. } | Reply::Gap { .. } => {}
            Reply::Kept { .. } | Reply::ReminderSet { .. } | Reply::Reminders { .. } => {}
            Reply::Forgotten { .. } | Reply::Reminder { .. } => {}
        }
        Ok(())
    }

    /// Sends a ping: half of the server's idle timeout has passed without output.
    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        ctx.write(Request::Ping)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.why.get_or_insert_with(|| format!("{error:#}"));
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        if self.plan.is_over() {
            return Ok(());
        }
        let why = self.why.take().unwrap_or_else(|| "the server closed the connection".to_owned());
        if !self.ready {
            self.report(Report::Failed(why));
        } else if self.role == Role::Silent {
            self.plan.tally.note_silent_drop(self.login_at.elapsed(), self.bye == Some(Reason::Idle));
        } else if let Role::Slow { .. } = self.role {
            self.plan.slows.note_closed(self.number, self.bye == Some(Reason::SlowConsumer));
        } else {
            log::warn!("{}: {why}", self.user);
            self.plan.tally.dropped.raise();
        }
        Ok(())
    }
}

impl Bot {
    pub(crate) fn new(plan: Arc<Plan>, reports: Sender<Report>) -> Self {
        let (number, role) = plan.next_bot();
        Bot {
            user: plan.user(number),
            acks: !matches!(role, Role::Talker(seat) if !plan.acks(seat)),
            plan,
            reports,
            number,
            role,
            ready: false,
            login_at: Instant::now(),
            heard: Heard::default(),
            position: None,
            bye: None,
            why: None,
        }
    }

    fn welcome(&mut self, ctx: &mut Context<'_, Self>, idle: Duration) -> Result {
        self.plan.tally.logged_in.raise();
        match self.role {
            Role::Silent => {
                self.plan.tally.note_silent_login(self.login_at, idle, self.plan.grace);
                self.report_ready(None);
                return Ok(());
            }
            Role::Quiet => self.report_ready(None),
            Role::Talker(Seat { room, .. }) | Role::Slow { room } | Role::Passive { room } => {
                ctx.write(Request::join(self.plan.room(room)))?;
            }
        }
        // In a busy room the server never sends a heartbeat, so pings have to be sent unasked.
        ctx.set_idle_timeouts(IdleTimeouts::new().writer(idle / 2));
        Ok(())
    }

    /// Checks that the messages of the room arrive in the order of their offsets. A server before
    /// version 3 sends none.
    fn note_position(&mut self, next: Option<(u64, u64)>) {
        if let (Some((epoch, last)), Some((same, offset))) = (self.position, next)
            && epoch == same
            && offset <= last
        {
            self.plan.tally.out_of_order.raise();
        }
        self.position = next.or(self.position);
    }

    fn heard(&mut self, room: &str, text: &str) {
        // Ignore messages that were not sent by this run.
        let Some(said) = Said::parse(text).filter(|said| said.run == self.plan.run) else { return };
        let tally = &self.plan.tally;
        let (Role::Talker(Seat { room: own, .. }) | Role::Slow { room: own }) = self.role else {
            return tally.doubled.raise();
        };
        if said.seat.room != own || room != self.plan.room(own) {
            // Delivered to the wrong room: count it as a duplicate.
            return tally.doubled.raise();
        }
        match self.heard.note(said.seat.place, said.number) {
            Arrival::Doubled => return tally.doubled.raise(),
            Arrival::OutOfOrder => tally.out_of_order.raise(),
            Arrival::InOrder => {}
        }
        if let Role::Slow { .. } = self.role {
            return self.plan.slows.note_heard(self.number);
        }
        tally.received.raise();
        tally.note_latency(self.plan.start.elapsed().saturating_sub(said.at));
    }

    fn direct(&self, ctx: &mut Context<'_, Self>, text: &str, id: u64) -> Result {
        // Record the copy before acknowledging it: otherwise its sender could be notified of the
        // delivery first.
        if let Some(text) = Text::parse(text).filter(|text| text.run == self.plan.run) {
            self.plan.directs.note_copy(text.number, self.number);
        }
        if self.acks { ctx.write(Request::Ack { id }) } else { Ok(()) }
    }

    /// Records the outcome of a direct message that this bot has sent.
    fn ended(&self, id: Option<MessageId>, end: End) {
        if let Some(number) = id.and_then(|id| id.as_u64()) {
            self.plan.directs.note_end(number, end);
        }
    }

    fn stop_reading(&mut self, ctx: &mut Context<'_, Self>, room: u32) {
        if !self.ready {
            self.ready = true;
            self.plan.slows.enter(self.number, room);
            ctx.set_auto_read(false);
            self.report(Report::Slow(ctx.channel()));
        }
    }

    fn report_ready(&mut self, talker: Option<Talker>) {
        if !self.ready {
            self.ready = true;
            self.report(Report::Ready(talker));
        }
    }

    fn report(&self, report: Report) {
        // Fails when the main thread has ended, which means that the program is about to exit.
        let _ = self.reports.send(report);
    }
}
