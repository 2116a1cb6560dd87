//! Dates of the Gregorian calendar, in UTC without leap seconds.
//!
//! Years begin in March, so that a leap day is the last of its year; an era has 400 years.

use std::fmt;

const SECONDS: i64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;
/// Days of an era.
const ERA: i64 = 146_097;

/// A second, with its date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// The year.
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
}

impl Moment {
    /// From a time in seconds since 1970.
    pub const fn of_unix(seconds: i64) -> Self {
        let (days, rest) = (seconds.div_euclid(SECONDS) + EPOCH, seconds.rem_euclid(SECONDS));
        let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let from_march = (5 * day + 2) / 153;
        let month = (from_march + 2) % 12 + 1;
        Self {
            year: era * 400 + year + (month <= 2) as i64,
            month: month as u8,
            day: (day - (153 * from_march + 2) / 5 + 1) as u8,
            hour: (rest / 3_600) as u8,
            minute: (rest / 60 % 60) as u8,
            second: (rest % 60) as u8,
        }
    }

    /// In seconds since 1970.
    pub const fn unix(&self) -> i64 {
        let Self { year, month, day, hour, minute, second } = *self;
        let month = month as i64;
        let (year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
        let days =
            era * ERA + year * 365 + year / 4 - year / 100 + (153 * from_march + 2) / 5 + day as i64 - 1;
        (days - EPOCH) * SECONDS + hour as i64 * 3_600 + minute as i64 * 60 + second as i64
    }
}

impl fmt::Display for Moment {
    /// `2026-11-28T17:22:58` (RFC 3339), without a zone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }
}

/// A time in the format of HTTP (RFC 9110 §5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`, from seconds since 1970.
pub fn http_date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Moment { year, month, day, hour, minute, second } = Moment::of_unix(seconds.cast_signed());
    let weekday = DAYS[(seconds / 86_400 % 7) as usize];
    let month = MONTHS[usize::from(month - 1)];
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_three_eras_follows_the_one_before() {
        let first = Moment { year: 1_599, month: 12, day: 31, hour: 23, minute: 59, second: 59 };
        let mut before = first;
        for n in 1..=3 * ERA {
            let next = Moment::of_unix(first.unix() + n * SECONDS);
            assert_eq!(next.unix(), first.unix() + n * SECONDS);
            let is_next_day = next.day == before.day + 1 && next.month == before.month;
            let is_next_month = next.day == 1 && before.day >= 28 && next.month == before.month % 12 + 1;
            assert!(is_next_day || is_next_month, "{next} after {before}");
            before = next;
        }
        assert_eq!(before.to_string(), "2799-12-31T23:59:59");
    }

    #[test]
    fn known_days_are_known() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_400, "2000-02-29T00:00:00"),
            (-1, "1969-12-31T23:59:59"),
            (4_107_542_399, "2100-02-28T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(Moment::of_unix(seconds).to_string(), text);
        }
    }

    #[test]
    fn dates_of_http_are_those_of_the_calendar() {
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
