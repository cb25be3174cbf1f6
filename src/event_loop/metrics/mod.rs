//! What a loop counts about itself.
//!
//! Always holds: only the loop's thread adds (a plain load and store, no locked instruction), any thread reads;
//! counters never go back. The exceptions are `wakes_written`, `timers_cancelled` and `datagrams_refused`, which other threads count too.
//! What happens once per message is counted in a plain number first ([`Tally`]) and added here once per turn.

mod histogram;

pub use histogram::Histogram;

use crate::{
    channel::{Tally, driver::IoCounters},
    sync::Counter,
};
use histogram::Recorder;
use std::{sync::Arc, time::Duration};

macro_rules! metrics {
    (
        counters { $($(#[$doc:meta])* $name:ident,)* }
        io { $($(#[$io_doc:meta])* $io:ident,)* }
        times { $($(#[$time_doc:meta])* $time:ident,)* }
        histograms { $($(#[$histogram_doc:meta])* $histogram:ident,)* }
    ) => {
        /// Times in nanoseconds.
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $(pub(crate) $name: Counter,)*
            /// Shared with the drivers of the loop's channels.
            pub(crate) io: Arc<IoCounters>,
            $(pub(crate) $time: Counter,)*
            $(pub(crate) $histogram: Recorder,)*
        }

        /// A copy of what a loop counts, as of one moment (each number by itself; they are not taken together).
        ///
        /// Numbers count from the beginning of the loop, but for those that say "now". What is counted once per
        /// message or callback is added at the end of the turn. `docs/observability.md` says what to look at.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct LoopMetrics {
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$io_doc])* pub $io: u64,)*
            /// Tasks that wait in the queue now.
            pub tasks_pending: u64,
            /// Tasks that were refused because the queue was full.
            pub tasks_refused: u64,
            /// Log lines suppressed by the loop's rate limit.
            pub log_lines_suppressed: u64,
            $($(#[$time_doc])* pub $time: Duration,)*
            $($(#[$histogram_doc])* pub $histogram: Histogram,)*
        }

        impl Metrics {
            /// All numbers except those of the queue and of the log's rate limit.
            pub(crate) fn snapshot(&self) -> LoopMetrics {
                LoopMetrics {
                    $($name: self.$name.read(),)*
                    $($io: self.io.$io.read(),)*
                    tasks_pending: 0,
                    tasks_refused: 0,
                    log_lines_suppressed: 0,
                    $($time: Duration::from_nanos(self.$time.read()),)*
                    $($histogram: self.$histogram.snapshot(),)*
                }
            }
        }
    };
}

metrics! {
    counters {
        /// Passes of the loop.
        turns,
        /// Polls that may sleep.
        polls,
        /// Polls that returned with I/O.
        wakes_io,
        /// Polls that returned because another thread woke the loop.
        wakes_waker,
        /// Polls that slept until their deadline.
        wakes_deadline,
        /// Polls that a signal interrupted.
        wakes_interrupted,
        /// Polls that returned early for no reason.
        wakes_premature,
        /// Polls that were not to sleep, since work was waiting.
        polls_without_sleep,
        /// Sources that were handled: since the poll said so, or since an earlier turn had left something of them.
        ready,
        /// Writes to the waker, by whatever thread.
        wakes_written,
        /// Wakes that failed after 16 writes to the waker. The loop slept until its next deadline
        /// or submission.
        wakes_failed,
        /// Polls that the waker ended although there was nothing to do.
        wakes_in_vain,
        /// Times that the poll was rebuilt.
        rebuilds,
        /// Sockets that a rebuild moved to the new poll.
        sources_moved,
        /// Sockets that a rebuild could not move, and closed.
        sources_lost,
        /// Short sleeps of a loop that would have turned in vain: its poll returns for no reason although it was rebuilt,
        /// or a deadline is over and nothing runs.
        rests,
        /// Panics that neither a channel nor a task has caught: in the program's log, or in the `Display` or `Drop` of
        /// something of its own. Each costs what was being handled, a channel if it was one.
        io_panics,
        /// Polls that failed.
        poll_errors,
        /// Readings of the clock.
        clock_reads,
        /// Tasks and channel mail that were run.
        tasks_run,
        /// Tasks, scheduled ones too, that panicked.
        tasks_panicked,
        /// Scheduled tasks that returned an error: periodic tasks, and one-shots that return
        /// `Result<(), netwheel::Error>`.
        tasks_failed,
        /// Task phases that ended with tasks left for the next turn.
        tasks_deferred,
        /// Scheduled tasks that came due, of channels and of the loop.
        timers_fired,
        /// Scheduled tasks that were cancelled, or ended with their channel or their loop, before they came due; time
        /// limits that were not reached (of connecting, of closing) are among them.
        timers_cancelled,
        /// Entries of the wheel that came due: timeouts, and what channels watch (with or without an event).
        wheel_fired,
        /// Entries that were taken off the wheel before they came due.
        wheel_cancelled,
        /// Scheduled tasks that wait now.
        timers_pending,
        /// Entries on the wheel now.
        wheel_pending,
        /// Connections open now.
        channels,
        /// Connections accepted and let in.
        accepted,
        /// Connections closed at once because the filter of their server denies their address.
        rejected_filter,
        /// Connections closed at once because their server, its loops or their address had as many as they may have.
        rejected_limit,
        /// Accepts that failed.
        accept_errors,
        /// Connections made.
        connected,
        /// Connections that could not be made.
        connect_errors,
        /// Connections closed, by either end.
        channels_closed,
        /// Errors of channels, whether their handlers were told or not: what a peer sent wrong, broken connections,
        /// and what a callback failed or panicked with.
        channel_errors,
        /// Messages that handlers were given.
        messages_read,
        /// Sockets of closed channels that linger now: they wait for their peers to read everything
        /// and end the connection.
        lingering,
        /// Lingering sockets that were closed since there were too many of them
        /// ([`max_lingering`](crate::EventLoopGroupBuilder::max_lingering)).
        lingering_cut,
        /// Channels that closed with bytes unsent.
        closes_unsent,
        /// Bytes that were written to channels and not sent when those closed.
        bytes_unsent,
        /// Messages that handlers and handles wrote and that were encoded; what a stage answers by itself is not
        /// among them.
        messages_written,
        /// Messages that were dropped because their channel had too much to send
        /// ([`ChannelOptions::overflow`](crate::ChannelOptions::overflow)).
        messages_dropped,
        /// Messages that were refused on the loop because their channel, or all of them together, had too much to send.
        messages_refused,
        /// Channels that were closed because they had too much to send.
        closes_overflowed,
        /// Times that a limit of traffic ([`TrafficLimits`](crate::TrafficLimits)) held up reading from a channel.
        reads_paused,
        /// Times that a limit of traffic held up writing to a channel.
        writes_paused,
        /// Broadcasts to channels of this loop ([`ChannelGroup`](crate::ChannelGroup)).
        broadcasts,
        /// Channels that broadcasts have come to, whether these took the message or not.
        deliveries,
        /// Encodings of messages for broadcasts: one for many channels where they encode alike.
        broadcast_encodings,
        /// Turns that ended in the middle of a broadcast.
        broadcasts_deferred,
        /// Bytes that all channels have waiting to be sent now, as of the end of the last turn.
        outbound_bytes,
        /// Times that a channel paused its reading because the program held more of its input than
        /// [`inbound_mark`](crate::ChannelOptions::inbound_mark).
        reads_held,
        /// Datagram channels open now; they are not among `channels`.
        datagram_channels,
        /// Datagrams that handlers were given.
        datagrams_received,
        /// Datagrams that the kernel took.
        datagrams_sent,
        /// Datagrams that were refused since too much waited, or dropped since their channel closed.
        datagrams_refused,
        /// Event sources registered now ([`EventLoop::register`](crate::EventLoop::register)).
        event_sources,
        /// Event sources that ended because of an error or a panic of their callback, or because a
        /// rebuild could not move them.
        event_source_errors,
    }
    io {
        /// Reads from sockets, and `reads_blocked` of them brought nothing.
        reads,
        /// Reads that found nothing.
        reads_blocked,
        /// Bytes read.
        bytes_read,
        /// Writes to sockets.
        writes,
        /// Writes that the kernel took nothing of.
        writes_blocked,
        /// Bytes written.
        bytes_written,
    }
    times {
        /// Time in the poll, nearly all of it asleep.
        time_polling,
        /// Time in which sockets were read and handlers were given what came.
        time_io,
        /// Time in which tasks and channel mail ran.
        time_tasks,
        /// Time in which scheduled tasks and idle entries ran.
        time_timers,
        /// Time in which what was written was sent, and channels were closed.
        time_flushing,
        /// Time that rebuilding the poll took; it is part of the others.
        time_rebuilding,
    }
    histograms {
        /// How late scheduled tasks and idle entries ran: from the deadline to the run.
        lag,
        /// How long turns took, without their sleep.
        turn_time,
    }
}

impl Metrics {
    /// Adds what was counted in a turn; on the loop's thread only.
    #[inline]
    pub(crate) fn fold(&self, tally: &mut Tally) {
        let Tally {
            messages_read,
            messages_written,
            messages_dropped,
            messages_refused,
            closes_overflowed,
            reads_paused,
            writes_paused,
            deliveries,
            broadcast_encodings,
            reads_held,
            channel_errors,
            timers_cancelled,
            wheel_cancelled,
        } = std::mem::take(tally);
        self.messages_read.add(messages_read);
        self.messages_written.add(messages_written);
        if messages_dropped + messages_refused + closes_overflowed + reads_held > 0 {
            self.messages_dropped.add(messages_dropped);
            self.messages_refused.add(messages_refused);
            self.closes_overflowed.add(closes_overflowed);
            self.reads_held.add(reads_held);
        }
        if deliveries > 0 {
            self.deliveries.add(deliveries);
            self.broadcast_encodings.add(broadcast_encodings);
        }
        if reads_paused > 0 {
            self.reads_paused.add(reads_paused);
        }
        if writes_paused > 0 {
            self.writes_paused.add(writes_paused);
        }
        self.channel_errors.add(channel_errors);
        self.wheel_cancelled.add(wheel_cancelled);
        if timers_cancelled > 0 {
            self.timers_cancelled.add_shared(timers_cancelled);
        }
    }
}
