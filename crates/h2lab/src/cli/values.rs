//! What values of flags are read by, the same for every subcommand.

use std::str::FromStr;
use std::time::Duration;

use h2lab_base::units::{ParseQuantityError, parse_bytes, parse_duration};

/// Anything that core can read; its error says what was expected.
pub fn value<T: FromStr<Err = ParseQuantityError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ParseQuantityError| error.to_string())
}

/// `12.5ms`, `3s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// `64k`, `1G`: bytes.
pub fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}
