//! Facts and requests of a channel, one bit each.

/// Facts and wishes, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(pub(super) u32);

/// Gives each flag a bit of its own.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "counts the names")]
        enum Bit { $($name,)* }

        impl Flags {
            $($(#[$doc])* pub(crate) const $name: Flags = Flags(1 << Bit::$name as u32);)*
        }
    };
}

flags! {
    /// `active` was called.
    ACTIVE,
    /// Bytes are read as they come.
    AUTO_READ,
    /// One read was asked for and has not happened yet.
    READ_WANTED,
    /// The read that was asked for is going on.
    READ_GRANTED,
    /// Close after what was written is sent.
    CLOSING,
    /// Close without sending more.
    CLOSE_NOW,
    /// The socket is closed.
    CLOSED,
    /// Flush before anything else.
    FLUSH,
    /// Between the marks: see `WaterMark`.
    WRITABLE,
    /// In the loop's attention list.
    LISTED,
    /// The socket may hold bytes that no further event will announce.
    MAYBE_READABLE,
    /// The kernel took less than was offered; wait for the event that says it takes more.
    WRITE_BLOCKED,
    /// The peer has ended its stream, or an event said that it has.
    HANG_UP,
    /// The last decoding failed without taking a byte.
    STUCK,
    /// The close timeout is armed.
    CLOSE_ARMED,
    /// `partial` or the pipeline may hold whole messages: decoding was interrupted. Set while messages are delivered, it
    /// stops the delivery: the time for I/O in this turn is used up.
    UNDECODED,
    /// In the loop's list of channels to be read without an event.
    LISTED_TO_READ,
    /// A scheduled task was dropped because there are too many; the handler is to be told.
    TASK_REFUSED,
    /// It has, or had, time limits.
    LIMITED,
    /// The output is to end after what was written; writes fail from then on.
    END_OUTPUT,
    /// The peer has been told that no more comes.
    OUTPUT_ENDED,
    /// The peer has ended its stream, and the handler knows.
    INPUT_ENDED,
    /// The message just written was dropped.
    DROPPED,
    /// The entry on the wheel may be too late.
    ARM,
    /// The codec took bytes in this read.
    MOVED,
    /// The program holds too much of the input.
    HELD,
    /// Too much waits to be sent, and what comes would only be answered.
    CHOKED,
    /// Close with a reset, so that the peer does not take the end of the stream for a good one.
    RESET,
    /// The handler was given a message, ever.
    SERVED,
    /// Another pipeline waits to take over.
    REPLACED,
    /// As `READ_GRANTED`, for one message.
    ONE_GRANTED,
    /// The peer has sent urgent data, ever: a read ends there, whatever is behind it.
    URGENT,
}

impl Flags {
    /// What ends the delivery of messages at once.
    pub(super) const STOP: Flags = Flags(
        Self::CLOSING.0
            | Self::CLOSE_NOW.0
            | Self::CLOSED.0
            | Self::FLUSH.0
            | Self::REPLACED.0
            | Self::UNDECODED.0,
    );

    /// What lets messages through while auto-read is off.
    pub(super) const GRANTED: Flags = Flags(Self::READ_GRANTED.0 | Self::ONE_GRANTED.0);

    /// What pauses the reading of a channel that reads by itself.
    pub(super) const PAUSE: Flags = Flags(Self::HELD.0 | Self::CHOKED.0);

    pub(crate) const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}
