//! Cron expressions: the text is parsed to sets of values, and the next run is found by jumping
//! from one value of a set to the next.
//!
//! | module | purpose |
//! |---|---|
//! | `expression`, `error` | the public types |
//! | `parse`, `field` | from the text to a `CronSchedule` |
//! | `schedule`, `days`, `values` | the times of a wall clock that match |
//! | `runs`, `zone` | from times of the wall clock to instants, across changes of the offset |

mod days;
mod error;
mod expression;
mod field;
mod parse;
mod runs;
mod schedule;
mod values;
mod zone;

#[cfg(test)]
mod tests;

pub use error::CronError;
pub use expression::Cron;
pub use field::CronField;
