//! HTTP/2 in clear by `Upgrade: h2c` (RFC 7540 §3.2) at the sidecar's listener. An offer is never forwarded:
//! `sidecar_probed`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use h2lab_wire::h2::frame::{FrameHeader, PREFACE, flag, kind};

use crate::hostile::attacker::{Frames, Received, frame, request};
use crate::hostile::tunnel::over_tls;
use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::support::{DEADLINE, folder};
use crate::upgrade::curl;

/// A sidecar with a listener in clear and one with TLS, and the address of the latter. `clear`: further keys of the
/// first one.
fn sidecar_with(clear: &str, instance: &str) -> (Sidecar, SocketAddr) {
    let folder = folder();
    let file = folder.path().join("sidecar.toml");
    let listen = |more: &str| format!("[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n{more}");
    let text = [listen(clear), listen("tls = true\n"), format!("[service.a]\ninstances = ['{instance}']\n")];
    fs::write(&file, text.concat()).expect("a file");
    let sidecar = Sidecar::with(&file);
    let tls =
        sidecar.child.wait_for_line(DEADLINE, |line| line.strip_prefix("listening https://")?.parse().ok());
    let tls = tls.unwrap_or_else(|error| panic!("{error}: {}", sidecar.child.log()));
    (sidecar, tls)
}

fn sidecar(instance: &str) -> (Sidecar, SocketAddr) {
    sidecar_with("", instance)
}

#[test]
fn curl_upgrades_with_a_body_and_without_whatever_the_instance_speaks() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let file = folder.path().join("payload");
    let data = format!("@{}", file.display());
    for scheme in ["http", "h2c"] {
        let (sidecar, tls) = sidecar(&format!("{scheme}://{}", origin.clear));
        let url = format!("http://{}/bytes/3M", sidecar.clear);
        let Some((spoken, status, body)) = curl(&["--http2", &url]) else { return };
        assert_eq!((&spoken[..], status, body.len()), ("2", 200, 3 << 20), "{scheme}");
        let url = format!("http://{}/echo", sidecar.clear);
        for (length, version) in [(1, "2"), (65_536, "2"), (65_537, "1.1")] {
            let payload = vec![b'p'; length];
            fs::write(&file, &payload).expect("a file");
            for more in [&[][..], &["-H", "transfer-encoding: chunked"]] {
                let arguments = [&["--http2", "--data-binary", &data, "-H", "expect:", &url], more].concat();
                let Some((spoken, answered, body)) = curl(&arguments) else { return };
                assert_eq!((&spoken[..], answered), (version, 200), "{scheme} {length} bytes {more:?}");
                assert!(body == payload, "{scheme} {length} bytes {more:?}");
            }
        }
        let url = format!("https://{tls}/bytes/3M");
        let Some((spoken, status, _)) = curl(&["--http2", "-k", &url]) else { return };
        assert_eq!((&spoken[..], status), ("2", 200), "by ALPN: {scheme}");
    }
}

/// A connection on which a request with an offer was sent, and the head of the answer.
fn offer(address: SocketAddr) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    let offer = "GET /status/200 HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n\
                 http2-settings: AAMAAABkAAQAAP__\r\n\r\n";
    stream.write_all(offer.as_bytes()).expect("it reads");
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    (stream, String::from_utf8_lossy(&head).into_owned())
}

#[test]
fn what_follows_the_upgrade_is_logged_and_passed_on_as_http2() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let log = folder.path().join("access.log");
    let to = format!("http://{}", origin.clear);
    let sidecar = Sidecar::to(&[to], &["--access-log", log.to_str().expect("a name")]);
    let (mut stream, head) = offer(sidecar.clear);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let settings = frame(kind::SETTINGS, 0, 0, &[]);
    let next = request(3, flag::END_STREAM, "GET", "/status/204");
    stream.write_all(&[&PREFACE[..], &settings, &next].concat()).expect("it reads");
    let ends = |(header, _): &(FrameHeader, _)| header.stream > 0 && header.flags & flag::END_STREAM != 0;
    assert_eq!(Frames(stream).filter(ends).take(2).count(), 2);
    sidecar.stop();
    let text = fs::read_to_string(&log).expect("a log");
    assert!(text.contains("\"GET a /status/200 HTTP/1.1\" 200 "), "{text}");
    assert!(text.contains("/status/204 HTTP/2\" 204 "), "{text}");
}

#[test]
fn the_response_comes_on_stream_1_and_more_may_be_asked_for_but_not_over_tls() {
    let origin = Origin::start(&[]);
    let (sidecar, tls) = sidecar(&format!("h2c://{}", origin.clear));
    let (mut stream, head) = offer(sidecar.clear);
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.to_lowercase().contains("\r\nupgrade: h2c\r\n"),
        "{head}"
    );
    let settings = [frame(kind::SETTINGS, 0, 0, &[]), frame(kind::SETTINGS, flag::ACK, 0, &[])].concat();
    let next = request(3, flag::END_STREAM, "GET", "/status/200");
    stream.write_all(&[&PREFACE[..], &settings, &next].concat()).expect("it reads");
    let (mut received, mut ended) = (Received::default(), Vec::new());
    for (header, payload) in Frames(stream) {
        received.note(header, &payload);
        if matches!(header.kind, kind::HEADERS | kind::DATA) && header.flags & flag::END_STREAM != 0 {
            ended.push(header.stream);
        }
        if ended.len() == 2 {
            break;
        }
    }
    ended.sort_unstable();
    assert_eq!((received.served, ended), (2, vec![1, 3]), "{received:?}");

    // RFC 7540 §3.3: over TLS, ALPN serves that purpose, and a server accepts no such offer.
    let (_stream, head) = offer(over_tls(tls, "http/1.1"));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[test]
fn a_listener_may_take_no_upgrade_and_takes_http2_by_prior_knowledge_all_the_same() {
    let origin = Origin::start(&[]);
    for scheme in ["http", "h2c"] {
        let (sidecar, _) = sidecar_with("upgrade-h2c = false\n", &format!("{scheme}://{}", origin.clear));
        let (_stream, head) = offer(sidecar.clear);
        assert!(head.starts_with("HTTP/1.1 200 "), "{scheme}: {head}");
        // The size of a body is bounded only if an upgrade waits for it.
        let folder = folder();
        let file = folder.path().join("payload");
        fs::write(&file, vec![b'p'; 100_000]).expect("a file");
        let data = format!("@{}", file.display());
        let url = format!("http://{}/echo", sidecar.clear);
        for (flag, version) in [("--http2", "1.1"), ("--http2-prior-knowledge", "2")] {
            let Some((spoken, status, body)) = curl(&[flag, "--data-binary", &data, "-H", "expect:", &url])
            else {
                return;
            };
            assert_eq!((&spoken[..], status, body.len()), (version, 200, 100_000), "{scheme} {flag}");
        }
    }
}
