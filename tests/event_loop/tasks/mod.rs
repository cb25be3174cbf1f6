//! Tasks of an event loop: submitted, scheduled, waited for.

mod completion;
mod random_seed;
mod scheduling;
mod scheduling_options;
mod submission;
mod waiting_submission;
