//! Input in the usual case: one filter, which is established and consumes each read as a whole.
//!
//! Invariant: the result is that of [`Filters::pass`] and [`Filters::pass_end`], which handle every
//! case.

use super::{Filters, Lent, input::FilterInput};
use crate::{
    channel::filter::{filter_state::FilterState, opened::Opened},
    error::Result,
};

impl Filters {
    /// Returns whether there is one filter, which is established and keeps nothing, and the wire
    /// has not ended.
    #[inline]
    pub(super) fn has_single_open_filter(&self) -> bool {
        match self.layers.as_slice() {
            [layer] => {
                layer.state == FilterState::Established
                    && !layer.ended
                    && layer.kept.is_empty()
                    && self.begun == 1
                    && self.left_over.is_empty()
                    && !self.wire_ended
            }
            _ => false,
        }
    }

    /// Passes input to the only filter.
    ///
    /// # Errors
    /// The error of the filter. What precedes it is delivered.
    #[inline]
    pub(super) fn pass_single(
        &mut self,
        input: &mut [u8],
        opened: &mut Opened<'_>,
        lent: &mut Lent<'_>,
    ) -> Result {
        let (length, mark) = (input.len(), opened.mark());
        let result = self.call(0, Some(opened), lent, |filter, ctx| filter.read(ctx, input));
        if let (Ok(taken), [layer]) = (&result, self.layers.as_slice())
            && *taken >= length
            && layer.state == FilterState::Established
        {
            return Ok(());
        }
        self.pass_single_rest(result, input, mark, opened, lent)
    }

    /// Continues after the filter has failed, has left a rest of its input, has changed its state,
    /// or has inserted a filter. `mark` precedes the plaintext of the call.
    #[inline(never)]
    fn pass_single_rest(
        &mut self,
        result: Result<usize>,
        input: &mut [u8],
        mark: (usize, usize),
        opened: &mut Opened<'_>,
        lent: &mut Lent<'_>,
    ) -> Result {
        let length = input.len();
        // The plaintext of the call belongs to the inserted filter.
        let above = if self.layers.len() > 1 { opened.take_from(mark) } else { Vec::new() };
        let above = FilterInput::Own(above, 0);
        let rest = match result {
            Ok(taken) => &mut input[taken.min(length)..],
            Err(error) => {
                if self.has_refused_one() {
                    opened.truncate(mark);
                }
                self.begin(lent)?;
                self.pass(1, above, false, opened, lent)?;
                return Err(error);
            }
        };
        let layer = &mut self.layers[0];
        match layer.state {
            FilterState::Finished => {
                self.remove(0);
                self.begin(lent)?;
                self.pass(0, above, false, opened, lent)?;
                self.pass(0, FilterInput::Lent(rest), false, opened, lent)?;
            }
            FilterState::InputEnded => {
                layer.ended = true;
                self.begin(lent)?;
                self.pass(1, above, false, opened, lent)?;
            }
            FilterState::Handshaking | FilterState::Waiting | FilterState::Established => {
                FilterInput::Lent(rest).keep(&mut layer.kept, lent.buffers);
                self.begin(lent)?;
                self.pass(1, above, false, opened, lent)?;
            }
        }
        self.begin(lent)?;
        self.pass_end(opened, lent)
    }
}
