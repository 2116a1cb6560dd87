//! What a sidecar gives up once it runs: files that are none of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use h2lab_net::process::Child;
use rcgen::generate_simple_self_signed;
use rustix::process::{Signal, kill_process};

use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::support::{DEADLINE, binary, folder};

fn certificate(folder: &Path) {
    let own = generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    fs::write(folder.join("own.pem"), own.cert.pem()).expect("a file");
    fs::write(folder.join("own.key"), own.signing_key.serialize_pem()).expect("a file");
}

fn write(path: &Path, origin: &Origin, certificates: &Path, more: &str) {
    let folder = certificates.display();
    let text = format!(
        "{more}\n[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[[listen]]\naddress = '[::1]:0'\ntls = true\nservice = 'a'\n\
         [service.a]\ninstances = ['http://{}']\n[identity]\ncert = '{folder}/own.pem'\nkey = '{folder}/own.key'\n\
         [log]\nfile = 'access.log'\n",
        origin.clear
    );
    fs::write(path, text).expect("a file");
}

/// Has it read its file again; the line in which it says what came of that.
fn reload(sidecar: &Sidecar, nth: usize) -> String {
    kill_process(sidecar.child.pid(), Signal::HUP).expect("it runs");
    let mut seen = 0;
    sidecar
        .child
        .wait_for_line(DEADLINE, |line| {
            seen += usize::from(line.contains("was read again"));
            (seen == nth).then(|| line.to_owned())
        })
        .unwrap_or_else(|error| panic!("{error}: {}", sidecar.child.log()))
}

fn start(config: &Path, more: &[&str]) -> Sidecar {
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(config).args(more);
    Sidecar::run(command)
}

fn has_landlock(child: &Child) -> bool {
    !child.log().contains("no Landlock")
}

#[test]
fn a_reload_reads_below_the_folders_that_it_had_at_the_start_alone() {
    let (origin, own, inner, other) = (Origin::start(&[]), folder(), folder(), folder());
    let config = own.path().join("sidecar.toml");
    for folder in [&own, &inner, &other] {
        certificate(folder.path());
    }
    write(&config, &origin, inner.path(), "");
    let sidecar = start(&config, &[]);
    if !has_landlock(&sidecar.child) {
        return; // said, and then nothing is restricted
    }
    write(&config, &origin, own.path(), "");
    assert!(reload(&sidecar, 1).contains(": 2 listeners, "), "{}", sidecar.child.log());
    write(&config, &origin, other.path(), "");
    assert!(reload(&sidecar, 2).contains("what it said before stays"), "{}", sidecar.child.log());
    let log = sidecar.child.log();
    let words = format!(
        "cannot read {}/own.pem: since its start the sidecar reads files below ",
        other.path().display()
    );
    assert!(log.contains(&words) && log.contains("landlock = false"), "{log}");
    // What is there is served, and new certificates in the folders of before are taken.
    certificate(inner.path());
    write(&config, &origin, inner.path(), "");
    assert!(reload(&sidecar, 3).contains(": 2 listeners, "), "{}", sidecar.child.log());
    let told = sidecar.ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    sidecar.stop();
    assert!(
        fs::read_to_string(own.path().join("access.log"))
            .expect("a log")
            .contains("\"GET a / HTTP/1.1\" 200")
    );
}

#[test]
fn a_file_or_a_flag_lets_it_read_all() {
    let (origin, own, other) = (Origin::start(&[]), folder(), folder());
    let config = own.path().join("sidecar.toml");
    certificate(own.path());
    certificate(other.path());
    for (key, flags) in [("landlock = false", &[][..]), ("", &["--no-landlock"])] {
        write(&config, &origin, own.path(), key);
        let sidecar = start(&config, flags);
        write(&config, &origin, other.path(), key);
        assert!(reload(&sidecar, 1).contains(": 2 listeners, "), "{}", sidecar.child.log());
        sidecar.stop();
    }
}
