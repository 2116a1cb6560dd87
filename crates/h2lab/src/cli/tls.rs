//! Flags that name PEM files, and `SSLKEYLOGFILE`: read and checked before anything depends on them, since a mistake here would
//! otherwise show in a failed handshake, and look like the other side's fault.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use h2lab_model::fleet::{ClientIdentity, Trust};

use super::exit::Usage;
use h2lab_net::tls;
use h2lab_net::tls::{Identity, TlsError};

/// Trusted authorities and the client certificate.
#[derive(Debug, Clone, Default, Args)]
pub struct TlsArgs {
    /// Skip certificate verification
    #[arg(short = 'k', long)]
    pub insecure: bool,
    /// Trust these CAs (PEM) instead of the system's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
    /// A full TLS handshake for every connection, without session resumption
    #[arg(long)]
    pub no_tls_resumption: bool,
}

impl TlsArgs {
    /// The trust that the flags set, once the files that they name were checked.
    pub fn trust(&self) -> Result<Trust, Usage> {
        let ca_pem = self.cacert.as_deref().map(|path| authorities("--cacert", path)).transpose()?;
        let identity = self
            .identity
            .read()?
            .map(|own| ClientIdentity { certificates_pem: own.certificates_pem, key_pem: own.key_pem });
        Ok(Trust { insecure: self.insecure, ca_pem, identity, full_handshakes: self.no_tls_resumption })
    }
}

/// A certificate and its key, by curl's names.
#[derive(Debug, Clone, Default, Args)]
pub struct IdentityArgs {
    /// Certificate (PEM), followed by its intermediate certificates
    #[arg(short_alias = 'E', long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Its private key (PEM, unencrypted) [default: in the file of --cert]
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl IdentityArgs {
    /// Whether a certificate is given.
    pub const fn is_given(&self) -> bool {
        self.cert.is_some()
    }

    /// The files' contents, if any are given, once certificate and key are known to match.
    pub fn read(&self) -> Result<Option<Identity>, Usage> {
        let Some(cert) = &self.cert else { return Ok(None) };
        let certificates_pem = text("--cert", cert)?;
        let key_pem = match &self.key {
            Some(key) => text("--key", key)?,
            None => certificates_pem.clone(),
        };
        let identity = Identity { certificates_pem, key_pem };
        let key = self.key.as_ref().map_or_else(
            || format!("--cert {}, without --key", cert.display()),
            |key| format!("--key {}", key.display()),
        );
        identity.check().map_err(|error| {
            Usage(match error {
                TlsError::KeyMismatch => format!("{key}: {error} in {}", cert.display()),
                TlsError::Key(_) => format!("{key}: {error}"),
                _ => format!("--cert {}: {error}", cert.display()),
            })
        })?;
        Ok(Some(identity))
    }
}

/// The certificates of authorities in the file that `flag` names.
pub fn authorities(flag: &str, path: &Path) -> Result<String, Usage> {
    let pem = text(flag, path)?;
    tls::check_authorities(pem.as_bytes())
        .map_err(|error| Usage(format!("{flag} {}: {error}", path.display())))?;
    Ok(pem)
}

/// The text of a PEM file. Only the text between the items may be non-ASCII.
fn text(flag: &str, path: &Path) -> Result<String, Usage> {
    let bytes = fs::read(path)
        .map_err(|error| Usage(format!("{flag} {}: cannot read it: {error}", path.display())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Checks whether `SSLKEYLOGFILE` asks for the secrets of TLS connections to be written, and prints a notice: with that
/// file the traffic can be decrypted. A file that cannot be written would otherwise be ignored silently.
pub fn announce_key_log() -> Result<(), Usage> {
    let Some(path) = std::env::var_os("SSLKEYLOGFILE").filter(|path| !path.is_empty()).map(PathBuf::from)
    else {
        return Ok(());
    };
    // The creator of the file sets its mode; libraries would create it readable by all.
    OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(|error| {
        Usage(format!("SSLKEYLOGFILE: cannot write to {}: {error}; correct or unset it", path.display()))
    })?;
    say!("SSLKEYLOGFILE: secrets of all TLS connections are written to {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_file_without_a_certificate_is_refused_before_anything_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let refusal = || authorities("--cacert", &path).unwrap_err().to_string();
        assert!(refusal().contains("cannot read it"), "{}", refusal());
        for bad in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            fs::write(&path, bad).unwrap();
            assert!(refusal().starts_with("--cacert ") && refusal().contains("ca.pem"), "{}", refusal());
        }
        let server = tls::ServerTls::self_signed(&["localhost"], &["h2"]).unwrap();
        let with_comment = [b"caf\xe9\n", server.certificate_pem().as_bytes()].concat();
        fs::write(&path, with_comment).unwrap();
        assert!(authorities("--cacert", &path).unwrap().contains("BEGIN CERTIFICATE"));
    }

    #[test]
    fn a_certificate_and_its_key_are_refused_by_the_flag_that_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let (cert, key) =
                (folder.path().join(format!("{name}.pem")), folder.path().join(format!("{name}.key")));
            fs::write(&cert, made.cert.pem()).unwrap();
            fs::write(&key, made.signing_key.serialize_pem()).unwrap();
            (cert, key)
        };
        let ((cert, key), (_, other)) = (made("a"), made("b"));
        let read = |cert: &Path, key: Option<&Path>| {
            IdentityArgs { cert: Some(cert.to_owned()), key: key.map(Path::to_owned) }.read()
        };
        assert!(read(&cert, Some(&key)).unwrap().is_some());
        let both = folder.path().join("both.pem");
        fs::write(&both, [fs::read(&cert).unwrap(), fs::read(&key).unwrap()].concat()).unwrap();
        assert!(read(&both, None).unwrap().is_some(), "as in curl");
        for (cert, key, words) in [
            (&cert, Some(other.as_path()), ["--key ", "b.key", "does not belong"]),
            (&cert, None, ["--cert ", "a.pem", "without --key"]),
            (&key, Some(key.as_path()), ["--cert ", "a.key", "no BEGIN CERTIFICATE"]),
            (&cert, Some(cert.as_path()), ["--key ", "a.pem", "no BEGIN PRIVATE KEY"]),
            (&cert, Some(Path::new("no-such.key")), ["--key ", "no-such.key", "cannot read"]),
        ] {
            let error = read(cert, key).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }
}
