//! Each store does what every broker has to do.

#[cfg(all(unix, feature = "broker-redis"))]
use super::{checks, lost_grants, redis_process::RedisProcess};
use crate::conformance::{self, Connection, Store};
#[cfg(feature = "broker-redis")]
use netwheel::time::SystemClock;
use netwheel::{broker::Broker, time::Clock};
use std::{sync::Arc, time::Duration};

#[cfg(all(unix, feature = "broker-redis"))]
impl Store for &RedisProcess {
    fn connect(&self) -> Arc<dyn Broker> {
        Arc::new(self.broker())
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }

    /// Waits for the time of the server, which tests cannot move.
    fn pass(&self, time: Duration) {
        let begun = std::time::Instant::now();
        while begun.elapsed() < time {
            std::thread::park_timeout(time.saturating_sub(begun.elapsed()));
        }
    }

    fn pass_for_leases(&self, time: Duration) {
        self.end_leases_earlier(time);
    }
}

#[cfg(all(unix, feature = "broker-redis"))]
#[test]
fn redis_conforms() {
    let Some(redis) = RedisProcess::start(&["--appendonly", "no"]) else { return };
    conformance::check(|| {
        redis.ask("FLUSHALL");
        &redis
    });
}

#[cfg(all(unix, feature = "broker-redis"))]
#[test]
fn a_redis_does_not_get_an_ended_incarnation_again() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    lost_grants::a_lease_that_has_ended_unnoticed_is_not_begun_again(&&redis);
}

#[cfg(all(unix, feature = "broker-redis", feature = "simulation"))]
mod simulated {
    use super::*;
    use crate::support::wait::done;
    use netwheel::{
        EventLoopGroup,
        broker::RedisBroker,
        redis::RedisClient,
        shutdown::ShutdownOptions,
        testing::{
            ManualClock,
            redis::{RedisDisk, RedisServer},
        },
    };
    use std::net::SocketAddr;

    /// A simulated Redis on sockets of the system, whose time is moved by hand.
    struct Simulated {
        group: EventLoopGroup,
        address: SocketAddr,
        clock: ManualClock,
        nodes: EventLoopGroup,
    }

    impl Simulated {
        fn start() -> Self {
            let clock = ManualClock::new();
            let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
            let server = RedisServer::new(RedisDisk::new()).broker_scripts();
            let address = server.bind(&group, "127.0.0.1:0").unwrap().local_address();
            let nodes = EventLoopGroup::builder().threads(1).build().unwrap();
            Simulated { group, address, clock, nodes }
        }
    }

    impl Store for Simulated {
        fn connect(&self) -> Arc<dyn Broker> {
            let client = RedisClient::builder(&self.nodes, format!("redis://{}", self.address));
            Arc::new(RedisBroker::new(client.connect().unwrap()))
        }

        fn clock(&self) -> Arc<dyn Clock> {
            Arc::new(SystemClock)
        }

        fn pass(&self, time: Duration) {
            self.clock.advance(time);
        }
    }

    impl Drop for Simulated {
        fn drop(&mut self) {
            for group in [&self.nodes, &self.group] {
                let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO);
                let _ = done(group.shutdown(options));
            }
        }
    }

    #[test]
    fn a_simulated_redis_conforms() {
        conformance::check(Simulated::start);
    }

    #[test]
    fn a_map_that_is_larger_than_a_reply_of_a_simulated_redis_fails_alone() {
        let store = Simulated::start();
        let node = Connection::new(&store);
        checks::a_map_that_is_too_large_fails_alone(&*node.broker);
    }

    #[test]
    fn a_simulated_redis_does_not_get_an_ended_incarnation_again() {
        lost_grants::a_lease_that_has_ended_unnoticed_is_not_begun_again(&Simulated::start());
    }
}

#[cfg(feature = "broker-sqlite")]
mod sqlite {
    use super::*;
    use netwheel::{broker::SqliteBroker, testing::ManualClock};
    use tempfile::TempDir;

    /// A file, whose time is moved by hand.
    struct File {
        broker: SqliteBroker,
        clock: ManualClock,
        _directory: TempDir,
    }

    impl File {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let broker = SqliteBroker::open(directory.path().join("rooms.db")).unwrap();
            File { broker, clock: ManualClock::new(), _directory: directory }
        }
    }

    impl Store for File {
        fn connect(&self) -> Arc<dyn Broker> {
            Arc::new(self.broker.clone())
        }

        fn clock(&self) -> Arc<dyn Clock> {
            Arc::new(self.clock.clone())
        }

        fn pass(&self, time: Duration) {
            self.clock.advance(time);
        }
    }

    #[test]
    fn an_sqlite_file_conforms() {
        conformance::check(File::new);
    }
}
