#![no_main]

use netwheel_fuzz::varint;

libfuzzer_sys::fuzz_target!(|data: &[u8]| varint(data));
