//! What the stages of a server's connections share.

use crate::{
    error::caught,
    http::{Request, Response, StatusCode, settings::HttpSettings},
    log_throttle::{PANICS, log_throttled, off_loop},
};
use log::Level;
use std::{fmt, ops::Deref, sync::Arc};

type ErrorPages = Arc<dyn Fn(StatusCode) -> Response + Send + Sync>;

type IsDeferrable = Arc<dyn Fn(&Request) -> bool + Send + Sync>;

/// The settings of a server, and its error pages.
#[derive(Clone, Default)]
pub(super) struct HttpServerSettings {
    pub(super) http: HttpSettings,
    pub(super) error_pages: Option<ErrorPages>,
    /// `None` for requests that open a WebSocket.
    pub(super) is_deferrable: Option<IsDeferrable>,
}

impl HttpServerSettings {
    /// Returns whether an overloaded loop may refuse the request. A predicate that panics keeps the
    /// request.
    pub(super) fn is_deferrable(&self, request: &Request) -> bool {
        let Some(decide) = &self.is_deferrable else {
            return request.upgrades() && request.is_upgrade("websocket");
        };
        let mut is_deferrable = false;
        if let Some(message) = caught(|| is_deferrable = decide(request)) {
            let at = off_loop();
            log_throttled!(
                at,
                PANICS,
                Level::Error,
                "the predicate of deferrable requests panicked: {message}"
            );
        }
        is_deferrable
    }

    /// Returns the pages for an error that the server answers by itself, after which the connection
    /// closes.
    pub(super) fn error_pages(&self, status: StatusCode) -> impl Iterator<Item = Response> + use<> {
        self.pages(status).map(Response::close)
    }

    /// Returns the pages for a status that the server answers by itself: that of the program, if
    /// there is one, and the default page, in case the first one cannot be sent.
    pub(super) fn pages(&self, status: StatusCode) -> impl Iterator<Item = Response> + use<> {
        let mut page = None;
        if let Some(make) = &self.error_pages
            && let Some(message) = caught(|| page = Some(make(status)))
        {
            log_throttled!(
                off_loop(),
                PANICS,
                Level::Error,
                "the error page for {status} panicked: {message}"
            );
        }
        // A page is sent at once, so nothing could follow it.
        let page = page.filter(|page| !page.announced_body().is_streamed());
        let pages = page.into_iter().chain([Response::from(status)]);
        pages.map(move |page| page.with_status(status))
    }
}

impl Deref for HttpServerSettings {
    type Target = HttpSettings;

    #[inline]
    fn deref(&self) -> &HttpSettings {
        &self.http
    }
}

impl fmt::Debug for HttpServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServerSettings").field("http", &self.http).finish_non_exhaustive()
    }
}
