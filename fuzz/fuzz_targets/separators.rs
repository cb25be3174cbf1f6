#![no_main]

use netwheel_fuzz::separators;

libfuzzer_sys::fuzz_target!(|data: &[u8]| separators(data));
