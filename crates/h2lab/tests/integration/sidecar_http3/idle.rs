//! Clients of HTTP/3 that request nothing, that acknowledge nothing, and that stay connected after their listener is
//! gone.

use std::fs;

use h2lab_wire::{Config, FlowControl, Role};
use rustix::process::{Signal, kill_process};

use super::Both;
use super::client::{Client, Seen};
use crate::load::load;
use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::sidecar_admin::exchange;
use crate::sidecar_reload::{until, until_it_says};
use crate::support::{DEADLINE, allocated_bytes};

#[test]
fn a_client_without_a_request_is_told_in_two_steps_after_the_configured_time() {
    let origin = Origin::start(&[]);
    let service = format!("instances = ['h2c://{}']\n[timeouts]\nclient-idle = '1s'", origin.clear);
    let both = Both::start(&service, "");
    let mut client = Client::connect(both.tls, false);
    // The response takes longer than that, and has no pause.
    let slow = client.begin("GET", "/drip?bytes=1000&ms=3000", b"", true).expect("room");
    assert_eq!(client.whole(slow), (200, 1_000));
    assert!(client.accepted.is_empty(), "{:?}", client.seen);
    while !client.is_over {
        client.turn();
    }
    // The first GOAWAY refuses nothing. A client that has nothing under way does not wait for the second one.
    let first = client.accepted.first().expect("it was told");
    assert!(first.0 > i32::MAX as u32 / 2, "{:?}", client.accepted);
    assert_eq!(client.error, None, "an end in good order");
    // The sidecar is idle, not gone: the time counts for each client separately.
    let mut other = Client::connect(both.tls, false);
    let stream = other.begin("POST", "/echo", b"some", true).expect("room");
    assert_eq!(other.whole(stream), (200, 4));
}

#[test]
fn what_clients_do_not_acknowledge_counts_as_memory() {
    /// The limit without the program's own memory.
    const MEMORY: u64 = (96 - 24) << 20;
    let origin = Origin::start(&[]);
    let both = Both::start_with(
        "memory = '96M'",
        &format!("instances = ['h2c://{}']\n[timeouts]\nclient-idle = '0'", origin.clear),
        "",
    );
    let get = "GET /status/204 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let before = allocated_bytes(&both.sidecar.child);
    let (mut silent, mut largest) = (Vec::new(), before);
    let windows = FlowControl {
        stream_window: 16 << 20,
        connection_window: 16 << 20,
        ..Config::new(Role::Client).flow
    };
    for _ in 0..400 {
        let Some(mut client) = Client::try_connect(both.tls, windows) else {
            break; // no further connection is taken
        };
        client.begin("GET", "/bytes/300000000", b"", true).expect("room");
        client.flush();
        silent.push(client); // which never reads or acknowledges again
        largest = allocated_bytes(&both.sidecar.child).max(largest);
        let told = both.sidecar.ask(get);
        if told.starts_with("HTTP/1.1 503 ") && told.contains("memory limit reached") {
            break;
        }
    }
    // Each connection could use 4 MiB, which nothing else counts: either they get less as memory becomes short, or no
    // more are accepted.
    assert!(largest - before < MEMORY, "{} clients: {largest} bytes, {before} before", silent.len());
    // Once they are closed, there is room again.
    for client in &mut silent {
        client.leave();
    }
    crate::sidecar_reload::until(
        || both.sidecar.ask(get).starts_with("HTTP/1.1 204 "),
        || format!("{} bytes: {}", both.sidecar.child.resident_bytes(), both.sidecar.child.log()),
    );
}

#[test]
fn a_listener_that_is_gone_and_comes_again_has_its_udp_port_while_clients_of_before_are_served() {
    let origin = Origin::start(&[]);
    let both = Both::start(&format!("instances = ['h2c://{}']", origin.clear), "");
    let file = both.files.path("sidecar.toml");
    let text = fs::read_to_string(&file).expect("the file");
    // With the ports unchanged.
    let text = text.replacen("127.0.0.1:0", &both.sidecar.clear.to_string(), 1);
    let text = text.replacen("127.0.0.1:0", &both.tls.to_string(), 1);
    let (start, end) =
        (text.rfind("[[listen]]").expect("two"), text.find("[identity]").expect("behind them"));
    let without = format!("{}{}", &text[..start], &text[end..]);
    drop(both.sidecar);
    for threads in [1, 2] {
        let write = |text: &str| fs::write(&file, format!("threads = {threads}\n{text}")).expect("a file");
        write(&text);
        let sidecar = Sidecar::with(&file);
        let reload = |text: &str, words: &str, times: usize| {
            write(text);
            kill_process(sidecar.child.pid(), Signal::HUP).expect("it runs");
            until_it_says(&sidecar, words, times);
        };
        let line = format!("listening https://{} h3", both.tls);
        let mut clients = Vec::new();
        for round in 1..=3 {
            let mut client = Client::connect(both.tls, false);
            let slow = client.begin("GET", "/drip?bytes=1000&ms=5000", b"", true).expect("room");
            client.until(|seen| seen.iter().any(|(_, seen)| *seen == Seen::Response(200)));
            clients.push((client, slow));
            reload(&without, "reloaded: 1 listener", round);
            reload(&text, &line, round + 1);
            assert!(!sidecar.child.log().contains("cannot listen"), "{}", sidecar.child.log());
            let url = format!("https://{}/", both.tls);
            assert_eq!(load(&["--http3", "-n", "3", &url])["requests"]["succeeded"], 3);
            assert_eq!(load(&["--proto", "h2", "-n", "3", &url])["requests"]["succeeded"], 3);
        }
        for (client, slow) in &mut clients {
            assert_eq!(client.whole(*slow), (200, 1_000));
            while !client.is_over {
                client.turn();
            }
            assert!(client.seen.iter().any(|(_, seen)| *seen == Seen::GoAway), "{:?}", client.seen);
        }
        let last = sidecar.stop();
        assert!(last.contains("; none failed"), "{last}");
    }
}

#[test]
fn connections_to_instances_of_http3_give_way_to_others_with_small_windows_while_memory_is_short() {
    let origin = Origin::start(&["--h3"]);
    let both = Both::start_with(
        "memory = '96M'",
        &format!(
            "instances = ['h3://{}']\npolicy = 'fixed:1'\n[timeouts]\nclient-idle = '0'\n[admin]\naddress = '127.0.0.1:0'",
            origin.tls
        ),
        "",
    );
    let log = || both.sidecar.child.log();
    let admin =
        both.sidecar.child.wait_for_line(DEADLINE, |line| line.strip_prefix("admin http://")?.parse().ok());
    let admin = admin.unwrap_or_else(|error| panic!("{error}: {}", log()));
    let dialled = || -> Option<u64> {
        let (_, status) = exchange(admin, "GET /status HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let (_, behind) = status.split_once("\"dialled\":")?;
        behind.trim_start().split(|byte: char| !byte.is_ascii_digit()).next()?.parse().ok()
    };
    let get = "GET /status/204 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    assert!(both.sidecar.ask(get).starts_with("HTTP/1.1 204 "));
    assert_eq!(dialled(), Some(1), "{}", log());
    // The clients take nothing, and each has up to 4 MiB in the sidecar after a while.
    let windows = FlowControl {
        stream_window: 16 << 20,
        connection_window: 16 << 20,
        ..Config::new(Role::Client).flow
    };
    let mut silent = Vec::new();
    until(
        || {
            if let Some(mut client) = Client::try_connect(both.tls, windows).filter(|_| silent.len() < 80) {
                client.begin("GET", "/bytes/300000000", b"", true).expect("room");
                client.flush();
                silent.push(client);
            }
            both.sidecar.ask(get);
            dialled().is_some_and(|dialled| dialled > 1)
        },
        log,
    );
}
