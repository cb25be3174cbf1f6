//! The pages, with a strict Content-Security-Policy.
//!
//! A page is one file in the binary. It may run the one script and use the one style sheet that it
//! contains, which the policy identifies by their hashes, and may connect to this server only.

use base64::{Engine, prelude::BASE64_STANDARD};
use netwheel::http::StaticBody;
use sha2::{Digest, Sha256};

pub(crate) struct Pages {
    pub(crate) chat: StaticBody,
    pub(crate) dashboard: StaticBody,
}

impl Pages {
    pub(crate) fn new() -> Self {
        Pages {
            chat: page(include_str!("../pages/chat.html")),
            dashboard: page(include_str!("../pages/dashboard.html")),
        }
    }
}

fn page(html: &'static str) -> StaticBody {
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash_of(html, "script"),
        hash_of(html, "style"),
    );
    StaticBody::new("text/html; charset=utf-8", html)
        .header("Content-Security-Policy", &policy)
        .header("X-Content-Type-Options", "nosniff")
        .header("Referrer-Policy", "no-referrer")
}

/// Returns the hash of the content of the page's only `element`, as a source of the policy.
fn hash_of(html: &str, element: &str) -> String {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let content = html.split_once(&open).and_then(|(_, rest)| rest.split_once(&close));
    match content {
        Some((content, _)) => format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(content))),
        None => "'none'".to_owned(),
    }
}
