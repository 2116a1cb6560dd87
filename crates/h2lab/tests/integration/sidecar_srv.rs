//! Instances by the records of a real name server, in namespaces of their own: only there can the test set the servers
//! of resolv.conf(5).

use std::fs;
use std::process::Command;

use crate::support::{DEADLINE, Finished, binary, folder, need};

/// A name server, two instances and a client of the sidecar, whose binary and file are the arguments. Ends with 0 if all is right.
const SCRIPT: &str = r#"
import http.server, socket, struct, subprocess, sys, threading, time, urllib.request
records = []
def instance(body, port):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def do_GET(self):
            self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
            self.wfile.write(body)
        def log_message(self, *_): pass
    threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever, daemon=True).start()
def names(server):
    while True:
        query, peer = server.recvfrom(4096)
        end = 12
        while query[end]: end += query[end] + 1
        end += 5
        target = b"\x09localhost\x00"
        answer = lambda record: b"\xc0\x0c" + struct.pack(">HHIHHHH", 33, 1, 1, 6 + len(target), *record) + target
        counts = struct.pack(">HHHH", 1, len(records), 0, 0)
        server.sendto(query[:2] + b"\x81\x80" + counts + query[12:end] + b"".join(map(answer, records)), peer)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
threading.Thread(target=names, args=(server,), daemon=True).start()
instance(b"one", 8001)
instance(b"two", 8002)
records[:] = [(0, 1, 8001)]
sidecar = subprocess.Popen([sys.argv[1], "sidecar", "--config", sys.argv[2]], stdout=subprocess.PIPE, text=True)
url = next(line for line in sidecar.stdout if line.startswith("listening ")).split()[1]
def ask():
    try: return urllib.request.urlopen(url, timeout=60).read()
    except OSError as error: return str(error)
def until(what):
    end = time.monotonic() + 60
    while not what():
        if time.monotonic() > end: sys.exit(f"it never is so: {records}, {ask()}")
        time.sleep(0.02)
until(lambda: ask() == b"one")
records[:] = [(0, 1, 8002)]
until(lambda: ask() == b"two")
records[:] = [(0, 1, 8001), (0, 1, 8002)]
until(lambda: {ask() for _ in range(50)} == {b"one", b"two"})
records[:] = [(0, 1, 8001), (9, 1, 8002)] # of another priority
until(lambda: {ask() for _ in range(50)} == {b"one"})
records[:] = [] # it keeps what it knows
until(lambda: ask() == b"one")
sidecar.terminate()
sys.exit(sidecar.wait())
"#;

/// The same where a name has several addresses: the name server answers questions for A and AAAA with `addresses` of that family.
const ADDRESSES: &str = r#"
import http.server, socket, struct, subprocess, sys, threading, time, urllib.request
addresses = ["127.0.0.2"]
family = lambda address: socket.AF_INET6 if ":" in address else socket.AF_INET
def instance(address):
    class Server(http.server.ThreadingHTTPServer):
        address_family = family(address)
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def do_GET(self):
            self.send_response(200); self.send_header("content-length", str(len(address))); self.end_headers()
            self.wfile.write(address.encode())
        def log_message(self, *_): pass
    threading.Thread(target=Server((address, 8001), Handler).serve_forever, daemon=True).start()
def names(server):
    while True:
        query, peer = server.recvfrom(4096)
        end = 12
        while query[end]: end += query[end] + 1
        kind = struct.unpack(">H", query[end + 1 : end + 3])[0]
        end += 5
        of = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
        found = [socket.inet_pton(of, address) for address in addresses if family(address) == of]
        answer = lambda data: b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 1, len(data)) + data
        counts = struct.pack(">HHHH", 1, len(found), 0, 0)
        server.sendto(query[:2] + b"\x81\x80" + counts + query[12:end] + b"".join(map(answer, found)), peer)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
threading.Thread(target=names, args=(server,), daemon=True).start()
for address in ("127.0.0.2", "127.0.0.3", "127.0.0.4", "::1"): instance(address)
sidecar = subprocess.Popen([sys.argv[1], "sidecar", "--config", sys.argv[2]], stdout=subprocess.PIPE, text=True)
url = next(line for line in sidecar.stdout if line.startswith("listening ")).split()[1]
def ask():
    try: return urllib.request.urlopen(url, timeout=60).read().decode()
    except OSError as error: return str(error)
def until(*wanted):
    addresses[:] = wanted
    end = time.monotonic() + 60
    while {ask() for _ in range(50)} != set(wanted):
        if time.monotonic() > end: sys.exit(f"it never is so: {addresses}, {ask()}")
        time.sleep(0.02)
until("127.0.0.2")
until("127.0.0.2", "127.0.0.3")
until("127.0.0.3", "127.0.0.4")
until("127.0.0.4", "::1")
until("127.0.0.4")
until("::1")
addresses[:] = [] # it keeps what it knows
for _ in range(30):
    time.sleep(0.1)
    if ask() != "::1": sys.exit("it is gone")
sidecar.terminate()
sys.exit(sidecar.wait())
"#;

#[test]
fn service_records_of_a_name_server_are_followed() {
    follow(SCRIPT, "dns-srv = \"_http._tcp.users.test\"");
}

#[test]
fn the_addresses_of_a_name_are_followed_in_both_families() {
    follow(ADDRESSES, "dns = \"http://users.test:8001\"");
}

/// Runs a script for a sidecar whose service is resolved in this way once a second.
#[track_caller]
fn follow(script: &str, service: &str) {
    let (Some(python), Some(unshare), Some(_)) = (need("python3"), need("unshare"), need("ip")) else {
        return;
    };
    let folder = folder();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let script = path("script.py", script);
    let resolv = path("resolv.conf", "nameserver 127.0.0.1\n");
    let hosts = path("hosts", "127.0.0.1 localhost\n");
    let config = path(
        "sidecar.toml",
        &format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n[service.a]\n{service}\nrefresh = \"1s\"\n"
        ),
    );
    let inside = "ip link set lo up && mount --bind \"$1\" /etc/resolv.conf && mount --bind \"$2\" /etc/hosts && shift 2 && exec \"$@\"";
    let mut command = Command::new(unshare);
    command.args(["--user", "--map-root-user", "--net", "--mount", "--kill-child", "sh", "-c", inside, "sh"]);
    command.args([&resolv, &hosts]).arg(python).arg(script).arg(binary()).arg(config);
    let mut command = assert_cmd::Command::from_std(command);
    let finished: Finished = command.timeout(3 * DEADLINE).output().expect("it ends").into();
    assert_eq!(finished.code, Some(0), "{}\n{}", finished.stdout, finished.stderr);
}
