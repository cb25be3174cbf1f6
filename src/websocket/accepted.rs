//! A connection whose handshake has succeeded.

use crate::{
    http::Response,
    websocket::{
        compression::{Compression, Negotiated},
        connection::{WebSocketPipeline, pipeline},
        role::Role,
        settings::WebSocketSettings,
    },
};
use std::sync::Arc;

/// A connection whose handshake has succeeded, from
/// [`WebSocketServer::accept`](super::WebSocketServer::accept),
/// [`ClientBootstrap::websocket`](crate::ClientBootstrap::websocket) or
/// [`ClientHandshake::check`](super::ClientHandshake::check).
#[derive(Debug, Clone)]
pub struct Accepted {
    pub(super) settings: Arc<WebSocketSettings>,
    pub(super) role: Role,
    pub(super) protocol: Option<Arc<str>>,
    pub(super) negotiated: Option<Negotiated>,
    pub(super) response: Response,
}

impl Accepted {
    /// Returns the response with the status 101. A server writes it; a client has received it.
    pub fn response(&self) -> &Response {
        &self.response
    }

    /// Returns the subprotocol that both ends have agreed on.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Returns whether messages may be compressed.
    pub fn is_compressed(&self) -> bool {
        self.negotiated.is_some()
    }

    /// Returns the response, and the beginning of the pipeline that
    /// [replaces](crate::Context::replace_pipeline) that of HTTP.
    pub fn into_parts(self) -> (Response, WebSocketPipeline) {
        let compression = Compression::from(self.negotiated);
        (self.response, pipeline(&self.settings, self.role, compression))
    }
}
