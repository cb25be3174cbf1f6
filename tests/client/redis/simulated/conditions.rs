//! Servers that do not accept commands, or are slow.

use super::{super::outcome, SECOND, builder, redis, with_client};
use netwheel::{
    redis::{RedisCommand, RedisError, RedisEvent, RedisSettings},
    testing::simulation::{Journal, sleep},
};
use std::time::Duration;

#[test]
fn a_server_that_loads_or_is_busy_says_not_now() {
    let server = redis();
    let control = server.clone();
    with_client(&server, move || {
        let redis = builder()?.connect()?;
        assert_eq!(outcome(redis.call(["SET", "k", "v"]).wait()), "OK");
        control.load_for(3 * SECOND);
        let error = redis.call(["GET", "k"]).wait().unwrap_err();
        assert!(RedisError::of(&error).is_some_and(|e| e.is_transient() && !e.may_be_executed()));
        assert_eq!(outcome(redis.call(["GET", "k"]).wait()), "not now: LOADING");
        sleep(3 * SECOND);
        assert_eq!(outcome(redis.call(["GET", "k"]).wait()), "v");
        control.busy_for(SECOND);
        assert_eq!(outcome(redis.call(["GET", "k"]).wait()), "not now: BUSY");
        assert_eq!(outcome(redis.call(RedisCommand::transaction([["GET", "k"]])).wait()), "not now: BUSY");
        sleep(SECOND);
        assert_eq!(outcome(redis.call(["GET", "k"]).wait()), "v");
        control.set_out_of_memory(true);
        assert!(outcome(redis.call(["SET", "k", "v"]).wait()).starts_with("-OOM"));
        assert_eq!(redis.stats().connects, 1, "none of this is a reason to reconnect");
        Ok(())
    });
}

/// A busy server answers HELLO, and refuses INFO.
#[test]
fn a_connection_to_a_busy_server_is_made_when_it_tells_its_facts() {
    let server = redis();
    let control = server.clone();
    with_client(&server, move || {
        control.busy_for(3 * SECOND);
        let redis = builder()?.connect()?;
        let info = redis.connected().wait()?;
        assert!(info.run_id().is_some(), "{info:?}");
        assert_eq!(outcome(redis.call(["SET", "k", "v"]).wait()), "OK");
        Ok(())
    });
}

#[test]
fn a_server_that_has_no_memory_when_it_is_bound_says_so() {
    let server = redis();
    server.set_out_of_memory(true);
    let control = server.clone();
    with_client(&server, move || {
        let redis = builder()?.connect()?;
        assert!(outcome(redis.call(["SET", "k", "v"]).wait()).starts_with("-OOM"));
        control.set_out_of_memory(false);
        assert_eq!(outcome(redis.call(["SET", "k", "v"]).wait()), "OK");
        Ok(())
    });
}

#[test]
fn a_client_connects_while_the_server_loads() {
    let server = redis().loading_time(10 * SECOND);
    with_client(&server, || {
        let redis = builder()?.connect()?;
        assert!(redis.connected().wait()?.run_id().is_some());
        assert_eq!(outcome(redis.call(["GET", "k"]).wait()), "not now: LOADING");
        let _news = redis.subscribe("news", |_| ())?;
        sleep(10 * SECOND);
        assert_eq!(outcome(redis.call(["GET", "k"]).wait()), "nil");
        Ok(())
    });
}

#[test]
fn a_replica_is_left_after_the_replies_of_earlier_commands() {
    let server = redis();
    let control = server.clone();
    with_client(&server, move || {
        let lost = Journal::new();
        let seen = lost.clone();
        let redis = builder()?
            .on_event(move |event| {
                if let RedisEvent::Lost { cause, .. } = event {
                    seen.push(RedisError::of(cause).and_then(RedisError::reply).unwrap().code().to_owned());
                }
            })
            .connect()?;
        redis.connected().wait()?;
        control.set_read_only(true);
        let calls: Vec<_> = (0..20)
            .map(|n| if n % 2 == 0 { redis.call(["INCR", "n"]) } else { redis.call(["GET", "n"]) })
            .collect();
        for (n, call) in calls.into_iter().enumerate() {
            // Commands behind the first refusal are executed or wait, and none is uncertain.
            let expected = if n % 2 == 0 { "not now: READONLY" } else { "nil" };
            assert_eq!(outcome(call.wait()), expected);
        }
        // The name leads to the same server. It has become the master.
        control.set_read_only(false);
        assert_eq!(outcome(redis.call(["INCR", "n"]).wait()), "1");
        assert_eq!(lost.with(|lost| lost.to_vec()), ["READONLY"]);
        assert_eq!((redis.stats().connects, redis.stats().uncertain), (2, 0));
        Ok(())
    });
}

#[test]
fn a_slow_reply_fails_its_command_and_later_replies_fit() {
    let server = redis();
    let control = server.clone();
    with_client(&server, move || {
        let redis = builder()?.connect()?;
        redis.connected().wait()?;
        control.hold_for(3 * SECOND);
        let slow = redis.call(RedisCommand::new("INCR").arg("n").timeout(SECOND));
        let next = redis.call(["INCR", "n"]);
        let dropped = redis.call(["INCR", "n"]);
        drop(dropped);
        let error = slow.wait().unwrap_err();
        assert!(RedisError::of(&error).is_some_and(RedisError::may_be_executed));
        assert_eq!(outcome(Err(error)), "may be executed: TimedOut");
        assert_eq!(outcome(next.wait()), "2", "the slow one was executed");
        // The third one was dropped before it was sent, or after that.
        assert!(["2", "3"].contains(&outcome(redis.call(["GET", "n"]).wait()).as_str()));
        assert_eq!((redis.stats().connects, redis.stats().uncertain), (1, 1));
        Ok(())
    });
}

#[test]
fn a_silent_server_is_left_and_its_commands_may_be_executed() {
    let server = redis();
    let control = server.clone();
    with_client(&server, move || {
        let settings = RedisSettings::new()
            .heartbeat_interval(SECOND)
            .heartbeat_timeout(2 * SECOND)
            .command_timeout(Duration::from_secs(60));
        let lost = Journal::new();
        let seen = lost.clone();
        let redis = builder()?
            .settings(settings)
            .on_event(move |event| {
                if let RedisEvent::Lost { cause, .. } = event {
                    seen.push(format!("{cause}"));
                }
            })
            .connect()?;
        redis.connected().wait()?;
        // Pings keep a quiet connection.
        sleep(60 * SECOND);
        assert_eq!(redis.stats().connects, 1);
        control.hold_for(20 * SECOND);
        assert_eq!(outcome(redis.call(["INCR", "n"]).wait()), "may be executed: TimedOut");
        assert_eq!(lost.with(|lost| lost.to_vec()), ["the heartbeat of Redis timed out after 2s"]);
        // The simulated server executes nothing for a connection that has ended, or does.
        let now = outcome(redis.call(["INCR", "n"]).wait());
        assert!(["1", "2"].contains(&now.as_str()), "{now}");
        Ok(())
    });
}
