#![no_main]

use netwheel_fuzz::resp;

libfuzzer_sys::fuzz_target!(|data: &[u8]| resp(data));
