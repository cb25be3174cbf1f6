//! What a handler does when a thread asks for it.

use super::{Wire, pick};
use fastrand::Rng;

#[derive(Debug, Clone)]
pub(crate) enum Act {
    Write {
        count: u32,
        size: usize,
        tracked: bool,
    },
    /// Writes until the channel is full, and the rest when it becomes writable.
    Stream {
        count: u32,
        size: usize,
    },
    Flush,
    AutoReadOff {
        millis: u64,
    },
    HoldInput {
        millis: u64,
        bytes: usize,
    },
    PauseReading {
        millis: u64,
    },
    Replace {
        wire: Wire,
    },
    Offload {
        micros: u64,
    },
    Spawn {
        count: u32,
    },
    Schedule {
        count: u32,
        millis: u64,
        cancel: bool,
    },
    OnComplete {
        millis: u64,
    },
    Fail,
    ShutdownWrite,
    Close,
    CloseWith {
        size: usize,
    },
    CloseNow,
    Reset,
}

impl Act {
    /// Something after which the connection goes on.
    pub(super) fn harmless(rng: &mut Rng, size: usize) -> Self {
        match rng.u8(..16) {
            4 => Act::stream(rng, size),
            0..=3 => Act::Write { count: rng.u32(1..20), size, tracked: rng.bool() },
            5 => Act::Flush,
            6 | 7 => Act::AutoReadOff { millis: rng.u64(..30) },
            8 => Act::HoldInput { millis: rng.u64(..20), bytes: *pick(rng, &[1, 100, 1 << 20]) },
            9 => Act::PauseReading { millis: rng.u64(..20) },
            10 => Act::Replace { wire: Wire::random(rng) },
            11 => Act::Offload { micros: rng.u64(..500) },
            12 => Act::Spawn { count: rng.u32(1..4) },
            13 | 14 => {
                Act::Schedule { count: rng.u32(1..8), millis: rng.u64(..30), cancel: rng.u8(..3) == 0 }
            }
            _ => Act::OnComplete { millis: rng.u64(..20) },
        }
    }

    /// At most two megabytes.
    pub(super) fn stream(rng: &mut Rng, size: usize) -> Self {
        Act::Stream { count: rng.u32(1..=2000).min(2_000_000 / (size as u32 + 100)), size }
    }

    /// Something that ends the connection, or half of it.
    pub(super) fn ending(rng: &mut Rng, size: usize) -> Self {
        match rng.u8(..10) {
            0 => Act::Fail,
            1 => Act::ShutdownWrite,
            2..=3 => Act::Close,
            4 => Act::CloseWith { size },
            5 => Act::CloseNow,
            _ => Act::Reset,
        }
    }
}
