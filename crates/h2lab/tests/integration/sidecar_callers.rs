//! Unmodified clients and servers, through one sidecar and through two (HTTP/1.1 → HTTP/2 → HTTP/1.1), over HTTP/1.1
//! and HTTP/2.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use h2lab_model::workload::Protocol;
use h2lab_net::process::Child;

use crate::curl::Curl;
use crate::go::GoProgram;
use crate::sidecar::Sidecar;
use crate::support::{DEADLINE, folder, need, run_program};

static CALLERS: GoProgram = GoProgram::new("callers_go");

/// A server on Go's net/http and one of grpc-go, and two ways to them: through one sidecar, and through two.
struct Ways {
    program: PathBuf,
    server: Child,
    /// For each way: the sidecars, and the addresses for HTTP in clear, HTTP over TLS and gRPC.
    all: Vec<(Vec<Sidecar>, SocketAddr, SocketAddr, SocketAddr)>,
    folder: tempfile::TempDir,
}

/// What a sidecar prints of its sockets, in the order of its file: in clear, over TLS, and in clear for gRPC.
fn sockets(sidecar: &Sidecar) -> [SocketAddr; 3] {
    let find = |scheme: &str, nth: usize| {
        let prefix = format!("listening {scheme}://");
        let all =
            |log: String| log.lines().filter_map(|line| line.strip_prefix(&prefix)?.parse().ok()).nth(nth);
        let until = std::time::Instant::now() + DEADLINE;
        loop {
            if let Some(address) = all(sidecar.child.log()) {
                return address;
            }
            assert!(std::time::Instant::now() < until, "{}", sidecar.child.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    [find("http", 0), find("https", 0), find("http", 1)]
}

/// A sidecar with three listeners, in front of a server of HTTP and one of gRPC.
fn sidecar(folder: &Path, http: &str, grpc: &str) -> Sidecar {
    let config = folder.join("sidecar.toml");
    let listen = |service: &str, more: &str| {
        format!("[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"{service}\"\n{more}")
    };
    let text = [
        listen("http", ""),
        listen("http", "tls = true\n"),
        listen("grpc", ""),
        format!("[service.http]\ninstances = [\"{http}\"]\n[service.grpc]\ninstances = [\"{grpc}\"]\n"),
    ];
    fs::write(&config, text.concat()).expect("a file");
    Sidecar::with(&config)
}

impl Ways {
    fn new() -> Option<Self> {
        let program = CALLERS.path()?;
        let mut command = Command::new(&program);
        command.arg("serve");
        let server = Child::spawn(command, None).expect("it starts");
        let of = |what: &str| -> SocketAddr {
            server
                .wait_for_line(DEADLINE, |line| line.strip_prefix(what)?.trim().parse().ok())
                .unwrap_or_else(|error| panic!("{error}: {}", server.log()))
        };
        let (http, grpc) = (of("http "), of("grpc "));
        let folder = folder();
        let one = sidecar(folder.path(), &format!("http://{http}"), &format!("h2c://{grpc}"));
        let direct = sockets(&one);
        let two = sidecar(folder.path(), &format!("h2c://{}", direct[0]), &format!("h2c://{}", direct[2]));
        let over_two = sockets(&two);
        let way = |sidecar, [clear, tls, grpc]: [SocketAddr; 3]| (vec![sidecar], clear, tls, grpc);
        Some(Self { program, server, all: vec![way(one, direct), way(two, over_two)], folder })
    }

    /// Runs a caller for each way; it must print `done`.
    #[track_caller]
    fn call<const N: usize>(
        &self,
        program: &Path,
        arguments: impl Fn(SocketAddr, SocketAddr, SocketAddr) -> [String; N],
    ) {
        for (sidecars, clear, tls, grpc) in &self.all {
            let arguments = arguments(*clear, *tls, *grpc);
            let finished = run_program(program, self.folder.path(), &arguments);
            let is_done = finished.code == Some(0) && finished.stdout.lines().last() == Some("done");
            assert!(is_done, "{arguments:?}: {}\n{}", finished.transcript(), sidecars[0].child.log());
        }
    }
}

#[test]
fn net_http_of_go_notices_no_proxy() {
    let Some(ways) = Ways::new() else { return };
    for how in ["h1", "h2c", "h1s", "h2"] {
        ways.call(&ways.program, |clear, tls, _| {
            let is_tls = matches!(how, "h1s" | "h2");
            let url = if is_tls { format!("https://{tls}") } else { format!("http://{clear}") };
            ["call".to_owned(), url, how.to_owned()]
        });
    }
}

#[test]
fn grpc_passes_its_own_suite_for_interoperability() {
    let Some(ways) = Ways::new() else { return };
    ways.call(&ways.program, |_, _, grpc| ["grpc".to_owned(), grpc.to_string()]);
}

#[test]
fn a_websocket_of_go_talks_through() {
    let Some(ways) = Ways::new() else { return };
    ways.call(&ways.program, |clear, _, _| ["ws".to_owned(), format!("ws://{clear}/ws")]);
}

#[test]
fn node_notices_no_proxy() {
    let (Some(node), Some(ways)) = (need("node"), Ways::new()) else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/callers_node.js");
    ways.call(&node, |clear, _, _| [script.to_owned(), format!("http://{clear}")]);
}

#[test]
fn requests_and_httpx_of_python_notice_no_proxy() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/callers_python.py");
    let Some(ways) = Ways::new() else { return };
    for name in ["httpie", "httpx"] {
        let Some(program) = need(name) else { continue };
        ways.call(&interpreter(&program), |clear, tls, _| {
            [script.to_owned(), format!("http://{clear}"), format!("https://{tls}")]
        });
    }
}

/// The interpreter of a program in Python, which has the program's libraries: its first line names it.
fn interpreter(program: &Path) -> PathBuf {
    let mut line = String::new();
    BufReader::new(fs::File::open(program).expect("it is there")).read_line(&mut line).expect("a script");
    PathBuf::from(line.trim_start_matches("#!").trim())
}

#[test]
fn a_websocket_of_pythons_h2_talks_through_over_http2() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/callers_websocket.py");
    let (Some(httpx), Some(ways)) = (need("httpx"), Ways::new()) else { return };
    for how in ["clear", "tls"] {
        ways.call(&interpreter(&httpx), |clear, tls, _| {
            let address = if how == "tls" { tls } else { clear };
            [script.to_owned(), address.to_string(), how.to_owned()]
        });
    }
}

#[test]
fn curl_notices_no_proxy() {
    let Some(ways) = Ways::new() else { return };
    let body: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(ways.folder.path().join("payload"), &body).expect("a file");
    for (_, clear, tls, _) in &ways.all {
        for protocol in Protocol::OVER_TCP {
            let address = if protocol.is_tls() { *tls } else { *clear };
            let Some(curl) = Curl::new(ways.folder.path(), protocol, address) else { return };
            for framing in [&[][..], &["-H", "transfer-encoding: chunked"], &["-H", "expect: 100-continue"]] {
                let echo = curl.get("/echo", &[&["--data-binary", "@payload"], framing].concat());
                assert!(echo.status == 200 && echo.body == body, "{protocol} {framing:?}: {}", echo.heads);
            }
            assert_eq!(curl.get("/page", &["--head"]).status, 200, "{protocol}");
            assert_eq!(curl.get("/nowhere", &[]).status, 404, "{protocol}");
        }
    }
}

#[test]
fn chromium_opens_a_page_asks_and_talks() {
    let (Some(chromium), Some(ways)) = (need("chromium"), Ways::new()) else { return };
    for (n, (_, clear, tls, _)) in ways.all.iter().enumerate() {
        for (url, protocol) in
            [(format!("http://{clear}/page"), "http/1.1"), (format!("https://{tls}/page"), "h2")]
        {
            let profile = folder();
            let mut command = Command::new(&chromium);
            command.args([
                "--headless=new",
                "--no-sandbox", // Chromium's sandbox refuses root; the page is ours
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-proxy-server",
                "--ignore-certificate-errors",
                &format!("--user-data-dir={}", profile.path().display()),
                &format!("{url}?{n}-{protocol}"),
            ]);
            let mut browser = Child::spawn(command, None).expect("it starts");
            let prefix = format!("page ?{n}-{protocol} ");
            let outcome = ways
                .server
                .wait_for_line(DEADLINE, |line| Some(line.strip_prefix(&prefix)?.to_owned()))
                .unwrap_or_else(|error| panic!("{url}: {error}: {}\n{}", ways.server.log(), browser.log()));
            assert_eq!(outcome, format!("done {protocol}"), "{url}");
            browser.kill().expect("it runs");
        }
    }
}
