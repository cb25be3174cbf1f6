//! What a program decides for each topic: lateness, failures, crashes.

mod delivery;
mod keep_dead;
mod late;
mod retry;

pub use delivery::Delivery;
pub(in crate::durable) use keep_dead::KeepDead;
pub use late::Late;
pub use retry::Retry;
