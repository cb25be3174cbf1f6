//! `RespLimits`: the largest strings, counts and depth of a message.

use crate::{error::Result, settings::settings};

settings! {
    /// The limits of a [`Resp`](super::Resp), for reading and writing.
    ///
    /// The bytes of an incomplete message stay in the channel, so
    /// [`max_inbound`](crate::channel::ChannelOptions::max_inbound) limits a message as a whole. It
    /// closes the channel; raise it for strings longer than its 16 MiB.
    ///
    /// ```
    /// use netwheel::codec::{Resp, RespLimits};
    ///
    /// # fn main() -> netwheel::Result {
    /// let codec = Resp::client().limits(RespLimits::new().max_depth(16))?;
    /// # let _ = codec;
    ///
    /// let refused = Resp::client().limits(RespLimits::new().max_depth(200)).unwrap_err();
    /// assert_eq!(refused.to_string(), "max_depth is 200; it must be 1 to 128");
    /// # Ok(())
    /// # }
    /// ```
    pub struct RespLimits {
        /// Sets the length of the longest bulk string, bulk error and verbatim string in bytes.
        ///
        /// The default is equal to the limit of `LengthField`. With the 512 MiB of Redis, a peer
        /// could fill the memory with a few incomplete messages.
        max_bulk_len(bytes: usize) = 1024 * 1024, "1 MiB",
            range 1..=512 * 1024 * 1024 => "1 to 536870912", reached "[`TooLong`](crate::error::PeerError::TooLong)";
        /// Sets the length of the longest simple string, error, double, big number and inline
        /// command in bytes, without type and CRLF. Doubles may always have the 24 bytes that the
        /// longest encoded one has.
        ///
        /// The default is equal to the limit of Redis for inline commands.
        max_line_len(bytes: usize) = 64 * 1024, "64 KiB",
            range 1..=1024 * 1024 => "1 to 1048576", reached "[`TooLong`](crate::error::PeerError::TooLong)";
        /// Sets the largest number of elements of a message, in all its levels together.
        ///
        /// The key and the value of a map are two elements. An element takes 40 bytes of memory and
        /// may be sent as 3 bytes. So by default a message takes at most 2.5 MiB besides its bytes,
        /// and delays other channels by a few milliseconds.
        max_elements(elements: usize) = 65_536, "65,536",
            range 1..=i32::MAX as usize => "1 to 2147483647", reached "[`TooManyElements`](super::RespError::TooManyElements)";
        /// Sets the largest number of nested aggregates.
        ///
        /// Requests always have one level. The deepest replies of Redis 7 are those to `COMMAND`,
        /// with 8 levels, and to `COMMAND DOCS`, with 12.
        max_depth(levels: usize) = 8, "8",
            range 1..=128 => "1 to 128", reached "[`TooDeep`](super::RespError::TooDeep)";
    }
}

impl RespLimits {
    /// Returns an error if a limit is out of its range.
    pub(super) fn checked(self) -> Result<Self> {
        self.check().map(|()| self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::check_limits_page;

    #[test]
    fn the_documentation_states_the_defaults_and_ranges() {
        for row in RespLimits::rows() {
            row.check_words();
            check_limits_page("Limits of codecs", &format!("RespLimits::{}", row.name), row.text);
        }
    }
}
