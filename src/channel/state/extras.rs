//! Access to the parts of a channel that most channels do without.

use super::ChannelState;
use crate::channel::{
    extras::{Attributes, Extras, WireLog},
    shaping::Shaper,
};

impl ChannelState {
    fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Adds what another pipeline brings; what it takes the place of is for the caller to drop.
    pub(crate) fn add_extras(&mut self, extras: Option<Box<Extras>>) -> Option<Box<Extras>> {
        let mut new = extras?;
        match &mut self.extras {
            None => {
                self.extras = Some(new);
                None
            }
            Some(old) => {
                old.absorb(&mut new);
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

    pub(crate) fn note_messages_dropped(&mut self, messages: u64) {
        if messages > 0 {
            self.extras_mut().dropped += messages;
        }
    }

    pub(crate) fn messages_dropped(&self) -> u64 {
        self.extras.as_ref().map_or(0, |extras| extras.dropped)
    }
}
