//! Instances whose name has several addresses, in namespaces of their own, where the names are under the test's
//! control.

use std::fs;
use std::process::Command;

use crate::support::{DEADLINE, Finished, binary, folder, need};

/// Servers at two addresses, and a client of sidecars. Ends with 0 if all is right.
const SCRIPT: &str = r#"
import http.server, socket, subprocess, sys, threading, urllib.request
first, second = [a[4][0] for a in socket.getaddrinfo("both.test", 1, type=socket.SOCK_STREAM)]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = self.server.server_address[0].encode()
        self.send_response(200); self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close"); self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass
def serve(address, port):
    server = http.server.ThreadingHTTPServer((address, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
started = []
def sidecar(port):
    with open(sys.argv[2], "w") as file: file.write(f'''
[[listen]]
address = "127.0.0.1:0"
service = "a"
[service.a]
instances = ["http://both.test:{port}"]
[timeouts]
connect = "1h"
response = "1h"
''')
    child = subprocess.Popen([sys.argv[1], "sidecar", "--config", sys.argv[2]], stdout=subprocess.PIPE, text=True)
    started.append(child)
    url = next(line for line in child.stdout if line.startswith("listening ")).split()[1]
    return lambda: urllib.request.urlopen(url, timeout=60).read().decode()
def is_told(what, ask, address, times=1):
    told = {ask() for _ in range(times)}
    if told != {address}: sys.exit(f"{what}: {told} and not {address}")
# At the first address nobody listens.
other = serve(second, 8001)
ask = sidecar(8001)
is_told("the first refuses", ask, second)
serve(first, 8001)
is_told("the one that answered last is tried first", ask, second, 5)
other.shutdown(); other.server_close()
is_told("the second refuses", ask, first, 5)
# The first takes no further connection, and says nothing.
silent = socket.socket(); silent.bind((first, 8002)); silent.listen(0)
filling = []
while True:
    one = socket.socket(); one.settimeout(1); filling.append(one)
    try: one.connect((first, 8002))
    except TimeoutError: break
serve(second, 8002)
is_told("the first does not answer", sidecar(8002), second, 5)
for child in started: child.terminate()
sys.exit(max(child.wait() for child in started))
"#;

#[test]
fn an_instance_is_looked_for_at_all_addresses_of_its_name() {
    let (Some(python), Some(unshare), Some(_)) = (need("python3"), need("unshare"), need("ip")) else {
        return;
    };
    let folder = folder();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let hosts = write("hosts", "127.0.0.1 localhost\n127.0.0.2 both.test\n127.0.0.3 both.test\n");
    let (script, resolv, nss) =
        (write("script.py", SCRIPT), write("resolv.conf", ""), write("nsswitch.conf", "hosts: files\n"));
    let config = folder.path().join("sidecar.toml");
    let mut command = Command::new(unshare);
    let inside = "ip link set lo up && mount --bind \"$1\" /etc/hosts && mount --bind \"$2\" /etc/resolv.conf && \
                  mount --bind \"$3\" /etc/nsswitch.conf && shift 3 && exec \"$@\"";
    command.args(["--user", "--map-root-user", "--net", "--mount", "--kill-child", "sh", "-c", inside, "sh"]);
    command.args([hosts, resolv, nss, python, script, binary(), config]);
    let mut command = assert_cmd::Command::from_std(command);
    let finished: Finished = command.timeout(3 * DEADLINE).output().expect("it ends").into();
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
}
