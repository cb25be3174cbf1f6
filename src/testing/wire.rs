//! One channel without a socket, and the two ends of its stream.
//!
//! Always holds: the order of things is that of a socket (what was kept is decoded before what is read, and a read brings
//! `read_size` bytes at most), but for the limits of a turn, which there is none of. It owns its core; time, timers and mail
//! are the loop's.

use crate::channel::{
    Action, Batch, ChannelCore, DecodePass, Direction, Flags, InputMemory, LoopServices, WheelToken,
};
use bytes::{Bytes, BytesMut};

pub(super) struct Wire {
    pub(super) core: ChannelCore,
    /// Bytes that came while nothing was to be read.
    unread: BytesMut,
    sent: BytesMut,
    /// Bytes that the peer takes from now on; none: all.
    room: Option<usize>,
    pub(super) ended: bool,
}

impl Wire {
    pub(super) fn new(core: ChannelCore) -> Self {
        Wire { core, unread: BytesMut::new(), sent: BytesMut::new(), room: None, ended: false }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.core.state.has(Flags::CLOSED)
    }

    /// Limits what the peer takes from now on.
    pub(super) fn set_room(&mut self, bytes: Option<usize>) {
        self.room = bytes;
    }

    /// All that was sent since the last call. Memory for what comes next is kept.
    pub(super) fn sent(&mut self) -> Bytes {
        self.sent.split().freeze()
    }

    /// The same, and no memory is kept: one channel of many is idle most of the time.
    pub(super) fn take_sent(&mut self) -> Bytes {
        if self.unread.is_empty() {
            self.unread = BytesMut::new();
        }
        std::mem::take(&mut self.sent).freeze()
    }

    /// Bytes from the peer, as one read.
    pub(super) fn receive(&mut self, services: &mut LoopServices, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        let nothing = self.unread.is_empty();
        self.read(services);
        if nothing && self.core.state.is_open() && self.core.state.may_read() {
            self.core.handle_read_complete(services);
        }
    }

    /// Does what the channel wishes.
    pub(super) fn attend(&mut self, services: &mut LoopServices) {
        self.core.state.unset(Flags::LISTED.with(Flags::FLUSH));
        if self.is_closed() {
            return;
        }
        let wish = self.core.wish();
        if wish != Action::CloseNow {
            self.flush(services);
        }
        let sent = self.core.state.pending_bytes() == 0;
        if wish == Action::CloseNow || (wish == Action::FlushAndClose && sent) {
            self.core.handle_closed(services);
            self.core.handle_inactive(services);
            return;
        }
        if wish == Action::FlushAndEnd && sent {
            self.core.handle_output_ended(services);
        }
        if wish == Action::FlushAndClose {
            self.core.state.arm_close(services);
        }
        if self.core.state.wants_read() {
            self.read(services);
        }
    }

    fn flush(&mut self, services: &mut LoopServices) {
        while !self.core.state.has(Flags::CLOSE_NOW)
            && let Some(out) = self.core.state.outbound().filter(|out| !out.is_empty())
        {
            let front = out.front().len();
            let n = self.room.map_or(front, |room| room.min(front));
            let n = if n > 0 { self.core.state.allowance(services, Direction::Write, n) } else { 0 };
            let Some(out) = self.core.state.outbound().filter(|_| n > 0) else { break };
            let front = out.front();
            self.sent.extend_from_slice(&front[..n]);
            self.room = self.room.map(|room| room - n);
            self.core.handle_written(services, n);
        }
        self.core.state.give_allowance_back(Direction::Write);
    }

    /// An entry of the channel on the wheel has expired. As with a socket, unread bytes are read
    /// first, or count as activity if reading is off.
    pub(super) fn handle_wheel_token(&mut self, services: &mut LoopServices, slot: u32) {
        if slot == WheelToken::WATCH && self.core.state.watch_expired(services) {
            let state = &mut self.core.state;
            let may_read = state.may_read() && !state.is_held_up(Direction::Read);
            if may_read && (self.ended || !self.unread.is_empty()) {
                self.read(services);
            } else if !self.unread.is_empty() {
                state.note_unread(services.now);
            }
        }
        self.core.handle_wheel_token(services, slot);
    }

    /// The same order of things as a read from a socket: what was kept, then one read's worth at a time.
    pub(super) fn read(&mut self, services: &mut LoopServices) {
        let mut complete = false;
        self.core.state.unset(Flags::MAYBE_READABLE);
        loop {
            let state = &mut self.core.state;
            let wanted = state.may_read();
            if !state.is_open() || !wanted || state.has(Flags::INPUT_ENDED) {
                if !self.unread.is_empty() || self.ended {
                    state.set(Flags::MAYBE_READABLE);
                }
                break;
            }
            let undecoded = state.has(Flags::UNDECODED);
            if !undecoded && self.unread.is_empty() {
                if self.ended {
                    if complete {
                        self.core.handle_read_complete(services);
                    }
                    self.core.handle_end(services);
                    complete = false;
                }
                break;
            }
            let mut n = 0;
            if !undecoded {
                n = self.unread.len().min(state.config.read_size);
                n = state.allowance(services, Direction::Read, n);
                if n == 0 {
                    state.set(Flags::MAYBE_READABLE);
                    break;
                }
            }
            let mut input = state.partial.take().into_bytes();
            if !undecoded {
                let bytes = self.unread.split_to(n);
                state.note_read(&bytes, services.now);
                let mut grown = BytesMut::from(input);
                grown.extend_from_slice(&bytes);
                input = grown.freeze();
                state.note_moved(Direction::Read, n);
            }
            let last = !undecoded && self.unread.is_empty() && !self.ended;
            let reading = self.core.begin_input(services, InputMemory::Own(input.len()));
            let mut pass = DecodePass::new(if last { Batch::Complete } else { Batch::Part });
            loop {
                self.core.handle_input(services, &mut input, &mut pass);
                if !self.core.state.take(Flags::FLUSH) {
                    break;
                }
                self.flush(services);
                if pass.told() {
                    break;
                }
            }
            self.core.end_input(services, reading, input);
            complete = !pass.told();
        }
        self.core.state.give_allowance_back(Direction::Read);
        if complete && self.core.state.is_open() {
            self.core.handle_read_complete(services);
        }
        self.core.list(services);
    }
}
