//! Every stream of requests is refused by us if h11 or llhttp refuses it, and otherwise means the
//! same.

mod attacks;
mod bodies;
mod compare;
mod mutations;
mod ours;
mod parsers;
mod requests;

pub(crate) use attacks::{ATTACKS, Attack};

use crate::support::random::Random;
use compare::{Agreement, compare};
use mutations::{MUTATIONS, mutate_bytes};
use parsers::{End, Parsers, Reading, are_parsers_installed};
use requests::{Draft, one_in};
use std::{collections::BTreeMap, env};

/// The number of streams, unless `NETWHEEL_HTTP_CASES` is set.
const CASES: usize = 3000;

/// Streams that are parsed by one process.
const BATCH: usize = 10_000;

/// A stream of requests, with the names of the changes to it.
pub(crate) struct Case {
    pub(crate) stream: Vec<u8>,
    mutations: Vec<&'static str>,
    seed: u64,
}

impl Case {
    pub(crate) fn generate(seed: u64) -> Self {
        // The generator begins with similar numbers for similar seeds.
        let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut mutations = Vec::new();
        let mut drafts: Vec<_> = (0..random.between(1, 4)).map(|_| Draft::generate(&mut random)).collect();
        if !one_in(&mut random, 4) {
            for _ in 0..random.between(1, 4).saturating_sub(2).max(1) {
                let at = random.between(0, drafts.len() - 1);
                let (name, mutate) = MUTATIONS[random.between(0, MUTATIONS.len() - 1)];
                if mutate(&mut drafts[at], &mut random) {
                    mutations.push(name);
                }
            }
        }
        let mut stream = Vec::new();
        for draft in &drafts {
            draft.write(&mut stream);
        }
        if one_in(&mut random, 5) {
            mutate_bytes(&mut stream, &mut random);
            mutations.push("bytes");
        }
        if one_in(&mut random, 10) {
            stream.truncate(random.between(0, stream.len()));
        }
        Case { stream, mutations, seed }
    }

    /// Returns our reading, which does not depend on how the stream is split.
    fn read(&self) -> Reading {
        let whole = ours::read([&self.stream[..]]);
        let mut random = Random::new(self.seed + 1);
        let pieces = random.chunks(&self.stream.clone().into(), 1, 40);
        let split = ours::read(pieces.iter().map(|piece| &piece[..]));
        assert_eq!(whole, split, "case {}: {}", self.seed, self.stream.escape_ascii());
        whole
    }
}

fn read_with_more(stream: &[u8]) -> Reading {
    ours::read([stream, b"\r\n\r\n"])
}

#[test]
fn generated_requests_mean_the_same_to_us_as_to_h11_and_llhttp() {
    if !are_parsers_installed() {
        return;
    }
    let total = env::var("NETWHEEL_HTTP_CASES").map_or(CASES, |n| n.parse().unwrap());
    // The agreement for each parser and kind of change.
    let mut tally = BTreeMap::<_, usize>::new();
    let mut violations = Vec::new();
    for first in (0..total).step_by(BATCH) {
        let seeds = first..total.min(first + BATCH);
        let cases: Vec<_> = seeds.map(|seed| Case::generate(seed as u64)).collect();
        let parsers = Parsers::start(cases.iter().map(|case| &case.stream[..]));
        let ours: Vec<_> = cases.iter().map(Case::read).collect();
        let theirs = parsers.finish();
        assert_eq!(theirs.len(), cases.len());
        for ((case, ours), theirs) in cases.iter().zip(&ours).zip(&theirs) {
            for (parser, theirs) in [("h11", &theirs.h11), ("llhttp", &theirs.llhttp)] {
                match compare(ours, theirs, || read_with_more(&case.stream)) {
                    Ok(agreement) => {
                        let kind = match case.mutations[..] {
                            [] => "none",
                            [one] => one,
                            _ => "several",
                        };
                        *tally.entry((parser, agreement, kind)).or_default() += 1;
                    }
                    Err(why) => violations.push(format!(
                        "case {} ({:?}), {parser}: {why}\n {}\n ours {ours:?}\n theirs {theirs:?}",
                        case.seed,
                        case.mutations,
                        case.stream.escape_ascii()
                    )),
                }
            }
        }
    }
    for ((parser, agreement, kind), count) in &tally {
        println!("{parser:7} {agreement:?}: {kind}: {count}");
    }
    let shown = &violations[..violations.len().min(3)];
    assert!(violations.is_empty(), "{} violations, of which\n{}", violations.len(), shown.join("\n"));
    for ((parser, agreement, kind), count) in &tally {
        let is_expected = match agreement {
            Agreement::WeAreStricter => *kind == "several" || STRICTER.contains(&(parser, kind)),
            // HTTP/1.0 with `Connection: keep-alive, close`.
            Agreement::WeClose => *parser == "llhttp",
            _ => true,
        };
        assert!(is_expected, "{parser}: {agreement:?}: {kind}: {count}");
    }
    for parser in ["h11", "llhttp"] {
        let valid = tally.get(&(parser, Agreement::Same, "none")).copied().unwrap_or_default();
        assert!(valid >= total / 8, "{valid} valid streams");
    }
}

/// The changes that a parser accepts in some variants, and we refuse.
const STRICTER: [(&str, &str); 25] = [
    ("h11", "bare CR"),
    ("h11", "bare LF"),
    ("h11", "bytes"),
    ("h11", "chunk line"),
    ("h11", "coding in HTTP/1.0"),
    ("h11", "coding"),
    ("h11", "control character"),
    ("h11", "folded line"),
    ("h11", "form of the target"),
    ("h11", "host"),
    ("h11", "length and coding"),
    ("h11", "length"),
    ("h11", "request line"),
    ("h11", "trailer"),
    ("h11", "two lengths"),
    ("llhttp", "bytes"),
    ("llhttp", "chunk line"),
    ("llhttp", "coding in HTTP/1.0"),
    ("llhttp", "coding"),
    ("llhttp", "empty lines"),
    ("llhttp", "form of the target"),
    ("llhttp", "host"),
    ("llhttp", "length"),
    ("llhttp", "request line"),
    ("llhttp", "trailer"),
];

#[test]
fn attacks_are_refused_if_either_parser_refuses_them() {
    if !are_parsers_installed() {
        return;
    }
    let streams: Vec<_> = ATTACKS.iter().map(Attack::stream).collect();
    let parsers = Parsers::start(streams.iter().map(|stream| &stream[..]));
    for ((attack, stream), theirs) in ATTACKS.iter().zip(&streams).zip(parsers.finish()) {
        let ours = ours::read([&stream[..]]);
        let name = stream.escape_ascii();
        assert_eq!((ours.end, &ours.reason[..]), (End::Refused, attack.status), "{name}");
        for theirs in [&theirs.h11, &theirs.llhttp] {
            let agreement = compare(&ours, theirs, || read_with_more(stream));
            assert!(agreement.is_ok(), "{name}: {agreement:?}");
        }
    }
}
