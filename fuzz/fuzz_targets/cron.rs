#![no_main]

use netwheel_fuzz::cron;

libfuzzer_sys::fuzz_target!(|data: &[u8]| cron(data));
