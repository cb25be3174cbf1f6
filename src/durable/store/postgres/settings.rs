//! `PostgresStoreBuilder`: how to reach the server, and how nodes share the timers.

use super::{
    PostgresStore,
    connector::{Connect, plain},
};
use crate::{
    durable::store::{
        error::StoreError,
        sharing_settings::{SHORTEST_TIMEOUT, SharingSettings},
    },
    error::{Error, Result},
    settings::check_range,
};
use postgres::{
    Config,
    config::{Host, SslMode},
};
use std::{fmt, time::Duration};

/// The longest name of a node, in bytes.
const NODE_LIMIT: usize = 128;

/// The longest name of a schema, in bytes. PostgreSQL cuts longer ones off.
const SCHEMA_LIMIT: usize = 63;

/// Checked settings.
#[derive(Clone)]
pub(super) struct PostgresSettings {
    pub(super) config: Config,
    pub(super) schema: String,
    pub(super) partitions: u32,
    pub(super) lease: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) request_timeout: Duration,
    pub(super) drain_timeout: Duration,
    pub(super) key_memory: Duration,
    pub(super) node: String,
}

/// Settings of a [`PostgresStore`]. [`open`](PostgresStoreBuilder::open) reports invalid values.
///
/// | setting | default | range | effect |
/// |---|---|---|---|
/// | `schema` | `netwheel` | lower-case letters, digits and `_`, at most 63 bytes | the schema with the tables, created if it is missing |
/// | `partitions` | 64 | 1 to 4096 | the number of partitions of a new store; later, the stored number applies |
/// | `lease` | 6 s | 300 ms to 10 min | after this time without a renewal, others take over the partitions of a node |
/// | `connect_timeout` | a third of the lease | 50 ms to the lease | a connection that takes longer has failed |
/// | `request_timeout` | half of the lease | 50 ms to the lease | a statement without an answer has failed, and the connection is closed |
/// | `drain_timeout` | the lease | up to 10 min | a partition with a run that is not answered is given back after this time, when the node is closed or has more than its share |
/// | `remember_keys` | 24 h | | the idempotency key of an ended timer is forgotten |
/// | `node` | the process id | at most 128 bytes | the name of this node in the table `nodes` |
#[must_use]
pub struct PostgresStoreBuilder {
    /// The configuration, or why the text was not understood.
    config: Result<Config>,
    connector: Box<dyn Connect>,
    has_tls: bool,
    schema: String,
    sharing: SharingSettings,
    connect_timeout: Option<Duration>,
    key_memory: Duration,
    node: String,
}

impl PostgresStoreBuilder {
    pub(super) fn new(config: Result<Config>) -> Self {
        PostgresStoreBuilder {
            config,
            connector: plain(),
            has_tls: false,
            schema: "netwheel".to_owned(),
            sharing: SharingSettings::default(),
            connect_timeout: None,
            key_memory: Duration::from_secs(24 * 3600),
            node: std::process::id().to_string(),
        }
    }

    /// Uses a connector with TLS.
    #[cfg(feature = "postgres-019")]
    pub(super) fn connect_with(mut self, connector: Box<dyn Connect>) -> Self {
        self.connector = connector;
        self.has_tls = true;
        self
    }

    /// Sets the schema that has the tables. Stores in different schemas are independent.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// Sets the number of partitions of a new store, which limits the number of nodes that fire.
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.sharing.partitions = partitions;
        self
    }

    /// Sets how long a node owns its partitions without renewing its lease. A node renews its lease
    /// every sixth of that time, or every second if that is shorter. Without a renewal, it fires
    /// for half of that time.
    pub fn lease(mut self, time: Duration) -> Self {
        self.sharing.lease = time;
        self
    }

    /// Sets the time limit for a connection, including TLS and authentication.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.connect_timeout = Some(time);
        self
    }

    /// Sets the time limit for each request to the server. Half of it is the time limit for locks.
    /// Migrations of older tables may take longer.
    pub fn request_timeout(mut self, time: Duration) -> Self {
        self.sharing.set_request_timeout(time);
        self
    }

    /// Sets how long a partition that is to be given back is kept for runs without an answer. Its
    /// other timers wait for that time. Afterwards such a run is repeated by another node, and its
    /// end is refused here. The default is the lease.
    pub fn drain_timeout(mut self, time: Duration) -> Self {
        self.sharing.set_drain_timeout(time);
        self
    }

    /// Sets how long the idempotency key of an ended timer is remembered.
    pub fn remember_keys(mut self, time: Duration) -> Self {
        self.key_memory = time;
        self
    }

    /// Sets the name of this node for operators. Need not be unique.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = name.into();
        self
    }

    /// Connects, and creates or migrates the tables. Several nodes may do so at the same time.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a setting out of its range. [`Error::Other`] with a [`StoreError`]:
    /// [`StoreError::Busy`] if the server cannot be reached or refuses the client,
    /// [`StoreError::Version`], [`StoreError::NotAStore`] if the schema has other tables of the
    /// same names, or [`StoreError::Failed`].
    pub fn open(self) -> Result<PostgresStore> {
        let (settings, connector) = self.check()?;
        PostgresStore::connect(settings, connector).map_err(StoreError::into)
    }

    fn check(self) -> Result<(PostgresSettings, Box<dyn Connect>)> {
        let mut config = self.config?;
        let sharing = self.sharing;
        sharing.check()?;
        let (lease, request_timeout) = (sharing.lease, sharing.request_timeout());
        let connect_timeout = self.connect_timeout.unwrap_or(lease / 3);
        check_range("connect_timeout", connect_timeout, SHORTEST_TIMEOUT..=lease, "50 ms to the lease")?;
        if !is_name(&self.schema) {
            let allowed = "1 to 63 lower-case letters, digits and underscores, not a digit first";
            return Err(Error::setting("schema", &self.schema, allowed));
        }
        if self.node.len() > NODE_LIMIT || self.node.contains('\0') {
            return Err(Error::setting("node", &self.node, "at most 128 bytes without NUL"));
        }
        let has_unix_host = config.get_hosts().iter().any(|host| !matches!(host, Host::Tcp(_)));
        if config.get_ssl_mode() == SslMode::Require && (!self.has_tls || has_unix_host) {
            let allowed = "`disable` or `prefer` without a TLS connector or on a Unix socket";
            return Err(Error::setting("sslmode", "require", allowed));
        }
        config.connect_timeout(connect_timeout).tcp_user_timeout(request_timeout);
        if config.get_application_name().is_none() {
            config.application_name(&format!("netwheel timers {}", self.node));
        }
        let settings = PostgresSettings {
            config,
            schema: self.schema,
            partitions: sharing.partitions,
            lease,
            connect_timeout,
            request_timeout,
            drain_timeout: sharing.drain_timeout(),
            key_memory: self.key_memory,
            node: self.node,
        };
        Ok((settings, self.connector))
    }
}

/// Returns whether a name can be used in a statement without quotes.
fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
    name.len() <= SCHEMA_LIMIT
        && name.starts_with(is_letter)
        && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
        && !name.starts_with("pg_")
}

impl fmt::Debug for PostgresStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStoreBuilder")
            .field("schema", &self.schema)
            .field("partitions", &self.sharing.partitions)
            .field("lease", &self.sharing.lease)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}
