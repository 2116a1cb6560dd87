//! `h2lab probe URL`, as people and scripts read it: against a real nginx with a quota, and against our own origin.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use h2lab_net::process::Child;
use serde_json::Value;

use crate::go::GoProgram;
use crate::origin::Origin;
use crate::support::{DEADLINE, Finished, folder, free_ports, h2lab, need};

/// Limits that keep a test short: an idle connection is not watched for a minute.
const SHORT: [&str; 3] = ["probe", "-k", "--idle=50ms"];

fn probe(arguments: &[&str]) -> Finished {
    h2lab(&[&SHORT[..], arguments].concat())
}

/// The checks with this id.
fn checks<'a>(found: &'a Value, id: &str) -> Vec<&'a Value> {
    found["checks"].as_array().expect("checks").iter().filter(|check| check["id"] == id).collect()
}

#[track_caller]
fn assert_verdict(found: &Value, id: &str, verdict: &str) {
    let its = checks(found, id);
    assert!(!its.is_empty(), "no {id} in {found:#}");
    for check in its {
        assert_eq!(check["verdict"], verdict, "{check:#}");
    }
}

/// nginx with three ports: TLS, HTTP/2 in clear, HTTP/1.1 in clear.
struct Nginx {
    _child: Child,
    tls: SocketAddr,
    h2c: SocketAddr,
    h1: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Nginx {
    fn start(program: &Path, keepalive_requests: u32) -> Self {
        let folder = folder();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        fs::write(folder.path().join("cert.pem"), made.cert.pem()).expect("it is ours");
        fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).expect("it is ours");
        let first = free_ports(3);
        let [tls, h2c, h1] = [0, 1, 2].map(|n| SocketAddr::from((Ipv4Addr::LOCALHOST, first + n)));
        let place = folder.path().display();
        let body = "x".repeat(2_000);
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {place}/{kind};"))
            .concat();
        let config = format!(
            "daemon off; master_process off; pid {place}/nginx.pid; error_log {place}/error.log;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; {temporary} keepalive_requests {keepalive_requests}; client_max_body_size 64k;\n\
             ssl_certificate {place}/cert.pem; ssl_certificate_key {place}/key.pem;\n\
             server {{ listen {tls} ssl http2; location / {{ return 200 '{body}'; }} }}\n\
             server {{ listen {h2c} http2; location / {{ return 200 '{body}'; }} }}\n\
             server {{ listen {h1}; location / {{ return 200 '{body}'; }} }} }}\n"
        );
        fs::write(folder.path().join("nginx.conf"), config).expect("it is ours");
        let mut command = Command::new(program);
        command.args(["-p", ".", "-c", "nginx.conf", "-e", "error.log"]).current_dir(folder.path());
        let child = Child::spawn(command, None).expect("nginx starts");
        let until = std::time::Instant::now() + DEADLINE;
        while std::net::TcpStream::connect(h1).is_err() {
            assert!(std::time::Instant::now() < until, "nginx does not listen: {}", child.log());
            std::thread::yield_now();
        }
        Self { _child: child, tls, h2c, h1, _folder: folder }
    }
}

#[test]
fn nginx_quota_and_sizes_are_measured_exactly() {
    let Some(program) = need("nginx") else { return };
    let nginx = Nginx::start(&program, 137);
    for (url, speaks) in
        [(format!("https://{}/", nginx.tls), "PROT103"), (format!("http://{}/", nginx.h2c), "PROT104")]
    {
        let finished = probe(&["--i-own-this-host", "--json", &url]);
        assert_eq!(finished.code, Some(0), "{}", finished.transcript());
        let found = finished.json();
        assert_verdict(&found, speaks, "pass");
        if speaks == "PROT103" {
            assert_verdict(&found, "PROT105", "ignored"); // an offer over TLS is made, too
        }
        let limits = &found["limits"];
        assert_eq!(limits["requests_per_connection"]["value"], 137, "{limits:#}");
        assert_eq!(limits["request_body"]["value"], 64 * 1024, "{limits:#}");
        assert_eq!(limits["concurrent_streams_advertised"]["value"], 128, "{limits:#}");
        assert_eq!(limits["concurrent_streams"]["value"], 128, "{limits:#}");
        assert!(
            limits["header_field"]["value"].as_u64().is_some_and(|n| (4_000..9_000).contains(&n)),
            "{limits:#}"
        );
        let quota = checks(&found, "LIMT101").into_iter().find(|check| check["verdict"] == "fail");
        let quota = quota.unwrap_or_else(|| panic!("{found:#}"));
        assert_eq!(quota["fix"][0]["product"], "nginx", "what answered comes first: {quota:#}");
        let items = quota["evidence"][0]["items"].as_array().expect("frames");
        assert!(
            items.iter().any(|one| one["seen"].as_str().is_some_and(|seen| seen.starts_with("GOAWAY[0]"))),
            "{items:#?}"
        );
        assert_verdict(&found, "LIMT102", "fail"); // abrupt
        assert_verdict(&found, "LIMT103", "pass");
    }
    let h1 = probe(&["--i-own-this-host", "--json", &format!("http://{}/", nginx.h1)]).json();
    assert_eq!(h1["limits"]["h1_requests_per_connection"]["value"], 137, "{:#}", h1["limits"]);
    assert_verdict(&h1, "PROT104", "unsupported");
    assert_verdict(&h1, "PROT105", "ignored");
    assert_verdict(&h1, "LIMT101", "pass"); // HTTP/1.1 loses little
}

#[test]
fn a_quota_of_a_thousand_is_measured_exactly() {
    let Some(program) = need("nginx") else { return };
    let nginx = Nginx::start(&program, 1_000); // nginx's default
    let found = probe(&["--i-own-this-host", "--json", &format!("http://{}/", nginx.h2c)]);
    assert_eq!(found.code, Some(0), "{}", found.transcript());
    let limits = &found.json()["limits"];
    assert_eq!(limits["requests_per_connection"]["value"], 1_000, "{limits:#}");
}

#[test]
fn the_origin_probed_against_itself_is_clean() {
    let origin = Origin::start(&[]);
    let quick = ["--i-own-this-host", "--max-requests=3000", "--json", "--fail-on=info"];
    for url in [format!("http://{}/", origin.clear), format!("https://{}/", origin.tls)] {
        let finished = probe(&[&quick[..], &[&url]].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.transcript());
        let found = finished.json();
        assert_verdict(&found, "MIGR101", "pass");
        assert_verdict(&found, "MIGR102", "pass");
        assert_verdict(&found, "LIMT104", "pass");
        assert_eq!(found["software"], "h2lab");
    }
}

#[test]
fn the_origin_bounds_every_attack() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    let pid = format!("--pid={}", origin.child.pid().as_raw_nonzero());
    let finished =
        probe(&["--i-own-this-host", "--resistance", "--max-requests=20000", &pid, "--json", &url]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let found = finished.json();
    for id in
        ["RESI101", "RESI102", "RESI103", "RESI104", "RESI105", "RESI106", "RESI107", "RESI108", "RESI110"]
    {
        assert_verdict(&found, id, "pass");
    }
    origin.assert_serves();
}

#[test]
fn an_upgrade_is_a_finding_only_when_a_second_request_is_answered_behind_it() {
    let origin = Origin::start(&["--h2c-upgrade"]);
    let found = probe(&["--json", &format!("http://{}/", origin.clear)]).json();
    assert_verdict(&found, "PROT105", "pass");
    assert_verdict(&found, "MIGR107", "undecided"); // it continues in HTTP/1.1, which accepts any
    assert_verdict(&found, "MIGR109", "pass");
    let marks: Vec<&str> = found["checklist"]
        .as_array()
        .expect("points")
        .iter()
        .map(|point| point["mark"].as_str().expect("text"))
        .collect();
    assert!(marks.contains(&"crossed") && marks.contains(&"open"), "{:#}", found["checklist"]);
}

#[test]
fn what_other_ports_speak_is_reported_of_those_that_are_named() {
    let origin = Origin::start(&["--h2c-upgrade", "--h3"]);
    let ports = format!("--port={},{}", origin.tls.port(), origin.clear.port());
    let found = probe(&["--json", &ports, &format!("http://{}/", origin.clear)]).json();
    assert_verdict(&found, "PROT113", "pass");
    let (tls, clear) = (origin.tls.port(), origin.clear.port());
    let summary = format!("{tls}: h1s, h2, h3 (UDP); {clear}: h1, h2c, h2c by upgrade");
    assert_eq!(checks(&found, "PROT113")[0]["summary"], summary.as_str());
}

#[test]
fn a_response_that_streams_over_both_versions_is_the_same() {
    let origin = Origin::start(&[]);
    let found = probe(&["--json", &format!("http://{}/drip?bytes=20&ms=300", origin.clear)]).json();
    assert_verdict(&found, "MIGR101", "pass");
    assert_verdict(&found, "MIGR103", "pass");
}

#[test]
fn a_graceful_goodbye_is_distinguished_from_an_abrupt_one() {
    for (goaway, verdict) in [("graceful", "pass"), ("abrupt", "fail")] {
        let origin = Origin::start(&["--max-requests-per-connection", "20", "--goaway", goaway]);
        let found = probe(&["--json", &format!("http://{}/", origin.clear)]).json();
        assert_verdict(&found, "LIMT102", verdict);
        assert_eq!(
            found["limits"]["requests_per_connection"]["value"], 20,
            "{goaway}: {:#}",
            found["limits"]
        );
    }
}

#[test]
fn without_the_flag_a_host_gets_a_hundred_requests_and_a_mebibyte_at_most() {
    let origin = Origin::start(&[]);
    let found = probe(&["--json", &format!("http://{}/", origin.clear)]).json();
    let spent = &found["spent"];
    assert!(spent["requests"].as_u64().is_some_and(|n| n <= 100), "{spent}");
    assert!(spent["bytes"].as_u64().is_some_and(|n| n <= 1 << 20), "{spent}");
    assert_eq!(found["limits"]["requests_per_connection"]["value"], Value::Null);
}

/// Forwards connections to `to` and counts the bytes that go there in clear.
fn relay(to: SocketAddr) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let counted = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&counted);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(to) else { return };
            let mut ways = [(&client, &server), (&server, &client)].map(|(from, to)| {
                (from.try_clone().expect("a descriptor"), to.try_clone().expect("a descriptor"))
            });
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let (up, down) = ways.split_at_mut(1);
                std::thread::scope(|scope| {
                    scope.spawn(|| carry(&mut up[0], Some(&count)));
                    scope.spawn(|| carry(&mut down[0], None));
                });
            });
        }
    });
    (address, counted)
}

fn carry((from, to): &mut (TcpStream, TcpStream), count: Option<&AtomicU64>) {
    const HANDSHAKE: u8 = 22;
    let mut space = [0; 16 * 1024];
    let mut is_tls = None;
    while let Ok(n @ 1..) = from.read(&mut space) {
        if !*is_tls.get_or_insert(space[0] == HANDSHAKE) {
            count.inspect(|count| _ = count.fetch_add(n as u64, Ordering::Relaxed));
        }
        if to.write_all(&space[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write); // it may have gone
}

#[test]
fn what_is_reported_to_have_been_sent_is_what_arrives() {
    let origin = Origin::start(&[]);
    let (address, counted) = relay(origin.clear);
    let found = probe(&["--json", &format!("http://{address}/")]).json();
    let report = found["spent"]["bytes"].as_u64().expect("a number");
    let seen = counted.load(Ordering::Relaxed);
    assert!(seen <= report && report <= 1 << 20, "{seen} bytes arrived, and {report} are reported");
    assert!(found["spent"]["received"].as_u64().is_some_and(|n| n > 0), "{}", found["spent"]);
}

#[test]
fn a_certificate_that_is_not_trusted_ends_the_probe() {
    let origin = Origin::start(&[]);
    let finished = h2lab(&["probe", &format!("https://{}/", origin.tls)]);
    assert_eq!(finished.code, Some(3), "{}", finished.transcript());
    assert!(finished.stderr.contains("certificate is not trusted"), "{}", finished.stderr);
}

#[test]
fn ctrl_c_leaves_a_report_of_what_was_checked() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("it listens"));
    let mut command = Command::new(crate::support::binary());
    command.args(["probe", &url]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the binary starts");
    // The connection of the reachability check, and one that is answered; the next one is not.
    let mut held = Vec::new();
    for n in 0..3 {
        let (mut client, _) = listener.accept().expect("it comes");
        if n == 1 {
            let mut space = [0; 1_024];
            let _ = client.read(&mut space).expect("a request");
            client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("it listens");
        }
        held.push(client);
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is ours");
    let output = child.wait_with_output().expect("it ends");
    let report = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{report}");
    assert!(report.contains("PROT101") && report.contains("interrupted"), "{report}");
}

#[test]
fn what_goes_too_far_is_refused_before_anything_is_sent() {
    for (arguments, words) in [
        (&["http://192.0.2.1/"][..], "--i-own-this-host"),
        (&["--resistance", "http://127.0.0.1:9/"], "--resistance needs --i-own-this-host"),
        (&["--max-requests=101", "http://127.0.0.1:9/"], "more than 100 requests"),
        (&["--max-rate=51", "http://127.0.0.1:9/"], "50 requests per second"),
        (&["--max-time=4m", "http://127.0.0.1:9/"], "--i-own-this-host"),
        (&["--pid=1", "http://127.0.0.1:9/"], "--resistance"),
        (&["--port=0", "http://127.0.0.1:9/"], "--port"),
        (&["--port=80", "--unix-socket=none.sock", "http://localhost/"], "has no ports"),
        (&["-o", "report.pdf", "http://127.0.0.1:9/"], ".sarif"),
        (&["--fail-on=bad", "http://127.0.0.1:9/"], "not a severity"),
        (&["ftp://127.0.0.1/"], "http"),
        (&[], "required"),
    ] {
        let finished = probe(arguments);
        assert_eq!(finished.code, Some(2), "{arguments:?}: {}", finished.transcript());
        assert!(finished.stderr.contains(words), "{arguments:?}: {}", finished.stderr);
    }
    let nobody = probe(&["http://127.0.0.1:9/"]);
    assert_eq!(nobody.code, Some(3), "{}", nobody.transcript());
}

#[test]
fn a_report_has_the_form_that_is_asked_for() {
    let origin = Origin::start(&["--max-requests-per-connection", "20"]);
    let url = format!("http://{}/", origin.clear);
    let folder = folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let finished = probe(&[
        "--fail-on=medium",
        &format!("-o={}", file("r.sarif")),
        &format!("-o={}", file("r.xml")),
        &format!("-o={}", file("r.json")),
        &format!("-o={}", file("r.txt")),
        &url,
    ]);
    assert_eq!(finished.code, Some(1), "a quota of 20 is at least medium: {}", finished.transcript());
    assert!(finished.stdout.contains("Checklist of a migration to h2c"), "{}", finished.stdout);
    assert!(finished.stdout.contains("GOAWAY[0] NO_ERROR last_stream_id 39"), "{}", finished.stdout);
    let read = |name: &str| fs::read_to_string(file(name)).expect("it was written");
    assert_eq!(read("r.txt"), finished.stdout);
    let sarif: Value = serde_json::from_str(&read("r.sarif")).expect("JSON");
    assert_eq!(sarif["version"], "2.1.0");
    let json: Value = serde_json::from_str(&read("r.json")).expect("JSON");
    let count = json["checks"].as_array().expect("checks").len();
    assert_eq!(sarif["runs"][0]["results"].as_array().expect("results").len(), count);
    assert_eq!(read("r.xml").matches("<testcase ").count(), count);
    for check in json["checks"].as_array().expect("checks") {
        let page = h2lab(&["explain", check["id"].as_str().expect("an id")]);
        assert_eq!(page.code, Some(0), "{}", page.transcript());
    }
}

/// Nothing that is given to be sent appears in the evidence, whatever the format and the protocol.
#[test]
fn no_format_has_the_credentials_that_were_sent() {
    const SECRETS: [&str; 4] =
        ["s3cr3t-field", "s3cr3t-password", "s3cr3t-cookie", "bWU6czNjcjN0LXBhc3N3b3Jk"];
    let origin = Origin::start(&["--h3", "--h2c-upgrade"]);
    let (clear, tls) = (format!("http://{}/", origin.clear), format!("https://{}/", origin.tls));
    let given = ["-H", "X-Api-Key: s3cr3t-field", "-u", "me:s3cr3t-password", "-b", "sid=s3cr3t-cookie"];
    let formats: [&[&str]; 4] = [&["--json", "-v"], &["--sarif"], &["--junit"], &["-v"]];
    for (url, protocols) in [(&clear, &["h1", "h2c"][..]), (&tls, &["h1s", "h2", "h3"])] {
        for (format, protocol) in formats.iter().zip(protocols.iter().cycle()) {
            let proto = format!("--proto={protocol}");
            let finished = probe(&[format, &given[..], &[&proto, "--max-requests=30", url]].concat());
            assert!(matches!(finished.code, Some(0 | 1)), "{}", finished.transcript());
            assert!(finished.stdout.contains("h2lab"), "{}", finished.transcript());
            for secret in SECRETS {
                assert!(!finished.transcript().contains(secret), "{secret}: {}", finished.transcript());
            }
        }
    }
}

/// `http.MaxBytesHandler` around x/net's h2c handler, as its documentation shows it, sets three different limits.
#[test]
fn a_limit_around_gos_h2c_handler_is_another_one_over_each_way_in() {
    static H2C_GO: GoProgram = GoProgram::new("h2c_go");
    let Some(program) = H2C_GO.path() else { return };
    let mut command = Command::new(program);
    command.arg("70001");
    let server = Child::spawn(command, None).expect("it starts");
    let listening = |line: &str| line.strip_prefix("listening ")?.trim().parse::<SocketAddr>().ok();
    let address = server.wait_for_line(DEADLINE, listening).expect("it listens");
    let found = probe(&["--json", "--i-own-this-host", &format!("http://{address}/")]).json();
    assert_verdict(&found, "MIGR109", "fail");
    let summary = checks(&found, "MIGR109")[0]["summary"].as_str().expect("a text").to_owned();
    assert_eq!(summary, "HTTP/1.1: 413; HTTP/2: takes 256 KiB and waits for more; h2c by upgrade: 500");
}
