//! `Disk`: the time that a disk takes, and its faults.

#[cfg(feature = "simulation")]
use super::simulated::Machine;

/// Why a simulated disk has refused something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "simulation"), allow(dead_code, reason = "only simulations fail"))]
pub(crate) enum DiskError {
    /// Nothing was written, and another attempt may succeed.
    Busy,
    Full,
    /// A sync has failed, so it is not known what was written.
    Failed,
}

/// The disk of the machine on which it was made. On the operating system it takes no time and never
/// fails, because what is stored in memory has no disk there.
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

    /// Draws the seed of what a loss of power, or a sync that has failed, leaves on the disk.
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
