//! The settings of compression.

use crate::{error::Result, settings::settings};

settings! {
    /// The settings of the extension permessage-deflate. A value out of range is reported when the
    /// settings are passed to a server or client.
    ///
    /// By default, each message is compressed for itself. All connections of a loop then share one
    /// compressor, and a [`ChannelGroup`](crate::ChannelGroup) compresses a broadcast once.
    pub struct Deflate {
        /// Sets whether a message may refer to earlier messages of its connection, in both
        /// directions. Similar messages become shorter. Each connection then has a compressor and a
        /// decompressor of its own, which take about 300 KiB. After a message that was refused at
        /// the limit of the channel, and with [`Overflow::DropOldest`](crate::channel::Overflow),
        /// a message refers to no earlier one, because the peer may not get that one.
        context_takeover(yes: bool) = false, "off";
        /// Sets the binary logarithm of the largest window of our compressor. Smaller windows
        /// compress less and take less memory.
        window_bits(bits: u8) = 15, "15", range 9..=15 => "9 to 15";
        /// Sets the effort of compression: 1 is the fastest, 9 compresses best.
        level(level: u8) = 1, "1", range 1..=9 => "1 to 9";
        /// Sets the length of the shortest message that is compressed, in bytes.
        threshold(bytes: usize) = 256, "256", range 1.. => "1 byte or more";
    }
}

impl Deflate {
    /// Returns these settings if all are in range.
    pub(in crate::websocket) fn checked(self) -> Result<Self> {
        self.check().map(|()| self)
    }
}
