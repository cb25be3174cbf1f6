//! The operations of a filter during a call.

use super::Filter;
use crate::{
    channel::{
        filter::{filter_waker::FilterWaker, opened::Collect},
        handle::MailSender,
        peer::Peer,
    },
    id::Key,
};
use std::{net::SocketAddr, sync::Arc};

/// The operations of a [`Filter`] during a call.
pub struct FilterContext<'a> {
    /// Receives opened bytes; `None` if the call produces none.
    pub(in crate::channel::filter) plain: Option<&'a mut (dyn Collect + 'a)>,
    pub(in crate::channel::filter) output: &'a mut Vec<u8>,
    pub(in crate::channel::filter) surroundings: &'a mut Surroundings,
    /// A filter that takes the place above the current one.
    pub(in crate::channel::filter) inserted: Option<Box<dyn Filter>>,
    /// The time of the loop's clock, in nanoseconds.
    pub(in crate::channel::filter) now: u64,
}

/// What the filters of a channel know about it.
pub(in crate::channel::filter) struct Surroundings {
    pub(in crate::channel::filter) peer: Peer,
    pub(in crate::channel::filter) announced: bool,
    pub(in crate::channel::filter) channel: Key,
    /// Set when the channel starts.
    pub(in crate::channel::filter) sender: Option<Arc<dyn MailSender>>,
}

impl FilterContext<'_> {
    /// Passes opened bytes to the codec, or to the filter above. They are copied.
    ///
    /// Before the filter is established, and outside of [`Filter::read`], they are ignored.
    #[inline]
    pub fn deliver(&mut self, plain: &[u8]) {
        if let Some(to) = &mut self.plain {
            to.put(plain);
        }
    }

    /// Returns the buffer of bytes for the peer. Append only; it may hold earlier output.
    #[inline]
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.output
    }

    /// Returns the receiver of opened bytes and the buffer of bytes for the peer, for a call that
    /// appends to both.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only TLS needs both at once"))]
    #[inline]
    pub(crate) fn split(&mut self) -> (impl FnMut(&[u8]), &mut Vec<u8>) {
        let FilterContext { plain, output, .. } = self;
        let deliver = move |bytes: &[u8]| {
            if let Some(to) = plain {
                to.put(bytes);
            }
        };
        (deliver, output)
    }

    /// Returns the connection's peer, with the information that filters have set.
    pub fn peer(&self) -> &Peer {
        &self.surroundings.peer
    }

    /// Replaces the addresses of the channel, for example by those of a PROXY header.
    ///
    /// For an accepted connection, the IP filter and the limit per address of
    /// [`Admission`](crate::admission::Admission) are checked again for `peer`, behind this call
    /// and before the filters above start. A channel that is active, because the filter was added
    /// by [`start_filter`](crate::Context::start_filter), is not checked again.
    pub fn announce(&mut self, peer: SocketAddr, local: SocketAddr) {
        self.surroundings.announced = true;
        self.surroundings.peer.set_addresses(Some(peer), Some(local));
    }

    /// Stores information for pipeline factories ([`Peer::info`]) and handlers
    /// ([`Context::filter_info`](crate::Context::filter_info)). Replaces a value of the same type.
    pub fn set_info<T: Send + Sync + 'static>(&mut self, info: T) {
        self.surroundings.peer.set_info(info);
    }

    /// Adds a filter directly above the current one. It starts when the current one is established
    /// or finished, or at once if filters above it have started. A call has one such filter, the
    /// last. `handshake_timeout` applies until all filters are established, also on an active
    /// channel.
    ///
    /// The inserted filter receives all bytes that the same call delivers, also those delivered
    /// before the insertion. If the current filter is finished, its unconsumed input follows them.
    ///
    /// In [`Filter::write`], this fails the channel.
    pub fn insert_above(&mut self, filter: impl Filter) {
        self.inserted = Some(Box::new(filter));
    }

    /// Returns a handle that calls [`Filter::read`] again later, from any thread.
    ///
    /// # Panics
    /// If the filter runs outside of a channel, which programs cannot do.
    pub fn waker(&self) -> FilterWaker {
        let sender = self.surroundings.sender.clone().expect("the channel has started its filters");
        FilterWaker { sender, channel: self.surroundings.channel }
    }

    /// Returns the time of the loop's clock, in nanoseconds since an arbitrary start.
    pub fn now(&self) -> u64 {
        self.now
    }
}
