//! How long a client waits after a Close frame before it connects again.

use super::message::{CloseCode, CloseFrame};
use std::time::Duration;

/// The range of the waiting time after a Close frame without a hint: "a randomized delay of
/// 5 - 30s", according to the request that registered code 1012.
const WITHOUT_HINT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));

/// How long a client waits after a Close frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseHint {
    /// The server has stated it.
    Stated(Duration),
    /// It was drawn. A time that the program has set is better.
    Drawn(Duration),
}

/// Returns how long a client waits after this Close frame. `None` for codes that do not ask for it.
/// `draw` returns a number of nanoseconds up to its argument.
///
/// Code 1012 means that the service restarts, 1013 that it is overloaded. Neither has a field for
/// the time. Servers that know it state it in the reason: "retry after 12 s".
pub(super) fn close_hint(frame: &CloseFrame, draw: impl FnOnce(u64) -> u64) -> Option<CloseHint> {
    if !matches!(frame.code, CloseCode::SERVICE_RESTART | CloseCode::TRY_AGAIN_LATER) {
        return None;
    }
    Some(match stated_in(&frame.reason.to_ascii_lowercase()) {
        Some(time) => CloseHint::Stated(time),
        None => {
            let (least, most) = WITHOUT_HINT;
            CloseHint::Drawn(least + Duration::from_nanos(draw(crate::clock::nanos(most - least))))
        }
    })
}

/// Returns the time behind "retry after" or "retry-after", in seconds or with the unit s or ms.
fn stated_in(reason: &str) -> Option<Duration> {
    let (_, rest) = reason.split_once("retry after").or_else(|| reason.split_once("retry-after"))?;
    let rest = rest.trim_start_matches([' ', ':', '=']);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, unit) = rest.split_at(end);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next();
    let seconds = match unit {
        None | Some("" | "s" | "sec" | "second" | "seconds") => number,
        Some("ms" | "millisecond" | "milliseconds") => number / 1000.0,
        // A guess may be wrong by a factor of sixty.
        Some(_) => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    fn hint(code: CloseCode, reason: &str) -> Option<CloseHint> {
        close_hint(&CloseFrame { code, reason: reason.into() }, |most| most)
    }

    #[test]
    fn the_reason_may_state_the_time() {
        for (reason, millis) in [
            ("retry after 12 s", 12_000),
            ("busy; retry after 2.5s", 2500),
            ("Retry-After: 7", 7000),
            ("retry after 800ms", 800),
            ("retry after 500 milliseconds, please", 500),
            ("retry-after=3", 3000),
        ] {
            let expected = Some(CloseHint::Stated(Duration::from_millis(millis)));
            assert_eq!(hint(CloseCode::TRY_AGAIN_LATER, reason), expected, "{reason}");
            assert_eq!(hint(CloseCode::SERVICE_RESTART, reason), expected, "{reason}");
        }
    }

    #[test]
    fn without_a_time_the_client_waits_for_a_random_one() {
        let drawn = |seconds| Some(CloseHint::Drawn(Duration::from_secs(seconds)));
        for reason in ["", "retry after lunch", "retry after 1.2.3", "retry after -5", "retry after 2 min"] {
            assert_eq!(hint(CloseCode::TRY_AGAIN_LATER, reason), drawn(30), "{reason}");
        }
        let frame = CloseFrame { code: CloseCode::SERVICE_RESTART, reason: "".into() };
        assert_eq!(close_hint(&frame, |_| 0), drawn(5));
    }

    #[test]
    fn other_codes_ask_for_no_wait() {
        for code in [CloseCode::NORMAL, CloseCode::GOING_AWAY, CloseCode::INTERNAL_ERROR] {
            assert_eq!(hint(code, "retry after 12 s"), None);
        }
    }
}
