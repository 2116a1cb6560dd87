//! TLS as users set it up: certificates of their own on either side, sessions that resume, and what a mistake looks like.

use std::fs;
use std::path::{Path, PathBuf};

use h2lab::run::store;
use h2lab_model::workload::Protocol;

use crate::origin::Origin;
use crate::support::{Finished, binary, folder, h2lab, need, run_program};

const USAGE: i32 = 2;
const UNREACHABLE: i32 = 3;

/// An authority, a server's certificate and a client's that it has signed, and a client's of another authority.
pub struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    pub fn make() -> Self {
        let files = Self { folder: folder() };
        let [ours, other] = ["ca", "other-ca"].map(|name| {
            let mut parameters = rcgen::CertificateParams::default();
            parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            // Without a name of its own, what the authority signs would look self-signed.
            parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
            let key = rcgen::KeyPair::generate().expect("a key");
            let ca = rcgen::CertifiedIssuer::self_signed(parameters, key).expect("an authority");
            fs::write(files.path(&format!("{name}.pem")), ca.pem()).expect("a temporary file");
            ca
        });
        for (name, subject, authority) in
            [("server", "127.0.0.1", &ours), ("client", "client", &ours), ("stranger", "client", &other)]
        {
            let key = rcgen::KeyPair::generate().expect("a key");
            let parameters = rcgen::CertificateParams::new([subject.to_owned()]).expect("a valid name");
            let certificate = parameters.signed_by(&key, authority).expect("a certificate");
            fs::write(files.path(&format!("{name}.pem")), certificate.pem()).expect("a temporary file");
            fs::write(files.path(&format!("{name}.key")), key.serialize_pem()).expect("a temporary file");
        }
        files
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `flag=file`.
    pub fn flag(&self, flag: &str, name: &str) -> String {
        format!("{flag}={}", self.path(name).display())
    }

    /// The flags of one side's certificate.
    pub fn identity(&self, name: &str) -> [String; 2] {
        [self.flag("--cert", &format!("{name}.pem")), self.flag("--key", &format!("{name}.key"))]
    }

    /// A short comparison with `origin`, whose certificate is trusted.
    fn compare(&self, origin: &Origin, more: &[String]) -> Finished {
        let url = format!("https://{}/", origin.tls);
        let mut arguments = vec![
            "compare".to_owned(),
            "--json".to_owned(),
            "--repetitions=1".to_owned(),
            "-z=200ms".to_owned(),
            self.flag("--cacert", "ca.pem"),
        ];
        arguments.extend_from_slice(more);
        arguments.push(url);
        run_program(&binary(), folder().path(), &arguments)
    }
}

#[track_caller]
fn assert_says(finished: &Finished, code: i32, words: &[&str]) {
    let shown = finished.transcript();
    assert_eq!(finished.code, Some(code), "{shown}");
    assert!(words.iter().all(|word| finished.stderr.contains(word)), "{words:?}\n{shown}");
}

#[test]
fn who_has_no_certificate_of_the_origins_authority_is_refused_and_the_message_names_the_flag() {
    let files = Files::make();
    let asks = [&files.identity("server")[..], &[files.flag("--client-ca", "ca.pem")]].concat();
    let origin = Origin::start(&asks.iter().map(String::as_str).collect::<Vec<_>>());

    let finished = files.compare(&origin, &files.identity("client"));
    finished.assert_measured();
    let document = finished.json();
    for cell in document["cells"].as_array().expect("cells") {
        assert_eq!(cell["requests"]["failed"], 0, "{cell}");
    }
    for protocol in ["h1s", "h2"] {
        let proto = format!("--proto={protocol}");
        let finished = files.compare(&origin, std::slice::from_ref(&proto));
        assert_says(&finished, UNREACHABLE, &["requires a client certificate", "--cert", "--key"]);
        let [cert, key] = files.identity("stranger");
        let finished = files.compare(&origin, &[proto, cert, key]);
        assert_says(&finished, UNREACHABLE, &["does not accept our client certificate", "--cert"]);
    }

    let Some(curl) = need("curl") else { return };
    let ask = |identity: &[String]| {
        let url = format!("https://{}/bytes/7", origin.tls);
        let mut arguments = ["-sS", "-q", "--noproxy", "*", "--max-time", "60"].map(str::to_owned).to_vec();
        arguments.extend(["--cacert".to_owned(), files.path("ca.pem").display().to_string()]);
        // curl accepts `--cert FILE` only as two words.
        arguments.extend(identity.iter().flat_map(|flag| flag.split('=')).map(str::to_owned));
        arguments.push(url);
        run_program(&curl, files.folder.path(), &arguments)
    };
    let finished = ask(&files.identity("client"));
    assert_eq!((finished.code, finished.stdout.len()), (Some(0), 7), "{}", finished.transcript());
    assert_ne!(ask(&[]).code, Some(0), "curl has nothing to show");
}

#[test]
fn files_that_do_not_fit_are_named_before_anybody_is_asked() {
    let files = Files::make();
    let [cert, key] = [files.flag("--cert", "client.pem"), files.flag("--key", "server.key")];
    let url = "https://127.0.0.1:1/".to_owned();
    let listen = "--tls-listen=127.0.0.1:0".to_owned();
    for command in [[vec!["compare".to_owned()], vec![url]], [vec!["origin".to_owned()], vec![listen]]] {
        let run = |more: &[String]| h2lab(&[&command.concat()[..], more].concat());
        let finished = run(&[cert.clone(), key.clone()]);
        assert_says(&finished, USAGE, &["--key", "server.key", "does not belong", "client.pem"]);
        assert_says(&run(std::slice::from_ref(&cert)), USAGE, &["--cert", "client.pem", "--key"]);
        assert_says(&run(std::slice::from_ref(&key)), USAGE, &["--cert <FILE>"]);
        assert_says(&run(&["--cert=no-such.pem".to_owned()]), USAGE, &["no-such.pem", "cannot read"]);
    }
    let finished = h2lab(&["origin", "--tls-listen=127.0.0.1:0", "--client-ca=no-such.pem"]);
    assert_says(&finished, USAGE, &["--client-ca", "no-such.pem"]);
    let finished = h2lab(&["origin", "--listen=127.0.0.1:0", &cert, &files.identity("client")[1]]);
    assert_says(&finished, USAGE, &["--cert", "--tls-listen"]);
}

#[test]
fn a_key_log_that_cannot_be_written_is_refused_and_one_that_can_is_reported() {
    let folder = folder();
    let run = |path: &Path| {
        let mut command = assert_cmd::Command::new(crate::support::binary());
        command.env("SSLKEYLOGFILE", path).current_dir(folder.path());
        let output = command.args(["compare", "-k", "https://127.0.0.1:1/"]).output().expect("it starts");
        Finished::from(output)
    };
    let impossible = folder.path().join("no-such-folder/keys");
    assert_says(&run(&impossible), USAGE, &["SSLKEYLOGFILE", "no-such-folder", "unset"]);
    let keys = folder.path().join("keys");
    assert_says(&run(&keys), UNREACHABLE, &["SSLKEYLOGFILE", "secrets", "keys"]);
}

#[test]
fn later_connections_of_a_run_resume_unless_configured_otherwise() {
    // Connections end after ten requests, so that others follow.
    let origin = Origin::start(&["--max-requests-per-connection=10"]);
    for protocol in [Protocol::H1s, Protocol::H2] {
        for (more, wanted) in [(&[][..], true), (&["--no-tls-resumption"][..], false)] {
            let folder = folder();
            let (out, url) = (folder.path().join("run"), format!("https://{}/", origin.tls));
            let mut arguments = vec![
                "compare",
                "-k",
                "--repetitions=1",
                "-z=300ms",
                "-q=200",
                "--out",
                out.to_str().unwrap(),
            ];
            let proto = format!("--proto={protocol}");
            arguments.extend([&proto, &url].map(String::as_str));
            arguments.extend(more);
            let finished = h2lab(&arguments);
            finished.assert_measured();
            let run = store::read(&out).expect("a run folder");
            let resumed: Vec<_> = run.repetitions[0].connections.iter().map(|one| one.tls_resumed).collect();
            assert!(resumed.len() > 2, "{resumed:?}");
            assert_eq!(resumed[0], Some(false), "the first has nothing to resume");
            assert_eq!(resumed.contains(&Some(true)), wanted, "{protocol} {more:?}: {resumed:?}");
        }
    }
}
