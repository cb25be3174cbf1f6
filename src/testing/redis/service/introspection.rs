//! `INFO` and `ROLE`.

use super::super::{process::ProcessCondition, settings::Persistence, state::State};
use crate::codec::RespValue;
use bytes::Bytes;

/// The version of Redis whose replies are simulated.
pub(in crate::testing::redis) const VERSION: &str = "7.0.15";

fn bulk(text: impl Into<Bytes>) -> RespValue {
    RespValue::Bulk(text.into())
}

/// Returns the sections with these names, or all of them.
pub(super) fn info(state: &State, names: &[Bytes]) -> RespValue {
    let is_wanted = |section: &str| {
        let is_all = |name: &Bytes| {
            ["all", "default", "everything"].iter().any(|all| name.eq_ignore_ascii_case(all.as_bytes()))
        };
        names.is_empty()
            || names.iter().any(|name| is_all(name) || name.eq_ignore_ascii_case(section.as_bytes()))
    };
    let process = &state.process;
    let offset = state.disk.end();
    let is_replica = process.conditions.is_read_only;
    let sections = [
        (
            "Server",
            format!("redis_version:{VERSION}\r\nredis_mode:standalone\r\nrun_id:{}\r\n", process.run_id),
        ),
        ("Clients", format!("connected_clients:{}\r\n", process.sessions.len())),
        ("Memory", format!("maxmemory_policy:{}\r\n", state.settings.maxmemory_policy)),
        (
            "Persistence",
            format!(
                "loading:{}\r\naof_enabled:{}\r\n",
                u8::from(process.conditions.has(ProcessCondition::Loading)),
                u8::from(state.settings.persistence != Persistence::Never)
            ),
        ),
        (
            "Replication",
            format!(
                "role:{}\r\nmaster_replid:{}\r\nmaster_repl_offset:{offset}\r\n",
                if is_replica { "slave" } else { "master" },
                process.run_id
            ),
        ),
    ];
    let wanted = sections.iter().filter(|(name, _)| is_wanted(name));
    let text = wanted.map(|(name, text)| format!("# {name}\r\n{text}")).collect::<Vec<_>>().join("\r\n");
    RespValue::Verbatim { format: *b"txt", text: text.into() }
}

pub(super) fn role(state: &State) -> RespValue {
    let offset = RespValue::Integer(state.disk.end() as i64);
    if state.process.conditions.is_read_only {
        let (host, port) = (bulk("0.0.0.0"), RespValue::Integer(6379));
        return RespValue::Array(vec![bulk("slave"), host, port, bulk("connected"), offset]);
    }
    RespValue::Array(vec![bulk("master"), offset, RespValue::Array(Vec::new())])
}
