//! Tasks of an event loop: submission, scheduling, completion.

mod completion;
mod random_seed;
mod scheduling;
mod scheduling_options;
mod submission;
mod waiting_submission;
