//! Replacing the pipeline of a channel: C-03, C-10, C-15, C-17, C-24, D-03 to D-05, D-08 and D-10,
//! in a form in which pipelines are types.

mod end_of_stream;
mod failures;
mod handles;
mod taking_over;
mod what_goes;
mod what_stays;
