//! The table of all metrics of a loop. [`generate`](super::generate) explains the rows.
//!
//! The order is that of the Prometheus text. The test of this file writes the table of
//! `docs/observability.md` from the same rows.

use super::{
    counter::{Counter, External},
    generate::{cell_type, field_type, metrics, read_cell},
    histogram::{Histogram, Recorder},
};
#[cfg(any(feature = "prometheus", test))]
use super::{
    generate::row_value,
    metric::{Metric, Value},
};
use std::time::Duration;

metrics! {
    /// Passes of the loop.
    turns: counter;
    /// Polls that may sleep.
    polls: counter;
    /// Polls that returned with I/O.
    wakes_io: counter, as "wakes" by cause = "io",
        help "Polls that returned, by what woke the loop.";
    /// Polls that returned because another thread woke the loop.
    wakes_waker: counter, as "wakes" by cause = "waker";
    /// Polls that slept until their deadline.
    wakes_deadline: counter, as "wakes" by cause = "deadline";
    /// Polls that a signal interrupted.
    wakes_interrupted: counter, as "wakes" by cause = "interrupted";
    /// Polls that returned early for no reason.
    wakes_premature: counter, as "wakes" by cause = "premature";
    /// Polls that were not to sleep, since work was waiting.
    polls_without_sleep: counter;
    /// Sources that were handled: since the poll said so, or since an earlier turn had left
    /// something of them.
    ready: counter, help "Sources that were handled since they were ready.";
    /// Writes to the waker, by whatever thread.
    wakes_written: counter, help "Writes to the waker.";
    /// Wakes that failed after 16 writes to the waker. The loop slept until its next deadline
    /// or submission.
    wakes_failed: counter, help "Wakes for which the writes to the waker failed.";
    /// Polls that the waker ended although there was nothing to do.
    wakes_in_vain: counter;
    /// Times that the poll was rebuilt.
    rebuilds: counter;
    /// Sockets that a rebuild moved to the new poll.
    sources_moved: counter;
    /// Sockets that a rebuild could not move, and closed.
    sources_lost: counter;
    /// Short sleeps of a loop that would have turned in vain: its poll returns for no reason
    /// although it was rebuilt, or a deadline is over and nothing runs.
    rests: counter, help "Short sleeps of a loop that would have turned in vain.";
    /// Panics that neither a channel nor a task has caught: in the program's log, or in the
    /// `Display` or `Drop` of something of its own. Each costs what was being handled, a
    /// channel if it was one.
    io_panics: counter, help "Panics while a socket was handled that no channel caught.";
    /// Polls that failed.
    poll_errors: counter;
    /// Readings of the clock.
    clock_reads: counter;
    /// Tasks and channel mail that were run.
    tasks_run: counter;
    /// Tasks, scheduled ones too, that panicked.
    tasks_panicked: counter, help "Tasks that panicked.";
    /// Scheduled tasks that returned an error: periodic tasks, and one-shots that return
    /// `Result<(), netwheel::Error>`.
    tasks_failed: counter, help "Tasks that returned an error.";
    /// Log lines suppressed by the loop's rate limit.
    log_lines_suppressed: external counter, help "Lines of the log that were suppressed.";
    /// Task phases that ended with tasks left for the next turn.
    tasks_deferred: counter;
    /// Tasks that were refused because the queue was full.
    tasks_refused: external counter;
    /// Tasks that wait in the queue now.
    tasks_pending: external gauge, help "Tasks that wait in the queue.";
    /// Scheduled tasks that came due, of channels and of the loop.
    timers_fired: counter, help "Scheduled tasks that came due.";
    /// Scheduled tasks that were cancelled, or ended with their channel or their loop, before
    /// they came due; time limits that were not reached (of connecting, of closing) are among
    /// them.
    timers_cancelled: counter, tally(add_shared),
        help "Scheduled tasks that ended before they came due.";
    /// Scheduled tasks that wait now.
    timers_pending: gauge, help "Scheduled tasks that wait.";
    /// Entries of the wheel that came due: timeouts, and what channels watch (with or without
    /// an event).
    wheel_fired: counter, help "Idle entries that came due.";
    /// Entries that were taken off the wheel before they came due.
    wheel_cancelled: counter, tally(add), help "Idle entries that ended before they came due.";
    /// Entries on the wheel now.
    wheel_pending: gauge, help "Idle entries that wait.";
    /// Connections open now.
    channels: gauge, help "Connections that are open.";
    /// Connections accepted and let in.
    accepted: counter;
    /// Connections closed at once because the filter of their server denies their address.
    rejected_filter: counter, help "Connections denied by the filter of their server.";
    /// Connections closed at once because their server, its loops or their address had as many
    /// as they may have.
    rejected_limit: counter, help "Connections beyond a limit of their server.";
    /// Accepts that failed.
    accept_errors: counter;
    /// Connections made.
    connected: counter;
    /// Connections that could not be made.
    connect_errors: counter;
    /// Connections closed, by either end.
    channels_closed: counter;
    /// Errors of channels, whether their handlers were told or not: what a peer sent wrong,
    /// broken connections, and what a callback failed or panicked with.
    channel_errors: counter, tally(add), help "Errors and panics of channels.";
    /// Reads from sockets, and `reads_blocked` of them brought nothing.
    reads: counter, help "Reads from sockets.";
    /// Reads that found nothing.
    reads_blocked: counter, help "Reads from sockets that found nothing.";
    /// Bytes read.
    bytes_read: counter, as "read" in bytes, help "Bytes read from sockets.";
    /// Messages that handlers were given.
    messages_read: counter, tally(add);
    /// Writes to sockets.
    writes: counter;
    /// Writes that the kernel took nothing of.
    writes_blocked: counter, help "Writes to sockets that the kernel took nothing of.";
    /// Bytes written.
    bytes_written: counter, as "written" in bytes, help "Bytes written to sockets.";
    /// Sockets of closed channels that linger now: they wait for their peers to read everything
    /// and end the connection.
    lingering: gauge, help "Sockets of closed channels that wait for their peers.";
    /// Lingering sockets that were closed since there were too many of them
    /// ([`max_lingering`](crate::EventLoopGroupBuilder::max_lingering)).
    lingering_cut: counter, help "Lingering sockets that were closed since there were too many.";
    /// Channels that closed with bytes unsent.
    closes_unsent: counter;
    /// Bytes that were written to channels and not sent when those closed.
    bytes_unsent: counter, as "unsent" in bytes,
        help "Bytes that were not sent when their channel closed.";
    /// Messages that handlers and handles wrote and that were encoded; what a stage answers by
    /// itself is not among them.
    messages_written: counter, tally(add), help "Messages that were written.";
    /// Messages that were dropped because their channel had too much to send
    /// ([`ChannelOptions::overflow`](crate::ChannelOptions::overflow)).
    messages_dropped: counter, tally(add),
        help "Messages that were dropped because their channel had too much to send.";
    /// Messages that were refused on the loop because their channel, or all of them together,
    /// had too much to send.
    messages_refused: counter, tally(add),
        help "Messages that were refused because too much waited to be sent.";
    /// Channels that were closed because they had too much to send.
    closes_overflowed: counter, tally(add);
    /// Times that a limit of traffic ([`TrafficLimits`](crate::TrafficLimits)) held up reading
    /// from a channel.
    reads_paused: counter, tally(add), help "Times that a limit of traffic held up reading.";
    /// Times that a limit of traffic held up writing to a channel.
    writes_paused: counter, tally(add), help "Times that a limit of traffic held up writing.";
    /// Broadcasts to channels of this loop ([`ChannelGroup`](crate::ChannelGroup)).
    broadcasts: counter, help "Broadcasts to channels of the loop.";
    /// Channels that broadcasts have come to, whether these took the message or not.
    deliveries: counter, tally(add), help "Channels that broadcasts have come to.";
    /// Encodings of messages for broadcasts: one for many channels where they encode alike.
    broadcast_encodings: counter, tally(add), help "Encodings of messages for broadcasts.";
    /// Turns that ended in the middle of a broadcast.
    broadcasts_deferred: counter;
    /// Bytes that all channels have waiting to be sent now, as of the end of the last turn.
    outbound_bytes: gauge, as "outbound" in bytes, help "Bytes that wait to be sent.";
    /// Times that a channel paused its reading because the program held more of its input than
    /// [`inbound_mark`](crate::ChannelOptions::inbound_mark).
    reads_held: counter, tally(add), help "Pauses of reading since the program held too much.";
    /// Datagram channels open now; they are not among `channels`.
    datagram_channels: gauge, help "Datagram channels that are open.";
    /// Datagrams that handlers were given.
    datagrams_received: counter;
    /// Datagrams that the kernel took.
    datagrams_sent: counter;
    /// Datagrams that were refused since too much waited, or dropped since their channel
    /// closed.
    datagrams_refused: counter, help "Datagrams that were refused or dropped.";
    /// Event sources registered now ([`EventLoop::register`](crate::EventLoop::register)).
    event_sources: gauge, help "Event sources that are registered.";
    /// Event sources that ended because of an error or a panic of their callback, or because a
    /// rebuild could not move them.
    event_source_errors: counter, help "Event sources that ended because of an error.";
    /// Time in the poll, nearly all of it asleep.
    time_polling: time, as "time" by phase = "polling",
        help "Time of the loop, by what it was spent on.";
    /// Time in which sockets were read and handlers were given what came.
    time_io: time, as "time" by phase = "io";
    /// Time in which tasks and channel mail ran.
    time_tasks: time, as "time" by phase = "tasks";
    /// Time in which scheduled tasks and idle entries ran.
    time_timers: time, as "time" by phase = "timers";
    /// Time in which what was written was sent, and channels were closed.
    time_flushing: time, as "time" by phase = "flushing";
    /// Time that rebuilding the poll took; it is part of the others.
    time_rebuilding: time, as "rebuilding", help "Time that rebuilding the poll took.";
    /// How late scheduled tasks and idle entries ran: from the deadline to the run.
    lag: histogram, help "How late scheduled tasks and idle entries ran.";
    /// How long turns took, without their sleep.
    turn_time: histogram;
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
