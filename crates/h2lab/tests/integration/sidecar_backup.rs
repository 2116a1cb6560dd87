//! Backup instances, and which instances are reachable.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::sidecar_admin::Watched;
use crate::sidecar_guard::{get, response, server};
use crate::support::{DEADLINE, binary, closed_port, folder};

/// A sidecar for the service `users`; `top` is before all tables, `more` follows `[service.users]`.
fn sidecar(top: &str, more: &str) -> Watched {
    let folder = folder();
    let config = folder.path().join("sidecar.toml");
    let text = format!(
        "{top}\n[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"users\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [service.users]\n{more}\n"
    );
    fs::write(&config, text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(&config);
    Watched::run(command) // it has read the file once it listens
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    stream
}

/// What follows a request that is the last one of its connection.
fn ask(mut stream: TcpStream) -> String {
    stream.write_all(get("/", "").as_bytes()).expect("it reads");
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("text, and then the end");
    told
}

const HEALTH: &str =
    "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"1h\", unhealthy = 1, healthy = 1 }";

/// Two servers whose checks fail until `is_well`, although they answer, and another one; and a sidecar with these
/// instances.
fn with_sick(is_well: &Arc<AtomicBool>, sick: &str, other: &str, top: &str) -> Watched {
    let says = Arc::clone(is_well);
    let (mut urls, mut instances) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let says = Arc::clone(&says);
        let url = server(move |head| {
            let is_check = head.starts_with("GET /healthz ");
            Some(response(if is_check && !says.load(Ordering::SeqCst) { 500 } else { 200 }, "sick"))
        });
        instances.push(format!("{{ url = \"{url}\"{sick} }}"));
        urls.push(url);
    }
    let well = server(|_| Some(response(200, "other")));
    instances.push(format!("{{ url = \"{well}\"{other} }}"));
    let sidecar = sidecar(top, &format!("instances = [{}]\n{HEALTH}", instances.join(", ")));
    for url in urls {
        let is_it = |line: &str| (line.contains("health check failed") && line.contains(&url)).then_some(());
        sidecar.child.wait_for_line(DEADLINE, is_it).expect("the operator is told");
    }
    sidecar
}

#[test]
fn the_only_backup_takes_over_from_two_instances_that_are_not_well() {
    for (what, sick, other, top) in
        [("priority", "", ", priority = 1", ""), ("zone", ", zone = \"a\"", ", zone = \"b\"", "zone = \"a\"")]
    {
        let is_well = Arc::new(AtomicBool::new(false));
        let sidecar = with_sick(&is_well, sick, other, top);
        for _ in 0..20 {
            let told = ask(connect(sidecar.clear));
            assert!(told.ends_with("other"), "{what}: {told}");
        }
        is_well.store(true, Ordering::SeqCst);
        let until = Instant::now() + DEADLINE;
        while !ask(connect(sidecar.clear)).ends_with("sick") {
            assert!(Instant::now() < until, "{what}: they are never asked again");
        }
        sidecar.stop();
    }
}

#[test]
fn an_instance_is_down_if_the_last_connection_that_any_thread_tried_failed() {
    let (socket, closed) = closed_port();
    let sidecar = sidecar("threads = 4", &format!("instances = [\"http://{closed}\"]"));
    let is_up = |value: u8| {
        let line =
            format!("h2lab_sidecar_instance_up{{service=\"users\",instance=\"http://{closed}\"}} {value}");
        let metrics = sidecar.get("/metrics").1;
        assert!(metrics.lines().any(|other| other == line), "no {line} in {metrics}");
        let page = sidecar.get("/").1;
        assert_eq!(page.contains("instance is unreachable"), value == 0, "{page}");
    };
    is_up(1); // no connection was tried yet
    let mut clients: Vec<TcpStream> = (0..4).map(|_| connect(sidecar.clear)).collect();
    let mut next = || ask(clients.pop().expect("one more"));
    let told = next();
    assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
    is_up(0);
    // Another thread reaches it: the thread that did not has learned nothing since.
    socket.listen(8).expect("it listens");
    let listener: TcpListener = socket.into();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            let _ = stream.write_all(response(200, "here").as_bytes());
        }
    });
    let told = next();
    assert!(told.ends_with("here"), "{told}");
    is_up(1);
    sidecar.stop();
}
