//! Tests of cron expressions.

pub(super) mod work;
