//! What a program decides for each topic: lateness, failures, crashes.

mod delivery;
mod late;
mod retry;

pub use delivery::Delivery;
pub use late::Late;
pub use retry::Retry;
