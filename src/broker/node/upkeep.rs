//! The periodic tasks of a node: verification of quiet partitions, and its lease.

use super::{
    TopicNode,
    lease_event::LeaseEvent,
    node_lease_watch::{LeaseGrant, LeaseLoss},
};
use crate::broker::store::{BrokerError, NodeId};
use crate::error::{Error, Result};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

impl TopicNode {
    /// Starts both periodic tasks. They end with the node.
    pub(super) fn start_upkeep(self: &Arc<Self>) -> Result {
        let (verify, renew) = (self.settings.verify_interval, self.settings.lease * 3 / 10);
        let node = Arc::downgrade(self);
        let verifying = self.event_loop.schedule_periodic(verify, move || {
            let node = node.upgrade().filter(|node| !node.is_closed()).ok_or(Error::Cancelled)?;
            node.tick();
            Ok(())
        })?;
        let node = Arc::downgrade(self);
        // The loop has ended, for example. A topic with members and its node keep each other alive.
        verifying.completion().on_complete(move |_| {
            if let Some(node) = node.upgrade().filter(|node| !node.is_closed()) {
                node.close().detach();
            }
        });
        let node = Arc::downgrade(self);
        self.event_loop.schedule_periodic(renew, move || {
            let node = node.upgrade().filter(|node| !node.is_closed()).ok_or(Error::Cancelled)?;
            node.renew_lease();
            node.end_lost_leases();
            Ok(())
        })?;
        self.renew_lease();
        Ok(())
    }

    fn tick(self: &Arc<Self>) {
        let most = self.intervals_without_topics();
        for (partition, part) in self.all_parts() {
            let topics = part.topics();
            if topics.is_empty() {
                continue;
            }
            for topic in topics {
                if part.remove_resting(&topic) {
                    self.metrics.followed_partitions.add_shared(u64::MAX);
                } else {
                    topic.forget_old_messages();
                    topic.retry();
                }
            }
            part.pass_follow(|on| self.broker.follow(partition, on));
            part.tick(most);
            self.verify(partition);
        }
    }

    /// Returns after how many intervals all topics of a partition are asked for, so that the broker
    /// keeps them.
    fn intervals_without_topics(&self) -> u64 {
        let Some(life) = self.broker.metadata_life() else { return u64::MAX };
        let intervals = life.as_nanos() / 3 / self.settings.verify_interval.as_nanos().max(1);
        u64::try_from(intervals).unwrap_or(u64::MAX).max(1)
    }

    // ---- lease ----------------------------------------------------------------------------------

    /// Returns the id of the node while it has its lease by its own clock, and is not closed.
    pub(in crate::broker) fn authority(&self) -> Option<NodeId> {
        if self.is_closed() {
            return None;
        }
        let now = self.time.now();
        self.lease.read(|lease| lease.is_valid(now).then(|| lease.node().clone()))
    }

    fn renew_lease(self: &Arc<Self>) {
        let asked = self.time.now();
        let (doubtful, request) = self.lease.change(|lease| {
            let doubtful = lease.replace_doubtful(asked, || self.random.next());
            ((doubtful, lease.request()), ())
        });
        if let Some(node) = doubtful {
            log::debug!("the lease of node {node} may have ended; the node asks with another incarnation");
            // Before the request, because the store may refuse it while the earlier lease lives.
            self.broker.end_lease(&node).detach();
        }
        let Some(request) = request else { return };
        let node = Arc::downgrade(self);
        self.broker.renew(request).on_complete(move |result| {
            if let Some(node) = node.upgrade() {
                node.lease_renewed(asked, result);
            }
        });
    }

    fn lease_renewed(self: &Arc<Self>, asked: u64, result: Result) {
        let Err(error) = result else { return self.lease_granted(asked) };
        self.metrics.lease_failures.add_shared(1);
        match BrokerError::of(&error) {
            Some(BrokerError::LeaseEnded) => self.lease_lost(LeaseLoss::Expired),
            Some(BrokerError::LeaseTaken) => self.lease_lost(LeaseLoss::Taken),
            cause => {
                log::debug!("the lease of the node was not renewed: {error:#}");
                // Errors of other kinds are unknown here, so the outcome is unknown.
                let may_be_granted = cause.is_none_or(BrokerError::may_be_stored);
                self.lease.change(|lease| (lease.failed(asked, may_be_granted), ()));
            }
        }
    }

    fn lease_granted(self: &Arc<Self>, asked: u64) {
        let now = self.time.now();
        let (grant, node) =
            self.lease.change(|lease| ((lease.granted(asked, now), lease.node().clone()), ()));
        match grant {
            LeaseGrant::Begun => {
                // Of an earlier node with this name, which may still run. It would take its entries
                // back until it asks for its lease.
                self.end_lost_leases();
                self.emit(LeaseEvent::Begun(node));
            }
            LeaseGrant::Renewed => {}
            LeaseGrant::Refused => self.lease_lost(LeaseLoss::Refused),
            LeaseGrant::Doubtful if self.is_closed() => {}
            LeaseGrant::Doubtful => self.renew_lease(),
        }
    }

    /// The store has refused an update with entries of `owner`, because that lease has ended. The
    /// next answer to a renewal says why. If the store renews the lease all the same, the node goes
    /// on with another incarnation: it could hold no entries with this one.
    pub(in crate::broker) fn lease_refused(self: &Arc<Self>, owner: &NodeId) {
        let is_new = self.lease.change(|lease| (lease.refused(owner), ()));
        if is_new && !self.is_closed() {
            self.renew_lease();
        }
    }

    fn lease_lost(self: &Arc<Self>, loss: LeaseLoss) {
        let incarnation = self.random.next();
        let (lost, end) = self.lease.change(|lease| {
            let lost = lease.node().clone();
            let end = lease.ended(lost.with_incarnation(incarnation), loss);
            ((lost, end), ())
        });
        if end.may_have_begun {
            // Whatever was written between the end of the lease and now.
            self.broker.end_lease(&lost).detach();
        }
        match loss {
            // Only a broker that refuses to begin a lease. Asked again after the interval.
            LeaseLoss::Expired if !end.had_begun => {}
            LeaseLoss::Expired | LeaseLoss::Refused => {
                log::warn!("the lease of node {lost} has ended; the node goes on with another incarnation");
                self.metrics.leases_lost.add_shared(1);
                self.emit(LeaseEvent::Ended(lost));
                // A store that refuses entries again is asked for a lease after the interval.
                if loss == LeaseLoss::Expired && !self.is_closed() {
                    self.renew_lease();
                }
            }
            // Asked again after the interval: two nodes that begin at once would fight.
            LeaseLoss::Taken if end.is_new => {
                log::error!("another node has the name of node {lost}; this one is without authority");
                self.metrics.leases_taken.add_shared(1);
                self.emit(LeaseEvent::Taken(lost));
            }
            LeaseLoss::Taken => {}
        }
    }

    fn emit(&self, event: LeaseEvent) {
        if let Some(on_lease) = &self.settings.on_lease
            && catch_unwind(AssertUnwindSafe(|| on_lease(event))).is_err()
        {
            log::error!("the callback for events of the lease panicked");
        }
        self.all_parts().flat_map(|(_, part)| part.topics()).for_each(|topic| topic.lease_changed());
    }

    fn end_lost_leases(&self) {
        self.broker.end_lost_leases().on_complete(|ended| match ended {
            Ok(nodes) => nodes.iter().for_each(|node| log::info!("the lease of node {node} has ended")),
            Err(error) => log::debug!("leases of other nodes were not checked: {error:#}"),
        });
    }
}
