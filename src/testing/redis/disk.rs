//! `RedisDisk`: what survives the process of a simulated Redis.

use super::{
    command::{CallEffects, CommandCall, Executed, RunCommand, look_up, run},
    keyspace::Keyspace,
    pubsub::{Protocol, PubSub},
    session::Wake,
    settings::Persistence,
};
use crate::machine::Mutex;
use std::{collections::VecDeque, fmt, sync::Arc};

/// The append-only file of a simulated Redis. A clone is a handle to the same disk.
///
/// A [`RedisServer`](super::RedisServer) restores its keys from the disk when it is bound.
/// [`Persistence`] says how much of the file is safe. A server that is bound again has crashed
/// before, and a part of the unsafe end of the file is lost:
///
/// - in a simulation, a part that the seed decides,
/// - otherwise the part that [`crash`](RedisDisk::crash) has removed before.
///
/// A command, a transaction and a script are kept as a whole or not at all, and none is kept
/// without those before it.
#[derive(Clone, Default)]
pub struct RedisDisk(Arc<Mutex<Disk>>);

/// The effects of a command, a transaction or a script.
#[derive(Debug)]
struct Unit {
    now_micros: i64,
    commands: Vec<Executed>,
}

#[derive(Default)]
struct Disk {
    /// The keyspace after the first `image_units` units.
    image: Keyspace,
    image_units: u64,
    /// The units behind the image.
    log: VecDeque<Unit>,
    /// How many units are safe. None is if the process writes no file.
    synced: u64,
    lost: u64,
    /// The process writes no file: its units end with it.
    is_volatile: bool,
    /// The number of the process that may write.
    process: u64,
    /// Wakes the connections of that process, so that they notice its end.
    wake: Option<Wake>,
}

impl RedisDisk {
    /// The largest number of writes by which a replica lags.
    pub const MAX_LAG: usize = 1000;

    /// The largest number of writes that are not safe. One more makes Redis wait until all are.
    pub const MAX_UNSYNCED: usize = 10_000;

    /// Creates an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of writes that a crash may lose.
    pub fn unsynced(&self) -> usize {
        let disk = self.0.lock();
        (disk.end() - disk.synced) as usize
    }

    /// Returns the number of writes lost in crashes and failovers.
    pub fn lost(&self) -> u64 {
        self.0.lock().lost
    }

    /// Crashes as in a power failure: of the writes that are not safe, `seed` decides how many are
    /// lost. A server that is running closes its connections, and new ones, until it is bound
    /// again. Returns the number of lost writes.
    pub fn crash(&self, seed: u64) -> usize {
        let (lost, wake) = {
            let mut disk = self.0.lock();
            (disk.crash(seed), disk.end_process())
        };
        if let Some(wake) = wake {
            wake();
        }
        lost
    }

    /// Ends the process that may write. Its connections are cut.
    pub(super) fn end_process(&self) {
        let wake = self.0.lock().end_process();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Returns whether a process may write.
    pub(super) fn is_running(&self, process: u64) -> bool {
        self.0.lock().process == process
    }

    /// Sets what wakes the connections of the process that may write.
    pub(super) fn set_wake(&self, wake: Wake) {
        self.0.lock().wake = Some(wake);
    }

    /// Starts a process with the keys on the disk. Returns its number and its keys. What is left of
    /// the file is safe.
    pub(super) fn start(&self, persistence: Persistence, seed: Option<u64>) -> (u64, Keyspace) {
        let mut disk = self.0.lock();
        disk.process += 1;
        let is_volatile = persistence == Persistence::Never;
        if is_volatile || disk.is_volatile {
            disk.clear();
        } else if let Some(seed) = seed {
            disk.crash(seed);
        }
        disk.is_volatile = is_volatile;
        disk.sync();
        (disk.process, disk.restored())
    }

    /// Starts a process on a replica that lacks the last writes. Returns its number and its keys.
    pub(super) fn fail_over(&self, lag: usize) -> (u64, Keyspace) {
        let mut disk = self.0.lock();
        disk.process += 1;
        let kept = disk.end().saturating_sub(lag.min(Self::MAX_LAG) as u64).max(disk.image_units);
        // The replica has its own file, which contains all of these writes.
        disk.cut(kept);
        (disk.process, disk.restored())
    }

    /// Appends the effects of a command. Returns `false` if another process may write.
    pub(super) fn append(
        &self,
        process: u64,
        now_micros: i64,
        commands: Vec<Executed>,
        persistence: Persistence,
    ) -> bool {
        let mut disk = self.0.lock();
        if disk.process != process {
            return false;
        }
        disk.log.push_back(Unit { now_micros, commands });
        let is_full = disk.end() - disk.synced > Self::MAX_UNSYNCED as u64;
        if persistence != Persistence::EverySecond || is_full {
            disk.sync();
        }
        true
    }

    /// Makes all writes of a process safe.
    pub(super) fn sync(&self, process: u64) {
        let mut disk = self.0.lock();
        if disk.process == process {
            disk.sync();
        }
    }

    /// Returns the number of writes: the offset of the replication.
    pub(super) fn end(&self) -> u64 {
        self.0.lock().end()
    }
}

impl Disk {
    fn end(&self) -> u64 {
        self.image_units + self.log.len() as u64
    }

    /// Makes all units safe, if there is a file, and bounds the log.
    fn sync(&mut self) {
        if !self.is_volatile {
            self.synced = self.end();
        }
        while self.log.len() > RedisDisk::MAX_LAG
            && let Some(unit) = self.log.pop_front()
        {
            apply(&mut self.image, &unit);
            self.image_units += 1;
        }
    }

    /// Returns what to call without the lock.
    fn end_process(&mut self) -> Option<Wake> {
        self.process += 1;
        self.wake.take()
    }

    fn crash(&mut self, seed: u64) -> usize {
        let end = self.end();
        if self.is_volatile {
            self.clear();
            return end as usize;
        }
        let kept = fastrand::Rng::with_seed(seed).u64(self.synced..=end);
        self.cut(kept);
        (end - kept) as usize
    }

    /// Keeps the first `kept` units, counted from the beginning of the image, and removes all
    /// others. The kept units are safe, if there is a file.
    fn cut(&mut self, kept: u64) {
        self.lost += self.end() - kept;
        self.log.truncate((kept - self.image_units) as usize);
        self.synced = if self.is_volatile { 0 } else { kept };
    }

    /// Removes all units.
    fn clear(&mut self) {
        self.lost += self.end();
        self.log.clear();
        (self.image, self.image_units, self.synced) = (Keyspace::default(), 0, 0);
    }

    fn restored(&self) -> Keyspace {
        let mut keyspace = self.image.clone();
        self.log.iter().for_each(|unit| apply(&mut keyspace, unit));
        keyspace
    }
}

/// Repeats the commands of a unit at their time.
fn apply(keyspace: &mut Keyspace, unit: &Unit) {
    let (mut pubsub, mut effects) = (PubSub::default(), CallEffects::default());
    for (database, args) in &unit.commands {
        let mut call = CommandCall {
            keyspace,
            pubsub: &mut pubsub,
            effects: &mut effects,
            database: *database,
            now_micros: unit.now_micros,
            protocol: Protocol::Resp2,
            is_dirty: false,
        };
        if let Ok(RunCommand::Keyspace(command)) = look_up(args).map(|command| command.run) {
            // Only commands that have changed something are in the log, so none is refused.
            let _ = run(&mut call, command, args);
        }
    }
}

impl fmt::Debug for RedisDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = self.0.lock();
        f.debug_struct("RedisDisk")
            .field("writes", &disk.end())
            .field("synced", &disk.synced)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn set(disk: &RedisDisk, process: u64, key: u64, persistence: Persistence) -> bool {
        let command = ["SET".to_owned(), key.to_string(), "v".to_owned()].map(Bytes::from).to_vec();
        disk.append(process, 0, vec![(0, command)], persistence)
    }

    fn keys(keyspace: &Keyspace) -> usize {
        keyspace.database(0).len()
    }

    #[test]
    fn a_crash_keeps_the_first_writes() {
        let mut kept = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let disk = RedisDisk::new();
            let (process, _) = disk.start(Persistence::EverySecond, None);
            (0..5).for_each(|key| assert!(set(&disk, process, key, Persistence::EverySecond)));
            disk.sync(process);
            (5..8).for_each(|key| assert!(set(&disk, process, key, Persistence::EverySecond)));
            assert_eq!(disk.unsynced(), 3);
            let lost = disk.crash(seed);
            assert!(!set(&disk, process, 9, Persistence::EverySecond), "the process has ended");
            let (_, keyspace) = disk.start(Persistence::EverySecond, Some(seed));
            assert_eq!(keys(&keyspace), 8 - lost);
            assert!((0..8 - lost).all(|key| keyspace.database(0).contains_key(key.to_string().as_bytes())));
            assert_eq!(disk.lost(), lost as u64);
            kept.insert(8 - lost);
        }
        assert_eq!(kept, (5..=8).collect());
    }

    /// Without a crash, a new process finds all writes. The old one does not sync them any more.
    #[test]
    fn a_start_makes_the_writes_safe_that_it_finds() {
        let disk = RedisDisk::new();
        let (process, _) = disk.start(Persistence::EverySecond, None);
        assert!(set(&disk, process, 1, Persistence::EverySecond));
        assert_eq!(disk.unsynced(), 1);
        let (_, keyspace) = disk.start(Persistence::EverySecond, None);
        assert_eq!((keys(&keyspace), disk.unsynced()), (1, 0));
        assert_eq!(disk.crash(7), 0);
    }

    #[test]
    fn the_log_is_bounded_and_a_replica_can_lag_by_its_length() {
        let disk = RedisDisk::new();
        let (process, _) = disk.start(Persistence::Always, None);
        (0..3000).for_each(|key| assert!(set(&disk, process, key, Persistence::Always)));
        assert_eq!(disk.0.lock().log.len(), RedisDisk::MAX_LAG);
        assert_eq!(keys(&disk.start(Persistence::Always, Some(1)).1), 3000);
        assert_eq!(keys(&disk.fail_over(RedisDisk::MAX_LAG + 1).1), 2000);
        assert_eq!(keys(&disk.fail_over(1).1), 2000, "the image is the oldest state");
    }

    #[test]
    fn without_a_file_all_writes_are_unsafe() {
        const WRITES: u64 = 3 * RedisDisk::MAX_LAG as u64;
        let persistence = Persistence::Never;
        for crashes in [false, true] {
            let disk = RedisDisk::new();
            let (process, _) = disk.start(persistence, None);
            (0..WRITES).for_each(|key| assert!(set(&disk, process, key, persistence)));
            assert_eq!((disk.unsynced() as u64, disk.lost()), (WRITES, 0));
            if crashes {
                assert_eq!(disk.crash(7) as u64, WRITES);
            }
            // Also a process that writes a file finds none.
            let (_, keyspace) = disk.start(Persistence::Always, Some(7));
            assert_eq!((keys(&keyspace), disk.unsynced(), disk.lost()), (0, 0, WRITES));
        }
    }

    #[test]
    fn a_replica_without_a_file_has_no_safe_writes_either() {
        let disk = RedisDisk::new();
        let (process, _) = disk.start(Persistence::Never, None);
        (0..5).for_each(|key| assert!(set(&disk, process, key, Persistence::Never)));
        let (_, keyspace) = disk.fail_over(2);
        assert_eq!((keys(&keyspace), disk.unsynced(), disk.lost()), (3, 3, 2));
    }

    #[test]
    fn too_many_unsafe_writes_are_made_safe() {
        let disk = RedisDisk::new();
        let (process, _) = disk.start(Persistence::EverySecond, None);
        (0..=RedisDisk::MAX_UNSYNCED as u64)
            .for_each(|key| assert!(set(&disk, process, key, Persistence::EverySecond)));
        assert_eq!(disk.unsynced(), 0);
    }
}
