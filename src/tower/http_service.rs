//! `HttpService`: the services that a server can run.

use super::request_body::RequestBody;
use crate::error::BoxError;
use http_body::Body;
use http_types::{Request, Response};
use tower_service::Service;

/// A service that a [`TowerServer`](super::TowerServer) can run.
///
/// Implemented for each `tower_service::Service` that takes a `http::Request<RequestBody>`, and
/// whose response has any `http_body::Body`. Programs do not implement it themselves.
pub trait HttpService:
    Service<
        Request<RequestBody>,
        Response = Response<Self::ResponseBody>,
        Error: Into<BoxError>,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
    /// The body of its responses.
    type ResponseBody: Body<Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type ResponseBody = B;
}
