//! The login of a client: its name, the session that it continues, and the rooms in which it
//! resumes.

pub(crate) mod resume_token;
pub(crate) mod users;

use crate::{
    hub, name,
    protocol::{Code, Reason, Reply, Resume, VERSION},
    rooms::{Room, Start},
    session::{Refusal, Session, Settings, bad_name, bye, error_reply},
};
use netwheel::{ChannelId, broker::Position, channel::InputGuard, error::Overloaded, prelude::*};
use resume_token::Claim;
use std::{collections::VecDeque, sync::Arc, time::Duration};
use users::{LoggedIn, Login};

/// Rooms that one user may be in at the same time.
pub(crate) const MAX_ROOMS: usize = 32;

/// What a login has brought.
pub(crate) struct Identity {
    /// The channel by which the name belongs to the session.
    pub(crate) who: ChannelId,
    pub(crate) claim: Claim,
    /// Whether a message with an id that was used before is a repetition.
    pub(crate) has_unique_ids: bool,
}

/// The rooms of which a client that resumes does not receive the messages yet.
///
/// It is a member of all of them from the login on. Their messages come one after the other, and
/// only while the client reads: the missed messages of all rooms may be more than the server queues
/// for a client.
#[derive(Default)]
pub(crate) struct Resuming {
    rooms: VecDeque<(Result<Arc<Room>, Refusal>, Start)>,
    /// Whether the client is about to receive the messages of one of the rooms.
    is_joining: bool,
    /// Held until the last `joined` is written. Later requests wait, because they may be about a
    /// room of which the client does not receive the messages yet.
    pause: Option<InputGuard>,
}

impl Resuming {
    /// Returns whether the client does not receive the messages of all rooms yet.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_joining || !self.rooms.is_empty()
    }
}

impl Session {
    pub(crate) fn login(
        &mut self,
        ctx: &mut Context<'_, Self>,
        user: &str,
        resume: Option<Resume>,
        unique_ids: bool,
    ) -> Result {
        match self.begin_session(ctx, user, resume, unique_ids) {
            Ok(welcome) => {
                ctx.write(welcome)?;
                self.begin_kept(ctx)?;
                self.resume_next(ctx)
            }
            Err(Refusal(code, message)) => self.replies.write(ctx, error_reply(code, message)),
        }
    }

    fn begin_session(
        &mut self,
        ctx: &mut Context<'_, Self>,
        user: &str,
        resume: Option<Resume>,
        unique_ids: bool,
    ) -> Result<Reply, Refusal> {
        if let Some(user) = &self.user {
            return Err(Refusal(Code::BadRequest, format!("already logged in as {user}")));
        }
        let user = name::user(user).map_err(bad_name)?;
        let Resume { token, rooms } = resume.unwrap_or_default();
        if rooms.len() > MAX_ROOMS {
            return Err(Refusal(Code::BadRequest, format!("a user may be in {MAX_ROOMS} rooms")));
        }
        self.settings.login_work.run();
        let now = self.hub.unix_ms();
        let known = self.hub.tokens.check(&user, &token, now);
        let claim = known.unwrap_or_else(|| self.hub.new_claim());
        let login = Login { session: ctx.handler_ref(), who: ctx.id(), claim, since: now };
        let taken = |by: Arc<str>| {
            let like = if *by == *user { "" } else { ", which looks like it," };
            Refusal(Code::NameTaken, format!("the name {by}{like} is taken"))
        };
        let LoggedIn { user, replaced } = self.hub.log_in(&user, login).map_err(taken)?;
        self.user = Some(user.clone());
        self.identity = Some(Identity { who: ctx.id(), claim, has_unique_ids: unique_ids });
        for (room, (epoch, offset)) in rooms {
            let position = Position::new(epoch, offset);
            let start = if known.is_some() { Start::After(position) } else { Start::Unknown };
            let entered = match self.enter(ctx, &room) {
                Ok((room, true)) => Ok(room),
                // In different spellings.
                Ok((room, false)) => {
                    Err(Refusal(Code::BadRequest, format!("{} is in `resume` twice", room.name())))
                }
                Err(refusal) => Err(refusal),
            };
            self.resuming.rooms.push_back((entered, start));
        }
        // Now that the user is a member by this session, too.
        if let Some(replaced) = replaced {
            // Fails if that session has ended by itself.
            let _ = replaced.execute(Session::replaced);
        }
        log::debug!("{}: logged in", self.describe(ctx));
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let Settings { heartbeat, idle_timeout, ack_timeout, .. } = self.settings;
        let [heartbeat_ms, idle_ms, ack_timeout_ms] = [heartbeat, idle_timeout, ack_timeout].map(millis);
        let resume_token = self.hub.tokens.token(&user, claim, now);
        let (user, version) = (user.to_string(), VERSION);
        Ok(Reply::Welcome { user, heartbeat_ms, idle_ms, ack_timeout_ms, version, resume_token })
    }

    /// Refuses a login because the loop is overloaded. The client connects again later.
    pub(crate) fn overloaded(&mut self, ctx: &mut Context<'_, Self>, refused: Overloaded) -> Result {
        let millis = u64::try_from(refused.retry_after().as_millis()).unwrap_or(u64::MAX);
        log::debug!("{}: the login is refused: {refused}", self.describe(ctx));
        ctx.write(Reply::Bye { reason: Reason::Overloaded, retry_after_ms: Some(millis) })?;
        ctx.close();
        Ok(())
    }

    /// Called when the same client has logged in on another connection.
    fn replaced(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        log::debug!("{}: replaced", self.describe(ctx));
        bye(ctx, Reason::Replaced)
    }

    /// Begins to receive the messages of the next rooms in which the client resumes, unless the
    /// client does not keep up.
    pub(crate) fn resume_next(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let Some(user) = self.user.clone() else { return Ok(()) };
        while !self.congested
            && !self.resuming.is_joining
            && let Some((room, start)) = self.resuming.rooms.pop_front()
        {
            match room {
                Ok(room) => {
                    self.resuming.is_joining = true;
                    let me = ctx.handler_ref();
                    // Behind the missed messages in the queue of the loop, so that their bytes are
                    // counted.
                    let then = move || hub::run(&me, Self::has_resumed);
                    self.begin_joined(ctx, room, user.clone(), start, then);
                }
                Err(Refusal(code, message)) => ctx.write(error_reply(code, message))?,
            }
        }
        if !self.resuming.is_under_way() {
            self.resuming.pause = None;
        } else if self.resuming.pause.is_none() {
            self.resuming.pause = Some(ctx.pause_reading());
        }
        Ok(())
    }

    fn has_resumed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.resuming.is_joining = false;
        self.resume_next(ctx)?;
        self.pace.settle(ctx);
        Ok(())
    }
}
