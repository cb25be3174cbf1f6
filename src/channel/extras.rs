//! Parts of a channel that most channels do without, behind one pointer.
//!
//! Always holds: a channel that uses none of them has none of this. Runs on the channel's loop.

use super::{
    attributes::Attributes, filter::Filters, shaping::Shaper, state::ChannelState, wire_log::WireLog,
};
use crate::Result;

#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) attributes: Attributes,
    pub(crate) wire_log: Option<WireLog>,
    /// What limits its traffic; see `shaping`.
    shaper: Option<Box<Shaper>>,
    /// What stands between the transport and the codec; see `filter`.
    pub(crate) filters: Option<Box<Filters>>,
    /// Messages that were dropped because too much waits.
    dropped: u64,
}

impl ChannelState {
    fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Adds what another pipeline brings; what it takes the place of is for the caller to drop.
    pub(crate) fn add_extras(&mut self, extras: Option<Box<Extras>>) -> Option<Box<Extras>> {
        let mut new = extras?;
        // Filters belong to the channel: a pipeline that takes over brings none.
        new.filters = None;
        match &mut self.extras {
            None => {
                self.extras = Some(new);
                None
            }
            Some(old) => {
                old.attributes.absorb(&mut new.attributes);
                if new.wire_log.is_some() {
                    std::mem::swap(&mut old.wire_log, &mut new.wire_log);
                }
                Some(new)
            }
        }
    }

    pub(crate) fn attributes(&self) -> &Attributes {
        const NONE: &Attributes = &Attributes::new();
        self.extras.as_ref().map_or(NONE, |extras| &extras.attributes)
    }

    pub(crate) fn attributes_mut(&mut self) -> &mut Attributes {
        &mut self.extras_mut().attributes
    }

    pub(crate) fn wire_log(&self) -> Option<&WireLog> {
        self.extras.as_ref()?.wire_log.as_ref()
    }

    pub(crate) fn set_wire_log(&mut self, wire_log: Option<WireLog>) {
        if wire_log.is_some() || self.extras.is_some() {
            self.extras_mut().wire_log = wire_log;
        }
    }

    #[inline]
    pub(crate) fn shaper(&self) -> Option<&Shaper> {
        self.extras.as_ref()?.shaper.as_deref()
    }

    #[inline]
    pub(crate) fn shaper_mut(&mut self) -> Option<&mut Shaper> {
        self.extras.as_mut()?.shaper.as_deref_mut()
    }

    pub(crate) fn set_shaper(&mut self, shaper: Option<Box<Shaper>>) {
        if shaper.is_some() || self.extras.is_some() {
            self.extras_mut().shaper = shaper;
        }
    }

    #[inline]
    pub(crate) fn has_filters(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.filters.is_some())
    }

    #[inline]
    fn filters(&self) -> Option<&Filters> {
        self.extras.as_ref()?.filters.as_deref()
    }

    #[inline]
    pub(crate) fn filters_mut(&mut self) -> Option<&mut Filters> {
        self.extras.as_mut()?.filters.as_deref_mut()
    }

    /// Seals outbound bytes, as far as the limit allows. They stay in the buffer until the transport has
    /// taken what they were sealed to.
    pub(crate) fn seal(&mut self) -> Result {
        let Some(filters) = self.extras.as_mut().and_then(|extras| extras.filters.as_deref_mut()) else {
            return Ok(());
        };
        match &self.outbound {
            Some(loan) if !loan.buffer.is_empty() => filters.seal(&loan.buffer),
            _ => Ok(()),
        }
    }

    /// Returns the sealed bytes that wait for the transport.
    #[inline]
    pub(crate) fn sealed_wire(&self) -> &[u8] {
        self.filters().map_or(&[], Filters::wire)
    }

    /// Returns how many outbound bytes are sealed, and so can no longer be taken back.
    pub(crate) fn sealed_bytes(&self) -> usize {
        self.filters().map_or(0, Filters::sealed_plain)
    }

    /// Returns the bytes of the wire that the filters keep because they are incomplete.
    pub(crate) fn kept_in_filters(&self) -> usize {
        self.filters().map_or(0, Filters::kept)
    }

    pub(crate) fn note_messages_dropped(&mut self, messages: u64) {
        if messages > 0 {
            self.extras_mut().dropped += messages;
        }
    }

    pub(crate) fn messages_dropped(&self) -> u64 {
        self.extras.as_ref().map_or(0, |extras| extras.dropped)
    }
}
