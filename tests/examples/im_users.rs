//! The names in use at one server, in each state of a name in the shared map: sessions that end,
//! and names that another server takes over.

use crate::im::{
    login::{
        resume_token::Claim,
        users::{Answered, Login, Users},
    },
    session::Session,
    *,
};
use crate::support::wait::SECOND;
use netwheel::{ChannelId, HandlerRef};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// No sessions.
const NONE: [usize; 0] = [];

/// The users of a server, and two connections for the name "ann".
struct Names {
    users: Users,
    claims: [Claim; 2],
    sessions: [(Client, HandlerRef<Session>); 2],
}

/// The effect of a login: the session that it replaces, whether the map has to be asked, and
/// whether it may have an entry of this server.
type LoggedIn = (Option<usize>, bool, bool);

impl Names {
    fn new() -> Self {
        let world = World::new();
        let sessions = ["one", "two"].map(|user| {
            let client = world.login(user);
            (client, world.hub.find(user).unwrap())
        });
        let claims = [(); 2].map(|()| world.hub.new_claim());
        Names { users: Users::default(), claims, sessions }
    }

    /// Returns a server where the first connection has the name.
    fn held() -> Self {
        let mut names = Names::granted();
        assert!(names.confirm(0));
        names
    }

    /// Returns a server where the first connection does not know yet that it has the name.
    fn granted() -> Self {
        let mut names = Names::new();
        assert_eq!(names.log_in(0), (None, true, false));
        assert_eq!(names.answered(true), "for 0");
        names
    }

    fn who(&self, session: usize) -> ChannelId {
        self.sessions[session].1.channel().id()
    }

    fn session(&self, session: &HandlerRef<Session>) -> usize {
        let who = session.channel().id();
        (0..2).find(|&n| self.who(n) == who).unwrap()
    }

    fn log_in_as(&mut self, session: usize, claim: usize) -> Result<LoggedIn, Arc<str>> {
        let (who, claim) = (self.who(session), self.claims[claim]);
        let login = Login { session: self.sessions[session].1.clone(), who, claim, since: session as u64 };
        let reserved = self.users.log_in("ann", login)?;
        Ok((reserved.replaced.map(|old| self.session(&old)), reserved.must_ask, reserved.is_shown))
    }

    fn log_in(&mut self, session: usize) -> LoggedIn {
        self.log_in_as(session, 0).unwrap()
    }

    /// Records an answer of the map. Returns its effect.
    fn answered(&mut self, is_granted: bool) -> String {
        match self.users.answered("ann", is_granted) {
            Answered::Waiting(session) => format!("for {}", self.session(&session)),
            Answered::Unused => "unused".to_owned(),
            Answered::Free { is_shown: true } => "free and shown".to_owned(),
            Answered::Free { is_shown: false } => "free".to_owned(),
        }
    }

    fn confirm(&mut self, session: usize) -> bool {
        self.users.confirm("ann", self.who(session))
    }

    /// Records that another server has the name. Returns the sessions that had it.
    fn lost(&mut self) -> Vec<usize> {
        let sessions = self.users.lost(&name::looks("ann"));
        sessions.iter().map(|session| self.session(session)).collect()
    }

    /// Ends a session. Returns whether the name has to be released in the map.
    fn end(&mut self, session: usize) -> bool {
        self.users.release("ann", self.who(session))
    }

    /// Returns the session that has the name.
    fn found(&self) -> Option<usize> {
        self.users.find("ann").map(|session| self.session(&session))
    }

    /// Asserts that no user has the name, or one that looks like it.
    #[track_caller]
    fn assert_free(mut self) {
        assert_eq!(self.found(), None);
        assert!(!self.users.is_shown(&name::looks("ann")));
        assert_eq!(self.log_in_as(1, 1), Ok((None, true, false)));
    }
}

// ---- sessions that end --------------------------------------------------------------------------

#[test]
fn a_session_that_ends_before_the_answer_has_the_name_until_then() {
    for (is_granted, effect) in [(true, "free and shown"), (false, "free")] {
        let mut names = Names::new();
        names.log_in(0);
        assert!(!names.end(0), "with the answer");
        assert_eq!(names.log_in_as(1, 1), Err("ann".into()));
        assert_eq!(names.answered(is_granted), effect);
        names.assert_free();
    }
}

#[test]
fn a_session_that_ends_before_it_knows_the_answer_releases_the_name() {
    let mut names = Names::granted();
    assert_eq!(names.found(), None);
    assert!(names.end(0));
    assert!(!names.confirm(0));
    assert_eq!(names.answered(false), "free", "of another request");
    names.assert_free();
}

#[test]
fn a_session_whose_name_is_refused_may_ask_again() {
    let mut names = Names::new();
    names.log_in(0);
    assert_eq!(names.answered(false), "for 0");
    assert!(!names.confirm(0));
    let [first, second] = [0, 1].map(|session| names.who(session));
    assert_eq!(names.users.ask_again("ann", second), None);
    assert_eq!(names.users.ask_again("ann", first), Some(false));
    assert_eq!(names.users.ask_again("ann", first), None, "a request is in flight");
    assert_eq!(names.answered(false), "for 0");
    assert!(!names.end(0));
    names.assert_free();
}

// ---- several connections of a client ------------------------------------------------------------

#[test]
fn a_later_connection_receives_the_answer_to_the_request_of_an_earlier_one() {
    for is_ended in [false, true] {
        let mut names = Names::new();
        names.log_in(0);
        if is_ended {
            assert!(!names.end(0));
        }
        assert_eq!(names.log_in(1), (Some(0), false, false));
        assert!(!names.end(0));
        assert_eq!(names.answered(true), "for 1");
        assert!(!names.confirm(0) && names.confirm(1));
        assert_eq!((names.found(), names.users.profile("ann").since), (Some(1), Some(0)));
        assert!(names.end(1));
        names.assert_free();
    }
}

#[test]
fn a_later_connection_asks_for_a_name_that_was_granted_to_an_earlier_one() {
    let mut names = Names::granted();
    assert_eq!(names.log_in(1), (Some(0), true, true));
    assert!(!names.confirm(0) && !names.end(0));
    assert_eq!(names.answered(false), "for 1");
    let second = names.who(1);
    assert_eq!(names.users.ask_again("ann", second), Some(true), "the entry may still be there");
    assert_eq!(names.answered(true), "for 1");
    assert!(names.confirm(1));
    assert!(names.end(1));
    names.assert_free();
}

#[test]
fn an_earlier_session_has_the_name_until_it_is_granted_to_the_later_one() {
    for is_granted in [true, false] {
        let mut names = Names::held();
        assert_eq!(names.log_in(1), (None, true, true));
        assert_eq!(names.found(), Some(0));
        if is_granted {
            assert_eq!(names.answered(true), "for 1");
            assert!(names.confirm(1));
            assert_eq!(names.found(), Some(1));
            let second = names.who(1);
            let replaced = names.users.take_earlier("ann", second).unwrap();
            assert_eq!(names.session(&replaced), 0);
            assert!(!names.end(0), "the name belongs to the other one");
            assert_eq!(names.found(), Some(1));
            assert!(names.end(1));
        } else {
            assert!(!names.end(1), "the earlier one has it again");
            assert_eq!(names.answered(true), "unused");
            assert_eq!(names.found(), Some(0));
            assert!(names.end(0));
        }
        names.assert_free();
    }
}

#[test]
fn an_earlier_session_that_ends_before_the_answer_to_a_later_one_has_the_name_until_then() {
    for is_granted in [true, false] {
        let mut names = Names::held();
        assert_eq!(names.log_in(1), (None, true, true));
        assert!(!names.end(1), "the earlier one has it again");
        assert!(!names.end(0), "with the answer");
        assert_eq!(names.log_in_as(1, 1), Err("ann".into()), "it would get the answer to another client");
        assert_eq!(names.answered(is_granted), "free and shown", "its entry may be there");
        names.assert_free();
    }
}

#[test]
fn a_client_that_comes_back_again_receives_the_answer_to_its_earlier_request() {
    let mut names = Names::held();
    assert_eq!(names.log_in(1), (None, true, true));
    assert!(!names.end(1));
    assert_eq!(names.log_in(1), (None, false, true), "a request is in flight");
    assert_eq!(names.answered(true), "for 1");
    assert!(names.confirm(1));
    assert!(!names.end(0) && names.end(1));
    names.assert_free();
}

// ---- names that another server takes over -------------------------------------------------------

#[test]
fn a_name_that_is_lost_while_it_is_asked_for_is_that_of_the_answer() {
    for is_granted in [true, false] {
        let mut names = Names::new();
        assert_eq!(names.lost(), NONE, "no user has it");
        names.log_in(0);
        assert_eq!(names.lost(), NONE);
        assert_eq!(names.answered(is_granted), "for 0");
        assert_eq!(names.confirm(0), is_granted);
        assert_eq!(names.end(0), is_granted);
        names.assert_free();
    }
}

#[test]
fn a_name_that_is_lost_after_its_session_has_ended_is_not_released() {
    let mut names = Names::new();
    names.log_in(0);
    names.end(0);
    assert_eq!(names.lost(), NONE);
    assert_eq!(names.answered(false), "free");
    names.assert_free();
}

#[test]
fn a_name_that_is_lost_after_it_was_refused_is_not_released() {
    let mut names = Names::new();
    names.log_in(0);
    names.answered(false);
    assert_eq!(names.lost(), NONE);
    assert!(!names.end(0));
    names.assert_free();
}

#[test]
fn a_name_that_is_lost_ends_the_session_that_has_it_or_is_about_to() {
    for mut names in [Names::granted(), Names::held()] {
        assert_eq!(names.lost(), [0]);
        assert_eq!((names.found(), names.confirm(0)), (None, false));
        assert_eq!(names.lost(), NONE, "it is lost already");
        assert_eq!(names.log_in_as(1, 1), Err("ann".into()), "until the session has ended");
        assert!(!names.end(0), "the entry is that of the other server");
        names.assert_free();
    }
}

#[test]
fn a_client_that_comes_back_after_its_name_was_lost_asks_for_it() {
    let mut names = Names::held();
    names.lost();
    assert_eq!(names.log_in(1), (Some(0), true, false));
    assert!(!names.end(0));
    assert_eq!(names.answered(true), "for 1");
    assert!(names.confirm(1));
    assert_eq!(names.found(), Some(1));
}

#[test]
fn a_name_that_is_lost_while_a_later_connection_asks_for_it_ends_the_earlier_session() {
    let mut names = Names::held();
    names.log_in(1);
    assert_eq!(names.lost(), [0]);
    assert_eq!(names.found(), None);
    assert!(!names.end(1), "with the answer");
    assert_eq!(names.log_in_as(1, 1), Err("ann".into()));
    assert_eq!(names.answered(false), "free");
    names.assert_free();
}

#[test]
fn a_client_that_stays_connected_gets_a_new_token() {
    let world = World::new();
    let mut ann = world.connect();
    ann.say(json!({ "type": "login", "user": "ann" }));
    let mut last = welcome_of(&mut ann);
    for _ in 0..2 {
        ann.0.advance(Duration::from_secs(30 * 60) - SECOND);
        ann.say(json!({ "type": "pong" }));
        ann.hear_nothing();
        ann.0.advance(SECOND);
        ann.say(json!({ "type": "ping" }));
        let lines = ann.0.read_outbound();
        let lines: Vec<Value> = serde_json::Deserializer::from_slice(&lines).into_iter().flatten().collect();
        assert_eq!((&lines[0]["type"], &lines[1]), (&json!("ping"), &json!({ "type": "pong" })));
        assert!(lines[0]["resume_token"].is_string(), "{lines:?}");
        last = lines[0].clone();
        ann.say(json!({ "type": "ping" }));
        assert_eq!(ann.hear_one()["type"], "pong");
    }
    let mut again = world.connect();
    let resume = json!({ "token": last["resume_token"] });
    again.say(json!({ "type": "login", "user": "ann", "resume": resume }));
    assert_eq!(welcome_of(&mut again)["type"], "welcome");
    assert_eq!(ann.hear_one(), json!({ "type": "bye", "reason": "replaced" }));
}

fn welcome_of(client: &mut Client) -> Value {
    client.0.run_pending();
    serde_json::from_slice(&client.0.read_outbound()).unwrap()
}
