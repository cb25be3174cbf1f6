//! `RedisScript`: a Lua script and its digest.

use bytes::Bytes;
use std::{fmt, sync::Arc};

/// A Lua script. Cheap to clone.
///
/// The first call of a script on a connection sends its source (`EVAL`), and later calls its digest
/// (`EVALSHA`). If the server has dropped the script since then (`NOSCRIPT`), the call is sent
/// again with the source. That is safe, because the server has not executed it.
///
/// Calls of a script that are sent again keep their order, and calls that were not sent yet follow
/// them. Other commands that were already sent are executed before them, and so are calls of the
/// same script if another connection loads the script in between.
///
/// ```no_run
/// use netwheel::{prelude::*, redis::{RedisClient, RedisScript}};
///
/// # fn f(redis: &RedisClient) -> Result {
/// let add = RedisScript::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
/// let sum = redis.call(add.command(["visits"], ["5"])).wait()?;
/// # drop(sum);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisScript(Arc<Source>);

struct Source {
    text: Bytes,
    digest: Bytes,
}

impl RedisScript {
    /// Returns a script with this source.
    pub fn new(source: impl Into<Bytes>) -> Self {
        let text = source.into();
        let digest = sha1_smol::Sha1::from(&text).hexdigest().into();
        RedisScript(Arc::new(Source { text, digest }))
    }

    /// Returns the source.
    pub fn source(&self) -> &Bytes {
        &self.0.text
    }

    /// Returns the SHA-1 of the source in hexadecimal digits, the argument of `EVALSHA`.
    pub fn digest(&self) -> &Bytes {
        &self.0.digest
    }
}

impl fmt::Debug for RedisScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisScript").field("digest", self.digest()).finish_non_exhaustive()
    }
}

/// A call of a script.
#[derive(Debug, Clone)]
pub(in crate::redis) struct ScriptCall {
    pub(super) script: RedisScript,
    pub(super) keys: Vec<Bytes>,
    pub(super) arguments: Vec<Bytes>,
}

impl ScriptCall {
    pub(in crate::redis) fn digest(&self) -> &Bytes {
        self.script.digest()
    }

    /// Returns the arguments of `EVALSHA`.
    pub(in crate::redis) fn by_digest(&self) -> Vec<Bytes> {
        self.request("EVALSHA", self.script.digest())
    }

    /// Returns the arguments of `EVAL`.
    pub(in crate::redis) fn by_source(&self) -> Vec<Bytes> {
        self.request("EVAL", self.script.source())
    }

    fn request(&self, name: &'static str, script: &Bytes) -> Vec<Bytes> {
        let count = Bytes::from(self.keys.len().to_string());
        let begin = [Bytes::from_static(name.as_bytes()), script.clone(), count];
        [&begin, &self.keys[..], &self.arguments[..]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_called_by_its_source_or_its_digest() {
        // The digest in the documentation of EVALSHA.
        let script = RedisScript::new("return redis.call('get','foo')");
        assert_eq!(script.digest(), "6b1bf486c81ceb7edf3c093f4c48582e38c0e791");
        let call = ScriptCall { script, keys: vec!["k".into()], arguments: vec!["a".into(), "b".into()] };
        let texts = |arguments: Vec<Bytes>| {
            let texts = arguments.iter().map(|argument| String::from_utf8_lossy(argument).into_owned());
            texts.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(texts(call.by_digest()), "EVALSHA 6b1bf486c81ceb7edf3c093f4c48582e38c0e791 1 k a b");
        assert_eq!(texts(call.by_source()), "EVAL return redis.call('get','foo') 1 k a b");
    }
}
