//! Links: connections whose two ends are both recorded, so that each end's view of the other can be
//! checked.

use super::{
    acts,
    kit::{Play, lock},
    player::Player,
    streams::Stream,
};
use netwheel::{channel::CloseCause, prelude::*};
use std::sync::{Arc, Mutex, atomic::Ordering::SeqCst};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// All links of a play. Clones share them.
#[derive(Clone)]
pub(super) struct Links {
    pub(super) play: Play,
    links: Arc<Mutex<Vec<Arc<Link>>>>,
}

pub(super) struct Link {
    pub(super) client: Arc<End>,
    pub(super) server: Arc<End>,
    /// Another connection is behind the client's.
    pub(super) is_relayed: bool,
    /// The handlers start a filter before they send anything else.
    pub(super) upgrades: bool,
    /// No fault has happened since the link was made.
    is_strict: bool,
}

pub(super) struct End {
    pub(super) link: u32,
    pub(super) side: Side,
    pub(super) output: Arc<Stream>,
    pub(super) input: Arc<Stream>,
    facts: Mutex<Facts>,
    handler: Mutex<Option<HandlerRef<Player>>>,
}

/// Events at an end. A fact is noted before the operation that it is about.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    pub(super) is_connecting: bool,
    pub(super) is_active: bool,
    /// The channel has ended, with this cause.
    pub(super) ended: Option<Option<CloseCause>>,
    /// The program has asked for a graceful close or for the end of the output.
    pub(super) is_closed: bool,
    /// The program has cut or reset the channel, or a handler has returned an error.
    pub(super) is_cut: bool,
    /// `is_cut`, on a channel that had no other reason to end.
    pub(super) is_cut_first: bool,
    /// `error` was called.
    pub(super) failed: Option<String>,
    /// The loop has shut down.
    pub(super) is_shut_down: bool,
    /// The peer has ended its stream cleanly, before this end had a reason to end.
    pub(super) saw_clean_end: bool,
    /// The channel closes a slow peer, drops lingering sockets early, or does not wait for
    /// confirmations, so its peer may miss the last messages.
    pub(super) is_hasty: bool,
    pub(super) open_tasks: u32,
    pub(super) lost_tasks: u32,
    /// Tasks may be dropped: a pipeline was replaced, or a limit was reached.
    pub(super) loses_tasks: bool,
    /// Messages that the handler is still to write when the channel is writable.
    pub(super) streaming: u32,
    pub(super) stream_size: usize,
}

impl Facts {
    fn has_reason_to_end(&self) -> bool {
        self.is_closed || self.is_cut || self.failed.is_some() || self.is_shut_down || self.saw_clean_end
    }
}

impl End {
    fn new(link: u32, side: Side, output: &Arc<Stream>, input: &Arc<Stream>) -> Arc<Self> {
        Arc::new(End {
            link,
            side,
            output: output.clone(),
            input: input.clone(),
            facts: Mutex::default(),
            handler: Mutex::default(),
        })
    }

    pub(super) fn facts<R>(&self, look: impl FnOnce(&mut Facts) -> R) -> R {
        look(&mut lock(&self.facts))
    }

    pub(super) fn will_close(&self) {
        self.facts(|facts| facts.is_closed = true);
    }

    pub(super) fn will_cut(&self) {
        self.facts(|facts| {
            facts.is_cut_first |= !facts.has_reason_to_end();
            facts.is_cut = true;
        });
    }

    pub(super) fn peer_has_ended(&self) {
        self.facts(|facts| facts.saw_clean_end |= !facts.has_reason_to_end());
    }

    pub(super) fn handler(&self) -> Option<HandlerRef<Player>> {
        lock(&self.handler).clone()
    }

    pub(super) fn set_handler(&self, handler: Option<HandlerRef<Player>>) {
        let before = std::mem::replace(&mut *lock(&self.handler), handler);
        drop(before);
    }

    /// Returns whether the channel is connected, and nothing has happened that may end it.
    pub(super) fn is_settled(&self) -> bool {
        self.facts(|facts| facts.is_active && facts.ended.is_none() && !facts.has_reason_to_end())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.facts(|facts| facts.ended.is_some())
    }
}

impl Link {
    pub(super) fn ends(&self) -> [(&Arc<End>, &Arc<End>); 2] {
        [(&self.client, &self.server), (&self.server, &self.client)]
    }

    pub(super) fn is_settled(&self) -> bool {
        self.client.is_settled() && self.server.is_settled()
    }

    /// Returns whether the client may never hear that the server's end has ended, because a fault
    /// has lost the last word.
    pub(super) fn may_be_half_open(&self) -> bool {
        !self.is_strict && self.server.has_ended()
    }

    /// Turns on auto-read at both ends.
    pub(super) fn read_again(&self) {
        for (end, _) in self.ends() {
            if let Some(handler) = end.handler() {
                acts::read_again(handler);
            }
        }
    }

    /// Describes messages that have not arrived although both ends are settled.
    pub(super) fn missing(&self) -> Option<String> {
        if !self.is_settled() {
            return None;
        }
        let up = || self.client.output.missing().map(|text| format!("to the server: {text}"));
        let down = || self.server.output.missing().map(|text| format!("to the client: {text}"));
        up().or_else(down).map(|text| format!("link {} {text}", self.client.link))
    }

    /// Compares the end that `end` has seen with the operations of `peer`.
    fn check_end(&self, play: &Play, end: &End, peer: &End) {
        let (mine, theirs) = (end.facts(|facts| facts.clone()), peer.facts(|facts| facts.clone()));
        let text = |what: &str| {
            format!(
                "link {} {:?}: {what}; {mine:?}; peer: {theirs:?}; relayed: {}",
                end.link, end.side, self.is_relayed
            )
        };
        // An overflow in a handler closes the channel without a call of `error`.
        let has_overflown = theirs.ended == Some(Some(CloseCause::Failed));
        let peer_had_reason = theirs.is_closed
            || theirs.is_cut
            || theirs.is_shut_down
            || theirs.failed.is_some()
            || has_overflown;
        if mine.saw_clean_end {
            play.must(!theirs.is_cut_first, || text("a clean end, but the peer was cut"));
            play.must(peer_had_reason || !theirs.is_active || theirs.saw_clean_end, || {
                text("a clean end, but the peer had no reason to end")
            });
            let is_whole = theirs.is_closed && !theirs.is_cut && theirs.failed.is_none();
            if is_whole && let Some(missing) = end.input.missing_confirmed() {
                play.violation(text(&format!("a clean end, but {missing}")));
            }
        }
        let is_graceful = |facts: &Facts| !facts.is_cut && !facts.is_shut_down && !facts.is_hasty;
        if self.is_strict && mine.ended.is_some() && is_graceful(&mine) && is_graceful(&theirs) {
            let is_full = |facts: &Facts| {
                facts.ended == Some(Some(CloseCause::Failed))
                    && facts.failed.as_ref().is_none_or(|error| error.starts_with("the limit of"))
            };
            let is_explained = mine.failed.is_none() && mine.ended == Some(Some(CloseCause::Clean));
            play.must(is_explained || is_full(&mine), || text("an end without a cause"));
            let had_to_read = theirs.is_closed && !mine.is_closed && mine.failed.is_none();
            if had_to_read
                && mine.ended == Some(Some(CloseCause::Clean))
                && let Some(missing) = end.input.missing_confirmed()
            {
                play.violation(text(&format!("after a graceful close, {missing}")));
            }
        }
    }
}

impl Links {
    pub(super) fn new(play: &Play) -> Self {
        Links { play: play.clone(), links: Arc::default() }
    }

    pub(super) fn add(&self, is_relayed: bool, upgrades: bool) -> Arc<Link> {
        let mut links = lock(&self.links);
        let (up, down) = (Arc::new(Stream::default()), Arc::new(Stream::default()));
        let number = links.len() as u32;
        let link = Arc::new(Link {
            client: End::new(number, Side::Client, &up, &down),
            server: End::new(number, Side::Server, &down, &up),
            is_relayed,
            upgrades,
            is_strict: self.play.is_calm(),
        });
        links.push(link.clone());
        link
    }

    pub(super) fn get(&self, link: u32) -> Option<Arc<Link>> {
        lock(&self.links).get(link as usize).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Link>> {
        lock(&self.links).clone()
    }

    /// Checks the recorded ends of all links.
    pub(super) fn check_ends(&self) {
        for link in self.all() {
            for (end, peer) in link.ends() {
                link.check_end(&self.play, end, peer);
            }
        }
    }

    /// Lets both ends of all links forget their handlers.
    pub(super) fn let_go(&self) {
        for link in self.all() {
            for (end, _) in link.ends() {
                end.set_handler(None);
            }
        }
    }

    pub(super) fn set_dropping(end: &End, drops: bool) {
        end.output.drops_messages.store(drops, SeqCst);
    }
}
