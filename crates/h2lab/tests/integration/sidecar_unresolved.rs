//! Registries that name instances whose names do not resolve, or that cannot be read; and what `--check` reports about
//! a file that will not start.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::sidecar_admin::{Watched, exchange};
use crate::sidecar_clients::metric;
use crate::sidecar_guard::{get, response, server};
use crate::sidecar_reload::until;
use crate::support::{Finished, binary, folder, h2lab, is_root, need_of_kernel};

/// A sidecar for the service `a` with this table.
fn sidecar(folder: &Path, service: &str) -> Watched {
    let config = folder.join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[admin]\naddress = '127.0.0.1:0'\n[service.a]\n{service}\n"
    );
    fs::write(&config, text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(config);
    Watched::run(command)
}

/// Replaces a list with another one.
fn list(path: &Path, urls: &[&str]) {
    let new = path.with_extension("new");
    fs::write(&new, format!("{{\"instances\": {urls:?}}}")).expect("a file");
    fs::rename(new, path).expect("it is in its place");
}

/// Head and body of a response.
fn ask(sidecar: &Watched) -> String {
    let (head, body) = exchange(sidecar.clear, &get("/", ""));
    head + &body
}

fn until_it_answers(sidecar: &Watched, words: &str) {
    until(|| ask(sidecar).contains(words), || sidecar.child.log());
}

#[test]
fn a_name_that_does_not_resolve_takes_no_other_instance_of_a_file_out() {
    let [one, two] = ["one", "two"].map(|name| server(move |_| Some(response(200, name))));
    let folder = folder();
    let path = folder.path().join("a.json");
    let bad = "http://nope.invalid:1";
    list(&path, &[bad, &one]);
    let sidecar = sidecar(folder.path(), "file = 'a.json'");
    let unresolved = || metric(&sidecar, "instances_unresolved{service=\"a\"}");
    until_it_answers(&sidecar, "one");
    assert_eq!(unresolved(), 1);
    // An instance that was removed gets no request, even while the name of the new one does not resolve.
    list(&path, &[bad, &two]);
    until_it_answers(&sidecar, "two");
    assert!((0..20).all(|_| ask(&sidecar).ends_with("two")), "{}", sidecar.child.log());
    let words = "service a: cannot resolve nope.invalid: ";
    assert!(sidecar.child.log().contains(words), "{}", sidecar.child.log());
    // If no name resolves, the known instances stay.
    list(&path, &[bad]);
    until(|| sidecar.child.log().contains("keeping 1 instance"), || sidecar.child.log());
    assert!(ask(&sidecar).ends_with("two"));
    list(&path, &[&one]);
    until_it_answers(&sidecar, "one");
    until(|| unresolved() == 0, || sidecar.child.log());
    sidecar.stop();
}

#[test]
fn a_name_of_dns_that_does_not_resolve_is_told_as_one_of_the_file_is() {
    let folder = folder();
    let sidecar = sidecar(folder.path(), "dns = 'http://nope.invalid:1'\nrefresh = '1s'");
    // The start waits for the first answer of the resolver, but not for ever.
    until_it_answers(&sidecar, "; error=dns_error; ");
    assert_eq!(metric(&sidecar, "instances_unresolved{service=\"a\"}"), 1);
    sidecar.stop();
}

#[test]
fn a_file_of_instances_that_leads_elsewhere_is_told_in_the_words_of_a_reload() {
    let (one, own, other) = (server(|_| Some(response(200, "one"))), folder(), folder());
    let path = own.path().join("a.json");
    list(&path, &[&one]);
    let sidecar = sidecar(own.path(), "file = 'a.json'");
    if !need_of_kernel("landlock", !sidecar.child.log().contains("no Landlock")) {
        return;
    }
    list(&other.path().join("b.json"), &[&one]);
    symlink(other.path().join("b.json"), own.path().join("link")).expect("a link");
    fs::rename(own.path().join("link"), &path).expect("it is in its place");
    let words = "Landlock permits the running sidecar to read files below ";
    until(|| sidecar.child.log().contains(words), || sidecar.child.log());
    assert!(ask(&sidecar).ends_with("one"), "those that are known stay");
    sidecar.stop();
}

/// The output of `--check` for a file with this beginning and end.
fn check(folder: &Path, top: &str, more: &str, flags: &[&str]) -> Finished {
    let config = folder.join("sidecar.toml");
    let text = format!(
        "{top}\n[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = ['http://127.0.0.1:9']\n{more}\n"
    );
    fs::write(&config, text).expect("a file");
    h2lab(&[&["sidecar", "--config", config.to_str().expect("a name"), "--check"], flags].concat())
}

#[test]
fn a_check_fails_where_the_start_would() {
    let folder = folder();
    let none = folder.path().join("none");
    let socket = none.join("a.sock").display().to_string();
    for (top, more, flags, words) in [
        ("", "[log]\nfile = ''", &[][..], "[log]: file must not be empty"),
        ("", "[log]\nfile = '/'", &[], "cannot open the access log /: it is a directory"),
        ("", "[log]\nfile = 'none/a.log'", &[], "none does not exist: create it first"),
        ("user = '4294967295:65534'", "", &[], "user must name an unprivileged user: "),
        ("", "", &["--user", "65534:4294967295"], "--user must name an unprivileged user: "),
        ("", "", &["--take-over", &socket], "does not exist: create it first"),
    ] {
        let told = check(folder.path(), top, more, flags);
        assert!(told.code == Some(2) && told.stderr.contains(words), "{words}: {}", told.transcript());
    }
    let flags = ["--listen", "127.0.0.1:0", "--to", "http://127.0.0.1:9"];
    for flag in ["--check", "--print-nft", "--watch"] {
        let told = h2lab(&[&["sidecar", flag][..], &flags].concat());
        let words = format!("{flag} requires --config FILE");
        assert!(told.code == Some(2) && told.stderr.contains(&words), "{words}: {}", told.transcript());
    }
}

#[test]
fn an_access_log_of_root_is_told_where_another_user_is_to_open_it_again() {
    if !is_root() {
        return; // otherwise it changes to no other user
    }
    let folder = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let log = folder.path().join("a.log");
    let words = "user 65532 may not open the access log ";
    let says = || check(folder.path(), "user = '65532'", "[log]\nfile = 'a.log'", &[]);
    assert!(!says().stderr.contains(words), "it is not there: {}", says().transcript());
    fs::File::create(&log).and_then(|mut file| file.write_all(b"")).expect("a file");
    fs::set_permissions(&log, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let told = says();
    assert!(told.code == Some(0) && told.stderr.contains(words), "{}", told.transcript());
    // The start prints the same warning, and continues.
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(folder.path().join("sidecar.toml"));
    command.args(["--admin", "127.0.0.1:0"]);
    let mut started = Watched::run(command);
    until(|| started.child.log().contains(words), || started.child.log());
    started.child.stop(Signal::TERM, crate::support::DEADLINE).expect("it ends");
    chown(&log, Some(65532), Some(65532)).expect("root may");
    assert!(!says().stderr.contains(words), "{}", says().transcript());
}
