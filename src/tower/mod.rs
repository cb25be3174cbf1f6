//! HTTP servers that run services of tower, such as the `Router` of axum.
//!
//! A [`TowerServer`] makes the handlers of an [`HttpServer`](crate::http::HttpServer). Each
//! [`ServiceHandler`] has a clone of the service, and calls it for each request with a
//! [`RequestBody`]. The program's futures need an
//! [executor](crate::group::EventLoopGroupBuilder::executor), for example a tokio runtime.
//!
//! Services implement `tower_service::Service` of tower-service 0.3 for the types of http 1 and
//! http-body 1. These are the interfaces of axum 0.8, hyper-util, tower and tower-http.

// Invariants: a connection has one exchange at a time, which is on the loop or on the executor. Its
// parts are written in order: those of the loop first, then those of the executor, and the last one
// on the loop again. What belongs to an exchange is dropped with it.

mod body_feed;

mod head;
mod http_service;
mod remainder;
mod request_body;
mod request_facts;
mod routed;
mod service_call;
mod service_handler;
mod service_settings;
#[cfg(test)]
mod tests;
mod tower_server;

pub use http_service::HttpService;
pub use request_body::RequestBody;
pub use routed::Routed;
pub use service_handler::ServiceHandler;
pub use tower_server::TowerServer;
