//! The login of a client: its name, the session that it continues, and the rooms in which it
//! resumes.
//!
//! A name is reserved at this server, and then asked for at the map of names that all servers of
//! the store share. The client gets its `welcome` when the map has granted the name, and its
//! requests are not read before.

mod asking;
mod entering;
pub(crate) mod names;
pub(crate) mod resume_token;
pub(crate) mod users;

use crate::{
    hub, name,
    pace::Cost,
    protocol::{Code, Reason, Reply, Resume, VERSION},
    rooms::{Room, Start},
    session::{Refusal, Session, Settings, bad_name, bye},
};
pub(crate) use entering::Entering;
use entering::name_taken;
use names::NameAnswer;
use netwheel::{
    ChannelId, broker::Position, channel::InputGuard, error::Overloaded, prelude::*, time::Delay,
};
use resume_token::{Claim, RENEWAL};
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};
use users::{Login, Reserved};

/// Rooms that one user may be in at the same time.
pub(crate) const MAX_ROOMS: usize = 32;

/// Time after which a session ends whose client is at another server.
const TAKE_OVER: Duration = Duration::from_millis(500);

/// The result of a login.
pub(crate) struct Identity {
    /// The channel by which the name belongs to the session.
    pub(crate) who: ChannelId,
    pub(crate) claim: Claim,
    /// Whether a message with an id that was used before is a repetition.
    pub(crate) has_unique_ids: bool,
    /// When the client got its last token.
    token_since: Instant,
}

/// The rooms of which a client that resumes does not receive the messages yet.
///
/// It is a member of all of them from the login on. Their messages come one after the other, and
/// only while the client reads: the missed messages of all rooms may be more than the server queues
/// for a client.
#[derive(Default)]
pub(crate) struct Resuming {
    /// Instead of a room that the client cannot join, why.
    rooms: VecDeque<(Result<Arc<Room>, Reply>, Start)>,
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
        match self.begin_login(ctx, user, resume, unique_ids) {
            Ok(Some(answer)) => self.name_answered(ctx, answer),
            Ok(None) => {
                self.wait_for_name(ctx);
                Ok(())
            }
            Err(refusal) => self.replies.write(ctx, refusal.reply()),
        }
    }

    /// Reserves a name, and asks the map for it. Returns the answer if it is there.
    fn begin_login(
        &mut self,
        ctx: &mut Context<'_, Self>,
        user: &str,
        resume: Option<Resume>,
        unique_ids: bool,
    ) -> Result<Option<NameAnswer>, Refusal> {
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
        let since = known.and_then(|claim| self.hub.names.since(&user, claim)).unwrap_or(now);
        let login = Login { session: ctx.handler_ref(), who: ctx.id(), claim, since };
        let Reserved { user, replaced, must_ask, is_shown } =
            self.hub.log_in(&user, login).map_err(|by| name_taken(&user, &by))?;
        self.user = Some(user.clone());
        let (who, token_since) = (ctx.id(), ctx.now());
        self.identity = Some(Identity { who, claim, has_unique_ids: unique_ids, token_since });
        self.entering = Some(Box::new(Entering::new(rooms, known.is_some())));
        if let Some(replaced) = replaced {
            hub::run(&replaced, Session::replaced);
        }
        if !must_ask {
            return Ok(None);
        }
        self.pace.charge(Cost::stored());
        Ok(self.hub.ask_for_name(&user, claim, since, is_shown))
    }

    /// Makes the client a member of the rooms in which it resumes, and welcomes it.
    fn welcome(&mut self, ctx: &mut Context<'_, Self>, entering: Box<Entering>) -> Result {
        let (Some(user), Some(Identity { who, claim, .. })) = (self.user.clone(), &self.identity) else {
            return Ok(());
        };
        let who = *who;
        if !self.hub.confirm_name(&user, who) {
            // Another session of the client has the name by now. This one is about to end.
            self.entering = Some(entering);
            self.wait_for_name(ctx);
            return Ok(());
        }
        let resume_token = self.hub.tokens.token(&user, *claim, self.hub.unix_ms());
        let Entering { rooms, is_known, .. } = *entering;
        for (room, (epoch, offset)) in rooms {
            let position = Position::new(epoch, offset);
            let start = if is_known { Start::After(position) } else { Start::Unknown };
            let entered = match self.enter(ctx, &room) {
                Ok((room, true)) => Ok(room),
                // In different spellings.
                Ok((room, false)) => {
                    Err(Refusal(Code::BadRequest, format!("{} is in `resume` twice", room.name())))
                }
                Err(refusal) => Err(refusal),
            };
            let entered = entered.map_err(|refusal| refusal.reply_in(Some(room)));
            self.resuming.rooms.push_back((entered, start));
        }
        // Now that the user is a member by this session, too.
        if let Some(replaced) = self.hub.take_replaced(&user, who) {
            hub::run(&replaced, Session::replaced);
        }
        log::debug!("{}: logged in", self.describe(ctx));
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let Settings { heartbeat, idle_timeout, ack_timeout, .. } = self.settings;
        let [heartbeat_ms, idle_ms, ack_timeout_ms] = [heartbeat, idle_timeout, ack_timeout].map(millis);
        let (user, version) = (user.to_string(), VERSION);
        ctx.write(Reply::Welcome { user, heartbeat_ms, idle_ms, ack_timeout_ms, version, resume_token })?;
        self.begin_kept(ctx)?;
        self.resume_next(ctx)
    }

    /// Sends a new token to a client whose last one is old, in a `ping`, which clients of earlier
    /// versions know too.
    pub(crate) fn renew_token(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let (Some(user), Some(identity), None) = (&self.user, &mut self.identity, &self.entering) else {
            return Ok(());
        };
        if ctx.now().saturating_duration_since(identity.token_since) < RENEWAL {
            return Ok(());
        }
        identity.token_since = ctx.now();
        let token = self.hub.tokens.token(user, identity.claim, self.hub.unix_ms());
        ctx.write(Reply::Ping { resume_token: Some(token) })
    }

    /// Refuses a login because the loop is overloaded. The client connects again later.
    pub(crate) fn overloaded(&mut self, ctx: &mut Context<'_, Self>, refused: Overloaded) -> Result {
        let millis = u64::try_from(refused.retry_after().as_millis()).unwrap_or(u64::MAX);
        log::debug!("{}: the login is refused: {refused}", self.describe(ctx));
        ctx.write(Reply::Bye { reason: Reason::Overloaded, retry_after_ms: Some(millis) })?;
        ctx.close();
        Ok(())
    }

    /// Called when the same client has logged in at another server, or when its name was given to
    /// another client while this server could not reach the store.
    ///
    /// The session ends a little later. The user should not leave its rooms before it is a member
    /// at the other server.
    pub(crate) fn replaced_elsewhere(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        // It joins no more rooms.
        self.ending = Some(ctx.pause_reading());
        ctx.schedule(Delay::coarse(TAKE_OVER), Self::replaced);
        Ok(())
    }

    /// Called when the same client has logged in on another connection.
    pub(crate) fn replaced(&mut self, ctx: &mut Context<'_, Self>) -> Result {
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
                Err(refusal) => ctx.write(refusal)?,
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
