//! The end of a sidecar, and its successor: no request is lost.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use h2lab_base::units::Time;
use h2lab_net::process::Child;
use h2lab_wire::connection::Request;
use h2lab_wire::{Config, Connection, Event, Role};
use rustix::process::Signal;

use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::support::{DEADLINE, binary, folder, free_ports};

const NOW: Time = Time::from_millis(1);
/// A POST with a body of one byte.
pub const ONE_BYTE: Request<'_> = Request {
    method: "POST",
    authority: "a",
    path: "/anything",
    fields: &[],
    body_length: Some(1),
    end_stream: false,
};

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
    stream
}

/// Makes requests over HTTP/1.1 until `stop`, on one connection for as long as the server keeps it; checks the
/// responses.
fn ask_h1(address: &str, stop: &AtomicBool, answered: &AtomicU64) {
    let mut stream = connect(address);
    while !stop.load(Ordering::Relaxed) {
        let request = "POST /anything HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut told = Vec::new();
        let mut space = [0; 16 * 1024];
        let length = loop {
            let n = stream.read(&mut space).expect("in time");
            assert!(n > 0, "a request was lost: {:?}", String::from_utf8_lossy(&told));
            told.extend_from_slice(&space[..n]);
            let text = String::from_utf8_lossy(&told).to_lowercase();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.split_once("content-length: ").expect("a length").1;
            let length: usize = length.lines().next().expect("a line").parse().expect("a number");
            if body.len() >= length {
                break head.contains("connection: close");
            }
        };
        assert!(told.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&told));
        answered.fetch_add(1, Ordering::Relaxed);
        if length {
            stream = connect(address);
        }
    }
}

/// The same over HTTP/2, four requests at a time; never sends one again.
fn ask_h2(address: &str, stop: &AtomicBool, answered: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let mut stream = connect(address);
        let mut engine = Connection::h2(Config::new(Role::Client), NOW);
        let mut open = 0;
        loop {
            while open < 4 && engine.available_streams() > 0 && !stop.load(Ordering::Relaxed) {
                let stream = engine.send_request(NOW, &ONE_BYTE).expect("there is room");
                engine.send_data(NOW, stream, b"x", true);
                open += 1;
            }
            if open == 0 {
                break; // it takes no more, or no more requests are wanted
            }
            stream.write_all(&engine.take_transmit(NOW)).expect("it reads");
            let mut space = [0; 16 * 1024];
            let n = stream.read(&mut space).expect("in time");
            assert!(n > 0, "{open} requests were lost");
            engine.handle_input(NOW, &space[..n]);
            while let Some(event) = engine.poll_event(NOW) {
                match event {
                    Event::Response { head, .. } => assert_eq!(head.status, 200),
                    Event::Data { end_stream: true, .. } => {
                        open -= 1;
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    Event::Reset { code, .. } => panic!("a request was lost: {code}"),
                    _ => {}
                }
            }
        }
        let _ = stream.write_all(&engine.take_transmit(NOW)); // it may still wait for this
    }
}

/// Runs clients of both versions at `address` while `work` runs; none of their requests may fail. Returns how many
/// there were.
pub fn under_load(address: &str, work: impl FnOnce(&AtomicU64)) -> u64 {
    under_load_at([address; 2], work)
}

/// The same where HTTP/1.1 and HTTP/2 have addresses of their own.
pub fn under_load_at([h1, h2]: [&str; 2], work: impl FnOnce(&AtomicU64)) -> u64 {
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| ask_h1(h1, &stop, &answered));
            scope.spawn(|| ask_h2(h2, &stop, &answered));
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&answered)));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    answered.into_inner()
}

/// Waits until this many more requests were answered.
pub fn wait_for(more: u64, answered: &AtomicU64) {
    let until = answered.load(Ordering::Relaxed) + more;
    let end = std::time::Instant::now() + DEADLINE;
    while answered.load(Ordering::Relaxed) < until {
        assert!(std::time::Instant::now() < end, "requests are no longer answered");
        thread::yield_now();
    }
}

/// A sidecar that listens on `port`; its successor asks at `socket`.
fn start(port: u16, origin: &Origin, socket: &Path) -> Sidecar {
    let mut command = Command::new(binary());
    command.args([
        "sidecar",
        "--listen",
        &format!("127.0.0.1:{port}"),
        "--to",
        &format!("h2c://{}", origin.clear),
    ]);
    command.arg("--take-over").arg(socket);
    Sidecar::run(command)
}

pub fn ended(child: &mut Child) -> String {
    let exit = child.wait(DEADLINE).expect("it can be waited for").expect("it ends");
    assert_eq!(exit.status.code(), Some(0), "{}", child.log());
    child.log().lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_successor_takes_the_sockets_over_and_no_request_is_lost() {
    let (origin, folder, port) = (Origin::start(&[]), folder(), free_ports(1));
    let socket = folder.path().join("handover");
    let mut current = start(port, &origin, &socket);
    let total = under_load(&format!("127.0.0.1:{port}"), |answered| {
        for _ in 0..3 {
            wait_for(200, answered);
            let successor = start(port, &origin, &socket);
            let last = ended(&mut current.child);
            assert!(last.contains("; none failed"), "{last}");
            current = successor;
        }
        wait_for(200, answered);
    });
    assert!(total >= 800);
    assert!(current.stop().contains("; none failed"));
}

#[test]
fn a_successor_that_does_not_start_changes_nothing() {
    let (origin, folder, port) = (Origin::start(&[]), folder(), free_ports(1));
    let socket = folder.path().join("handover");
    let current = start(port, &origin, &socket);
    // It has the sockets, but cannot listen on the other address.
    let config = folder.path().join("wrong.toml");
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:{port}'\nservice = 'a'\n[[listen]]\naddress = '192.0.2.1:1'\nservice = 'a'\n\
         [service.a]\ninstances = ['h2c://{}']\n",
        origin.clear
    );
    fs::write(&config, text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(&config).arg("--take-over").arg(&socket);
    let mut wrong = Child::spawn(command, None).expect("the binary starts");
    let exit = wrong.wait(DEADLINE).expect("it can be waited for").expect("it ends");
    assert_eq!(exit.status.code(), Some(2), "{}", wrong.log());
    let told = current.ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    let successor = start(port, &origin, &socket);
    let mut current = current;
    ended(&mut current.child);
    successor.stop();
}

#[test]
fn sockets_of_the_service_manager_are_used() {
    let origin = Origin::start(&[]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    // A connection that was made before the process was there waits for it.
    let mut early = connect(&address.to_string());
    early.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").expect("the kernel takes it");
    let mut command = Command::new("bash"); // sh may accept only descriptors of one digit
    // As in `sd_listen_fds(3)`: the descriptor 3, and the process's own id.
    let own = listener.as_raw_fd();
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).expect("it is open");
    let script = format!("export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\" 3<&{own} {own}<&-");
    command.args(["-c", &script, "bash"]).arg(binary());
    command.args(["sidecar", "--listen", &address.to_string(), "--to", &format!("h2c://{}", origin.clear)]);
    let sidecar = Sidecar::run(command);
    drop(listener);
    assert_eq!(sidecar.clear, address);
    let mut told = String::new();
    early.read_to_string(&mut told).expect("it is answered");
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    sidecar.stop();
}

#[test]
fn clients_of_http2_are_told_the_end_in_two_steps_and_lose_nothing() {
    let origin = Origin::start(&[]);
    let mut sidecar = Sidecar::to(&[format!("h2c://{}", origin.clear)], &[]);
    let mut stream = sidecar.connect();
    let mut engine = Connection::h2(Config::new(Role::Client), NOW);
    let mut space = [0; 16 * 1024];
    let request = Request {
        method: "GET",
        authority: "a",
        path: "/",
        fields: &[],
        body_length: None,
        end_stream: true,
    };
    let (mut steps, mut answered, mut asked) = (Vec::new(), 0, 0);
    loop {
        stream.write_all(&engine.take_transmit(NOW)).expect("it reads");
        let n = stream.read(&mut space).expect("in time");
        if n == 0 {
            break;
        }
        // As on a path with a long delay: the first GOAWAY is under way when another request is sent.
        let bytes = &space[..n];
        let mut late = None;
        if steps.is_empty() && answered == 1 && asked == 1 {
            late = engine.send_request(NOW, &request);
            asked += u32::from(late.is_some());
        }
        engine.handle_input(NOW, bytes);
        let mut begins = false;
        while let Some(event) = engine.poll_event(NOW) {
            match event {
                Event::Settings => begins = asked == 0,
                Event::GoAway { last_stream, .. } => steps.push(last_stream.0),
                Event::Data { end_stream: true, .. } => answered += 1,
                Event::Reset { code, .. } => panic!("{code}"),
                _ => {}
            }
        }
        if begins {
            engine.send_request(NOW, &request).expect("there is room");
            asked += 1;
        }
        if answered == 1 && steps.is_empty() && late.is_none() {
            let pid = sidecar.child.pid();
            rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
        }
    }
    assert_eq!((asked, answered), (2, 2), "{steps:?}");
    assert_eq!(steps, [i32::MAX as u32, 3], "first that it ends, then what it has taken");
    assert!(ended(&mut sidecar.child).contains("2 requests "));
}

#[test]
fn root_becomes_another_user_once_the_sockets_are_open() {
    let origin = Origin::start(&[]);
    let arguments =
        ["sidecar", "--listen", "127.0.0.1:0", "--user", "65532", "--to", &format!("h2c://{}", origin.clear)];
    let mut command = Command::new(binary());
    command.args(arguments);
    if !rustix::process::geteuid().is_root() {
        let finished = crate::support::h2lab(&arguments);
        assert!(
            finished.code == Some(4) && finished.transcript().contains("--user"),
            "{}",
            finished.transcript()
        );
        return;
    }
    let sidecar = Sidecar::run(command);
    let told = sidecar.ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    let pid = sidecar.child.pid().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!([line("Uid:"), line("Gid:")], ["65532 65532 65532 65532"; 2].map(str::to_owned));
    assert_eq!(
        [line("Groups:"), line("CapPrm:"), line("NoNewPrivs:")],
        ["65532", "0000000000000000", "1"].map(str::to_owned)
    );
    sidecar.stop();
}

/// A file of `packaging/`.
fn packaged(name: &str) -> String {
    let path = crate::support::workspace().join("packaging").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_units_of_systemd_are_right() {
    let Some(program) = crate::support::need("systemd-analyze") else { return };
    let folder = folder();
    for name in ["h2lab-sidecar.service", "h2lab-sidecar.socket"] {
        let unit = packaged(&format!("systemd/{name}"));
        // It need not be installed for this.
        let unit = unit.replace("/usr/bin/h2lab", &binary().display().to_string());
        fs::write(folder.path().join(name), unit).expect("a file");
    }
    let arguments = ["verify", "--man=no", "./h2lab-sidecar.service", "./h2lab-sidecar.socket"];
    let finished = crate::support::run_program(&program, folder.path(), &arguments);
    // It warns about lines that it does not know, and continues.
    let is_silent = !format!("{}{}", finished.stdout, finished.stderr).contains("h2lab-sidecar.s");
    assert!(finished.code == Some(0) && is_silent, "{}", finished.transcript());
}

#[test]
fn the_configuration_in_the_manifest_of_kubernetes_is_right() {
    let manifest = packaged("kubernetes/sidecar.yaml");
    let (_, rest) = manifest.split_once("sidecar.toml: |\n").expect("the file");
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let config = lines.map(|line| line.trim_start_matches("    ")).collect::<Vec<_>>().join("\n");
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    fs::write(&path, config).expect("a file");
    let finished = crate::support::h2lab(&["sidecar", "--config", &path.display().to_string(), "--check"]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
}

#[test]
fn the_manifest_of_kubernetes_is_as_its_schemas_say() {
    let Some(program) = crate::support::need("kubernetes-validate") else { return };
    let path = crate::support::workspace().join("packaging/kubernetes/sidecar.yaml");
    let arguments = ["--strict", &path.display().to_string()];
    let finished = crate::support::run_program(&program, folder().path(), &arguments);
    let said = format!("{}{}", finished.stdout, finished.stderr);
    assert!(finished.code == Some(0) && said.matches(" passed ").count() == 3, "{}", finished.transcript());
}

/// The answer of an admin listener.
fn admin(port: u16, path: &str) -> String {
    let mut stream = connect(&format!("127.0.0.1:{port}"));
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).expect("it reads");
    let mut told = String::new();
    let _ = stream.read_to_string(&mut told); // a reset comes only after the answer
    told
}

#[test]
fn the_admin_listener_is_handed_over_and_says_when_there_is_no_successor() {
    let (origin, folder, port) = (Origin::start(&[]), folder(), free_ports(2));
    let socket = folder.path().join("handover");
    let start = |policy: &str| {
        let mut command = Command::new(binary());
        command.args(["sidecar", "--listen", &format!("127.0.0.1:{port}"), "--policy", policy]);
        command.args([
            "--to",
            &format!("h2c://{}", origin.clear),
            "--admin",
            &format!("127.0.0.1:{}", port + 1),
        ]);
        command.arg("--take-over").arg(&socket);
        let sidecar = Sidecar::run(command);
        let admin =
            sidecar.child.wait_for_line(DEADLINE, |line| line.starts_with("admin http").then_some(()));
        admin.unwrap_or_else(|error| panic!("{error}: {}", sidecar.child.log()));
        sidecar
    };
    let ready = || admin(port + 1, "/ready").lines().next().unwrap_or_default().to_owned();
    // An incomplete request keeps the first process alive.
    let begin = || {
        let mut stream = connect(&format!("127.0.0.1:{port}"));
        stream.write_all(b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nx").expect("it reads");
        stream
    };
    let mut first = start("fixed:1");
    assert!(ready().contains(" 200 ") && admin(port + 1, "/config").contains("fixed:1"));
    let mut held = begin();
    until_requests(port + 1, 1);
    let mut second = start("fixed:2");
    let end = std::time::Instant::now() + DEADLINE;
    while !admin(port + 1, "/config").contains("fixed:2") {
        assert!(std::time::Instant::now() < end, "the first one goes on answering");
    }
    assert!(ready().contains(" 200 "), "the second one is ready, whatever the first one does");
    held.write_all(b"y").expect("it reads");
    ended(&mut first.child);
    assert!(ready().contains(" 200 "), "and its socket was not shut down");
    let mut held = begin();
    until_requests(port + 1, 1);
    second.child.signal(Signal::TERM).expect("it runs");
    while !ready().contains(" 503 ") {
        assert!(std::time::Instant::now() < end, "it is still ready");
    }
    held.write_all(b"y").expect("it reads");
    ended(&mut second.child);
}

/// Waits until this many requests are under way.
fn until_requests(port: u16, open: u64) {
    let end = std::time::Instant::now() + DEADLINE;
    loop {
        let told = admin(port, "/status");
        let body = told.split("\r\n\r\n").nth(1).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        if status["requests_open"] == open {
            return;
        }
        assert!(std::time::Instant::now() < end, "{told}");
    }
}
