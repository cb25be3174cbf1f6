//! Sets of independent facts: each fact is a bit, and sets of different types do not mix.

use super::Part;

/// A set of facts of one type.
pub(crate) trait FactSet: Copy {
    /// The facts as bits of the packed word.
    fn bits(self) -> u64;
}

/// Declares a set of facts, which takes the bits of the packed word from `shift` on.
macro_rules! fact_set {
    ($(#[$doc:meta])* $set:ident, $shift:literal: $($(#[$fact_doc:meta])* $fact:ident,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $set(u64);

        const _: () = {
            #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "numbers the facts")]
            enum Fact { $($fact,)* }

            impl $set {
                $($(#[$fact_doc])* pub(crate) const $fact: $set = $set(1 << ($shift + Fact::$fact as u64));)*

                /// Returns the union of both sets.
                #[allow(dead_code, reason = "not every set is asked for two facts at once")]
                pub(crate) const fn with(self, other: $set) -> $set {
                    $set(self.0 | other.0)
                }

                /// The facts as bits of the packed word, for masks.
                #[allow(dead_code, reason = "not every set is part of a mask")]
                pub(super) const fn mask(self) -> u64 {
                    self.0
                }
            }

            impl FactSet for $set {
                #[inline(always)]
                fn bits(self) -> u64 {
                    self.0
                }
            }

            impl Part for $set {
                const BITS: u64 = [$(Fact::$fact,)*].len() as u64;
                const SHIFT: u64 = $shift;

                fn pack(self) -> u64 {
                    self.0 >> $shift
                }

                fn unpack(bits: u64) -> Self {
                    $set(bits << $shift)
                }
            }
        };
    };
}

fact_set! {
    /// The conditions on which the channel reads, besides a [`ReadGrant`](super::ReadGrant).
    ReadDemand, 9:
    /// Bytes are read as they arrive.
    AUTO,
    /// The program has requested one read, which has not happened yet.
    WANTED,
    /// Automatic reading pauses: the program holds too much of the input.
    INPUT_HELD,
    /// Automatic reading pauses: the channel is not writable, and input would only produce more
    /// output.
    OUTPUT_FULL,
    /// All reading pauses, requested reads as well: a stage has paused it.
    STAGE_PAUSED,
    /// All reading and delivery for the pipeline pauses: a filter is not established. The filters
    /// control reading until then; see [`ChannelState::may_read`](crate::channel::ChannelState).
    HANDSHAKING,
}

fact_set! {
    /// The driver's knowledge of the transport.
    Readiness, 15:
    /// The transport may hold bytes that no further event will announce.
    MAYBE_READABLE,
    /// The transport accepted less than it was offered. No event has reported it as writable yet.
    WRITE_BLOCKED,
    /// The peer has ended its stream, or an event reported that it has.
    HANG_UP,
    /// The peer has sent urgent data at some time. A read ends there, even if more bytes follow.
    URGENT,
    /// In the loop's list of channels to be read in the next turn without an event.
    CARRIED_OVER,
}

fact_set! {
    /// Work that the channel has left for later.
    Pending, 20:
    /// Flush before anything else.
    FLUSH,
    /// In the loop's attention list.
    LISTED,
    /// The entry on the wheel may be too late.
    ARM_WATCH,
    /// A scheduled task was dropped because there are too many. The handler is to be notified.
    TASK_REFUSED,
    /// Another pipeline waits to take over.
    REPLACED,
    /// A stage has reported an error. The handler is to be notified.
    FAILED,
    /// The kept input or the pipeline may hold whole messages, because decoding was interrupted.
    /// While messages are delivered it stops the delivery: the time for I/O in this turn is used
    /// up.
    UNDECODED,
}

fact_set! {
    /// Results of earlier calls.
    Memory, 27:
    /// The pending weight is within the water marks.
    WRITABLE,
    /// The handler has received a message.
    SERVED,
    /// The channel has, or had, time limits.
    LIMITED,
    /// The last decoding failed without consuming a byte.
    STUCK,
    /// The message that was just written was dropped.
    DROPPED,
    /// The message that could not be written is refused, even if the overflow policy would drop it.
    REFUSES,
    /// The overflow policy of the channel drops messages.
    DROPS,
    /// The pipeline was notified that the loop shuts down.
    SHUTTING_DOWN,
    /// The pipeline was notified that the channel has reached its maximum age.
    AGED,
    /// A stage closes the channel behind the last exchange.
    ENDS_LATER,
    /// A stage is ending the connection, so the channel refuses messages of handles.
    HANDLES_REFUSED,
    /// The message that has just failed consumed no byte, because it was queued.
    QUEUED_FAILED,
}
