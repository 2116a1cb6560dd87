//! Warnings of the sidecar about certificates: those that expire, and files that contain something else.

use std::fs;
use std::path::Path;
use std::process::Command;

use h2lab_net::tls::Identity;
use rustix::process::Signal;

use crate::sidecar_admin::Watched;
use crate::sidecar_reload::until;
use crate::support::{binary, folder, h2lab};

/// A certificate that is valid from 1970 until the first day of this year; its key is of no use here.
fn until_year(year: i32, name: &str) -> Identity {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(1970, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let made = params.self_signed(&key).expect("a certificate");
    Identity { certificates_pem: made.pem(), key_pem: key.serialize_pem() }
}

fn put(folder: &Path, name: &str, identity: &Identity) {
    fs::write(folder.join(format!("{name}.pem")), &identity.certificates_pem).expect("a file");
    fs::write(folder.join(format!("{name}.key")), &identity.key_pem).expect("a file");
}

/// A file whose listener presents `own`, and whose service has a certificate of its own and an authority.
const FILE: &str = "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n\
    [[listen]]\naddress = '127.0.0.1:0'\ntls = true\nclient-ca = 'callers.pem'\nservice = 'a'\n\
    [service.a]\ninstances = ['https://127.0.0.1:1']\nca = 'ca.pem'\nidentity = { cert = 'client.pem', key = 'client.key' }\n\
    [identity]\ncert = 'own.pem'\nkey = 'own.key'\n[admin]\naddress = '127.0.0.1:0'\n";

#[test]
fn certificates_that_expire_are_told_of_at_the_check_the_start_and_a_reload_and_are_on_the_admin_listener() {
    let folder = folder();
    let path = folder.path();
    for (name, year) in [("own", 2001), ("client", 2002), ("callers", 2003), ("ca", 4000)] {
        put(path, name, &until_year(year, name));
    }
    let file = path.join("sidecar.toml");
    fs::write(&file, FILE).expect("a file");
    let name = file.to_str().expect("a name");
    let checked = h2lab(&["sidecar", "--config", name, "--check"]);
    assert_eq!(checked.code, Some(0), "{}", checked.transcript());
    for (name, year) in [("own", 2001), ("client", 2002), ("callers", 2003)] {
        let words = format!("warning: {name}.pem: the certificate of CN={name} expired ");
        let until = format!(" days ago ({year}-01-01T00:00:00Z)");
        let is_it = |line: &str| line.starts_with(&words) && line.ends_with(&until);
        assert_eq!(checked.stderr.lines().filter(|line| is_it(line)).count(), 1, "{}", checked.stderr);
    }
    assert!(!checked.stderr.contains("ca.pem: "), "{}", checked.stderr);

    let mut command = Command::new(binary());
    command.args(["sidecar", "--config", name]);
    let sidecar = Watched::run(command);
    let says = |words: &str| sidecar.child.log().lines().filter(|line| line.contains(words)).count();
    until(|| says("own.pem: the certificate of CN=own expired") == 1, || sidecar.child.log());
    let metrics = sidecar.get("/metrics").1;
    let metric = "h2lab_sidecar_certificate_not_after_timestamp_seconds{file=\"own.pem\",subject=\"CN=own\"} 978307200";
    assert!(metrics.lines().any(|line| line == metric), "{metrics}");
    let page = sidecar.get("/").1;
    assert!(page.contains("4000-01-01T00:00:00Z") && page.contains("CN=callers expired"), "{page}");

    // A new certificate replaces it, and the old one is not mentioned any more.
    put(path, "own", &until_year(3000, "own"));
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until(|| says(": reloaded: ") == 1, || sidecar.child.log());
    assert_eq!((says("own.pem: the certificate"), says("client.pem: the certificate")), (1, 2));
    assert!(sidecar.get("/metrics").1.contains("subject=\"CN=own\"} 32503680000"));
    sidecar.stop();
}

#[test]
fn a_file_that_is_not_what_is_wanted_is_named_with_what_it_has() {
    let folder = folder();
    let path = folder.path();
    for name in ["own", "client", "callers", "ca"] {
        put(path, name, &until_year(4000, name));
    }
    let at = |name: &str| path.join(name);
    fs::write(at("empty.pem"), "\n").expect("a file");
    fs::write(at("text.pem"), "a certificate").expect("a file");
    fs::write(at("der.pem"), [0x30, 0x82, 3, 4, 5]).expect("a file");
    let own = fs::read_to_string(at("own.pem")).expect("a file");
    fs::write(at("cut.pem"), &own[..own.len() / 2]).expect("a file");
    fs::write(at("broken.pem"), own.replacen("MII", "@@@", 1)).expect("a file");
    for (from, to, words) in [
        (
            "own.pem",
            "own.key",
            "own.key: the certificate cannot be used: it contains no BEGIN CERTIFICATE: it has PRIVATE KEY",
        ),
        (
            "own.pem",
            "empty.pem",
            "empty.pem: the certificate cannot be used: it contains no BEGIN CERTIFICATE: it is empty",
        ),
        ("own.pem", "text.pem", "no BEGIN CERTIFICATE: it is no PEM file"),
        ("own.pem", "der.pem", "no BEGIN CERTIFICATE: it is DER, which is binary; convert it to PEM"),
        (
            "own.pem",
            "cut.pem",
            "cut.pem: the certificate cannot be used: a BEGIN has no END: the file is cut off",
        ),
        ("own.pem", "broken.pem", "what stands between BEGIN and END is not base64"),
        (
            "own.key",
            "ca.pem",
            "ca.pem: the private key cannot be used: it contains no BEGIN PRIVATE KEY: it has CERTIFICATE",
        ),
        ("own.key", "client.key", "client.key: the private key does not belong to the certificate"),
        (
            "callers.pem",
            "callers.key",
            "callers.key: the CA file cannot be used: it contains no BEGIN CERTIFICATE: it has PRIVATE KEY",
        ),
        ("ca = 'ca.pem'", "ca = 'empty.pem'", "empty.pem: the CA file cannot be used"),
    ] {
        fs::write(at("sidecar.toml"), FILE.replacen(from, to, 1)).expect("a file");
        let refused =
            h2lab(&["sidecar", "--config", at("sidecar.toml").to_str().expect("a name"), "--check"]);
        assert!(
            refused.code == Some(2) && refused.stderr.contains(words),
            "{words}: {}",
            refused.transcript()
        );
    }
}
