//! A minimal tokenizer for Rust source, just sufficient to find imports.
//!
//! It drops comments and literals, and usually items that are compiled for tests only.

use std::path::PathBuf;

/// A token: an identifier, `::`, or a single character of punctuation.
pub(crate) type Token = String;

/// A module that a file declares, with the value of its `path` attribute.
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) path: Option<PathBuf>,
}

/// The contents of a source file.
pub(crate) struct Source {
    pub(crate) tokens: Vec<Token>,
    pub(crate) modules: Vec<Declared>,
}

impl Source {
    /// Parses a source file, apart from its tests.
    pub(crate) fn parse(text: &str) -> Self {
        Self::new(without_tests(tokenize(text)))
    }

    pub(crate) fn parse_with_tests(text: &str) -> Self {
        Self::new(tokenize(text))
    }

    fn new(mut tokens: Vec<Token>) -> Self {
        let mut modules = Vec::new();
        for at in 0..tokens.len() {
            if tokens[at] == "mod" && tokens.get(at + 2).is_some_and(|end| end == ";") {
                modules.push(Declared { name: tokens[at + 1].clone(), path: path_attribute(&tokens[..at]) });
            }
        }
        tokens.retain(|token| !token.starts_with('"'));
        Source { tokens, modules }
    }
}

/// Returns the value of `#[path = "…"]` if that is the last attribute before a declaration.
fn path_attribute(before: &[Token]) -> Option<PathBuf> {
    let end = before.iter().rposition(|token| token == "]")?;
    let visibility =
        before[end + 1..].iter().all(|token| ["pub", "(", ")", "crate", "super"].contains(&&**token));
    let attribute = before[..end].iter().rposition(|token| token == "[")?;
    let [name, equals, value] = &before[attribute + 1..end] else { return None };
    (visibility && name == "path" && equals == "=").then(|| PathBuf::from(value.trim_matches('"')))
}

/// Splits source text into tokens. Strings keep their quotes; comments and character literals are
/// dropped.
fn tokenize(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        match rest {
            ['/', '/', ..] => at += line_length(rest),
            ['/', '*', ..] => at += block_comment_length(rest),
            ['"', ..] => {
                let length = string_length(rest);
                tokens.push(rest[..length].iter().collect());
                at += length;
            }
            ['r', '"' | '#', ..] if raw_string_length(rest).is_some() => {
                at += raw_string_length(rest).expect("it was matched");
            }
            ['\'', '\\', ..] => at += 2 + rest[2..].iter().skip(1).take_while(|c| **c != '\'').count() + 2,
            ['\'', _, '\'', ..] => at += 3,
            // A lifetime.
            ['\'', ..] => at += 1 + identifier_length(&rest[1..]),
            [':', ':', ..] => {
                tokens.push("::".to_owned());
                at += 2;
            }
            [c, ..] if c.is_alphanumeric() || *c == '_' => {
                let length = identifier_length(rest);
                tokens.push(rest[..length].iter().collect());
                at += length;
            }
            [c, ..] => {
                if !c.is_whitespace() {
                    tokens.push(c.to_string());
                }
                at += 1;
            }
            [] => unreachable!("`at` is within the text"),
        }
    }
    tokens
}

fn identifier_length(text: &[char]) -> usize {
    text.iter().take_while(|c| c.is_alphanumeric() || **c == '_').count()
}

fn line_length(text: &[char]) -> usize {
    text.iter().take_while(|c| **c != '\n').count()
}

fn block_comment_length(text: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at + 1 < text.len() {
        match (text[at], text[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn string_length(text: &[char]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn raw_string_length(text: &[char]) -> Option<usize> {
    let hashes = text[1..].iter().take_while(|c| **c == '#').count();
    if text.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = 2 + hashes;
    let found = text[body..].windows(end.len()).position(|window| window == end);
    Some(found.map_or(text.len(), |found| body + found + end.len()))
}

/// Drops items that are compiled for tests only.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at] == "#" && tokens.get(at + 1).is_some_and(|open| open == "[") {
            let end = at + 1 + group_length(&tokens[at + 1..]);
            let attribute = &tokens[at + 2..end - 1];
            if is_for_tests(attribute) {
                at = end + item_length(&tokens[end..]);
                continue;
            }
        }
        kept.push(tokens[at].clone());
        at += 1;
    }
    kept
}

/// Returns whether an attribute restricts an item to tests: `cfg(test)`, `cfg(all(test, ..))`.
fn is_for_tests(attribute: &[Token]) -> bool {
    let text: String = attribute.concat();
    text.starts_with("cfg(test)") || text.starts_with("cfg(all(test,")
}

/// Returns the number of tokens of a bracketed group, including both brackets.
pub(crate) fn group_length(tokens: &[Token]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Returns the number of tokens of the first item: up to `;` or the end of its block.
fn item_length(tokens: &[Token]) -> usize {
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            ";" => return at + 1,
            "{" => return at + group_length(&tokens[at..]),
            "(" | "[" => at += group_length(&tokens[at..]),
            _ => at += 1,
        }
    }
    tokens.len()
}

#[test]
fn comments_literals_and_tests_are_dropped() {
    let text = r##"
        //! `crate::comment::X`
        use crate::a::B; /* crate::c::D /* nested */ */
        #[cfg(test)]
        mod tests { use crate::e::F; }
        #[cfg(all(test, not(netwheel_loom)))]
        #[path = "x_tests.rs"]
        mod x;
        #[path = "other.rs"]
        mod y;
        fn f<'a>(c: char) { c == '"' || c == '\'' || "crate::g::H" == r#"crate::i::"J"# }
    "##;
    let source = Source::parse(text);
    let text = source.tokens.concat();
    for dropped in ["comment", "::c", "::e", "::g", "::i"] {
        assert!(!text.contains(dropped), "{dropped} is still in {text}");
    }
    assert!(text.contains("usecrate::a::B;"));
    let modules: Vec<_> = source.modules.iter().map(|declared| (&*declared.name, &declared.path)).collect();
    assert_eq!(modules, [("y", &Some(PathBuf::from("other.rs")))]);
}
