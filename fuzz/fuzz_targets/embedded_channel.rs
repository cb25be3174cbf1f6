#![no_main]

use netwheel_fuzz::embedded_channel;

libfuzzer_sys::fuzz_target!(|data: &[u8]| embedded_channel(data));
