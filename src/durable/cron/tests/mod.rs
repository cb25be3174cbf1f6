//! Tests of cron expressions.

mod daylight_saving;
mod errors;
mod examples;
mod oracle;
mod properties;
mod search;
mod support;
mod syntax;
mod transitions;
pub(super) mod work;
