//! The directory: who is logged in, where, and since when; asked through a call that blocks.
//!
//! The sleep in it stands for a database, which this program has none of: a real one would be asked here, and take its time in
//! the same way. Runs on the threads of the worker pool; never on a loop, which would stand still meanwhile.

use crate::hub::{Hub, Profile};
use std::{thread, time::Duration};

/// Who that user is, at the time of the answer; blocks for `time`.
pub(crate) fn look_up(hub: &Hub, time: Duration, user: &str) -> Profile {
    thread::sleep(time);
    hub.profile(user)
}
