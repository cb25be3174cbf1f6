//! Datagram channels of a loop: how they begin, and how mail finds them.
//!
//! Always holds: a channel that cannot begin is closed, with a line in the log, and nobody is left waiting for it. Runs on
//! the loop's thread.

use super::{shared::LifeState, sources::Slot, turn::Turn};
use crate::{
    Error, Result,
    datagram::{DatagramMail, DatagramShared, DatagramSlot, Opening},
    error::drop_guarded,
    id::{ChannelId, Key},
    metrics::Metrics,
};

impl Turn {
    pub(super) fn open_datagram(&mut self, opening: Opening) {
        if let Err(e) = self.try_to_open(opening) {
            log::warn!("{}: a datagram channel is closed: {e}", self.shared.name);
        }
    }

    fn try_to_open(&mut self, opening: Opening) -> Result {
        if self.shared.state() >= LifeState::ShuttingDown {
            return Err(Error::ShutDown);
        }
        let key = self.sources.next_key()?;
        let shared = opening.shared.0.clone();
        let mut slot = DatagramSlot::new(ChannelId { event_loop: self.shared.id, key }, opening)?;
        if let Some(source) = slot.source() {
            let registered = self.io.selector.register(source, key.token(), true);
            registered.map_err(|e| Error::io("watching a socket", e))?;
        }
        let _ = shared.key.set(key);
        self.sources.insert(Slot::Datagram(Box::new(slot)));
        let channels = &self.shared.metrics.datagram_channels;
        channels.set(channels.read() + 1);
        self.guarded_once(Some(key), |turn| {
            turn.with_datagram(key, |slot, io, metrics| slot.handle_active(io, metrics))
        });
        Ok(())
    }

    pub(super) fn datagram_mail(&mut self, shared: &DatagramShared, mail: DatagramMail) {
        // The channel came through this queue before its mail; it has a key unless it could not begin.
        let slot = shared.key.get().and_then(|key| self.sources.get(*key));
        if let Some(Slot::Datagram(slot)) = slot {
            slot.handle_mail(&mut self.io, &self.shared.metrics, mail);
        } else {
            drop_guarded(mail);
        }
    }

    /// Does something with a datagram channel, if it is there.
    pub(super) fn with_datagram<T: Default>(
        &mut self,
        key: Key,
        f: impl FnOnce(&mut DatagramSlot, &mut super::Io, &Metrics) -> T,
    ) -> T {
        let Turn { sources, io, shared, .. } = self;
        match sources.get(key) {
            Some(Slot::Datagram(slot)) => f(slot, io, &shared.metrics),
            _ => T::default(),
        }
    }
}
