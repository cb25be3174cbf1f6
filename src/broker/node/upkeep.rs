//! The periodic tasks of a node: verification of quiet partitions, and its lease.

use super::TopicNode;
use crate::broker::store::{BrokerError, NodeId};
use crate::error::{Error, Result};
use std::sync::{Arc, atomic::Ordering};

impl TopicNode {
    /// Starts both periodic tasks. They end with the node.
    pub(super) fn start_upkeep(self: &Arc<Self>) -> Result {
        let (verify, renew) = (self.settings.verify_interval, self.settings.lease * 3 / 10);
        let node = Arc::downgrade(self);
        self.event_loop.schedule_periodic(verify, move || {
            let node = node.upgrade().filter(|node| !node.is_closed()).ok_or(Error::Cancelled)?;
            node.tick();
            Ok(())
        })?;
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
        for (partition, part) in self.all_parts() {
            let topics = part.topics();
            if topics.is_empty() {
                continue;
            }
            for topic in topics {
                if part.remove_resting(&topic) {
                    self.metrics.followed_partitions.add_shared(u64::MAX);
                } else {
                    topic.retry();
                }
            }
            part.pass_follow(|on| self.broker.follow(partition, on));
            part.tick();
            self.verify(partition);
        }
    }

    // ---- lease ----------------------------------------------------------------------------------

    /// Returns the id of the node while it has its lease by its own clock.
    pub(in crate::broker) fn authority(&self) -> Option<NodeId> {
        let now = self.time.now();
        self.lease.read(|lease| lease.is_valid(now).then(|| lease.node().clone()))
    }

    fn renew_lease(self: &Arc<Self>) {
        let asked = self.time.now();
        let Some(request) = self.lease.change(|lease| (lease.request(), ())) else { return };
        let node = Arc::downgrade(self);
        self.broker.renew(request).on_complete(move |result| {
            if let Some(node) = node.upgrade() {
                node.lease_renewed(asked, result);
            }
        });
    }

    fn lease_renewed(self: &Arc<Self>, asked: u64, result: Result) {
        let Err(error) = result else {
            return self.lease.change(|lease| (lease.granted(asked), ()));
        };
        self.metrics.lease_failures.add_shared(1);
        if BrokerError::of(&error) != Some(&BrokerError::LeaseEnded) {
            log::debug!("the lease of the node was not renewed: {error:#}");
            return self.lease.change(|lease| (lease.failed(), ()));
        }
        let incarnation = self.random.next();
        let lost = self.lease.change(|lease| {
            let lost = lease.node().clone();
            if let Ok(next) = NodeId::new(lost.name(), incarnation) {
                lease.ended(next);
            }
            (lost, ())
        });
        log::warn!("the lease of node {lost} has ended; the node goes on with another incarnation");
        self.metrics.leases_lost.add_shared(1);
        // Whatever was written between the end of the lease and now.
        self.broker.end_lease(&lost).detach();
        if !self.is_closed.load(Ordering::Acquire) {
            self.renew_lease();
        }
    }

    fn end_lost_leases(&self) {
        self.broker.end_lost_leases().on_complete(|ended| match ended {
            Ok(nodes) => nodes.iter().for_each(|node| log::info!("the lease of node {node} has ended")),
            Err(error) => log::debug!("leases of other nodes were not checked: {error:#}"),
        });
    }
}
