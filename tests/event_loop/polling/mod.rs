//! The poll of an event loop: event sources, busy polling, rebuilds.

mod boot_clock;
mod busy_poll;
mod descriptor_reuse;
mod event_sources;
mod rebuild;
mod rebuild_interrupted;
mod rebuild_under_load;
