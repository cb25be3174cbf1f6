//! The trace of a simulation: its hash, its records, and its text.

use super::Simulation;
use std::{fs, io, path::Path};

impl Simulation {
    /// Returns a hash of all events so far. Two runs of one program with one seed have the same.
    pub fn trace_hash(&self) -> u64 {
        self.shared.lock().trace.hash()
    }

    /// Returns the number of events so far: arrivals, turns, timers.
    pub fn events(&self) -> u64 {
        self.shared.lock().events
    }

    /// Keeps the first `records` events, for [`trace`](Simulation::trace).
    pub fn keep_trace(&mut self, records: usize) {
        let trace = &mut self.shared.lock().trace;
        trace.kept = Some(Vec::new());
        trace.limit = records;
    }

    /// Writes all further events to `sink` as JSON lines: the time in nanoseconds (`at`), the kind
    /// (`event`), the number of the node, and numbers that depend on the kind. An error of `sink`
    /// ends the trace.
    pub fn write_trace(&mut self, sink: impl io::Write + Send + 'static) {
        self.shared.lock().trace.write_to(Box::new(sink));
    }

    /// Creates a file and writes the trace to it.
    pub(super) fn write_trace_to(&mut self, path: &Path) -> io::Result<()> {
        self.write_trace(io::BufWriter::new(fs::File::create(path)?));
        Ok(())
    }

    /// Sets whether the contents of messages are part of the trace. The default is `true`. Set
    /// `false` if programs use TLS: its library draws random numbers of its own, so two runs of a
    /// seed have equal events and different bytes.
    pub fn compare_contents(&mut self, compared: bool) {
        self.shared.lock().trace.has_contents = compared;
    }

    /// Returns the kept events as text, one in a line.
    pub fn trace(&self) -> Vec<String> {
        let world = self.shared.lock();
        world.trace.kept.iter().flatten().map(ToString::to_string).collect()
    }
}
