//! Servers under test: each starts with our configuration, reports ready, speaks the right protocols, and ends.

use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use h2lab_lab::sut;
use h2lab_lab::sut::{StartOptions, StartedSut, SutError};
use h2lab_model::workload::Protocol;

use crate::curl::{self, Curl};
use crate::support::{DEADLINE, folder, need};

fn options(logs: &Path, max_requests_per_connection: Option<u32>) -> StartOptions {
    StartOptions {
        max_requests_per_connection,
        ..StartOptions::new(IpAddr::V4(Ipv4Addr::LOCALHOST), logs.to_owned())
    }
}

/// nginx on loopback. Another program may take the ports that we have chosen before nginx does: then it is started once
/// more.
#[track_caller]
fn nginx(logs: &Path, max_requests_per_connection: Option<u32>) -> StartedSut {
    let here = |program: &Path| Command::new(program);
    let start = || sut::start("nginx", &options(logs, max_requests_per_connection), &here);
    match start() {
        Err(SutError::ConfigRefused { said, .. } | SutError::NotStarted { said, .. })
            if said.contains("in use") =>
        {
            start()
        }
        started => started,
    }
    .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn nginx_answers_1_kib_to_any_method_and_path_over_all_four_protocols() {
    let (Some(_), folder) = (need("nginx"), folder()) else { return };
    let server = nginx(folder.path(), None);
    assert!(server.version.starts_with(|c: char| c.is_ascii_digit()), "{}", server.version);
    let file = folder.path().join("payload");
    std::fs::write(&file, "x".repeat(300_000)).unwrap(); // larger than any window
    let payload = format!("@{}", file.display());
    for protocol in Protocol::OVER_TCP {
        let address = server.endpoint(protocol).unwrap();
        let Some(curl) = Curl::new(folder.path(), protocol, address) else { return };
        for more in [&[][..], &["-d", "x"], &["-X", "PUT", "-d", &payload], &["-X", "DELETE"]] {
            let answer = curl.get("/any/path?with=query", more);
            assert_eq!((answer.status, answer.body.len()), (200, sut::BODY_BYTES), "{protocol} {more:?}");
            assert!(answer.heads.to_lowercase().contains("server: nginx/"), "{}", answer.heads);
        }
    }
    assert!(server.cpu() > 0);
}

#[test]
fn nginx_ends_a_connection_after_the_requests_that_it_was_given_and_not_before() {
    let (Some(_), folder) = (need("nginx"), folder()) else { return };
    let server = nginx(folder.path(), Some(3));
    for protocol in curl::REUSES_CONNECTIONS {
        let Some(curl) = Curl::new(folder.path(), protocol, server.endpoint(protocol).unwrap()) else {
            return;
        };
        let connects: Vec<u32> = curl.get_all(&["/"; 4], &[]).iter().map(|answer| answer.connects).collect();
        assert_eq!(connects, [1, 0, 0, 1], "{protocol}");
    }
}

#[test]
fn nginx_without_a_limit_keeps_a_connection_beyond_its_own_default() {
    let (Some(_), folder) = (need("nginx"), folder()) else { return };
    let server = nginx(folder.path(), None);
    let paths = ["/"; 1001]; // its default is 1,000
    let Some(curl) = Curl::new(folder.path(), Protocol::H1, server.endpoint(Protocol::H1).unwrap()) else {
        return;
    };
    assert_eq!(curl.get_all(&paths, &[]).iter().map(|answer| answer.connects).sum::<u32>(), 1);
}

#[test]
fn what_nginx_leaves_is_its_configuration_and_its_log_but_no_key() {
    let (Some(_), folder) = (need("nginx"), folder()) else { return };
    let server = nginx(folder.path(), None);
    let address = server.endpoint(Protocol::H1).unwrap();
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "somebody still listens");
    let mut left: Vec<String> = std::fs::read_dir(folder.path().join("nginx"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["log.txt", "nginx.conf"]);
}

#[test]
fn nginx_ends_in_good_order_when_asked_to() {
    let (Some(_), folder) = (need("nginx"), folder()) else { return };
    let server = nginx(folder.path(), None);
    // Once it has answered, it handles signals, too.
    let Some(curl) = Curl::new(folder.path(), Protocol::H1, server.endpoint(Protocol::H1).unwrap()) else {
        return;
    };
    assert_eq!(curl.get("/", &[]).status, 200);
    let ended = server.drain(DEADLINE).unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert!(ended.cpu > Duration::ZERO);
}

/// The error of a start on a machine on which nginx's program is `script`.
fn start_of(script: &str) -> SutError {
    let folder = folder();
    let place = |_: &Path| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "nginx"]);
        command
    };
    sut::start("nginx", &options(folder.path(), None), &place).unwrap_err()
}

#[test]
fn a_configuration_that_is_refused_and_a_server_that_ends_are_errors_with_its_words() {
    if need("nginx").is_none() {
        return;
    }
    let error = start_of("echo unknown directive; exit 1");
    assert!(matches!(error, SutError::ConfigRefused { .. }), "{error}");
    assert!(error.to_string().contains("nginx.conf; its output:\nunknown directive"), "{error}");
    // `-t` is the last argument of the check only.
    let error = start_of("for last; do :; done; [ \"$last\" = -t ] || echo no more memory");
    assert!(matches!(error, SutError::NotStarted { .. }), "{error}");
    assert!(
        error.to_string().contains("nginx does not listen: it ended; its output:\nno more memory"),
        "{error}"
    );
}

#[test]
fn every_server_that_is_there_reports_its_version_and_every_other_how_to_install_it() {
    if need("nginx").is_none() {
        return;
    }
    let available = sut::available();
    let nginx = available.iter().find(|server| server.name == "nginx").unwrap();
    assert!(nginx.version.is_some());
    assert!(nginx.install.contains("apt-get install"), "{}", nginx.install);
}
