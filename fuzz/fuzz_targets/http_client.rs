#![no_main]

use netwheel_fuzz::http_client;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_client(data));
