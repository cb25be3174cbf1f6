//! Requests to many hosts: a pool for each.
//!
//! Invariants: at most `max_hosts` pools exist. A pool is removed only while it is unused. The
//! lock covers the table only. It is not held while pools close or connections open. Any thread may
//! use an agent.

use super::{
    AcquireTimeout, LOOKUP_TTL, PoolOrder,
    request::PoolRequest,
    request_settings::{PoolInUse, RequestSource},
    service::{PoolHooks, PoolService, PoolSettings},
};
#[cfg(feature = "tls")]
use crate::tls::TlsClient;
use crate::{
    bootstrap::{
        client::{ClientBootstrap, connector},
        dial::{Dialer, Target},
    },
    error::{EncodeError, Error, Resource, Result},
    group::EventLoopGroup,
    http::{AbsoluteTarget, Call, HttpClient, Request, is_host},
    machine::Mutex,
    settings::check_range,
};
use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc, time::Duration};

/// Makes requests to many hosts. It keeps a pool of connections for each scheme, host and port.
///
/// The target of a request is a URL. `https` needs
/// [`HttpAgentBuilder::tls`]. Names are looked up on threads of the group that do nothing else, so
/// no loop waits for a name server. Redirects are not followed. Clones are handles to the same
/// pools.
///
/// If each of `max_hosts` pools is in use, a request to another host fails with [`Error::Full`].
/// Otherwise the pool that was not used for the longest time makes room.
///
/// ```
/// use netwheel::{http::Request, pool::HttpAgent, prelude::*};
/// use std::time::Duration;
///
/// # fn main() -> Result {
/// # use netwheel::http::{HttpServer, Part, Response};
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// # let http = HttpServer::new();
/// # let server = ServerBootstrap::new(&group)
/// #     .pipeline(move |_peer| http.pipeline().on_read(|ctx, part| match part {
/// #         Part::Head(_) => ctx.write(Response::ok("hello").into()),
/// #         _ => Ok(()),
/// #     }))
/// #     .bind("127.0.0.1:0")?;
/// # let url = format!("http://localhost:{}/hook", server.local_address().port());
/// # let url = &url.replace("localhost", "127.0.0.1");
/// let agent = HttpAgent::builder(ClientBootstrap::new(&group)).build()?;
/// let request = Request::post(url, "paid");
/// let response = agent.request(request).timeout(Duration::from_secs(2)).retries(2).send().wait()?;
/// assert!(response.head.status().is_success());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HttpAgent {
    shared: Arc<Shared>,
}

/// A builder for an [`HttpAgent`], created by [`HttpAgent::builder`].
///
/// | setting | default | range |
/// |---|---|---|
/// | `http` | [`HttpClient::new`] | |
/// | `tls` | none: `https` is refused | |
/// | `max_body` | 1 MiB | 0 bytes or more |
/// | `max_hosts` | 256 | 1 or more |
/// | `connections_per_host` | 8 | 1 or more |
/// | `max_waiters` | 1024 for each host | 0 or more |
/// | `lookup_ttl` | 30 s | 0 or more |
#[derive(Debug)]
#[must_use]
pub struct HttpAgentBuilder {
    bootstrap: ClientBootstrap,
    http: HttpClient,
    #[cfg(feature = "tls")]
    tls: Option<TlsClient>,
    max_body: usize,
    max_hosts: usize,
    connections_per_host: usize,
    max_waiters: usize,
    lookup_ttl: Duration,
}

struct Shared {
    settings: HttpAgentBuilder,
    pools: Mutex<Pools>,
}

#[derive(Default)]
struct Pools {
    hosts: BTreeMap<Origin, Host>,
    uses: u64,
    is_closed: bool,
}

struct Host {
    pool: Arc<PoolService<Call>>,
    /// Has a clone for each request that is about to acquire a channel.
    in_use: Arc<()>,
    /// The number of the last use.
    last_use: u64,
}

/// What a pool's connections have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    is_tls: bool,
    /// In lower case; an address has its brackets.
    host: Arc<str>,
    port: u16,
}

impl HttpAgent {
    /// Returns a builder for an agent whose connections are made by this bootstrap.
    pub fn builder(bootstrap: ClientBootstrap) -> HttpAgentBuilder {
        HttpAgentBuilder {
            bootstrap,
            http: HttpClient::new(),
            #[cfg(feature = "tls")]
            tls: None,
            max_body: 1024 * 1024,
            max_hosts: 256,
            connections_per_host: 8,
            max_waiters: 1024,
            lookup_ttl: LOOKUP_TTL,
        }
    }

    /// Returns a request whose target is a URL, such as `https://example.org/hook`. `Host` is that
    /// of the URL, unless the request has one.
    ///
    /// # Errors
    /// [`Error::Encode`] if the target is not the URL of `http` or `https`, or needs TLS. Otherwise
    /// the completion fails with the errors of a [`PoolRequest`].
    pub fn request(&self, request: Request) -> PoolRequest {
        let origin = self.shared.origin(&request);
        let (origin, request) = match origin {
            Ok((origin, target)) => (Some(origin), Ok(request.with_target(&target))),
            Err(error) => (None, Err(error)),
        };
        PoolRequest::new(Arc::new(AgentSource { shared: self.shared.clone(), origin }), request)
    }

    /// Returns the number of hosts with a pool.
    pub fn hosts(&self) -> usize {
        self.shared.pools.lock().hosts.len()
    }

    /// Returns the number of connections to all hosts: open ones, and pending connects.
    pub fn connections(&self) -> usize {
        let pools = self.shared.pools.lock();
        let count = |host: &Host| {
            let state = host.pool.pool_state.lock();
            state.acquired() + state.free()
        };
        pools.hosts.values().map(count).sum()
    }

    /// Closes all pools: waiting requests fail, and idle connections close. Requests that have a
    /// connection continue.
    pub fn close(&self) {
        let mut pools = self.shared.pools.lock();
        pools.is_closed = true;
        let hosts = std::mem::take(&mut pools.hosts);
        drop(pools);
        for host in hosts.into_values() {
            host.pool.close();
        }
    }
}

impl fmt::Debug for HttpAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpAgent").field("hosts", &self.hosts()).finish_non_exhaustive()
    }
}

impl HttpAgentBuilder {
    /// Sets the limits and times of the connections. Its `host` is replaced by that of the URL.
    pub fn http(mut self, http: HttpClient) -> Self {
        self.http = http;
        self
    }

    /// Sets TLS for the scheme `https`. It may offer no other protocol than `http/1.1` (ALPN).
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: TlsClient) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the largest body in bytes of a whole response. The default is 1 MiB.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Sets the largest number of hosts with a pool. The default is 256.
    pub fn max_hosts(mut self, hosts: usize) -> Self {
        self.max_hosts = hosts;
        self
    }

    /// Sets the largest number of connections to one host. The default is 8.
    pub fn connections_per_host(mut self, connections: usize) -> Self {
        self.connections_per_host = connections;
        self
    }

    /// Sets how many requests may wait for a connection to one host. Further ones fail with
    /// [`Error::Full`]. The default is 1024.
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.max_waiters = waiters;
        self
    }

    /// Sets how long the addresses of a name are used. The default is 30 s. A name is also looked
    /// up again when none of its addresses accepts a connection. If a lookup fails, the known
    /// addresses are used for this time again, but not for longer than 30 s.
    pub fn lookup_ttl(mut self, time: Duration) -> Self {
        self.lookup_ttl = time;
        self
    }

    /// Builds the agent. Opens no connection.
    ///
    /// # Errors
    /// [`Error::Setting`] if a setting is out of range.
    pub fn build(self) -> Result<HttpAgent> {
        check_range("max_hosts", self.max_hosts, 1.., "1 or more")?;
        check_range("connections_per_host", self.connections_per_host, 1.., "1 or more")?;
        #[cfg(feature = "tls")]
        self.check_alpn()?;
        self.bootstrap.check(None)?;
        Ok(HttpAgent { shared: Arc::new(Shared { settings: self, pools: Mutex::default() }) })
    }
}

impl Shared {
    /// Returns the origin of a request, and the target for its server.
    ///
    /// # Errors
    /// [`Error::Encode`] if the target is not a URL that the agent can request.
    fn origin(&self, request: &Request) -> Result<(Origin, String)> {
        let refuse = |why: &'static str| Err(EncodeError::Unencodable(why.into()).into());
        let Some(AbsoluteTarget { scheme, origin_form, .. }) = request.absolute_target() else {
            return refuse("a request of an agent whose target is not a URL");
        };
        let is_tls = scheme.eq_ignore_ascii_case("https");
        if !is_tls && !scheme.eq_ignore_ascii_case("http") {
            return refuse("a request of an agent for another scheme than http and https");
        }
        #[cfg(feature = "tls")]
        let has_tls = self.settings.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let has_tls = false;
        if is_tls && !has_tls {
            return refuse("a request for https of an agent without TLS; see `HttpAgentBuilder::tls`");
        }
        let port = request.port().unwrap_or(if is_tls { 443 } else { 80 });
        // The program may have checked this host. An address of version 4 in brackets, a zone, and
        // a name that is encoded with `%` would escape it.
        let host = request.host().filter(|host| is_host(host.as_bytes()) && !host.contains('%'));
        let Some(host) = host else { return refuse("a request of an agent without a valid host") };
        let host = host.to_ascii_lowercase().into();
        Ok((Origin { is_tls, host, port }, origin_form.into_owned()))
    }

    /// Returns the pool of an origin.
    ///
    /// # Errors
    /// [`Error::Closed`] if the agent is closed, [`Error::Full`] if all pools are in use, or
    /// [`Error::Setting`] if a setting is out of range.
    fn pool(&self, origin: &Origin) -> Result<PoolInUse> {
        let mut pools = self.pools.lock();
        if pools.is_closed {
            return Err(Error::Closed);
        }
        pools.uses += 1;
        let last_use = pools.uses;
        if let Some(host) = pools.hosts.get_mut(origin) {
            host.last_use = last_use;
            return Ok(host.begin_use());
        }
        let limit = self.settings.max_hosts;
        let mut unused = None;
        if pools.hosts.len() >= limit {
            let candidates = pools.hosts.iter().filter(|(_, host)| host.is_unused());
            let oldest = candidates.min_by_key(|(_, host)| host.last_use).map(|(origin, _)| origin.clone());
            let oldest = oldest.ok_or(Error::Full { resource: Resource::AgentHosts, limit })?;
            unused = pools.hosts.remove(&oldest);
        }
        let pool = self.settings.make_pool(origin)?;
        let host = Host { pool, in_use: Arc::default(), last_use };
        let pool = host.begin_use();
        pools.hosts.insert(origin.clone(), host);
        drop(pools);
        drop(unused);
        Ok(pool)
    }
}

impl Host {
    fn begin_use(&self) -> PoolInUse {
        PoolInUse { pool: self.pool.clone(), _in_use: Some(self.in_use.clone()) }
    }

    /// Returns whether the pool is unused, so that it can be removed.
    fn is_unused(&self) -> bool {
        // New requests need the lock of the agent. One that has begun to acquire is counted by the
        // pool.
        Arc::strong_count(&self.in_use) == 1 && {
            let state = self.pool.pool_state.lock();
            state.acquired() == 0 && state.waiters() == 0
        }
    }
}

impl HttpAgentBuilder {
    /// A server chooses `h2` if it is offered, and the connections do not speak it.
    #[cfg(feature = "tls")]
    fn check_alpn(&self) -> Result {
        let offered = self.tls.as_ref().map(TlsClient::alpn_protocols).unwrap_or_default();
        match offered.iter().find(|name| *name != b"http/1.1") {
            Some(name) => Err(Error::setting("alpn", name.escape_ascii(), "`http/1.1` or none for an agent")),
            None => Ok(()),
        }
    }

    fn make_pool(&self, origin: &Origin) -> Result<Arc<PoolService<Call>>> {
        let default_port = if origin.is_tls { 443 } else { 80 };
        let host = match origin.port {
            port if port == default_port => origin.host.to_string(),
            port => format!("{}:{port}", origin.host),
        };
        let (http, max_body) = (self.http.clone().host(&host), self.max_body);
        let bootstrap = self.bootstrap.clone();
        #[cfg(feature = "tls")]
        let bootstrap = match self.tls.clone().filter(|_| origin.is_tls) {
            Some(tls) => bootstrap.tls(tls),
            None => bootstrap,
        };
        let group = bootstrap.group.clone();
        // `[::1]` is the address `::1`.
        let host: Arc<str> = origin.host.trim_start_matches('[').trim_end_matches(']').into();
        let name = host.parse::<IpAddr>().is_err().then(|| host.clone());
        let bootstrap = bootstrap.pipeline(move |_peer| http.calls(max_body));
        let config = bootstrap.check(name)?;
        let target = Target::later(host, origin.port);
        let dialer = Dialer::new(&group, target, self.lookup_ttl, connector(bootstrap, config));
        let settings = PoolSettings {
            size: self.connections_per_host,
            max_waiters: self.max_waiters,
            // The request has a time limit.
            timeout: Duration::MAX,
            on_timeout: AcquireTimeout::Fail,
            order: PoolOrder::Lifo,
        };
        let dial = move |attempt, done| dialer.dial(attempt, done);
        Ok(PoolService::new(group, settings, Box::new(dial), PoolHooks::default()))
    }
}

/// The pool of a request of an agent.
struct AgentSource {
    shared: Arc<Shared>,
    /// `None` if the request was refused.
    origin: Option<Origin>,
}

impl RequestSource for AgentSource {
    fn pool(&self) -> Result<PoolInUse> {
        self.shared.pool(self.origin.as_ref().ok_or(Error::Closed)?)
    }

    fn is_closed(&self) -> bool {
        self.shared.pools.lock().is_closed
    }

    fn group(&self) -> &EventLoopGroup {
        &self.shared.settings.bootstrap.group
    }
}
