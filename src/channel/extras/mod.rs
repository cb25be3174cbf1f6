//! Parts of a channel that most channels do without, behind one pointer.
//!
//! Always holds: a channel that uses none of them has none of this. Runs on the channel's loop.

mod attributes;
mod wire_log;

pub use attributes::Attributes;
pub use wire_log::WireLog;

use crate::channel::{shaping::Shaper, state::ChannelState};

#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) attributes: Attributes,
    pub(crate) wire_log: Option<WireLog>,
    /// What limits its traffic; see `shaping`.
    shaper: Option<Box<Shaper>>,
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

    pub(crate) fn note_messages_dropped(&mut self, messages: u64) {
        if messages > 0 {
            self.extras_mut().dropped += messages;
        }
    }

    pub(crate) fn messages_dropped(&self) -> u64 {
        self.extras.as_ref().map_or(0, |extras| extras.dropped)
    }
}
