//! What there is in a frame's header beside the length field, in as few bytes as it takes.
//!
//! Always holds: what is narrowed and widened again is what it was. Pure; every channel with frames has one, so its size
//! matters.

/// Where the length field is in a header, and what it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) adjustment: i64,
    pub(super) offset: u32,
    pub(super) strip: u32,
}

/// A [`Shape`] whose numbers are all small, as they are in nearly every protocol.
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
    /// A length field of so many bytes, which is stripped, and nothing else.
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
    fn what_is_narrow_is_the_same_when_it_is_widened_and_the_rest_is_not_narrow() {
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
