#![no_main]

use netwheel_fuzz::prometheus;

libfuzzer_sys::fuzz_target!(|data: &[u8]| prometheus(data));
