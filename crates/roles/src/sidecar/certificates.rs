//! Certificates in the files of a configuration, for those who must renew them. TLS does not look here.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use h2lab_model::sidecar::{CertificateStatus, CertificateTrouble};
use h2lab_net::tls::Validity;

use super::config::SidecarError;

/// A file with more of them is a system's bundle of authorities: some in it are always old, and nobody here renews them.
const MOST: usize = 16;

/// Those in a PEM file with this name, as they are now; none of a bundle or of a private key.
pub fn of_file(file: &str, pem: &[u8]) -> Vec<CertificateStatus> {
    let all = Validity::of_pem(pem);
    if all.len() > MOST {
        return Vec::new();
    }
    let now = now();
    let status = |Validity { subject, not_before, not_after }| {
        let (not_before_unix_s, not_after_unix_s) = (not_before, not_after);
        let file = file.to_owned();
        CertificateStatus { file, subject, not_before_unix_s, not_after_unix_s, left_s: 0 }.at(now)
    };
    all.into_iter().map(status).collect()
}

/// Those in all of these files, each file once.
pub fn of_files(
    names: Vec<&String>,
    read: &dyn Fn(&str) -> Result<Vec<u8>, SidecarError>,
) -> Result<Vec<CertificateStatus>, SidecarError> {
    let names: BTreeSet<&String> = names.into_iter().collect();
    let all = names.into_iter().map(|name| Ok(of_file(name, &read(name)?)));
    Ok(all.collect::<Result<Vec<_>, SidecarError>>()?.concat())
}

/// The same ones, as they are now.
pub fn as_of_now(all: &[CertificateStatus]) -> Vec<CertificateStatus> {
    let now = now();
    all.iter().map(|one| one.clone().at(now)).collect()
}

/// A line for each of them that has a problem.
pub fn warnings(all: &[CertificateStatus]) -> Vec<String> {
    all.iter().filter_map(CertificateStatus::warning).collect()
}

/// Seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

/// The warnings about certificates that were printed while a sidecar runs, which may be for longer than they are valid.
#[derive(Debug, Default)]
pub struct Said(Vec<(String, String, CertificateTrouble)>);

impl Said {
    /// Warnings about the certificates in `all` that were not printed before.
    pub fn anew(&mut self, all: &[CertificateStatus]) -> Vec<String> {
        let known = std::mem::take(&mut self.0);
        let mut lines = Vec::new();
        for one in all {
            let Some(trouble) = one.trouble() else { continue };
            let key = (one.file.clone(), one.subject.clone(), trouble);
            if !known.contains(&key) {
                lines.extend(one.warning());
            }
            self.0.push(key);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_is_said_once_and_again_after_it_was_over() {
        let at = |now: i64| {
            let one = CertificateStatus {
                file: "a.pem".to_owned(),
                not_after_unix_s: 1_000_000,
                ..CertificateStatus::default()
            };
            [one.at(now)]
        };
        let mut said = Said::default();
        assert_eq!(said.anew(&at(0)), [""; 0]);
        assert_eq!(said.anew(&at(950_000)).len(), 1);
        assert_eq!(said.anew(&at(960_000)), [""; 0]);
        assert!(said.anew(&at(1_000_060))[0].contains("expired 1 minute ago"));
        assert_eq!(said.anew(&at(1_000_120)), [""; 0]);
        assert_eq!(said.anew(&at(0)), [""; 0]);
        assert_eq!(said.anew(&at(1_000_120)).len(), 1);
    }

    #[test]
    fn a_bundle_of_authorities_and_a_key_have_none() {
        let made = h2lab_net::tls::Identity::self_signed(&["localhost"]).expect("a certificate");
        let pem = made.certificates_pem;
        assert_eq!(of_file("a.pem", pem.as_bytes()).len(), 1);
        assert_eq!(of_file("a.pem", pem.repeat(MOST).as_bytes()).len(), MOST);
        assert_eq!(of_file("a.pem", pem.repeat(MOST + 1).as_bytes()).len(), 0);
        assert_eq!(of_file("a.key", made.key_pem.as_bytes()).len(), 0);
        assert_eq!(warnings(&of_file("a.pem", pem.as_bytes())), [""; 0]);
    }
}
