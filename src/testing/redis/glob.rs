//! Patterns of `PSUBSCRIBE`, `KEYS` and access lists.

/// Returns whether `text` matches a pattern of Redis: `*`, `?`, `[a-c]`, `[^a]` and `\` before a
/// character that is meant literally.
///
/// The work is bounded by the product of both lengths: only the last `*` is tried again.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    // The position behind the last star, and how much of the text that star takes.
    let mut star: Option<(usize, usize)> = None;
    while position < text.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, position));
            at += 1;
            continue;
        }
        if let Some(next) = one(pattern, at, text[position]) {
            (at, position) = (next, position + 1);
            continue;
        }
        let Some((behind, taken)) = star else { return false };
        star = Some((behind, taken + 1));
        (at, position) = (behind, taken + 1);
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Matches one byte of the text. Returns the position behind the part of the pattern that matches.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => class(pattern, at + 1, byte),
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        literal => (literal == byte).then_some(at + 1),
    }
}

/// Matches a class, which ends at `]` or at the end of the pattern.
fn class(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let is_negated = pattern.get(at) == Some(&b'^');
    at += usize::from(is_negated);
    let mut is_in = false;
    loop {
        match pattern[at.min(pattern.len())..] {
            [b'\\', literal, ..] => {
                is_in |= literal == byte;
                at += 2;
            }
            [b']', ..] => break,
            [] => return (is_in != is_negated).then_some(pattern.len()),
            [a, b'-', b, ..] => {
                is_in |= (a.min(b)..=a.max(b)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                is_in |= literal == byte;
                at += 1;
            }
        }
    }
    (is_in != is_negated).then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "news", true),
            ("news.*", "news.art", true),
            ("news.*", "news", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[\\]]llo", "h]llo", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("", "", true),
            ("", "a", false),
            ("[a", "a", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn stars_take_quadratic_time_at_most() {
        let pattern = b"a*".repeat(2000);
        let text = b"a".repeat(1999);
        assert!(!matches(&pattern, &text));
    }
}
