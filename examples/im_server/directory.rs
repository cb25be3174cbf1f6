//! The directory: looks up a user's login time and rooms with a blocking call.
//!
//! The sleep stands for a database query, which would block in the same way. Runs on the threads of
//! the worker pool and never on a loop, because a blocked loop serves none of its channels.

use crate::{hub::Hub, login::users::Profile};
use std::{thread, time::Duration};

/// Returns the directory entry of `user` at the time of the answer. Blocks for `time`.
pub(crate) fn look_up(hub: &Hub, time: Duration, user: &str) -> Profile {
    thread::sleep(time);
    hub.profile(user)
}
