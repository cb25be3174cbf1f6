//! `State`: a simulated Redis behind one lock.

use super::{
    command::CallEffects,
    disk::RedisDisk,
    process::{Conditions, Process, ProcessCondition},
    script::{Scripts, sha1},
    settings::{Persistence, ServerSettings},
};
use crate::event_loop::EventLoop;
use std::collections::BTreeMap;

pub(super) struct State {
    pub(super) disk: RedisDisk,
    pub(super) settings: ServerSettings,
    pub(super) scripts: Scripts,
    pub(super) process: Process,
    /// Counts the calls of `bind`. A connection of an earlier one is refused.
    pub(super) start: u64,
    /// The loop that runs syncs and ends conditions.
    pub(super) event_loop: Option<EventLoop>,
    /// Whether a sync is scheduled.
    pub(super) awaits_sync: bool,
    last_request: u64,
}

impl State {
    pub(super) fn new(disk: RedisDisk) -> Self {
        State {
            disk,
            settings: ServerSettings::default(),
            scripts: Scripts::default(),
            process: Process::default(),
            start: 0,
            event_loop: None,
            awaits_sync: false,
            last_request: 0,
        }
    }

    /// Starts a process with the keys on the disk. It is a replica if the last process was, and has
    /// no memory left if that had none.
    pub(super) fn start_process(&mut self, seed: u64, crash_seed: Option<u64>) {
        let (number, keyspace) = self.disk.start(self.settings.persistence, crash_seed);
        let conditions = Conditions { timed: BTreeMap::new(), ..self.process.conditions };
        let run_id = sha1(format!("{seed} {number}").as_bytes());
        self.process = Process::new(number, keyspace, run_id, conditions);
        self.awaits_sync = false;
    }

    /// Replaces the process by that of a replica, which lacks the last writes.
    pub(super) fn fail_over(&mut self, lag: usize) {
        let (number, keyspace) = self.disk.fail_over(lag);
        let run_id = sha1(format!("{} {number}", self.process.run_id).as_bytes());
        self.process = Process::new(number, keyspace, run_id, Conditions::default());
        self.awaits_sync = false;
    }

    /// Begins a condition. Returns the number with which it ends.
    pub(super) fn begin(&mut self, condition: ProcessCondition) -> u64 {
        self.last_request += 1;
        self.process.conditions.timed.insert(condition, self.last_request);
        self.last_request
    }

    /// Ends a condition, unless it has begun again since.
    pub(super) fn end(&mut self, condition: ProcessCondition, request: u64) {
        if self.process.conditions.timed.get(&condition) == Some(&request) {
            self.process.conditions.timed.remove(&condition);
        }
    }

    /// Stores the effects of a command, and marks transactions that watch changed keys. Returns
    /// `false` if the process has ended.
    pub(super) fn commit(&mut self, now_micros: i64, effects: CallEffects) -> bool {
        self.process.notify_watchers(&effects);
        if effects.commands.is_empty() {
            return true;
        }
        self.disk.append(self.process.number, now_micros, effects.commands, self.settings.persistence)
    }

    /// Returns whether a process is running.
    pub(super) fn is_running(&self, process: u64) -> bool {
        self.process.number == process && self.disk.is_running(process)
    }

    /// Returns whether a sync has to be scheduled.
    pub(super) fn needs_sync(&mut self) -> bool {
        let needs = self.settings.persistence == Persistence::EverySecond
            && !self.awaits_sync
            && self.disk.unsynced() > 0;
        self.awaits_sync |= needs;
        needs
    }
}
