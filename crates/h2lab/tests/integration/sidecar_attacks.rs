//! The sidecar under attack by many clients while another one is served, and tested by h2spec. Attacks of a single
//! client: `sidecar_attackers`.
//!
//! The attacks are those on the origin (`hostile`). What is asserted: the sidecar ends them with the reason; the other client, whose
//! requests go over the same connections to the instance, is served without a single failure; memory does not grow with the attack.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use h2lab_model::workload::Protocol;
use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{flag, kind};

use crate::conformance::{assert_all_passed, assert_each_passes, h2spec};
use crate::curl::Curl;
use crate::hostile::attacker::{Attacker, frame, initial_window, nth, request, window_update};
use crate::hostile::bystander::Bystander;
use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::support::{DEADLINE, binary, folder, free_ports, need, rounds, run_program};

const END: u8 = flag::END_STREAM;
/// Far more than an attack needs to meet its bound.
const FAR: usize = 20_000;
/// How much the sidecar may grow under any attack of one connection; the origin has the same limit.
const GROWTH: u64 = 24 << 20;

/// Runs `attack` against the address of a sidecar in front of an origin, over HTTP/1.1 and over HTTP/2.
#[track_caller]
fn attack(mut attack: impl FnMut(SocketAddr)) {
    let origin = Origin::start(&[]);
    for scheme in ["http", "h2c"] {
        let sidecar = Sidecar::to(&[format!("{scheme}://{}", origin.clear)], &[]);
        let told = sidecar.ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
        let before = sidecar.child.resident_bytes();
        let bystander = Bystander::begin(sidecar.clear);
        attack(sidecar.clear);
        let served = bystander.end();
        let after = sidecar.child.resident_bytes();
        println!("{scheme}: {served} served; it grew by {} KiB", after.saturating_sub(before) / 1024);
        assert!(after < before + GROWTH, "{scheme}: it grew from {before} to {after} bytes");
        origin.assert_serves();
    }
}

/// Makes a request through a sidecar to the URL that h2specd gives it: `$1` is `http://HOST:PORT/`. The sidecar sends
/// no PING, whose ACK some cases would mistake for the frame that they wait for. The request must not be sent again on
/// another connection, which h2specd would count as a second run of the case.
const THROUGH_A_SIDECAR: &str = r#"#!/bin/sh
said=$(mktemp) file=$(mktemp)
cat > "$file" <<END
[[listen]]
address = "127.0.0.1:0"
service = "a"
[service.a]
instances = ["h2c://$(echo "$1" | cut -d/ -f3)"]
[timeouts]
ping = "0"
END
"$H2LAB" sidecar --config "$file" > "$said" &
until url=$(sed -n 's/^listening //p' "$said") && [ "$url" ]; do sleep 0.05; done
curl --silent --output /dev/null --data x "$url/"
kill $!; wait $!
rm "$said" "$file"
"#;

#[test]
fn every_case_of_h2specd_passes_at_its_side_of_instances() {
    let (Some(program), Some(_)) = (need("h2specd"), need("curl")) else { return };
    let folder = folder();
    let script = folder.path().join("through");
    fs::write(&script, THROUGH_A_SIDECAR.replace("$H2LAB", &binary().display().to_string())).unwrap();
    let client = format!("sh {}", script.display());
    let first = free_ports(80).to_string();
    let arguments = ["-h", "127.0.0.1", "-f", &first, "-o", "30", "-e", &client];
    assert_each_passes(|| run_program(&program, folder.path(), &arguments).stdout, 57);
}

#[test]
fn every_case_of_h2spec_passes_on_both_listeners_whatever_the_instance_speaks() {
    let Some(program) = need("h2spec") else { return };
    let origin = Origin::start(&[]);
    let folder = folder();
    let config = folder.path().join("sidecar.toml");
    for scheme in ["http", "h2c"] {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n[[listen]]\naddress = \"127.0.0.1:0\"\ntls = true\n\
             service = \"a\"\n[service.a]\ninstances = [\"{scheme}://{}\"]\n",
            origin.clear
        );
        fs::write(&config, text).expect("a file");
        let sidecar = Sidecar::with(&config);
        let tls = sidecar
            .child
            .wait_for_line(DEADLINE, |line| line.strip_prefix("listening https://")?.parse().ok())
            .unwrap_or_else(|error| panic!("{error}: {}", sidecar.child.log()));
        for _ in 0..rounds().map_or(1, |asked| asked.min(10)) {
            assert_all_passed(&h2spec(&program, sidecar.clear, &["-S"]), 146);
            assert_all_passed(&h2spec(&program, tls, &["-S", "-t", "-k"]), 146);
        }
    }
}

#[test]
fn resets_of_clients_do_not_end_what_others_have_under_way() {
    // Several clients, each within its own limit: together they reset more streams than an instance accepts on a
    // connection.
    attack(|address| {
        for _ in 0..15 {
            let mut attacker = Attacker::new(address);
            attacker.flood(FAR, |n| {
                let reset = frame(kind::RST_STREAM, 0, nth(n), &ErrorCode::CANCEL.0.to_be_bytes());
                [request(nth(n), END, "POST", "/delay/60000"), reset].concat()
            });
            attacker.until_closed().assert_calmed("resets: more than 100 streams were begun and reset");
        }
    });
}

#[test]
fn many_who_send_or_read_too_slowly_keep_nobody_else_waiting() {
    attack(|address| {
        let mut slow: Vec<TcpStream> = Vec::new();
        for n in 0..300 {
            let mut stream = TcpStream::connect(address).expect("it accepts");
            let begun: &[u8] = match n % 3 {
                0 => b"GET / HTTP/1.1\r\nhost: a\r\nx",
                1 => b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nx",
                _ => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0",
            };
            stream.write_all(begun).expect("it reads");
            slow.push(stream);
        }
        let mut closed = Attacker::new(address);
        closed.send(&initial_window(0));
        for n in 0..20 {
            closed.send(&request(nth(n), END, "GET", "/bytes/1M"));
        }
        let mut narrow = Attacker::new(address);
        narrow.send(&[initial_window(1), request(1, END, "GET", "/bytes/1M")].concat());
        narrow.flood(1_000, |_| window_update(1, 1));
        drop(slow);
    });
}

#[test]
fn fields_beyond_what_either_side_takes_are_answered_431_and_the_connection_goes_on() {
    let origin = Origin::start(&[]);
    for scheme in ["http", "h2c"] {
        let sidecar = Sidecar::to(&[format!("{scheme}://{}", origin.clear)], &[]);
        // The client can be told about the instance's own limit once the instance has announced it.
        sidecar.ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        for value in [60_000, 65_100, 65_300, 66_000, 80_000] {
            let mut stream = sidecar.connect();
            let head =
                format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\nconnection: close\r\n\r\n", "v".repeat(value));
            let _ = stream.write_all(head.as_bytes()); // it may be answered before it has sent all
            let mut told = Vec::new();
            let _ = stream.read_to_end(&mut told);
            let told = String::from_utf8_lossy(&told);
            let status = told.get(9..12).unwrap_or_default();
            let may = if value < 61_000 { &["200"][..] } else { &["200", "431"] };
            assert!(may.contains(&status), "{scheme} {value}: {told}");
            assert!(value < 66_000 || status == "431", "{scheme} {value}: {told}");
        }
        let folder = folder();
        let Some(curl) = Curl::new(folder.path(), Protocol::H2c, sidecar.clear) else { return };
        // More than 64 KiB as HTTP/2 counts fields, with 32 bytes for each; by curl's own count it is not more than
        // curl sends.
        let many: Vec<String> = (0..1_000).map(|n| format!("x-{n}: {}", "v".repeat(30))).collect();
        let many: Vec<&str> = many.iter().flat_map(|field| ["-H", field]).collect();
        assert_eq!(curl.get("/", &many).status, 431, "{scheme}");
        assert_eq!(curl.get("/", &[]).status, 200, "{scheme}");
    }
}

#[test]
fn a_websocket_that_an_instance_of_http_2_refuses_is_answered() {
    let origin = Origin::start(&[]);
    let sidecar = Sidecar::to(&[format!("h2c://{}", origin.clear)], &[]);
    let handshake = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                     sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut stream = sidecar.connect();
    stream.write_all(handshake.as_bytes()).expect("it reads");
    let mut status = [0; 13];
    stream.read_exact(&mut status).expect("an answer, although nobody ends the request");
    assert_eq!(&status, b"HTTP/1.1 404 ");
}
