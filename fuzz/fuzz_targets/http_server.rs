#![no_main]

use netwheel_fuzz::http_server;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_server(data));
