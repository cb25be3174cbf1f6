//! Standard output and standard error that never block and never fail.
//!
//! A write to an unread pipe blocks the calling thread, and `println!` panics when the reader has
//! closed the pipe. Neither may happen to an event loop, or to the thread that waits for Ctrl-C.
//! Each stream therefore has a bounded queue and a writer thread. Lines that do not fit into the
//! queue are dropped and counted. Lines that cannot be written are dropped. The log and panic
//! messages use the same queue as standard error.
//!
//! At the end of `main`, [`Output::finish`] gives the threads a bounded time to drain the queues.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime},
};

/// Bytes that may be queued for each stream.
pub(crate) const MAX_QUEUED: usize = 1024 * 1024;
/// Time limit for draining the queues at the end of the program.
const FINISH: Duration = Duration::from_secs(1);

static STDOUT: OnceLock<Arc<Queue>> = OnceLock::new();
static STDERR: OnceLock<Arc<Queue>> = OnceLock::new();

/// Prints a line to standard output, like `println!`.
#[allow(unused_macros, reason = "each program uses a part of this module")]
macro_rules! say {
    ($($text:tt)*) => { crate::output::line(format_args!($($text)*)) };
}

/// Prints a line to standard error, like `eprintln!`.
#[allow(unused_macros, reason = "each program uses a part of this module")]
macro_rules! complain {
    ($($text:tt)*) => { crate::output::error_line(format_args!($($text)*)) };
}

#[allow(unused_imports, reason = "each program uses a part of this module")]
pub(crate) use {complain, say};

/// The writer threads.
#[must_use = "the program's last lines are lost unless it calls `finish`"]
pub(crate) struct Output(());

impl Output {
    /// Starts the writer threads. Redirects the log (`RUST_LOG`) and panic messages to the queue of
    /// standard error.
    pub(crate) fn start() -> Self {
        let stderr = STDERR.get_or_init(|| Queue::start("stderr", || Box::new(io::stderr()))).clone();
        STDOUT.get_or_init(|| Queue::start("stdout", || Box::new(io::stdout())));
        let target = env_logger::Target::Pipe(Box::new(Pen(stderr)));
        // If a logger is already installed, it stays. This is not a reason to end the program.
        let _ = env_logger::Builder::from_default_env().format(write_record).target(target).try_init();
        std::panic::set_hook(Box::new(|panic| error_line(format_args!("{panic}"))));
        Output(())
    }

    /// Waits until everything has been written, for at most one second.
    pub(crate) fn finish(self) {
        let deadline = Instant::now() + FINISH;
        for queue in [&STDOUT, &STDERR].into_iter().filter_map(OnceLock::get) {
            queue.wait_until_written(deadline);
        }
    }
}

/// Formats a log record: time, level, module and message.
fn write_record(line: &mut env_logger::fmt::Formatter, record: &log::Record<'_>) -> io::Result<()> {
    let time = humantime::format_rfc3339_millis(SystemTime::now());
    writeln!(line, "[{time} {:<5} {}] {}", record.level(), record.target(), record.args())
}

/// Prints a line to standard output.
#[allow(dead_code, reason = "each program uses a part of this module")]
pub(crate) fn line(text: fmt::Arguments<'_>) {
    push(&STDOUT, text);
}

/// Prints a line to standard error.
#[allow(dead_code, reason = "each program uses a part of this module")]
pub(crate) fn error_line(text: fmt::Arguments<'_>) {
    push(&STDERR, text);
}

/// Returns a writer to standard output for text that is not a line. Its writes never fail.
#[allow(dead_code, reason = "each program uses a part of this module")]
pub(crate) fn stdout() -> impl Write {
    Pen(STDOUT.get_or_init(|| Queue::start("stdout", || Box::new(io::stdout()))).clone())
}

/// Returns a writer to standard error for text that is not a line. Its writes never fail.
#[allow(dead_code, reason = "each program uses a part of this module")]
pub(crate) fn stderr() -> impl Write {
    Pen(STDERR.get_or_init(|| Queue::start("stderr", || Box::new(io::stderr()))).clone())
}

fn push(stream: &OnceLock<Arc<Queue>>, text: fmt::Arguments<'_>) {
    if let Some(queue) = stream.get() {
        queue.push(format!("{text}\n").into_bytes());
    }
}

/// Texts queued for one stream.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Notified when a text is queued.
    queued: Condvar,
    /// Notified when the queue is empty and the last write has returned.
    written: Condvar,
}

#[derive(Default)]
struct State {
    texts: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Texts dropped because the queue was full, since the last report.
    dropped: u64,
    /// Set while the thread is in a write.
    writing: bool,
}

impl Queue {
    /// Starts the writer thread, which calls `open`.
    pub(crate) fn start(name: &str, open: impl FnOnce() -> Box<dyn Write> + Send + 'static) -> Arc<Queue> {
        let queue =
            Arc::new(Queue { state: Mutex::default(), queued: Condvar::new(), written: Condvar::new() });
        let writer = queue.clone();
        // If the thread cannot be started, the queue fills and later texts are dropped. The program
        // continues.
        let _ = thread::Builder::new().name(name.to_owned()).spawn(move || writer.write_all(&mut *open()));
        queue
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a text, or drops and counts it if the queue is full. Never blocks.
    pub(crate) fn push(&self, text: Vec<u8>) {
        let mut state = self.lock();
        if state.bytes + text.len() > MAX_QUEUED {
            state.dropped += 1;
            return;
        }
        state.bytes += text.len();
        state.texts.push_back(text);
        drop(state);
        self.queued.notify_one();
    }

    /// Writes queued texts until the process ends.
    fn write_all(&self, stream: &mut dyn Write) {
        let mut state = self.lock();
        loop {
            let Some(text) = state.next() else {
                state.writing = false;
                self.written.notify_all();
                state = self.queued.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.writing = true;
            drop(state);
            // If the reader has gone or the disk is full, this text is lost. The next one is still
            // tried.
            let _ = stream.write_all(&text).and_then(|()| stream.flush());
            state = self.lock();
            state.bytes -= text.len().min(state.bytes);
        }
    }

    /// Waits until everything has been written, at most until `deadline`.
    pub(crate) fn wait_until_written(&self, deadline: Instant) {
        let mut state = self.lock();
        while state.writing || !state.texts.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.written.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// Returns the next text to write. A report of dropped texts is queued after the texts that
    /// preceded them.
    fn next(&mut self) -> Option<Vec<u8>> {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let report = format!("({dropped} lines were dropped: the output was not read fast enough)\n");
            self.bytes += report.len();
            self.texts.push_back(report.into_bytes());
        }
        self.texts.pop_front()
    }
}

/// A writer that queues one text per write.
struct Pen(Arc<Queue>);

impl Write for Pen {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.push(text.to_vec());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
