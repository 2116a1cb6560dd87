//! A successor that takes over UDP ports.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use h2lab_net::process::Child;

use super::client::{Client, Seen};
use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::support::{DEADLINE, binary, folder, free_ports};

/// Makes requests, four at a time, on a connection for as long as it takes any; sends none again.
pub fn ask(address: SocketAddr, stop: &AtomicBool, answered: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let mut client = Client::connect(address, false);
        let mut open = Vec::new();
        loop {
            while open.len() < 4
                && !stop.load(Ordering::Relaxed)
                && let Some(stream) = client.begin("POST", "/echo", b"some", true)
            {
                open.push(stream);
            }
            client.turn();
            open.retain(|stream| match client.response(*stream) {
                Some(response) => {
                    assert_eq!(response, (200, 4));
                    answered.fetch_add(1, Ordering::Relaxed);
                    false
                }
                None => true,
            });
            let told = client.seen.len();
            client.seen.retain(|(stream, _)| open.contains(stream));
            let takes_more = !stop.load(Ordering::Relaxed) && client.takes_more();
            if open.is_empty() && !takes_more && told > 0 || client.is_over {
                assert!(open.is_empty(), "{} requests were lost: {:?}", open.len(), client.seen);
                break;
            }
        }
    }
}

pub fn wait_for(more: u64, answered: &AtomicU64) {
    let until = answered.load(Ordering::Relaxed) + more;
    let end = Instant::now() + DEADLINE;
    while answered.load(Ordering::Relaxed) < until {
        assert!(Instant::now() < end, "requests are no longer answered");
        thread::yield_now();
    }
}

/// A sidecar with HTTP/3 on `port`, whose successor asks at `socket`.
fn start(port: u16, origin: &Origin, folder: &Path) -> Sidecar {
    let config = folder.join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n\
         [[listen]]\naddress = '127.0.0.1:{port}'\ntls = true\nh3 = true\nservice = 'a'\n\
         [service.a]\ninstances = ['h2c://{}']\n",
        origin.clear
    );
    fs::write(&config, text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(&config).arg("--take-over").arg(folder.join("handover"));
    Sidecar::run(command)
}

pub fn ended(child: &mut Child) -> String {
    let exit = child.wait(DEADLINE).expect("it can be waited for").expect("it ends");
    assert_eq!(exit.status.code(), Some(0), "{}", child.log());
    child.log().lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_successor_takes_udp_over_and_connections_go_on_where_they_are() {
    let (origin, folder, port) = (Origin::start(&[]), folder(), free_ports(1));
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut current = start(port, &origin, folder.path());
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| ask(address, &stop, &answered));
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..3 {
                wait_for(200, &answered);
                let successor = start(port, &origin, folder.path());
                let last = ended(&mut current.child);
                assert!(last.contains("; none failed"), "{last}");
                current = successor;
            }
            wait_for(200, &answered);
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(answered.into_inner() >= 800);
    assert!(current.stop().contains("; none failed"));
}

#[test]
fn a_successor_that_does_not_start_leaves_udp_as_it_was() {
    let (origin, folder, port) = (Origin::start(&[]), folder(), free_ports(1));
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut current = start(port, &origin, folder.path());
    let mut client = Client::connect(address, false);
    let ask = |client: &mut Client| {
        let stream = client.begin("POST", "/echo", b"some", true).expect("room");
        let until = Instant::now() + DEADLINE;
        while client.response(stream).is_none() {
            assert!(Instant::now() < until && !client.is_over, "{:?}", client.seen);
            client.turn();
        }
        assert_eq!(client.response(stream), Some((200, 4)));
    };
    ask(&mut client);
    // It has the sockets, but cannot listen on the other address.
    let config = folder.path().join("wrong.toml");
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:{port}'\ntls = true\nh3 = true\nservice = 'a'\n\
         [[listen]]\naddress = '192.0.2.1:1'\nservice = 'a'\n[service.a]\ninstances = ['h2c://{}']\n",
        origin.clear
    );
    fs::write(&config, text).expect("a file");
    let mut command = Command::new(binary());
    command
        .arg("sidecar")
        .arg("--config")
        .arg(&config)
        .arg("--take-over")
        .arg(folder.path().join("handover"));
    let mut wrong = Child::spawn(command, None).expect("the binary starts");
    let exit = wrong.wait(DEADLINE).expect("it can be waited for").expect("it ends");
    assert_eq!(exit.status.code(), Some(2), "{}", wrong.log());
    ask(&mut client);
    let mut late = Client::connect(address, false);
    ask(&mut late);
    // The next one starts, and both connections end at the old one.
    let clients = [&mut client, &mut late];
    let slow = clients.map(|client| {
        let stream = client.begin("GET", "/drip?bytes=1000&ms=3000", b"", true).expect("room");
        client.until(|seen| seen.iter().any(|(its, seen)| *its == stream && *seen == Seen::Response(200)));
        stream
    });
    let successor = start(port, &origin, folder.path());
    for (client, stream) in [&mut client, &mut late].into_iter().zip(slow) {
        while !client.is_over {
            client.turn();
        }
        assert_eq!(client.response(stream), Some((200, 1_000)), "{:?}", client.seen);
    }
    let last = ended(&mut current.child);
    assert!(last.contains("; none failed"), "{last}");
    successor.stop();
}
