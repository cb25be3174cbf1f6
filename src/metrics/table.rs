//! The table of all metrics of a loop. [`generate`](super::generate) explains the rows.
//!
//! The order of the rows is that of the Prometheus text. A test compares them with the table in
//! `docs/observability.md`.

#[cfg(any(feature = "prometheus", test))]
use super::metric::{Metric, Value};
use super::{
    counter::{Counter, External},
    generate::{loop_metrics, metric_table, tally},
    histogram::{Histogram, Recorder},
};

loop_metrics! {
    /// Turns of the loop.
    turns: counter;
    /// Polls of the loop, whether they may sleep or not.
    polls: counter;
    /// Polls that returned with I/O events.
    wakes_io: counter, as "wakes" by cause = "io",
        help "Polls that returned, by cause of the wakeup.";
    /// Polls that returned because another thread woke the loop.
    wakes_waker: counter, as "wakes" by cause = "waker";
    /// Polls that slept until their deadline.
    wakes_deadline: counter, as "wakes" by cause = "deadline";
    /// Polls that a signal interrupted.
    wakes_interrupted: counter, as "wakes" by cause = "interrupted";
    /// Polls that returned before their deadline without an event.
    wakes_premature: counter, as "wakes" by cause = "premature";
    /// Polls that were not allowed to sleep, because work was waiting.
    polls_without_sleep: counter;
    /// Sources handled because the poll reported them, or because an earlier turn had carried them
    /// over.
    ready: counter, help "Ready sources that were handled.";
    /// Writes to the waker, from any thread.
    wakes_written: counter, help "Writes to the waker.";
    /// Wakeups that failed after 16 writes to the waker. The loop slept until its next deadline or
    /// submission.
    wakes_failed: counter, help "Wakeups that failed because writes to the waker failed.";
    /// Polls that were ended by the waker although there was no work.
    spurious_wakes: counter;
    /// Number of times that the poll was rebuilt.
    rebuilds: counter;
    /// Sockets that a rebuild moved to the new poll.
    sources_moved: counter;
    /// Sockets that a rebuild could not move and therefore closed.
    sources_lost: counter;
    /// Short sleeps of a loop that would otherwise spin. Either its poll returns early although it
    /// was rebuilt, or a deadline has passed and nothing runs.
    rests: counter, help "Short sleeps of a loop that would otherwise spin.";
    /// Panics caught neither by a channel nor by a task, for example in the program's logger, or in
    /// a `Display` or `Drop` implementation of the program. Such a panic closes the source that was
    /// being handled, if any.
    io_panics: counter, help "Panics outside of channels and tasks.";
    /// Polls that failed.
    poll_errors: counter;
    /// Clock readings.
    clock_reads: counter;
    /// Tasks and mail of channels that were run.
    tasks_run: counter;
    /// Tasks that panicked, including scheduled tasks.
    tasks_panicked: counter, help "Tasks that panicked.";
    /// Scheduled tasks that returned an error: periodic tasks, and one-shot tasks that return
    /// `Result<(), netwheel::Error>`.
    tasks_failed: counter, help "Tasks that returned an error.";
    /// Log lines suppressed by the loop's rate limit.
    log_lines_suppressed: external counter, help "Log lines that were suppressed.";
    /// Task phases that ended with tasks left for the next turn.
    tasks_deferred: counter;
    /// Tasks refused because the queue was full.
    tasks_refused: external counter;
    /// Tasks waiting in the queue now.
    tasks_pending: external gauge, help "Tasks waiting in the queue.";
    /// Scheduled tasks of channels and of the loop that were due.
    timers_fired: counter, help "Scheduled tasks that were due.";
    /// Scheduled tasks that were cancelled before they were due, or ended with their channel or
    /// loop. Includes time limits (of connecting, of closing) that were not reached.
    timers_cancelled: counter, tally(add_shared),
        help "Scheduled tasks that ended before they were due.";
    /// Scheduled tasks waiting now.
    timers_pending: gauge, help "Scheduled tasks that are waiting.";
    /// Entries of the wheel that expired: timeouts and watches of channels, with or without an
    /// event.
    wheel_fired: counter, help "Wheel entries that expired.";
    /// Entries removed from the wheel before they expired.
    wheel_cancelled: counter, tally(add), help "Wheel entries removed before they expired.";
    /// Entries on the wheel now.
    wheel_pending: gauge, help "Entries on the wheel.";
    /// Connections open now.
    channels: gauge, help "Connections that are open.";
    /// Connections accepted and admitted.
    accepted: counter;
    /// Connections closed at once because the filter of the server denies their address.
    rejected_filter: counter, help "Connections denied by the filter of the server.";
    /// Connections closed at once because the server, its loops or their address had reached a
    /// limit.
    rejected_limit: counter, help "Connections rejected because a limit was reached.";
    /// Accepted connections that their loop closed at once: it is shutting down or has ended, or
    /// its queue is full. Counted by the loop that closed them, or by the listener's loop if the
    /// other one could not take them. They count as `accepted` too.
    rejected_by_loop: counter, help "Accepted connections that their loop closed at once.";
    /// Connections reset at once because the loop that would serve them was overloaded. Counted by
    /// that loop.
    shed_accepts: external counter, as "shed" by work = "accept",
        help "Work that was refused because the loop was overloaded, by class.";
    /// Connections reset in their handshake because the loop was overloaded.
    shed_handshakes: external counter, as "shed" by work = "handshake";
    /// Requests that [`Context::admit`](crate::Context::admit) has refused because the loop was
    /// overloaded.
    shed_logins: external counter, as "shed" by work = "login",
        help "Requests that were refused because the loop was overloaded.";
    /// Broadcasts to channels of the loop that were refused because the loop was overloaded.
    shed_bulk: external counter, as "shed" by work = "bulk";
    /// Classes of [`Work`](crate::admission::Work) that are limited now, 0 to 4.
    overload_level: external gauge, help "Classes of work that are limited.";
    /// Accepts that failed.
    accept_errors: counter;
    /// Connections established by connecting.
    connected: counter;
    /// Handshakes of byte filters (TLS, the PROXY protocol) of new connections that were completed.
    handshakes: counter, help "Handshakes of byte filters that were completed.";
    /// Handshakes of byte filters that failed, including `handshakes_timed_out`.
    handshakes_failed: counter, help "Handshakes of byte filters that failed.";
    /// Handshakes of byte filters that took longer than
    /// [`handshake_timeout`](crate::ServerBootstrap::handshake_timeout).
    handshakes_timed_out: counter,
        help "Handshakes of byte filters that took too long.";
    /// Connections that could not be established.
    connect_errors: counter;
    /// Connections closed, by either end.
    channels_closed: counter;
    /// Errors of channels, whether or not their handlers were notified: invalid input, broken
    /// connections, and errors and panics of callbacks.
    channel_errors: counter, tally(add), help "Errors and panics of channels.";
    /// Reads from sockets, including `reads_blocked`.
    reads: counter, help "Reads from sockets.";
    /// Reads that returned no bytes because none were available.
    reads_blocked: counter, help "Reads from sockets that found no bytes.";
    /// Bytes read from sockets. Input that is discarded after a close does not count.
    bytes_read: counter, as "read" in bytes, help "Bytes read from sockets.";
    /// Messages delivered to handlers.
    messages_read: counter, tally(add);
    /// Writes to sockets.
    writes: counter;
    /// Writes of which the kernel accepted nothing.
    writes_blocked: counter, help "Writes to sockets of which the kernel accepted nothing.";
    /// Bytes written.
    bytes_written: counter, as "written" in bytes, help "Bytes written to sockets.";
    /// Sockets of closed channels that are lingering now: they wait until their peers have read
    /// everything and closed the connection.
    lingering: gauge, help "Sockets of closed channels that wait for their peers.";
    /// Lingering sockets closed because there were too many
    /// ([`max_lingering`](crate::group::EventLoopGroupBuilder::max_lingering)).
    lingering_cut: counter, help "Lingering sockets closed because there were too many.";
    /// Channels closed with unsent bytes.
    closes_unsent: counter;
    /// Channels that ended for another cause than [`Clean`](crate::channel::CloseCause::Clean), or
    /// with unsent bytes.
    closes_unclean: counter, help "Channels that were cut, broken, or closed with unsent bytes.";
    /// Connections that have reached their
    /// [maximum age](crate::ServerBootstrap::max_connection_age). Their handlers were notified.
    connections_aged: counter, help "Connections that have reached their maximum age.";
    /// Connections closed because they were still open when the
    /// [grace time](crate::channel::MaxConnectionAge::grace_timeout) after their maximum age ended.
    grace_expired: counter, help "Connections closed at the end of the grace time after their age.";
    /// Tasks of channels that were dropped because the channel closed: scheduled ones, and those
    /// that waited for an answer, such as offloaded work.
    channel_tasks_dropped: counter, tally(add), help "Tasks dropped because their channel closed.";
    /// Bytes written to channels but not sent before they closed.
    bytes_unsent: counter, as "unsent" in bytes,
        help "Bytes that were not sent when their channel closed.";
    /// Messages written by handlers and handles that were encoded, excluding replies generated by
    /// stages.
    messages_written: counter, tally(add), help "Messages that were written.";
    /// Messages dropped because their channel had too many pending bytes
    /// ([`ChannelOptions::overflow`](crate::channel::ChannelOptions::overflow)).
    messages_dropped: counter, tally(add),
        help "Messages dropped because their channel had too many pending bytes.";
    /// Messages replaced by newer ones with the same key before they were sent
    /// ([`write_latest`](crate::Context::write_latest)).
    messages_conflated: counter, tally(add),
        help "Messages replaced by newer ones before they were sent.";
    /// Messages refused on the loop because their channel, or all channels together, had too many
    /// pending bytes.
    messages_refused: counter, tally(add),
        help "Messages refused because too many bytes were pending.";
    /// Channels closed because they had too many pending bytes.
    closes_overflowed: counter, tally(add);
    /// Pauses of reading from a channel due to a traffic limit
    /// ([`TrafficLimits`](crate::traffic::TrafficLimits)).
    reads_paused: counter, tally(add), help "Pauses of reading due to a traffic limit.";
    /// Pauses of writing to a channel due to a traffic limit.
    writes_paused: counter, tally(add), help "Pauses of writing due to a traffic limit.";
    /// Broadcasts to channels of this loop ([`ChannelGroup`](crate::ChannelGroup)).
    broadcasts: counter, help "Broadcasts to channels of the loop.";
    /// Channels reached by broadcasts, whether or not they accepted the message.
    deliveries: counter, tally(add), help "Channels reached by broadcasts.";
    /// Encodings of messages for broadcasts. Channels with the same encoding share one.
    broadcast_encodings: counter, tally(add), help "Encodings of messages for broadcasts.";
    /// Turns that ended in the middle of a broadcast.
    broadcasts_deferred: counter;
    /// Pending outbound bytes of all channels now, as of the end of the last turn.
    outbound_bytes: gauge, as "outbound" in bytes, help "Bytes waiting to be sent.";
    /// Pauses of reading from a channel because the program held more input than
    /// [`inbound_mark`](crate::channel::ChannelOptions::inbound_mark).
    reads_held: counter, tally(add), help "Pauses of reading because the program held too much input.";
    /// Datagram channels open now, which are not included in `channels`.
    datagram_channels: gauge, help "Datagram channels that are open.";
    /// Datagrams delivered to handlers.
    datagrams_received: counter;
    /// Datagrams accepted by the kernel.
    datagrams_sent: counter;
    /// Datagrams refused because too many were waiting, or dropped because their channel closed.
    datagrams_refused: counter, help "Datagrams that were refused or dropped.";
    /// Event sources registered now ([`EventLoop::register`](crate::EventLoop::register)).
    event_sources: gauge, help "Event sources that are registered.";
    /// Event sources that ended because their callback returned an error or panicked, or because a
    /// rebuild could not move them.
    event_source_errors: counter, help "Event sources that ended because of an error.";
    /// Time spent in the poll, nearly all of it asleep.
    time_polling: time, as "time" by phase = "polling",
        help "Time of the loop, by phase.";
    /// Time spent reading from sockets and calling handlers.
    time_io: time, as "time" by phase = "io";
    /// Time spent running tasks and mail of channels.
    time_tasks: time, as "time" by phase = "tasks";
    /// Time spent running scheduled tasks and expired wheel entries.
    time_timers: time, as "time" by phase = "timers";
    /// Time spent sending pending output and closing channels.
    time_flushing: time, as "time" by phase = "flushing";
    /// Time spent rebuilding the poll, which is included in the other times.
    time_rebuilding: time, as "rebuilding", help "Time spent rebuilding the poll.";
    /// Delay of scheduled tasks and wheel entries, from the deadline to the run.
    lag: histogram, help "Delay of scheduled tasks and wheel entries.";
    /// Duration of turns, without their sleep.
    turn_time: histogram;
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
