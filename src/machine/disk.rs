//! `Disk`: the time that a disk takes, and its faults.

use super::failure::DiskError;
#[cfg(feature = "simulation")]
use super::simulated::Machine;

/// The disk of the machine that runs the thread which calls [`Disk::of_machine`]. On the operating
/// system, operations take no time and do not fail, because memory has no disk.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    #[cfg(feature = "simulation")]
    machine: Option<Machine>,
}

#[cfg(feature = "simulation")]
impl Disk {
    /// Returns the disk of the calling thread's machine.
    pub(crate) fn of_machine() -> Self {
        Disk { machine: super::simulated::current() }
    }

    /// Returns whether writes survive a loss of power only after a sync.
    pub(crate) fn needs_sync(&self) -> bool {
        self.machine.is_some()
    }

    /// Lets the time of a read pass.
    pub(crate) fn read(&self) {
        if let Some(machine) = &self.machine {
            let time = machine.lock().disk_read();
            super::sleep(time);
        }
    }

    /// Lets the time of a write pass, before it is done.
    pub(crate) fn write(&self) -> Result<(), DiskError> {
        self.access(|machine| machine.lock().disk_write(machine.node()))
    }

    /// Lets the time of a sync pass, after a write.
    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        self.access(|machine| machine.lock().disk_sync())
    }

    fn access(
        &self,
        access: impl FnOnce(&Machine) -> (std::time::Duration, Option<DiskError>),
    ) -> Result<(), DiskError> {
        let Some(machine) = &self.machine else { return Ok(()) };
        let (time, error) = access(machine);
        super::sleep(time);
        error.map_or(Ok(()), Err)
    }

    /// Returns how often the machine has lost its power.
    pub(crate) fn power_losses(&self) -> u64 {
        self.machine.as_ref().map_or(0, |machine| machine.lock().nodes[machine.node()].power_losses)
    }

    /// Draws a seed that decides how many unsynced transactions a crash loses.
    pub(crate) fn seed(&self) -> u64 {
        self.machine.as_ref().map_or(0, Machine::seed)
    }
}

#[cfg(not(feature = "simulation"))]
#[allow(clippy::unused_self, reason = "the same methods as in a simulation")]
impl Disk {
    pub(crate) fn of_machine() -> Self {
        Disk {}
    }

    pub(crate) fn needs_sync(&self) -> bool {
        false
    }

    pub(crate) fn read(&self) {}

    pub(crate) fn write(&self) -> Result<(), DiskError> {
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        Ok(())
    }

    pub(crate) fn power_losses(&self) -> u64 {
        0
    }

    pub(crate) fn seed(&self) -> u64 {
        0
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("needs_sync", &self.needs_sync()).finish()
    }
}
