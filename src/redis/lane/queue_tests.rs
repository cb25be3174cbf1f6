use super::*;
use crate::{
    redis::server_info::ServerInfo,
    redis::{RedisScript, command::CommandRequest},
    sync::{Completion, completion},
};

fn caller(deadline: u64) -> (Caller, Completion<RespValue>) {
    let (completer, completion) = completion(None);
    (Caller { completer, deadline, limit: Duration::from_nanos(deadline) }, completion)
}

/// Adds a command that is sent at once.
fn send(queue: &mut LaneQueue, kind: SentKind, deadline: u64) -> Completion<RespValue> {
    let (caller, completion) = caller(deadline);
    queue.push(WaitingCommand { command: ["GET", "k"].into(), caller });
    let WaitingCommand { command, caller } = queue.take().unwrap();
    queue.sent(caller, command.bytes(), kind);
    completion
}

fn done(queue: &mut LaneQueue, reply: RespValue) -> RespValue {
    match queue.reply(reply) {
        Paired::Done(_, reply) => reply,
        _ => panic!("a reply to a command"),
    }
}

fn error(text: &'static str) -> RespValue {
    RespValue::Error(text.into())
}

#[test]
fn replies_belong_to_commands_in_order() {
    let mut queue = LaneQueue::default();
    let _first = send(&mut queue, SentKind::Command, 10);
    queue.heartbeat();
    let _second = send(&mut queue, SentKind::Command, 20);
    assert_eq!((queue.len(), queue.in_flight()), (2, 2), "a heartbeat is no command");
    assert_eq!(done(&mut queue, RespValue::Integer(1)), RespValue::Integer(1));
    assert!(matches!(queue.reply(RespValue::Simple("PONG".into())), Paired::Nothing));
    assert_eq!(done(&mut queue, RespValue::Integer(2)), RespValue::Integer(2));
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
    assert!(matches!(queue.reply(RespValue::Integer(3)), Paired::Unexpected));
}

#[test]
fn a_caller_that_has_given_up_keeps_its_place() {
    let mut queue = LaneQueue::default();
    let _first = send(&mut queue, SentKind::Command, 10);
    let _second = send(&mut queue, SentKind::Command, 20);
    let (waiting, _third) = caller(10);
    queue.push(WaitingCommand { command: ["GET", "k"].into(), caller: waiting });
    let (waiting, _fourth) = caller(30);
    queue.push(WaitingCommand { command: ["GET", "k"].into(), caller: waiting });
    let (given, next) = queue.expire(10);
    assert_eq!((given.in_flight.len(), given.not_sent.len(), next), (1, 1, 20));
    assert_eq!((queue.len(), queue.in_flight()), (3, 2));
    assert!(matches!(queue.reply(RespValue::Integer(1)), Paired::Done(None, _)));
    assert!(matches!(queue.reply(RespValue::Integer(2)), Paired::Done(Some(_), _)));
    assert_eq!(queue.clear_waiting().len(), 1);
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
    assert_eq!(queue.expire(u64::MAX).1, u64::MAX);
}

#[test]
fn a_lost_connection_returns_the_callers_in_flight() {
    let mut queue = LaneQueue::default();
    let _first = send(&mut queue, SentKind::Command, 10);
    queue.heartbeat();
    let (waiting, _second) = caller(10);
    queue.push(WaitingCommand { command: ["GET", "k"].into(), caller: waiting });
    assert_eq!(queue.lose().len(), 1);
    assert!(queue.has_waiting() && queue.is_settled());
    assert_eq!(queue.len(), 1);
    queue.take().unwrap();
    assert!(!queue.is_settled());
    queue.not_sent(RedisCommand::from(["GET", "k"]).bytes());
    assert_eq!((queue.len(), queue.bytes(), queue.is_settled()), (0, 0, true));
}

#[test]
fn a_transaction_has_the_reply_of_exec_or_the_first_refusal() {
    let mut queue = LaneQueue::default();
    let transaction = || SentKind::Transaction { left: 4, refused: None };
    for (replies, expected) in [
        (vec!["OK", "QUEUED", "QUEUED"], RespValue::Array(Vec::new())),
        (vec!["OK", "QUEUED", "-READONLY no"], error("READONLY no")),
        (vec!["-LOADING no", "-ERR a", "-ERR b"], error("LOADING no")),
    ] {
        let _completion = send(&mut queue, transaction(), 10);
        for reply in replies {
            let reply = match reply.strip_prefix('-') {
                Some(text) => RespValue::Error(text.into()),
                None => RespValue::Simple(reply.into()),
            };
            assert!(matches!(queue.reply(reply), Paired::Nothing));
        }
        let last = if expected.is_error() { error("EXECABORT no") } else { expected.clone() };
        assert_eq!(done(&mut queue, last), expected);
        assert_eq!(queue.len(), 0);
    }
}

#[test]
fn a_script_that_the_server_does_not_know_is_sent_again() {
    let mut queue = LaneQueue::default();
    let command = RedisScript::new("return 1").command(["k"], ["a"]);
    let server = ServerInfo::read(&RespValue::Null, &RespValue::Null);
    let Ok(CommandRequest::Script(call)) = command.into_request(&server) else { panic!("a script") };
    let _script = send(&mut queue, SentKind::Script(call), 10);
    let _other = send(&mut queue, SentKind::Command, 10);
    let bytes = queue.bytes();
    let Paired::UnknownScript(_, request) = queue.reply(error("NOSCRIPT No matching script.")) else {
        panic!("unknown")
    };
    queue.sent_again(request);
    assert_eq!((queue.len(), queue.bytes()), (2, bytes));
    assert_eq!(done(&mut queue, RespValue::Integer(2)), RespValue::Integer(2));
    assert_eq!(done(&mut queue, error("NOSCRIPT again")), error("NOSCRIPT again"), "once");
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
}
