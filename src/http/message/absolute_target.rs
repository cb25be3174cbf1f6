//! Absolute targets: the URL of a request.

use super::request::Request;
use crate::http::syntax::is_host;
use bytes::{BufMut, BytesMut};
use std::borrow::Cow;

/// The parts of an absolute target, such as `http://example.org:81/a?b`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AbsoluteTarget<'a> {
    /// The scheme as it was sent, in any case.
    pub(crate) scheme: &'a str,
    /// Host and port, as for `Host`.
    pub(crate) authority: &'a str,
    /// The target for the server of this authority.
    pub(crate) origin_form: Cow<'a, str>,
}

impl Request {
    /// Returns the parts of an absolute target. `None` for other targets, for an invalid authority,
    /// and for user information, which must not be sent (RFC 9110, section 4.2.4).
    pub(crate) fn absolute_target(&self) -> Option<AbsoluteTarget<'_>> {
        let target = self.target();
        let (scheme, rest) = target.split_once("://").filter(|_| !target.starts_with('/'))?;
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if self.method() == "CONNECT" || authority.is_empty() || !is_host(authority.as_bytes()) {
            return None;
        }
        let origin_form = match path {
            // RFC 9112, section 3.2.4.
            "" if self.method() == "OPTIONS" => "*".into(),
            "" => "/".into(),
            _ if path.starts_with('/') => path.into(),
            query => format!("/{query}").into(),
        };
        Some(AbsoluteTarget { scheme, authority, origin_form })
    }

    /// Replaces the target. An invalid one makes writing the request fail.
    pub fn with_target(mut self, target: &str) -> Self {
        let method = self.method();
        let mut line = BytesMut::with_capacity(method.len() + 1 + target.len());
        line.put_slice(method.as_bytes());
        line.put_u8(b' ');
        line.put_slice(target.as_bytes());
        self.set_line(line.freeze());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(target: &str) -> Option<(String, String, String)> {
        let request = Request::get(target);
        let parts = request.absolute_target()?;
        Some((parts.scheme.into(), parts.authority.into(), parts.origin_form.into_owned()))
    }

    #[test]
    fn an_absolute_target_is_split_into_authority_and_origin_form() {
        for (target, authority, origin_form) in [
            ("http://a", "a", "/"),
            ("http://a/", "a", "/"),
            ("http://a:81/b?c=http://d/", "a:81", "/b?c=http://d/"),
            ("http://a?b", "a", "/?b"),
            ("http://[::1]:81/#x", "[::1]:81", "/"),
        ] {
            let expected = Some(("http".into(), authority.into(), origin_form.into()));
            assert_eq!(parts(target), expected, "{target}");
        }
        for target in ["/a", "*", "a:80", "/http://a/", "http://", "http:///a", "http://u@a/", "http://a b/"]
        {
            assert_eq!(parts(target), None, "{target}");
        }
        let options = Request::new("OPTIONS", "http://a");
        assert_eq!(options.absolute_target().unwrap().origin_form, "*");
    }

    #[test]
    fn a_replaced_target_keeps_the_method() {
        let request = Request::new("PUT", "http://a/b").with_target("/b?c");
        assert_eq!((request.method(), request.path(), request.query()), ("PUT", "/b", Some("c")));
    }
}
