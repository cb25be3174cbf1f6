#![no_main]

use netwheel_fuzz::length_field;

libfuzzer_sys::fuzz_target!(|data: &[u8]| length_field(data));
