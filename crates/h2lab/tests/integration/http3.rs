//! HTTP/3: our client and our origin with each other, with quic-go's, which are not ours, and over the emulated link. Debian's
//! curl is built without HTTP/3.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;

use h2lab_model::workload::Protocol;
use h2lab_net::process::Child;
use rustix::process::Signal;
use serde_json::Value;

use crate::curl::Curl;
use crate::go::GoProgram;
use crate::load::{attempt, load};
use crate::origin::Origin;
use crate::support::{DEADLINE, DRAIN, Finished, binary, folder, h2lab, need, run_program};
use crate::tls::Files;

const USAGE: i32 = 2;
const UNREACHABLE: i32 = 3;

fn origin(more: &[&str]) -> (Origin, String) {
    let origin = Origin::start(&[&["--h3"], more].concat());
    let url = format!("https://{}", origin.tls);
    (origin, url)
}

/// The errors of a load as (kind, count).
fn errors(document: &Value) -> Vec<(String, u64)> {
    let errors = document["errors"].as_array().expect("a list");
    let one = |error: &Value| {
        (error["kind"].as_str().expect("a name").to_owned(), error["count"].as_u64().expect("a count"))
    };
    errors.iter().map(one).collect()
}

/// How many requests were given up, whoever caused it; fails if others failed.
#[track_caller]
fn timeouts(document: &Value) -> u64 {
    let errors = errors(document);
    assert!(errors.iter().all(|(kind, _)| kind == "timeout"), "{document:#}");
    errors.iter().map(|(_, count)| count).sum()
}

/// Fails unless this many requests were made and all of them succeeded.
#[track_caller]
fn assert_all(document: &Value, count: u64) {
    let requests = &document["requests"];
    assert_eq!((&requests["sent"], &requests["succeeded"]), (&count.into(), &count.into()), "{document:#}");
}

#[test]
fn a_load_over_http_3_carries_exactly_the_requests_asked_for() {
    let (_origin, url) = origin(&[]);
    let document = load(&["--http3", "-n", "137", "-c", "3", &format!("{url}/bytes/100")]);
    assert_eq!(document["protocol"], "h3");
    assert_all(&document, 137);
    assert_eq!(document["status"], serde_json::json!({"200": 137}));
    assert_eq!(document["connections_opened"], 3);
    assert_eq!(document["frames"]["sent"], serde_json::json!({"HEADERS": 137, "SETTINGS": 3}));
    assert_eq!(document["frames"]["received"]["DATA"], 137);
    assert!(document["tcp"]["client"].is_null() && document["tcp"]["server"].is_null());
    let quic = &document["quic"];
    assert_eq!(quic["congestion_control"], "cubic");
    for count in ["packets_sent", "datagrams_sent", "datagrams_received", "rtt_us_p50", "cwnd_bytes_p50"] {
        assert!(quic[count].as_u64() > Some(0), "{count}: {quic}");
    }
    assert_eq!(document["settings"]["remote"]["MAX_FIELD_SECTION_SIZE"], 65_536);
}

#[test]
fn bodies_larger_than_any_window_go_up_and_come_back() {
    let (_origin, url) = origin(&["-w", "64k", "-W", "128k"]);
    let folder = folder();
    let body = folder.path().join("body");
    fs::write(&body, vec![b'b'; 1 << 20]).unwrap();
    let data = format!("@{}", body.display());
    let document = load(&["--http3", "-n", "8", "-c", "1", "-m", "4", "-d", &data, &format!("{url}/echo")]);
    assert_all(&document, 8);
    let bytes = |way: &str| document["bytes"][way].as_u64().expect("a count");
    assert!(bytes("sent") > 8 << 20 && bytes("received") > 8 << 20, "{}", document["bytes"]);
}

#[test]
fn one_connection_carries_hundreds_of_streams_at_a_time() {
    let (_origin, url) = origin(&[]);
    let document = load(&["--http3", "-n", "3000", "-c", "1", "-m", "500", &format!("{url}/delay/1")]);
    assert_all(&document, 3_000);
    assert_eq!(document["connections_opened"], 1);
}

#[test]
fn no_more_streams_are_begun_than_the_server_grants() {
    let (_origin, url) = origin(&["--max-concurrent-streams", "7"]);
    let document = load(&["--http3", "-n", "200", "-c", "1", "-m", "50", &format!("{url}/")]);
    assert_all(&document, 200);
    assert_eq!(document["connections_opened"], 1);
}

#[test]
fn a_quota_of_requests_costs_connections_and_no_request() {
    for goaway in ["abrupt", "graceful"] {
        let (_origin, url) = origin(&["--max-requests-per-connection", "50", "--goaway", goaway]);
        let document = load(&["--http3", "-n", "400", "-c", "1", "-m", "4", &format!("{url}/")]);
        assert_all(&document, 400);
        let opened = document["connections_opened"].as_u64().unwrap();
        assert!((2..=9).contains(&opened), "{goaway}: {opened}");
        assert!(!document["goaway"].as_array().unwrap().is_empty(), "{goaway}");
    }
}

#[test]
fn a_request_that_is_not_answered_in_time_is_given_up_and_the_others_go_on() {
    let (_origin, url) = origin(&[]);
    let (slow, quick) = (format!("{url}/delay/60000"), format!("{url}/ weight=3"));
    // The timeout covers the handshake of the connection, too: it is far above what one takes on a busy machine.
    let flags = ["--http3", "-c", "1", "-m", "3", "--timeout", "5s"];
    let given_up = attempt(&[&flags[..], &["-n", "6", &slow]].concat());
    given_up.assert_code_unless_busy(3);
    let document = given_up.json();
    assert_eq!(timeouts(&document), 6, "{document:#}");
    assert_eq!(document["connections_opened"], 1, "{document:#}");
    // The requests that are answered share its connection, before and after those that are not.
    let document = load(&[&flags[..], &["-n", "24", &slow, &quick]].concat());
    let succeeded = document["requests"]["succeeded"].as_u64().expect("a count");
    assert!((1..24).contains(&succeeded), "{document:#}");
    assert_eq!(timeouts(&document), 24 - succeeded, "{document:#}");
    assert_eq!(document["connections_opened"], 1, "{document:#}");
}

#[test]
fn a_server_that_is_stopped_answers_what_it_was_asked_and_says_goodbye() {
    let (mut origin, url) = origin(&[]);
    let mut command = Command::new(binary());
    let slow = format!("{url}/drip?bytes=1000&ms=4000");
    command.args(["trace", "-k", "--proto=h3", "-n=1", "--jsonl", &slow]);
    let mut client = Child::spawn(command, None).expect("it starts");
    let came_down = |line: &str, kind: &str| {
        let frame: Value = serde_json::from_str(line).ok()?;
        (frame["direction"] == "down" && frame["type"] == kind).then_some(frame)
    };
    client
        .wait_for_line(DEADLINE, |line| came_down(line, "HEADERS"))
        .unwrap_or_else(|error| panic!("it has begun: {error}: {}", client.log()));
    let ended = origin.child.stop(Signal::TERM, DEADLINE).expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "{}", origin.child.log());
    assert!(origin.child.log().contains("served 1 request on 1 connection"), "{}", origin.child.log());
    let ended = client.wait(DEADLINE).expect("it can be waited for").expect("it ends");
    let seen = client.log();
    assert_eq!(ended.status.code(), Some(0), "{seen}");
    let all = |kind: &'static str| seen.lines().filter_map(move |line| came_down(line, kind));
    let bytes: u64 = all("DATA").filter_map(|frame| frame["data_bytes"].as_u64()).sum();
    assert_eq!((bytes, all("GOAWAY").count() > 0), (1_000, true), "{seen}");
}

#[test]
fn the_last_answer_of_a_connection_arrives_whole_on_a_slow_path() {
    // It takes six seconds, and the server has handed everything to QUIC in the first. QUIC waits five seconds for a
    // client that acknowledges nothing, and as long as it takes for one that keeps acknowledging.
    let program = binary().display().to_string();
    let sockets = "--listen 0.0.0.0:8080 --tls-listen 0.0.0.0:8443";
    let server = format!("{program} origin {sockets} --h3 --max-requests-per-connection 1");
    let url = "https://server:8443/bytes/3M";
    let client = format!("{program} load -k --http3 -n 1 -c 1 --timeout 60s --json {url}");
    let link = ["link", "--delay=5ms", "--bandwidth=4mbit", "--server", &server, "--client", &client];
    let finished = h2lab(&link);
    finished.assert_measured();
    assert!(finished.stdout.contains("\"succeeded\": 1"), "{}", finished.transcript());
}

/// Fails unless it is one clear error with this code that has every one of `words`.
#[track_caller]
fn assert_error(finished: &Finished, code: i32, words: &[&str]) {
    let shown = finished.transcript();
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(code), ""), "{shown}");
    assert!(words.iter().all(|word| finished.stderr.contains(word)), "{words:?}\n{shown}");
}

#[test]
fn whoever_does_not_speak_http_3_is_distinguished_from_the_others() {
    // HTTP/1.1 and HTTP/2 are there, over TCP on the port of the same number.
    let over_tcp = Origin::start(&[]);
    let url = format!("https://{}/", over_tcp.tls);
    let finished = h2lab(&["load", "-k", "--http3", "-n1", &url]);
    assert_error(&finished, UNREACHABLE, &["nothing listens on this UDP port", "HTTP/3"]);
    // A socket that takes datagrams and does not answer.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let finished = h2lab(&["trace", "-k", "--proto=h3", "--json", "--timeout=3s", &url]);
    assert_eq!(finished.code, Some(UNREACHABLE), "{}", finished.transcript());
    assert!(finished.stderr.contains("no response over UDP within 3s"), "{}", finished.transcript());
    // A comparison reports which of the protocols are missing.
    let url = format!("https://{}/", over_tcp.tls);
    let finished = h2lab(&[
        "compare",
        "-k",
        "--json",
        "--proto=h1s,h3",
        "-q=50",
        "-z=300ms",
        "--repetitions=1",
        DRAIN,
        &url,
    ]);
    let cells = finished.json()["cells"].as_array().expect("cells").clone();
    let states: Vec<_> = cells.iter().map(|cell| (&cell["protocol"], &cell["state"])).collect();
    assert!(states.contains(&(&"h3".into(), &"unsupported".into())), "{states:?}");
}

#[test]
fn what_does_not_go_together_with_http_3_is_a_slip_of_the_pen() {
    let clear = h2lab(&["load", "--http3", "http://127.0.0.1:1/"]);
    assert_error(&clear, USAGE, &["--http3 does not fit the URL", "http:// takes h1 and h2c"]);
    let vegas = h2lab(&["compare", "--proto=h2,h3", "--congestion=vegas"]);
    assert_error(&vegas, USAGE, &["vegas", "reno, cubic, bbr"]);
    let sidecar = h2lab(&["compare", "--proto=h3", "--topology=sidecar", "--sidecar=haproxy"]);
    assert_error(&sidecar, USAGE, &["--topology", "h3"]);
    let without_tls = h2lab(&["origin", "--listen=127.0.0.1:0", "--h3"]);
    assert_eq!(without_tls.code, Some(USAGE), "{}", without_tls.transcript());
}

#[test]
fn a_certificate_that_nobody_has_signed_is_refused_as_over_tcp() {
    let (_origin, url) = origin(&[]);
    let finished = h2lab(&["load", "--http3", "-n1", &url]);
    assert_error(&finished, UNREACHABLE, &["certificate is not trusted", "--cacert", "-k"]);
}

#[test]
fn a_client_certificate_is_asked_for_and_shown_inside_of_quic() {
    let files = Files::make();
    let ca = files.flag("--client-ca", "ca.pem");
    let (_origin, url) = origin(&[&ca]);
    let refused = h2lab(&["load", "-k", "--http3", "-n1", &url]);
    assert_error(&refused, UNREACHABLE, &["requires a client certificate"]);
    let identity = files.identity("client");
    let shown: Vec<&str> =
        ["--http3", "-n", "3", &url].into_iter().chain(identity.iter().map(String::as_str)).collect();
    assert_all(&load(&shown), 3);
}

#[test]
fn a_trace_spells_frames_and_streams_as_wireshark_does() {
    let (_origin, url) = origin(&[]);
    let finished = h2lab(&["trace", "-k", "--proto=h3", "-n=2", "--json", &url]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let document = finished.json();
    let frames = document["frames"].as_array().expect("frames");
    let spelt: Vec<String> = frames
        .iter()
        .map(|frame| {
            let word = |key: &str| frame[key].as_str().expect("a word").to_owned();
            format!("{} {}[{}]", word("direction"), word("type"), frame["stream"])
        })
        .collect();
    for expected in [
        "up SETTINGS[2]",
        "down SETTINGS[3]",
        "up HEADERS[0]",
        "down HEADERS[0]",
        "down DATA[0]",
        "up HEADERS[4]",
    ] {
        assert!(spelt.iter().any(|one| one == expected), "{expected} is not in {spelt:?}");
    }
    let request = frames.iter().find(|frame| frame["type"] == "HEADERS").expect("a request");
    assert_eq!(
        request["fields"][0],
        serde_json::json!({"name": ":method", "value": "GET", "value_bytes": 3})
    );
    assert_eq!(document["connections"][0]["tls"]["alpn"], "h3");
    assert_eq!(document["connections"][0]["last_stream"], 4);
}

#[test]
fn clients_over_tls_learn_of_http_3_and_others_do_not() {
    let report = |origin: &Origin, protocol| {
        let folder = folder();
        let curl = Curl::new(folder.path(), protocol, origin.address(protocol))?;
        let line = format!("alt-svc: h3=\":{}\"\r\n", origin.tls.port());
        Some(curl.get("/", &[]).heads.contains(&line))
    };
    let (with, without) = (origin(&[]).0, Origin::start(&[]));
    for protocol in Protocol::OVER_TCP {
        let Some(is_reported) = report(&with, protocol) else { return };
        assert_eq!(is_reported, protocol.is_tls(), "{protocol}");
        assert_eq!(report(&without, protocol), Some(false), "{protocol}");
    }
}

/// quic-go's server and client.
static QUIC_GO: GoProgram = GoProgram::new("quic_go");

#[test]
fn quic_gos_client_gets_whole_answers_of_our_origin() {
    let Some(program) = QUIC_GO.path() else { return };
    let files = Files::make();
    let [cert, key] = files.identity("server");
    let (_origin, url) = origin(&[&cert, &key]);
    let ca = files.path("ca.pem").display().to_string();
    for (path, body, answer) in [
        ("/", 0, "200 HTTP/3.0 1024 same=false"),
        ("/bytes/300k", 0, "200 HTTP/3.0 307200 same=false"),
        ("/echo", 200_000, "200 HTTP/3.0 200000 same=true"),
        ("/delay/10", 0, "200 HTTP/3.0 0 same=true"),
        ("/nowhere", 4, "404 HTTP/3.0"),
    ] {
        let arguments = ["get", &ca, "50", &body.to_string(), &format!("{url}{path}")];
        let finished = run_program(&program, files.path("").as_path(), &arguments);
        let lines: Vec<&str> = finished.stdout.lines().collect();
        let right = lines.iter().filter(|line| line.starts_with(answer)).count();
        assert_eq!((right, lines.len()), (50, 50), "{path}: {}", finished.transcript());
    }
}

#[test]
fn our_client_loads_quic_gos_server() {
    let Some(program) = QUIC_GO.path() else { return };
    let files = Files::make();
    let mut command = Command::new(&program);
    command.arg("serve").args([files.path("server.pem"), files.path("server.key")]);
    let mut server = Child::spawn(command, None).expect("it starts");
    let address: SocketAddr = server
        .wait_for_line(DEADLINE, |line| line.strip_prefix("listening ")?.parse().ok())
        .unwrap_or_else(|error| panic!("{error}: {}", server.log()));
    let url = format!("https://{address}");
    let document = load(&["--http3", "-n", "300", "-c", "2", "-m", "20", &format!("{url}/bytes/50000")]);
    assert_all(&document, 300);
    assert!(document["goodput_bytes_per_s"].as_f64() > Some(0.0));
    let body = "x".repeat(20_000);
    assert_all(
        &load(&["--http3", "-n", "40", "-c", "1", "-m", "8", "-d", &body, &format!("{url}/echo")]),
        40,
    );
    let reset = attempt(&["--http3", "-n", "5", "-c", "1", &format!("{url}/refuse")]).json();
    assert_eq!(errors(&reset), [("reset".to_owned(), 5)], "{reset:#}");
    assert_eq!(reset["rst_stream"][0]["count"], 5, "{}", reset["rst_stream"]);
    let late = attempt(&["--http3", "-n", "2", "-c", "1", "--timeout", "3s", &format!("{url}/slow")]).json();
    assert_eq!(timeouts(&late), 2, "{late:#}");
    let ended = server.stop(Signal::TERM, DEADLINE).expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "{}", server.log());
}

#[test]
fn quic_goes_over_the_emulated_link_and_recovers_what_it_loses() {
    let finished = h2lab(&[
        "compare",
        "--json",
        "--proto=h1s,h2,h3",
        "--delay=5ms",
        "--loss=5%",
        "--congestion=cubic,bbr",
        "-c=1",
        // Longer than a busy machine stops a process: a generator that is stopped for its whole time gets no response.
        "-q=100",
        "-z=4s",
        "--repetitions=1",
        DRAIN,
    ]);
    let document = finished.json();
    let cells: Vec<&Value> = document["cells"].as_array().expect("cells").iter().collect();
    let quic: Vec<&&Value> = cells.iter().filter(|cell| cell["protocol"] == "h3").collect();
    assert_eq!((cells.len(), quic.len()), (6, 2));
    for cell in quic {
        let requests = &cell["requests"];
        assert_eq!(requests["failed"], 0, "{cell:#}");
        assert!(requests["succeeded"].as_u64() > Some(0), "{cell:#}");
        assert_eq!(cell["connections_opened"], 1, "{cell:#}");
        let link = &cell["link"];
        assert!(link["dropped_up"].as_u64() > Some(0) && link["dropped_down"].as_u64() > Some(0), "{link}");
        assert!(cell["quic"]["packets_lost"].as_u64() > Some(0), "{}", cell["quic"]);
        assert_eq!(cell["quic"]["congestion_control"], link["congestion_control"]);
        assert!(cell["quic"]["mtu"].as_u64() > Some(1_200), "the link carries more: {}", cell["quic"]);
        // Streams of QUIC share a congestion window as those of TCP do (LOSS102), which is found where a busy machine
        // makes requests come in bursts. That one lost segment delays all streams must not be found.
        for finding in cell["findings"].as_array().expect("findings") {
            assert_eq!(finding["rule"], "LOSS102", "what is found is about TCP: {finding:#}");
        }
    }
    let names: Vec<&Value> = cells
        .iter()
        .filter(|cell| cell["protocol"] == "h3")
        .map(|cell| &cell["quic"]["congestion_control"])
        .collect();
    assert!(names.contains(&&"cubic".into()) && names.contains(&&"bbr".into()), "{names:?}");
}

#[test]
fn caddy_speaks_http_3_behind_the_link() {
    if need("caddy").is_none() {
        return;
    }
    let finished = h2lab(&[
        "compare",
        "--json",
        "--origin=caddy",
        "--proto=h3",
        "--delay=5ms",
        "--loss=0%",
        "-c=2",
        "-q=100",
        "-z=3s",
        "--repetitions=1",
        DRAIN,
    ]);
    let document = finished.json();
    let cell = &document["cells"][0];
    assert_eq!(cell["requests"]["failed"], 0, "{cell:#}");
    let statuses: Vec<&String> = cell["status"].as_object().expect("by number").keys().collect();
    assert_eq!(statuses, ["200"]);
    assert_eq!((&cell["connections_opened"], &cell["server"]["name"]), (&2.into(), &"caddy".into()));
}
