//! The end of a channel: the order of events (docs/endings.md), lingering sockets, and connection
//! counts.

mod behind_the_end;
mod counting;
#[cfg(feature = "http")]
mod exchanges;
mod filters;
mod half_close;
mod half_open;
mod lingering;
mod relays;
mod rows;
mod shutdowns;
mod table;
