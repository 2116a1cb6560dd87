//! What values of flags are read by, the same for every subcommand.

use std::str::FromStr;
use std::time::Duration;

use h2lab_base::units::{ParseQuantityError, parse_bytes, parse_duration};
use h2lab_model::scenario::{Axis, AxisValue};

/// Parses any value of the model; the error says what was expected.
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

/// The values of an axis: one, or several with commas.
pub fn axis<T: AxisValue>(text: &str) -> Result<Axis<T>, String> {
    value(text)
}

/// Replaces a value by the flag's, if it was given.
pub fn replace<T: Clone>(place: &mut T, flag: Option<&T>) {
    if let Some(flag) = flag {
        place.clone_from(flag);
    }
}
