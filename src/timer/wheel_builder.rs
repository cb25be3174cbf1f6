//! The settings of a wheel and their validation.

use std::time::Duration;

use super::wheel::Wheel;
use crate::error::{Error, Result};

const DEFAULT_TICK: Duration = Duration::from_millis(100);
const DEFAULT_SLOTS: usize = 512;
/// The shortest tick. A poll could not resolve finer ticks: epoll counts milliseconds.
const MIN_TICK: Duration = Duration::from_millis(1);
/// The largest number of slots. Level 0 then takes 520 KiB and spans 109 minutes of 100 ms ticks.
/// More slots would gain nothing.
const MAX_SLOTS: usize = 1 << 16;

/// Settings of a [`Wheel`]; see [`Wheel::builder`].
///
/// ```
/// use std::time::Duration;
/// use netwheel::timer::{Wheel, WheelBuilder};
///
/// # fn main() -> netwheel::Result {
/// let wheel: Wheel<u64> = WheelBuilder::default()
///     .tick(Duration::from_millis(20))
///     .slots(1000)
///     .build()?;
/// assert_eq!(wheel.slots(), 1024);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct WheelBuilder {
    tick: Duration,
    slots: usize,
}

impl WheelBuilder {
    /// Sets the length of a tick. The default is 100 ms.
    ///
    /// Timeouts are late by up to one tick. A tick below 1 ms is raised to 1 ms, and a warning is
    /// logged.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the number of slots per level. The default is 512, the maximum 65,536.
    ///
    /// The number is rounded up to a power of two, at least 2. A slot takes 8 bytes on level 0 and
    /// 16 bytes on further levels. With more slots, fewer entries have to be moved down from a
    /// higher level.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// Builds the wheel, empty and at time 0.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if `slots` is 0 or more than 65,536. Also if `tick` is zero, or not less
    /// than `i64::MAX` nanoseconds divided by the number of slots.
    pub fn build<T>(self) -> Result<Wheel<T>> {
        if self.slots == 0 || self.slots > MAX_SLOTS {
            return Err(Error::setting("slots", self.slots, "1 to 65536"));
        }
        let slots = self.slots.next_power_of_two().max(2);
        let nanos = self.tick.as_nanos();
        if nanos == 0 || nanos >= i64::MAX as u128 / slots as u128 {
            return Err(Error::setting(
                "tick",
                format_args!("{:?}", self.tick),
                "more than zero, and less than i64::MAX nanoseconds / slots",
            ));
        }
        if self.tick < MIN_TICK {
            log::warn!("wheel tick {:?} raised to {MIN_TICK:?}", self.tick);
        }
        let tick_ns = nanos.max(MIN_TICK.as_nanos()) as u64;
        Ok(Wheel::with(tick_ns, slots))
    }
}

impl<T> Wheel<T> {
    /// Returns a builder with a tick of 100 ms and 512 slots.
    pub fn builder() -> WheelBuilder {
        WheelBuilder::default()
    }
}

impl Default for WheelBuilder {
    fn default() -> Self {
        Self { tick: DEFAULT_TICK, slots: DEFAULT_SLOTS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(builder: WheelBuilder) -> &'static str {
        match builder.build::<()>() {
            Err(Error::Setting(setting)) => setting.setting(),
            _ => panic!("not refused as a setting"),
        }
    }

    #[test]
    fn w_01_defaults() {
        let wheel: Wheel<()> = Wheel::<()>::builder().build().unwrap();
        assert_eq!(wheel.tick(), Duration::from_millis(100));
        assert_eq!(wheel.slots(), 512);
        assert!(wheel.is_empty());
    }

    #[test]
    fn w_02_slots_are_rounded_up_to_a_power_of_two() {
        for (asked, given) in [(1, 2), (2, 2), (3, 4), (512, 512), (513, 1024)] {
            let wheel: Wheel<()> = WheelBuilder::default().slots(asked).build().unwrap();
            assert_eq!(wheel.slots(), given);
        }
    }

    #[test]
    fn w_03_settings_out_of_range_are_refused() {
        let new = WheelBuilder::default;
        assert_eq!(refused(new().tick(Duration::ZERO)), "tick");
        assert_eq!(refused(new().tick(Duration::MAX)), "tick");
        assert_eq!(refused(new().slots(0)), "slots");
        assert_eq!(refused(new().slots(MAX_SLOTS + 1)), "slots");
        assert_eq!(refused(new().slots(usize::MAX)), "slots");

        let limit = Duration::from_nanos(i64::MAX as u64 / 4);
        assert_eq!(refused(new().slots(3).tick(limit)), "tick");
        let below = limit - Duration::from_nanos(1);
        assert!(new().slots(3).tick(below).build::<()>().is_ok());
    }

    #[test]
    fn w_04_a_tick_below_one_millisecond_is_raised() {
        let wheel: Wheel<()> = WheelBuilder::default().tick(Duration::from_micros(10)).build().unwrap();
        assert_eq!(wheel.tick(), MIN_TICK);
    }
}
