//! See `h2lab_model::fuzz`, where the body of this target is.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (h2lab_model::fuzz::target("proxy").run)(data));
