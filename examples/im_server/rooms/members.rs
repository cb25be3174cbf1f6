//! `Members`: the members of a room, and the changes that have not been announced.

use crate::session::Session;
use netwheel::{ChannelId, HandlerRef};
use std::{collections::BTreeMap, sync::Arc};

/// Maximum number of names in one announcement; the others are sent with the next one.
const MAX_NAMES: usize = 256;
/// Number of members above which joins and leaves are announced as the number of members.
const MAX_NAMED_MEMBERS: usize = 1000;
/// Number of members at which such a room announces names again. Lower, so that a room does not
/// change its form with each join.
const NAMED_AGAIN: usize = MAX_NAMED_MEMBERS * 3 / 4;

#[derive(Default)]
pub(super) struct Members {
    by_name: BTreeMap<Arc<str>, Member>,
    /// Number of the members of this server.
    here: usize,
    /// Users that have joined or left since the last announcement, with their current membership.
    changed: BTreeMap<Arc<str>, bool>,
    /// Whether the room is so large that the number of members is announced.
    counts: bool,
    /// Whether that number has to be announced.
    count_changed: bool,
    /// Set while the announcer has this room in its list.
    listed: bool,
}

/// Where a member is: at this server, at another one, or at both while it changes the server.
#[derive(Default)]
struct Member {
    session: Option<HandlerRef<Session>>,
    /// Whether this session has got its `joined`.
    has_joined: bool,
    is_elsewhere: bool,
}

/// The content of an announcement.
pub(super) enum News {
    /// The number of members.
    Count(usize),
    /// Users that have joined or left, with their current membership.
    Names(BTreeMap<Arc<str>, bool>),
}

impl Members {
    /// Returns the number of members of this server.
    pub(super) fn here(&self) -> usize {
        self.here
    }

    /// Returns the names of all members in alphabetical order.
    pub(super) fn names(&self) -> Vec<String> {
        self.by_name.keys().map(|user| user.to_string()).collect()
    }

    /// Returns whether a user is a member of this server.
    pub(super) fn is_here(&self, user: &str) -> bool {
        self.by_name.get(user).is_some_and(|member| member.session.is_some())
    }

    /// Returns the name and the session of a member of this server that has got its `joined`.
    pub(super) fn joined_as(&self, user: &str) -> Option<(&Arc<str>, &HandlerRef<Session>)> {
        let (user, member) = self.by_name.get_key_value(user)?;
        Some((user, member.session.as_ref().filter(|_| member.has_joined)?))
    }

    pub(super) fn is_elsewhere(&self, user: &str) -> bool {
        self.by_name.get(user).is_some_and(|member| member.is_elsewhere)
    }

    // ---- changes --------------------------------------------------------------------------------

    /// Adds a member of this server. Returns `None` if there are already `max` members, otherwise
    /// whether the room has to be added to the announcer.
    pub(super) fn join(&mut self, user: &Arc<str>, session: HandlerRef<Session>, max: usize) -> Option<bool> {
        // A session that this one has replaced was a member, perhaps at another server.
        let is_new = !self.by_name.contains_key(user);
        if is_new && self.by_name.len() >= max {
            return None;
        }
        let member = self.by_name.entry(user.clone()).or_default();
        self.here += usize::from(member.session.replace(session).is_none());
        member.has_joined = false;
        Some(is_new && self.note_change(user, true))
    }

    /// Records that a member of this server has got its `joined`, unless another session has
    /// replaced it.
    pub(super) fn note_joined(&mut self, user: &str, who: ChannelId) {
        if let Some(member) = self.by_name.get_mut(user) {
            member.has_joined |= member.session.as_ref().is_some_and(|own| own.channel().id() == who);
        }
    }

    /// Removes a member of this server, unless another session has replaced it. Returns whether the
    /// room has to be added to the announcer.
    pub(super) fn leave(&mut self, user: &str, who: ChannelId) -> bool {
        let session = self.by_name.get_mut(user).map(|member| &mut member.session);
        let is_own = |session: &mut HandlerRef<Session>| session.channel().id() == who;
        if session.and_then(|session| session.take_if(is_own)).is_none() {
            return false;
        }
        self.here -= 1;
        self.remove_if_gone(user)
    }

    /// Records whether a user is a member at another server. Returns whether the room has to be
    /// added to the announcer.
    pub(super) fn note_elsewhere(&mut self, user: &str, is_elsewhere: bool) -> bool {
        match self.by_name.get_mut(user) {
            Some(member) => {
                member.is_elsewhere = is_elsewhere;
                self.remove_if_gone(user)
            }
            None if is_elsewhere => {
                let user = Arc::<str>::from(user);
                self.by_name.insert(user.clone(), Member { is_elsewhere, ..Member::default() });
                self.note_change(&user, true)
            }
            None => false,
        }
    }

    /// Adds members of other servers, which are not announced.
    pub(super) fn add_elsewhere(&mut self, users: Vec<String>) {
        for user in users {
            self.by_name.entry(user.into()).or_default().is_elsewhere = true;
        }
    }

    fn remove_if_gone(&mut self, user: &str) -> bool {
        let is_gone = |member: &Member| member.session.is_none() && !member.is_elsewhere;
        if !self.by_name.get(user).is_some_and(is_gone) {
            return false;
        }
        let removed = self.by_name.remove_entry(user);
        removed.is_some_and(|(user, _)| self.note_change(&user, false))
    }

    /// Records a change of membership. Returns whether the room has to be added to the announcer.
    fn note_change(&mut self, user: &Arc<str>, member: bool) -> bool {
        if self.counts {
            self.count_changed = true;
        } else {
            self.changed.insert(user.clone(), member);
        }
        self.list()
    }

    // ---- announcements --------------------------------------------------------------------------

    /// Records that the room is in the announcer's list. Returns whether it was not.
    pub(super) fn list(&mut self) -> bool {
        !std::mem::replace(&mut self.listed, true)
    }

    /// Records that the room has left the announcer's list.
    pub(super) fn unlist(&mut self) {
        self.listed = false;
    }

    /// Takes the next announcement.
    pub(super) fn next_news(&mut self) -> Option<News> {
        self.choose_form();
        if self.counts || self.count_changed {
            let has_changed = std::mem::take(&mut self.count_changed);
            return has_changed.then_some(News::Count(self.by_name.len()));
        }
        if self.here == 0 {
            // The room has left the hub, because its last member here has left.
            self.changed.clear();
        }
        if self.changed.is_empty() {
            return None;
        }
        let rest = self.changed.keys().nth(MAX_NAMES).cloned();
        let rest = rest.map_or_else(BTreeMap::new, |first| self.changed.split_off(&first));
        Some(News::Names(std::mem::replace(&mut self.changed, rest)))
    }

    /// Takes news back that could not be announced.
    pub(super) fn put_back(&mut self, news: News) {
        match news {
            News::Count(_) => self.count_changed = true,
            News::Names(changed) => self.changed.extend(changed),
        }
    }

    /// Decides whether names or the number of members are announced.
    fn choose_form(&mut self) {
        if !self.counts && self.by_name.len() > MAX_NAMED_MEMBERS {
            (self.counts, self.count_changed) = (true, true);
            self.changed.clear();
        } else if self.counts && self.by_name.len() <= NAMED_AGAIN {
            // The last number, after which names follow.
            (self.counts, self.count_changed) = (false, true);
        }
    }
}
