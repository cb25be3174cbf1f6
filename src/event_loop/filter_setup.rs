//! The filters of the connections of a bootstrap.
//!
//! Invariant: filters are created on the loop of their connection, in the order of the bootstrap's
//! settings. Immutable; any thread may clone it.

use crate::{
    admission::Gate,
    channel::{Peer, filter::Filter},
    error::{Error, Result},
};
use std::{fmt, net::IpAddr, sync::Arc};

/// Creates a filter for a new connection, on the connection's loop.
pub(crate) type FilterFactory = dyn Fn(&Peer) -> Result<Box<dyn Filter>> + Send + Sync;

/// Returns whether a filter may announce another address for connections from this one.
pub(crate) type AnnouncesFor = dyn Fn(IpAddr) -> bool + Send + Sync;

/// The filters of the connections of a bootstrap.
#[derive(Clone, Default)]
pub(crate) struct FilterSetup {
    /// The first one is next to the socket.
    factories: Vec<Arc<FilterFactory>>,
    /// The filter above all others.
    top: Option<Arc<FilterFactory>>,
    announces_for: Option<Arc<AnnouncesFor>>,
    refused: Option<Error>,
    /// The gate of a server, which decides about announced addresses.
    pub(super) gate: Option<Arc<Gate>>,
}

impl FilterSetup {
    /// Adds a filter above the others.
    pub(crate) fn add(&mut self, factory: Arc<FilterFactory>) {
        self.factories.push(factory);
    }

    /// Adds a filter below the others.
    pub(crate) fn add_first(&mut self, factory: Arc<FilterFactory>) {
        self.factories.insert(0, factory);
    }

    /// Sets the filter above all others, including filters that are added later.
    #[cfg(feature = "websocket")]
    pub(crate) fn set_top(&mut self, factory: Arc<FilterFactory>) {
        self.top = Some(factory);
    }

    /// Keeps the error of a setting until [`FilterSetup::check`].
    pub(crate) fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }

    /// # Errors
    /// [`Error::Setting`] for the first setting that is out of range.
    pub(crate) fn check(&self) -> Result {
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// Sets the peers for which a filter may announce another address. Their own address is
    /// neither filtered nor counted when they are accepted.
    pub(crate) fn set_announces_for(&mut self, announces_for: Arc<AnnouncesFor>) {
        self.announces_for = Some(announces_for);
    }

    /// Returns the setup of a server's connections, or `None` without filters.
    pub(crate) fn for_server(self, gate: Arc<Gate>) -> Option<Self> {
        Some(FilterSetup { gate: Some(gate), ..self }).filter(FilterSetup::has_filters)
    }

    /// Returns the setup of a client's connections, or `None` without filters.
    pub(crate) fn for_client(&self) -> Option<Self> {
        self.has_filters().then(|| self.clone())
    }

    fn has_filters(&self) -> bool {
        !self.factories.is_empty() || self.top.is_some()
    }

    pub(in crate::event_loop) fn announces_for(&self, address: IpAddr) -> bool {
        self.announces_for.as_ref().is_some_and(|announces_for| announces_for(address))
    }

    /// Creates the filters of a connection.
    ///
    /// # Errors
    /// The error of the first factory that fails.
    pub(in crate::event_loop) fn make(&self, peer: &Peer) -> Result<Vec<Box<dyn Filter>>> {
        self.factories.iter().chain(&self.top).map(|factory| factory(peer)).collect()
    }
}

impl fmt::Debug for FilterSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilterSetup").field("filters", &self.factories.len()).finish_non_exhaustive()
    }
}
