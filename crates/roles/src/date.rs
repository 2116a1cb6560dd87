//! The current time in the format of HTTP.

use std::time::{SystemTime, UNIX_EPOCH};

use h2lab_base::calendar::http_date;

/// Seconds since 1970.
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The current time in the format of HTTP, formatted once a second.
#[derive(Debug, Default)]
pub struct Date {
    second: u64,
    text: String,
}

impl Date {
    /// The value of `Date` in a message that is sent now.
    pub fn now(&mut self) -> &str {
        let second = unix_s();
        if second != self.second || self.text.is_empty() {
            *self = Self { second, text: http_date(second) };
        }
        &self.text
    }
}
