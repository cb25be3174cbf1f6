//! The Prometheus text of topics.

#![cfg(feature = "prometheus")]

use crate::{
    members::{Member, Nodes},
    support::wait::done,
};
use bytes::Bytes;
use netwheel::{Error, prometheus};

#[test]
fn all_topics_of_a_program_are_in_one_text() {
    let Nodes { nodes, group, .. } = Nodes::new(2);
    let collector = nodes[0].topics.collector("a").and(nodes[1].topics.collector("b")).unwrap();
    let mut member = Member::join(&nodes[1]);
    done(nodes[0].lobby.publish(Bytes::from("one"))).unwrap();
    member.expect(&["1 one"]);

    let scrape = prometheus::encode(&(&group, &collector)).unwrap();
    assert!(scrape.contains("netwheel_turns_total{event_loop="), "{scrape}");
    for line in [
        "# TYPE netwheel_broker_published counter",
        "# TYPE netwheel_broker_followed_partitions gauge",
        "netwheel_broker_published_total{broker=\"a\"} 1",
        "netwheel_broker_published_total{broker=\"b\"} 0",
        "netwheel_broker_delivered_total{broker=\"b\"} 1",
        "netwheel_broker_followed_partitions{broker=\"a\"} 0",
        "netwheel_broker_followed_partitions{broker=\"b\"} 1",
    ] {
        assert!(scrape.lines().any(|found| found == line), "{line} is missing:\n{scrape}");
    }
}

#[test]
fn two_topics_with_the_same_name_are_refused() {
    let Nodes { nodes, .. } = Nodes::new(1);
    let topics = &nodes[0].topics;
    let refused = topics.collector("mine").and(topics.collector("mine")).unwrap_err();
    assert!(matches!(&refused, Error::Setting(e) if e.setting() == "name"), "{refused}");
}
