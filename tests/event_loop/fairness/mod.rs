//! What each kind of work gets of a turn, and what a turn costs.

mod accept_budget;
mod counting;
mod hang_up_while_listed;
mod io;
mod io_ratio;
mod shares;
mod short_reads;
mod spinning;
