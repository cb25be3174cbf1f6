//! How a name is reserved at this server, asked for at the shared map of names, and released.

use super::{
    names::NameAnswer,
    resume_token::Claim,
    users::{Answered, Login, Reserved},
};
use crate::{
    hub::{self, Hub, lock},
    name,
    session::Session,
};
use netwheel::{ChannelId, HandlerRef, Result, broker::Position};
use std::sync::Arc;

impl Hub {
    /// Reserves a name for a session.
    ///
    /// # Errors
    /// Returns the name in conflict: the same name of another claim, or one that looks like it.
    pub(crate) fn log_in(&self, name: &str, login: Login) -> Result<Reserved, Arc<str>> {
        lock(&self.users).log_in(name, login)
    }

    /// Asks the map for a name that is reserved. `is_shown` tells whether it may have an entry of
    /// this server. Returns the answer if it is there at once.
    /// Otherwise the session gets it later.
    pub(crate) fn ask_for_name(
        self: &Arc<Self>,
        user: &Arc<str>,
        claim: Claim,
        since: u64,
        is_shown: bool,
    ) -> Option<NameAnswer> {
        let taken = self.names.take(user, claim, since, is_shown);
        if taken.is_done() {
            return Some(self.name_answered(user, claim, taken.wait()).1);
        }
        let (hub, user) = (self.clone(), user.clone());
        taken.on_complete(move |taken| {
            let (session, answer) = hub.name_answered(&user, claim, taken);
            if let Some(session) = session {
                hub::run(&session, |session, ctx| session.name_answered(ctx, answer));
            }
        });
        None
    }

    /// Returns the session that waits for the answer, and the answer.
    pub(crate) fn name_answered(
        &self,
        user: &str,
        claim: Claim,
        taken: Result<Option<Position>>,
    ) -> (Option<HandlerRef<Session>>, NameAnswer) {
        let answer = match taken {
            Ok(Some(_)) => NameAnswer::Granted,
            Ok(None) => self.names.taken(user, claim),
            Err(error) => NameAnswer::Failed(error),
        };
        let is_granted = matches!(answer, NameAnswer::Granted);
        let answered = lock(&self.users).answered(user, is_granted);
        let session = match answered {
            Answered::Waiting(session) => Some(session),
            Answered::Unused => None,
            Answered::Free { is_shown } => {
                if is_shown {
                    self.names.release(user);
                }
                return (None, answer);
            }
        };
        if is_granted && !self.names.holds(user) {
            // Another server has taken it over since. Its event was perhaps ignored, because it was
            // before the answer.
            self.name_lost(&name::looks(user));
        }
        (session, answer)
    }

    /// Asks the map again for the name of a session, after it has refused it.
    pub(crate) fn ask_again_for_name(
        self: &Arc<Self>,
        user: &Arc<str>,
        who: ChannelId,
        claim: Claim,
    ) -> Option<NameAnswer> {
        let since = self.names.since(user, claim).unwrap_or_else(|| self.unix_ms());
        let asked = lock(&self.users).ask_again(user, who);
        asked.and_then(|is_shown| self.ask_for_name(user, claim, since, is_shown))
    }

    /// Records that a session has its name. From now on it is found. Returns whether the name still
    /// belongs to it.
    pub(crate) fn confirm_name(&self, name: &str, who: ChannelId) -> bool {
        lock(&self.users).confirm(name, who)
    }

    /// Takes the session that a session with this name replaces.
    pub(crate) fn take_replaced(&self, name: &str, who: ChannelId) -> Option<HandlerRef<Session>> {
        lock(&self.users).take_earlier(name, who)
    }

    /// Ends the sessions whose name belongs to another server.
    pub(crate) fn name_lost(&self, looks: &str) {
        let sessions = lock(&self.users).lost(looks);
        for session in sessions {
            hub::run(&session, Session::replaced_elsewhere);
        }
    }

    /// Releases the name of a session.
    pub(crate) fn release_name(&self, name: &str, who: ChannelId) {
        let may_be_held = lock(&self.users).release(name, who);
        if may_be_held {
            self.names.release(name);
        }
    }

    /// Releases names again, after an attempt has failed. Called periodically.
    pub(crate) fn release_names(&self) {
        for looks in self.names.take_unreleased() {
            let is_shown = lock(&self.users).is_shown(&looks);
            if !is_shown {
                self.names.release_looks(looks);
            }
        }
    }
}
