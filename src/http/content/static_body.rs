//! Bodies that do not change, with validators for caches.

use crate::http::{Body, Headers, Request, Response, StatusCode, syntax::trim};
use bytes::Bytes;

/// A body that does not change while the server runs, such as a page or a script in the binary.
///
/// Its `ETag` is a hash of the bytes, so browsers that have the body get `304 Not Modified`
/// instead of it. Clones share the bytes.
///
/// ```
/// use netwheel::http::{Request, StaticBody, StatusCode};
///
/// let page = StaticBody::new("text/html; charset=utf-8", "<!doctype html>");
/// let response = page.respond(&Request::get("/"));
/// let etag = response.headers().get("etag").unwrap();
/// let again = page.respond(&Request::get("/").header("If-None-Match", etag));
/// assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
/// ```
#[derive(Debug, Clone)]
pub struct StaticBody {
    bytes: Bytes,
    etag: String,
    headers: Headers,
}

impl StaticBody {
    /// Returns a body of this media type. Caches ask the server each time whether it has changed.
    pub fn new(media_type: &str, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let etag = format!("\"{:x}-{:016x}\"", bytes.len(), fnv1a(&bytes));
        let headers = Headers::new()
            .with("Content-Type", media_type)
            .with("ETag", &etag)
            .with("Cache-Control", "no-cache");
        StaticBody { bytes, etag, headers }
    }

    /// Sets a header of the responses 200 and 304, for example another `Cache-Control`, or a
    /// `Content-Security-Policy`. Replaces an earlier value. Another `ETag` is also the one with
    /// which `If-None-Match` is compared.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if name.eq_ignore_ascii_case("etag") {
            self.etag = value.to_owned();
        }
        self.headers.set(name, value);
        self
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the entity tag.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// Returns the response to a request: the body, or 304 if the client has it. Methods other than
    /// GET and HEAD get 405.
    pub fn respond(&self, request: &Request) -> Response {
        if !matches!(request.method(), "GET" | "HEAD") {
            return Response::from(StatusCode::METHOD_NOT_ALLOWED).header("Allow", "GET, HEAD");
        }
        // A weak comparison (RFC 9110, section 13.1.2).
        let is_known = request
            .headers()
            .all("if-none-match")
            .flat_map(entity_tags)
            .any(|tag| tag == b"*" || opaque(tag) == opaque(self.etag.as_bytes()));
        if is_known {
            return Response::new(StatusCode::NOT_MODIFIED).with_headers(self.headers.clone());
        }
        Response::ok(Body::Full(self.bytes.clone())).with_headers(self.headers.clone())
    }
}

/// Returns the entity tags of a list. A comma in quotes is part of a tag.
fn entity_tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let ends_tag = move |byte: &u8| {
        is_quoted ^= *byte == b'"';
        *byte == b',' && !is_quoted
    };
    value.split(ends_tag).map(trim).filter(|tag| !tag.is_empty())
}

/// Returns an entity tag without the mark of a weak one.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Returns the 64-bit FNV-1a hash. It changes with any accidental change of the bytes, and is the
/// same in all builds.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(body: &StaticBody, request: Request) -> u16 {
        body.respond(&request).status().as_u16()
    }

    #[test]
    fn a_client_that_has_the_body_does_not_get_it_again() {
        let body = StaticBody::new("text/plain", "hello");
        let other = StaticBody::new("text/plain", "hellp");
        assert_ne!(body.etag(), other.etag());
        let with = |tags: &str| Request::get("/").header("If-None-Match", tags);
        assert_eq!(status(&body, Request::get("/")), 200);
        assert_eq!(status(&body, with(body.etag())), 304);
        assert_eq!(status(&body, with(&format!("\"x\", W/{}", body.etag()))), 304);
        assert_eq!(status(&body, with("*")), 304);
        assert_eq!(status(&body, with(other.etag())), 200);
        assert_eq!(status(&body, Request::new("POST", "/")), 405);
    }

    #[test]
    fn both_responses_have_the_validator_and_the_headers() {
        let body = StaticBody::new("text/plain", "hello").header("Cache-Control", "max-age=60");
        for request in [Request::get("/"), Request::get("/").header("If-None-Match", "*")] {
            let response = body.respond(&request);
            assert_eq!(response.headers().text("etag"), Some(body.etag()));
            assert_eq!(response.headers().text("cache-control"), Some("max-age=60"));
        }
    }

    #[test]
    fn another_entity_tag_is_the_one_that_is_compared() {
        for etag in ["\"v7\"", "W/\"v7\"", "\"a,b\""] {
            let body = StaticBody::new("text/plain", "hello").header("etag", etag);
            assert_eq!(body.etag(), etag);
            let sent = body.respond(&Request::get("/")).headers().text("etag").unwrap().to_owned();
            assert_eq!(sent, etag);
            let several = format!("\"x\", , {sent} ,\"y,z\"");
            for known in [sent, several] {
                assert_eq!(status(&body, Request::get("/").header("If-None-Match", known)), 304);
            }
            let hash = StaticBody::new("text/plain", "hello").etag().to_owned();
            assert_eq!(status(&body, Request::get("/").header("If-None-Match", hash)), 200);
        }
    }
}
