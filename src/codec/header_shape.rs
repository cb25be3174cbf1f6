//! The layout of a frame's header around its length field, in few bytes.
//!
//! Invariant: widening a narrowed shape returns the original. Pure. Each channel with frames has a
//! shape, so its size matters.

/// The position of the length field in a header, and the bytes that it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) adjustment: i64,
    pub(super) offset: u32,
    pub(super) strip: u32,
}

/// A [`Shape`] with small numbers, which is sufficient for nearly every protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Narrow {
    adjustment: i16,
    offset: u8,
    strip: u8,
}

impl Shape {
    pub(super) fn offset(self) -> usize {
        self.offset as usize
    }

    pub(super) fn strip(self) -> usize {
        self.strip as usize
    }

    pub(super) fn narrowed(self) -> Option<Narrow> {
        let Shape { adjustment, offset, strip } = self;
        Some(Narrow {
            adjustment: adjustment.try_into().ok()?,
            offset: offset.try_into().ok()?,
            strip: strip.try_into().ok()?,
        })
    }
}

impl Narrow {
    /// Returns the shape of a header that is only a length field of `width` bytes and is stripped.
    pub(super) fn of_width(width: u8) -> Self {
        Narrow { adjustment: 0, offset: 0, strip: width }
    }

    pub(super) fn widened(self) -> Shape {
        let Narrow { adjustment, offset, strip } = self;
        Shape { adjustment: adjustment.into(), offset: offset.into(), strip: strip.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_shape_can_be_widened_and_others_are_not_narrow() {
        assert_eq!(size_of::<Narrow>(), 4);
        let shape = |adjustment, offset, strip| Shape { adjustment, offset, strip };
        for narrow in [shape(0, 0, 4), shape(-32_768, 255, 0), shape(32_767, 0, 255)] {
            assert_eq!(narrow.narrowed().expect("it is narrow").widened(), narrow);
        }
        for wide in [shape(-32_769, 0, 0), shape(32_768, 0, 0), shape(0, 256, 0), shape(0, 0, 256)] {
            assert!(wide.narrowed().is_none(), "{wide:?}");
        }
    }
}
