//! An axum application that netwheel serves, with a WebSocket path beside it.
//!
//! - [`app`] is the application, which does not know its server.
//! - [`site`] serves it.

pub mod app;
pub mod site;
