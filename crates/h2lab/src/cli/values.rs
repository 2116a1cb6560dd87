//! Parsers of flag values, the same for every subcommand.

use std::ops::{Bound, RangeBounds};
use std::str::FromStr;
use std::time::Duration;

use h2lab_base::units::{ParseQuantityError, parse_bytes, parse_duration};
use h2lab_model::scenario::{Axis, AxisValue};

/// Parses any value of the model; the error says what was expected.
pub fn value<T: FromStr<Err = ParseQuantityError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ParseQuantityError| error.to_string())
}

/// `12.5ms`, `3s`, and `10` for seconds, as every load generator has it.
pub fn duration(text: &str) -> Result<Duration, String> {
    let seconds = is_number(text).then(|| format!("{text}s"));
    parse_duration(seconds.as_deref().unwrap_or(text)).map_err(|error| error.to_string())
}

/// The same for several, separated by commas. The times of a link do not accept a bare number: netem's are
/// milliseconds.
pub fn durations(text: &str) -> Result<Axis<Duration>, String> {
    let with_unit = |text: &str| if is_number(text) { format!("{text}s") } else { text.to_owned() };
    axis(&text.split(',').map(with_unit).collect::<Vec<_>>().join(","))
}

/// A whole number of a range.
pub fn whole<T: TryFrom<u64>>(
    range: impl RangeBounds<u64> + Clone + Send + Sync,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    let bound = |bound: Bound<&u64>, open: u64| match bound {
        Bound::Included(n) => *n,
        Bound::Excluded(n) => n - 1,
        Bound::Unbounded => open,
    };
    let (low, high) = (bound(range.start_bound(), 0), bound(range.end_bound(), u64::MAX));
    move |text| {
        let n = text.parse().ok().filter(|n: &u64| (low..=high).contains(n));
        n.and_then(|n| T::try_from(n).ok()).ok_or_else(|| match high {
            u64::MAX => format!("`{text}` is not a whole number, {low} or more"),
            _ => format!("`{text}` is not a whole number from {low} to {high}"),
        })
    }
}

/// Whether a text is a number without a unit.
pub fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && text.parse::<f64>().is_ok()
}

/// `64k`, `1G`: bytes.
pub fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

/// The values of an axis: one, or several separated by commas.
pub fn axis<T: AxisValue>(text: &str) -> Result<Axis<T>, String> {
    value(text)
}

/// Replaces a value by the flag's, if it was given.
pub fn replace<T: Clone>(place: &mut T, flag: Option<&T>) {
    if let Some(flag) = flag {
        place.clone_from(flag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_refused_with_its_range() {
        let of = |text: &str| whole::<u8>(1..=20)(text);
        assert_eq!((of("1"), of("20")), (Ok(1), Ok(20)));
        for bad in ["0", "21", "-5", "ope", "1.5", "", "99999999999999999999"] {
            assert_eq!(of(bad), Err(format!("`{bad}` is not a whole number from 1 to 20")));
        }
        let open = whole::<u32>(1..);
        assert_eq!(open("0"), Err("`0` is not a whole number, 1 or more".to_owned()));
        assert!(open("4294967296").is_err(), "more than it holds");
    }

    #[test]
    fn a_time_without_a_unit_is_in_seconds() {
        let of = |seconds| Ok(Duration::from_secs_f64(seconds));
        assert_eq!((duration("10"), duration("0.5"), duration("12.5ms")), (of(10.0), of(0.5), of(0.0125)));
        assert_eq!(durations("1,250ms").unwrap().values(), [of(1.0), of(0.25)].map(Result::unwrap));
        for bad in ["", ".", "ten", "-1", "1 fortnight"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(axis::<Duration>("10").is_err(), "a delay of the link says its unit");
    }
}
