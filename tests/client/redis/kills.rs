//! A `redis-server` that is killed and started again.

use super::{outcome, servers::TestServer, subscriptions::subscribe};
use crate::support::wait::{PATIENCE, done, receive, wait_until};
use netwheel::redis::RedisCommand;
use std::sync::mpsc::channel;

#[test]
fn a_server_that_is_killed_is_found_again() {
    let Some(mut server) = TestServer::real(&[]) else { return };
    let redis = server.client();
    let (sender, events) = channel();
    let _news = subscribe(&redis, "news", &sender);
    assert_eq!(receive(&events), "subscribed");
    let before = done(redis.connected()).unwrap();
    assert_eq!(outcome(done(redis.call(["INCR", "n"]))), "1");
    let endless = RedisCommand::from(["EVAL", "while true do end", "0"]).timeout(PATIENCE);
    let in_flight = redis.call(endless);
    wait_until("the script is sent", || redis.stats().sent == 2);
    let mut waiting = None;
    server.replace(|| {
        let said = outcome(done(in_flight));
        assert!(said.starts_with("may be executed: "), "{said}");
        assert_eq!(receive(&events), "lost");
        waiting = Some(redis.call(RedisCommand::from(["INCR", "n"]).timeout(PATIENCE)));
    });
    assert_eq!(outcome(done(waiting.unwrap())), "1", "nothing was persistent");
    assert_eq!(receive(&events), "subscribed");
    assert_eq!(outcome(done(redis.call(["PUBLISH", "news", "hello"]))), "1");
    assert_eq!(receive(&events), "hello");
    let after = done(redis.connected()).unwrap();
    assert_ne!(before.run_id(), after.run_id());
    assert_eq!(redis.stats().uncertain, 1);
}
