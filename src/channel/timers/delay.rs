//! The delay of a scheduled task, and its precision.

use std::time::Duration;

/// The delay of a scheduled task of a channel, and its precision. A `Duration` converts to an
/// [exact](Delay::exact) delay.
///
/// | | [`exact`](Delay::exact) | [`coarse`](Delay::coarse) |
/// |---|---|---|
/// | used for | few timers that must be on time | many timeouts, most of which are cancelled |
/// | late by | the loop's lag, and up to a millisecond if the loop sleeps | also up to one wheel tick |
/// | counts from | the moment of the call, so a clock is read | the time of the turn |
/// | cost of one more | logarithmic in the number of tasks of the loop | constant |
///
/// Neither is ever early. The wheel tick is a setting of the group
/// ([`wheel_tick`](crate::group::EventLoopGroupBuilder::wheel_tick)), 100 ms by default.
///
/// ```
/// # use netwheel::{channel::TaskKey, prelude::*, time::Delay};
/// # use std::time::Duration;
/// # struct Session { answer: Option<TaskKey> }
/// # impl Handler for Session {
/// #   type Read = bytes::Bytes;
/// #   type Write = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, _: bytes::Bytes) -> Result {
/// #       if let Some(answer) = self.answer.take() { ctx.cancel(answer); }
/// #       Ok(())
/// #   }
/// # }
/// # impl Session {
/// # fn ask(&mut self, ctx: &mut Context<'_, Self>) -> Result {
/// ctx.write("are you there?".into())?;
/// self.answer = Some(ctx.schedule(Delay::coarse(Duration::from_secs(5)), |_, ctx| {
///     ctx.close();
///     Ok(())
/// }));
/// # Ok(())
/// # }
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Delay {
    duration: Duration,
    coarse: bool,
}

impl Delay {
    /// Creates a delay with the precision of the loop. The task is an entry of the loop's heap.
    pub const fn exact(duration: Duration) -> Self {
        Delay { duration, coarse: false }
    }

    /// Creates a delay with the precision of the loop's hashed wheel timer.
    ///
    /// Scheduling and cancelling take the same few nanoseconds however many tasks there are. The
    /// task runs at the end of the wheel tick into which its deadline falls.
    #[doc(alias = "timeout")]
    #[doc(alias = "HashedWheelTimer")]
    pub const fn coarse(duration: Duration) -> Self {
        Delay { duration, coarse: true }
    }

    /// Returns the duration of the delay.
    pub const fn duration(self) -> Duration {
        self.duration
    }

    /// Returns whether the delay has only the precision of the wheel.
    pub const fn is_coarse(self) -> bool {
        self.coarse
    }
}

impl From<Duration> for Delay {
    fn from(duration: Duration) -> Self {
        Delay::exact(duration)
    }
}
