//! What a reload must not lose, and what it must replace.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use h2lab_net::tls::Identity;
use h2lab_wire::h2::frame::{PREFACE, kind};
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

use crate::hostile::attacker::{Frames, frame};
use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::sidecar_reload::{until, until_it_says};
use crate::support::{DEADLINE, binary, folder, free_ports};

const KEEP: &str = "GET /status/204 HTTP/1.1\r\nhost: a\r\n\r\n";

/// Sends a request on a connection that stays open, and reads the response, which has no body.
fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(KEEP.as_bytes()).expect("it reads");
    head(stream)
}

/// The next bytes up to an empty line; fewer if the connection ends.
fn head(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A server that keeps its connections open, and the beginning of each request that was the first of its connection.
fn keeping() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (seen, firsts) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (stream.expect("a connection"), seen.clone());
            thread::spawn(move || {
                let mut come = head(&mut stream);
                let _ = seen.send(come.clone());
                while !come.is_empty() {
                    // A header of the PROXY protocol in the middle of a connection is not a request.
                    let status = if come.contains("\r\nPROXY ") { "400 Bad" } else { "200 OK" };
                    let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                    come = head(&mut stream);
                    if come.starts_with("PROXY ") {
                        come.insert_str(0, "\r\n");
                    }
                }
            });
        }
    });
    (url, firsts)
}

/// One listener, with a service of this instance.
fn write(path: &Path, top: &str, instance: &str, more: &str) {
    let text = format!(
        "{top}\n[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = ['{instance}']\n{more}\n"
    );
    fs::write(path, text).expect("a file");
}

#[test]
fn instances_that_are_told_of_clients_from_now_on_get_new_connections() {
    let (url, firsts) = keeping();
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    write(&path, "", &url, "");
    let sidecar = Sidecar::with(&path);
    let mut client = sidecar.connect();
    assert!(ask(&mut client).starts_with("HTTP/1.1 200 "));
    assert!(firsts.recv_timeout(DEADLINE).expect("a request").starts_with("GET /"));
    write(&path, "", &url, "proxy-protocol = 'v1'");
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until_it_says(&sidecar, ": reloaded: ", 1);
    // Until the event loop has taken the new configuration, requests go as before.
    until(
        || {
            assert!(ask(&mut client).starts_with("HTTP/1.1 200 "), "the header is never in the middle");
            firsts.try_iter().any(|first| first.starts_with("PROXY TCP4 "))
        },
        || sidecar.child.log(),
    );
    write(&path, "", &url, "");
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until_it_says(&sidecar, ": reloaded: ", 2);
    until(
        || {
            assert!(ask(&mut client).starts_with("HTTP/1.1 200 "));
            firsts.try_iter().any(|first| first.starts_with("GET /"))
        },
        || sidecar.child.log(),
    );
    drop(client);
    let last = sidecar.stop();
    assert!(last.contains("; none failed"), "{last}");
}

#[test]
fn instances_of_a_registry_that_cannot_be_told_of_clients_are_not_asked() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let known = format!("{{\"instances\": [\"h2c://{}\"]}}", origin.clear);
    fs::write(folder.path().join("known.json"), known).expect("a file");
    let text = "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\nfile = 'known.json'\nproxy-protocol = 'v2'\n";
    fs::write(&path, text).expect("a file");
    let sidecar = Sidecar::with(&path);
    let told = sidecar.ask("GET /status/204 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(
        told.starts_with("HTTP/1.1 502 ") && told.contains("proxy-protocol needs instances of http://"),
        "{told}"
    );
}

#[test]
fn a_listener_that_comes_back_keeps_its_new_clients() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let instance = format!("http://{}", origin.clear);
    let second = format!("127.0.0.1:{}", free_ports(1));
    let drain = "[timeouts]\ndrain = '2s'\n";
    let with = format!("[[listen]]\naddress = '{second}'\nservice = 'a'\n{drain}");
    write(&path, "", &instance, &with);
    let sidecar = Sidecar::with(&path);
    let says = format!("listening http://{second}");
    until_it_says(&sidecar, &says, 1);
    for (n, more) in [(1, drain), (2, &with)] {
        write(&path, "", &instance, more);
        sidecar.child.signal(Signal::HUP).expect("it runs");
        until_it_says(&sidecar, ": reloaded: ", n);
    }
    until_it_says(&sidecar, &says, 2);
    let mut client = TcpStream::connect(&second).expect("it listens");
    client.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    assert!(ask(&mut client).starts_with("HTTP/1.1 "));
    // Clients of the listener that was removed would have been closed by now.
    thread::sleep(Duration::from_secs(2));
    assert!(ask(&mut client).starts_with("HTTP/1.1 "), "its connection is still open");
}

/// A server in front of another one that answers nothing on its first connection until it is released.
fn hesitant(to: SocketAddr) -> (SocketAddr, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let ((seen, is_seen), (go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
    let may_go = Arc::new(Mutex::new(may_go));
    thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let (client, may_go, seen) = (stream.expect("a connection"), Arc::clone(&may_go), seen.clone());
            thread::spawn(move || {
                if n == 0 {
                    let _ = seen.send(());
                    let _ = may_go.lock().expect("one waits").recv();
                }
                let server = TcpStream::connect(to).expect("it listens");
                let halves = [(&client, &server), (&server, &client)];
                thread::scope(|scope| {
                    for (mut from, mut to) in halves {
                        scope.spawn(move || {
                            let _ = io::copy(&mut from, &mut to);
                            let _ = to.shutdown(Shutdown::Write);
                        });
                    }
                });
            });
        }
    });
    (address, is_seen, go)
}

#[test]
fn a_dial_under_way_is_given_up_where_instances_are_dialled_otherwise() {
    let origin = Origin::start(&[]);
    for (before, after) in [(true, false), (false, true)] {
        let (address, is_dialled, go) = hesitant(origin.tls);
        let folder = folder();
        let path = folder.path().join("sidecar.toml");
        let put =
            |h3| write(&path, "", &format!("https://{address}"), &format!("insecure = true\nh3 = {h3}"));
        put(before);
        let sidecar = Sidecar::with(&path);
        let mut client = sidecar.connect();
        client.write_all(b"GET /status/204 HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
        is_dialled.recv_timeout(DEADLINE).expect("over TCP: nothing is there over UDP");
        put(after);
        sidecar.child.signal(Signal::HUP).expect("it runs");
        until_it_says(&sidecar, ": reloaded: ", 1);
        let told = head(&mut client);
        assert!(told.starts_with("HTTP/1.1 204 "), "{told}");
        drop(go); // it may continue now
        let log = sidecar.child.log();
        assert!(!log.contains("falling back to HTTP/1.1"), "{log}");
        drop(client);
        let last = sidecar.stop();
        assert!(last.contains("; none failed"), "{last}");
    }
}

/// The stream window that a listener announces.
fn window(sidecar: &Sidecar) -> u32 {
    let mut stream = sidecar.connect();
    stream.write_all(&[&PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[])].concat()).expect("it reads");
    let settings = Frames(stream).find(|(header, _)| header.kind == kind::SETTINGS).expect("its SETTINGS").1;
    let window = settings.chunks(6).find(|setting| setting[..2] == [0, 4]);
    window.map_or(65_535, |setting| u32::from_be_bytes(setting[2..].try_into().expect("four bytes")))
}

#[test]
fn memory_of_the_command_line_bounds_windows_after_a_reload_too() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let instance = format!("h2c://{}", origin.clear);
    write(&path, "", &instance, "");
    let unbounded = window(&Sidecar::with(&path));
    let mut command = Command::new(binary());
    command.args(["sidecar", "--memory=64M", "--config"]).arg(&path);
    let sidecar = Sidecar::run(command);
    let before = window(&sidecar);
    assert!(before < unbounded, "{before} of {unbounded}");
    write(&path, "", &instance, "policy = 'fixed:2'");
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until_it_says(&sidecar, ": reloaded: ", 1);
    // The event loop takes it with its next turn.
    for _ in 0..3 {
        assert!(
            sidecar
                .ask("GET /status/204 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                .starts_with("HTTP/1.1 204 ")
        );
    }
    assert_eq!(window(&sidecar), before);
}

#[test]
fn a_file_that_was_missing_at_a_reload_is_watched() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let instance = format!("http://{}", origin.clear);
    write(&path, "", &instance, "");
    let mut command = Command::new(binary());
    command.args(["sidecar", "--watch", "--config"]).arg(&path);
    let sidecar = Sidecar::run(command);
    write(&path, "", &instance, "[identity]\ncert = 'new.pem'\nkey = 'new.key'\n");
    sidecar.child.signal(Signal::HUP).expect("it runs"); // it may watch the file only from a time after it was written
    until_it_says(&sidecar, "the previous configuration stays in effect", 1);
    let identity = Identity::self_signed(&["localhost"]).expect("a certificate");
    fs::write(folder.path().join("new.key"), &identity.key_pem).expect("a file");
    fs::write(folder.path().join("new.pem"), &identity.certificates_pem).expect("a file");
    until_it_says(&sidecar, ": reloaded: ", 1);
}

/// With the first file, the kernel gives up after five seconds if the instance acknowledges nothing. The instance is
/// slow; with the second file, it has an hour.
#[test]
fn connections_that_are_there_have_the_timeouts_of_the_new_file() {
    const LENGTH: usize = 4 << 20;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(8_192).expect("above its least");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    socket.listen(1).expect("it is bound");
    let listener = TcpListener::from(socket);
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        drop(listener); // a further connection is refused
        head(&mut stream);
        stream.write_all(b"HTTP/1.1 204 No\r\n\r\n").expect("it reads");
        head(&mut stream);
        thread::sleep(Duration::from_secs(12)); // more than the first file allows
        let mut body = vec![0; LENGTH];
        if stream.read_exact(&mut body).is_ok() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let times =
        |response: &str| format!("[timeouts]\nping = '500ms'\nresponse = '{response}'\nidle = '1h'\n");
    write(&path, "", &url, &times("5s"));
    let sidecar = Sidecar::with(&path);
    let mut client = sidecar.connect();
    assert!(ask(&mut client).starts_with("HTTP/1.1 204 "));
    write(&path, "", &url, &times("1h"));
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until_it_says(&sidecar, ": reloaded: ", 1);
    let begin = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n");
    client.write_all(begin.as_bytes()).expect("it reads");
    let _ = client.write_all(&vec![b'x'; LENGTH]); // the response shows what went wrong
    let told = head(&mut client);
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}: {}", sidecar.child.log());
}
