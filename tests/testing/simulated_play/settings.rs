//! Settings at the edges of their ranges, and the shutdown at the end of each program.

use super::kit::{Draw, MS, PATIENCE, Play, SECOND};
use netwheel::{
    buffer::WaterMark,
    channel::{ChannelOptions, Overflow},
    group::EventLoopGroupBuilder,
    metrics::LoopMetrics,
    prelude::*,
    shutdown::ShutdownOptions,
    testing::simulation::{sleep, sometimes},
};
use std::time::Duration;

const KIB: usize = 1024;

/// Draws settings, most of them at the edges of their ranges.
pub(super) fn group(draw: &mut Draw) -> EventLoopGroupBuilder {
    EventLoopGroup::builder()
        .threads(1 + draw.below(2) as usize)
        .io_ratio(draw.pick(&[1, 50, 50, 100]))
        .max_io_time(draw.pick(&[Duration::from_micros(50), 100 * MS]))
        .max_task_time(draw.pick(&[Duration::from_micros(20), MS, 100 * MS]))
        .wheel_tick(draw.pick(&[MS, 10 * MS, 100 * MS]))
        .max_pending_tasks(draw.pick(&[64, 1 << 20, 1 << 20]))
}

pub(super) struct Options {
    pub(super) channel: ChannelOptions,
    pub(super) drops_messages: bool,
    pub(super) is_hasty: bool,
}

pub(super) fn options(draw: &mut Draw, is_server: bool) -> Result<Options> {
    let (low, high) = draw.pick(&[(1, 1), (1, 100), (64, 300), (KIB, 4 * KIB), (32 * KIB, 64 * KIB)]);
    let overflow = draw.pick(&[
        Overflow::Refuse,
        Overflow::Refuse,
        Overflow::Refuse,
        Overflow::DropNewest,
        Overflow::DropOldest,
        Overflow::Close,
    ]);
    let inbound = draw.pick(&[(1, 1), (100, 1000), (256 * KIB, KIB * KIB)]);
    let close_timeout = draw.pick(&[Duration::ZERO, 50 * MS, 60 * SECOND, 60 * SECOND, 60 * SECOND]);
    let channel = ChannelOptions::new()
        .water_mark(WaterMark::new(low, high)?)
        .max_outbound(draw.pick(&[1, 512, 64 * KIB, 16 * KIB * KIB]))
        .overflow(overflow)
        .inbound_mark(WaterMark::new(inbound.0, inbound.1)?)
        // At one end only: two ends may wait for each other.
        .read_while_writable(is_server && draw.chance(25))
        .half_close(draw.chance(50))
        .read_size(draw.pick(&[64, 1000, 64 * KIB]))
        .reads_per_turn(draw.pick(&[1, 16]))
        .writes_per_turn(draw.pick(&[1, 16]))
        .close_timeout(close_timeout);
    Ok(Options {
        channel,
        drops_messages: matches!(overflow, Overflow::DropNewest | Overflow::DropOldest),
        is_hasty: overflow == Overflow::Close || close_timeout < SECOND,
    })
}

/// Binds. Retries while the machine is out of descriptors.
pub(super) fn bound<T>(play: &Play, mut bind: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match bind() {
            Ok(bound) => return Ok(bound),
            Err(error) if play.is_strict() => return Err(error),
            Err(_) => sleep(SECOND),
        }
    }
}

/// Waits until this many programs have finished. Binds again if the listener fails.
pub(super) fn keep(
    play: &Play,
    programs: usize,
    mut server: Server,
    mut bind: impl FnMut() -> Result<Server>,
) -> Result {
    while !play.has_finished(programs) {
        sleep(100 * MS);
        if server.closed().is_done() {
            sometimes("a listener was bound again");
            server = bound(play, &mut bind)?;
        }
    }
    Ok(())
}

/// Shuts a group down whose channels have ended. Checks its metrics and its report.
pub(super) fn end(play: &Play, group: &EventLoopGroup, name: &str) -> Result {
    let sum = |of: fn(&LoopMetrics) -> u64| group.metrics().iter().map(of).sum::<u64>();
    play.eventually(
        || format!("{name} has no connection: {:?}", group.metrics()),
        || group.event_loops().iter().all(|event_loop| event_loop.connections() == 0),
    );
    // Longer than close timeouts, and shorter than the timeout of a connect.
    let timers = || sum(|metrics| metrics.timers_pending + metrics.wheel_pending);
    for _ in 0..200 {
        if timers() > 0 {
            sleep(SECOND);
        }
    }
    play.must(timers() == 0, || format!("{name} has {} timers", timers()));
    play.must(sum(|metrics| metrics.lingering) == 0, || format!("{name} has lingering sockets"));
    if sum(|metrics| metrics.broadcasts_deferred) > 0 {
        sometimes("a broadcast has waited");
    }
    let panics = sum(|metrics| metrics.io_panics + metrics.tasks_panicked);
    play.must(panics == 0, || format!("{name} has panicked"));
    let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(20 * SECOND);
    let Ok(report) = group.shutdown(options).wait_timeout(PATIENCE) else {
        play.violation(format!("the shutdown of {name} does not end"));
        return Ok(());
    };
    let report = report?;
    let sum = report.graceful + report.incomplete + report.forced;
    play.must(report.channels == sum, || format!("{name}: {report}"));
    Ok(())
}
