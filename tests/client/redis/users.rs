//! Users, passwords and permissions.

use super::{
    outcome,
    servers::{TestServer, redis},
    subscriptions::subscribe,
};
use crate::support::wait::{done, receive};
use netwheel::{
    redis::{RedisClient, RedisCommand, RedisError, RedisEvent},
    testing::redis::RedisUser,
};
use std::sync::mpsc::channel;

/// Runs a test with each kind of server. The user `bob` may use some keys and channels only.
fn with_each(test: impl Fn(&TestServer)) {
    let bob = RedisUser::new("bob", "p@ss").keys("a:*").channels("c:*").deny("INFO");
    let simulated = redis().password("secret").user(bob);
    let options = "--requirepass secret --user bob on >p@ss ~a:* &c:* +@all -info";
    let options: Vec<&str> = options.split(' ').collect();
    let real = TestServer::real(&options);
    for server in [Some(TestServer::simulated(&simulated)), real].iter().flatten() {
        test(server);
    }
}

/// Returns the URL with a user and a password.
fn url(server: &TestServer, user: &str) -> String {
    server.url.replace("://", &format!("://{user}@"))
}

#[test]
fn a_user_logs_in_and_has_its_permissions() {
    with_each(|server| {
        let redis = RedisClient::builder(&server.group, url(server, "bob:p%40ss")).connect().unwrap();
        let info = done(redis.connected()).unwrap();
        assert_eq!((info.run_id(), info.maxmemory_policy()), (None, None), "INFO is denied: {}", server.name);
        assert!(info.version().is_some() && info.role().is_some());
        assert_eq!(outcome(done(redis.call(["SET", "a:k", "v"]))), "OK");
        assert!(outcome(done(redis.call(["GET", "b:k"]))).starts_with("-NOPERM"));
        let (sender, events) = channel();
        let _denied = subscribe(&redis, "d:x", &sender);
        assert!(receive(&events).starts_with("refused: the Redis server replied: NOPERM"));
        // One of them must not prevent the others.
        let _subscriptions: Vec<_> =
            ["c:1", "d:1", "c:2", "d:2", "c:3"].map(|channel| subscribe(&redis, channel, &sender)).into();
        let mut all: Vec<String> = (0..5).map(|_| receive(&events)[..7].to_owned()).collect();
        all.sort();
        assert_eq!(all, ["refused", "refused", "subscri", "subscri", "subscri"], "{}", server.name);
        assert_eq!(outcome(done(redis.call(["PUBLISH", "c:2", "hello"]))), "1");
        assert_eq!(receive(&events), "hello");
    });
}

#[test]
fn commands_of_a_user_without_transactions_may_be_executed() {
    let eve = RedisUser::new("eve", "pw").keys("*").deny("MULTI");
    let simulated = redis().user(eve);
    let options: Vec<&str> = "--user eve on >pw ~* +@all -multi".split(' ').collect();
    for server in [Some(TestServer::simulated(&simulated)), TestServer::real(&options)].iter().flatten() {
        let redis = RedisClient::builder(&server.group, url(server, "eve:pw")).connect().unwrap();
        let said = outcome(done(redis.call(RedisCommand::transaction([["INCR", "n"]]))));
        assert_eq!(said, "may be executed: Other", "with {}", server.name);
        assert_eq!(outcome(done(redis.call(["GET", "n"]))), "1", "with {}", server.name);
        assert_eq!((redis.stats().connects, redis.stats().uncertain), (1, 1));
    }
}

#[test]
fn the_default_user_has_a_password_only() {
    with_each(|server| {
        for builder in [
            RedisClient::builder(&server.group, url(server, ":secret")),
            RedisClient::builder(&server.group, url(server, "bob:wrong")).user("default", "secret"),
        ] {
            let redis = builder.connect().unwrap();
            assert_eq!(outcome(done(redis.call(["SET", "b:k", "v"]))), "OK", "{}", server.name);
            assert!(done(redis.connected()).unwrap().run_id().is_some());
        }
    });
}

#[test]
fn a_refused_login_is_reported_and_tried_again() {
    with_each(|server| {
        for (user, code) in [("bob:wrong", "WRONGPASS"), ("", "NOAUTH")] {
            let url = if user.is_empty() { server.url.clone() } else { url(server, user) };
            let (told, refusals) = channel();
            let redis = RedisClient::builder(&server.group, url)
                .on_event(move |event| match event {
                    RedisEvent::Failed { cause, next, .. } => {
                        let reply = RedisError::of(cause).and_then(RedisError::reply).expect("a refusal");
                        let _ = told.send((reply.code().to_owned(), next.is_some()));
                    }
                    event => panic!("{event:?}"),
                })
                .connect()
                .unwrap();
            let waiting = redis.call(["PING"]);
            for _ in 0..2 {
                assert_eq!(receive(&refusals), (code.to_owned(), true), "with {}", server.name);
            }
            assert!(redis.server_info().is_none());
            redis.close();
            assert_eq!(outcome(done(waiting)), "closed");
        }
    });
}
