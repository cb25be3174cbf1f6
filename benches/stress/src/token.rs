//! Tokens for callbacks that must be called once.

use crate::report::{Invariant, Report};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// The kinds of operations whose completions are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Connect,
    Tracked,
    Closed,
    Writable,
    Broadcast,
    LoopTask,
    Acquire,
    Visit,
}

const KINDS: [Kind; 8] = [
    Kind::Connect,
    Kind::Tracked,
    Kind::Closed,
    Kind::Writable,
    Kind::Broadcast,
    Kind::LoopTask,
    Kind::Acquire,
    Kind::Visit,
];

/// The completions of a round that are still open.
pub(crate) struct Tokens {
    open: [AtomicUsize; KINDS.len()],
    report: Arc<Report>,
}

/// Owned by a callback, which must be called before it is dropped.
pub(crate) struct Token {
    tokens: Arc<Tokens>,
    kind: Kind,
    called: bool,
}

impl Tokens {
    pub(crate) fn new(report: Arc<Report>) -> Arc<Self> {
        Arc::new(Tokens { open: Default::default(), report })
    }

    pub(crate) fn token(self: &Arc<Self>, kind: Kind) -> Token {
        self.open[kind as usize].fetch_add(1, SeqCst);
        Token { tokens: self.clone(), kind, called: false }
    }

    pub(crate) fn open(&self) -> Vec<(Kind, usize)> {
        let open = |kind: Kind| (kind, self.open[kind as usize].load(SeqCst));
        KINDS.into_iter().map(open).filter(|(_, open)| *open > 0).collect()
    }
}

impl Token {
    pub(crate) fn called(mut self) {
        self.called = true;
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.tokens.open[self.kind as usize].fetch_sub(1, SeqCst);
        if !self.called && !std::thread::panicking() {
            let detail = format!("the callback of {:?} was dropped, and never called", self.kind);
            self.tokens.report.violation(Invariant::Completions, detail);
        }
    }
}
