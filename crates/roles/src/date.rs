//! Times as HTTP writes them.

use std::time::{SystemTime, UNIX_EPOCH};

use h2lab_base::calendar::Moment;

/// A time as HTTP writes it (RFC 9110 §5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`, from seconds since 1970.
pub fn http_date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Moment { year, month, day, hour, minute, second } = Moment::of_unix(seconds.cast_signed());
    let weekday = DAYS[(seconds / 86_400 % 7) as usize];
    let month = MONTHS[usize::from(month - 1)];
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

/// The time of now as HTTP writes it, made anew once a second.
#[derive(Debug, Default)]
pub struct Date {
    second: u64,
    text: String,
}

impl Date {
    /// What stands in `Date` of a message that is sent now.
    pub fn now(&mut self) -> &str {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second || self.text.is_empty() {
            *self = Self { second, text: http_date(second) };
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(seconds), date);
        }
    }
}
