#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portcullis_tests::fuzz::address(data));
