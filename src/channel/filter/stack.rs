//! The filters of a channel, in order.
//!
//! Invariant: a filter starts when the one below it is established.

use super::{
    Filter,
    sealed::{SEALED_AHEAD, SealedOutput},
};
use crate::{Error, Result, buffer::OutboundBuffer, error::Resource};
use bytes::BytesMut;

/// The largest number of plaintext bytes that are sealed in one piece.
const CHUNK: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Filters {
    /// The first one is next to the transport.
    filters: Vec<Box<dyn Filter>>,
    /// The number of filters that have started.
    begun: usize,
    sealed: SealedOutput,
    input_ended: bool,
    output_ended: bool,
}

impl Filters {
    #[cfg_attr(not(test), expect(dead_code, reason = "no filter is public yet"))]
    pub(crate) fn new(filters: Vec<Box<dyn Filter>>) -> Self {
        Filters {
            filters,
            begun: 0,
            sealed: SealedOutput::default(),
            input_ended: false,
            output_ended: false,
        }
    }

    /// Starts the first filter, and each further one as soon as the filter below it is
    /// established.
    pub(crate) fn begin(&mut self) -> Result {
        while self.begun == 0
            || self.begun < self.filters.len() && self.filters[self.begun - 1].is_established()
        {
            let Some(filter) = self.filters.get_mut(self.begun) else { break };
            let mut reply = BytesMut::new();
            filter.begin(&mut reply)?;
            self.begun += 1;
            self.send_below(self.begun - 1, reply, 0)?;
        }
        Ok(())
    }

    /// Returns whether plaintext may pass.
    pub(crate) fn is_established(&self) -> bool {
        self.begun == self.filters.len() && self.filters.iter().all(|filter| filter.is_established())
    }

    /// Opens bytes of the wire. Returns the plaintext.
    ///
    /// # Errors
    /// If the input is invalid, or if the filters reply more than the transport takes.
    pub(crate) fn open(&mut self, wire: &[u8]) -> Result<BytesMut> {
        let mut input = BytesMut::from(wire);
        let mut at = 0;
        while at < self.filters.len() && !input.is_empty() && !self.input_ended {
            let (mut plain, mut reply) = (BytesMut::new(), BytesMut::new());
            let filter = &mut self.filters[at];
            filter.open(&input, &mut plain, &mut reply)?;
            let (established, ended) = (filter.is_established(), filter.has_ended());
            self.send_below(at, reply, 0)?;
            if established {
                self.begin()?;
            } else {
                plain.clear();
            }
            input = plain;
            at += 1;
            if ended {
                self.end_above(at, &mut input)?;
                return Ok(input);
            }
        }
        if self.sealed.wire().len() > SEALED_AHEAD {
            return Err(Error::Full { resource: Resource::FilterOutput, limit: SEALED_AHEAD });
        }
        Ok(input)
    }

    /// Handles the end of the stream below the filter at `from`: the filters above it receive the
    /// rest, then the end.
    fn end_above(&mut self, from: usize, input: &mut BytesMut) -> Result {
        for at in from..self.filters.len() {
            let (mut plain, mut reply) = (BytesMut::new(), BytesMut::new());
            let filter = &mut self.filters[at];
            filter.open(input, &mut plain, &mut reply)?;
            if !filter.has_ended() {
                filter.end_of_input()?;
            }
            *input = plain;
        }
        self.input_ended = true;
        Ok(())
    }

    /// Handles the end of the wire.
    ///
    /// # Errors
    /// If a filter finds its stream truncated.
    pub(crate) fn end_of_input(&mut self) -> Result {
        if self.input_ended { Ok(()) } else { self.end_above(0, &mut BytesMut::new()) }
    }

    /// Returns whether the peer has ended its stream in the terms of a filter.
    pub(crate) fn input_has_ended(&self) -> bool {
        self.input_ended
    }

    /// Returns the input bytes that the filters keep.
    pub(crate) fn kept(&self) -> usize {
        self.filters.iter().map(|filter| filter.kept()).sum()
    }

    /// Seals pending plaintext, as far as the limit allows.
    pub(crate) fn seal(&mut self, out: &OutboundBuffer) -> Result {
        if !self.is_established() {
            return Ok(());
        }
        loop {
            let plain = self.plain_that_fits().min(out.len() - self.sealed.plain());
            if plain == 0 {
                return Ok(());
            }
            let mut chunk = BytesMut::with_capacity(plain);
            out.copy_to(self.sealed.plain(), plain, &mut chunk);
            self.send_below(self.filters.len(), chunk, plain)?;
        }
    }

    /// Returns how much plaintext may be sealed at once now.
    fn plain_that_fits(&self) -> usize {
        let room = self.sealed.room();
        let sealed_len = |plain| self.filters.iter().rev().fold(plain, |n, filter| filter.sealed_len(n));
        let mut plain = CHUNK.min(room);
        while plain > 0 && sealed_len(plain) > room {
            plain /= 2;
        }
        plain
    }

    /// Passes bytes from the filter at `from` down to the wire.
    fn send_below(&mut self, from: usize, mut bytes: BytesMut, plain: usize) -> Result {
        if bytes.is_empty() {
            return Ok(());
        }
        for filter in self.filters[..from].iter_mut().rev() {
            let mut sealed = BytesMut::with_capacity(filter.sealed_len(bytes.len()));
            filter.seal(&bytes, &mut sealed)?;
            bytes = sealed;
        }
        self.sealed.push(&bytes, plain);
        Ok(())
    }

    /// Ends the output of all filters, from the top, once.
    pub(crate) fn end_output(&mut self) -> Result {
        if self.output_ended {
            return Ok(());
        }
        self.output_ended = true;
        for at in (0..self.begun).rev() {
            let mut end = BytesMut::new();
            self.filters[at].end_output(&mut end)?;
            self.send_below(at, end, 0)?;
        }
        Ok(())
    }

    /// Returns the bytes that wait for the transport.
    pub(crate) fn wire(&self) -> &[u8] {
        self.sealed.wire()
    }

    /// Returns the plaintext bytes in them.
    pub(crate) fn sealed_plain(&self) -> usize {
        self.sealed.plain()
    }

    /// Records that the transport has accepted `n` bytes. Returns the number of plaintext bytes
    /// that were sent by that.
    pub(crate) fn take(&mut self, n: usize) -> usize {
        self.sealed.take(n)
    }
}
