//! How a name is reserved at this server, asked for at the store, and released.

use super::{
    names::NameAnswer,
    resume_token::Claim,
    users::{LoggedIn, Login},
};
use crate::{
    hub::{self, Hub, lock},
    session::Session,
};
use netwheel::{ChannelId, HandlerRef, Result, broker::Position};
use std::sync::Arc;

impl Hub {
    /// Reserves a name for a session.
    ///
    /// # Errors
    /// Returns the name in conflict: the same name of another claim, or one that looks like it.
    pub(crate) fn log_in(&self, name: &str, login: Login) -> Result<LoggedIn, Arc<str>> {
        lock(&self.users).log_in(name, login)
    }

    /// Asks the store for a name that is reserved. Returns the answer if it is there at once.
    /// Otherwise the session gets it later.
    pub(crate) fn ask_for_name(
        self: &Arc<Self>,
        user: &Arc<str>,
        claim: Claim,
        since: u64,
    ) -> Option<NameAnswer> {
        let taken = self.names.take(user, claim, since);
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
    fn name_answered(
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
        let session = lock(&self.users).answered(user, is_granted);
        if is_granted && session.is_none() {
            // The session has ended in the meantime.
            self.names.release(user);
        }
        (session, answer)
    }

    /// Asks the store again for the name of a session, after it has refused it.
    pub(crate) fn ask_again_for_name(
        self: &Arc<Self>,
        user: &Arc<str>,
        who: ChannelId,
        claim: Claim,
    ) -> Option<NameAnswer> {
        let since = self.names.since(user, claim).unwrap_or_else(|| self.unix_ms());
        let is_useful = lock(&self.users).ask_again(user, who);
        if is_useful { self.ask_for_name(user, claim, since) } else { None }
    }

    /// Records that a session has its name. From now on it is found.
    pub(crate) fn confirm_name(&self, name: &str, who: ChannelId) {
        lock(&self.users).confirm(name, who);
    }

    /// Ends the session whose name belongs to another server.
    pub(crate) fn name_lost(&self, looks: &str) {
        let session = lock(&self.users).lost(looks);
        if let Some(session) = session {
            hub::run(&session, Session::replaced_elsewhere);
        }
    }

    /// Releases the name of a session.
    pub(crate) fn release_name(&self, name: &str, who: ChannelId) {
        let was_held = lock(&self.users).release(name, who);
        if was_held {
            self.names.release(name);
        }
    }
}
