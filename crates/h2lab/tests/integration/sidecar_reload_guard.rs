//! A configuration that changes beside rates, health checks and a hand-over: what protects services stays in effect.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use crate::sidecar::Sidecar;
use crate::sidecar_guard::{get, response, server};
use crate::sidecar_reload::{until, until_it_says};
use crate::support::{DEADLINE, binary, folder, free_ports};

/// Gives a running sidecar another configuration.
fn reload(sidecar: &Sidecar, path: &Path, text: &str, times: usize) {
    fs::write(path, text).expect("a file");
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until_it_says(sidecar, ": reloaded: ", times);
}

fn file(port: u16, instances: &[&str], keys: &str) -> String {
    format!(
        "[[listen]]\naddress = \"127.0.0.1:{port}\"\nservice = \"users\"\n\n[service.users]\ninstances = {instances:?}\n{keys}\n"
    )
}

#[test]
fn a_rate_begins_and_ends_with_a_reload() {
    let url = server(|_| Some(response(200, "ok")));
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let with = |rate: &str| file(0, &[&url], rate);
    fs::write(&path, with("")).expect("a file");
    let sidecar = Sidecar::with(&path);
    let status = || sidecar.ask(&get("/", ""))[9..12].to_owned();
    let all_pass = || (0..20).all(|_| status() == "200");
    assert!(all_pass());
    reload(&sidecar, &path, &with("rate = { per-second = 1 }"), 1);
    until(|| status() == "429", || "it is never too fast".to_owned());
    // The same rate again: a client that was over the rate still is.
    reload(&sidecar, &path, &with("rate = { per-second = 1 }\nretry = { attempts = 0 }"), 2);
    until(|| status() == "429", || "it is never too fast".to_owned());
    reload(&sidecar, &path, &with(""), 3);
    until(all_pass, || "there is no rate any more".to_owned());
}

#[test]
fn an_instance_that_is_not_well_stays_left_out_after_a_reload_and_comes_back_without_checks() {
    let is_checked = Arc::new(AtomicBool::new(false));
    let checked = Arc::clone(&is_checked);
    let sick = server(move |head| {
        let is_check = head.starts_with("GET /healthz ");
        checked.fetch_or(is_check, Ordering::SeqCst);
        Some(response(if is_check { 500 } else { 200 }, "sick"))
    });
    let other = server(|_| Some(response(200, "other")));
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let health = "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"1h\", unhealthy = 2 }";
    let with = |keys: &str| file(0, &[&sick, &other], keys);
    fs::write(&path, with(health)).expect("a file");
    let sidecar = Sidecar::with(&path);
    until_it_says(&sidecar, "health check failed", 1);
    let asks_sick = || (0..20).any(|_| sidecar.ask(&get("/", "")).ends_with("sick"));
    assert!(!asks_sick());
    reload(&sidecar, &path, &with(&format!("{health}\nretry = {{ attempts = 0 }}")), 1);
    assert!(!asks_sick(), "what is known of it stays");
    is_checked.store(false, Ordering::SeqCst);
    until(|| is_checked.load(Ordering::SeqCst), || "checks go on".to_owned());
    reload(&sidecar, &path, &with(""), 2);
    until(asks_sick, || "without checks it is as good as the other".to_owned());
}

#[test]
fn a_reload_before_a_hand_over_is_what_the_successor_begins_with() {
    let (one, two) = (server(|_| Some(response(200, "one"))), server(|_| Some(response(200, "two"))));
    let (folder, port) = (folder(), free_ports(1));
    let path = folder.path().join("sidecar.toml");
    let start = || {
        let mut command = Command::new(binary());
        command.args(["sidecar", "--config"]).arg(&path).arg("--take-over").arg(folder.path().join("s"));
        Sidecar::run(command)
    };
    fs::write(&path, file(port, &[&one], "")).expect("a file");
    let mut first = start();
    assert!(first.ask(&get("/", "")).ends_with("one"));
    reload(&first, &path, &file(port, &[&two], "rate = { per-second = 1000 }"), 1);
    until(|| first.ask(&get("/", "")).ends_with("two"), || "it was read".to_owned());
    let second = start();
    let exit = first.child.wait(DEADLINE).expect("it can be waited for").expect("it ends");
    assert_eq!(exit.status.code(), Some(0), "{}", first.child.log());
    assert!(second.ask(&get("/", "")).ends_with("two"));
    reload(&second, &path, &file(port, &[&one], ""), 1);
    until(|| second.ask(&get("/", "")).ends_with("one"), || "the successor follows its file, too".to_owned());
}
