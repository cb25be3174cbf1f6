use super::*;
use crate::{
    redis::server_info::ServerInfo,
    redis::{RedisScript, command::CommandRequest},
    sync::{Completion, cancellable},
};

fn caller(deadline: u64) -> (Caller, Completion<RespValue>) {
    let (completer, completion) = cancellable(None, |_| ());
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
    let transaction = || SentKind::Transaction(TransactionReplies::new(4, None));
    for (replies, expected) in [
        (vec!["OK", "QUEUED", "QUEUED"], RespValue::Array(Vec::new())),
        (vec!["OK", "QUEUED", "-READONLY no"], error("READONLY no")),
        (vec!["-LOADING no", "-ERR a", "-ERR b"], error("LOADING no")),
        (vec!["OK", "QUEUED", "QUEUED"], error("READONLY no")),
    ] {
        let _completion = send(&mut queue, transaction(), 10);
        for reply in replies {
            let reply = match reply.strip_prefix('-') {
                Some(text) => RespValue::Error(text.into()),
                None => RespValue::Simple(reply.into()),
            };
            assert!(matches!(queue.reply(reply), Paired::Nothing));
        }
        let last = if expected.is_error() {
            error("EXECABORT Transaction discarded because of: READONLY no")
        } else {
            expected.clone()
        };
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
    let Paired::UnknownScript(_, request, true) = queue.reply(error("NOSCRIPT No matching script.")) else {
        panic!("unknown")
    };
    assert_eq!((queue.len(), queue.bytes()), (2, bytes));
    queue.sent_again(request, SentKind::Command);
    assert_eq!((queue.len(), queue.bytes()), (2, bytes));
    assert_eq!(done(&mut queue, RespValue::Integer(2)), RespValue::Integer(2));
    let again = error("NOSCRIPT No matching script.");
    assert_eq!(done(&mut queue, again.clone()), again, "it had the source");
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
}

#[test]
fn a_call_that_is_to_be_sent_again_is_not_settled() {
    let mut queue = LaneQueue::default();
    let command = RedisScript::new("return 1").command(["k"], ["a"]);
    let server = ServerInfo::read(&RespValue::Null, &RespValue::Null);
    let Ok(CommandRequest::Script(call)) = command.into_request(&server) else { panic!("a script") };
    let _script = send(&mut queue, SentKind::Script(call), 10);
    let bytes = queue.bytes();
    let Paired::UnknownScript(_, request, true) = queue.reply(error("NOSCRIPT No matching script.")) else {
        panic!("unknown")
    };
    assert_eq!((queue.len(), queue.bytes(), queue.is_settled()), (1, bytes, false));
    queue.not_sent(request.bytes);
    assert_eq!((queue.len(), queue.bytes(), queue.is_settled()), (0, 0, true));
}

#[test]
fn commands_that_are_executed_without_multi_are_uncertain() {
    let mut queue = LaneQueue::default();
    for (discarded, is_executed) in [(false, true), (true, true), (false, false), (true, false)] {
        let cause = discarded.then_some(Error::Closed);
        let _completion = send(&mut queue, SentKind::Transaction(TransactionReplies::new(3, cause)), 10);
        assert!(matches!(queue.reply(error("NOPERM no MULTI")), Paired::Nothing));
        let second = if is_executed { RespValue::Integer(1) } else { error("NOPERM no") };
        assert!(matches!(queue.reply(second), Paired::Nothing));
        let effect = queue.reply(error("ERR EXEC without MULTI"));
        match (is_executed, discarded) {
            (true, _) => assert!(matches!(effect, Paired::Uncertain(Some(_), _))),
            (false, true) => assert!(matches!(effect, Paired::NotSent(Some(_), Error::Closed))),
            (false, false) => assert!(matches!(effect, Paired::Done(Some(_), RespValue::Error(_)))),
        }
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
    }
}

#[test]
fn later_commands_wait_for_calls_that_are_sent_again() {
    let mut queue = LaneQueue::default();
    let call = || {
        let command = RedisScript::new("return 1").command(["k"], ["a"]);
        let server = ServerInfo::read(&RespValue::Null, &RespValue::Null);
        match command.into_request(&server) {
            Ok(CommandRequest::Script(call)) => SentKind::Script(call),
            _ => panic!("a script"),
        }
    };
    let unknown = || error("NOSCRIPT No matching script. Please use EVAL.");
    let _first = send(&mut queue, call(), 10);
    let _second = send(&mut queue, call(), 10);
    queue.heartbeat();
    let unwanted = send(&mut queue, call(), 10);
    drop(unwanted);
    for expected in [true, false] {
        let Paired::UnknownScript(call, request, is_first) = queue.reply(unknown()) else {
            panic!("unknown")
        };
        assert_eq!(is_first, expected);
        let kind = if is_first { SentKind::Command } else { SentKind::Script(call) };
        queue.sent_again(request, kind);
        assert!(queue.is_held());
    }
    assert!(matches!(queue.reply(RespValue::Simple("PONG".into())), Paired::Nothing));
    assert!(queue.is_held());
    assert!(matches!(queue.reply(unknown()), Paired::Done(None, _)), "it is not sent again");
    assert!(!queue.is_held(), "the next command comes behind both calls");
    assert_eq!(done(&mut queue, RespValue::Integer(1)), RespValue::Integer(1));
    // The server forgets the script again, before the second call and one that came later.
    let _later = send(&mut queue, call(), 10);
    for expected in [true, false] {
        let Paired::UnknownScript(_, request, is_first) = queue.reply(unknown()) else { panic!("unknown") };
        assert_eq!((is_first, queue.is_held()), (expected, expected));
        queue.sent_again(request, SentKind::Command);
    }
    for _ in 0..2 {
        assert_eq!(done(&mut queue, RespValue::Integer(1)), RespValue::Integer(1));
    }
    let script = error("NOSCRIPT of the program");
    let _call = send(&mut queue, call(), 10);
    assert_eq!(done(&mut queue, script.clone()), script, "it was executed");
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
}

#[test]
fn a_waiting_command_whose_caller_has_given_up_leaves() {
    let mut queue = LaneQueue::default();
    let (waiting, given_up) = caller(10);
    queue.push(WaitingCommand { command: ["GET", "k"].into(), caller: waiting });
    let (waiting, kept) = caller(20);
    queue.push(WaitingCommand { command: ["GET", "k"].into(), caller: waiting });
    drop(given_up);
    let (given, next) = queue.expire(0);
    assert_eq!((given.not_sent.len(), queue.len(), next), (1, 1, 20));
    drop(kept);
    assert_eq!(queue.take_unwanted().len(), 1);
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
}
