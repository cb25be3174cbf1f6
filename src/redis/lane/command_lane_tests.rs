//! Connections to servers that forget their scripts at given places between commands.

use super::*;
use crate::redis::{
    RedisScript,
    connection::{Duty, Link, LinkOutput},
};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering},
};

/// A server that forgets the script after each second call.
#[derive(Default)]
struct Forgetful {
    requests: VecDeque<Vec<Bytes>>,
    /// The arguments of the calls that were executed.
    executed: Vec<Bytes>,
    knows_script: bool,
}

impl Forgetful {
    /// Returns the reply to the next request.
    fn answer(&mut self) -> Option<RespValue> {
        let request = self.requests.pop_front()?;
        if request[0] == "EVALSHA" && !self.knows_script {
            return Some(unknown_script());
        }
        let argument = request.last()?.clone();
        self.executed.push(argument.clone());
        self.knows_script = self.executed.len() % 2 == 1;
        Some(RespValue::Bulk(argument))
    }
}

impl LinkOutput for Forgetful {
    fn write(&mut self, request: Vec<Bytes>) -> Result {
        self.requests.push_back(request);
        Ok(())
    }

    fn write_beyond_limit(&mut self, request: Vec<Bytes>) -> Result {
        self.write(request)
    }

    fn is_writable(&self) -> bool {
        true
    }
}

/// An output that closes the lane during the write of a request, as another thread may do. It then
/// accepts the request, or refuses it.
struct ClosedMeanwhile {
    lane: Arc<CommandLane>,
    accepts: bool,
}

impl LinkOutput for ClosedMeanwhile {
    fn write(&mut self, _: Vec<Bytes>) -> Result {
        self.lane.close();
        if self.accepts { Ok(()) } else { Err(Error::Closed) }
    }

    fn write_beyond_limit(&mut self, request: Vec<Bytes>) -> Result {
        self.write(request)
    }

    fn is_writable(&self) -> bool {
        true
    }
}

fn unknown_script() -> RespValue {
    RespValue::Error("NOSCRIPT No matching script. Please use EVAL.".into())
}

#[test]
fn calls_of_a_script_that_is_forgotten_again_and_again_are_executed_once_and_in_order() {
    let (lane, script) = (CommandLane::new(RedisSettings::new()), RedisScript::new("return ARGV[1]"));
    let server = ServerInfo::read(&RespValue::Null, &RespValue::Null);
    lane.opened(Link { wake: Arc::new(|| ()), server });
    let mut server = Forgetful::default();
    let arguments: Vec<Bytes> = (0..20).map(|number: u32| number.to_string().into()).collect();
    let mut later = arguments.iter().cloned();
    let call = |argument: Bytes| lane.submit(script.command(["k"], [argument])).unwrap();
    let mut replies: Vec<_> = later.by_ref().take(5).map(call).collect();
    lane.send(&mut server).unwrap();
    while let Some(reply) = server.answer() {
        lane.reply(reply, &mut server).unwrap();
        replies.extend(later.next().map(call));
        lane.send(&mut server).unwrap();
    }
    assert_eq!(server.executed, arguments);
    for (reply, argument) in replies.into_iter().zip(arguments) {
        assert_eq!(reply.wait().unwrap(), RespValue::Bulk(argument));
    }
    assert_eq!((lane.counts().pending, lane.counts().pending_bytes), (0, 0));
}

#[test]
fn a_lane_that_closes_waits_for_a_call_that_is_being_sent_again() {
    for accepts in [true, false] {
        let (lane, script) = (CommandLane::new(RedisSettings::new()), RedisScript::new("return ARGV[1]"));
        let wakes = Arc::new(AtomicUsize::new(0));
        let woken = wakes.clone();
        let wake = Arc::new(move || {
            woken.fetch_add(1, Ordering::Relaxed);
        });
        lane.opened(Link { wake, server: ServerInfo::read(&RespValue::Null, &RespValue::Null) });
        let mut server = Forgetful::default();
        let first = lane.submit(script.command(["k"], ["1"])).unwrap();
        let second = lane.submit(script.command(["k"], ["2"])).unwrap();
        lane.send(&mut server).unwrap();
        lane.reply(RespValue::Integer(1), &mut server).unwrap();
        assert_eq!(first.wait().unwrap(), RespValue::Integer(1));
        let mut output = ClosedMeanwhile { lane: lane.clone(), accepts };
        lane.reply(unknown_script(), &mut output).unwrap();
        assert_eq!(wakes.load(Ordering::Relaxed), 1, "the loop closes the connection, not the caller");
        if accepts {
            assert!(lane.finished().is_none());
            lane.reply(RespValue::Integer(2), &mut server).unwrap();
            assert_eq!(second.wait().unwrap(), RespValue::Integer(2));
        } else {
            let error = second.wait().unwrap_err();
            assert!(matches!(RedisError::of(&error), Some(RedisError::NotSent(_))), "{error}");
        }
        assert!(matches!(lane.finished(), Some(Error::Closed)));
        assert_eq!((lane.counts().pending, lane.counts().pending_bytes), (0, 0));
    }
}
