//! The name of a certificate that has no subjectAltName: its common name, which TLS libraries other than ours still
//! accept.

use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, ServerName};

use super::der::{OID, SEQUENCE, SET, next};

/// `2.5.4.3`, `commonName` (X.520), as DER has it.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// Types of strings in ASCII or a superset of it: `UTF8String`, `PrintableString`, `TeletexString`, `IA5String`.
const STRINGS: [u8; 4] = [0x0c, 0x13, 0x14, 0x16];

/// Whether the common name of `certificate` is `name`, ignoring case. Patterns (`*.example.com`) match nothing.
pub(super) fn is(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let mut store = RootCertStore::empty();
    if store.add(certificate.clone().into_owned()).is_err() {
        return false;
    }
    let subject = store.roots.first().and_then(|root| of(&root.subject));
    subject.is_some_and(|subject| subject.eq_ignore_ascii_case(name.to_str().as_bytes()))
}

/// The last common name of a subject, which is the most specific one.
fn of(subject: &[u8]) -> Option<&[u8]> {
    let mut rest = subject;
    let mut found = None;
    while let Some((SET, mut attributes)) = next(&mut rest) {
        while let Some((SEQUENCE, mut attribute)) = next(&mut attributes) {
            if next(&mut attribute) == Some((OID, &COMMON_NAME)) {
                found = next(&mut attribute).filter(|(tag, _)| STRINGS.contains(tag)).map(|(_, text)| text);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_common_name_counts_and_what_is_malformed_has_none() {
        let attribute = |oid: u8, text: &[u8]| {
            let value = [&[0x0c, text.len() as u8], text].concat();
            let inner = [&[OID, 3, 0x55, 0x04, oid], value.as_slice()].concat();
            let sequence = [&[SEQUENCE, inner.len() as u8], inner.as_slice()].concat();
            [&[SET, sequence.len() as u8], sequence.as_slice()].concat()
        };
        let subject =
            [attribute(3, b"first"), attribute(10, b"an organisation"), attribute(3, b"localhost")].concat();
        assert_eq!(of(&subject), Some(b"localhost".as_slice()));
        assert_eq!(of(&attribute(10, b"localhost")), None);
        for end in 0..subject.len() {
            let _ = of(&subject[..end]); // it does not panic
        }
        assert_eq!(of(&[SET, 0x83, 1, 1, 1]), None);
        assert_eq!(of(&[SET, 0x82, 0xff]), None);
    }
}
