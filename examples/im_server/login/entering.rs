//! A login that the shared map of names has not answered yet.

use super::names::NameAnswer;
use crate::{
    pace::Cost,
    protocol::Code,
    session::{Refusal, Session, busy},
};
use netwheel::{channel::InputGuard, prelude::*, time::Delay};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Maximum number of requests for a name that may be free soon.
const ATTEMPTS: u32 = 10;
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Entering {
    /// The rooms in which the client resumes, with positions.
    pub(super) rooms: BTreeMap<String, (u64, u64)>,
    /// Whether the token of the login was right.
    pub(super) is_known: bool,
    attempts: u32,
    /// Whether the time limit for the login has passed.
    pub(crate) is_overdue: bool,
    /// Held while the request is in flight.
    pause: Option<InputGuard>,
}

impl Entering {
    pub(super) fn new(rooms: BTreeMap<String, (u64, u64)>, is_known: bool) -> Self {
        Entering { rooms, is_known, attempts: 1, is_overdue: false, pause: None }
    }
}

impl Session {
    /// Pauses reading until the map has answered.
    pub(super) fn wait_for_name(&mut self, ctx: &mut Context<'_, Self>) {
        if let Some(entering) = self.entering.as_mut().filter(|entering| entering.pause.is_none()) {
            entering.pause = Some(ctx.pause_reading());
        }
    }

    /// Called when the map has answered.
    pub(crate) fn name_answered(&mut self, ctx: &mut Context<'_, Self>, answer: NameAnswer) -> Result {
        let Some(mut entering) = self.entering.take() else { return Ok(()) };
        let refusal = match answer {
            NameAnswer::Granted => return self.welcome(ctx, entering),
            NameAnswer::Taken { may_be_free: true, .. } if entering.attempts < ATTEMPTS => {
                entering.attempts += 1;
                self.entering = Some(entering);
                self.wait_for_name(ctx);
                ctx.schedule(Delay::coarse(PAUSE), Self::ask_again);
                return Ok(());
            }
            NameAnswer::Taken { by, .. } => name_taken(self.user.as_deref().unwrap_or_default(), &by),
            NameAnswer::Failed(error) => busy(&error),
        };
        if let (Some(user), Some(identity)) = (self.user.take(), self.identity.take()) {
            self.hub.release_name(&user, identity.who);
        }
        self.replies.write(ctx, refusal.reply())?;
        if entering.is_overdue { self.too_slow(ctx, "has not logged in") } else { Ok(()) }
    }

    fn ask_again(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let (Some(_), Some(user), Some(identity)) = (&self.entering, &self.user, &self.identity) else {
            return Ok(());
        };
        self.pace.charge(Cost::stored());
        self.pace.settle(ctx);
        match self.hub.ask_again_for_name(user, identity.who, identity.claim) {
            Some(answer) => self.name_answered(ctx, answer),
            None => Ok(()),
        }
    }
}

/// Returns the refusal of a name that is in conflict with another one.
pub(super) fn name_taken(user: &str, by: &Arc<str>) -> Refusal {
    let like = if **by == *user { "" } else { ", which looks like it," };
    Refusal(Code::NameTaken, format!("the name {by}{like} is taken"))
}
