//! `Route`: requests to a service that is modelled on a node of a simulation.

use super::failure::RouteError;
#[cfg(feature = "simulation")]
use super::simulated::Hop;
use std::{
    fmt,
    time::{Duration, SystemTime},
};

/// The way from the calling thread's node to a service on another one. Outside of a simulation, the
/// service is here.
#[derive(Clone, Default)]
pub(crate) struct Route {
    #[cfg(feature = "simulation")]
    hop: Option<Hop>,
}

impl Route {
    /// Returns the route to the node with this name. `None` if the calling thread belongs to a
    /// simulation without such a node.
    pub(crate) fn to(host: Option<&str>) -> Option<Self> {
        #[cfg(feature = "simulation")]
        if let Some(host) = host.filter(|_| super::simulated::current().is_some()) {
            return Some(Route { hop: Some(Hop::to(host)?) });
        }
        let _ = host;
        Some(Route::default())
    }

    /// Calls `serve` at the service, after the time of the way there. Blocks for at most `timeout`.
    pub(crate) fn call<T>(&self, timeout: Duration, serve: impl FnOnce() -> T) -> Result<T, RouteError> {
        #[cfg(feature = "simulation")]
        if let Some(hop) = &self.hop {
            return hop.call(timeout, serve);
        }
        let _ = timeout;
        Ok(serve())
    }

    /// Returns the time of day at the service.
    pub(crate) fn wall_time(&self) -> SystemTime {
        #[cfg(feature = "simulation")]
        if let Some(hop) = &self.hop {
            return hop.wall_time();
        }
        super::default_clock().wall_time()
    }

    /// Returns how often the service's machine has lost its power.
    pub(crate) fn power_losses(&self) -> u64 {
        #[cfg(feature = "simulation")]
        if let Some(hop) = &self.hop {
            return hop.power_losses();
        }
        0
    }

    /// Draws a seed that decides how many unsynced transactions a loss of power costs.
    pub(crate) fn seed(&self) -> u64 {
        #[cfg(feature = "simulation")]
        if let Some(hop) = &self.hop {
            return hop.seed();
        }
        0
    }

    /// Returns how often the service was killed.
    pub(crate) fn restarts(&self) -> u64 {
        #[cfg(feature = "simulation")]
        if let Some(hop) = &self.hop {
            return hop.restarts();
        }
        0
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").finish_non_exhaustive()
    }
}
