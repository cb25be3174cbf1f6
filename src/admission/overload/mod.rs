//! Overload control of one loop: which deferrable work it admits while it misses its target.
//!
//! The target is a time from readable to handled. The controller measures the delay of each turn,
//! without further readings of the clock. While the loop misses the target, it limits the classes
//! of [`Work`], one after the other. `WorkLimits` applies the limits, on any thread.
//!
//! Invariants: a later class is limited only while all earlier ones are at their lowest limit. A
//! loop that meets its target for a while lifts all limits. Pure apart from atomic counters: times
//! are arguments, in nanoseconds.

mod controller;
mod work;
mod work_limits;

pub(crate) use controller::OverloadController;
pub use work::Work;
pub(crate) use work_limits::WorkLimits;
