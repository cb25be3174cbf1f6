//! The end of a channel: the order of events (docs/endings.md), lingering sockets, and connection
//! counts.

mod counting;
mod half_close;
mod half_open;
mod lingering;
mod table;
