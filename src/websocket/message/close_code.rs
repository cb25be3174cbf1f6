//! The status codes of Close frames.

use std::fmt;

/// The status code of a Close frame (RFC 6455, section 7.4).
///
/// Programs choose their own codes from 4000 to 4999.
///
/// ```
/// use netwheel::websocket::CloseCode;
///
/// assert_eq!(CloseCode::GOING_AWAY.get(), 1001);
/// assert!(CloseCode::new(4001).is_sendable());
/// assert!(!CloseCode::new(1005).is_sendable());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// 1000: the purpose of the connection is fulfilled.
    pub const NORMAL: CloseCode = CloseCode(1000);
    /// 1001: the server shuts down, or the browser has left the page.
    pub const GOING_AWAY: CloseCode = CloseCode(1001);
    /// 1002: the peer has violated the protocol.
    pub const PROTOCOL_ERROR: CloseCode = CloseCode(1002);
    /// 1003: the endpoint does not accept messages of this type.
    pub const UNSUPPORTED_DATA: CloseCode = CloseCode(1003);
    /// 1007: the data of a message does not fit its type, for example text that is not UTF-8.
    pub const INVALID_PAYLOAD: CloseCode = CloseCode(1007);
    /// 1008: a message violates the policy of the endpoint.
    pub const POLICY_VIOLATION: CloseCode = CloseCode(1008);
    /// 1009: a message is too big.
    pub const TOO_BIG: CloseCode = CloseCode(1009);
    /// 1011: an unexpected condition prevents the server from going on.
    pub const INTERNAL_ERROR: CloseCode = CloseCode(1011);
    /// 1012: the server restarts. Clients reconnect after a random delay.
    pub const SERVICE_RESTART: CloseCode = CloseCode(1012);
    /// 1013: the server is overloaded.
    pub const TRY_AGAIN_LATER: CloseCode = CloseCode(1013);

    /// Returns a code with this number, which need not be valid.
    pub const fn new(code: u16) -> Self {
        CloseCode(code)
    }

    /// Returns the number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns whether a Close frame may carry this code: the registered codes from 1000 to 1014,
    /// and 3000 to 4999. The codes 1004, 1005 and 1006 are reserved.
    pub const fn is_sendable(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u16> for CloseCode {
    fn from(code: u16) -> Self {
        CloseCode(code)
    }
}

impl From<CloseCode> for u16 {
    fn from(code: CloseCode) -> Self {
        code.0
    }
}
