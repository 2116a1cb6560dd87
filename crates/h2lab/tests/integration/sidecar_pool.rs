//! Connections of the sidecar to its instances: which of them it closes.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use h2lab_wire::h2::frame::{PREFACE, flag, kind};
use rustix::process::{Signal, kill_process};

use crate::hostile::attacker::{Frames, frame};
use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::sidecar_admin::Watched;
use crate::sidecar_dials::sum;
use crate::sidecar_guard::{get, response, server};
use crate::sidecar_reload::until;
use crate::support::{DEADLINE, folder};

/// A sidecar in front of these instances, with these lines in `[timeouts]`.
fn sidecar(instances: &[&str], timeouts: &str) -> Sidecar {
    let folder = folder();
    let config = folder.path().join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n[service.a]\ninstances = {instances:?}\n[timeouts]\n{timeouts}\n"
    );
    fs::write(&config, text).expect("a file");
    Sidecar::with(&config)
}

fn request(method: &str) -> String {
    format!("{method} /anything HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
}

#[test]
fn an_instance_that_does_not_answer_a_ping_is_given_up() {
    let origins = [Origin::start(&[]), Origin::start(&[])];
    let urls: Vec<String> = origins.iter().map(|origin| format!("h2c://{}", origin.clear)).collect();
    let [alone, both] = [&urls[..1], &urls[..]]
        .map(|urls| sidecar(&urls.iter().map(String::as_str).collect::<Vec<_>>(), "ping = \"1s\""));
    for sidecar in [&alone, &both] {
        let told = sidecar.ask(&request("POST"));
        assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    }
    let stopped = origins[0].child.pid();
    kill_process(stopped, Signal::STOP).expect("it runs");
    let told = alone.ask(&request("POST"));
    assert!(
        told.starts_with("HTTP/1.1 502 ") && told.contains("the connection to the instance ended"),
        "what may have been done is not asked for again: {told}"
    );
    for _ in 0..4 {
        let told = both.ask(&request("GET"));
        assert!(told.starts_with("HTTP/1.1 200 "), "the other one is asked: {told}");
    }
    kill_process(stopped, Signal::CONT).expect("it is there");
    let told = alone.ask(&request("POST"));
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
}

#[test]
fn an_idle_connection_is_closed_before_the_instance_would() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let instance = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
        let mut head = [0; 4096];
        let asked = stream.read(&mut head).expect("a request");
        assert!(asked > 0);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=1, max=100\r\ncontent-length: 0\r\n\r\n")
            .expect("it reads");
        stream.read(&mut head).expect("the end")
    });
    let sidecar = sidecar(&[&url], "");
    let mut client: TcpStream = sidecar.connect();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
    assert_eq!(instance.join().expect("no failure"), 0, "nothing but the end");
    let mut answer = [0; 64];
    let n = client.read(&mut answer).expect("a response");
    assert!(answer[..n].starts_with(b"HTTP/1.1 200 "), "the client's connection stays");
}

#[test]
fn what_an_instance_sends_without_a_request_keeps_no_idle_connection_open() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("h2c://{}", listener.local_addr().expect("an address"));
    let instance = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
        stream.read_exact(&mut [0; PREFACE.len()]).expect("a preface");
        stream.write_all(&frame(kind::SETTINGS, 0, 0, &[])).expect("it reads");
        let mut pings = stream.try_clone().expect("a file");
        thread::spawn(move || {
            while pings.write_all(&frame(kind::PING, 0, 0, &[7; 8])).is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
        });
        let mut frames = Frames(stream.try_clone().expect("a file"));
        frames.find_map(|(header, payload)| {
            if header.kind == kind::HEADERS {
                // 200, and no body.
                let flags = flag::END_STREAM | flag::END_HEADERS;
                stream.write_all(&frame(kind::HEADERS, flags, header.stream, &[0x88])).expect("it reads");
            }
            (header.kind == kind::GOAWAY).then(|| payload[4..].to_vec())
        })
    });
    let sidecar = sidecar(&[&url], "idle = \"1s\"");
    let told = sidecar.ask(&request("GET"));
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    let ended = instance.join().expect("no failure");
    assert_eq!(ended.as_deref(), Some(&b"\0\0\0\0idle"[..]), "no error, and why");
}

#[test]
fn after_which_time_an_instance_of_http2_closes_an_idle_connection_is_learned() {
    let origin = Origin::start(&["--limit=idle=2s"]);
    let sidecar = Watched::to(&format!("h2c://{}", origin.clear), &[]);
    let goaways = || sum(&sidecar, "goaways_total");
    let mut rounds = 0;
    // Two connections that the instance closed after the same time are enough: the sidecar closes the third one itself.
    // If a process is stopped meanwhile, the times differ.
    loop {
        let before = goaways();
        let told = sidecar.ask(&request("POST"));
        assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
        until(|| sum(&sidecar, "connections") == 0, || sidecar.get("/metrics").1);
        if goaways() == before {
            break;
        }
        rounds += 1;
        assert!(rounds < 20, "it never learns: {}", sidecar.get("/metrics").1);
    }
    assert!(rounds >= 2, "nothing shows it after {rounds}");
    sidecar.stop();
}

#[test]
fn instances_get_requests_by_their_weights() {
    let [heavy, light, none] =
        ["heavy", "light", "none"].map(|name| server(move |_| Some(response(200, name))));
    let folder = folder();
    let config = folder.path().join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = [\n\
         {{ url = '{light}', weight = 1 }}, {{ url = '{none}', weight = 0 }}, {{ url = '{heavy}', weight = 1000 }}]\n"
    );
    fs::write(&config, text).expect("a file");
    let sidecar = Sidecar::with(&config);
    let told: Vec<String> = (0..200).map(|_| sidecar.ask(&get("/", ""))).collect();
    let [heavy, light, none] =
        ["heavy", "light", "none"].map(|name| told.iter().filter(|told| told.ends_with(name)).count());
    println!("{heavy} of weight 1000, {light} of 1, {none} of 0");
    assert_eq!((heavy + light, none), (200, 0), "{told:?}");
    // Without weights it would be half of them; a fifth if the heavy instance seems sixteen times as slow.
    assert!(light <= 40, "{light} of 200 to the one of weight 1");
}
