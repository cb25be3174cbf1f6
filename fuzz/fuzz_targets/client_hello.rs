#![no_main]

use netwheel_fuzz::client_hello;

libfuzzer_sys::fuzz_target!(|data: &[u8]| client_hello(data));
