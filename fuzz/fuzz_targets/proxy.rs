#![no_main]

use netwheel_fuzz::proxy;

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy(data));
