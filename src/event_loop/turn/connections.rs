//! New channels: connections that were accepted or established.
//!
//! Invariants: the pipeline of a connection is created on its own loop. If a factory fails, only
//! that connection is closed. A channel that opens during a shutdown is notified like the others.
//! Runs on the loop's thread.

use super::Turn;
use crate::{
    channel::{AnyPipeline, ChannelCore, Establish, driver::ChannelDriver, filter::Filters},
    error::{Error, Result},
    event_loop::{
        STREAM_INTEREST, WATCHING,
        connection::{ChannelStart, Connection, Established},
        establish::{AcceptedChannel, ConnectedChannel},
        sources::{ChannelSlot, Slot},
    },
    id::{ChannelId, Key},
    log_throttle::{NOT_OPENED, TURNED_AWAY, log_throttled},
};
use log::Level;

impl Turn {
    /// Opens the channel of an accepted connection.
    // Inlined, so that the connection is moved once.
    #[inline(always)]
    pub(super) fn adopt(&mut self, mut connection: Connection) {
        if let Some(shutdown) = &mut self.shutdown
            && !shutdown.takes_connections()
        {
            shutdown.note_refused_connection();
            self.shared.metrics.rejected_by_loop.add(1);
            let (name, peer) = (&self.shared.name, connection.peer);
            log_throttled!(
                self.io.services,
                TURNED_AWAY,
                Level::Debug,
                "{name}: shutting down: a connection from {peer:?} is closed"
            );
            return;
        }
        let has_filters = connection.setup.filters.is_some();
        let registered = if has_filters {
            self.register_with_filters(&mut connection)
        } else {
            self.register(&mut connection)
                .map(|(key, pipeline)| (key, self.make_core(key, &connection, pipeline)))
        };
        match registered {
            Ok((key, core)) => {
                self.sources.insert(Slot::Channel(channel_slot(core, connection)));
                self.note_age_of(key);
                self.activate(key);
                if self.shutdown.is_some() {
                    self.notify_late(key, has_filters);
                }
            }
            // This error may affect every connection, for example if a factory fails.
            Err(e) => {
                let peer = connection.peer;
                drop(connection);
                let name = &self.shared.name;
                log_throttled!(
                    self.io.services,
                    NOT_OPENED,
                    Level::Warn,
                    "{name}: a connection from {peer:?} is closed: {e:#}"
                );
            }
        }
    }

    /// Creates the pipeline of a connection, and registers its socket with the poll.
    fn register(&mut self, connection: &mut Connection) -> Result<(Key, AnyPipeline)> {
        let pipeline = connection.make_pipeline()?;
        Ok((self.watch(connection)?, pipeline))
    }

    fn watch(&mut self, connection: &mut Connection) -> Result<Key> {
        let key = self.sources.next_key()?;
        let registered = self.io.selector.register(connection.stream.source(), key.token(), STREAM_INTEREST);
        if let Err(e) = registered {
            connection.reset_on_close(&self.shared.name);
            return Err(Error::io(WATCHING, e));
        }
        Ok(key)
    }

    /// Creates the filters of a connection, and registers its socket with the poll.
    #[cold]
    fn register_with_filters(&mut self, connection: &mut Connection) -> Result<(Key, ChannelCore)> {
        let filters = connection.make_filters()?;
        let key = self.watch(connection)?;
        let accepted = Box::new(AcceptedChannel::new(connection, self.shared.clone()));
        let core = self.make_handshaking(key, connection, *filters, accepted);
        Ok((key, core))
    }

    /// Replaces an attempt to connect by the channel of its connection.
    pub(super) fn establish(&mut self, key: Key, established: Established) {
        let Established { connection, start, callback, ready } = established;
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.note_opened(true, matches!(start, ChannelStart::Pipeline(_)));
        }
        match start {
            ChannelStart::Pipeline(pipeline) => {
                let mut core = self.make_core(key, &connection, pipeline);
                let shared = core.handle(&self.io.services);
                drop(self.sources.replace(key, Slot::Channel(channel_slot(core, connection))));
                self.shared.metrics.connected.add(1);
                callback.connected(shared);
            }
            ChannelStart::Filters(filters) => {
                let connected = ConnectedChannel::new(&connection, callback, self.shared.clone());
                let core = self.make_handshaking(key, &connection, *filters, Box::new(connected));
                drop(self.sources.replace(key, Slot::Channel(channel_slot(core, connection))));
            }
        }
        self.activate(key);
        let Turn { sources, io, shared, .. } = self;
        if let Some(slot) = sources.channel(key)
            && !ready.is_empty()
        {
            slot.handle_ready(io, &shared.metrics, ready);
        }
    }

    fn make_core(&mut self, key: Key, connection: &Connection, pipeline: AnyPipeline) -> ChannelCore {
        self.shared.metrics.channels.set(self.shared.metrics.channels.read() + 1);
        let id = ChannelId { event_loop: self.shared.id, key };
        let addresses = (connection.local, connection.peer);
        ChannelCore::new(id, connection.setup.config.clone(), pipeline, addresses, &mut self.io.services)
    }

    /// Creates a channel whose pipeline is made when its filters are established.
    fn make_handshaking(
        &mut self,
        key: Key,
        connection: &Connection,
        filters: Filters,
        establish: Box<dyn Establish>,
    ) -> ChannelCore {
        self.shared.metrics.channels.set(self.shared.metrics.channels.read() + 1);
        let id = ChannelId { event_loop: self.shared.id, key };
        let config = connection.setup.config.clone();
        ChannelCore::handshaking(id, config, filters, establish, &mut self.io.services)
    }

    fn activate(&mut self, key: Key) {
        debug_assert!(
            self.shutdown
                .as_ref()
                .is_none_or(|shutdown| shutdown.takes_connections() || shutdown.takes_outgoing()),
            "a channel that opens too late is never notified"
        );
        // A panic closes this channel, but not the listener that accepted it.
        self.guarded_once(Some(key), |turn| {
            let Turn { sources, io, shared, .. } = turn;
            let Some(slot) = sources.channel(key) else { return };
            slot.activate(io, &shared.metrics);
        });
    }
}

#[inline]
fn channel_slot(core: ChannelCore, connection: Connection) -> ChannelSlot {
    let Connection { stream, assignment, .. } = connection;
    let driver = ChannelDriver { core, transport: Some(stream) };
    ChannelSlot { driver, assignment: Some(assignment) }
}
