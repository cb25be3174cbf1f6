//! Authentication and permissions.

use super::{
    super::{
        command::{CommandInfo, integer},
        permissions::Lack,
        pubsub::{ClientId, Protocol},
        refusal::{Refusal, Reply},
        settings::DEFAULT_USER,
        state::State,
    },
    client,
};
use crate::{codec::RespValue, testing::redis::command::ok};
use bytes::Bytes;

const NO_HELLO: Refusal = Refusal::of(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
     <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the \
     same time",
);

/// Checks whether a user may run a command.
pub(super) fn check(
    state: &State,
    user: Option<&str>,
    command: &CommandInfo,
    args: &[Bytes],
) -> Result<(), Refusal> {
    let Some(user) = user.and_then(|user| state.settings.users.get(user)) else { return Ok(()) };
    user.check(command, args).map_err(|lack| match lack {
        Lack::CommandInfo => {
            format!("NOPERM this user has no permissions to run the '{}' command", command.name).into()
        }
        Lack::Key => {
            Refusal::of("NOPERM this user has no permissions to access one of the keys used as arguments")
        }
        Lack::Channel => {
            Refusal::of("NOPERM this user has no permissions to access one of the channels used as arguments")
        }
    })
}

pub(super) fn auth(state: &mut State, client: ClientId, args: &[Bytes]) -> Reply {
    match args {
        [_, password] => {
            if state.settings.password.is_none() {
                return Err(Refusal::of(
                    "ERR AUTH <password> called without any password configured for the default user. Are you \
                     sure your configuration is correct?",
                ));
            }
            log_in(state, client, DEFAULT_USER.as_bytes(), password)?;
        }
        [_, user, password] => log_in(state, client, user, password)?,
        _ => return Err(super::super::refusal::SYNTAX),
    }
    ok()
}

fn log_in(state: &mut State, client: ClientId, user: &[u8], password: &[u8]) -> Result<(), Refusal> {
    let name = String::from_utf8_lossy(user).into_owned();
    let expected = if name == DEFAULT_USER {
        // Without a password, the default user accepts any.
        Some(state.settings.password.as_deref())
    } else {
        state.settings.users.get(&name).map(|user| Some(user.password.as_str()))
    };
    match expected {
        Some(expected) if expected.is_none_or(|expected| expected.as_bytes() == password) => {
            if let Some(session) = state.process.sessions.get_mut(&client) {
                session.user = Some(name);
            }
            Ok(())
        }
        _ => Err(Refusal::of("WRONGPASS invalid username-password pair or user is disabled.")),
    }
}

pub(super) fn hello(state: &mut State, client: ClientId, args: &[Bytes]) -> Reply {
    let protocol = match args.get(1).map(|version| integer(version)) {
        None => None,
        Some(Ok(2)) => Some(Protocol::Resp2),
        Some(Ok(3)) => Some(Protocol::Resp3),
        Some(Ok(_)) => return Err(Refusal::of("NOPROTO unsupported protocol version")),
        Some(Err(_)) => {
            return Err(Refusal::of("ERR Protocol version is not an integer or out of range"));
        }
    };
    let (mut name, mut at) = (None, 2);
    while let Some(option) = args.get(at) {
        match (option.to_ascii_uppercase().as_slice(), &args[at + 1..]) {
            (b"AUTH", [user, password, ..]) => {
                log_in(state, client, user, password)?;
                at += 3;
            }
            (b"SETNAME", [new, ..]) => {
                client::check_name(new)?;
                name = Some(new);
                at += 2;
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
            }
        }
    }
    let process = &mut state.process;
    let session = process.sessions.get_mut(&client).filter(|session| session.user.is_some());
    let session = session.ok_or(NO_HELLO)?;
    if let Some(name) = name {
        session.name = name.clone();
    }
    if let Some(protocol) = protocol {
        process.pubsub.set_protocol(client, protocol);
    }
    let text = |text: &'static str| RespValue::Bulk(text.into());
    let version = if process.pubsub.protocol(client) == Protocol::Resp3 { 3 } else { 2 };
    let role = if process.conditions.is_read_only { "replica" } else { "master" };
    Ok(RespValue::Map(vec![
        (text("server"), text("redis")),
        (text("version"), text(super::introspection::VERSION)),
        (text("proto"), RespValue::Integer(version)),
        (text("id"), RespValue::Integer(client)),
        (text("mode"), text("standalone")),
        (text("role"), text(role)),
        (text("modules"), RespValue::Array(Vec::new())),
    ]))
}
