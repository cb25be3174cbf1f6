//! How long a client keeps an idle connection.

use crate::http::{Headers, settings::HttpSettings, syntax::list};
use std::time::Duration;

/// The time by which a client closes a connection earlier than the server.
const MARGIN: Duration = Duration::from_secs(1);

/// Returns how long a client keeps a connection after a response with these headers. `None` means
/// that the server keeps it for no time at all; zero is no limit.
pub(super) fn idle_limit(headers: &Headers, settings: &HttpSettings) -> Option<Duration> {
    let Some(announced) = announced(headers) else { return Some(default_idle_limit(settings)) };
    if announced.is_zero() {
        return None;
    }
    let safe = announced.saturating_sub(MARGIN).max(announced / 2);
    Some(if settings.keep_alive_timeout.is_zero() { safe } else { safe.min(settings.keep_alive_timeout) })
}

/// Returns how long a client keeps a connection to a server that announces no time.
pub(super) fn default_idle_limit(settings: &HttpSettings) -> Duration {
    match (settings.reuse_timeout, settings.keep_alive_timeout) {
        (Duration::ZERO, limit) | (limit, Duration::ZERO) => limit,
        (reuse_time, keep_alive) => reuse_time.min(keep_alive),
    }
}

/// Returns the time that `Keep-Alive: timeout` announces. Of several, the shortest one counts.
fn announced(headers: &Headers) -> Option<Duration> {
    let parameters = headers.all("keep-alive").flat_map(list);
    let times = parameters.filter_map(|parameter| {
        let (name, value) = std::str::from_utf8(parameter).ok()?.split_once('=')?;
        let seconds = value.trim().trim_matches('"').parse::<u32>().ok()?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| Duration::from_secs(seconds.into()))
    });
    times.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(value: &str, settings: HttpSettings) -> Option<Duration> {
        idle_limit(&Headers::new().with("Keep-Alive", value), &settings)
    }

    #[test]
    fn a_connection_is_given_up_before_the_server_closes_it() {
        let settings = HttpSettings::new;
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(idle_limit(&Headers::new(), &settings()), seconds(4));
        assert_eq!(limit("timeout=5, max=100", settings()), seconds(4));
        assert_eq!(limit("max=100, Timeout = 60", settings()), seconds(59));
        assert_eq!(limit("timeout=1", settings()), Some(Duration::from_millis(500)));
        assert_eq!(limit("timeout=0", settings()), None);
        assert_eq!(limit("timeout=300", settings()), seconds(75), "the client's own limit");
        assert_eq!(limit("timeout=300", settings().keep_alive_timeout(Duration::ZERO)), seconds(299));
        for nonsense in ["timeout", "timeout=x", "timeout=-1", "timeout=99999999999", "5", ""] {
            assert_eq!(limit(nonsense, settings()), seconds(4), "{nonsense}");
        }
        assert_eq!(
            default_idle_limit(&settings().keep_alive_timeout(Duration::from_secs(2))),
            Duration::from_secs(2)
        );
        assert_eq!(default_idle_limit(&settings().reuse_timeout(Duration::ZERO)), Duration::from_secs(75));
    }
}
