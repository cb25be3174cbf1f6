//! Timers: the stand-alone hashed wheel timer, and the idle events, timeouts and time limits of
//! channels.

#[path = "../support/mod.rs"]
mod support;

mod first_byte;
mod hashed_wheel_timer;
mod hashed_wheel_timer_count;
mod hashed_wheel_timer_firing;
mod hashed_wheel_timer_stress;
mod idle;
mod idle_asked_for;
mod model;
mod time_limits;
mod timeouts;
mod unread_input;
