//! The text of metrics, with any name as a label.

use crate::support::input;
use arbitrary::Arbitrary;
use netwheel::{EventLoopGroup, shutdown::ShutdownOptions};
use std::collections::BTreeSet;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    name: &'a str,
}

pub fn prometheus(data: &[u8]) {
    let Some(Input { name }) = input(data) else { return };
    let Ok(group) = EventLoopGroup::builder().threads(1).name(name).build() else { return };
    let text = netwheel::prometheus::encode(&group).expect("writing to a string");
    let expected = group.event_loops()[0].name().to_owned();
    group.shutdown(ShutdownOptions::default()).wait().expect("the group ends");
    check(&text, &expected);
}

/// Parses the text as a scraper does. Asserts that each sample has the label.
fn check(text: &str, event_loop: &str) {
    let body = text.strip_suffix("# EOF\n").expect("the end of the text");
    let mut families = BTreeSet::new();
    let mut samples = BTreeSet::new();
    for line in body.split_terminator('\n') {
        if let Some(comment) = line.strip_prefix("# ") {
            let (kind, rest) = comment.split_once(' ').expect("a kind of comment");
            let (family, _) = rest.split_once(' ').expect("a name and a text");
            assert!(["HELP", "TYPE", "UNIT"].contains(&kind), "{line}");
            assert!(is_name(family), "{line}");
            families.insert(family);
            continue;
        }
        let (name, rest) = line.split_once('{').expect("labels");
        assert!(is_name(name) && families.iter().any(|family| name.starts_with(family)), "{line}");
        let (labels, value) = labels(rest);
        assert_eq!(labels.iter().filter(|(name, _)| name == "event_loop").count(), 1, "{line}");
        let label = labels.iter().find(|(name, _)| name == "event_loop");
        assert_eq!(label.map(|(_, value)| value.as_str()), Some(event_loop));
        value.parse::<f64>().expect("a number");
        assert!(samples.insert((name, labels)), "the sample occurs twice: {line}");
    }
    assert!(!samples.is_empty());
}

/// Returns the labels, and the text behind them.
fn labels(mut text: &str) -> (Vec<(String, String)>, &str) {
    let mut labels = Vec::new();
    loop {
        let (name, quoted) = text.split_once("=\"").expect("a label");
        assert!(is_name(name), "{name}");
        let (mut value, mut characters) = (String::new(), quoted.char_indices());
        let end = loop {
            match characters.next().expect("the end of the value") {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match characters.next().expect("an escaped character").1 {
                    'n' => '\n',
                    other @ ('"' | '\\') => other,
                    other => panic!("an unknown escape: {other:?}"),
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        text = &quoted[end..];
        match text.strip_prefix(',') {
            Some(next) => text = next,
            None => return (labels, text.strip_prefix("} ").expect("a value")),
        }
    }
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
