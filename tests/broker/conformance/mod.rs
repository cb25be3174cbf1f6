//! What every broker has to do. [`check`] runs all tests against one kind of store.

mod ids;
mod leases;
mod maps;
mod messages;
mod partitions;
mod positions;
mod recorder;
mod replicas;

pub(crate) use recorder::Connection;

use netwheel::{
    broker::{Broker, store::Partitions},
    time::Clock,
};
use std::{sync::Arc, time::Duration};

/// A fresh store.
pub(crate) trait Store {
    /// Connects another node. The connection was not started yet.
    fn connect(&self) -> Arc<dyn Broker>;

    /// The clock of the nodes.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Lets time pass: advances a manual clock, or waits.
    fn pass(&self, time: Duration);

    /// Lets time pass for leases only. A store with real time must not wait, because a lease that
    /// is short enough for that may end too early on a busy machine.
    fn pass_for_leases(&self, time: Duration) {
        self.pass(time);
    }

    /// The number of partitions.
    fn partitions(&self) -> Partitions {
        Partitions::default()
    }
}

type Test = fn(&dyn Store);

/// All tests, with their names.
const TESTS: &[(&str, Test)] = &[
    ("messages have offsets and come in order", messages::have_offsets_and_come_in_order),
    ("every node receives them", messages::every_node_receives_them),
    ("a read has a range", messages::a_read_has_a_range),
    ("the history is limited", messages::the_history_is_limited),
    ("old messages are removed", messages::old_messages_are_removed),
    ("payloads are any bytes", messages::payloads_are_any_bytes),
    ("many publications keep their order", messages::many_publications_keep_their_order),
    ("notifications are not stored", messages::notifications_are_not_stored),
    ("an empty topic has a position", positions::an_empty_topic_has_a_position),
    ("a position ahead of the top begins an epoch", positions::a_position_ahead_of_the_top_begins_an_epoch),
    ("every operation compares the position", positions::every_operation_compares_the_position),
    ("other positions begin no epoch", positions::other_positions_begin_no_epoch),
    ("repeated ids are one message", ids::repeated_ids_are_one_message),
    ("ids are forgotten after the window", ids::ids_are_forgotten_after_the_window),
    ("a window out of range is refused", ids::a_window_out_of_range_is_refused),
    ("the sequence counts events", partitions::the_sequence_counts_events),
    ("only followed partitions are delivered", partitions::only_followed_partitions_are_delivered),
    ("tops answers in the order of the question", partitions::tops_answers_in_the_order_of_the_question),
    ("entries are set and removed", maps::entries_are_set_and_removed),
    ("changes have conditions", maps::changes_have_conditions),
    ("maps are limited", maps::maps_are_limited),
    ("replicas show what the store has", replicas::show_what_the_store_has),
    ("a topic has one kind", maps::a_topic_has_one_kind),
    ("leases are renewed and end", leases::are_renewed_and_end),
    ("entries vanish with their owner", leases::entries_vanish_with_their_owner),
    ("another incarnation takes over", leases::another_incarnation_takes_over),
    ("a taken lease is not taken back", leases::a_taken_one_is_not_taken_back),
    ("a lease can be ended", leases::can_be_ended),
    ("a node without a lease owns nothing", leases::a_node_without_one_owns_nothing),
    ("a closed broker refuses", partitions::a_closed_broker_refuses),
];

/// Runs all tests, each with a fresh store.
pub(crate) fn check<S: Store>(fresh: impl Fn() -> S) {
    for (name, test) in TESTS {
        eprintln!("conformance: {name}");
        test(&fresh());
    }
}
