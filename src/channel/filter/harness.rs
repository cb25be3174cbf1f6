//! A filter without a channel, for tests of one filter.

use super::{
    FilterContext,
    filter_state::FilterState,
    filter_trait::{Filter, Surroundings},
};
use crate::{
    channel::{LoopServices, peer::Peer},
    error::Result,
    id::Key,
};

/// A filter with the state that a channel has for it.
pub(crate) struct FilterHarness<F> {
    filter: F,
    /// Input that the filter has not consumed.
    pub(crate) kept: Vec<u8>,
    /// The most bytes that were kept.
    pub(crate) most_kept: usize,
    /// Opened bytes.
    pub(crate) plain: Vec<u8>,
    /// Bytes for the peer.
    pub(crate) output: Vec<u8>,
    surroundings: Surroundings,
}

impl<F: Filter> FilterHarness<F> {
    /// Starts `filter`. Its wakers do nothing: tests call `receive` again.
    pub(crate) fn start(filter: F) -> Result<Self> {
        let surroundings = Surroundings {
            peer: Peer::new(None, None),
            announced: false,
            channel: Key { index: 0, generation: 0 },
            sender: Some(LoopServices::refusing_sender()),
        };
        let (kept, plain, output) = Default::default();
        let mut harness = FilterHarness { filter, kept, most_kept: 0, plain, output, surroundings };
        harness.call(|filter, ctx| filter.start(ctx))?;
        Ok(harness)
    }

    /// Passes bytes of the peer to the filter, after its unconsumed input.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result {
        let mut input = std::mem::take(&mut self.kept);
        input.extend_from_slice(bytes);
        let consumed = self.call(|filter, ctx| filter.read(ctx, &mut input));
        self.kept = input.split_off(*consumed.as_ref().unwrap_or(&0));
        // What a failed call has left belongs to no connection.
        consumed.map(|_| self.most_kept = self.most_kept.max(self.kept.len()))
    }

    pub(crate) fn end_of_input(&mut self) -> Result {
        let kept = self.kept.len();
        self.call(|filter, ctx| filter.end_of_input(ctx, kept))
    }

    /// Writes plaintext in pieces of `size` bytes.
    pub(crate) fn send(&mut self, plain: &[u8], size: usize) -> Result {
        for piece in plain.chunks(size) {
            let (before, bound) = (self.output.len(), self.filter.sealed_len(piece.len()));
            self.call(|filter, ctx| filter.write(ctx, piece))?;
            let sealed = self.output.len() - before;
            assert!(sealed <= bound, "{sealed} bytes of {} bytes; the bound is {bound}", piece.len());
        }
        Ok(())
    }

    /// Ends the output.
    pub(crate) fn close(&mut self) {
        self.call(|filter, ctx| filter.end_output(ctx)).expect("the output ends");
    }

    pub(crate) fn state(&self) -> FilterState {
        self.filter.state()
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.surroundings.peer
    }

    fn call<T>(&mut self, f: impl FnOnce(&mut F, &mut FilterContext<'_>) -> T) -> T {
        let FilterHarness { filter, plain, output, surroundings, .. } = self;
        f(filter, &mut FilterContext { plain: Some(plain), output, surroundings, inserted: None, now: 0 })
    }
}
