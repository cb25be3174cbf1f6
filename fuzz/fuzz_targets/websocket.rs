#![no_main]

use netwheel_fuzz::websocket;

libfuzzer_sys::fuzz_target!(|data: &[u8]| websocket(data));
