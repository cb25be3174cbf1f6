//! `ErrorReply`: an error that the server has replied.

use crate::codec::RespValue;
use std::{fmt, sync::Arc};

/// An error that the server has replied: a code in capitals, and a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReply(Arc<str>);

impl ErrorReply {
    /// Returns the error that `value` is, if it is one.
    pub fn of(value: &RespValue) -> Option<Self> {
        match value {
            RespValue::Error(text) | RespValue::BulkError(text) => {
                Some(ErrorReply(String::from_utf8_lossy(text).into()))
            }
            _ => None,
        }
    }

    /// Returns the code, for example `WRONGTYPE`: the first word, if it is in capitals. Otherwise
    /// the code is empty.
    pub fn code(&self) -> &str {
        let word = self.0.split(' ').next().unwrap_or_default();
        let is_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        if word.bytes().all(is_code) { word } else { "" }
    }

    /// Returns the text without the code.
    pub fn message(&self) -> &str {
        self.0[self.code().len()..].trim_start()
    }

    /// Returns whether the server refuses commands for now, without having executed this one.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(
            self.code(),
            "READONLY"
                | "LOADING"
                | "MASTERDOWN"
                | "TRYAGAIN"
                | "CLUSTERDOWN"
                | "BUSY"
                | "NOREPLICAS"
                | "MISCONF"
        )
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &'static str) -> ErrorReply {
        ErrorReply::of(&RespValue::Error(text.into())).unwrap()
    }

    #[test]
    fn an_error_has_a_code_and_a_message() {
        for (text, code, message) in [
            ("WRONGTYPE Operation against a key", "WRONGTYPE", "Operation against a key"),
            ("ERR unknown command 'X'", "ERR", "unknown command 'X'"),
            ("something in small letters", "", "something in small letters"),
            ("LOADING", "LOADING", ""),
            ("", "", ""),
        ] {
            let reply = reply(text);
            assert_eq!((reply.code(), reply.message(), reply.to_string().as_str()), (code, message, text));
        }
        assert_eq!(ErrorReply::of(&RespValue::Simple("ERR".into())), None);
        let bytes = RespValue::BulkError(bytes::Bytes::from_static(b"ERR \xff"));
        assert_eq!(ErrorReply::of(&bytes).unwrap().message(), "\u{fffd}");
    }

    #[test]
    fn some_codes_mean_later() {
        for text in ["READONLY You can't write", "LOADING Redis is loading", "BUSY Redis is busy"] {
            assert!(reply(text).is_temporary(), "{text}");
        }
        for text in ["ERR no", "WRONGPASS no", "OOM command not allowed", "NOSCRIPT No matching script"] {
            assert!(!reply(text).is_temporary(), "{text}");
        }
    }
}
