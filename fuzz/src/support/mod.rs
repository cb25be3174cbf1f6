//! What the targets share: reading the input, cutting streams, driving codecs.

mod cuts;
mod decoding;
pub(crate) mod http_limits;

pub(crate) use cuts::Cuts;
pub(crate) use decoding::{decode_in_pieces, encode};

use arbitrary::{Arbitrary, Unstructured};

/// Reads the input of a target. The last field of `T` takes all bytes that are left, so an input
/// consists of settings in front of a stream.
pub(crate) fn input<'a, T: Arbitrary<'a>>(data: &'a [u8]) -> Option<T> {
    T::arbitrary_take_rest(Unstructured::new(data)).ok()
}
