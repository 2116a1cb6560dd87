//! HTTP/2 in clear by `Upgrade: h2c` (RFC 7540 §3.2), both sides, each against implementations that are not ours.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;

use h2lab_net::process::Child;
use serde_json::Value;

use crate::go::GoProgram;
use crate::origin::Origin;
use crate::peers::Peer;
use crate::support::{DEADLINE, DRAIN, Finished, folder, h2lab, need, run_program};

/// What curl reports of one request with these flags: HTTP version, status, body.
pub fn curl(arguments: &[&str]) -> Option<(String, u16, Vec<u8>)> {
    let program = need("curl")?;
    let folder = folder();
    let common = ["-sS", "-q", "--noproxy", "*", "--max-time", "60", "-o", "body"];
    let report = ["-w", "%{http_version} %{http_code}"];
    let finished = run_program(&program, folder.path(), &[&common[..], &report, arguments].concat());
    assert_eq!(finished.code, Some(0), "{arguments:?}: {}", finished.transcript());
    let (version, status) = finished.stdout.split_once(' ').expect("two words");
    let body = fs::read(folder.path().join("body")).unwrap_or_default();
    Some((version.to_owned(), status.parse().expect("a status"), body))
}

/// A short live measurement of `path` at `address` over h2c that begins by upgrade.
fn measure(address: SocketAddr, path: &str) -> Finished {
    let url = format!("http://{address}{path}");
    h2lab(&[
        "compare",
        "--json",
        "--proto=h2c",
        "--h2c-mode=upgrade",
        "-q=100",
        "-z=2s",
        "--repetitions=1",
        DRAIN,
        &url,
    ])
}

#[test]
fn one_cleartext_port_speaks_all_that_was_turned_on() {
    let (off, on) = (Origin::start(&[]), Origin::start(&["--h2c-upgrade"]));
    for (origin, upgraded) in [(&off, "1.1"), (&on, "2")] {
        let url = format!("http://{}/bytes/3M", origin.clear);
        for (flag, version) in [
            ("--http1.1", "1.1"),
            ("--http2-prior-knowledge", "2"),
            ("--http2", upgraded),
            ("--http1.0", "1.1"),
        ] {
            let Some((spoken, status, body)) = curl(&[flag, &url]) else { return };
            assert_eq!((&spoken[..], status, body.len()), (version, 200, 3 << 20), "{flag}");
        }
    }
}

#[test]
fn a_request_with_a_body_upgrades_up_to_the_bound_of_64_kib() {
    let origin = Origin::start(&["--h2c-upgrade"]);
    let url = format!("http://{}/echo", origin.clear);
    let folder = folder();
    let file = folder.path().join("payload");
    let data = format!("@{}", file.display());
    for (length, version) in [(1, "2"), (65_536, "2"), (65_537, "1.1")] {
        let payload = vec![b'p'; length];
        fs::write(&file, &payload).unwrap();
        for more in [&[][..], &["-H", "transfer-encoding: chunked"]] {
            let arguments = [&["--http2", "--data-binary", &data, "-H", "expect:", &url], more].concat();
            let Some((spoken, answered, body)) = curl(&arguments) else { return };
            assert_eq!((&spoken[..], answered), (version, 200), "{length} bytes {more:?}");
            assert!(body == payload, "{length} bytes {more:?}");
        }
    }
}

#[test]
fn nghttp_upgrades_with_get_and_with_options_before_a_post() {
    let Some(nghttp) = need("nghttp") else { return };
    let origin = Origin::start(&["--h2c-upgrade"]);
    let folder = folder();
    fs::write(folder.path().join("payload"), "some body").unwrap();
    let url = format!("http://{}/echo", origin.clear);
    let get = run_program(&nghttp, folder.path(), &["-nuv", &url]);
    let post = run_program(&nghttp, folder.path(), &["-uv", "-dpayload", &url]);
    for said in [&get.stdout, &post.stdout] {
        assert!(said.contains("HTTP Upgrade success") && said.contains(":status: 200"), "{said}");
        assert!(!said.contains("recv GOAWAY"), "{said}");
    }
    assert!(post.stdout.contains("OPTIONS") && post.stdout.contains("some body"), "{}", post.stdout);
}

#[test]
fn an_offer_that_breaks_the_rules_is_answered_in_http_1_1() {
    let origin = Origin::start(&["--h2c-upgrade"]);
    for (settings, connection, status) in
        [("AAQAAAAB", "upgrade", "200"), ("AAQAAAA", "upgrade, http2-settings", "400")]
    {
        let mut stream = origin.connect();
        let request = format!(
            "GET / HTTP/1.1\r\nhost: h\r\nupgrade: h2c\r\nhttp2-settings: {settings}\r\n\
             connection: {connection}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer[9..], status.as_bytes(), "{settings}");
    }
}

/// Fails unless the one cell of a measurement was carried over upgraded connections without a failure; returns how many
/// there were.
#[track_caller]
fn carried(finished: &Finished) -> Option<u64> {
    finished.assert_measured();
    let document: Value = finished.json();
    let cell = &document["cells"][0];
    assert_eq!((cell["protocol"].as_str(), cell["mode"].as_str()), (Some("h2c"), Some("upgrade")));
    let requests = &cell["requests"];
    assert!(requests["succeeded"].as_u64().unwrap() >= 200, "{requests}");
    assert_eq!(requests["failed"], 0, "{requests}");
    cell["connections_opened"].as_u64()
}

#[test]
fn our_client_upgrades_with_our_origin_and_with_apache() {
    let origin = Origin::start(&["--h2c-upgrade"]);
    assert_eq!(carried(&measure(origin.clear, "/")), Some(1));
    let Some(apache) = Peer::apache() else { return };
    assert_eq!(carried(&measure(apache.address, "/file")), Some(1));
}

/// Go's x/net upgrades within the handler of a path, which an `OPTIONS *` does not reach.
#[test]
fn our_clients_upgrade_with_the_first_request_where_only_paths_do() {
    static H2C_GO: GoProgram = GoProgram::new("h2c_go");
    let Some(program) = H2C_GO.path() else { return };
    let server = Child::spawn(Command::new(program), None).expect("it starts");
    let listening = |line: &str| line.strip_prefix("listening ")?.trim().parse::<SocketAddr>().ok();
    let address = server.wait_for_line(DEADLINE, listening).expect("it listens");
    assert_all_commands_upgrade(address, "/");
}

#[test]
fn our_clients_upgrade_with_nghttpx_with_and_without_a_body() {
    let backend = Origin::start(&[]);
    let Some(nghttpx) = Peer::nghttpx(backend.clear) else { return };
    assert_all_commands_upgrade(nghttpx.address, "/bytes/5000");
    assert_bodies_arrive(nghttpx.address);
}

/// Hypercorn's `server` field names its engine of each version.
#[test]
fn a_server_field_that_names_the_version_does_not_fail_a_server() {
    let Some(hypercorn) = Peer::hypercorn() else { return };
    let url = format!("http://{}/", hypercorn.address);
    let limits = ["--i-own-this-host", "--idle=50ms", "--max-requests=3000"];
    let finished = h2lab(&[&["probe", "--json", "--fail-on=high"][..], &limits, &[&url]].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let found: Value = finished.json();
    assert!(found["software"].as_str().is_some_and(|name| name.starts_with("hypercorn-")), "{found:#}");
    let checks = found["checks"].as_array().expect("checks");
    let same: Vec<&Value> = checks.iter().filter(|check| check["id"] == "MIGR101").collect();
    assert!(!same.is_empty() && same.iter().all(|check| check["verdict"] == "pass"), "{same:#?}");
}

#[test]
fn our_clients_upgrade_with_hypercorn_with_and_without_a_body() {
    let Some(hypercorn) = Peer::hypercorn() else { return };
    assert_all_commands_upgrade(hypercorn.address, "/file");
    assert_bodies_arrive(hypercorn.address);
}

/// Fails unless requests with a body are answered over connections that began by upgrade.
#[track_caller]
fn assert_bodies_arrive(address: SocketAddr) {
    let url = format!("http://{address}/anything");
    let finished = h2lab(&["load", "--json", "-n20", "-c1", "-d", "hello", "--h2c-mode=upgrade", &url]);
    finished.assert_measured();
    let load = finished.json();
    assert_eq!((&load["mode"], &load["requests"]["succeeded"]), (&"upgrade".into(), &20.into()), "{load}");
}

/// Fails unless every command that makes requests gets `path` over connections that began by upgrade.
#[track_caller]
fn assert_all_commands_upgrade(address: SocketAddr, path: &str) {
    assert_eq!(carried(&measure(address, path)), Some(1));
    let url = format!("http://{address}{path}");
    for command in [&["load", "--json", "-n200", "-c2"][..], &["trace"], &["timeline"]] {
        let finished = h2lab(&[command, &["--h2c-mode=upgrade", &url]].concat());
        finished.assert_measured();
    }
    let folder = folder();
    let file = folder.path().join("got");
    let into = format!("-o{}", file.display());
    let finished = h2lab(&["bulk", "get", "--http2", "--json", &into, &url]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    assert_eq!(finished.json()["protocol"], "h2c", "{}", finished.transcript());
    assert!(fs::exists(file).unwrap());
}

#[test]
fn our_client_behind_the_emulated_link_upgrades_too() {
    let finished = h2lab(&[
        "compare",
        "--json",
        "--proto=h2c",
        "--h2c-mode=upgrade",
        "-c=2",
        "--loss=0%",
        "-q=100",
        "-z=2s",
        "--repetitions=1",
        DRAIN,
    ]);
    finished.assert_measured();
    let cell = &finished.json()["cells"][0];
    assert_eq!((cell["mode"].as_str(), &cell["requests"]["failed"]), (Some("upgrade"), &0.into()), "{cell}");
}

#[test]
fn a_server_that_does_not_upgrade_is_named_and_what_to_try_instead() {
    const UNREACHABLE: i32 = 3;
    let origin = Origin::start(&[]);
    let finished = measure(origin.clear, "/");
    assert_eq!(finished.code, Some(UNREACHABLE), "{}", finished.transcript());
    assert!(finished.stderr.contains("prior knowledge"), "{}", finished.transcript());
}
