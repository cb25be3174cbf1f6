//! The failures of simulated disks and services.

use std::fmt;

/// The failure of an operation of a simulated disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "simulation"), allow(dead_code, reason = "only simulations fail"))]
pub(crate) enum DiskError {
    /// Nothing was written, and another attempt may succeed.
    Busy,
    Full,
    /// A sync has failed. Unsynced transactions may be lost.
    Failed,
}

/// The failure of a request to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "simulation"), allow(dead_code, reason = "only simulations fail"))]
pub(crate) enum RouteError {
    /// The service does not run, and the kernel of its machine says so.
    Unreachable,
    /// Nothing has come back in time. The request was not carried out.
    Lost,
    /// The request was carried out, and its answer was lost.
    AnswerLost,
    /// The service has refused the request.
    Refused,
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RouteError::Unreachable => "the server is down",
            RouteError::Lost | RouteError::AnswerLost => "no answer from the server",
            RouteError::Refused => "a simulated refusal",
        })
    }
}
