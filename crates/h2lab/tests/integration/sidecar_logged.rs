//! What the sidecar logs and counts beside requests that end well: what it refuses itself, how clients end, its own
//! health checks.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::origin::Origin;
use crate::sidecar::websocket_echo;
use crate::sidecar_admin::Watched;
use crate::support::{DEADLINE, binary, folder};

/// A sidecar whose file has these lines beside its log and its admin listener.
fn configured(folder: &Path, more: &str) -> (Watched, PathBuf) {
    let (path, log) = (folder.join("sidecar.toml"), folder.join("log"));
    let text = format!(
        "{more}\n[admin]\naddress = '127.0.0.1:0'\n[log]\nfile = '{}'\nformat = 'json'\n",
        log.display()
    );
    fs::write(&path, text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(path);
    (Watched::run(command), log)
}

/// The same for the service `a` with one instance.
fn to_instance(folder: &Path, url: &str, more: &str) -> (Watched, PathBuf) {
    let service = format!("[service.a]\ninstances = ['{url}']\n{more}");
    configured(folder, &format!("listen = [{{ address = '127.0.0.1:0', service = 'a' }}]\n{service}"))
}

/// The complete lines: the last one may still be in the middle of being written.
fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).expect("a log");
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn until<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(done) = what() {
            return done;
        }
        assert!(began.elapsed() < DEADLINE, "it does not come");
        thread::yield_now();
    }
}

/// Sends this, and reads to the end.
fn say(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).expect("it accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    stream.write_all(bytes).expect("it reads");
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

/// The value of a metric without labels.
fn metric(watched: &Watched, name: &str) -> Option<String> {
    let text = watched.get("/metrics").1;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned))
}

fn is_of(line: &Value, status: u16, reason: &str) -> bool {
    line["status"] == status && line["failed"].as_str().is_some_and(|failed| failed.contains(reason))
}

#[test]
fn what_the_sidecar_refuses_by_itself_is_logged_and_counted() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let (watched, log) = to_instance(folder.path(), &format!("h2c://{}", origin.clear), "");
    let to = watched.clear;
    let oversized = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
    for (request, status) in [
        ("GET / HTTP/1.1\r\nbad header: 1\r\n\r\n", " 400 "),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n", " 501 "),
        ("GET / HTTP/3.0\r\nhost: a\r\n\r\n", " 505 "),
    ] {
        let answer = say(to, request.as_bytes());
        let is_ours = answer.contains("proxy-status: h2lab; error=http_request_error; details=\"");
        assert!(answer.contains(status) && is_ours, "{request}: {answer}");
    }
    // The answer may be lost if the client continues to send.
    let mut stream = TcpStream::connect(to).expect("it accepts");
    let _ = stream.write_all(oversized.as_bytes());
    until(|| (metric(&watched, "h2lab_sidecar_bad_requests_total")? == "4").then_some(()));
    drop(stream);
    watched.stop();
    let lines = lines(&log);
    for (status, reason) in [
        (400, "field name"),
        (501, "transfer-encoding other than"),
        (505, "not HTTP/1.x"),
        (431, "larger than our limit"),
    ] {
        let line = lines.iter().find(|line| is_of(line, status, reason));
        let line = line.unwrap_or_else(|| panic!("{status}: {lines:?}"));
        assert_eq!(line["client"], "127.0.0.1", "{line}");
        assert!(["method", "authority", "path"].iter().all(|key| line.get(key).is_none()), "{line}");
    }
    assert_eq!(lines.len(), 4, "{lines:?}");
}

#[test]
fn the_log_says_who_ended_a_request() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let (watched, log) = to_instance(folder.path(), &format!("h2c://{}", origin.clear), "");
    let chunk = b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
    assert!(say(watched.clear, chunk).contains(" 400 "));
    // A request over HTTP/2 that announces 5 bytes and has 3.
    let mut request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let block = [0x83, 0x86, 0x84, 0x01, 1, b'a', 0x0f, 0x0d, 1, b'5'];
    request.extend([0, 0, block.len() as u8, 1, 4, 0, 0, 0, 1]);
    request.extend(block);
    request.extend([0, 0, 3, 0, 1, 0, 0, 0, 1, b'a', b'b', b'c']);
    let mut stream = TcpStream::connect(watched.clear).expect("it accepts");
    stream.write_all(&request).expect("it reads");
    let has = |status: u16, reason: &str| lines(&log).iter().any(|line| is_of(line, status, reason));
    until(|| {
        (has(0, "is malformed: its stream was reset") && has(400, "invalid HTTP/1.1 from the client"))
            .then_some(())
    });
    drop(stream);
    watched.stop();
    assert!(lines(&log).iter().all(|line| line["failed"] != "the client disconnected"));
}

#[test]
fn a_check_of_health_is_no_request_of_a_client() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let health = "health = { path = '/status/404', interval = '100ms', unhealthy = 1000 }";
    let (watched, log) = to_instance(folder.path(), &format!("h2c://{}", origin.clear), health);
    until(|| {
        let failed = metric(&watched, "h2lab_sidecar_health_checks_failed_total{service=\"a\"}")?;
        (failed.parse::<u64>().ok()? >= 3).then_some(())
    });
    let text = watched.get("/metrics").1;
    assert!(!text.lines().any(|line| line.starts_with("h2lab_sidecar_requests_total{")), "{text}");
    watched.stop();
    assert_eq!(fs::read_to_string(&log).expect("a log"), "");
}

#[test]
fn who_speaks_no_tls_is_logged_and_counted() {
    let folder = folder();
    let (watched, log) = configured(
        folder.path(),
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[[listen]]\naddress = '127.0.0.1:0'\ntls = true\nservice = 'a'\n\
         [service.a]\ninstances = ['http://127.0.0.1:1']",
    );
    let to: SocketAddr = watched
        .child
        .wait_for_line(DEADLINE, |line| line.strip_prefix("listening https://")?.parse().ok())
        .expect("it listens");
    say(to, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    until(|| (metric(&watched, "h2lab_sidecar_tls_failures_total")? == "1").then_some(()));
    watched.stop();
    let lines = lines(&log);
    assert!(
        lines.len() == 1 && is_of(&lines[0], 0, "TLS handshake failed: the client does not speak TLS"),
        "{lines:?}"
    );
    assert!(lines[0].get("version").is_none(), "{lines:?}");
}

#[test]
fn a_websocket_is_logged_with_the_status_that_its_client_was_given() {
    let (one, two) = (folder(), folder());
    let (far, log) = to_instance(one.path(), &websocket_echo(), "");
    let (near, near_log) = to_instance(two.path(), &format!("h2c://{}", far.clear), "");
    let mut client = TcpStream::connect(near.clear).expect("it accepts");
    client.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    let handshake = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                     sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    client.write_all(handshake.as_bytes()).expect("it reads");
    let mut start = [0; 13];
    client.read_exact(&mut start).expect("an answer");
    assert_eq!(&start, b"HTTP/1.1 101 ");
    drop(client);
    let status = |log: &Path| until(|| lines(log).first().map(|line| line["status"].clone()));
    assert_eq!((status(&near_log), status(&log)), (101.into(), 200.into()));
}

#[test]
fn an_instance_that_cannot_be_reached_is_one_error_of_its_service() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let folder = folder();
    let (watched, _) = to_instance(folder.path(), &format!("h2c://{closed}"), "");
    let answer = say(watched.clear, b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let status: Value = serde_json::from_str(&watched.get("/status").1).expect("JSON");
    let errors = status["errors"].as_array().expect("errors");
    assert_eq!(
        (errors.len(), &errors[0]["service"], &errors[0]["status"]),
        (1, &"a".into(), &502.into()),
        "{status}"
    );
    watched.stop();
}
