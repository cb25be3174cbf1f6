//! Random writes with and without keys, from the handler and from a handle, to a peer that accepts
//! a random number of bytes now and then. A list of messages is the model.

use bytes::Bytes;
use netwheel::{
    Completion, Error, channel::ChannelOptions, codec::RawBytes, prelude::*, testing::EmbeddedChannel,
};
use proptest::prelude::*;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

/// From this number of pending bytes on, a channel has a backlog although its socket is not full.
const BACKLOG: usize = 16 * 1024;

#[derive(Debug, Clone)]
struct Write {
    key: Option<u64>,
    len: usize,
    tracked: bool,
}

#[derive(Debug, Clone)]
enum Step {
    /// The handler writes all of these in one callback.
    Handler(Vec<Write>),
    /// Another thread writes all of these before the loop runs.
    Handle(Vec<Write>),
    /// The peer accepts this number of bytes.
    Take(usize),
    /// The peer accepts everything, and all further bytes until the next step of this kind.
    TakeAll,
    /// The handler closes the channel when everything is sent.
    Close,
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let len = prop_oneof![10 => 1..50usize, 2 => 900..1200usize, 2 => 4000..9000usize, 1 => Just(0)];
    let key = prop_oneof![1 => Just(None), 3 => (0..4u64).prop_map(Some)];
    let write = (key, len, prop::bool::weighted(0.3));
    prop::collection::vec(write.prop_map(|(key, len, tracked)| Write { key, len, tracked }), 1..6)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => writes().prop_map(Step::Handler),
        20 => writes().prop_map(Step::Handle),
        20 => prop_oneof![0..30usize, 0..3000usize, 0..20_000usize].prop_map(Step::Take),
        2 => Just(Step::TakeAll),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 1..60)
}

/// Returns message number `n`, which differs from all others of its length.
fn content(n: u32, len: usize) -> Bytes {
    n.to_be_bytes().into_iter().cycle().take(len).collect::<Vec<_>>().into()
}

/// The results of tracked writes by number.
type Results = Arc<Mutex<HashMap<u32, Result>>>;

fn track(results: &Results, n: u32, completion: Completion) {
    let results = results.clone();
    completion.on_complete(move |result| {
        let before = results.lock().unwrap().insert(n, result);
        assert!(before.is_none(), "write {n} has completed twice");
    });
}

/// Performs the writes of the test whenever it reads something.
struct Writer {
    batch: Arc<Mutex<Vec<(u32, Write)>>>,
    results: Results,
}

impl Handler for Writer {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        if message == "close" {
            ctx.close();
        }
        for (n, write) in self.batch.lock().unwrap().drain(..) {
            let message = content(n, write.len);
            match (write.key, write.tracked) {
                (None, false) => ctx.write(message)?,
                (Some(key), false) => ctx.write_latest(key, message)?,
                (None, true) => track(&self.results, n, ctx.write_tracked(message)?),
                (Some(key), true) => track(&self.results, n, ctx.write_tracked_latest(key, message)?),
            }
        }
        Ok(())
    }
}

fn write_through(handle: &Channel<Bytes>, results: &Results, n: u32, write: &Write) {
    let message = content(n, write.len);
    match (write.key, write.tracked) {
        (None, false) => handle.write(message).unwrap(),
        (Some(key), false) => handle.write_latest(key, message).unwrap(),
        (None, true) => track(results, n, handle.write_tracked(message).unwrap()),
        (Some(key), true) => track(results, n, handle.write_tracked_latest(key, message).unwrap()),
    }
}

struct Message {
    n: u32,
    key: Option<u64>,
    /// Whether a newer message with its key replaces it.
    replaceable: bool,
    bytes: Bytes,
    tracked: bool,
}

#[derive(Default)]
struct Model {
    waiting: VecDeque<Message>,
    /// Bytes of the first message that were sent.
    taken: usize,
    sent: Vec<u8>,
    /// How many more bytes the peer accepts; `None` for no limit.
    room: Option<usize>,
    results: HashMap<u32, &'static str>,
    conflated: u64,
    written: u64,
}

impl Model {
    fn pending(&self) -> usize {
        self.waiting.iter().map(|message| message.bytes.len()).sum::<usize>() - self.taken
    }

    fn write(&mut self, n: u32, write: &Write, blocked: bool) {
        self.written += 1;
        let bytes = content(n, write.len);
        let pending = self.pending();
        let waits = self.waiting.iter().any(|message| message.replaceable);
        let backlog = pending > 0 && (blocked || pending >= BACKLOG || waits);
        let mut message = Message { n, key: write.key, replaceable: false, bytes, tracked: write.tracked };
        if write.key.is_some() && backlog {
            let taken = self.taken;
            let found = self.waiting.iter_mut().enumerate();
            let old = found.rev().find(|(_, old)| old.replaceable && old.key == write.key);
            if let Some((at, old)) = old {
                if (at > 0 || taken == 0) && write.len > 0 {
                    message.replaceable = true;
                    let replaced = std::mem::replace(old, message);
                    self.conflated += 1;
                    if replaced.tracked {
                        self.results.insert(replaced.n, "conflated");
                    }
                    return;
                }
                old.replaceable = false;
            }
            message.replaceable = write.len > 0;
        }
        self.waiting.push_back(message);
        self.drop_empty();
    }

    /// Completes messages without bytes at the front.
    fn drop_empty(&mut self) {
        while self.waiting.front().is_some_and(|first| first.bytes.len() == self.taken) {
            let Some(first) = self.waiting.pop_front() else { return };
            self.taken = 0;
            if first.tracked {
                self.results.insert(first.n, "sent");
            }
        }
    }

    fn flush(&mut self) {
        let mut n = self.pending().min(self.room.unwrap_or(usize::MAX));
        if let Some(room) = &mut self.room {
            *room -= n;
        }
        while n > 0 {
            let first = &self.waiting[0].bytes[self.taken..];
            let part = first.len().min(n);
            self.sent.extend_from_slice(&first[..part]);
            (self.taken, n) = (self.taken + part, n - part);
            self.drop_empty();
        }
    }

    fn end(&mut self) {
        for message in self.waiting.drain(..).filter(|message| message.tracked) {
            self.results.insert(message.n, "closed");
        }
    }
}

fn check(results: &Results, model: &Model) {
    let results = results.lock().unwrap();
    let found: HashMap<u32, &str> = results
        .iter()
        .map(|(n, result)| match result {
            Ok(()) => (*n, "sent"),
            Err(Error::Conflated) => (*n, "conflated"),
            Err(Error::Closed) => (*n, "closed"),
            Err(error) => panic!("write {n}: {error}"),
        })
        .collect();
    assert_eq!(found, model.results);
}

fn run(steps: &[Step]) {
    let results = Results::default();
    let batch = Arc::new(Mutex::new(Vec::new()));
    let handler = Writer { batch: batch.clone(), results: results.clone() };
    let options = ChannelOptions::new().max_outbound(64 * 1024 * 1024);
    let pipeline = Pipeline::codec(RawBytes).handler(handler);
    let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
    channel.set_outbound_room(Some(0));
    let handle = channel.channel();
    let mut model = Model { room: Some(0), ..Model::default() };
    let (mut next, mut sent, mut open) = (0, Vec::new(), true);
    for step in steps {
        if !open {
            break;
        }
        let blocked = model.pending() > 0;
        match step {
            Step::Handler(writes) | Step::Handle(writes) => {
                for write in writes {
                    model.write(next, write, blocked);
                    match step {
                        Step::Handler(_) => batch.lock().unwrap().push((next, write.clone())),
                        _ => write_through(&handle, &results, next, write),
                    }
                    next += 1;
                }
                match step {
                    Step::Handler(_) => channel.write_inbound(b"write").unwrap(),
                    _ => _ = channel.run_pending(),
                }
            }
            Step::Take(bytes) => {
                model.room = Some(*bytes);
                channel.set_outbound_room(Some(*bytes));
            }
            Step::TakeAll => {
                model.room = None;
                channel.set_outbound_room(None);
            }
            Step::Close => {
                channel.write_inbound(b"close").unwrap();
                open = false;
            }
        }
        model.flush();
        sent.extend_from_slice(&channel.read_outbound());
        assert!(sent == model.sent, "after {step:?}");
        assert_eq!(channel.pending_bytes(), model.pending(), "after {step:?}");
        check(&results, &model);
    }
    let (ask, answer) = std::sync::mpsc::channel();
    if open {
        handle.stats().on_complete(move |stats| ask.send(stats).unwrap());
        channel.run_pending();
        let stats = answer.recv().unwrap().unwrap();
        assert_eq!((stats.messages_conflated, stats.messages_written), (model.conflated, model.written));
    }
    // Half of the runs end without the unsent bytes.
    if next % 2 == 0 {
        channel.set_outbound_room(None);
        model.room = None;
        model.flush();
        sent.extend_from_slice(&channel.read_outbound());
        assert!(sent == model.sent);
    } else {
        handle.close_now();
        channel.run_pending();
        model.end();
    }
    check(&results, &model);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_channel_behaves_like_a_list_whose_messages_are_replaced_in_place(steps in steps()) {
        run(&steps);
    }
}
