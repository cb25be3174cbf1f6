#![no_main]

use netwheel_fuzz::durable_file;

libfuzzer_sys::fuzz_target!(|data: &[u8]| durable_file(data));
