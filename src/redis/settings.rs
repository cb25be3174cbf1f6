//! `RedisSettings`: the limits and times of a client.

use crate::{
    error::Result,
    settings::{check_range, settings},
};
use std::time::Duration;

settings! {
    /// The limits and times of a [`RedisClient`](super::RedisClient).
    ///
    /// A value out of range is reported by [`connect`](super::RedisClientBuilder::connect).
    pub struct RedisSettings {
        /// Sets the number of connections for commands. Commands on different connections are
        /// not ordered, except for commands with the same
        /// [`affinity`](super::RedisCommand::affinity).
        connections(count: usize) = 1, "1", range 1..=64 => "1 to 64";
        /// Sets the time from the call of a command to its reply, unless the command has a
        /// [timeout](super::RedisCommand::timeout) of its own. The deadline is never early, and
        /// late by at most 10 ms plus the loop's lag.
        command_timeout(limit: Duration) = Duration::from_secs(5), "5 s",
            reached "[`NotSent`](super::RedisError::NotSent) or [`MayBeExecuted`](super::RedisError::MayBeExecuted)";
        /// Sets the number of commands of one connection that wait to be sent, or for a reply.
        max_pending(commands: usize) = 16_384, "16,384", range 1..=1_048_576 => "1 to 1048576",
            reached "`Error::Full`, and `try_call` hands the command back";
        /// Sets the bytes of the arguments of these commands.
        max_pending_bytes(bytes: usize) = 64 * 1024 * 1024, "64 MiB",
            range 1024.. => "1024 bytes or more", reached "`Error::Full`, and `try_call` hands the command back";
        /// Sets the number of subscriptions of a client.
        max_subscriptions(count: usize) = 65_536, "65,536", range 1..=16_777_216 => "1 to 16777216",
            reached "`Error::Full`";
        /// Sets the number of channels in one `SUBSCRIBE` or `UNSUBSCRIBE`. After a reconnect, the
        /// subscriptions are renewed in batches of this size. A batch is smaller if it would exceed
        /// [`RespLimits::max_elements`](crate::codec::RespLimits::max_elements).
        subscribe_batch(channels: usize) = 128, "128", range 1..=4096 => "1 to 4096";
        /// Sets the time in which a TCP connection must be established, with each address.
        connect_timeout(limit: Duration) = Duration::from_secs(5), "5 s", reached "the next attempt";
        /// Sets the time in which the server must answer the requests of the login. The TLS
        /// handshake has the same time of its own.
        handshake_timeout(limit: Duration) = Duration::from_secs(5), "5 s", reached "the next attempt";
        /// Sets the time without input after which a `PING` is sent.
        heartbeat_interval(period: Duration) = Duration::from_secs(5), "5 s";
        /// Sets the time in which the server must then send anything. A script that runs for longer
        /// than the sum of both times ends the connections, unless the server answers `BUSY`.
        /// Redis does that after 5 seconds.
        heartbeat_timeout(limit: Duration) = Duration::from_secs(5), "5 s",
            reached "the connection is closed, and the client reconnects";
        /// Sets the time that commands in flight have after
        /// [`close`](super::RedisClient::close).
        close_timeout(limit: Duration) = Duration::from_secs(5), "5 s",
            reached "[`MayBeExecuted`](super::RedisError::MayBeExecuted)";
    }
}

impl RedisSettings {
    /// Returns these settings if all are in range.
    ///
    /// # Errors
    /// [`Error::Setting`] for the first one that is not.
    pub(super) fn checked(self) -> Result<Self> {
        self.check()?;
        let shortest = Duration::from_millis(1);
        for (name, time) in [
            ("connect_timeout", self.connect_timeout),
            ("handshake_timeout", self.handshake_timeout),
            ("heartbeat_interval", self.heartbeat_interval),
            ("heartbeat_timeout", self.heartbeat_timeout),
        ] {
            check_range(name, time, shortest.., "1 ms or more")?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::Error, settings::tests::check_limits_page};

    #[test]
    fn the_documentation_states_the_defaults_and_ranges() {
        for row in RedisSettings::rows() {
            row.check_words();
            check_limits_page("Limits of Redis clients", &format!("RedisSettings::{}", row.name), row.text);
        }
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let new = RedisSettings::new;
        for settings in [
            new().connections(0),
            new().connections(65),
            new().max_pending(0),
            new().max_pending_bytes(1023),
            new().max_subscriptions(0),
            new().subscribe_batch(4097),
            new().connect_timeout(Duration::ZERO),
            new().handshake_timeout(Duration::ZERO),
            new().heartbeat_interval(Duration::ZERO),
            new().heartbeat_timeout(Duration::from_micros(999)),
        ] {
            assert!(matches!(settings.clone().checked(), Err(Error::Setting(_))), "{settings:?}");
        }
        assert!(new().checked().is_ok());
    }
}
