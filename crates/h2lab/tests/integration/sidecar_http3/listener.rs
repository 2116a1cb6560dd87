//! Clients of HTTP/3.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use h2lab_net::clock::Clock;
use h2lab_net::quic::{Congestion, QuicEndpoint};
use h2lab_net::tls::{ClientTls, TlsOptions};
use h2lab_wire::{Config, Role};
use rustix::process::{Signal, kill_process};

use super::client::{Client, Seen};
use super::{Both, QUIC_GO};
use crate::curl::Curl;
use crate::load::load;
use crate::origin::Origin;
use crate::sidecar_admin::Watched;
use crate::sidecar_reload::until;
use crate::support::{DEADLINE, binary, folder, free_ports, h2lab, run_program};
use crate::tls::Files;
use h2lab_model::workload::Protocol;

#[test]
fn clients_that_are_not_ours_get_whole_answers_over_http3() {
    let Some(program) = QUIC_GO.path() else { return };
    let origin = Origin::start(&["--h3"]);
    for (url, address) in [("h3", origin.tls), ("h2c", origin.clear), ("http", origin.clear)] {
        let both = Both::start(&format!("instances = ['{url}://{address}']"), "");
        let ca = both.files.path("ca.pem").display().to_string();
        for (path, body, answer) in [
            ("/", 0, "200 HTTP/3.0 1024 same=false"),
            ("/bytes/300k", 0, "200 HTTP/3.0 307200 same=false"),
            ("/echo", 200_000, "200 HTTP/3.0 200000 same=true"),
            ("/delay/10", 0, "200 HTTP/3.0 0 same=true"),
            ("/nowhere", 4, "404 HTTP/3.0"),
        ] {
            let arguments = ["get", &ca, "50", &body.to_string(), &both.url(path)];
            let finished = run_program(&program, folder().path(), &arguments);
            let lines: Vec<&str> = finished.stdout.lines().collect();
            let right = lines.iter().filter(|line| line.starts_with(answer)).count();
            assert_eq!((right, lines.len()), (50, 50), "{url} {path}: {}", finished.transcript());
        }
        let last = both.sidecar.stop();
        assert!(last.contains("250 requests from 5 client connections"), "{last}");
        assert!(last.contains("; none failed"), "{last}");
    }
}

#[test]
fn our_generator_loads_it_and_tcp_clients_are_told_of_it() {
    let origin = Origin::start(&[]);
    let both = Both::start(&format!("instances = ['h2c://{}']", origin.clear), "");
    let document = load(&["--http3", "-n", "3000", "-c", "4", "-m", "50", &both.url("/anything")]);
    assert_eq!((&document["protocol"], &document["requests"]["succeeded"]), (&"h3".into(), &3_000.into()));
    let early = h2lab(&["trace", "-k", "--proto=h3", "-n=1", "--json", &both.url("/early?ms=1")]).json();
    let statuses: Vec<String> = early["frames"]
        .as_array()
        .expect("frames")
        .iter()
        .filter(|frame| frame["type"] == "HEADERS" && frame["direction"] == "down")
        .map(|frame| frame["fields"][0]["value"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(statuses[..2], ["103", "200"], "{early:#}");
    for (protocol, is_told) in [(Protocol::H1s, true), (Protocol::H2, true), (Protocol::H1, false)] {
        let address = if protocol.is_tls() { both.tls } else { both.sidecar.clear };
        let folder = folder();
        let Some(curl) = Curl::new(folder.path(), protocol, address) else { return };
        let line = format!("alt-svc: h3=\":{}\"; ma=86400", both.tls.port());
        for path in ["/", "/status/404"] {
            let heads = curl.get(path, &[]).heads;
            assert_eq!(heads.contains(&line), is_told, "{protocol} {path}: {heads}");
        }
    }
}

#[test]
fn who_does_not_read_over_http3_holds_little_memory_and_nobody_else() {
    let origin = Origin::start(&["--h3"]);
    for (scheme, address) in [("h3", origin.tls), ("h2c", origin.clear)] {
        let both = Both::start(&format!("instances = ['{scheme}://{address}']"), "");
        let warm = load(&["--http3", "-n", "20", "-c", "4", &both.url("/bytes/1000000")]);
        assert_eq!(warm["requests"]["succeeded"], 20);
        let before = both.sidecar.child.resident_bytes();
        let mut slow: Vec<Client> = (0..4).map(|_| Client::connect(both.tls, true)).collect();
        let mut over_tcp: TcpStream = both.sidecar.connect();
        over_tcp.write_all(b"GET /bytes/300000000 HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
        for client in &mut slow {
            let stream = client.begin("GET", "/bytes/300000000", b"", true).expect("room");
            client.until(|seen| {
                seen.iter().any(|(its, seen)| *its == stream && matches!(seen, Seen::Data(..)))
            });
        }
        for n in 0..20 {
            slow.iter_mut().for_each(Client::turn);
            let told = both.sidecar.ask("GET /bytes/100000 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            assert!(told.len() > 100_000, "{scheme} {n}: {} bytes", told.len());
        }
        let document = load(&["--http3", "-n", "20", "-c", "2", &both.url("/bytes/1000000")]);
        assert_eq!(document["requests"]["succeeded"], 20, "{scheme}: others are served");
        let held = both.sidecar.child.resident_bytes().saturating_sub(before);
        assert!(held < 48 << 20, "{scheme}: {held} bytes for five who do not read");
    }
}

#[test]
fn what_is_given_up_over_http3_is_given_up_and_the_rest_goes_on() {
    let origin = Origin::start(&["--h3"]);
    let both = Both::start(&format!("instances = ['h3://{}']", origin.tls), "");
    let mut client = Client::connect(both.tls, false);
    let mut given_up = Vec::new();
    for _ in 0..20 {
        // In the middle of a request's body, and of a response's.
        while let Some(stream) = client.begin("POST", "/echo", &[7; 5_000], false) {
            given_up.push(stream);
            if given_up.len() % 2 == 0 {
                break;
            }
        }
        client.turn();
        for stream in &given_up {
            client.reset(*stream);
        }
    }
    let whole = client.begin("POST", "/echo", &[7; 9_000], true).expect("the connection goes on");
    client.until(|seen| seen.iter().any(|(its, seen)| *its == whole && matches!(seen, Seen::Data(_, true))));
    assert_eq!(client.response(whole), Some((200, 9_000)));
}

#[test]
fn the_end_is_told_over_http3_and_nothing_under_way_is_lost() {
    let origin = Origin::start(&[]);
    let mut both = Both::start(&format!("instances = ['h2c://{}']", origin.clear), "");
    let mut client = Client::connect(both.tls, false);
    let slow = client.begin("GET", "/drip?bytes=1000&ms=3000", b"", true).expect("room");
    client.until(|seen| seen.iter().any(|(_, seen)| *seen == Seen::Response(200)));
    kill_process(both.sidecar.child.pid(), Signal::TERM).expect("it runs");
    client.until(|seen| seen.iter().any(|(_, seen)| *seen == Seen::GoAway));
    while !client.is_over {
        client.turn();
    }
    assert_eq!(client.response(slow), Some((200, 1_000)), "{:?}", client.seen);
    let exit = both.sidecar.child.wait(DEADLINE).expect("it can be waited for").expect("it ends");
    assert_eq!(exit.status.code(), Some(0), "{}", both.sidecar.child.log());
}

#[test]
fn http3_comes_and_goes_with_the_file_and_connections_under_way_go_on() {
    let origin = Origin::start(&[]);
    let both = Both::start(&format!("instances = ['h2c://{}']", origin.clear), "");
    let file = both.files.path("sidecar.toml");
    // With the ports unchanged.
    let text = fs::read_to_string(&file).expect("the file");
    let text = text.replacen("127.0.0.1:0", &both.sidecar.clear.to_string(), 1);
    let text = text.replacen("127.0.0.1:0", &both.tls.to_string(), 1);
    let without = text.replace("h3 = true\n", "");
    drop(both.sidecar);
    fs::write(&file, &text).expect("a file");
    let sidecar = crate::sidecar::Sidecar::with(&file);
    let mut client = Client::connect(both.tls, false);
    let slow = client.begin("GET", "/drip?bytes=1000&ms=3000", b"", true).expect("room");
    client.until(|seen| seen.iter().any(|(_, seen)| *seen == Seen::Response(200)));
    fs::write(&file, without).expect("a file");
    kill_process(sidecar.child.pid(), Signal::HUP).expect("it runs");
    while !client.is_over {
        client.turn();
    }
    assert_eq!(client.response(slow), Some((200, 1_000)), "{:?}", client.seen);
    fs::write(&file, &text).expect("a file");
    kill_process(sidecar.child.pid(), Signal::HUP).expect("it runs");
    let line = format!("listening https://{} h3", both.tls);
    let again = |lines: &str| lines.matches(&line).count() == 2;
    let until = std::time::Instant::now() + DEADLINE;
    while !again(&sidecar.child.log()) {
        assert!(std::time::Instant::now() < until, "{}", sidecar.child.log());
        std::thread::yield_now();
    }
    let url = format!("https://{}/", both.tls);
    assert_eq!(load(&["--http3", "-n", "3", &url])["requests"]["succeeded"], 3);
}

/// A connection whose client asks for a protocol that the sidecar does not speak; why it fails.
fn ask_for_another_protocol(address: SocketAddr) -> String {
    let clock = Clock::start();
    let trust = TlsOptions { insecure: true, ..TlsOptions::default() };
    let tls = ClientTls::new("127.0.0.1", "hq-interop", &trust).expect("TLS");
    let config = Config::new(Role::Client);
    let dialled = QuicEndpoint::dial(address, &tls, &config, Congestion::default(), clock, clock.now());
    let (mut quic, until) = (dialled.expect("a socket"), Instant::now() + DEADLINE);
    loop {
        match quic.handshake(clock.now()) {
            Ok(is_over) => assert!(!is_over && Instant::now() < until, "it is not refused"),
            Err(error) => return error.to_string(),
        }
        quic.handle_timeout(clock.now());
    }
}

#[test]
fn handshakes_over_quic_that_fail_are_logged_and_counted() {
    let (folder, files, port) = (folder(), Files::make(), free_ports(1));
    let (file, log) = (folder.path().join("sidecar.toml"), folder.path().join("log"));
    let name = |name: &str| files.path(name).display().to_string();
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n\
         [[listen]]\naddress = '127.0.0.1:{port}'\ntls = true\nh3 = true\nservice = 'a'\nclient-ca = '{}'\n\
         [identity]\ncert = '{}'\nkey = '{}'\n[service.a]\ninstances = ['http://127.0.0.1:9']\n\
         [admin]\naddress = '127.0.0.1:0'\n[log]\nfile = '{}'\nformat = 'json'\n",
        name("ca.pem"),
        name("server.pem"),
        name("server.key"),
        log.display()
    );
    fs::write(&file, text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(file);
    let watched = Watched::run(command);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let told = ask_for_another_protocol(address);
    assert!(told.contains("ALPN"), "{told}");
    let refused = h2lab(&["load", "-k", "--http3", "-n1", &format!("https://{address}/")]);
    assert!(refused.stderr.contains("requires a client certificate"), "{}", refused.transcript());
    let stranger = files.identity("stranger");
    h2lab(&["load", "-k", "--http3", "-n1", &stranger[0], &stranger[1], &format!("https://{address}/")]);
    let metric = || watched.get("/metrics").1.contains("h2lab_sidecar_tls_failures_total 3\n");
    until(metric, || watched.get("/metrics").1);
    until(|| fs::read_to_string(&log).is_ok_and(|text| text.lines().count() == 3), || watched.child.log());
    let text = fs::read_to_string(&log).expect("a log");
    let lines: Vec<&str> = text.lines().collect();
    for (line, words) in lines.iter().zip(["support any known protocol", "no certificate", "not trusted"]) {
        assert!(line.contains(words) && line.contains("127.0.0.1"), "{words}: {line}");
    }
    watched.stop();
}

#[test]
fn a_client_that_has_vanished_and_is_owed_nothing_does_not_delay_the_end() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let log = folder.path().join("access.log");
    let instances = format!("instances = ['h2c://{}']", origin.clear);
    let owing = Both::start(&instances, &format!("[log]\nfile = '{}'\n", log.display()));
    let mut owing_nothing = Both::start(&instances, "");
    // One client has requested nothing, and one has not acknowledged its response, and may be slow.
    let idle = Client::connect(owing_nothing.tls, false);
    let mut silent = Client::connect(owing.tls, false);
    silent.begin("GET", "/bytes/1000", b"", true).expect("room");
    silent.flush();
    // Otherwise the signal may arrive before the request.
    let has_come = || {
        silent.flush();
        fs::read_to_string(&log).is_ok_and(|text| !text.is_empty())
    };
    until(has_come, || owing.sidecar.child.log());
    kill_process(owing.sidecar.child.pid(), Signal::TERM).expect("it runs");
    kill_process(owing_nothing.sidecar.child.pid(), Signal::TERM).expect("it runs");
    owing.sidecar.stop();
    let exit = owing_nothing.sidecar.child.wait(Duration::ZERO).expect("it can be waited for");
    assert!(exit.is_some_and(|exit| exit.status.success()), "it was told last, and ends first");
    drop((idle, silent));
}
