//! What a test does to the nodes of a simulation, and their end.

use super::{Simulation, program::NodeId};
use std::time::Duration;

impl Simulation {
    /// Lets no further fault happen, heals all links and disks, and restarts all nodes that are
    /// down. A stall or a lack of descriptors that has begun ends by itself, and packets that a
    /// clogged link holds back still arrive late. What follows shows whether the programs recover.
    pub fn heal(&mut self) {
        let down: Vec<usize> = {
            let mut world = self.shared.lock();
            let now = world.now();
            world.faults.end_at(now);
            world.heal_links();
            world.heal_disks();
            (0..world.nodes.len()).filter(|node| !world.nodes[*node].is_up).collect()
        };
        for node in down {
            self.restart(NodeId(node));
        }
    }

    /// Cuts the link between two nodes in both directions, until the time has passed or
    /// [`heal`](Simulation::heal) is called. A shorter cut does not end a longer one, and a time of
    /// zero heals the link.
    pub fn cut(&mut self, a: NodeId, b: NodeId, time: Duration) {
        let mut world = self.shared.lock();
        world.cut_link(a.0, b.0, crate::clock::nanos(time));
        world.cut_link(b.0, a.0, crate::clock::nanos(time));
    }

    /// Kills the program of a node. The kernel of the node closes its sockets. It then answers as
    /// for a program that does not run: connects are refused, data to a connection of the program
    /// is answered with a reset, and UDP ports are unreachable. The node stays down, even if a
    /// fault has killed it before, until it is [restarted](Simulation::restart) or
    /// [healed](Simulation::heal).
    pub fn kill(&mut self, node: NodeId) {
        self.end_node(node, false);
    }

    /// Takes the power from a node, whose program may have been killed before. Its sockets vanish,
    /// and its peers receive nothing until it is started again, as after a
    /// [`kill`](Simulation::kill).
    pub fn power_off(&mut self, node: NodeId) {
        self.end_node(node, true);
    }

    /// Starts the program of a node that was killed. Does nothing if the node is running.
    pub fn restart(&mut self, node: NodeId) {
        {
            let mut world = self.shared.lock();
            if world.nodes[node.0].is_up {
                return;
            }
            world.restart_node(node.0);
        }
        self.programs[node.0].start(&self.shared, node.0);
    }

    /// Stops a node for a time, as SIGSTOP or a busy hypervisor does.
    pub fn stall(&mut self, node: NodeId, time: Duration) {
        self.shared.lock().stall(node.0, crate::clock::nanos(time));
    }

    /// Sets the clock of a node forward, as a suspended machine does when it resumes.
    pub fn jump(&mut self, node: NodeId, by: Duration) {
        self.shared.lock().jump_clock(node.0, crate::clock::nanos(by));
    }

    /// Exempts the clock of a node from faults, so that a check can rely on it.
    pub fn steady_clock(&mut self, node: NodeId) {
        self.shared.lock().nodes[node.0].has_steady_clock = true;
    }

    /// Returns the number of sockets that the programs of a node hold.
    pub fn open_sockets(&self, node: NodeId) -> usize {
        self.shared.lock().open_sockets(node.0)
    }

    fn end_node(&mut self, node: NodeId, loses_power: bool) {
        self.shared.lock().cancel_restart(node.0);
        if let Err(message) = self.driver.end_node(node.0, loses_power) {
            // The next run returns it. Without one, the end of the simulation reports it.
            self.fail(message);
            self.is_unreported = true;
        }
    }

    /// Ends the programs of all nodes after the last run.
    pub(super) fn end(&mut self) -> Result<(), String> {
        let nodes = self.shared.lock().nodes.len();
        (0..nodes).map(|node| self.driver.end_node(node, true)).fold(Ok(()), Result::and)
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The test has failed. It does not wait for its threads.
            self.shared.turns.abandon();
        }
        let ended = self.end();
        let unreported = self.failure.take().filter(|_| self.is_unreported);
        // A handle that a program has leaked keeps the world.
        self.shared.lock().free();
        if let Some(message) = ended.err().or(unreported.map(|failure| failure.message))
            && !std::thread::panicking()
        {
            panic!("the end of a simulation with seed {}: {message}", self.seed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{group::EventLoopGroup, testing::simulation::calls::sleep};
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_loop_that_was_started_last_does_not_keep_the_world() {
        let mut simulation = Simulation::new(1);
        let node = simulation.node("one", "10.0.0.1", || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            let running = EventLoopGroup::builder().threads(1).build()?;
            running.next().call(|| ()).wait()?;
            group.next().execute(|| ())?;
            Ok(())
        });
        simulation.run_until_ended(node, Duration::from_secs(1)).unwrap();
        let world = Arc::downgrade(&simulation.shared);
        assert_eq!(simulation.shared.lock().started_loops(), 1);
        drop(simulation);
        assert_eq!(world.strong_count(), 0);
    }

    #[test]
    fn a_leaked_handle_keeps_a_world_without_sockets() {
        let leaked = Arc::new(Mutex::new(None));
        let place = leaked.clone();
        let mut simulation = Simulation::new(1);
        let node = simulation.node("one", "10.0.0.1", move || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            let _server = crate::bootstrap::ServerBootstrap::new(&group)
                .pipeline(|_peer| {
                    crate::channel::Pipeline::codec(crate::codec::RawBytes)
                        .on_read(|_ctx, _bytes: bytes::Bytes| Ok(()))
                })
                .bind("10.0.0.1:7000")?;
            *place.lock().unwrap() = Some(group);
            sleep(Duration::from_secs(60));
            Ok(())
        });
        simulation.run_for(Duration::from_secs(1)).unwrap();
        assert_eq!(simulation.open_sockets(node), 1);
        let world = Arc::downgrade(&simulation.shared);
        drop(simulation);
        let world = world.upgrade().expect("the group keeps the world");
        assert_eq!(world.lock().open_sockets(0), 0);
        assert!(world.lock().trace.last().is_empty(), "the world was freed");
        drop(leaked);
    }
}
