//! The value of `Date`, formatted once per second on each thread.

use std::{
    cell::Cell,
    time::{Duration, SystemTime},
};

/// The length of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) const DATE_LEN: usize = 29;

thread_local! {
    static LAST: Cell<(u64, [u8; DATE_LEN])> = const { Cell::new((u64::MAX, [0; DATE_LEN])) };
}

/// The last second that has a date with four digits of the year.
const END_OF_DATES: u64 = 253_402_300_799;

/// Returns `time` as an HTTP date (RFC 9110, section 5.6.7).
pub(super) fn http_date(time: SystemTime) -> [u8; DATE_LEN] {
    let second = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (last, text) = LAST.get();
    if last == second { text } else { format(second) }
}

#[cold]
fn format(second: u64) -> [u8; DATE_LEN] {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second.min(END_OF_DATES));
    let text = httpdate::fmt_http_date(time);
    let mut date = [b' '; DATE_LEN];
    if let Some(text) = text.as_bytes().get(..DATE_LEN) {
        date.copy_from_slice(text);
    }
    LAST.set((second, date));
    date
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_the_format_of_the_standard() {
        let at = |second| http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(second));
        assert_eq!(&at(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&at(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT", "from the cache");
        assert_eq!(&at(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&at(u64::from(u32::MAX) << 8), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
