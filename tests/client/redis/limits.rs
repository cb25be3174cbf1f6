//! The limits of a client: each with a test.

use super::{
    outcome,
    servers::{TestServer, group, redis, with_each},
    subscriptions::subscribe,
};
use crate::support::{
    nobody::Nobody,
    wait::{done, ms, receive},
};
use netwheel::{
    Error, EventLoopGroup,
    codec::{RespLimits, RespValue},
    error::{EncodeError, Resource},
    reconnect::Backoff,
    redis::{RedisClient, RedisCommand, RedisEvent, RedisSettings},
    shutdown::ShutdownOptions,
};
use std::{
    sync::{Arc, Barrier, mpsc::channel},
    time::Duration,
};

/// Returns a client of a server that refuses connections.
fn unconnected(group: &EventLoopGroup, settings: RedisSettings) -> (RedisClient, Nobody) {
    let nobody = Nobody::new();
    let url = format!("redis://{}", nobody.address);
    (RedisClient::builder(group, url).settings(settings).connect().unwrap(), nobody)
}

fn refusal(redis: &RedisClient, command: impl Into<RedisCommand>) -> (Resource, usize, RedisCommand) {
    let (command, error) = redis.try_call(command).unwrap_err().into_parts();
    match error {
        Error::Full { resource, limit, .. } => (resource, limit, command),
        error => panic!("{error}"),
    }
}

#[test]
fn commands_beyond_the_limit_are_handed_back() {
    let group = group();
    let (redis, _nobody) = unconnected(&group, RedisSettings::new().max_pending(3));
    let waiting: Vec<_> = (0..3).map(|_| redis.call(["PING"])).collect();
    let (resource, limit, command) = refusal(&redis, ["GET", "k"]);
    assert_eq!((resource, limit), (Resource::RedisCommands, 3));
    assert_eq!(format!("{command:?}"), "RedisCommand { name: \"GET\", weight: 132, .. }");
    assert_eq!(outcome(done(redis.call(command))), "not sent: Full");
    assert_eq!(redis.stats().pending, 3);
    redis.close();
    for call in waiting {
        assert_eq!(outcome(done(call)), "closed", "there is no connection");
    }
    done(redis.closed()).unwrap();
}

#[test]
fn bytes_beyond_the_limit_are_handed_back() {
    let group = group();
    let (redis, _nobody) = unconnected(&group, RedisSettings::new().max_pending_bytes(10_000));
    let set = |bytes: usize| RedisCommand::new("SET").arg("k").arg("x".repeat(bytes));
    let _first = redis.call(set(8000));
    let (resource, limit, command) = refusal(&redis, set(2000));
    assert_eq!((resource, limit), (Resource::RedisCommandBytes, 10_000));
    let (resource, ..) = refusal(&redis, RedisCommand::built_with(|_| ["PING"].into()).weight(5000));
    assert_eq!(resource, Resource::RedisCommandBytes);
    let _small = redis.try_call(set(10)).expect("there is room for it");
    drop(command);
    assert!((8000..10_000).contains(&redis.stats().pending_bytes));
}

#[test]
fn the_largest_limit_of_bytes_does_not_overflow() {
    let group = group();
    let (redis, _nobody) = unconnected(&group, RedisSettings::new().max_pending_bytes(usize::MAX));
    let _largest = redis.call(RedisCommand::built_with(|_| ["PING"].into()).weight(usize::MAX));
    let (resource, limit, _) = refusal(&redis, ["PING"]);
    assert_eq!((resource, limit), (Resource::RedisCommandBytes, usize::MAX));
    assert_eq!(redis.stats().pending_bytes, usize::MAX);
}

#[test]
fn a_client_ends_when_one_of_its_connections_cannot_be_restored() {
    let Some(server) = TestServer::real(&["--maxclients", "1"]) else { return };
    let group = group();
    let redis = RedisClient::builder(&group, &server.url)
        .settings(RedisSettings::new().connections(2))
        .backoff(Backoff::new().initial(ms(1)).max_delay(ms(1)).max_attempts(2))
        .connect()
        .unwrap();
    done(redis.closed()).unwrap_err();
    for _ in 0..4 {
        assert_eq!(outcome(done(redis.call(["PING"]))), "closed");
    }
}

#[test]
fn a_command_that_waits_for_a_connection_fails_at_its_deadline_as_not_sent() {
    let group = group();
    let (redis, _nobody) = unconnected(&group, RedisSettings::new().command_timeout(ms(50)));
    let short = redis.call(["PING"]);
    let shorter = redis.call(RedisCommand::new("PING").timeout(ms(1)));
    let none = redis.call(RedisCommand::new("PING").timeout(Duration::ZERO));
    assert_eq!(outcome(done(none)), "not sent: TimedOut");
    for call in [shorter, short] {
        let said = outcome(done(call));
        // The reason is known once an attempt has failed.
        assert!(["not sent: Io", "not sent: TimedOut"].contains(&said.as_str()), "{said}");
    }
    assert_eq!(redis.stats().pending, 0);
}

#[test]
fn commands_that_wait_fail_with_the_shutdown_of_the_group() {
    let group = group();
    let (redis, _nobody) = unconnected(&group, RedisSettings::new().connections(3));
    let waiting: Vec<_> = (0..10).map(|_| redis.call(["PING"])).collect();
    let connected = redis.connected();
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO))).unwrap();
    for call in waiting {
        assert_eq!(outcome(done(call)), "not sent: ShutDown");
    }
    assert!(done(connected).is_err());
    assert!(matches!(done(redis.closed()), Err(Error::ShutDown)));
    assert_eq!(outcome(done(redis.call(["PING"]))), "closed");
}

#[test]
fn a_client_that_gives_up_fails_its_commands() {
    let group = group();
    let nobody = Nobody::new();
    let (told, attempts) = channel();
    // The client does not give up before it has the command.
    let is_called = Arc::new(Barrier::new(2));
    let before = is_called.clone();
    let redis = RedisClient::builder(&group, format!("redis://{}", nobody.address))
        .backoff(Backoff::new().initial(ms(1)).max_delay(ms(1)).max_attempts(2))
        .on_event(move |event| match event {
            RedisEvent::Failed { next, .. } => {
                if next.is_some() {
                    before.wait();
                }
                told.send(next.is_some()).unwrap();
            }
            event => panic!("{event:?}"),
        })
        .connect()
        .unwrap();
    let waiting = redis.call(RedisCommand::new("PING").timeout(Duration::MAX));
    is_called.wait();
    assert!(done(redis.closed()).is_err());
    assert_eq!(outcome(done(waiting)), "not sent: Io");
    assert_eq!((receive(&attempts), receive(&attempts)), (true, false));
    assert_eq!(outcome(done(redis.call(["PING"]))), "closed");
}

#[test]
fn a_reply_beyond_the_limits_ends_its_connection() {
    let server = TestServer::simulated(&redis());
    let redis = RedisClient::builder(&server.group, &server.url)
        .resp_limits(RespLimits::new().max_bulk_len(8192))
        .connect()
        .unwrap();
    let append = || redis.call(RedisCommand::new("APPEND").arg("k").arg("x".repeat(5000)));
    assert_eq!(outcome(done(append())), "5000");
    assert_eq!(outcome(done(append())), "10000");
    assert_eq!(outcome(done(redis.call(["GET", "k"]))), "may be executed: Peer");
    assert_eq!(outcome(done(redis.call(["PING"]))), "PONG", "a new connection");
    assert_eq!(redis.stats().connects, 2);
    let long = redis.call(RedisCommand::new("SET").arg("k").arg("x".repeat(8193)));
    assert_eq!(outcome(done(long)), "not sent: Encode");
    assert_eq!(redis.stats().connects, 2);
}

#[test]
fn the_bytes_of_a_reply_are_limited_by_the_longest_string() {
    with_each(|server| {
        for (max_bulk_len, is_accepted) in [(1024 * 1024, false), (8 * 1024 * 1024, true)] {
            let redis = RedisClient::builder(&server.group, &server.url)
                .resp_limits(RespLimits::new().max_bulk_len(max_bulk_len))
                .connect()
                .unwrap();
            let set = redis.call(RedisCommand::new("SET").arg("long").arg("x".repeat(900_000)));
            assert_eq!(outcome(done(set)), "OK");
            let reply = done(redis.call(RedisCommand::new("MGET").args(["long"; 20])));
            match reply {
                Ok(reply) => {
                    assert!(is_accepted && matches!(reply, RespValue::Array(items) if items.len() == 20))
                }
                Err(error) => assert!(!is_accepted, "{error:#} with {}", server.name),
            }
        }
    });
}

#[test]
fn a_transaction_that_does_not_fit_is_discarded_and_the_connection_stays() {
    with_each(|server| {
        let redis = RedisClient::builder(&server.group, &server.url)
            .resp_limits(RespLimits::new().max_bulk_len(8192))
            .connect()
            .unwrap();
        done(redis.connected()).unwrap();
        let long = RedisCommand::new("SET").arg("k").arg("x".repeat(8193));
        let transaction = redis.call(RedisCommand::transaction(vec![["INCR", "n"].into(), long]));
        let next = redis.call(["INCR", "n"]);
        assert_eq!(outcome(done(transaction)), "not sent: Encode");
        assert_eq!(outcome(done(next)), "1", "with {}", server.name);
        assert_eq!(redis.stats().connects, 1);
    });
}

#[test]
fn a_transaction_that_leaves_no_room_is_discarded_and_the_connection_stays() {
    with_each(|server| {
        let redis = server.client();
        done(redis.connected()).unwrap();
        // `MULTI` takes 15 bytes, and each command 1,048,575. So 16 commands leave one byte of the
        // 16 MiB, which is too little for `DISCARD` too.
        let set = || RedisCommand::new("SET").arg("k").arg("x".repeat(1_048_575 - 32));
        let transaction = redis.call(RedisCommand::transaction((0..17).map(|_| set())));
        let next = redis.call(["INCR", "n"]);
        assert_eq!(outcome(done(transaction)), "not sent: Full", "with {}", server.name);
        assert_eq!(outcome(done(next)), "1", "with {}", server.name);
        assert_eq!(redis.stats().connects, 1);
    });
}

#[test]
fn commands_that_nobody_waits_for_make_room() {
    let group = group();
    let (redis, _nobody) = unconnected(&group, RedisSettings::new().max_pending(3));
    let dropped: Vec<_> = (0..2).map(|_| redis.call(["PING"])).collect();
    let kept = redis.call(["PING"]);
    drop(dropped);
    let _accepted = redis.try_call(["PING"]).expect("there is room for it");
    assert_eq!(redis.stats().pending, 2);
    redis.close();
    assert_eq!(outcome(done(kept)), "closed");
}

#[test]
fn a_lookup_that_fails_is_reported_on_the_loop() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    // A label of a name has at most 63 bytes, so no name server is asked.
    let url = format!("redis://{}.invalid", "x".repeat(64));
    let (told, threads) = channel();
    let redis = RedisClient::builder(&group, url)
        .backoff(Backoff::new().initial(ms(1)).max_delay(ms(1)))
        .on_event(move |event| match event {
            RedisEvent::Failed { .. } => drop(told.send(std::thread::current().id())),
            event => panic!("{event:?}"),
        })
        .connect()
        .unwrap();
    let of_loop = done(group.next().call(|| std::thread::current().id())).unwrap();
    for _ in 0..3 {
        assert_eq!(receive(&threads), of_loop);
    }
    redis.close();
    done(redis.closed()).unwrap();
}

#[test]
fn waiting_for_the_end_on_any_loop_is_an_error() {
    let group = EventLoopGroup::builder().threads(3).build().unwrap();
    let (redis, _nobody) = unconnected(&group, RedisSettings::new());
    for event_loop in group.event_loops() {
        let of_loop = redis.clone();
        let waited = done(event_loop.call(move || of_loop.closed().wait())).unwrap();
        assert!(matches!(waited, Err(Error::WouldDeadlock)), "{waited:?}");
    }
    redis.close();
    done(redis.closed()).unwrap();
}

#[test]
fn subscriptions_beyond_the_limit_are_refused() {
    let server = TestServer::simulated(&redis());
    let redis = RedisClient::builder(&server.group, &server.url)
        .settings(RedisSettings::new().max_subscriptions(2))
        .connect()
        .unwrap();
    let first = redis.subscribe("a", |_| ()).unwrap();
    let _second = redis.subscribe("a", |_| ()).unwrap();
    let refused = redis.subscribe("b", |_| ()).unwrap_err();
    assert!(matches!(refused, Error::Full { resource: Resource::RedisSubscriptions, limit: 2, .. }));
    first.close();
    let _third = redis.subscribe("b", |_| ()).unwrap();
}

#[test]
fn a_channel_whose_name_is_too_long_is_refused() {
    let server = TestServer::simulated(&redis());
    let redis = RedisClient::builder(&server.group, &server.url)
        .resp_limits(RespLimits::new().max_bulk_len(8192))
        .connect()
        .unwrap();
    let refused = redis.subscribe("x".repeat(8193), |_| ());
    assert!(matches!(
        refused.err(),
        Some(Error::Encode(EncodeError::TooLong { length: 8193, limit: 8192, .. }))
    ));
    let (told, events) = channel();
    let _longest = subscribe(&redis, &"x".repeat(8192), &told);
    assert_eq!(receive(&events), "subscribed");
}

#[test]
fn a_batch_of_channels_fits_into_a_request() {
    with_each(|server| {
        let group = EventLoopGroup::builder().threads(1).build().unwrap();
        let redis = RedisClient::builder(&group, &server.url)
            .resp_limits(RespLimits::new().max_elements(50))
            .connect()
            .unwrap();
        let (told, events) = channel();
        // The loop of the connection sees all of them at once.
        let client = redis.clone();
        let all = move || -> Vec<_> {
            (0..100).map(|n| subscribe(&client, &format!("channel{n}"), &told)).collect()
        };
        let _subscriptions = done(group.next().call(all)).unwrap();
        for _ in 0..100 {
            assert_eq!(receive(&events), "subscribed", "with {}", server.name);
        }
    });
}

#[test]
fn invalid_settings_are_refused_without_the_password() {
    let group = group();
    let builder = |url: &str| RedisClient::builder(&group, url);
    for builder in [
        builder("http://:secret@localhost"),
        builder("redis://localhost").settings(RedisSettings::new().connections(0)),
        builder("redis://localhost").resp_limits(RespLimits::new().max_depth(0)),
        builder("redis://localhost").backoff(Backoff::new().initial(Duration::ZERO)),
        builder("redis://localhost").client_name("two words"),
        builder("redis://localhost").client_name(""),
    ] {
        assert!(!format!("{builder:?}").contains("secret"));
        let error = builder.connect().unwrap_err();
        assert!(matches!(error, Error::Setting(_)), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn a_server_that_does_not_answer_the_login_is_left() {
    let group = group();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (told, failed) = channel();
    let redis = RedisClient::builder(&group, format!("redis://{}", silent.local_addr().unwrap()))
        .settings(RedisSettings::new().handshake_timeout(ms(20)))
        .on_event(move |event| {
            if let RedisEvent::Failed { cause, .. } = event {
                let _ = told.send(cause.clone());
            }
        })
        .connect()
        .unwrap();
    assert!(matches!(receive(&failed), Error::TimedOut { operation: "the login to Redis", .. }));
    drop(redis);
}
