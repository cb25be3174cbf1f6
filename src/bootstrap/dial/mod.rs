//! How clients, reconnecting clients and pools find and choose the address of a server.
//!
//! `dialer` looks names up and remembers their addresses. `race` connects to the addresses of one
//! name as RFC 8305 (Happy Eyeballs) describes.

mod dialer;
mod race;

pub(super) use dialer::{Dialer, Target};
pub(super) use race::{ConnectOne, Race, check_attempt_delay};
