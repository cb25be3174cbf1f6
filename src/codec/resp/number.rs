//! Numbers as text.

/// Reads a valid length of up to 8 digits, and the position behind its line. These are nearly all
/// lengths, and searching for CR takes longer than parsing them.
#[inline]
pub(super) fn short_length(input: &[u8], at: usize) -> Option<(u64, usize)> {
    let text = input.get(at..)?;
    let mut length = 0;
    for (digits, byte) in text.iter().take(9).enumerate() {
        if byte.is_ascii_digit() {
            length = length * 10 + u64::from(byte - b'0');
            continue;
        }
        let shortest = digits == 1 || digits > 1 && text[0] != b'0';
        let ends = text[digits..].starts_with(b"\r\n");
        return (shortest && ends).then_some((length, at + digits + 2));
    }
    None
}

/// Parses a length: decimal digits without superfluous zeros, at most `i64::MAX`.
#[inline]
pub(super) fn length(text: &[u8]) -> Option<u64> {
    let (&first, _) = text.split_first()?;
    if first == b'0' && text.len() > 1 {
        return None;
    }
    // 19 digits fit into 64 bits.
    if text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length = text.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    (length <= i64::MAX as u64).then_some(length)
}

/// Parses a decimal number with an optional sign.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns whether a big number has the right form.
pub(super) fn is_big_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// Parses a double in the notation of RESP3.
pub(super) fn double(text: &[u8]) -> Option<f64> {
    // Rust accepts more words for these.
    match text {
        b"inf" | b"+inf" => return Some(f64::INFINITY),
        b"-inf" => return Some(f64::NEG_INFINITY),
        b"nan" => return Some(f64::NAN),
        _ => {}
    }
    let numeric = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    if !text.iter().all(numeric) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The length of the longest text of [`double_text`]: a sign, 17 digits with a point, `e-308`.
pub(super) const MAX_DOUBLE_LEN: usize = 24;

/// Returns the shortest text that reads as `number`.
pub(super) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    // With an exponent where digits would be many. An infinity is "inf" or "-inf".
    let text = format!("{number:?}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_have_a_short_text_that_reads_as_the_same_number() {
        for (number, text) in [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (1e300, "1e300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(double_text(number), text);
        }
        for number in [f64::MAX, f64::MIN_POSITIVE, 0.1 + 0.2, -1e-7] {
            assert_eq!(double_text(number).parse(), Ok(number));
        }
        assert_eq!(double_text(-f64::MIN_POSITIVE).len(), MAX_DOUBLE_LEN);
    }

    #[test]
    fn both_ways_to_parse_a_length_agree() {
        for text in ["", "0", "7", "00", "01", "10", "99999999", "100000000", "-1", "1x", "x"] {
            let line = format!("{text}\r\n:");
            let short = short_length(line.as_bytes(), 0);
            assert!(short.is_none_or(|(value, end)| {
                Some(value) == length(text.as_bytes()) && end == text.len() + 2
            }));
            let usual = text.len() <= 8 && length(text.as_bytes()).is_some();
            assert_eq!(short.is_some(), usual, "{text}");
        }
        for line in ["12", "12\r", "12\n", "12\rx", "", "\r\n"] {
            assert_eq!(short_length(line.as_bytes(), 0), None, "{line:?}");
        }
        assert_eq!(length(b"9223372036854775807"), Some(i64::MAX as u64));
        assert_eq!(length(b"9223372036854775808"), None);
    }
}
