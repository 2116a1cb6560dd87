//! Instances of a sidecar that appear and disappear while requests come: a watched file, Consul's health endpoint, a name; and
//! instances that do not speak what they should.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use h2lab_net::process::Child;

use crate::hostile_servers::{Draws, Row, Speech, start};
use crate::origin::Origin;
use crate::sidecar::{Sidecar, assert_none_lost, post, scripted};
use crate::sidecar_reload::{one, two, until, until_it_answers, until_it_says};
use crate::support::{DEADLINE, folder, need};

/// A sidecar whose service has these keys for its instances. The file is in the folder.
fn sidecar(folder: &std::path::Path, service: &str) -> Sidecar {
    let path = folder.join("sidecar.toml");
    let text = format!("[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n[service.a]\n{service}\n");
    fs::write(&path, text).expect("a file");
    Sidecar::with(&path)
}

/// Replaces a file by rename, as careful writers do.
fn replace(path: &std::path::Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("a file");
    fs::rename(new, path).expect("it is in its place");
}

#[test]
fn a_file_of_instances_is_followed_and_a_broken_one_is_not() {
    let (one, two) = (one(), two());
    let folder = folder();
    let path = folder.path().join("a.json");
    let list = |url: &str| format!(r#"{{"instances": [{{"url": "{url}", "weight": 2}}]}}"#);
    replace(&path, &list(&one));
    let sidecar = sidecar(folder.path(), "file = \"a.json\"");
    until_it_answers(&sidecar, "one");
    replace(&path, &list(&two));
    until_it_answers(&sidecar, "two");
    fs::write(&path, "{\"instances\": [").expect("a file");
    until_it_says(&sidecar, "keeping 1 instance", 1);
    until_it_answers(&sidecar, "two");
    fs::write(&path, list(&one)).expect("written in place");
    until_it_answers(&sidecar, "one");
    until_it_says(&sidecar, "its registry is available again", 1);
    replace(&path, r#"{"instances": []}"#);
    until_it_answers(&sidecar, "the service has no instances\n");
}

#[test]
fn no_request_is_lost_while_instances_come_and_go() {
    let [first, second] = [Origin::start(&[]), Origin::start(&[])];
    for (scheme, policy) in [("h2c", "adaptive"), ("http", "adaptive")] {
        let folder = folder();
        let path = folder.path().join("a.toml");
        let urls = [&first, &second].map(|origin| format!("\"{scheme}://{}\"", origin.clear));
        let lists = [urls[0].clone(), urls.join(", "), urls[1].clone(), urls.join(", ")];
        replace(&path, &format!("instances = [{}]", lists[0]));
        let sidecar = sidecar(folder.path(), &format!("file = \"a.toml\"\npolicy = \"{policy}\""));
        let url = format!("http://{}/anything", sidecar.clear);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let load = scope.spawn(|| {
                let finished = post(&url, &["-c", "16", "-q", "400", "-z", "6s"]);
                is_over.store(true, Ordering::Relaxed);
                finished
            });
            for list in lists.iter().cycle().skip(1) {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                replace(&path, &format!("instances = [{list}]"));
                thread::sleep(Duration::from_millis(600)); // the next one must be noticed, too
            }
            assert_none_lost(&load.join().expect("the load ends"));
        });
        let last = sidecar.stop();
        assert!(last.contains("; none failed"), "{scheme}: {last}");
    }
}

/// Consul's health endpoint with its blocking queries: the list is in a file, and the index is the number of its
/// changes.
const CONSUL: &str = r#"
import http.server, json, os, sys, time, urllib.parse

class Agent(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        if url.path != "/v1/health/service/users" or query.get("passing") != ["true"] or query.get("tag") != ["v1"]:
            return self.answer(404, 0, "no such service: " + self.path)
        if self.headers.get("X-Consul-Token") != "s3cret":
            return self.answer(403, 0, "Permission denied")
        index = int(query.get("index", ["0"])[0])
        print("asked index", index, flush=True)
        until = time.monotonic() + 5
        while True:
            text = open(sys.argv[1]).read()
            now, rest = text.split("\n", 1)
            if int(now) != index or time.monotonic() > until:
                return self.answer(200, now, rest)
            time.sleep(0.02)
    def answer(self, status, index, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Consul-Index", str(index))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
if len(sys.argv) > 2:
    import ssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print("port", server.server_address[1], flush=True)
server.serve_forever()
"#;

/// An instance in Consul's answer. Its tags give its protocol.
fn entry(url: &str) -> String {
    let port = url.rsplit(':').next().expect("a port");
    let tags = if url.starts_with("h2c://") { r#"["v1", "h2c"]"# } else { r#"["v1"]"# };
    format!(
        r#"{{"Node": {{"Node": "n", "Address": "127.0.0.1", "Datacenter": "dc1", "Meta": null}},
            "Service": {{"ID": "users-1", "Service": "users", "Tags": {tags}, "Address": "", "Meta": {{}}, "Port": {port},
                         "Weights": {{"Passing": 1, "Warning": 1}}}},
            "Checks": [{{"CheckID": "service:users", "Status": "passing"}}]}}"#
    )
}

#[test]
fn consul_is_asked_over_tls_if_its_address_says_so() {
    let Some(python) = need("python3") else { return };
    let (one, folder) = (one(), folder());
    let path = folder.path().join("health");
    replace(&path, &format!("7\n[{}]", entry(&one)));
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let [cert, key] = ["own.pem", "own.key"].map(|name| folder.path().join(name));
    std::fs::write(&cert, own.cert.pem()).expect("a file");
    std::fs::write(&key, own.signing_key.serialize_pem()).expect("a file");
    let mut command = Command::new(python);
    command.args(["-c", CONSUL]).args([&path, &cert, &key]);
    let consul = Child::spawn(command, None).expect("python runs");
    let port: u16 = consul
        .wait_for_line(DEADLINE, |line| line.strip_prefix("port ")?.parse().ok())
        .unwrap_or_else(|error| panic!("{error}: {}", consul.log()));
    let keys = |more: &str| {
        format!(
            "consul = {{ address = \"https://127.0.0.1:{port}\", service = \"users\", tag = \"v1\", token = \"s3cret\"{more} }}"
        )
    };
    let sidecar = self::sidecar(folder.path(), &keys(", ca = \"own.pem\""));
    until_it_answers(&sidecar, "one");
    // The token is not sent to an agent whose certificate is not trusted.
    let refused = self::sidecar(folder.path(), &keys(""));
    until_it_says(&refused, "cannot query Consul at https://127.0.0.1", 1);
}

#[test]
fn consuls_healthy_instances_are_followed() {
    let Some(python) = need("python3") else { return };
    let (one, two) = (one(), two());
    let folder = folder();
    let path = folder.path().join("health");
    replace(&path, &format!("7\n[{}]", entry(&one)));
    let mut command = Command::new(python);
    command.args(["-c", CONSUL]).arg(&path);
    let consul = Child::spawn(command, None).expect("python runs");
    let port: u16 = consul
        .wait_for_line(DEADLINE, |line| line.strip_prefix("port ")?.parse().ok())
        .unwrap_or_else(|error| panic!("{error}: {}", consul.log()));
    let keys = |token: &str| {
        format!(
            "consul = {{ address = \"http://127.0.0.1:{port}\", service = \"users\", tag = \"v1\", token = \"{token}\", wait = \"2s\" }}"
        )
    };
    let sidecar = self::sidecar(folder.path(), &keys("s3cret"));
    until_it_answers(&sidecar, "one");
    replace(&path, &format!("8\n[{}]", entry(&two)));
    until_it_answers(&sidecar, "two");
    // If no instance is healthy, requests still go to the known ones; an index that goes back starts again.
    replace(&path, "9\n[]");
    until_it_says(&sidecar, "no healthy instance of users; keeping 1 instance", 1);
    until_it_answers(&sidecar, "two");
    replace(&path, &format!("3\n[{}]", entry(&one)));
    until_it_answers(&sidecar, "one");
    let asked =
        |index: &str| consul.log().lines().filter(|line| *line == format!("asked index {index}")).count();
    until(|| asked("0") > 1 && asked("3") > 0 && asked("7") > 0, || consul.log());
    // This instance speaks only HTTP/2 by prior knowledge.
    let row: Row = toml::from_str("each = ['serve']").expect("a row");
    let address = start(&row, Speech::H2c, 0, &mut Draws::new(1, "good")).expect("a free port");
    replace(&path, &format!("10\n[{}]", entry(&format!("h2c://{address}"))));
    until_it_answers(&sidecar, "hello");
    let refused = self::sidecar(folder.path(), &keys("wrong"));
    until_it_says(&refused, "answered 403: Permission denied", 1);
    assert!(!refused.child.log().contains("wrong"), "{}", refused.child.log());
}

#[test]
fn all_addresses_of_a_name_are_instances() {
    let one = one();
    let port = one.rsplit(':').next().expect("a port");
    let folder = folder();
    let sidecar = sidecar(folder.path(), &format!("dns = \"http://localhost:{port}\"\nrefresh = \"1s\""));
    until_it_answers(&sidecar, "one");
}

#[test]
fn an_instance_that_speaks_no_http2_gets_http1_and_loses_no_request() {
    let (url, heads) = scripted(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\none"));
    });
    let sidecar = Sidecar::to(&[url.replace("http://", "h2c://")], &[]);
    for n in 0..3 {
        let told =
            sidecar.ask("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx");
        assert!(told.starts_with("HTTP/1.1 200 ") && told.ends_with("one"), "{n}: {told}");
    }
    until_it_says(&sidecar, "does not support HTTP/2: falling back to HTTP/1.1", 1);
    let asked: Vec<String> = heads.try_iter().collect();
    assert_eq!(
        asked.iter().filter(|head| head.starts_with("PRI ")).count(),
        1,
        "it is remembered: {asked:?}"
    );
}
