//! What a sidecar does when the system runs out of what it needs: file descriptors, local ports.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Instant;

use crate::origin::Origin;
use crate::sidecar_admin::Watched;
use crate::sidecar_reload::until;
use crate::support::{DEADLINE, Finished, binary, folder, need};

/// Files that the sidecar may have open.
const FILES: usize = 64;
const GET: &str = "GET /status/204 HTTP/1.1\r\nhost: a\r\n\r\n";

/// A sidecar that may have only [`FILES`] files open, on `threads` threads. `more` follows its listener.
fn narrow(folder: &std::path::Path, threads: usize, more: &str) -> Watched {
    let config = folder.join("sidecar.toml");
    let text = format!(
        "threads = {threads}\nmax-clients = {}\n[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n\
         route = [{{ path = '/other', service = 'other' }}]\n[admin]\naddress = '127.0.0.1:0'\n\
         [timeouts]\nclient-idle = '0'\n{more}",
        10 * FILES // more than there are files for
    );
    fs::write(&config, text).expect("a file");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {FILES} && exec \"$@\""), "sh"]);
    command.arg(binary()).arg("sidecar").arg("--config").arg(config);
    Watched::run(command)
}

fn client(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the kernel establishes it");
    stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
    stream
}

/// Sends a request; returns the head of the response, and reads its body.
fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("it reads");
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        let n = stream.read(&mut byte).expect("in time");
        assert_eq!(n, 1, "it ended: {}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    stream.read_exact(&mut body).expect("in time");
    head + &String::from_utf8_lossy(&body)
}

/// How often a sidecar found this resource exhausted.
fn exhausted(sidecar: &Watched, what: &str) -> Option<u64> {
    let metrics = sidecar.get("/metrics").1;
    let name = format!("h2lab_sidecar_exhausted_total{{what=\"{what}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
}

#[test]
fn without_file_descriptors_clients_wait_and_those_that_are_there_go_on() {
    let (origin, other) = (Origin::start(&[]), Origin::start(&[]));
    for threads in [1, 2] {
        let folder = folder();
        let services = format!(
            "[service.a]\ninstances = ['h2c://{}']\n[service.other]\ninstances = ['h2c://{}']\n",
            origin.clear, other.clear
        );
        let sidecar = narrow(folder.path(), threads, &services);
        let mut first: Vec<TcpStream> = (0..threads).map(|_| client(sidecar.clear)).collect();
        for stream in &mut first {
            assert!(ask(stream, GET).starts_with("HTTP/1.1 204 "));
        }
        let began = Instant::now();
        let mut others: Vec<TcpStream> = (0..2 * FILES).map(|_| client(sidecar.clear)).collect();
        for stream in &mut others {
            stream.write_all(GET.as_bytes()).expect("the kernel takes it");
        }
        let line = "not accepting new connections for now: out of file descriptors; the limit of this process is 64: raise LimitNOFILE";
        let told = || sidecar.child.log().matches(line).count();
        until(|| told() >= 1, || sidecar.child.log());
        // Connected clients are served, over the existing connection.
        for _ in 0..3 {
            for stream in &mut first {
                assert!(ask(stream, GET).starts_with("HTTP/1.1 204 "));
            }
        }
        // A request that needs another connection fails, and the instance is not blamed.
        let refused = ask(&mut first[0], "GET /other HTTP/1.1\r\nhost: a\r\n\r\n");
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 1\r\n"), "{refused}");
        let words = "service other is unreachable: the proxy is out of file descriptors";
        assert!(refused.contains("error=connection_limit_reached") && refused.contains(words), "{refused}");
        let detail =
            format!("h2c://{}: out of file descriptors; the limit of this process is 64", other.clear);
        until(|| sidecar.child.log().contains(&detail), || sidecar.child.log());
        // Clients that wait are served once there are descriptors again: in their order, all of them.
        others.drain(..FILES + FILES / 2);
        for stream in &mut others {
            let mut status = [0; 13];
            stream.read_exact(&mut status).expect("in time");
            assert_eq!(&status, b"HTTP/1.1 204 ");
        }
        let lines = told() as u64;
        drop((first, others));
        let (times, took) = (exhausted(&sidecar, "files").expect("a metric"), began.elapsed());
        assert!(times >= 2, "{times}");
        // Each failure of accept is followed by a pause of 50 ms, and each failed dial, too: it does not spin. Log
        // lines: one in ten seconds.
        let most = 2 * (took.as_millis() as u64 / 10 + 10);
        assert!(times <= most, "{times} times in {took:?}");
        assert!(lines <= 1 + took.as_secs() / 10, "{lines} lines in {took:?}");
        let mut again = client(sidecar.clear);
        let told = ask(&mut again, "GET /other HTTP/1.1\r\nhost: a\r\n\r\n");
        assert!(told.starts_with("HTTP/1.1 404 "), "the other service is reached again: {told}");
        sidecar.stop();
    }
}

/// Prints the answers to a request while all ports are taken, and after they are free again. Arguments: the binary.
const PORTS: &str = "import socket, subprocess, sys, time
def listening(process, prefix):
    for line in process.stdout:
        if line.startswith(prefix):
            return int(line.strip().split(':')[-1])
def run(*arguments):
    return subprocess.Popen([sys.argv[1], *arguments], stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
def ask(stream, path):
    stream.sendall(b'GET ' + path + b' HTTP/1.1\\r\\nhost: a\\r\\n\\r\\n')
    told = b''
    while b'\\r\\n\\r\\n' not in told:
        piece = stream.recv(65536)
        if not piece:
            break
        told += piece
    return told.decode()
server = socket.create_server(('127.0.0.1', 8080))
sidecar = run('sidecar', '--listen', '127.0.0.1:8000', '--to', 'http://127.0.0.1:8080')
listening(sidecar, 'listening http://')
client = socket.create_connection(('127.0.0.1', 8000))
with open('/proc/sys/net/ipv4/ip_local_port_range', 'w') as file:
    file.write('40000 40003')
held = []
while True:
    stream = socket.socket()
    try:
        stream.connect(('127.0.0.1', 8080))
    except OSError:
        break
    held.append(stream)
    held.append(server.accept()[0])
print(ask(client, b'/'))
for stream in held:
    # Without TIME_WAIT, in which the ports would stay taken.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\\1\\0\\0\\0\\0\\0\\0\\0')
    stream.close()
client = socket.create_connection(('127.0.0.1', 8000))
client.sendall(b'GET / HTTP/1.1\\r\\nhost: a\\r\\n\\r\\n')
stream = server.accept()[0]
stream.recv(65536)
stream.sendall(b'HTTP/1.1 200 OK\\r\\ncontent-length: 0\\r\\n\\r\\n')
print(client.recv(65536).decode())
sidecar.terminate()
sidecar.wait()
";

#[test]
fn without_local_ports_the_client_learns_so() {
    let (Some(python), Some(unshare), Some(_)) = (need("python3"), need("unshare"), need("ip")) else {
        return;
    };
    let folder = folder();
    let script = folder.path().join("ports.py");
    fs::write(&script, PORTS).expect("a file");
    let mut command = Command::new(unshare);
    let inside = "ip link set lo up && exec \"$@\"";
    command.args(["--user", "--map-root-user", "--net", "--kill-child", "sh", "-c", inside, "sh"]);
    command.arg(python).arg(script).arg(binary());
    let mut command = assert_cmd::Command::from_std(command);
    let finished: Finished = command.timeout(3 * DEADLINE).output().expect("it ends").into();
    let (told, said) = (finished.stdout.to_lowercase(), &finished.stderr);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    assert!(told.starts_with("http/1.1 503 ") && told.contains("retry-after: 1\r\n"), "{told}");
    assert!(told.contains("the proxy is out of local ports"), "{told}");
    assert!(said.contains("out of local ports; widen the sysctl net.ipv4.ip_local_port_range"), "{said}");
    assert!(told.contains("http/1.1 200 "), "ports are free again: {told}");
}
