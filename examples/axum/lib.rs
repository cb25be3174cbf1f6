//! An axum application that netwheel serves, with a WebSocket path beside it.
//!
//! - [`app`] is the application. It does not know netwheel, except for the type that has the
//!   client's address.
//! - [`site`] serves it.

pub mod app;
pub mod site;
