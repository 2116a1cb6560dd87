//! HTTP/3 on either side of the sidecar: our own ends, quic-go's and Caddy's.

mod client;
mod grpc;
mod handover;
mod idle;
mod listener;
mod nameless;
mod restart;
mod third;
mod threads;
mod tunnels;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;

use h2lab_model::workload::Protocol;
use h2lab_net::process::Child;
use serde_json::json;

use crate::curl::Curl;
use crate::go::GoProgram;
use crate::load::load;
use crate::origin::Origin;
use crate::sidecar::{Sidecar, scripted};
use crate::sidecar_reload::{until, until_it_says};
use crate::support::{DEADLINE, binary, folder, free_ports, h2lab, need};
use crate::tls::Files;

/// quic-go's server and client.
static QUIC_GO: GoProgram = GoProgram::new("quic_go");

/// A sidecar that listens in clear and over HTTP/3, the latter with a certificate of `files`.
struct Both {
    sidecar: Sidecar,
    tls: SocketAddr,
    files: Files,
}

impl Both {
    /// `service` is what follows `[service.a]`; `listen`, what follows the listener over TLS.
    fn start(service: &str, listen: &str) -> Self {
        Self::start_with("", service, listen)
    }

    /// The same; `top` is before all tables.
    fn start_with(top: &str, service: &str, listen: &str) -> Self {
        let files = Files::make();
        let text = format!(
            "{top}\n[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n\
             [[listen]]\naddress = '127.0.0.1:0'\ntls = true\nh3 = true\nservice = 'a'\n{listen}\n\
             [identity]\ncert = 'server.pem'\nkey = 'server.key'\n[service.a]\ninsecure = true\n{service}\n"
        );
        fs::write(files.path("sidecar.toml"), text).expect("a file");
        let sidecar = Sidecar::with(&files.path("sidecar.toml"));
        let tls = sidecar
            .child
            .wait_for_line(DEADLINE, |line| {
                line.strip_prefix("listening https://")?.strip_suffix(" h3")?.parse().ok()
            })
            .unwrap_or_else(|error| panic!("{error}: {}", sidecar.child.log()));
        Self { sidecar, tls, files }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.tls)
    }
}

/// quic-go's server, and its address.
fn quic_go_server(files: &Files) -> Option<(Child, SocketAddr)> {
    let mut command = Command::new(QUIC_GO.path()?);
    command.arg("serve").args([files.path("server.pem"), files.path("server.key")]);
    let server = Child::spawn(command, None).expect("it starts");
    let address = server
        .wait_for_line(DEADLINE, |line| line.strip_prefix("listening ")?.parse().ok())
        .unwrap_or_else(|error| panic!("{error}: {}", server.log()));
    Some((server, address))
}

/// Ways to send a body: with its length, without, and after the instance has agreed.
const FRAMINGS: [&[&str]; 3] = [&[], &["-H", "transfer-encoding: chunked"], &["-H", "expect: 100-continue"]];

/// Bodies of both directions, by a client of HTTP/1.1 and one of HTTP/2.
#[track_caller]
fn assert_bodies(clear: SocketAddr, framings: &[&[&str]]) {
    let folder = folder();
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.path().join("payload"), &body).expect("a file");
    for protocol in [Protocol::H1, Protocol::H2c] {
        let Some(curl) = Curl::new(folder.path(), protocol, clear) else { return };
        let long = curl.get("/bytes/3000000", &[]);
        assert_eq!((long.status, long.body.len()), (200, 3_000_000), "{protocol}");
        for framing in framings {
            let echo = curl.get("/echo", &[&["--data-binary", "@payload"], *framing].concat());
            assert!(echo.status == 200 && echo.body == body, "{protocol} {framing:?}: {}", echo.body.len());
        }
        assert_eq!(curl.get("/nowhere", &[]).status, 404, "{protocol}");
    }
}

#[test]
fn an_instance_is_asked_over_http3() {
    let origin = Origin::start(&["--h3"]);
    let service = format!("instances = ['h3://{}']", origin.tls);
    let both = Both::start(&service, "");
    assert_bodies(both.sidecar.clear, &FRAMINGS);
    // Hundreds of requests at a time are on one connection. If this machine stops the origin for a second, the sidecar
    // probes it on another connection.
    let url = format!("http://{}/delay/1", both.sidecar.clear);
    assert_eq!(load(&["--proto", "h1", "-n", "3000", "-c", "300", &url])["requests"]["succeeded"], 3_000);
    let last = both.sidecar.stop();
    assert!(last.contains("; none failed"), "{last}");
    assert!((1..=3).any(|n| last.contains(&format!(" over {n} connection"))), "{last}");
}

#[test]
fn servers_that_are_not_ours_are_asked_over_http3() {
    let files = Files::make();
    let Some((_server, address)) = quic_go_server(&files) else { return };
    let both = Both::start(&format!("instances = ['h3://{address}']"), "");
    assert_bodies(both.sidecar.clear, &FRAMINGS);
    // If the instance resets a stream, the request fails here, too; the next request is answered.
    let told = both.sidecar.ask("GET /refuse HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
    let told = both.sidecar.ask("GET /bytes/9 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 200 ") && told.ends_with("\0\0\0\0\0\0\0\0\0"), "{told}");
}

#[test]
fn caddy_is_asked_over_http3() {
    let Some(caddy) = need("caddy") else { return };
    let (files, origin, port) = (Files::make(), Origin::start(&[]), free_ports(1));
    let proxy = json!({"handler": "reverse_proxy", "upstreams": [{"dial": origin.clear.to_string()}]});
    let server = json!({
        "listen": [format!("127.0.0.1:{port}")],
        "protocols": ["h1", "h2", "h3"],
        "automatic_https": {"disable": true},
        "tls_connection_policies": [{}],
        "routes": [{"handle": [proxy]}],
    });
    let certificate = json!({"certificate": files.path("server.pem"), "key": files.path("server.key")});
    let config = json!({
        "admin": {"disabled": true, "config": {"persist": false}},
        "storage": {"module": "file_system", "root": files.path("storage")},
        "apps": {
            "http": {"servers": {"tls": server}},
            "tls": {"certificates": {"load_files": [certificate]}},
        },
    });
    fs::write(files.path("caddy.json"), config.to_string()).expect("a file");
    let mut command = Command::new(caddy);
    command.arg("run").arg("--config").arg(files.path("caddy.json")).env("HOME", files.path(""));
    let server = Child::spawn(command, None).expect("it starts");
    server
        .wait_for_line(DEADLINE, |line| line.contains("serving initial configuration").then_some(()))
        .unwrap_or_else(|error| panic!("{error}: {}", server.log()));
    let both = Both::start(&format!("instances = ['https://127.0.0.1:{port}']\nh3 = true"), "");
    // Debian 12's Caddy (2.6) takes a request of HTTP/3 without content-length for one without a body.
    assert_bodies(both.sidecar.clear, &[FRAMINGS[0], FRAMINGS[2]]);
    let told = both.sidecar.ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 200 ") && told.contains("via: 3 h2lab\r\n"), "{told}");
    assert!(!both.sidecar.child.log().contains("is unreachable over"), "{}", both.sidecar.child.log());
}

#[test]
fn fields_trailers_and_hints_pass_over_http3() {
    let (url, heads) = scripted(|mut stream| {
        use std::io::Write as _;
        let _ = stream.write_all(
            b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nalt-svc: h3=\":1\"\r\n\
              transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\ngrpc-status: 0\r\nset-cookie: a\r\n\r\n",
        );
    });
    let last = Both::start(&format!("instances = ['{url}']"), "");
    let first = Both::start(&format!("instances = ['h3://{}']", last.tls), "alt-svc = '0'");
    let told = first.sidecar.ask(
        "POST /a?b HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te, close\r\ntransfer-encoding: chunked\r\n\r\n\
         1\r\nx\r\n0\r\nx-sum: 9\r\n\r\n",
    );
    assert!(told.starts_with("HTTP/1.1 103 ") && told.contains("link: </a.css>; rel=preload\r\n"), "{told}");
    assert!(told.ends_with("2\r\nhi\r\n0\r\ngrpc-status: 0\r\n\r\n"), "{told}");
    let alternative = format!("alt-svc: h3=\":{}\"; ma=86400\r\n", last.tls.port());
    assert!(told.contains(&alternative) && !told.contains("h3=\":1\""), "the listener's own: {told}");
    let head = heads.recv_timeout(DEADLINE).expect("a request");
    assert!(head.starts_with("POST /a?b HTTP/1.1\r\n") && head.contains("te: trailers\r\n"), "{head}");
    assert!(head.contains("via: 1.1 h2lab, 3 h2lab\r\n"), "{head}");
    assert!(head.contains("x-forwarded-proto: https\r\n"), "{head}");
}

#[test]
fn a_server_that_ends_its_connections_costs_no_request() {
    for goaway in ["abrupt", "graceful"] {
        let origin = Origin::start(&["--h3", "--max-requests-per-connection", "50", "--goaway", goaway]);
        let both = Both::start(&format!("instances = ['h3://{}']", origin.tls), "");
        let url = format!("http://{}/anything", both.sidecar.clear);
        let document = load(&["--proto", "h1", "-n", "2000", "-c", "16", "-d", "x", &url]);
        assert_eq!(document["requests"]["succeeded"], 2_000, "{goaway}: {document:#}");
        let last = both.sidecar.stop();
        assert!(last.contains("; none failed"), "{goaway}: {last}");
    }
}

#[test]
fn an_instance_without_http3_falls_back_if_it_may_and_is_remembered() {
    const ASKED: u32 = 10;
    // The kernel could choose a TCP port whose UDP port another program has; `free_ports` gives one that no other
    // program gets. Each request needs a connection of its own, so that the number of dials shows what the sidecar has
    // learned.
    let mut command = Command::new(binary());
    command.args(["origin", "--listen=127.0.0.1:0", &format!("--tls-listen=127.0.0.1:{}", free_ports(1))]);
    command.arg("--max-requests-per-connection=1");
    let origin = Origin::run(command);
    let ask = |both: &Both| {
        both.sidecar.ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    };
    let may = Both::start(&format!("instances = ['https://{}']\nh3 = true", origin.tls), "");
    for _ in 0..ASKED {
        let told = ask(&may);
        assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    }
    // Another thread of ours reads the output, possibly later than the answer.
    until_it_says(&may.sidecar, "is unreachable over HTTP/3 (connection refused (UDP)", 1);
    let last = may.sidecar.stop();
    // Otherwise each request would cost two dials. One connection may be dialled ahead, and one may be too late for its
    // request.
    let (rest, _) = last.split_once(" connections to instances; none failed").expect("none failed");
    let dialled: u32 = rest.rsplit(' ').next().and_then(|text| text.parse().ok()).expect("a number");
    assert!((ASKED + 1..ASKED + 6).contains(&dialled), "{last}");

    let only = Both::start(&format!("instances = ['h3://{}']", origin.tls), "");
    let told = ask(&only);
    assert!(told.starts_with("HTTP/1.1 502 ") && told.contains("connection refused (UDP)"), "{told}");

    // A port that accepts datagrams and does not answer: another program may use it.
    let silent =
        UdpSocket::bind((Ipv4Addr::LOCALHOST, origin.tls.port())).expect("the origin has no UDP port");
    let timeouts = "h3 = true\n[timeouts]\nconnect = '1s'";
    let may = Both::start(&format!("instances = ['https://{}']\n{timeouts}", origin.tls), "");
    // A busy machine may take longer for a connection over TCP, too: then the answer is 502.
    until(|| ask(&may).starts_with("HTTP/1.1 200 "), || may.sidecar.child.log());
    until_it_says(&may.sidecar, "is unreachable over HTTP/3 (no response over UDP within 500ms", 1);
    drop(silent);

    let with = Origin::start(&["--h3"]);
    let may = Both::start(&format!("instances = ['https://{}']\nh3 = true", with.tls), "");
    let told = ask(&may);
    assert!(
        told.starts_with("HTTP/1.1 200 ") && !may.sidecar.child.log().contains("is unreachable over"),
        "{told}"
    );
}

#[test]
fn certificates_are_shown_and_checked_on_both_sides() {
    let files = Files::make();
    let [cert, key] = files.identity("server");
    let origin = Origin::start(&["--h3", &cert, &key, &files.flag("--client-ca", "ca.pem")]);
    let name = |name: &str| files.path(name).display().to_string();
    let service = |identity: &str, ca: &str| {
        format!(
            "instances = ['h3://{}']\nca = '{}'\nidentity = {{ cert = '{}', key = '{}' }}",
            origin.tls,
            name(ca),
            name(&format!("{identity}.pem")),
            name(&format!("{identity}.key"))
        )
    };
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let start = |service: &str| {
        let text = format!("[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\n{service}\n");
        fs::write(files.path("sidecar.toml"), text).expect("a file");
        Sidecar::with(&files.path("sidecar.toml"))
    };
    let told = start(&service("client", "ca.pem")).ask(request);
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    for (identity, ca) in [("stranger", "ca.pem"), ("client", "other-ca.pem")] {
        let told = start(&service(identity, ca)).ask(request);
        assert!(told.starts_with("HTTP/1.1 502 "), "{identity} {ca}: {told}");
    }

    // Certificates of clients are checked, too.
    let plain = Origin::start(&[]);
    let both = Both::start(
        &format!("instances = ['http://{}']", plain.clear),
        &format!("client-ca = '{}'", name("ca.pem")),
    );
    let [cert, key] = files.identity("client");
    let document = load(&["--http3", "-n", "5", &cert, &key, &both.url("/")]);
    assert_eq!(document["requests"]["succeeded"], 5, "{document:#}");
    let refused = h2lab(&["load", "-k", "--http3", "-n1", &both.url("/")]);
    assert!(refused.stderr.contains("requires a client certificate"), "{}", refused.transcript());
}

#[test]
fn what_cannot_be_http3_is_said_before_it_starts() {
    let folder = folder();
    let file = folder.path().join("sidecar.toml");
    for (listen, service, words) in [
        ("h3 = true", "instances = ['http://a']", "h3 = true requires tls = true"),
        ("tls = true\nh3 = true\nproxy-protocol = true", "instances = ['http://a']", "use two listeners"),
        ("tls = true\nalt-svc = '1h'", "instances = ['http://a']", "requires h3 = true"),
        ("", "instances = ['http://a']\nh3 = true", "h3 = true requires https://"),
        ("", "instances = ['h3://a']\ncongestion = 'vegas'", "reno, cubic"),
    ] {
        let text =
            format!("[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n{listen}\n[service.a]\n{service}\n");
        fs::write(&file, text).expect("a file");
        let finished = h2lab(&["sidecar", "--config", &file.display().to_string(), "--check"]);
        assert_eq!(finished.code, Some(2), "{}", finished.transcript());
        assert!(finished.stderr.contains(words), "{words}: {}", finished.transcript());
    }
}
