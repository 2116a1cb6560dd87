//! Quantities: points in time, sizes, bandwidths and shares, with the one way to parse and print each.
//!
//! Durations are [`core::time::Duration`]. A bare `u64` of bytes or nanoseconds never crosses a module boundary
//! without a unit in its name.

use crate::JsonSchema;
use crate::counts::number;
use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds since the start of the run, or of the simulation.
///
/// All processes of a run share one origin on the kernel's monotonic clock, so that the times of the generator, the
/// link and the server compare directly. [`Time::NEVER`] marks what did not happen.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than every real time: "did not happen", "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// The time `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The time `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// The time `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin, for plots.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Whether this is a real time rather than [`Time::NEVER`].
    pub const fn happened(self) -> bool {
        self.0 != u64::MAX
    }

    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// [`Time::since`] in nanoseconds, which counters and histograms take: without going through seconds.
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at [`Time::NEVER`].
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    /// Saturates at [`Time::ZERO`].
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.happened() { write!(f, "{:.6}s", self.as_secs_f64()) } else { f.write_str("never") }
    }
}

/// Nanoseconds of `duration`, saturating after 584 years.
pub const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

/// Milliseconds of `duration` as a float, for printing and statistics.
pub fn millis_f64(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Why a quantity on the command line or in a scenario was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct ParseQuantityError {
    text: String,
    expected: &'static str,
}

impl ParseQuantityError {
    /// `text` is not `expected`.
    pub fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

fn refuse(text: &str, expected: &'static str) -> ParseQuantityError {
    ParseQuantityError::new(text, expected)
}

/// Splits `12.5ms` into its number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().ok()?;
    number.is_finite().then_some((number, unit.trim()))
}

/// Parses `250us`, `12.5ms`, `3s`, `2m`, `1h`; a bare `0` needs no unit.
pub fn parse_duration(text: &str) -> Result<Duration, ParseQuantityError> {
    const EXPECTED: &str = "a duration (such as 250us, 12.5ms, 3s, 2m)";
    const NO_UNIT: &str = "a duration: it needs a unit (such as 250ms, 5s, 2m)";
    let (number, unit) = split(text).ok_or_else(|| refuse(text, EXPECTED))?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" if number == 0.0 => 1.0,
        "" => return Err(refuse(text, NO_UNIT)),
        _ => return Err(refuse(text, EXPECTED)),
    };
    Duration::try_from_secs_f64(number * scale).map_err(|_| refuse(text, EXPECTED))
}

/// A measured time, as tables write it: three significant digits in milliseconds, in seconds from 1 s on: `0.231 ms`,
/// `25.1 ms`, `4.04 s`. What was configured is written as it is typed, by [`format_duration`].
pub fn measured_time(duration: Duration) -> String {
    match millis_f64(duration) {
        ms if ms > 0.0 && ms < 0.01 => format!("{} µs", number(ms * 1e3)),
        ms if ms < 999.5 => format!("{} ms", number(ms)),
        ms => format!("{} s", number(ms / 1e3)),
    }
}

/// Prints a duration as it is typed, such as `12.5ms`: the largest unit that keeps it at or above 1, up to four
/// significant digits. For what was configured; see [`measured_time`].
pub fn format_duration(duration: Duration) -> String {
    let ns = duration.as_nanos() as f64;
    let (value, unit) = match ns {
        0.0 => return "0ms".to_owned(),
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{}{unit}", significant(value))
}

/// `value` with up to four significant digits and no trailing zeros.
fn significant(value: f64) -> String {
    let decimals = if value >= 1000.0 {
        0
    } else if value >= 100.0 {
        1
    } else if value >= 10.0 {
        2
    } else {
        3
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Parses a size in bytes: `1024`, `16k`, `1M`, `10G` (powers of 1024, as h2load and curl have it).
pub fn parse_bytes(text: &str) -> Result<u64, ParseQuantityError> {
    const EXPECTED: &str = "a size (such as 1024, 64k, 1M, 10G)";
    // Exact for integers, however large.
    if text.starts_with(|c: char| c.is_ascii_digit())
        && let Ok(bytes) = text.parse()
    {
        return Ok(bytes);
    }
    let (number, unit) = split(text).ok_or_else(|| refuse(text, EXPECTED))?;
    let scale: u64 = match unit.trim_end_matches(['B', 'b']).trim_end_matches('i') {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return Err(refuse(text, EXPECTED)),
    };
    let bytes = (number * scale as f64).round();
    // A cast would turn a number that does not fit in a `u64` into another number.
    if bytes < u64::MAX as f64 {
        Ok(bytes as u64)
    } else {
        Err(refuse(text, "a size below 16 EiB (such as 64k, 1M, 10G)"))
    }
}

/// Prints a size with a binary unit: `1 KiB`, `64 KiB`, `31.2 MiB`.
pub fn format_bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        b if b < 1 << 10 => format!("{b} B"),
        b if b < 1 << 20 => format!("{} KiB", significant(value / 1024.0)),
        b if b < 1 << 30 => format!("{} MiB", significant(value / 1_048_576.0)),
        _ => format!("{} GiB", significant(value / 1_073_741_824.0)),
    }
}

/// A link's capacity in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Bandwidth(u64);

impl Bandwidth {
    /// A capacity of `bits` bits per second; zero is refused, since nothing would ever leave.
    pub const fn from_bits_per_second(bits: u64) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(bits)) }
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// How long `bytes` bytes take to leave.
    pub fn transmission_time(self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl FromStr for Bandwidth {
    type Err = ParseQuantityError;

    /// Parses `100Mbit`, `1.5gbit`, `800kbit` (powers of 1000, netem's words).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "a bandwidth above zero (such as 800kbit, 100mbit, 1gbit)";
        let (number, unit) = split(text).ok_or_else(|| refuse(text, EXPECTED))?;
        let unit = unit.to_ascii_lowercase();
        let scale = match unit.trim_end_matches("/s").trim_end_matches("ps") {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(refuse(text, EXPECTED)),
        };
        Self::from_bits_per_second((number * scale).round() as u64).ok_or_else(|| refuse(text, EXPECTED))
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0 as f64;
        match self.0 {
            b if b < 1_000 => write!(f, "{b}bit"),
            b if b < 1_000_000 => write!(f, "{}kbit", significant(bits / 1e3)),
            b if b < 1_000_000_000 => write!(f, "{}mbit", significant(bits / 1e6)),
            _ => write!(f, "{}gbit", significant(bits / 1e9)),
        }
    }
}

impl TryFrom<String> for Bandwidth {
    type Error = ParseQuantityError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl Bandwidth {
    /// As printed if that reads back as exactly this capacity, else in bits.
    pub fn to_exact_text(self) -> String {
        let text = self.to_string();
        if text.parse() == Ok(self) { text } else { format!("{}bit", self.0) }
    }
}

impl From<Bandwidth> for String {
    fn from(bandwidth: Bandwidth) -> Self {
        bandwidth.to_exact_text()
    }
}

/// A share between 0 and 1: a loss probability, an error share. Written `3%` or `0.03`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RatioText", into = "String")]
#[schemars(with = "String")]
pub struct Ratio(f64);

impl Ratio {
    /// Nothing.
    pub const ZERO: Self = Self(0.0);
    /// All.
    pub const ONE: Self = Self(1.0);

    /// A share; `None` outside 0 to 1.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// As a number from 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for Ratio {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "a share from 0% to 100% (such as 3% or 0.03)";
        let (number, unit) = split(text).ok_or_else(|| refuse(text, EXPECTED))?;
        let value = match unit {
            "%" => number / 100.0,
            // `loss 1` of netem is 1 %, and a share of 1 is all.
            "" if number.total_cmp(&1.0).is_eq() => {
                return Err(refuse(text, "1% or 100%: a bare 1 could mean either"));
            }
            "" => number,
            _ => return Err(refuse(text, EXPECTED)),
        };
        Self::new(value).ok_or_else(|| refuse(text, EXPECTED))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", significant(self.0 * 100.0))
    }
}

/// A share as a scenario file may write it: `"3%"` or `0.03`.
#[derive(Deserialize)]
#[serde(untagged)]
enum RatioText {
    Text(String),
    Number(f64),
}

impl TryFrom<RatioText> for Ratio {
    type Error = ParseQuantityError;

    fn try_from(text: RatioText) -> Result<Self, Self::Error> {
        match text {
            RatioText::Text(text) => text.parse(),
            RatioText::Number(number) => number.to_string().parse(),
        }
    }
}

impl Ratio {
    /// As printed if that reads back as exactly this share, else with all its digits: what crosses a process boundary
    /// must not change.
    pub fn to_exact_text(self) -> String {
        let text = self.to_string();
        if text.parse() == Ok(self) { text } else { self.0.to_string() }
    }
}

impl From<Ratio> for String {
    fn from(ratio: Ratio) -> Self {
        ratio.to_exact_text()
    }
}

/// `#[serde(with = "units::duration_text")]`: a duration as `12.5ms` in TOML and JSON.
pub mod duration_text {
    use std::fmt;
    use std::time::Duration;

    use serde::{Deserializer, Serializer, de::Error, de::Visitor};

    /// Writes `12.5ms`.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_exact(*duration))
    }

    /// Reads `12.5ms`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(Text)
        } else {
            deserializer.deserialize_str(Text) // such formats are not self-describing
        }
    }

    /// Refuses a number, and says what to write instead.
    pub(super) struct Text;

    impl Visitor<'_> for Text {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration such as \"250ms\", \"5s\" or \"2m\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            super::parse_duration(text).map_err(E::custom)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<Duration, E> {
            Err(E::custom(format_args!("a duration needs a unit: write \"{number}s\"")))
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Duration, E> {
            Err(E::custom(format_args!("a duration needs a unit: write \"{number}s\"")))
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<Duration, E> {
            Err(E::custom(format_args!("a duration needs a unit: write \"{number}s\"")))
        }
    }
}

/// The same for a duration that may be missing.
pub mod optional_duration_text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    struct Text(#[serde(with = "super::duration_text")] Duration);

    /// Writes `12.5ms`, or nothing.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration.map(super::format_exact).serialize(serializer)
    }

    /// Reads `12.5ms`, or nothing.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let text = Option::<Text>::deserialize(deserializer)?;
        Ok(text.map(|Text(duration)| duration))
    }
}

/// Prints a duration so that [`parse_duration`] gives exactly the same value back.
pub fn format_exact(duration: Duration) -> String {
    let ns = nanos(duration);
    match ns {
        0 => "0ms".to_owned(),
        n if n.is_multiple_of(1_000_000_000) => format!("{}s", n / 1_000_000_000),
        n if n.is_multiple_of(1_000_000) => format!("{}ms", n / 1_000_000),
        n if n.is_multiple_of(1_000) => format!("{}us", n / 1_000),
        n => format!("{n}ns"),
    }
}

/// Base 64 with padding (RFC 4648 §4).
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let sextet = (word >> (18 - 6 * i)) & 63;
            text.push(if i <= chunk.len() { char::from(ALPHABET[sextet as usize]) } else { '=' });
        }
    }
    text
}

/// The bytes of base 64 with padding (RFC 4648 §4); `None` for anything else, including nonzero unused bits.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for chunk in digits.as_bytes().chunks(4) {
        let mut word = 0_u32;
        for &digit in chunk {
            word = word << 6 | sextet(digit)?;
        }
        word <<= 6 * (4 - chunk.len());
        bytes.extend_from_slice(&word.to_be_bytes()[1..chunk.len()]);
    }
    // Only the canonical text is accepted.
    (base64(&bytes) == text).then_some(bytes)
}

/// The value of a digit of base 64.
fn sextet(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_in_the_units_people_write() {
        assert_eq!(parse_duration("12.5ms").unwrap(), Duration::from_micros(12_500));
        assert_eq!(parse_duration("250us").unwrap(), Duration::from_micros(250));
        assert_eq!(parse_duration("2m").unwrap(), Duration::from_secs(120));
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
        for bad in ["", "5", "ms", "-1ms", "1.2.3s", "5 parsecs", "1e400s"] {
            assert!(parse_duration(bad).is_err(), "{bad} must be refused");
        }
    }

    #[test]
    fn a_number_without_a_unit_is_refused_with_what_to_write() {
        #[derive(Debug, Deserialize)]
        struct Both {
            #[serde(with = "duration_text")]
            always: Duration,
            #[serde(default, with = "optional_duration_text")]
            perhaps: Option<Duration>,
        }
        let read = |text: &str| serde_json::from_str::<Both>(text).map_err(|error| error.to_string());
        let both = read(r#"{"always": "5s", "perhaps": "2m"}"#).expect("it is right");
        assert_eq!((both.always, both.perhaps), (Duration::from_secs(5), Some(Duration::from_secs(120))));
        assert_eq!(read(r#"{"always": "5s"}"#).expect("it is right").perhaps, None);
        for (wrong, words) in [
            (r#"{"always": 5}"#, "a duration needs a unit: write \"5s\""),
            (r#"{"always": 1.5}"#, "write \"1.5s\""),
            (r#"{"always": "5s", "perhaps": 5}"#, "write \"5s\""),
            (r#"{"always": "5"}"#, "it needs a unit"),
            (r#"{"always": []}"#, "a duration such as"),
        ] {
            assert!(read(wrong).is_err_and(|told| told.contains(words)), "{wrong}");
        }
    }

    #[test]
    fn printed_durations_keep_four_digits() {
        assert_eq!(format_duration(Duration::from_micros(12_500)), "12.5ms");
        assert_eq!(format_duration(Duration::from_nanos(999)), "999ns");
        assert_eq!(format_duration(Duration::from_millis(2_264)), "2.264s");
        assert_eq!(format_duration(Duration::ZERO), "0ms");
        let measured = [0, 999, 9_999, 10_000, 230_300, 1_090_000, 25_104_000, 999_499_999, 999_500_000];
        let measured = measured.map(|ns| measured_time(Duration::from_nanos(ns)));
        assert_eq!(
            measured,
            ["0 ms", "0.999 µs", "10.0 µs", "0.010 ms", "0.230 ms", "1.09 ms", "25.1 ms", "999 ms", "1.00 s"]
        );
        assert_eq!(measured_time(Duration::from_secs(4_037)), "4,037 s");
    }

    #[test]
    fn exact_durations_survive_a_round_trip() {
        for ns in [0, 1, 999, 1_000, 12_500_000, 3_000_000_000, 3_000_000_001] {
            let duration = Duration::from_nanos(ns);
            assert_eq!(parse_duration(&format_exact(duration)).unwrap(), duration);
        }
    }

    #[test]
    fn sizes_are_binary_and_bandwidths_decimal() {
        assert_eq!(parse_bytes("64k").unwrap(), 65_536);
        assert_eq!(parse_bytes("1MiB").unwrap(), 1 << 20);
        assert_eq!(parse_bytes("18446744073709551615").unwrap(), u64::MAX);
        assert!(["1x", "+1", "", "."].map(parse_bytes).iter().all(Result::is_err));
        assert_eq!("100Mbit".parse::<Bandwidth>().unwrap().bits_per_second(), 100_000_000);
        assert!("0mbit".parse::<Bandwidth>().is_err());
        assert_eq!("1500kbit".parse::<Bandwidth>().unwrap().to_string(), "1.5mbit");
    }

    #[test]
    fn transmission_time_is_bits_over_bandwidth() {
        let bandwidth = Bandwidth::from_bits_per_second(1_000_000_000).unwrap();
        assert_eq!(bandwidth.transmission_time(1250), Duration::from_micros(10));
    }

    #[test]
    fn shares_parse_as_percent_or_number_and_stay_in_range() {
        assert_eq!("3%".parse::<Ratio>().unwrap(), Ratio::new(0.03).unwrap());
        assert_eq!("0.03".parse::<Ratio>().unwrap().to_string(), "3%");
        assert!("101%".parse::<Ratio>().is_err());
        assert!("1".parse::<Ratio>().is_err(), "1 % or all of it");
        assert!("3".parse::<Ratio>().is_err());
    }

    #[test]
    fn what_crosses_a_process_boundary_does_not_change() {
        for share in [0.03, 0.000_003_3, 1.0 / 3.0, 0.123_456_789, 0.0, 1.0] {
            let ratio = Ratio::new(share).unwrap();
            let json = serde_json::to_string(&ratio).unwrap();
            assert_eq!(serde_json::from_str::<Ratio>(&json).unwrap(), ratio, "{json}");
        }
        for bits in [1, 999, 1_234_567, 1_000_000_000, 123_456_789_012] {
            let bandwidth = Bandwidth::from_bits_per_second(bits).unwrap();
            let json = serde_json::to_string(&bandwidth).unwrap();
            assert_eq!(serde_json::from_str::<Bandwidth>(&json).unwrap(), bandwidth, "{json}");
        }
    }

    #[test]
    fn never_is_later_than_everything_and_absorbs() {
        assert!(Time::from_millis(5) < Time::NEVER);
        assert_eq!(Time::NEVER + Duration::from_secs(1), Time::NEVER);
        assert_eq!(Time::ZERO.since(Time::from_millis(1)), Duration::ZERO);
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        let vectors = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (bytes, text) in vectors {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(from_base64(text).unwrap(), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_base64(&base64(&all)).unwrap(), all);
    }

    #[test]
    fn base64_that_nobody_would_write_is_refused() {
        for bad in ["Zg=", "Zg", "Z", "Z===", "====", "Zh==", "Zm9v====", "Zm9=v", "Zm-v", "Zm 9", "Zmé"] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
    }
}
