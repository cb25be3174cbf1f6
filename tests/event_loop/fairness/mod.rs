//! Shares of a turn for each kind of work, and the cost of a turn.

mod accept_budget;
mod counting;
mod hang_up_while_listed;
mod io;
mod io_ratio;
mod shares;
mod short_reads;
mod spinning;
