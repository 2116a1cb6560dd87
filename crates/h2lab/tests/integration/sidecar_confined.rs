//! What a sidecar gives up once it runs: access to files that it does not use.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use h2lab_net::process::Child;
use rcgen::generate_simple_self_signed;
use rustix::process::{Signal, kill_process};

use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::sidecar_reload::until_it_says;
use crate::support::{DEADLINE, binary, folder, is_root, need_of_kernel};

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

/// Makes it read its file again; returns the line in which it reports the result.
fn reload(sidecar: &Sidecar, nth: usize) -> String {
    kill_process(sidecar.child.pid(), Signal::HUP).expect("it runs");
    let mut seen = 0;
    sidecar
        .child
        .wait_for_line(DEADLINE, |line| {
            seen += usize::from(line.contains(": reload"));
            (seen == nth).then(|| line.to_owned())
        })
        .unwrap_or_else(|error| panic!("{error}: {}", sidecar.child.log()))
}

fn start(config: &Path, more: &[&str]) -> Sidecar {
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(config).args(more);
    Sidecar::run(command)
}

/// Whether the kernel has Landlock; `false` if the tests are to do without.
#[track_caller]
fn has_landlock(child: &Child) -> bool {
    need_of_kernel("landlock", !child.log().contains("no Landlock"))
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
        return;
    }
    write(&config, &origin, own.path(), "");
    assert!(reload(&sidecar, 1).contains(": 2 listeners, "), "{}", sidecar.child.log());
    write(&config, &origin, other.path(), "");
    assert!(
        reload(&sidecar, 2).contains("the previous configuration stays in effect"),
        "{}",
        sidecar.child.log()
    );
    let log = sidecar.child.log();
    let words = format!(
        "cannot read {}/own.pem: Landlock permits the running sidecar to read files below ",
        other.path().display()
    );
    assert!(log.contains(&words) && log.contains("landlock = false"), "{log}");
    // Files that are there are served, and new certificates in the same folders are read.
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

#[test]
fn the_access_log_is_opened_again_by_the_user_that_root_has_become() {
    if !is_root() {
        return; // otherwise it changes to no other user, and `sidecar_logged` tests that the log is opened again
    }
    let (origin, own) = (Origin::start(&[]), folder());
    let log = own.path().join("access.log");
    let mut command = Command::new(binary());
    command.args(["sidecar", "--listen", "127.0.0.1:0", "--user", "65532", "--to"]);
    command.arg(format!("h2c://{}", origin.clear)).arg("--access-log").arg(&log);
    let sidecar = Sidecar::run(command);
    let ask = |path: &str| {
        let told = sidecar.ask(&format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"));
        assert!(told.starts_with("HTTP/1.1 "), "{told}");
    };
    let hangup = || kill_process(sidecar.child.pid(), Signal::HUP).expect("it runs");
    let has = |name: &str, words: &str| {
        let path = own.path().join(name);
        crate::sidecar_reload::until(
            || fs::read_to_string(&path).is_ok_and(|text| text.contains(words)),
            || format!("{words} is not in {name}: {}", sidecar.child.log()),
        );
    };
    // The file that it has created belongs to that user; another one in its place, created by root, does not.
    assert_eq!(fs::metadata(&log).expect("it is there").uid(), 65532);
    ask("/first");
    has("access.log", " /first ");
    fs::rename(&log, own.path().join("access.log.1")).expect("it is ours");
    fs::write(&log, "").expect("a file");
    fs::set_permissions(&log, fs::Permissions::from_mode(0o600)).expect("it is ours");
    hangup();
    until_it_says(&sidecar, "still writing to the previous file: ", 1);
    let said = sidecar.child.log();
    assert!(said.contains("runs as user 65532") && said.contains("create 0640 65532"), "{said}");
    ask("/second");
    has("access.log.1", " /second ");
    // As logrotate does with `create`.
    chown(&log, Some(65532), Some(65532)).expect("root may");
    fs::set_permissions(own.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    until_it_says(&sidecar, "access log reopened", 1);
    ask("/third");
    has("access.log", " /third ");
    sidecar.stop();
}
