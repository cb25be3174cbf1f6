//! The command line of the server.

use crate::{hub, slow_consumer::SlowConsumer};
use clap::Parser;
use netwheel::Result;
use std::time::Duration;

/// A chat server; docs/im-protocol.md describes the protocol.
#[derive(Parser)]
pub(crate) struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:9000")]
    pub(crate) listen: String,
    /// Also listen on this Unix socket; a stale socket file is replaced.
    #[cfg(unix)]
    #[arg(long, value_name = "PATH")]
    pub(crate) unix: Option<std::path::PathBuf>,
    /// Address for browsers: pages, WebSocket, metrics; "none" turns it off. The default is
    /// 127.0.0.1:8080, or a free port if that is in use.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<String>,
    /// Address for browsers, encrypted; needs --tls-cert and --tls-key.
    #[cfg(feature = "tls")]
    #[arg(long, requires = "tls_cert", value_name = "ADDRESS")]
    pub(crate) https: Option<std::net::SocketAddr>,
    /// Encrypt the TCP connections with TLS: certificate chain in PEM format.
    #[cfg(feature = "tls")]
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    pub(crate) tls_cert: Option<std::path::PathBuf>,
    /// Private key of the certificate, in PEM format.
    #[cfg(feature = "tls")]
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    pub(crate) tls_key: Option<std::path::PathBuf>,
    /// Name of this server, unique among the servers of a store. With a name, a server that is
    /// started again after a crash need not wait for the end of its lease. The default is random.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Where messages are kept, those of rooms and direct ones to users that are not connected:
    /// "memory", or the URL of a Redis server, such as redis://127.0.0.1:6379, which several chat
    /// servers may share.
    #[arg(long, default_value = "memory", value_name = "URL")]
    pub(crate) broker: String,
    /// Keep these messages in this SQLite file, so that they survive the server.
    #[arg(long, value_name = "FILE", conflicts_with = "broker")]
    pub(crate) store: Option<std::path::PathBuf>,
    /// Number of event loops, each on its own thread; 0 selects two per processor.
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: usize,
    /// Send a ping to a client after this time without output to it.
    #[arg(long, default_value = "20s", value_parser = at_least_a_millisecond)]
    pub(crate) heartbeat: Duration,
    /// Close a client after this time without input from it.
    #[arg(long, default_value = "60s", value_parser = at_least_a_millisecond)]
    pub(crate) idle_timeout: Duration,
    /// Resend a direct message after this time without an acknowledgement; after three resends it
    /// is undelivered.
    #[arg(long, default_value = "5s", value_parser = at_least_a_millisecond)]
    pub(crate) ack_timeout: Duration,
    /// Maximum number of unacknowledged direct messages from one client, and to one client.
    #[arg(long, default_value_t = 100)]
    pub(crate) max_unacked: usize,
    /// Maximum bytes of unacknowledged direct messages from one client, and to one client.
    #[arg(long, default_value_t = 512 * 1024)]
    pub(crate) max_unacked_bytes: usize,
    /// Maximum bytes of unacknowledged direct messages of all clients.
    #[arg(long, default_value_t = hub::MAX_UNACKED_BYTES)]
    pub(crate) max_unacked_bytes_total: usize,
    /// Close a connection that has not logged in within this time; 0s disables the limit.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) login_timeout: Duration,
    /// Processor time of a login, on the loop: stands for the hash of a password.
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) login_cost: Duration,
    /// Close a client that neither completes a line nor sends 64 bytes of it within this time; 0s
    /// disables the limit.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) line_timeout: Duration,
    /// Requests per second of one client, with bursts of twice as many. Reading from a faster
    /// client pauses. 0 disables the limit.
    #[arg(long, default_value_t = 100)]
    pub(crate) rate: u32,
    /// Deliveries per second that one client may cause, with the same bursts and pauses. A message
    /// to a room costs one delivery per member and KiB. 0 disables the limit.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) delivery_rate: u32,
    /// Bytes per second read from one client, with bursts of half a second's worth. 0 disables the
    /// limit.
    #[arg(long, default_value_t = 128 * 1024)]
    pub(crate) input_rate: u32,
    /// Pause reading from a client for this time after each message to a room in which a member
    /// does not keep up; 0s disables the pause.
    #[arg(long, default_value = "100ms", value_parser = humantime::parse_duration)]
    pub(crate) congestion_pause: Duration,
    /// File for reminders. Without it, they are lost when the server ends. A reminder that is due
    /// is kept like a message, see --store.
    #[arg(long, value_name = "FILE")]
    pub(crate) timers: Option<std::path::PathBuf>,
    /// Time for which a direct message, or a reminder that is due, is kept for a user that is not
    /// connected.
    #[arg(long, default_value = "7d", value_parser = at_least_a_millisecond)]
    pub(crate) expiry: Duration,
    /// Duration of a lookup: a sleep that stands for a database query.
    #[arg(long, default_value = "50ms", value_parser = humantime::parse_duration)]
    pub(crate) lookup_time: Duration,
    /// Maximum concurrent lookups of one client.
    #[arg(long, default_value_t = 2)]
    pub(crate) max_lookups: usize,
    /// Number of threads for lookups.
    #[arg(long, default_value_t = 4)]
    pub(crate) lookup_threads: usize,
    /// Maximum number of lookups of all clients that may wait for a thread; further ones are
    /// refused.
    #[arg(long, default_value_t = 64)]
    pub(crate) lookup_queue: usize,
    /// Policy for a client that reads more slowly than messages arrive.
    #[arg(long, value_enum, default_value_t = SlowConsumer::Close)]
    pub(crate) slow_consumer: SlowConsumer,
    /// Maximum bytes queued for one client. The list of members of a full room takes about 1.4 MB.
    #[arg(long, default_value_t = 4 * 1024 * 1024)]
    pub(crate) max_outbound: usize,
    /// Maximum bytes queued for all clients together; above it, --slow-consumer applies to clients
    /// that do not keep up.
    #[arg(long, default_value_t = 512 * 1024 * 1024)]
    pub(crate) max_outbound_total: usize,
    /// Close a client if the kernel does not accept all bytes of a write to it within this time,
    /// even if some of them move; 0s disables the limit.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    pub(crate) write_timeout: Duration,
    /// Maximum number of connections of all listeners together. Further connections are closed
    /// immediately. The default is derived from the limit of open files.
    #[arg(long)]
    pub(crate) max_connections: Option<usize>,
    /// Maximum number of connections from one IP address to all listeners together; IPv6 addresses
    /// are grouped by their /64 prefix. Unlimited by default, and always unlimited on the Unix
    /// socket.
    #[arg(long)]
    pub(crate) max_per_ip: Option<usize>,
    /// Percentage of its busy time that a loop spends on I/O while tasks wait.
    #[arg(long, default_value_t = 50)]
    pub(crate) io_ratio: u32,
    /// Time in which a loop should handle a client that has sent something. A loop that misses it
    /// refuses connections, TLS handshakes and logins, in this order, and tells clients when to
    /// come back; 0s disables this.
    #[arg(long, default_value = "50ms", value_parser = humantime::parse_duration)]
    pub(crate) overload_target: Duration,
    /// Maximum length in bytes of a line from a client.
    #[arg(long, default_value_t = 65536)]
    pub(crate) max_line: usize,
    /// Time over which the connections are closed during shutdown; 0s closes all at once.
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) drain: Duration,
    /// Age at which a connection is closed with a `bye`, so that its client connects again, perhaps
    /// to another server; a tenth of it is jitter. 0s disables the limit.
    #[arg(long, default_value = "0s", value_parser = zero_or_a_second)]
    pub(crate) max_connection_age: Duration,
    /// Time limit for a client that is being closed to read its queued messages.
    #[arg(long, default_value = "5s", value_parser = at_least_a_millisecond)]
    pub(crate) close_timeout: Duration,
    /// Print connections and messages per second at this interval.
    #[arg(long, value_parser = at_least_a_millisecond)]
    pub(crate) stats: Option<Duration>,
    /// Log a warning (RUST_LOG=warn) if a loop is blocked for this time, with the callback it is
    /// in; 0s disables the watchdog.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    pub(crate) watchdog: Duration,
}

impl Options {
    /// # Errors
    /// Settings that exclude each other.
    pub(crate) fn check(&self) -> Result {
        let (heartbeat, idle) = (self.heartbeat, self.idle_timeout);
        if heartbeat >= idle {
            // A client that only answers pings would be idle before the first one.
            let text = format!(
                "--heartbeat is {heartbeat:?}; it must be shorter than --idle-timeout, which is {idle:?}"
            );
            return Err(text.into());
        }
        Ok(())
    }

    pub(crate) fn has_https(&self) -> bool {
        #[cfg(feature = "tls")]
        let has = self.https.is_some();
        #[cfg(not(feature = "tls"))]
        let has = false;
        has
    }
}

fn at_least_a_millisecond(text: &str) -> std::result::Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if time < Duration::from_millis(1) { Err("must be at least 1ms".to_owned()) } else { Ok(time) }
}

fn zero_or_a_second(text: &str) -> std::result::Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    let is_allowed = time.is_zero() || time >= Duration::from_secs(1);
    if is_allowed { Ok(time) } else { Err("must be 0s, or at least 1s".to_owned()) }
}
