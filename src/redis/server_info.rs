//! `ServerInfo`: facts about the server of a connection.

use crate::codec::RespValue;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Facts about the server process of one connection, from its replies to `HELLO` and `INFO`. Cheap
/// to clone.
///
/// They are from the time of the connect. All but the run id may have changed since. If the
/// permissions of the user do not include `INFO`, only the version and the role are known.
#[derive(Clone)]
pub struct ServerInfo(Arc<Facts>);

struct Facts {
    version: Option<String>,
    role: Option<RedisRole>,
    /// The fields of `INFO`.
    fields: BTreeMap<String, String>,
}

/// The role of a server in replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RedisRole {
    /// Accepts writes.
    Master,
    /// Follows a master, and by default refuses writes with `READONLY`.
    Replica,
}

impl RedisRole {
    fn from_text(text: &[u8]) -> Option<Self> {
        match text {
            b"master" => Some(RedisRole::Master),
            b"slave" | b"replica" => Some(RedisRole::Replica),
            _ => None,
        }
    }
}

impl ServerInfo {
    /// Reads the replies to `HELLO` and to `INFO`, which may be an error.
    pub(super) fn read(hello: &RespValue, info: &RespValue) -> Self {
        let text = info.as_bytes().filter(|_| !info.is_error()).map(|text| String::from_utf8_lossy(text));
        let lines = text.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with('#'));
        let fields: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
            .collect();
        let greeting = |name: &str| field_of(hello, name);
        let role = fields.get("role").map(String::as_bytes).or_else(|| greeting("role"));
        let version = || greeting("version").map(|text| String::from_utf8_lossy(text).into_owned());
        ServerInfo(Arc::new(Facts {
            version: fields.get("redis_version").cloned().or_else(version),
            role: role.and_then(RedisRole::from_text),
            fields,
        }))
    }

    /// Returns the id of the server process. Each start of a server has a new one. `None` if it is
    /// unknown.
    pub fn run_id(&self) -> Option<&str> {
        self.field("run_id")
    }

    /// Returns the version of Redis, for example `7.0.15`.
    pub fn version(&self) -> Option<&str> {
        self.0.version.as_deref()
    }

    /// Returns the role in replication.
    pub fn role(&self) -> Option<RedisRole> {
        self.0.role
    }

    /// Returns the setting `maxmemory-policy`. Unless it is `noeviction`, the server may delete
    /// keys when its memory is full.
    pub fn maxmemory_policy(&self) -> Option<&str> {
        self.field("maxmemory_policy")
    }

    /// Returns a field of `INFO`, for example `aof_enabled`.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.0.fields.get(name).map(String::as_str)
    }
}

/// Returns the text of an entry of a map.
fn field_of<'a>(map: &'a RespValue, name: &str) -> Option<&'a [u8]> {
    let RespValue::Map(pairs) = map else { return None };
    let is_name = |key: &RespValue| key.as_bytes().is_some_and(|key| key == name);
    let (_, value) = pairs.iter().find(|(key, _)| is_name(key))?;
    value.as_bytes().map(|text| &text[..])
}

impl fmt::Debug for ServerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerInfo")
            .field("run_id", &self.run_id())
            .field("version", &self.version())
            .field("role", &self.role())
            .field("maxmemory_policy", &self.maxmemory_policy())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> RespValue {
        let pair = |name: &'static str, value: &'static str| {
            (RespValue::Bulk(name.into()), RespValue::Bulk(value.into()))
        };
        RespValue::Map(vec![pair("server", "redis"), pair("version", "7.2.0"), pair("role", "replica")])
    }

    #[test]
    fn facts_come_from_info() {
        let text = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n\r\n# Memory\r\n\
                    maxmemory_policy:noeviction\r\n# Replication\r\nrole:master\r\n";
        let info = ServerInfo::read(&hello(), &RespValue::Verbatim { format: *b"txt", text: text.into() });
        assert_eq!((info.run_id(), info.version()), (Some("abc"), Some("7.0.15")));
        assert_eq!((info.role(), info.maxmemory_policy()), (Some(RedisRole::Master), Some("noeviction")));
        assert_eq!((info.field("none"), info.field("# Server")), (None, None));
    }

    #[test]
    fn without_info_the_greeting_tells_version_and_role() {
        for refused in [RespValue::Error("NOPERM no: permission".into()), RespValue::Null] {
            let info = ServerInfo::read(&hello(), &refused);
            assert_eq!((info.run_id(), info.maxmemory_policy()), (None, None));
            assert_eq!((info.version(), info.role()), (Some("7.2.0"), Some(RedisRole::Replica)));
        }
        let info = ServerInfo::read(&RespValue::Null, &RespValue::Null);
        assert_eq!((info.version(), info.role()), (None, None));
    }
}
