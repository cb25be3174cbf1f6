//! `RedisClientBuilder`: the settings of a client.

use super::{redis_client::RedisClient, url::RedisUrl};
#[cfg(feature = "tls")]
use crate::tls::TlsClient;
use crate::{
    bootstrap::Backoff,
    codec::RespLimits,
    error::{Error, Result},
    group::EventLoopGroup,
    redis::{
        connection::{LaneConnector, RedisTarget},
        event::{EventHook, RedisEvent},
        settings::RedisSettings,
    },
    transport::TcpOptions,
};
use std::{fmt, sync::Arc, time::Duration};

/// A builder for a [`RedisClient`], created by [`RedisClient::builder`].
///
/// | setting | default |
/// |---|---|
/// | `user`, `database` | those of the URL, or the user `default` without a password, and 0 |
/// | `client_name` | none |
/// | `settings` | see [`RedisSettings`] |
/// | `resp_limits` | see [`RespLimits`] |
/// | `tcp_options` | see [`TcpOptions`] |
/// | `backoff` | 100 ms to 3 s, reset after 5 s |
/// | `tls` | with `rediss`: the authorities of the system |
/// | `on_event` | none |
#[must_use]
pub struct RedisClientBuilder {
    group: EventLoopGroup,
    url: String,
    user: Option<(String, String)>,
    database: Option<u32>,
    client_name: Option<String>,
    settings: RedisSettings,
    limits: RespLimits,
    tcp_options: TcpOptions,
    backoff: Backoff,
    hook: Option<Arc<EventHook>>,
    #[cfg(feature = "tls")]
    tls: Option<TlsClient>,
}

impl RedisClient {
    /// Returns a builder for a client of this server.
    ///
    /// ```text
    /// redis://[user[:password]@]host[:port][/database]
    /// rediss://[user[:password]@]host[:port][/database]     TLS, feature `tls`
    /// unix://[user[:password]@]/path[?db=database]          a Unix socket
    /// ```
    ///
    /// The default port is 6379. Special characters in names, passwords and paths are written as
    /// `%40`.
    pub fn builder(group: &EventLoopGroup, url: impl Into<String>) -> RedisClientBuilder {
        RedisClientBuilder::new(group, url.into())
    }
}

impl RedisClientBuilder {
    fn new(group: &EventLoopGroup, url: String) -> Self {
        RedisClientBuilder {
            group: group.clone(),
            url,
            user: None,
            database: None,
            client_name: None,
            settings: RedisSettings::new(),
            limits: RespLimits::new(),
            tcp_options: TcpOptions::new(),
            backoff: default_backoff(),
            hook: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Sets the user and the password, in place of those of the URL. The user of a server that has
    /// only a password is `default`.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Sets the database, in place of that of the URL.
    pub fn database(mut self, number: u32) -> Self {
        self.database = Some(number);
        self
    }

    /// Sets the name of the connections in `CLIENT LIST`: visible ASCII characters.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// Sets the limits and times.
    pub fn settings(mut self, settings: RedisSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the limits of replies and of arguments. A reply beyond them ends its connection. A
    /// command beyond them fails with [`Error::Encode`].
    ///
    /// The replies at the beginning of a connection count too. `INFO` has 5 to 6 KB on a server
    /// without modules, so a [`max_bulk_len`](RespLimits::max_bulk_len) below 16 KiB may keep the
    /// client from connecting.
    ///
    /// The bytes of a whole reply, and those of the output that waits, are limited too: to 16 MiB,
    /// or to four times [`max_bulk_len`](RespLimits::max_bulk_len) if that is more.
    pub fn resp_limits(mut self, limits: RespLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the socket options.
    pub fn tcp_options(mut self, options: TcpOptions) -> Self {
        self.tcp_options = options;
        self
    }

    /// Sets the delays between attempts to connect. With
    /// [`max_attempts`](Backoff::max_attempts), the client closes after the last failed attempt of
    /// any of its connections.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets TLS for a URL with `rediss`. The certificate of the server must have the host of the
    /// URL, unless `tls` names another one.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: TlsClient) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets a function that is called for each connection that is ready, lost, or cannot be
    /// established. It is called on the loop of the connection, so it must not block. A panic in it
    /// is logged.
    pub fn on_event(mut self, hook: impl Fn(RedisEvent<'_>) + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Starts the client: each connection for commands connects, now and whenever it is lost. Does
    /// not wait for that, and does not look up names on this thread. An unreachable server is not
    /// an error. Commands may be called immediately.
    ///
    /// # Errors
    /// - [`Error::Setting`] if the URL or another setting is invalid, or if `rediss` needs
    ///   authorities and the system has none.
    /// - [`Error::Full`] if the queue of a loop is full.
    /// - [`Error::ShutDown`] if the group is shut down.
    pub fn connect(self) -> Result<RedisClient> {
        let RedisUrl { target, mut login } = RedisUrl::parse(&self.url)?;
        login.user = self.user.or(login.user);
        login.database = self.database.unwrap_or(login.database);
        if let Some(name) = &self.client_name
            && !((1..=256).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(Error::setting("client_name", name, "1 to 256 visible ASCII characters"));
        }
        login.client_name = self.client_name;
        let is_tls = matches!(target, RedisTarget::Tcp { is_tls: true, .. });
        #[cfg(feature = "tls")]
        let tls = match self.tls {
            tls if !is_tls => {
                if tls.is_some() {
                    return Err(Error::setting("tls", "set", "unset for a URL without rediss"));
                }
                None
            }
            Some(tls) => Some(tls),
            None => Some(TlsClient::new()?),
        };
        #[cfg(not(feature = "tls"))]
        if is_tls {
            return Err(Error::setting("url", "rediss", "redis or unix without the feature tls"));
        }
        RedisClient::start(LaneConnector {
            group: self.group,
            target,
            login: Arc::new(login),
            settings: self.settings.checked()?,
            limits: self.limits,
            tcp_options: self.tcp_options,
            backoff: self.backoff,
            hook: self.hook,
            #[cfg(feature = "tls")]
            tls,
        })
    }
}

/// A server is usually restarted or replaced within seconds.
fn default_backoff() -> Backoff {
    Backoff::new()
        .initial(Duration::from_millis(100))
        .max_delay(Duration::from_secs(3))
        .reset_after(Duration::from_secs(5))
}

impl fmt::Debug for RedisClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password.
        f.debug_struct("RedisClientBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
