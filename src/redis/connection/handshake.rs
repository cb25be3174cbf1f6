//! The first requests on a connection.
//!
//! Invariant: the requests are sent at once, so a login takes one round trip. No other request is
//! sent before all of their replies have arrived. No error contains the password. Pure.

use crate::{
    codec::RespValue,
    error::Error,
    redis::{error::RedisError, error_reply::ErrorReply, server_info::ServerInfo},
};
use bytes::Bytes;
use std::fmt;

/// The user, the database and the name of a login.
#[derive(Clone, Default)]
pub(in crate::redis) struct Login {
    /// The user and the password.
    pub(in crate::redis) user: Option<(String, String)>,
    pub(in crate::redis) database: u32,
    pub(in crate::redis) client_name: Option<String>,
}

impl Login {
    fn hello(&self) -> Vec<Bytes> {
        let mut request: Vec<Bytes> = vec!["HELLO".into(), "3".into()];
        if let Some((user, password)) = &self.user {
            request.extend(["AUTH".into(), user.clone().into(), password.clone().into()]);
        }
        if let Some(name) = &self.client_name {
            request.extend(["SETNAME".into(), name.clone().into()]);
        }
        request
    }

    /// Returns the error for a refused request of the login, without the password.
    ///
    /// A server that does not know `HELLO` repeats its arguments in the error, perhaps cut off.
    fn refused(&self, reply: ErrorReply) -> Error {
        let is_secret = |text: &str| {
            self.user.as_ref().is_some_and(|(_, password)| !password.is_empty() && text.contains(password))
        };
        let without_secrets = if reply.message().starts_with("unknown command") {
            Some("ERR the server does not know HELLO (Redis before 6.0?)".to_owned())
        } else if is_secret(&reply.to_string()) {
            let code = if is_secret(reply.code()) { "ERR" } else { reply.code() };
            Some(format!("{code} the login was refused, with a text that contains the password"))
        } else {
            None
        };
        let reply = match without_secrets {
            Some(text) => ErrorReply::of(&RespValue::Error(text.into())).unwrap_or(reply),
            None => reply,
        };
        RedisError::from_reply(reply).into()
    }

    fn select(&self) -> Option<Vec<Bytes>> {
        (self.database != 0).then(|| vec!["SELECT".into(), self.database.to_string().into()])
    }
}

impl fmt::Debug for Login {
    /// Prints no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user.as_ref().map(|(user, _)| user))
            .field("database", &self.database)
            .field("client_name", &self.client_name)
            .finish_non_exhaustive()
    }
}

/// A login in progress.
pub(super) struct LoginHandshake {
    selects: bool,
    hello: Option<RespValue>,
}

impl LoginHandshake {
    pub(super) fn new(login: &Login) -> Self {
        LoginHandshake { selects: login.database != 0, hello: None }
    }

    /// Returns the requests of a login.
    pub(super) fn requests(login: &Login) -> Vec<Vec<Bytes>> {
        let mut requests = vec![login.hello()];
        requests.extend(login.select());
        // Without a section: Redis 6 accepts one only.
        requests.push(vec!["INFO".into()]);
        requests
    }

    /// Handles the next reply. Returns the facts about the server after the last one.
    ///
    /// # Errors
    /// [`RedisError`] if the server refuses the login or the database.
    pub(super) fn reply(&mut self, login: &Login, reply: RespValue) -> Result<Option<ServerInfo>, Error> {
        let refused = ErrorReply::of(&reply);
        match &self.hello {
            None => {
                if let Some(refused) = refused {
                    return Err(login.refused(refused));
                }
                self.hello = Some(reply);
                Ok(None)
            }
            Some(_) if self.selects => {
                if let Some(refused) = refused {
                    return Err(login.refused(refused));
                }
                self.selects = false;
                Ok(None)
            }
            Some(hello) => match refused {
                // A busy server would leave the connection without its facts.
                Some(refused) if refused.is_temporary() => Err(login.refused(refused)),
                // A user without the permission for INFO can use the server nevertheless.
                _ => Ok(Some(ServerInfo::read(hello, &reply))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(requests: Vec<Vec<Bytes>>) -> Vec<String> {
        let text = |request: Vec<Bytes>| {
            let words = request.iter().map(|word| String::from_utf8_lossy(word).into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        requests.into_iter().map(text).collect()
    }

    fn login() -> Login {
        Login { user: Some(("bob".into(), "pw".into())), database: 3, client_name: Some("node-a".into()) }
    }

    #[test]
    fn a_login_is_sent_at_once() {
        assert_eq!(texts(LoginHandshake::requests(&Login::default())), ["HELLO 3", "INFO"]);
        let expected = ["HELLO 3 AUTH bob pw SETNAME node-a", "SELECT 3", "INFO"];
        assert_eq!(texts(LoginHandshake::requests(&login())), expected);
        assert!(!format!("{:?}", login()).contains("pw"));
    }

    #[test]
    fn the_last_reply_tells_the_facts() {
        let mut handshake = LoginHandshake::new(&login());
        let ok = || RespValue::Simple("OK".into());
        assert!(handshake.reply(&login(), RespValue::Map(Vec::new())).unwrap().is_none());
        assert!(handshake.reply(&login(), ok()).unwrap().is_none());
        let info = handshake.reply(&login(), RespValue::Bulk("run_id:x\r\n".into())).unwrap().unwrap();
        assert_eq!(info.run_id(), Some("x"));

        let mut handshake = LoginHandshake::new(&Login::default());
        assert!(handshake.reply(&login(), RespValue::Map(Vec::new())).unwrap().is_none());
        let info = handshake.reply(&login(), RespValue::Error("NOPERM no".into())).unwrap().unwrap();
        assert_eq!(info.run_id(), None, "refused");
    }

    #[test]
    fn a_refused_login_is_an_error() {
        let refuse = || RespValue::Error("WRONGPASS invalid".into());
        let error = LoginHandshake::new(&login()).reply(&login(), refuse()).unwrap_err();
        assert_eq!(RedisError::of(&error).unwrap().reply().unwrap().code(), "WRONGPASS");
        let mut handshake = LoginHandshake::new(&login());
        assert!(handshake.reply(&login(), RespValue::Map(Vec::new())).unwrap().is_none());
        assert!(handshake.reply(&login(), RespValue::Error("ERR DB index is out of range".into())).is_err());
    }
    #[test]
    fn an_error_does_not_contain_the_password() {
        let login =
            |password: &str| Login { user: Some(("default".into(), password.into())), ..Login::default() };
        // The first text is that of Redis 7.0.15, if the command is unknown there.
        let unknown =
            "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'secret123' ";
        let hello = "ERR the server does not know HELLO (Redis before 6.0?)";
        let hidden = "the login was refused, with a text that contains the password";
        for (password, text, expected) in [
            ("secret123", unknown, hello.to_owned()),
            // Redis cuts long arguments off.
            ("secret123456", unknown, hello.to_owned()),
            ("secret123", "NOAUTH not secret123", format!("NOAUTH {hidden}")),
            ("NOAUTH", "NOAUTH refused", format!("ERR {hidden}")),
            ("", "WRONGPASS invalid", "WRONGPASS invalid".to_owned()),
        ] {
            let login = login(password);
            let reply = RespValue::Error(text.into());
            let error = LoginHandshake::new(&login).reply(&login, reply).unwrap_err();
            assert_eq!(RedisError::of(&error).unwrap().reply().unwrap().to_string(), expected);
        }
    }
}
