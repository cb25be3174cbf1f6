//! Filters that finish at the end of the stream or with their output.

use super::xor::Xor;
use crate::{
    channel::{
        Pipeline,
        config::ChannelOptions,
        filter::{FilterContext, filter_state::FilterState, filter_trait::Filter, filter_waker::FilterWaker},
    },
    codec::Line,
    error::{Error, Result},
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};
use bytes::Bytes;
use std::{cell::RefCell, rc::Rc};

type Log = Rc<RefCell<Vec<String>>>;

/// Records its callbacks.
struct Records(Log);

impl Handler for Records {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.borrow_mut().push("active".into());
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.0.borrow_mut().push(String::from_utf8_lossy(&line).into());
        Ok(())
    }

    fn read_closed(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.borrow_mut().push("end".into());
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.borrow_mut().push(format!("{error:#}"));
        Err(error)
    }
}

fn channel(log: &Log, filters: Vec<Box<dyn Filter>>) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::codec(Line::new()).handler(Records(log.clone()));
    let options = ChannelOptions::new().half_close(true);
    let mut builder = EmbeddedChannel::builder(pipeline).channel_options(options);
    for filter in filters {
        builder = builder.filter(filter);
    }
    builder.build().unwrap()
}

/// Looks at the first four bytes, or at the whole stream if that is shorter, and leaves.
#[derive(Default)]
struct Sniffs {
    finished: bool,
}

impl Filter for Sniffs {
    fn read(&mut self, _: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        self.finished = input.len() >= 4;
        Ok(0)
    }

    fn end_of_input(&mut self, _: &mut FilterContext<'_>, _: usize) -> Result {
        self.finished = true;
        Ok(())
    }

    fn state(&self) -> FilterState {
        if self.finished { FilterState::Finished } else { FilterState::Handshaking }
    }
}

/// Passes everything on, behind a greeting of its own.
struct Passes(&'static [u8]);

impl Filter for Passes {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        ctx.output().extend_from_slice(self.0);
        Ok(())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

#[test]
fn a_filter_that_finishes_at_the_end_of_the_stream_leaves_its_rest_to_the_codec() {
    let sniffs = || Box::new(Sniffs::default()) as Box<dyn Filter>;
    let passes = || Box::new(Passes(b"")) as Box<dyn Filter>;
    let stacks = [
        vec![sniffs()],
        vec![sniffs(), passes()],
        vec![passes(), sniffs()],
        vec![sniffs(), sniffs(), passes()],
    ];
    for (n, filters) in stacks.into_iter().enumerate() {
        let log = Log::default();
        let mut channel = channel(&log, filters);
        channel.write_inbound(b"hi\n").unwrap();
        assert_eq!(log.take(), [""; 0]);
        channel.end_inbound();
        assert_eq!(log.take(), ["active", "hi", "end"], "stack {n}");
        channel.channel().write("bye".into()).unwrap();
        channel.run_pending();
        assert_eq!(channel.read_outbound(), "bye\n", "stack {n}");
    }
}

/// Puts a letter in front of the first message, and leaves. Keeps a last byte of its input until
/// another one follows.
struct Header(FilterState);

impl Filter for Header {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let taken = input.len().saturating_sub(1);
        ctx.deliver(&input[..taken]);
        Ok(taken)
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().push(b'H');
        ctx.output().extend_from_slice(plain);
        self.0 = FilterState::Finished;
        Ok(())
    }

    fn state(&self) -> FilterState {
        self.0
    }
}

#[test]
fn a_filter_that_finishes_with_its_output_leaves_at_once() {
    let header = || Box::new(Header(FilterState::Established)) as Box<dyn Filter>;
    for filters in
        [vec![header()], vec![header(), Box::new(Passes(b""))], vec![Box::new(Passes(b"")), header()]]
    {
        let log = Log::default();
        let mut channel = channel(&log, filters);
        channel.write_inbound(b"a\nb\n").unwrap();
        assert_eq!(log.take(), ["active", "a"]);
        for line in ["one", "two"] {
            channel.channel().write(line.into()).unwrap();
            channel.run_pending();
        }
        assert_eq!(channel.read_outbound(), "Hone\ntwo\n");
        assert_eq!(log.take(), ["b"], "the input that was kept");
        channel.write_inbound(b"c\n").unwrap();
        channel.end_inbound();
        assert_eq!(log.take(), ["c", "end"]);
    }
}

/// Inserts a filter with its first output.
struct InsertsLate;

impl Filter for InsertsLate {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        ctx.insert_above(Xor::server());
        Ok(())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

/// What follows must not be sent without that filter.
#[test]
fn a_filter_that_inserts_another_one_with_its_output_fails_the_channel() {
    let log = Log::default();
    let mut channel = channel(&log, vec![Box::new(InsertsLate)]);
    channel.channel().write("one".into()).unwrap();
    channel.run_pending();
    assert!(log.take()[1].contains("inserted another one"));
    assert!(channel.is_closed());
}

/// Waits for an answer of another thread from its start.
struct Asks {
    waker: Rc<RefCell<Option<FilterWaker>>>,
    answered: bool,
}

impl Filter for Asks {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        *self.waker.borrow_mut() = Some(ctx.waker());
        Ok(())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        self.answered = true;
        ctx.deliver(input);
        Ok(input.len())
    }

    fn state(&self) -> FilterState {
        if self.answered { FilterState::Established } else { FilterState::Waiting }
    }
}

#[test]
fn a_filter_that_waits_is_not_called_with_the_rest_of_one_that_finishes_at_the_end() {
    let (log, waker) = (Log::default(), Rc::default());
    let asks = Asks { waker: Rc::clone(&waker), answered: false };
    let mut channel = channel(&log, vec![Box::new(Sniffs::default()), Box::new(asks)]);
    channel.write_inbound(b"hi\n").unwrap();
    channel.end_inbound();
    channel.run_pending();
    assert_eq!(log.take(), [""; 0]);
    waker.take().unwrap().wake();
    channel.run_pending();
    assert_eq!(log.take(), ["active", "hi", "end"]);
}

#[test]
fn a_filter_that_has_finished_with_the_output_of_another_filter_passes_further_output_on() {
    let log = Log::default();
    let header = Header(FilterState::Established);
    let filters: Vec<Box<dyn Filter>> =
        vec![Box::new(header), Box::new(Passes(b"a")), Box::new(Passes(b"b"))];
    let mut channel = channel(&log, filters);
    channel.channel().write("one".into()).unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "Habone\n");
}
