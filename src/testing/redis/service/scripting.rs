//! Scripts, which closures run.

use super::{
    super::{
        command::{CallEffects, CommandCall, integer},
        pubsub::Protocol,
        refusal::{Refusal, Reply, SYNTAX},
        script::{ScriptContext, converted, sha1},
        state::State,
    },
    ClientRequest, call,
};
use crate::{codec::RespValue, testing::redis::command::ok};
use bytes::Bytes;

/// The length of a SHA-1 in hexadecimal digits.
const SHA_LENGTH: usize = 40;

fn unknown(sha: &str) -> Refusal {
    format!(
        "ERR the simulated Redis has no closure for the script {sha}: register its source with \
         RedisServer::script"
    )
    .into()
}

pub(super) fn load(state: &mut State, source: &Bytes) -> Reply {
    let sha = sha1(source);
    state.scripts.get(&sha).ok_or_else(|| unknown(&sha))?;
    state.process.loaded.insert(sha.clone());
    Ok(RespValue::Bulk(sha.into()))
}

pub(super) fn flush(state: &mut State, how: &[Bytes]) -> Reply {
    match how {
        [] => {}
        [how] if how.eq_ignore_ascii_case(b"SYNC") || how.eq_ignore_ascii_case(b"ASYNC") => {}
        _ => return Err(Refusal::of("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
    }
    state.process.loaded.clear();
    ok()
}

pub(super) fn eval(
    state: &mut State,
    request: ClientRequest,
    args: &[Bytes],
    effects: &mut CallEffects,
) -> Reply {
    let (keys, arguments) = split(args)?;
    let sha = sha1(&args[1]);
    state.scripts.get(&sha).ok_or_else(|| unknown(&sha))?;
    state.process.loaded.insert(sha.clone());
    run(state, request, &sha, (keys, arguments), effects)
}

pub(super) fn evalsha(
    state: &mut State,
    request: ClientRequest,
    args: &[Bytes],
    effects: &mut CallEffects,
) -> Reply {
    const NO_SCRIPT: Refusal = Refusal::of("NOSCRIPT No matching script. Please use EVAL.");
    // Redis looks at the length first, and at the script after the number of keys.
    if args[1].len() != SHA_LENGTH {
        return Err(NO_SCRIPT);
    }
    let (keys, arguments) = split(args)?;
    let sha = lower(&args[1]);
    if !state.process.loaded.contains(&sha) {
        return Err(NO_SCRIPT);
    }
    run(state, request, &sha, (keys, arguments), effects)
}

fn lower(sha: &[u8]) -> String {
    String::from_utf8_lossy(sha).to_ascii_lowercase()
}

/// Splits keys and other arguments.
fn split(args: &[Bytes]) -> Result<(Vec<Bytes>, Vec<Bytes>), Refusal> {
    let number = integer(&args[2])?;
    let behind = &args[3..];
    if number > behind.len() as i64 {
        return Err(Refusal::of("ERR Number of keys can't be greater than number of args"));
    }
    let number = usize::try_from(number).map_err(|_| Refusal::of("ERR Number of keys can't be negative"))?;
    let (keys, arguments) = behind.split_at_checked(number).ok_or(SYNTAX)?;
    Ok((keys.to_vec(), arguments.to_vec()))
}

fn run(
    state: &mut State,
    request: ClientRequest,
    sha: &str,
    (keys, arguments): (Vec<Bytes>, Vec<Bytes>),
    effects: &mut CallEffects,
) -> Reply {
    let body = state.scripts.get(sha).cloned().ok_or_else(|| unknown(sha))?;
    let conditions = state.process.conditions.clone();
    let user = state.process.sessions.get(&request.client).and_then(|session| session.user.as_deref());
    let user = user.and_then(|user| state.settings.users.get(user)).cloned();
    let call = CommandCall { protocol: Protocol::Resp2, ..call(state, request, effects) };
    let mut context = ScriptContext { call, conditions, user, has_written: false, keys, arguments };
    // Effects before an error stay, as in Redis.
    Ok(match body(&mut context) {
        Ok(value) => converted(value),
        Err(error) => error,
    })
}
