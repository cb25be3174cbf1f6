//! The chat in a browser: pages, metrics, the dashboard, and the way to the chat over WebSocket.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the page of the chat |
//! | `/ws` | the protocol of docs/im-protocol.md over WebSocket, one object per text frame |
//! | `/dashboard` | the page of the dashboard |
//! | `/dashboard/events` | its data, once a second: server-sent events (docs/im-dashboard.md) |
//! | `/metrics` | the metrics of the loops and of the timers in the format of OpenMetrics |

mod dashboard;
mod frames;
mod page;
mod site;
mod timer_lists;

pub(crate) use dashboard::{Dashboard, PERIOD};
pub(crate) use frames::ChatFrames;
pub(crate) use page::Pages;
pub(crate) use site::{Site, Web};
