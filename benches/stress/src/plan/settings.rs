//! Random settings, most of them at the edges of their ranges.

use super::pick;
use fastrand::Rng;
use netwheel::{
    Result,
    buffer::WaterMark,
    channel::{ChannelOptions, Overflow},
    group::EventLoopGroupBuilder,
};
use std::time::Duration;

/// How a pipeline encodes the frames of a link. All kinds make the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// The library's codec, which knows the size of a message before it encodes it.
    LengthField,
    /// A codec of a program, with a size hint.
    Hinted,
    /// Without one.
    Hintless,
}

impl Wire {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        *pick(rng, &[Wire::LengthField, Wire::Hinted, Wire::Hintless, Wire::Hintless])
    }
}

#[derive(Debug)]
pub(crate) struct GroupSettings {
    threads: usize,
    max_lingering: usize,
    io_ratio: u32,
    max_task_time: Duration,
    wheel_tick: Duration,
    max_pending_tasks: usize,
}

impl GroupSettings {
    /// `edges` says whether loops hold as few lingering sockets as settings allow.
    pub(super) fn random(rng: &mut Rng, edges: bool) -> Self {
        GroupSettings {
            threads: rng.usize(1..=3),
            max_lingering: if edges { *pick(rng, &[0, 1, 2, 3, 16]) } else { 1024 },
            io_ratio: *pick(rng, &[1, 50, 50, 99, 100]),
            max_task_time: *pick(rng, &[Duration::from_micros(20), ms(1), ms(100)]),
            wheel_tick: *pick(rng, &[ms(1), ms(10), ms(100)]),
            max_pending_tasks: *pick(rng, &[16, 256, 1 << 20, 1 << 20]),
        }
    }

    pub(crate) fn apply(&self, builder: EventLoopGroupBuilder) -> EventLoopGroupBuilder {
        builder
            .threads(self.threads)
            .max_lingering(self.max_lingering)
            .io_ratio(self.io_ratio)
            .max_task_time(self.max_task_time)
            .wheel_tick(self.wheel_tick)
            .max_pending_tasks(self.max_pending_tasks)
    }
}

#[derive(Debug)]
pub(crate) struct ChannelSettings {
    water: (usize, usize),
    max_outbound: usize,
    pub(crate) overflow: Overflow,
    inbound: (usize, usize),
    read_while_writable: bool,
    half_close: bool,
    read_size: usize,
    reads_per_turn: usize,
    writes_per_turn: usize,
    pub(crate) close_timeout: Duration,
    max_scheduled_tasks: usize,
}

const KIB: usize = 1024;

impl ChannelSettings {
    pub(super) fn random(rng: &mut Rng, server: bool) -> Self {
        ChannelSettings {
            water: water(rng),
            max_outbound: *pick(rng, &[1, 512, 64 * KIB, 16 * KIB * KIB, 16 * KIB * KIB]),
            overflow: *pick(
                rng,
                &[
                    Overflow::Refuse,
                    Overflow::Refuse,
                    Overflow::Refuse,
                    Overflow::DropNewest,
                    Overflow::DropOldest,
                    Overflow::Close,
                ],
            ),
            inbound: *pick(rng, &[(1, 1), (100, 1000), (256 * KIB, KIB * KIB)]),
            // Only one end of a connection: two of them may wait for each other.
            read_while_writable: server && rng.u8(..4) == 0,
            half_close: rng.bool(),
            read_size: *pick(rng, &[64, 1000, 64 * KIB, 64 * KIB]),
            reads_per_turn: *pick(rng, &[1, 16]),
            writes_per_turn: *pick(rng, &[1, 16]),
            close_timeout: *pick(rng, &[ms(0), ms(50), ms(2000), ms(2000), ms(10_000)]),
            max_scheduled_tasks: *pick(rng, &[1, 16, 1024, 1024]),
        }
    }

    /// A relay obeys its target's writability, so that nothing overflows. Its limits of tasks
    /// stay, because a refused task ends the connection.
    pub(super) fn of_relay(rng: &mut Rng) -> Self {
        ChannelSettings {
            half_close: true,
            overflow: Overflow::Refuse,
            close_timeout: ms(10_000),
            max_scheduled_tasks: 1024,
            max_outbound: 16 * KIB * KIB,
            inbound: (256 * KIB, KIB * KIB),
            read_while_writable: false,
            ..ChannelSettings::random(rng, false)
        }
    }

    pub(crate) fn options(&self) -> Result<ChannelOptions> {
        Ok(ChannelOptions::new()
            .water_mark(WaterMark::new(self.water.0, self.water.1)?)
            .max_outbound(self.max_outbound)
            .overflow(self.overflow)
            .inbound_mark(WaterMark::new(self.inbound.0, self.inbound.1)?)
            .read_while_writable(self.read_while_writable)
            .half_close(self.half_close)
            .read_size(self.read_size)
            .reads_per_turn(self.reads_per_turn)
            .writes_per_turn(self.writes_per_turn)
            .close_timeout(self.close_timeout)
            .max_scheduled_tasks(self.max_scheduled_tasks))
    }

    /// Returns whether an accepted message may be dropped while the channel stays open.
    pub(crate) fn drops_messages(&self) -> bool {
        matches!(self.overflow, Overflow::DropNewest | Overflow::DropOldest)
    }
}

fn water(rng: &mut Rng) -> (usize, usize) {
    *pick(rng, &[(1, 1), (1, 100), (64, 300), (KIB, 4 * KIB), (32 * KIB, 64 * KIB), (32 * KIB, 64 * KIB)])
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
