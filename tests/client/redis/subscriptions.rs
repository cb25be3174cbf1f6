//! Subscriptions with `redis-server` and with the simulated Redis.

use super::{outcome, servers::with_each};
use crate::support::wait::{done, receive};
use netwheel::redis::{RedisClient, RedisSubscription, SubscriptionEvent};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Returns an event as text.
pub(super) fn text_of(event: &SubscriptionEvent) -> String {
    match event {
        SubscriptionEvent::Message(text) => String::from_utf8_lossy(text).into_owned(),
        SubscriptionEvent::Subscribed => "subscribed".to_owned(),
        SubscriptionEvent::Lost(_) => "lost".to_owned(),
        SubscriptionEvent::Refused(error) => format!("refused: {error}"),
        event => format!("{event:?}"),
    }
}

/// Subscribes, and sends the events as text.
pub(super) fn subscribe(redis: &RedisClient, channel: &str, sender: &Sender<String>) -> RedisSubscription {
    let sender = sender.clone();
    redis.subscribe(channel.to_owned(), move |event| drop(sender.send(text_of(&event)))).unwrap()
}

fn subscribed(redis: &RedisClient, name: &str) -> (RedisSubscription, Receiver<String>) {
    let (sender, events) = channel();
    let subscription = subscribe(redis, name, &sender);
    assert_eq!(receive(&events), "subscribed");
    (subscription, events)
}

fn publish(redis: &RedisClient, channel: &str, message: &str) -> String {
    outcome(done(redis.call(["PUBLISH", channel, message].map(str::to_owned))))
}

#[test]
fn messages_arrive_once_and_in_order() {
    with_each(|server| {
        let redis = server.client();
        let (first, events) = subscribed(&redis, "{7}:news");
        let (second, others) = subscribed(&redis, "{7}:news");
        let (_other, silent) = subscribed(&redis, "{8}:news");
        assert_eq!(first.channel(), "{7}:news");
        let calls: Vec<_> = (0..1000)
            .map(|n| redis.call(["PUBLISH".to_owned(), "{7}:news".to_owned(), format!("m{n}")]))
            .collect();
        for call in calls {
            assert_eq!(outcome(done(call)), "1", "one connection with {}", server.name);
        }
        for n in 0..1000 {
            assert_eq!((receive(&events), receive(&others)), (format!("m{n}"), format!("m{n}")));
        }
        first.close();
        assert_eq!(publish(&redis, "{7}:news", "again"), "1");
        assert_eq!(receive(&others), "again");
        drop(second);
        // A confirmation shows that the earlier requests were executed.
        let (_last, _events) = subscribed(&redis, "last");
        assert_eq!(publish(&redis, "{7}:news", "nobody"), "0", "with {}", server.name);
        assert!(events.try_recv().is_err() && others.try_recv().is_err() && silent.try_recv().is_err());
    });
}

#[test]
fn thousands_of_channels_are_subscribed_in_batches() {
    with_each(|server| {
        let redis = server.client();
        let (sender, events) = channel();
        let mut subscriptions: Vec<_> =
            (0..3000).map(|n| subscribe(&redis, &format!("channel{n}"), &sender)).collect();
        for _ in 0..3000 {
            assert_eq!(receive(&events), "subscribed");
        }
        assert_eq!(publish(&redis, "channel2999", "hello"), "1");
        assert_eq!(receive(&events), "hello");
        subscriptions.truncate(1);
        let (_last, _events) = subscribed(&redis, "last");
        let count = outcome(done(redis.call(["PUBSUB", "CHANNELS"])));
        assert_eq!(count.split(' ').count(), 2, "{count} with {}", server.name);
        redis.close();
        assert_eq!(receive(&events), "Ended");
        done(redis.closed()).unwrap();
    });
}

#[test]
fn a_sink_that_panics_does_not_disturb_the_others() {
    with_each(|server| {
        let redis = server.client();
        let _bad = redis.subscribe("c", |_| panic!("on purpose")).unwrap();
        let (_good, events) = subscribed(&redis, "c");
        assert_eq!(publish(&redis, "c", "hello"), "1");
        assert_eq!(receive(&events), "hello");
    });
}

#[test]
fn a_closed_client_has_no_connection_for_subscriptions() {
    with_each(|server| {
        let redis = server.client();
        let closed = redis.closed();
        // The connection is newer than the completion.
        let (_news, events) = subscribed(&redis, "news");
        redis.close();
        done(closed).unwrap();
        assert!(redis.is_closed(), "with {}", server.name);
        assert_eq!(receive(&events), "Ended");
    });
}
