//! Connections of the sidecar to its instances: which it gives up.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use rustix::process::{Signal, kill_process};

use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::sidecar_guard::{get, response, server};
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
    // Half of them without weights; a fifth where the heavy one is thought to be sixteen times as slow.
    assert!(light <= 40, "{light} of 200 to the one of weight 1");
}
