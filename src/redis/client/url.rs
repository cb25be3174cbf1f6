//! URLs of Redis servers.

use crate::{
    error::{Error, Result},
    redis::connection::{Login, RedisTarget},
};
use std::borrow::Cow;

/// The port of Redis.
const PORT: u16 = 6379;

/// A parsed URL.
#[derive(Debug)]
pub(super) struct RedisUrl {
    pub(super) target: RedisTarget,
    pub(super) login: Login,
}

impl RedisUrl {
    /// Parses `redis://[user[:password]@]host[:port][/database]`, the same with `rediss`, or
    /// `unix://[user[:password]@]/path[?db=database]`.
    ///
    /// # Errors
    /// [`Error::Setting`], without the password.
    pub(super) fn parse(url: &str) -> Result<Self> {
        Self::read(url).ok_or_else(|| {
            let allowed = if cfg!(unix) {
                "redis://[user[:password]@]host[:port][/database], rediss://.. or unix:///path[?db=database]"
            } else {
                "redis://[user[:password]@]host[:port][/database] or rediss://.."
            };
            Error::setting("url", without_secrets(url), allowed)
        })
    }

    fn read(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        if scheme.eq_ignore_ascii_case("unix") {
            return Self::read_unix(rest);
        }
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "redis" => false,
            "rediss" => true,
            _ => return None,
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, endpoint) = split_user(authority)?;
        let (host, port) = split_port(endpoint)?;
        let database = if path.is_empty() { 0 } else { number(path)? };
        let login = Login { user, database, client_name: None };
        Some(RedisUrl { target: RedisTarget::Tcp { host: host.into(), port, is_tls }, login })
    }

    #[cfg(unix)]
    fn read_unix(rest: &str) -> Option<Self> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let at = rest.find('/')?;
        let (authority, path) = rest.split_at(at);
        let user = match authority {
            "" => None,
            authority => match split_user(authority)? {
                (user, "") => user,
                _ => return None,
            },
        };
        let database = if query.is_empty() { 0 } else { number(query.strip_prefix("db=")?)? };
        let address = crate::transport::Address::unix(&decode(path)?).ok()?;
        Some(RedisUrl {
            target: RedisTarget::Unix(address),
            login: Login { user, database, client_name: None },
        })
    }

    #[cfg(not(unix))]
    fn read_unix(_: &str) -> Option<Self> {
        None
    }
}

/// Splits the user and the password off.
fn split_user(authority: &str) -> Option<(Option<(String, String)>, &str)> {
    let Some((user, rest)) = authority.rsplit_once('@') else { return Some((None, authority)) };
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let name = decode(name)?.into_owned();
    // Other clients read `redis://:password@host` in this way.
    let name = if name.is_empty() { "default".to_owned() } else { name };
    Some((Some((name, decode(password)?.into_owned())), rest))
}

fn split_port(endpoint: &str) -> Option<(&str, u16)> {
    let (host, port) = match endpoint.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => match endpoint.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (endpoint, None),
        },
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_host) {
        return None;
    }
    match port {
        None => Some((host, PORT)),
        Some(port) => Some((host, number(port).filter(|port| *port != 0)?)),
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Decodes `%41` to `A`.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(text.into());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let [high, low, after @ ..] = rest else { return None };
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        bytes.push((digit(high)? * 16 + digit(low)?) as u8);
        rest = after;
    }
    String::from_utf8(bytes).ok().map(Cow::from)
}

/// Returns the URL with `***` in the place of user and password.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    match rest.rsplit_once('@') {
        Some((_, endpoint)) => format!("{scheme}***@{endpoint}"),
        None => format!("{scheme}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> (String, Option<(String, String)>, u32) {
        let RedisUrl { target, login } = RedisUrl::parse(url).unwrap();
        let target = match target {
            RedisTarget::Tcp { host, port, is_tls } => {
                format!("{host} {port}{}", if is_tls { " tls" } else { "" })
            }
            #[cfg(unix)]
            RedisTarget::Unix(address) => address.to_string(),
        };
        (target, login.user, login.database)
    }

    #[test]
    fn urls_name_a_server_a_user_and_a_database() {
        let user = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        for (url, expected) in [
            ("redis://localhost", ("localhost 6379", None, 0)),
            ("redis://localhost/", ("localhost 6379", None, 0)),
            ("REDISS://redis.example:6380/15", ("redis.example 6380 tls", None, 15)),
            ("redis://127.0.0.1:7000", ("127.0.0.1 7000", None, 0)),
            ("redis://[::1]:7000/1", ("::1 7000", None, 1)),
            ("redis://[::1]", ("::1 6379", None, 0)),
            ("redis://bob:p%40ss@host", ("host 6379", user("bob", "p@ss"), 0)),
            ("redis://:pw@host:1", ("host 1", user("default", "pw"), 0)),
            ("redis://bob:a:b@host", ("host 6379", user("bob", "a:b"), 0)),
        ] {
            let (target, user, database) = parsed(url);
            assert_eq!((target.as_str(), user, database), expected, "{url}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn urls_name_unix_sockets() {
        assert_eq!(parsed("unix:///run/redis.sock"), ("unix:/run/redis.sock".into(), None, 0));
        let user = Some(("default".to_owned(), "pw".to_owned()));
        assert_eq!(parsed("unix://:pw@/run/a%20b?db=2"), ("unix:/run/a b".into(), user, 2));
    }

    #[test]
    fn other_texts_are_refused_without_their_secrets() {
        for url in [
            "",
            "localhost:6379",
            "http://localhost",
            "redis://",
            "redis://:pw@",
            "redis://host:0",
            "redis://host:65536",
            "redis://host:x",
            "redis://host/x",
            "redis://host/-1",
            "redis://[::1",
            "redis://[host]",
            "redis://bob:pw%4@host",
            "redis://bob:pw%zz@host",
            "redis://ho st",
            "unix://host/path",
            "unix://:pw@",
            "unix:///path?db=x",
        ] {
            let error = RedisUrl::parse(url).unwrap_err();
            assert!(matches!(error, Error::Setting(_)), "{url}");
            assert!(!error.to_string().contains("pw"), "{error}");
        }
    }
}
