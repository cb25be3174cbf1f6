//! The record of a run, and the properties that hold for each.

use super::plan::{Framing, Reaction};
use netwheel::{
    Codec, Completion, Result,
    bytes::Bytes,
    codec::{Delimiter, LengthField, Line, RawBytes, Varint},
};
use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    sync::{Arc, Mutex},
};

/// The end of each message in the byte stream, so that messages of all framings can be found.
const END: u8 = b';';

/// A callback. The number is that of the pipeline.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Call {
    Active,
    Read(usize),
    ReadComplete,
    Writability(bool),
    Idle,
    ReadClosed,
    Error(String),
    Task,
    Answer,
    Inactive,
}

/// The origin of a message that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Handler,
    Outside,
}

struct Tracked {
    origin: Origin,
    number: usize,
    /// The results: one, at the end.
    results: Arc<Mutex<Vec<Result>>>,
}

#[derive(Default)]
struct Record {
    calls: Vec<(u32, Call)>,
    reactions: VecDeque<Reaction>,
    pipelines: u32,
    /// The number of messages of the handlers and from outside.
    handler: usize,
    outside: usize,
    refused: Vec<(Origin, usize)>,
    tracked: Vec<Tracked>,
    output: Vec<u8>,
    in_callback: bool,
    replaced_framing: bool,
}

#[derive(Clone)]
pub(super) struct Journal(Rc<RefCell<Record>>);

impl Journal {
    pub(super) fn new(reactions: Vec<Reaction>) -> Self {
        Journal(Rc::new(RefCell::new(Record { reactions: reactions.into(), ..Record::default() })))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().calls.is_empty()
    }

    /// Returns the number of a new pipeline.
    pub(super) fn next_pipeline(&self) -> u32 {
        let mut record = self.0.borrow_mut();
        record.pipelines += 1;
        record.pipelines - 1
    }

    /// Records the begin of a callback, and returns the reaction to it. Callbacks are not nested.
    pub(super) fn begin(&self, pipeline: u32, call: Call) -> Option<Reaction> {
        let mut record = self.0.borrow_mut();
        assert!(!std::mem::replace(&mut record.in_callback, true), "{call:?} within another callback");
        record.calls.push((pipeline, call));
        record.reactions.pop_front()
    }

    pub(super) fn end(&self) {
        self.0.borrow_mut().in_callback = false;
    }

    pub(super) fn add_output(&self, bytes: &[u8]) {
        self.0.borrow_mut().output.extend_from_slice(bytes);
    }

    // ---- messages: a letter for the origin, a number, filling, and the end ----

    pub(super) fn handler_message(&self, size: u8) -> Bytes {
        let mut record = self.0.borrow_mut();
        record.handler += 1;
        message('h', record.handler - 1, size)
    }

    pub(super) fn outside_message(&self, size: u8) -> Bytes {
        let mut record = self.0.borrow_mut();
        record.outside += 1;
        message('o', record.outside - 1, size)
    }

    /// The last message was refused.
    pub(super) fn refused_outside(&self) {
        let mut record = self.0.borrow_mut();
        let number = record.outside - 1;
        record.refused.push((Origin::Outside, number));
    }

    pub(super) fn track_outside(&self, written: Completion) {
        let number = self.0.borrow().outside - 1;
        self.track(Origin::Outside, number, written);
    }

    /// Tracks the last message of the handler.
    pub(super) fn track_handler(&self, written: Completion) {
        let number = self.0.borrow().handler - 1;
        self.track(Origin::Handler, number, written);
    }

    fn track(&self, origin: Origin, number: usize, written: Completion) {
        let results = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&results);
        written.on_complete(move |result| sink.lock().expect("not poisoned").push(result));
        self.0.borrow_mut().tracked.push(Tracked { origin, number, results });
    }

    // ---- checks ----

    /// `active` comes first, `inactive` once and last, and a replaced pipeline is not called.
    pub(super) fn check_callbacks(&self, is_closed: bool) {
        let record = self.0.borrow();
        let calls = &record.calls;
        let (mut current, mut writable, mut ended) = (None, None, false);
        for (at, (pipeline, call)) in calls.iter().enumerate() {
            if *call == Call::Active {
                assert!(current.is_none_or(|current| current < *pipeline), "twice active: {calls:?}");
                (current, writable, ended) = (Some(*pipeline), None, false);
                continue;
            }
            assert_eq!(current, Some(*pipeline), "a call of another pipeline at {at}: {calls:?}");
            match call {
                Call::Inactive => assert_eq!(at + 1, calls.len(), "a call after the end: {calls:?}"),
                Call::Read(_) => assert!(!ended, "a message after the end of the stream: {calls:?}"),
                Call::ReadClosed => {
                    assert!(!ended, "a second end of the stream: {calls:?}");
                    ended = true;
                }
                Call::Writability(now) => {
                    assert_ne!(writable, Some(*now), "not a change: {calls:?}");
                    writable = Some(*now);
                }
                _ => {}
            }
        }
        let has_ended = calls.last().is_some_and(|(_, call)| *call == Call::Inactive);
        assert_eq!(has_ended, is_closed, "{calls:?}");
    }

    /// Each tracked write has completed once. Messages are sent in the order of their writes, and
    /// those whose completion succeeded are sent.
    pub(super) fn check_writes(&self, framing: Framing) {
        let record = self.0.borrow();
        let sent = if record.replaced_framing { None } else { Some(sent(framing, &record.output)) };
        if let Some(sent) = &sent {
            for origin in [Origin::Handler, Origin::Outside] {
                let numbers: Vec<_> =
                    sent.iter().filter(|(from, _)| *from == origin).map(|(_, number)| *number).collect();
                assert!(numbers.is_sorted_by(|a, b| a < b), "sent out of order: {sent:?}");
            }
            for refused in &record.refused {
                assert!(!sent.contains(refused), "a refused message was sent: {refused:?}");
            }
        }
        for Tracked { origin, number, results } in &record.tracked {
            let results = results.lock().expect("not poisoned");
            assert_eq!(results.len(), 1, "completions of {origin:?} {number}");
            if let Some(sent) = &sent
                && results[0].is_ok()
            {
                assert!(sent.contains(&(*origin, *number)), "{origin:?} {number} is not in {sent:?}");
            }
        }
    }

    /// The output has several framings from now on, so that its messages are not checked.
    pub(super) fn replace_framing(&self) {
        self.0.borrow_mut().replaced_framing = true;
    }
}

fn message(origin: char, number: usize, size: u8) -> Bytes {
    let filling = ".".repeat(usize::from(size) * 2);
    format!("{origin}{number}{filling}{}", char::from(END)).into()
}

/// Returns the messages in the output. The last one may be cut off.
fn sent(framing: Framing, output: &[u8]) -> Vec<(Origin, usize)> {
    let output = Bytes::copy_from_slice(output);
    let bytes = match framing {
        Framing::Raw => payload(RawBytes, output),
        Framing::Line => payload(Line::new(), output),
        Framing::Delimiter => payload(Delimiter::new(["||", "|-"]).expect("valid"), output),
        Framing::LengthField => payload(LengthField::u16(), output),
        Framing::Varint => payload(Varint::new(), output),
    };
    let whole = bytes.split_inclusive(|byte| *byte == END).filter(|message| message.ends_with(&[END]));
    let parse = |message: &[u8]| {
        let text = std::str::from_utf8(message).expect("text");
        let origin = match text.as_bytes()[0] {
            b'h' => Origin::Handler,
            b'o' => Origin::Outside,
            _ => panic!("{text:?} is no message"),
        };
        (origin, text[1..text.len() - 1].trim_end_matches('.').parse().expect("a number"))
    };
    whole.map(parse).collect()
}

/// Removes the framing.
fn payload(mut codec: impl Codec<Read = Bytes>, mut output: Bytes) -> Vec<u8> {
    let mut payload = Vec::new();
    while !output.is_empty()
        && let Some(message) = codec.decode(&mut output).expect("valid output")
    {
        payload.extend_from_slice(&message);
    }
    payload
}
