//! The validity period and the subject of certificates: what an operator wants to know before they expire.
//!
//! TLS verifies certificates by itself; nothing here decides about trust.

use h2lab_base::calendar::Moment;
use h2lab_base::text::made_printable;

use super::der::{self, OID, SEQUENCE, SET};
use super::files::certificates;

/// What a certificate says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    /// Its subject, `CN=users.internal, O=Example`; printable. Empty where it has none, which RFC 5280 §4.1.2.6 allows beside a
    /// subjectAltName.
    pub subject: String,
    /// The first second in which it is valid, since 1970 UTC; negative before.
    pub not_before: i64,
    /// The last one.
    pub not_after: i64,
}

impl Validity {
    /// Of every certificate in a PEM file; those that are malformed are left out, since TLS refuses them anyway.
    pub fn of_pem(pem: &[u8]) -> Vec<Self> {
        let all = certificates(pem).unwrap_or_default();
        all.iter().filter_map(|certificate| Self::of_der(certificate)).collect()
    }

    /// `Certificate` of RFC 5280 §4.1.
    fn of_der(certificate: &[u8]) -> Option<Self> {
        /// `[0] EXPLICIT Version`, which certificates of version 1 do not have.
        const VERSION: u8 = 0xa0;
        let mut whole = content(&mut &*certificate, SEQUENCE)?;
        let mut signed = content(&mut whole, SEQUENCE)?;
        let mut first = der::next(&mut signed)?;
        if first.0 == VERSION {
            first = der::next(&mut signed)?;
        }
        // That was the serial number; then come the algorithm and the issuer.
        let _ = (first, content(&mut signed, SEQUENCE)?, content(&mut signed, SEQUENCE)?);
        let mut validity = content(&mut signed, SEQUENCE)?;
        let not_before = seconds(der::next(&mut validity)?)?;
        let not_after = seconds(der::next(&mut validity)?)?;
        Some(Self { subject: name(content(&mut signed, SEQUENCE)?), not_before, not_after })
    }
}

/// The content of the next element, which has this tag.
fn content<'a>(der: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    der::next(der).filter(|(found, _)| *found == tag).map(|(_, content)| content)
}

/// A `Name`: its well-known attributes, the most specific one first.
fn name(mut subject: &[u8]) -> String {
    let mut parts = Vec::new();
    while let Some((SET, mut attributes)) = der::next(&mut subject) {
        while let Some((SEQUENCE, mut attribute)) = der::next(&mut attributes) {
            let (Some((OID, [0x55, 0x04, kind])), Some((_, value))) =
                (der::next(&mut attribute), der::next(&mut attribute))
            else {
                continue;
            };
            let key = match kind {
                3 => "CN",
                10 => "O",
                11 => "OU",
                _ => continue,
            };
            parts.push(format!("{key}={}", made_printable(&String::from_utf8_lossy(value))));
        }
    }
    parts.reverse();
    parts.join(", ")
}

/// `UTCTime` or `GeneralizedTime` as RFC 5280 §4.1.2.5 has them: `YYMMDDHHMMSSZ`, `YYYYMMDDHHMMSSZ`.
fn seconds((tag, text): (u8, &[u8])) -> Option<i64> {
    const UTC: u8 = 0x17;
    const GENERALIZED: u8 = 0x18;
    let text = text.strip_suffix(b"Z")?;
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let (year, rest) = match (tag, text.len()) {
        (UTC, 12) => {
            let year = number(&text[..2]);
            (if year < 50 { 2_000 + year } else { 1_900 + year }, &text[2..])
        }
        (GENERALIZED, 14) => (number(&text[..4]), &text[4..]),
        _ => return None,
    };
    let part = |n: usize| number(&rest[2 * n..2 * n + 2]) as u8;
    let [month, day, hour, minute, second] = [0, 1, 2, 3, 4].map(part);
    let is_one =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 60;
    is_one.then(|| Moment { year, month, day, hour, minute, second }.unix())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_says_whose_it_is_and_until_when() {
        let made = |not_after: (i32, u8, u8)| {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::OrganizationName, "Example\u{1b}");
            params.distinguished_name.push(rcgen::DnType::CommonName, "a.test");
            params.not_before = rcgen::date_time_ymd(1970, 1, 2);
            params.not_after = rcgen::date_time_ymd(not_after.0, not_after.1, not_after.2);
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
        };
        let two = [made((2000, 2, 29)).pem(), made((2100, 1, 1)).pem()].concat();
        let said = Validity::of_pem(two.as_bytes());
        let times: Vec<_> = said.iter().map(|one| (one.not_before, one.not_after)).collect();
        assert_eq!(times, [(86_400, 951_782_400), (86_400, 4_102_444_800)]);
        assert!(said.iter().all(|one| one.subject.starts_with("CN=a.test, O=Example")), "{said:?}");
        assert!(!said[0].subject.contains('\u{1b}'));
        let der = made((2030, 1, 1)).der().to_vec();
        for end in 0..der.len() {
            assert_eq!(Validity::of_der(&der[..end]), None, "cut off at {end}");
        }
    }

    #[test]
    fn times_that_are_none_are_not_taken() {
        assert_eq!(seconds((0x17, b"491231235959Z")), Some(2_524_607_999));
        assert_eq!(seconds((0x17, b"500101000000Z")), Some(-631_152_000));
        for wrong in ["4912312359Z", "491231235959", "491331235959Z", "49123123595aZ", "490031235959Z"] {
            assert_eq!(seconds((0x17, wrong.as_bytes())), None, "{wrong}");
        }
    }
}
