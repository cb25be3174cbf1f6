//! What an input consists of.

use arbitrary::Arbitrary;
use netwheel::{
    buffer::WaterMark,
    channel::{ChannelOptions, Overflow},
};
use std::time::Duration;

#[derive(Debug, Arbitrary)]
pub(super) struct Plan {
    pub(super) framing: Framing,
    pub(super) stages: Stages,
    pub(super) options: Options,
    pub(super) operations: Vec<Operation>,
    pub(super) reactions: Vec<Reaction>,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
pub(super) enum Framing {
    Raw,
    Line,
    Delimiter,
    LengthField,
    Varint,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
pub(super) enum Stages {
    None,
    Halves,
    Delayed,
    DelayedHalves,
}

#[derive(Debug, Arbitrary)]
pub(super) struct Options {
    marks: Option<(u8, u8)>,
    max_outbound: Option<u16>,
    max_inbound: Option<u8>,
    overflow: Policy,
    read_size: Option<u8>,
    reads_per_turn: u8,
    writes_per_turn: u8,
    auto_read: bool,
    one_message_per_read: bool,
    read_while_writable: bool,
    half_close: bool,
    close_timeout: Option<u8>,
    max_scheduled_tasks: u8,
}

#[derive(Debug, Arbitrary)]
enum Policy {
    Refuse,
    DropNewest,
    DropOldest,
    Close,
}

impl Options {
    pub(super) fn to_channel(&self) -> ChannelOptions {
        let mut options = ChannelOptions::new()
            .overflow(match self.overflow {
                Policy::Refuse => Overflow::Refuse,
                Policy::DropNewest => Overflow::DropNewest,
                Policy::DropOldest => Overflow::DropOldest,
                Policy::Close => Overflow::Close,
            })
            // Mostly on, because little happens without.
            .reads_per_turn(usize::from(self.reads_per_turn % 4) + 1)
            .writes_per_turn(usize::from(self.writes_per_turn % 4) + 1)
            .auto_read(!self.auto_read)
            .one_message_per_read(self.one_message_per_read)
            .read_while_writable(self.read_while_writable)
            .half_close(!self.half_close)
            .max_scheduled_tasks(usize::from(self.max_scheduled_tasks % 8) + 1);
        if let Some((low, more)) = self.marks
            && let Ok(mark) = WaterMark::new(low.into(), usize::from(low) + usize::from(more))
        {
            options = options.water_mark(mark);
        }
        if let Some(bytes) = self.max_outbound {
            options = options.max_outbound(bytes.into());
        }
        if let Some(bytes) = self.max_inbound {
            options = options.max_inbound(bytes.into());
        }
        if let Some(bytes) = self.read_size {
            options = options.read_size(bytes.into());
        }
        if let Some(millis) = self.close_timeout {
            options = options.close_timeout(Duration::from_millis(millis.into()));
        }
        options
    }
}

/// What happens to the channel from outside.
#[derive(Debug, Arbitrary)]
pub(super) enum Operation {
    Receive(Vec<u8>),
    EndInbound,
    FailInbound,
    /// The number of bytes that the peer accepts.
    Room(Option<u8>),
    /// Milliseconds.
    Advance(u8),
    Stall(u8),
    RunPending,
    Write(u8),
    WriteTracked(u8),
    ShutdownWrite,
    Close,
    CloseNow,
    Reset,
    TakeOutput,
}

/// What the handler does in a callback.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub(super) enum Reaction {
    Nothing,
    Write(u8),
    WriteTracked(u8),
    WriteThrice(u8),
    Flush,
    Close,
    CloseWith(u8),
    CloseNow,
    Reset,
    ShutdownWrite,
    Fail,
    /// Milliseconds.
    Schedule(u8),
    SchedulePeriodic(u8),
    CancelTask,
    Replace(Framing, Stages),
    AutoRead(bool),
    Read,
    PauseReading,
    HoldInput(u8),
    ReleaseInput,
    Offload,
    Idle(u8),
}
