//! Tokens by which a client proves that an earlier session was its own.
//!
//! A token names a [`Claim`]: the first login with a name, and all logins that continue it. It is
//! signed with a key of the server (HMAC-SHA-256), together with the name and the time at which it
//! expires. So the server keeps nothing about clients that are not connected, and no client can
//! make the token of another one. A client that stays connected gets a new token from time to time:
//! otherwise it could not resume after a long session.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::{fmt, time::Duration};

/// How long a token is accepted. A client may be away for a day, because its last token is at most
/// an hour old: it is renewed with the next request, and clients send one per `--idle-timeout`.
const LIFE: Duration = Duration::from_secs(25 * 60 * 60);
/// Age at which the token of a client that is connected is renewed.
pub(super) const RENEWAL: Duration = Duration::from_secs(30 * 60);
/// Bytes of a claim, and of a signature: 128 bits cannot be guessed.
const BYTES: usize = 16;
/// Bytes of the time at which a token expires.
const TIME: usize = size_of::<u64>();

/// The claim of a client to its name, which lasts over connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim([u8; BYTES]);

impl Claim {
    /// Returns the bytes, which need not be secret.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The key of a server, or of all servers that accept each other's tokens.
#[derive(Clone)]
pub(crate) struct TokenKey {
    key: [u8; 32],
    /// Differs between all servers with this key.
    server: u64,
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

impl TokenKey {
    /// Creates a key of the system's random numbers.
    ///
    /// # Errors
    /// Fails if the system has none.
    pub(crate) fn random() -> netwheel::Result<Self> {
        let (mut key, mut server) = ([0; 32], [0; 8]);
        for bytes in [&mut key[..], &mut server] {
            getrandom::fill(bytes).map_err(|error| netwheel::Error::other(error.to_string()))?;
        }
        Ok(TokenKey::new(key, u64::from_le_bytes(server)))
    }

    /// Creates a key from bytes that are random. `server` differs between all servers with this
    /// key.
    pub(crate) fn new(key: [u8; 32], server: u64) -> Self {
        TokenKey { key, server }
    }

    /// Returns the key of other servers, for this server.
    pub(crate) fn with_key(&self, key: [u8; 32]) -> Self {
        TokenKey { key, server: self.server }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.key
    }

    /// Returns a number that differs between all servers with this key.
    pub(crate) fn server(&self) -> u64 {
        self.server
    }

    /// Returns the claim of a login. `number` is not used for another login at this server.
    pub(crate) fn new_claim(&self, number: u64) -> Claim {
        let code = self.code().chain_update(b"claim").chain_update(self.server.to_le_bytes());
        let code = code.chain_update(number.to_le_bytes());
        let mut claim = [0; BYTES];
        claim.copy_from_slice(&code.finalize().into_bytes()[..BYTES]);
        Claim(claim)
    }

    /// Returns the token of a claim. `now` is in milliseconds since 1970 (UTC).
    pub(crate) fn token(&self, user: &str, claim: Claim, now: u64) -> String {
        let life = u64::try_from(LIFE.as_millis()).unwrap_or(u64::MAX);
        let expires = now.saturating_add(life).to_be_bytes();
        let signature = self.signed(user, claim, expires).finalize().into_bytes();
        BASE64_URL_SAFE_NO_PAD.encode([&claim.0[..], &expires, &signature[..BYTES]].concat())
    }

    /// Returns the claim of a token, if the token is one of this user and has not expired.
    pub(crate) fn check(&self, user: &str, token: &str, now: u64) -> Option<Claim> {
        // Longer texts are not decoded.
        const LENGTH: usize = (2 * BYTES + TIME) * 4 / 3 + 1;
        if token.len() != LENGTH {
            return None;
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).ok()?;
        let (claim, rest) = bytes.split_first_chunk()?;
        let (expires, signature) = rest.split_first_chunk::<TIME>()?;
        let claim = Claim(*claim);
        self.signed(user, claim, *expires).verify_truncated_left(signature).ok()?;
        (u64::from_be_bytes(*expires) > now).then_some(claim)
    }

    fn signed(&self, user: &str, claim: Claim, expires: [u8; TIME]) -> Hmac<Sha256> {
        // The user comes last, because its length varies.
        self.code().chain_update(b"token").chain_update(claim.0).chain_update(expires).chain_update(user)
    }

    fn code(&self) -> Hmac<Sha256> {
        Hmac::new_from_slice(&self.key).expect("a key of any length is accepted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_user_and_expires() {
        let (key, now) = (TokenKey::new([1; 32], 0), 1_700_000_000_000);
        let claim = key.new_claim(1);
        let token = key.token("ann", claim, now);
        let life = u64::try_from(LIFE.as_millis()).unwrap();
        assert_eq!(key.check("ann", &token, now + life - 1), Some(claim));
        assert_eq!(key.check("ann", &token, now + life), None);
        assert_eq!(key.check("bob", &token, now), None);
        assert_eq!(TokenKey::new([2; 32], 0).check("ann", &token, now), None);
        assert_ne!(claim, key.new_claim(2));
        assert_ne!(claim, TokenKey::new([1; 32], 1).new_claim(1));
    }

    #[test]
    fn a_changed_token_is_refused() {
        let (key, now) = (TokenKey::new([1; 32], 0), 0);
        let token = key.token("ann", key.new_claim(1), now);
        for at in 0..token.len() {
            let changed = if &token[at..=at] == "A" { "B" } else { "A" };
            let changed = [&token[..at], changed, &token[at + 1..]].concat();
            assert_eq!(key.check("ann", &changed, now), None, "{changed}");
        }
        for other in ["", "A", &token[1..], &format!("{token}A"), &"\u{e4}".repeat(27)] {
            assert_eq!(key.check("ann", other, now), None);
        }
    }
}
