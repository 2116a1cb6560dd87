//! Certificates of a sidecar: until when each is valid, and when that is worth a warning.

use h2lab_base::calendar::Moment;
use serde::{Deserialize, Serialize};

/// A certificate should be renewed long before the last tenth of its lifetime; of a long lifetime, the last month
/// counts.
const LAST_PART: i64 = 10;
const MONTH: i64 = 30 * DAY;
const DAY: i64 = 24 * HOUR;
const HOUR: i64 = 3_600;

/// A certificate in a file that the sidecar's configuration names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateStatus {
    /// The file, as it is written.
    pub file: String,
    /// Its subject, `CN=users.internal, O=Example`; empty if it has none.
    pub subject: String,
    /// The first second in which it is valid, since 1970 UTC.
    pub not_before_unix_s: i64,
    /// The last such second.
    pub not_after_unix_s: i64,
    /// How many seconds are left until then; negative after it.
    pub left_s: i64,
}

/// Why a certificate is worth a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateTrouble {
    /// It has expired.
    Expired,
    /// It is not valid yet.
    NotYet,
    /// It expires within the last tenth of its lifetime, or within 30 days if that is less.
    Ending,
}

impl CertificateStatus {
    /// The same at another time, in seconds since 1970.
    #[must_use]
    pub fn at(self, now: i64) -> Self {
        Self { left_s: self.not_after_unix_s.saturating_sub(now), ..self }
    }

    /// What is wrong with it.
    pub fn trouble(&self) -> Option<CertificateTrouble> {
        let now = self.not_after_unix_s.saturating_sub(self.left_s);
        let lifetime = self.not_after_unix_s.saturating_sub(self.not_before_unix_s);
        if self.left_s < 0 {
            Some(CertificateTrouble::Expired)
        } else if now < self.not_before_unix_s {
            Some(CertificateTrouble::NotYet)
        } else if self.left_s < (lifetime / LAST_PART).min(MONTH) {
            Some(CertificateTrouble::Ending)
        } else {
            None
        }
    }

    /// The same in words: `server.pem: the certificate of CN=users.internal expires in 8 days (2026-12-06T10:00:00Z)`.
    pub fn warning(&self) -> Option<String> {
        let whose = if self.subject.is_empty() { "(no subject)" } else { &self.subject };
        let (before, after) =
            (Moment::of_unix(self.not_before_unix_s), Moment::of_unix(self.not_after_unix_s));
        let what = match self.trouble()? {
            CertificateTrouble::Expired => format!("expired {} ago ({after}Z)", span(-self.left_s)),
            CertificateTrouble::NotYet => format!("is not valid before {before}Z"),
            CertificateTrouble::Ending => format!("expires in {} ({after}Z)", span(self.left_s)),
        };
        Some(format!("{}: the certificate of {whose} {what}", self.file))
    }

    /// Until when it is valid: `2026-12-06T10:00:00Z, in 8 days`.
    pub fn until(&self) -> String {
        let left = match self.left_s {
            ..0 => format!("{} ago", span(-self.left_s)),
            left => format!("in {}", span(left)),
        };
        format!("{}Z, {left}", Moment::of_unix(self.not_after_unix_s))
    }
}

/// A time of this many seconds in one unit: `8 days`, `30 hours`, `5 minutes`.
fn span(seconds: i64) -> String {
    let (n, unit) = match seconds {
        ..7_200 => (seconds / 60, "minute"),
        7_200..172_800 => (seconds / HOUR, "hour"),
        _ => (seconds / DAY, "day"),
    };
    h2lab_base::counts::plural(n.unsigned_abs(), unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(before: i64, after: i64, now: i64) -> CertificateStatus {
        CertificateStatus {
            file: "a.pem".to_owned(),
            subject: "CN=a".to_owned(),
            not_before_unix_s: before,
            not_after_unix_s: after,
            left_s: 0,
        }
        .at(now)
    }

    #[test]
    fn the_last_tenth_of_a_lifetime_is_warned_of_but_not_more_than_a_month() {
        let trouble = |before, after, now| certificate(before, after, now).trouble();
        let quarter = 90 * DAY;
        assert_eq!(trouble(0, quarter, quarter - 9 * DAY), None);
        assert_eq!(trouble(0, quarter, quarter - 9 * DAY + 1), Some(CertificateTrouble::Ending));
        assert_eq!(trouble(0, 3_650 * DAY, 3_619 * DAY), None);
        assert_eq!(trouble(0, 3_650 * DAY, 3_621 * DAY), Some(CertificateTrouble::Ending));
        assert_eq!(trouble(0, DAY, DAY - 3 * HOUR), None, "renewed each day");
        assert_eq!(trouble(0, quarter, quarter), Some(CertificateTrouble::Ending), "its last second");
        assert_eq!(trouble(0, quarter, quarter + 1), Some(CertificateTrouble::Expired));
        assert_eq!(trouble(100, quarter, 99), Some(CertificateTrouble::NotYet));
    }

    #[test]
    fn a_warning_names_file_subject_and_time() {
        let warned = |before, after, now| certificate(before, after, now).warning().unwrap_or_default();
        assert_eq!(
            warned(0, 90 * DAY, 82 * DAY),
            "a.pem: the certificate of CN=a expires in 8 days (1970-04-01T00:00:00Z)"
        );
        assert_eq!(
            warned(0, 90 * DAY, 91 * DAY),
            "a.pem: the certificate of CN=a expired 24 hours ago (1970-04-01T00:00:00Z)"
        );
        assert_eq!(
            warned(DAY, 90 * DAY, 0),
            "a.pem: the certificate of CN=a is not valid before 1970-01-02T00:00:00Z"
        );
        assert_eq!(warned(0, 90 * DAY, DAY), "");
        assert_eq!(certificate(0, 90 * DAY, DAY).until(), "1970-04-01T00:00:00Z, in 89 days");
    }
}
