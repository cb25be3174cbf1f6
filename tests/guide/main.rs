//! The code of the guide: its programs are run, and its tests are tests.

#[path = "../support/mod.rs"]
mod support;

mod codec;
mod gateway;
mod login;
mod programs;
mod relogin;
