//! Parts of a channel that most channels do without, behind one pointer.
//!
//! Invariant: a channel that uses none of them does not allocate memory for them. Runs on the
//! channel's loop.

mod attributes;
mod log_level;
mod wire_log;

pub use attributes::Attributes;
pub use log_level::LogLevel;
pub use wire_log::WireLog;

use crate::channel::{
    close_cause::CloseCause, exchanges::Exchanges, filter::Filters, peer::Peer, shaping::Shaper,
};
use std::{io, sync::Arc};

/// The parts that are in use. Allocated when the first of them is set.
#[derive(Debug, Default)]
pub(crate) struct Extras(Option<Box<Parts>>);

#[derive(Debug, Default)]
struct Parts {
    attributes: Attributes,
    wire_log: Option<WireLog>,
    /// Limits the traffic; see `shaping`.
    shaper: Option<Box<Shaper>>,
    /// The filters between the transport and the codec; see `filter`.
    filters: Option<Box<Filters>>,
    /// What filters that are gone have found out.
    peer: Option<Box<Peer>>,
    /// Reports to a pool whether the channel is between two exchanges.
    exchanges: Option<Arc<Exchanges>>,
    /// Messages that were dropped because the outbound buffer was full.
    messages_dropped: u64,
    /// Messages that newer ones have replaced.
    messages_conflated: u64,
    /// Why the channel ends, unless that is [`CloseCause::Clean`].
    close_cause: Option<CloseCause>,
    /// An error that a look at the transport has found, and that the next read returns.
    read_error: Option<io::Error>,
}

impl Extras {
    /// Returns whether the channel has used any of the parts.
    #[inline]
    pub(in crate::channel) fn are_used(&self) -> bool {
        self.0.is_some()
    }

    fn parts(&mut self) -> &mut Parts {
        self.0.get_or_insert_default()
    }

    /// Adds the extras of another pipeline. Returns the replaced extras, because dropping them runs
    /// code of the program.
    pub(in crate::channel) fn replace_with(&mut self, new: Extras) -> Extras {
        let Some(mut new) = new.0 else { return Extras(None) };
        match &mut self.0 {
            None => {
                self.0 = Some(new);
                Extras(None)
            }
            Some(old) => {
                old.attributes.absorb(&mut new.attributes);
                // Of the first pipeline, which is made when the filters are established.
                if old.exchanges.is_none() {
                    old.exchanges = new.exchanges.take();
                }
                if new.wire_log.is_some() {
                    std::mem::swap(&mut old.wire_log, &mut new.wire_log);
                }
                Extras(Some(new))
            }
        }
    }

    pub(crate) fn attributes(&self) -> &Attributes {
        const NONE: &Attributes = &Attributes::new();
        self.0.as_ref().map_or(NONE, |parts| &parts.attributes)
    }

    pub(crate) fn attributes_mut(&mut self) -> &mut Attributes {
        &mut self.parts().attributes
    }

    #[inline]
    pub(in crate::channel) fn wire_log(&self) -> Option<&WireLog> {
        self.0.as_ref()?.wire_log.as_ref()
    }

    pub(crate) fn set_wire_log(&mut self, wire_log: Option<WireLog>) {
        if wire_log.is_some() || self.are_used() {
            self.parts().wire_log = wire_log;
        }
    }

    pub(in crate::channel) fn exchanges(&self) -> Option<&Arc<Exchanges>> {
        self.0.as_ref()?.exchanges.as_ref()
    }

    pub(crate) fn set_exchanges(&mut self, exchanges: Arc<Exchanges>) {
        self.parts().exchanges = Some(exchanges);
    }

    #[inline]
    pub(in crate::channel) fn shaper(&self) -> Option<&Shaper> {
        self.0.as_ref()?.shaper.as_deref()
    }

    #[inline]
    pub(in crate::channel) fn shaper_mut(&mut self) -> Option<&mut Shaper> {
        self.0.as_mut()?.shaper.as_deref_mut()
    }

    pub(in crate::channel) fn set_shaper(&mut self, shaper: Option<Box<Shaper>>) {
        if shaper.is_some() || self.are_used() {
            self.parts().shaper = shaper;
        }
    }

    #[inline]
    pub(in crate::channel) fn has_filters(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| parts.filters.is_some())
    }

    /// Removes the filters of a replacement pipeline, because the channel keeps its own.
    pub(in crate::channel) fn remove_filters(&mut self) {
        if let Some(parts) = &mut self.0 {
            parts.filters = None;
        }
    }

    #[inline]
    pub(in crate::channel) fn filters(&self) -> Option<&Filters> {
        self.0.as_ref()?.filters.as_deref()
    }

    #[inline]
    pub(in crate::channel) fn filters_mut(&mut self) -> Option<&mut Filters> {
        self.0.as_mut()?.filters.as_deref_mut()
    }

    pub(in crate::channel) fn set_filters(&mut self, filters: Filters) {
        self.parts().filters = Some(Box::new(filters));
    }

    /// Removes the filters if all of them have finished, so that the channel goes on without them.
    #[inline]
    pub(in crate::channel) fn drop_finished_filters(&mut self) {
        if self.filters().is_some_and(Filters::are_gone) {
            self.drop_filters();
        }
    }

    #[cold]
    fn drop_filters(&mut self) {
        if let Some(parts) = &mut self.0
            && let Some(filters) = parts.filters.take()
        {
            parts.peer = Some(Box::new(filters.into_peer()));
        }
    }

    /// Returns the information that the channel's filters have stored about the peer.
    pub(crate) fn filter_info<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.peer()?.info()
    }

    /// Returns the peer as the channel's filters know it.
    pub(in crate::channel) fn peer(&self) -> Option<&Peer> {
        let parts = self.0.as_ref()?;
        parts.filters.as_ref().map(|filters| filters.peer()).or(parts.peer.as_deref())
    }

    /// Drops what finished filters have stored, because filters that follow them have it.
    pub(in crate::channel) fn forget_peer(&mut self) {
        if let Some(parts) = &mut self.0 {
            parts.peer = None;
        }
    }

    /// Returns whether a callback has added a filter that has not started.
    #[inline]
    pub(in crate::channel) fn has_added_filter(&self) -> bool {
        self.filters().is_some_and(Filters::has_added)
    }

    /// Returns the sealed bytes that wait for the transport.
    #[inline]
    pub(crate) fn sealed_wire(&self) -> &[u8] {
        self.filters().map_or(&[], Filters::sealed_wire)
    }

    /// Returns whether sealed bytes wait for the transport.
    #[inline]
    pub(in crate::channel) fn has_sealed(&self) -> bool {
        self.filters().is_some_and(Filters::has_sealed)
    }

    /// Returns how many outbound bytes are sealed, and so can no longer be taken back.
    pub(in crate::channel) fn sealed_bytes(&self) -> usize {
        self.filters().map_or(0, Filters::sealed_plain)
    }

    /// Returns the number of incomplete wire bytes in the filters.
    pub(in crate::channel) fn kept_in_filters(&self) -> usize {
        self.filters().map_or(0, Filters::kept)
    }

    /// Returns whether there are incomplete wire bytes in the filters.
    #[inline]
    pub(in crate::channel) fn filters_have_kept(&self) -> bool {
        self.filters().is_some_and(Filters::has_kept)
    }

    pub(in crate::channel) fn note_messages_dropped(&mut self, messages: u64) {
        if messages > 0 {
            self.parts().messages_dropped += messages;
        }
    }

    pub(in crate::channel) fn note_message_conflated(&mut self) {
        self.parts().messages_conflated += 1;
    }

    pub(in crate::channel) fn messages_conflated(&self) -> u64 {
        self.0.as_ref().map_or(0, |parts| parts.messages_conflated)
    }

    /// Records why the channel ends. The first cause besides `Clean` stays.
    pub(in crate::channel) fn note_close_cause(&mut self, cause: CloseCause) {
        if !cause.is_clean() {
            self.parts().close_cause.get_or_insert(cause);
        }
    }

    pub(in crate::channel) fn close_cause(&self) -> CloseCause {
        self.0.as_ref().and_then(|parts| parts.close_cause).unwrap_or(CloseCause::Clean)
    }

    /// Keeps an error of the transport for the next read. The transport may report it only once.
    pub(in crate::channel) fn keep_read_error(&mut self, error: io::Error) {
        self.parts().read_error = Some(error);
    }

    /// Returns whether an error waits for the next read.
    pub(in crate::channel) fn has_read_error(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| parts.read_error.is_some())
    }

    pub(in crate::channel) fn take_read_error(&mut self) -> Option<io::Error> {
        self.0.as_mut()?.read_error.take()
    }

    pub(in crate::channel) fn messages_dropped(&self) -> u64 {
        self.0.as_ref().map_or(0, |parts| parts.messages_dropped)
    }
}
