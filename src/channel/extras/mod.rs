//! Parts of a channel that most channels do without, behind one pointer.
//!
//! Always holds: a channel that uses none of them has none of this. Runs on the channel's loop.

mod attributes;
mod wire_log;

pub use attributes::Attributes;
pub use wire_log::WireLog;

use crate::channel::shaping::Shaper;

#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) attributes: Attributes,
    pub(crate) wire_log: Option<WireLog>,
    /// What limits its traffic; see `shaping`.
    pub(in crate::channel) shaper: Option<Box<Shaper>>,
    /// Messages that were dropped because too much waits.
    pub(in crate::channel) dropped: u64,
}

impl Extras {
    /// Adds what another pipeline brings. `new` keeps what was replaced, for the caller to drop.
    pub(in crate::channel) fn absorb(&mut self, new: &mut Extras) {
        self.attributes.absorb(&mut new.attributes);
        if new.wire_log.is_some() {
            std::mem::swap(&mut self.wire_log, &mut new.wire_log);
        }
    }
}
