//! Names of the bounded resources reported by [`Error::Full`](crate::Error::Full).

pub(crate) const OUTBOUND: &str = "outbound bytes";
pub(crate) const LOOP_OUTBOUND: &str = "outbound bytes of an event loop";
pub(crate) const GROUP_OUTBOUND: &str = "outbound bytes of an event loop group";
pub(crate) const UNCONFIRMED_WRITES: &str = "unconfirmed writes of a channel";
pub(crate) const CHANNEL_TASKS: &str = "scheduled tasks of a channel";
pub(crate) const FILTER_REPLIES: &str = "replies of a channel's filters";
pub(crate) const REPLACEMENTS: &str = "consecutive pipeline replacements";

pub(crate) const WAITING_BROADCASTS: &str = "waiting broadcasts of a channel group";
pub(crate) const WAITING_DELIVERIES: &str = "waiting deliveries of a channel group";

pub(crate) const CONNECTIONS: &str = "connections of each event loop";
pub(crate) const SOCKETS: &str = "sockets of one event loop";
#[cfg(unix)]
pub(crate) const EVENT_SOURCES: &str = "event sources of an event loop";
pub(crate) const PENDING_TASKS: &str = "pending tasks";
pub(crate) const SCHEDULED_TASKS: &str = "scheduled tasks";
pub(crate) const SHUTDOWN_HOOKS: &str = "shutdown hooks of one event loop";

pub(crate) const WORKS: &str = "pending work items";
pub(crate) const PENDING_TIMEOUTS: &str = "pending timeouts";
pub(crate) const POOL_WAITERS: &str = "waiters of a channel pool";
