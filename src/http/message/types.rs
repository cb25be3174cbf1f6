//! Conversions to and from the types of the crate `http`.

use super::{
    body::Body, headers::Headers, part::FullMessage, request::Request, response::Response,
    status_code::StatusCode, version::Version,
};
use crate::{
    error::{Error, Result},
    http::syntax::trim,
};
use bytes::Bytes;
use http_types::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};

impl From<Version> for http_types::Version {
    fn from(version: Version) -> Self {
        match version {
            Version::Http10 => http_types::Version::HTTP_10,
            Version::Http11 => http_types::Version::HTTP_11,
        }
    }
}

impl From<StatusCode> for http_types::StatusCode {
    fn from(status: StatusCode) -> Self {
        // Both types accept 100 to 999.
        http_types::StatusCode::from_u16(status.as_u16()).unwrap_or_default()
    }
}

impl From<http_types::StatusCode> for StatusCode {
    fn from(status: http_types::StatusCode) -> Self {
        StatusCode::new(status.as_u16()).unwrap_or(StatusCode::OK)
    }
}

/// Copies the fields. Values of fields that were parsed or [shared](Headers::shared) share their
/// memory.
///
/// # Errors
/// [`Error::Other`] if the crate `http` does not accept a field.
impl TryFrom<&Headers> for HeaderMap {
    type Error = Error;

    fn try_from(headers: &Headers) -> Result<Self> {
        if let Some(name) = headers.invalid() {
            return Err(Error::other(format!("the field {name:?} is not valid")));
        }
        let mut map = HeaderMap::with_capacity(headers.line_count());
        for (name, value) in headers.fields() {
            let name = HeaderName::from_bytes(name).map_err(Error::other)?;
            let value = match headers.shared_slice(value) {
                Some(shared) => HeaderValue::from_maybe_shared(shared),
                None => HeaderValue::from_bytes(value),
            };
            map.append(name, value.map_err(Error::other)?);
        }
        Ok(map)
    }
}

impl From<&HeaderMap> for Headers {
    /// Copies the fields, except for the fields that describe the body: see [`Body`].
    fn from(map: &HeaderMap) -> Self {
        let describes_body = |name: &HeaderName| *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING;
        let fields = || map.iter().filter(|(name, _)| !describes_body(name));
        // The map has checked the fields, except for spaces around a value.
        let length = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
        let mut lines = Vec::with_capacity(fields().map(length).sum());
        for (name, value) in fields() {
            for part in [name.as_str().as_bytes(), b": ", trim(value.as_bytes()), b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        Headers::built(lines)
    }
}

const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Removes `close` from the elements of `Connection`. Returns whether it was one.
fn take_close(headers: &mut Headers) -> bool {
    if !headers.has_token("connection", "close") {
        return false;
    }
    let kept = headers.without_token("connection", "close");
    headers.remove("connection");
    if !kept.is_empty() {
        headers.add("Connection", kept);
    }
    true
}

/// Converts the head, sharing its memory where possible; the body stays behind.
///
/// # Errors
/// [`Error::Other`] if the crate `http` does not accept the target or a header.
impl TryFrom<&Request> for http_types::Request<()> {
    type Error = Error;

    fn try_from(request: &Request) -> Result<Self> {
        let mut converted = http_types::Request::new(());
        *converted.method_mut() = request.method().parse().map_err(Error::other)?;
        *converted.uri_mut() = Uri::from_maybe_shared(request.target_bytes()).map_err(Error::other)?;
        *converted.version_mut() = request.version().into();
        *converted.headers_mut() = request.headers().try_into()?;
        let closes = !request.is_keep_alive() && request.version() == Version::Http11;
        if closes && !request.headers().has_token("connection", "close") {
            converted.headers_mut().append(http_types::header::CONNECTION, CLOSE);
        }
        Ok(converted)
    }
}

/// Converts a whole request.
///
/// # Errors
/// [`Error::Other`] if the crate `http` does not accept the head.
impl TryFrom<FullMessage<Request>> for http_types::Request<Bytes> {
    type Error = Error;

    fn try_from(message: FullMessage<Request>) -> Result<Self> {
        Ok(http_types::Request::<()>::try_from(&message.head)?.map(|()| message.body))
    }
}

impl<B: Into<Bytes>> From<http_types::Request<B>> for Request {
    /// Converts a request with its whole body. The target is that of the URI without scheme and
    /// authority, which become `Host` unless there is one. For CONNECT, the authority is the
    /// target. User information is dropped. `Connection: close` becomes [`Request::close`].
    fn from(request: http_types::Request<B>) -> Self {
        let (parts, body) = request.into_parts();
        // A server must not get user information (RFC 9110, section 4.2.4).
        let host = parts.uri.authority().map(|authority| match authority.as_str().rsplit_once('@') {
            Some((_, host)) => host,
            None => authority.as_str(),
        });
        let target = match host {
            Some(host) if parts.method == http_types::Method::CONNECT => host,
            _ => parts.uri.path_and_query().map_or("/", |target| target.as_str()),
        };
        let mut converted = Request::new(parts.method.as_str(), target);
        *converted.headers_mut() = (&parts.headers).into();
        if let Some(host) = host
            && !converted.headers().contains("host")
        {
            converted.headers_mut().add("Host", host);
        }
        if take_close(converted.headers_mut()) {
            converted = converted.close();
        }
        let bytes = body.into();
        if bytes.is_empty() { converted } else { converted.body(bytes) }
    }
}

/// Copies the head; the body stays behind.
///
/// # Errors
/// [`Error::Other`] if the crate `http` does not accept a header.
impl TryFrom<&Response> for http_types::Response<()> {
    type Error = Error;

    fn try_from(response: &Response) -> Result<Self> {
        let mut converted = http_types::Response::new(());
        *converted.status_mut() = response.status().into();
        *converted.version_mut() = response.version().into();
        *converted.headers_mut() = response.headers().try_into()?;
        if response.closes() && !response.headers().has_token("connection", "close") {
            converted.headers_mut().append(http_types::header::CONNECTION, CLOSE);
        }
        Ok(converted)
    }
}

/// Converts a whole response.
///
/// # Errors
/// [`Error::Other`] if the crate `http` does not accept the head.
impl TryFrom<FullMessage<Response>> for http_types::Response<Bytes> {
    type Error = Error;

    fn try_from(message: FullMessage<Response>) -> Result<Self> {
        Ok(http_types::Response::<()>::try_from(&message.head)?.map(|()| message.body))
    }
}

impl<B: Into<Bytes>> From<http_types::Response<B>> for Response {
    /// Converts a response with its whole body. `Connection: close` becomes [`Response::close`].
    fn from(response: http_types::Response<B>) -> Self {
        let (parts, body) = response.into_parts();
        let mut converted = Response::new(parts.status.into()).with_headers((&parts.headers).into());
        if take_close(converted.headers_mut()) {
            converted = converted.close();
        }
        let bytes = body.into();
        if bytes.is_empty() { converted } else { converted.body(Body::Full(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_both_conversions() {
        let request = Request::get("/rooms?first=1").header("Host", "example.org").header("X-A", "b");
        let converted = http_types::Request::<()>::try_from(&request).unwrap();
        assert_eq!((converted.method().as_str(), converted.uri().path()), ("GET", "/rooms"));
        let back = Request::from(converted.map(|()| Bytes::new()));
        assert_eq!(back, request);
    }

    #[test]
    fn scheme_and_authority_become_the_host() {
        let request = http_types::Request::post("http://example.org:81/a?b").body("hi").unwrap();
        let request = Request::from(request);
        assert_eq!((request.target(), request.headers().text("host")), ("/a?b", Some("example.org:81")));
        assert_eq!(request.announced_body(), &Body::Full("hi".into()));
    }

    #[test]
    fn connect_keeps_its_authority() {
        let request = http_types::Request::builder().method("CONNECT").uri("a.example:443").body("").unwrap();
        let request = Request::from(request);
        assert_eq!((request.method(), request.target()), ("CONNECT", "a.example:443"));
        assert_eq!(request.headers().text("host"), Some("a.example:443"));
    }

    #[test]
    fn user_information_is_not_sent() {
        let request = http_types::Request::get("http://ann:secret@example.org:81/").body("").unwrap();
        let request = Request::from(request);
        assert_eq!(request.headers().text("host"), Some("example.org:81"));
        assert!(!format!("{request:?}").contains("secret"));
    }

    #[test]
    fn the_end_of_the_connection_is_converted() {
        let request = http_types::Request::get("/").header("Connection", "x, close").body("").unwrap();
        let request = Request::from(request);
        assert!(!request.is_keep_alive());
        assert_eq!(request.headers().text("connection"), Some("x"));
        let response = http_types::Response::builder().header("Connection", "Close").body("").unwrap();
        let response = Response::from(response);
        assert!(response.closes() && response.headers().is_empty());
        let back = http_types::Response::<()>::try_from(&response).unwrap();
        assert_eq!(back.headers()["connection"], "close");
    }

    #[test]
    fn a_response_keeps_its_fields_but_not_its_length() {
        let response = http_types::Response::builder()
            .status(404)
            .header("X-A", "b")
            .header("Content-Length", "9")
            .body("none")
            .unwrap();
        let response = Response::from(response);
        assert_eq!((response.status(), response.headers().len()), (StatusCode::NOT_FOUND, 1));
        let converted = http_types::Response::<()>::try_from(&response).unwrap();
        assert_eq!(converted.headers()["x-a"], "b");
    }
}
