//! A readiness event of a source.
//!
//! Invariant: the type carries no reference to the poll that produced it, so a driver other than
//! the kernel can make readiness events. Plain data.

/// The set of conditions that a readiness event reports, one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ready(u8);

impl Ready {
    /// No condition.
    pub(crate) const NONE: Ready = Ready(0);
    /// A read should not block.
    pub(crate) const READABLE: Ready = Ready(1);
    /// A write should not block.
    pub(crate) const WRITABLE: Ready = Ready(1 << 1);
    /// The peer has shut down its write half. Unread input may precede the end of the stream.
    pub(crate) const READ_CLOSED: Ready = Ready(1 << 2);
    /// The peer has closed its read half.
    pub(crate) const WRITE_CLOSED: Ready = Ready(1 << 3);
    /// The source has an error, which the next operation returns.
    pub(crate) const ERROR: Ready = Ready(1 << 4);
    /// Urgent (out-of-band) data has arrived.
    pub(crate) const PRIORITY: Ready = Ready(1 << 5);

    /// Returns the union of both sets.
    #[inline]
    #[must_use]
    pub(crate) const fn with(self, other: Ready) -> Ready {
        Ready(self.0 | other.0)
    }

    /// Returns this set, and `other` as well if `condition` holds.
    #[inline]
    #[must_use]
    pub(crate) const fn with_if(self, condition: bool, other: Ready) -> Ready {
        Ready(self.0 | if condition { other.0 } else { 0 })
    }

    /// Returns whether both sets share a condition.
    #[inline]
    pub(crate) const fn has(self, any: Ready) -> bool {
        self.0 & any.0 != 0
    }

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) const fn is_readable(self) -> bool {
        self.has(Self::READABLE)
    }

    #[inline]
    pub(crate) const fn is_writable(self) -> bool {
        self.has(Self::WRITABLE)
    }

    #[cfg(unix)]
    #[inline]
    pub(crate) const fn is_read_closed(self) -> bool {
        self.has(Self::READ_CLOSED)
    }

    #[cfg(unix)]
    #[inline]
    pub(crate) const fn is_write_closed(self) -> bool {
        self.has(Self::WRITE_CLOSED)
    }

    #[inline]
    pub(crate) const fn is_error(self) -> bool {
        self.has(Self::ERROR)
    }

    #[inline]
    pub(crate) const fn is_priority(self) -> bool {
        self.has(Self::PRIORITY)
    }

    /// Returns whether the input may have come to its end: the peer has shut down its write half,
    /// or the connection has failed.
    #[inline]
    pub(crate) const fn is_hang_up(self) -> bool {
        self.has(Self::READ_CLOSED.with(Self::ERROR))
    }
}

#[cfg(test)]
mod tests {
    use super::Ready;

    #[test]
    fn each_condition_is_a_bit_of_its_own() {
        let all = [
            Ready::READABLE,
            Ready::WRITABLE,
            Ready::READ_CLOSED,
            Ready::WRITE_CLOSED,
            Ready::ERROR,
            Ready::PRIORITY,
        ];
        for (i, one) in all.into_iter().enumerate() {
            let asked = [
                one.is_readable(),
                one.is_writable(),
                one.is_read_closed(),
                one.is_write_closed(),
                one.is_error(),
                one.is_priority(),
            ];
            assert_eq!(asked.iter().position(|yes| *yes), Some(i));
            assert_eq!(asked.iter().filter(|yes| **yes).count(), 1);
            assert_eq!(one.is_hang_up(), one.is_read_closed() || one.is_error());
            assert!(!one.is_empty());
        }
        assert!(Ready::NONE.is_empty() && Ready::default() == Ready::NONE);
        let both = Ready::READABLE.with_if(true, Ready::ERROR).with_if(false, Ready::WRITABLE);
        assert!(both.is_readable() && both.is_error() && !both.is_writable());
    }
}
