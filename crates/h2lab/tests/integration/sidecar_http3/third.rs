//! A third process starts although the first one, whose successor has died, still finishes requests.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use h2lab_net::process::Child;

use super::client::{Client, Seen};
use super::handover::ended;
use crate::sidecar::scripted_by_head;
use crate::support::{DEADLINE, Gate, binary, folder, free_ports};

/// A sidecar that listens; the error is what it printed, if it does not.
fn start(config: &Path, socket: &Path) -> Result<Child, String> {
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(config).arg("--take-over").arg(socket);
    let child = Child::spawn(command, None).expect("the binary starts");
    let listens = child.wait_for_line(DEADLINE, |line| line.starts_with("admin http://").then_some(()));
    listens.map_err(|_| child.log())?;
    Ok(child)
}

#[test]
fn a_third_process_starts_while_the_first_one_finishes_requests_and_the_second_is_dead() {
    let (folder, port, gate) = (folder(), free_ports(2), Arc::new(Gate::default()));
    let opened = Arc::clone(&gate);
    let (url, heads) = scripted_by_head(move |mut stream, head| {
        let (opened, is_slow) = (Arc::clone(&opened), head.contains("/slow"));
        thread::spawn(move || {
            if is_slow {
                opened.wait();
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
        });
    });
    let (config, socket) = (folder.path().join("sidecar.toml"), folder.path().join("handover"));
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:{port}'\ntls = true\nh3 = true\nservice = 'a'\n[service.a]\ninstances = ['{url}']\n\
         [admin]\naddress = '127.0.0.1:{}'\n[timeouts]\ndrain = '1h'\nresponse = '1h'\n",
        port + 1
    );
    fs::write(&config, text).expect("a file");
    let mut first = start(&config, &socket).expect("the ports are free");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let (told, tells) = mpsc::channel();
    let client = thread::spawn(move || {
        let mut client = Client::connect(address, false);
        let slow = client.begin("GET", "/slow", b"", true).expect("room");
        client.until(|seen| seen.iter().any(|(_, seen)| *seen == Seen::GoAway));
        told.send(()).expect("somebody waits");
        let response = client.whole(slow);
        while !client.is_over {
            client.turn();
        }
        response
    });
    assert!(heads.recv_timeout(DEADLINE).expect("it is asked").contains("/slow"));
    let mut second = start(&config, &socket).expect("it takes over");
    tells.recv_timeout(DEADLINE).expect("the first one knows of its successor");
    second.kill().expect("it runs");
    let until = Instant::now() + DEADLINE;
    let third = loop {
        match start(&config, &socket) {
            Ok(third) => break third,
            // The first process may not have reached that state yet.
            Err(told) => assert!(Instant::now() < until, "{told}"),
        }
    };
    assert!(first.wait(Duration::ZERO).expect("it can be waited for").is_none(), "{}", first.log());
    let mut late = Client::connect(address, false);
    let quick = late.begin("GET", "/", b"", true).expect("room");
    assert_eq!(late.whole(quick), (200, 2));
    gate.open();
    assert_eq!(client.join().expect("it is answered"), (200, 2), "its connection goes on in the first one");
    let last = ended(&mut first);
    assert!(last.contains("; none failed"), "{last}");
    drop(third);
}
