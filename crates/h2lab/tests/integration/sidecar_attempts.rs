//! Attempts that take too long, checks of instances that are busy, and names that have no address yet.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rustix::process::Signal;

use crate::sidecar_admin::Watched;
use crate::sidecar_clients::metric;
use crate::sidecar_guard::{get, response, server};
use crate::sidecar_reload::until;
use crate::support::{DEADLINE, Finished, binary, folder, need};

/// A sidecar for the service `a`, with an admin listener; `more` follows `[service.a]`.
fn sidecar(folder: &tempfile::TempDir, more: &str) -> Watched {
    let config = folder.path().join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[admin]\naddress = '127.0.0.1:0'\n[service.a]\n{more}\n"
    );
    fs::write(&config, text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(config);
    Watched::run(command)
}

/// A connection on which this request was sent.
fn asking(sidecar: &Watched, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(sidecar.clear).expect("it accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

fn ask(sidecar: &Watched, request: &str) -> String {
    let mut told = String::new();
    asking(sidecar, request).read_to_string(&mut told).expect("all of it");
    told
}

fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi")
}

/// An instance that never answers, and how often it was asked.
fn silent() -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let url = server(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        None
    });
    (url, asked)
}

#[test]
fn what_is_safe_goes_elsewhere_when_an_attempt_takes_too_long() {
    let (silent, asked) = silent();
    let good = server(|_| Some(response(200, "good")));
    let folder = folder();
    let more = format!(
        "instances = ['{silent}', '{good}']\ntimeouts = {{ attempt = '300ms', response = '1h' }}\n\
         retry = {{ attempts = 10, per-second = 1000 }}\noutlier = {{ consecutive = 0, failures = 0 }}"
    );
    let sidecar = sidecar(&folder, &more);
    until(
        || {
            let told = ask(&sidecar, &get("/", ""));
            assert!(told.starts_with("HTTP/1.1 200 ") && told.ends_with("good"), "{told}");
            asked.load(Ordering::SeqCst) > 0
        },
        || "the silent one is never asked".to_owned(),
    );
    assert!(metric(&sidecar, "retries_total{reason=\"attempt-timeout\"}") >= 1);
    assert!(metric(&sidecar, "attempts_failed_total{service=\"a\"}") >= 1, "it counts against the instance");
    sidecar.stop();
}

#[test]
fn what_may_have_arrived_and_is_not_safe_is_never_sent_twice() {
    let (silent, asked) = silent();
    let folder = folder();
    let more = format!(
        "instances = ['{silent}']\ntimeouts = {{ attempt = '20ms', response = '1s' }}\n\
         retry = {{ attempts = 2, per-second = 1000 }}\noutlier = {{ consecutive = 0, failures = 0 }}"
    );
    let sidecar = sidecar(&folder, &more);
    let told = ask(&sidecar, &post("/"));
    assert!(told.starts_with("HTTP/1.1 504 ") && told.contains("no response from an instance"), "{told}");
    assert_eq!(asked.load(Ordering::SeqCst), 1, "a POST is sent once");
    let told = ask(&sidecar, &get("/", ""));
    assert!(told.starts_with("HTTP/1.1 504 "), "{told}");
    assert_eq!(asked.load(Ordering::SeqCst), 4, "and a GET as often as it may");
    sidecar.stop();
}

#[test]
fn what_waits_for_a_connection_goes_elsewhere_whatever_its_method() {
    let (sender, has_asked) = mpsc::channel();
    let full = server(move |_| {
        let _ = sender.send(());
        None
    });
    let good = server(|_| Some(response(200, "good")));
    let folder = folder();
    // Almost all requests go to the first instance, which has one connection.
    let more = format!(
        "instances = [{{ url = '{full}', weight = 1000 }}, '{good}']\nlimits = {{ connections = 1 }}\n\
         timeouts = {{ attempt = '200ms', response = '1h' }}\noutlier = {{ consecutive = 0, failures = 0 }}"
    );
    let sidecar = sidecar(&folder, &more);
    let _held = loop {
        let mut stream = asking(&sidecar, &post("/held"));
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("above zero");
        let mut space = [0; 1];
        let is_held = loop {
            if has_asked.try_recv().is_ok() {
                break true;
            }
            if stream.read(&mut space).is_ok() {
                break false; // the other instance has answered
            }
        };
        if is_held {
            break stream;
        }
    };
    for _ in 0..3 {
        let told = ask(&sidecar, &post("/"));
        assert!(told.starts_with("HTTP/1.1 200 ") && told.ends_with("good"), "{told}");
    }
    sidecar.stop();
}

#[test]
fn a_check_of_a_busy_instance_waits_before_the_others_and_does_not_fail_for_them() {
    let (sender, has_asked) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let busy = server(move |head| {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        if path == "/held" {
            sender.send(path).expect("the test waits");
            let _ = released.lock().map(|released| released.recv());
        } else {
            sender.send(path).expect("the test waits");
        }
        Some(response(200, "ok"))
    });
    let folder = folder();
    let more = format!("instances = ['{busy}']\nlimits = {{ connections = 1, waiting = 1 }}");
    let path = folder.path().join("sidecar.toml");
    let sidecar = sidecar(&folder, &more);
    let _held = asking(&sidecar, &post("/held"));
    assert_eq!(has_asked.recv_timeout(DEADLINE).expect("it is asked"), "/held");
    let _waits = asking(&sidecar, &post("/waits"));
    let waiting = || metric(&sidecar, &format!("requests_waiting{{service=\"a\",instance=\"{busy}\"}}"));
    until(|| waiting() >= 1, || sidecar.child.log());
    let health = "health = { path = '/healthz', interval = '1h', timeout = '1h', unhealthy = 1 }\n";
    let text = fs::read_to_string(&path).expect("a file") + health;
    fs::write(&path, text).expect("a file");
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until(|| waiting() >= 2, || sidecar.child.log());
    release.send(()).expect("the server waits");
    let next = || has_asked.recv_timeout(DEADLINE).expect("it is asked");
    assert_eq!([next(), next()], ["/healthz", "/waits"]);
    assert!(metric(&sidecar, "health_checks_failed_total{service=\"a\"}") == 0, "{}", sidecar.child.log());
    assert!(metric(&sidecar, "limits_reached_total{service=\"a\",limit=\"waiting\"}") == 0);
    sidecar.stop();
}

#[test]
fn an_instance_that_is_listed_twice_is_one() {
    let good = server(|_| Some(response(200, "good")));
    let folder = folder();
    let sidecar = sidecar(&folder, &format!("instances = ['{good}', '{good}']"));
    assert!(ask(&sidecar, &get("/", "")).ends_with("good"));
    let metrics = sidecar.get("/metrics").1;
    assert_eq!(metrics.matches("h2lab_sidecar_instance_up{").count(), 1, "{metrics}");
    sidecar.stop();
}

#[test]
fn a_reload_is_counted_whatever_comes_of_it() {
    let good = server(|_| Some(response(200, "good")));
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let sidecar = sidecar(&folder, &format!("instances = ['{good}']"));
    let reloads =
        || ["ok", "failed"].map(|of| metric(&sidecar, &format!("reloads_total{{result=\"{of}\"}}")));
    let is_right = || metric(&sidecar, "config_last_reload_successful");
    let read_at = metric(&sidecar, "config_last_reload_success_timestamp_seconds");
    let hash = metric(&sidecar, "config_hash");
    assert_eq!((reloads(), is_right()), ([0, 0], 1));
    assert!(read_at > 1_000_000_000, "since 1970");
    let right = fs::read_to_string(&path).expect("a file");
    fs::write(&path, "[[listen").expect("a file");
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until(|| reloads() == [0, 1], || sidecar.child.log());
    assert_eq!((is_right(), metric(&sidecar, "config_hash")), (0, hash), "what was before stays");
    let page = sidecar.get("/").1;
    assert!(page.contains("The last reload failed"), "{page}");
    fs::write(&path, right + "[timeouts]\nconnect = '7s'\n").expect("a file");
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until(|| reloads() == [1, 1], || sidecar.child.log());
    assert_eq!(is_right(), 1);
    assert_ne!(metric(&sidecar, "config_hash"), hash);
    sidecar.stop();
}

/// A sidecar in a namespace whose names come from a file: one name is used before it has an address, and afterwards.
const NAMES: &str = r#"
import http.server, subprocess, sys, threading, time, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200); self.send_header("content-length", "3"); self.end_headers(); self.wfile.write(b"one")
    def log_message(self, *_): pass
threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", 8001), Handler).serve_forever, daemon=True).start()
sidecar = subprocess.Popen([sys.argv[1], "sidecar", "--config", sys.argv[2]], stdout=subprocess.PIPE, text=True)
lines = iter(sidecar.stdout)
url = next(line for line in lines if line.startswith("listening ")).split()[1]
admin = next(line for line in lines if line.startswith("admin ")).split()[1]
def get(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer: return 200, answer.read().decode(), ""
    except urllib.error.HTTPError as error: return error.code, error.read().decode(), error.headers.get("proxy-status")
code, body, status = get(url)
print(code, body.strip(), status)
print([line for line in get(admin + "/metrics")[1].splitlines() if "unresolved{" in line])
print("page" if "cannot resolve late.internal" in get(admin + "/")[1] else "no word on the page")
with open("/etc/hosts", "a") as hosts: hosts.write("127.0.0.1 late.internal\n")
end = time.monotonic() + 60
while get(url)[0] != 200 and time.monotonic() < end: time.sleep(0.05)
print(get(url)[:2])
print([line for line in get(admin + "/metrics")[1].splitlines() if "unresolved{" in line])
sidecar.terminate(); sidecar.wait()
"#;

#[test]
fn it_starts_before_names_have_addresses_and_finds_them_when_they_have() {
    let (Some(python), Some(unshare)) = (need("python3"), need("unshare")) else { return };
    let folder = folder();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let (script, hosts) = (write("names.py", NAMES), write("hosts", "127.0.0.1 localhost\n"));
    let (resolv, nss) = (write("resolv.conf", ""), write("nsswitch.conf", "hosts: files\n"));
    let config = write(
        "sidecar.toml",
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[admin]\naddress = '127.0.0.1:0'\n\
         [service.a]\ninstances = ['http://late.internal:8001']\n",
    );
    let mut command = Command::new(unshare);
    let inside = "ip link set lo up && mount --bind \"$1\" /etc/hosts && mount --bind \"$2\" /etc/resolv.conf && \
                  mount --bind \"$3\" /etc/nsswitch.conf && shift 3 && exec \"$@\"";
    command.args(["--user", "--map-root-user", "--net", "--mount", "--kill-child", "sh", "-c", inside, "sh"]);
    command.args([hosts, resolv, nss, python, script, binary(), config]);
    let mut command = assert_cmd::Command::from_std(command);
    let finished: Finished = command.timeout(3 * DEADLINE).output().expect("it ends").into();
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let lines: Vec<&str> = finished.stdout.lines().collect();
    let [first, unresolved, page, then, resolved] = lines[..] else { panic!("{}", finished.transcript()) };
    assert!(
        first.starts_with("503 the service has no instances: their names do not resolve yet "),
        "{first}"
    );
    assert!(first.contains("; error=dns_error; ") && !first.contains("late.internal"), "{first}");
    assert_eq!(unresolved, r#"['h2lab_sidecar_instances_unresolved{service="a"} 1']"#);
    assert_eq!((page, then), ("page", "(200, 'one')"));
    assert_eq!(resolved, r#"['h2lab_sidecar_instances_unresolved{service="a"} 0']"#);
    for words in [
        "service a: cannot resolve late.internal: ",
        "retrying until it resolves",
        "service a: late.internal resolved to 127.0.0.1",
    ] {
        assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
    }
}
