//! `ClockWatch`: notices when the wall clock is set.

/// A difference between the two clocks that counts as a jump, in milliseconds. Slewing and rounding
/// stay below it.
const JUMP: i64 = 500;

/// Compares the wall clock with the monotonic one.
#[derive(Debug, Default)]
pub(super) struct ClockWatch {
    last: Option<(i64, u64)>,
}

impl ClockWatch {
    /// Takes both clocks, in milliseconds and nanoseconds. Returns by how many milliseconds the
    /// wall clock has jumped since the last call, if it has.
    pub(super) fn observe(&mut self, wall: i64, monotonic: u64) -> Option<i64> {
        let (last_wall, last_monotonic) = self.last.replace((wall, monotonic))?;
        let passed = i64::try_from(monotonic.saturating_sub(last_monotonic) / 1_000_000).unwrap_or(i64::MAX);
        let jump = wall.saturating_sub(last_wall).saturating_sub(passed);
        (jump.abs() >= JUMP).then_some(jump)
    }
}
