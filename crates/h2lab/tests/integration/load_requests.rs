//! What `load` sends, to which address, and when it times out, by its flags: seen at the server or in the document.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use crate::load::{attempt, load};
use crate::origin::Origin;
use crate::support::{folder, h2lab};

/// RFC 9113 §7.
const CANCEL: u64 = 8;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// A server of HTTP/1.1 that answers every request, and reports the head of each.
fn recorder() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                // Requests are small and arrive one at a time: each read is one.
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    let _ = sender.send(String::from_utf8_lossy(&buffer[..n]).into_owned()); // the receiver may be gone
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"); // the client, too
                }
            });
        }
    });
    (address, receiver)
}

/// Fails if the share is off by more than five standard deviations of a binomial distribution: by chance, one run in a
/// million is.
fn assert_share(what: &str, n: u64, of: u64, share: f64) {
    let expected = of as f64 * share;
    let allowed = 5.0 * (expected * (1.0 - share)).sqrt();
    assert!(
        (n as f64 - expected).abs() <= allowed,
        "{what}: {n} of {of}, {expected} ± {allowed:.0} are expected"
    );
}

#[test]
fn weighted_urls_are_asked_for_in_their_shares() {
    const N: u64 = 2_000;
    let origin = Origin::start(&[]);
    for (protocol, streams) in [("h1", "1"), ("h2c", "10")] {
        let urls = ["/ weight=6", "/status/404 weight=3", "/status/503"]
            .map(|path| format!("http://{}{path}", origin.clear));
        let n = format!("-n={N}");
        let document = load(&["--proto", protocol, "-c=4", "-m", streams, &n, &urls[0], &urls[1], &urls[2]]);
        for (status, share) in [("200", 0.6), ("404", 0.3), ("503", 0.1)] {
            assert_share(&format!("{protocol} {status}"), number(&document["status"][status]), N, share);
        }
        assert_eq!(document["requests"]["sent"], N);
    }
}

#[test]
fn a_file_of_urls_has_methods_and_weights_of_its_own() {
    const N: usize = 400;
    let (address, heads) = recorder();
    let folder = folder();
    let file = folder.path().join("urls.txt");
    let text = format!("# comment\nhttp://{address}/a weight=3\n\nDELETE http://{address}/b?x=1\n");
    std::fs::write(&file, text).expect("room");
    let n = format!("-n={N}");
    let document = load(&["-c=2", &n, "--urls", file.to_str().expect("UTF-8")]);
    assert_eq!(document["requests"]["succeeded"], N);
    let heads: Vec<String> = heads.iter().take(N).collect();
    let (gets, deletes): (Vec<_>, Vec<_>) =
        heads.iter().partition(|head| head.starts_with("GET /a HTTP/1.1\r\n"));
    assert!(deletes.iter().all(|head| head.starts_with("DELETE /b?x=1 HTTP/1.1\r\n")), "{deletes:?}");
    assert_share("GET /a", gets.len() as u64, N as u64, 0.75);
}

#[test]
fn resolve_gives_a_name_its_address_and_the_name_is_what_the_server_hears() {
    let (address, heads) = recorder();
    let resolve = format!("service.example:{}:127.0.0.1", address.port());
    let url = format!("http://service.example:{}/", address.port());
    let arguments = ["-n=1", "-c=1", "--resolve", &resolve, "--oauth2-bearer=token", &url];
    assert_eq!(load(&arguments)["requests"]["succeeded"], 1);
    let head = heads.recv().expect("a request").to_ascii_lowercase();
    for line in [
        format!("host: service.example:{}\r\n", address.port()),
        "authorization: bearer token\r\n".to_owned(),
    ] {
        assert!(head.contains(&line), "{line}: {head}");
    }
    let ours = h2lab(&["load", "-n=1", "--no-store", "--resolve=service.example:1", &url]);
    assert_eq!(ours.code, Some(2), "{}", ours.transcript());
    assert!(ours.stderr.contains("HOST:PORT:ADDR"), "{}", ours.transcript());
}

#[test]
fn a_server_that_asks_for_a_certificate_is_loaded_with_it_and_refuses_who_has_none() {
    let files = crate::tls::Files::make();
    let server = files.identity("server");
    let client_ca = files.flag("--client-ca", "ca.pem");
    let origin = Origin::start(&[&server[0], &server[1], &client_ca]);
    let (url, ca) = (format!("https://{}/", origin.tls), files.flag("--cacert", "ca.pem"));
    let ours = files.identity("client");
    for protocol in ["h1s", "h2"] {
        let document = load(&["-n=20", "-c=2", "--proto", protocol, &ca, &ours[0], &ours[1], &url]);
        assert_eq!(document["requests"]["succeeded"], 20, "{protocol}");
    }
    let finished = h2lab(&["load", "-n=20", "--no-store", "--quiet", &ca, &url]);
    assert_eq!(finished.code, Some(3), "{}", finished.transcript());
    assert!(finished.stderr.contains("--cert"), "what to give: {}", finished.transcript());
}

#[test]
fn connections_end_after_the_number_of_requests_that_they_may_carry() {
    let origin = Origin::start(&[]);
    for protocol in ["h1", "h2c"] {
        let url = format!("http://{}/", origin.clear);
        let document = load(&["--proto", protocol, "-n=100", "-c=1", "--reconnect-every=10", &url]);
        assert_eq!(document["requests"]["succeeded"], 100, "{protocol}");
        assert!((10..=11).contains(&number(&document["connections_opened"])), "{protocol}: {document:#}");
        let closed = document["connections_closed"].to_string();
        assert!(closed.contains("--reconnect-every"), "{protocol}: {closed}");
    }
}

/// The client ends a request that times out, in the way of each protocol: HTTP/2 cancels the stream and keeps the
/// connection; HTTP/1.1 can only close the connection (RFC 9113 §5.4.2, RFC 9112 §9.6).
#[test]
fn who_cancels_resets_the_stream_with_cancel_and_keeps_the_connection() {
    let origin = Origin::start(&[]);
    let url = &format!("http://{}/delay/60000", origin.clear);
    let cancelled = |flag: &str, kind: &str, code: i32| {
        let finished = attempt(&["--proto=h2c", "-n=20", "-c=1", "-m=10", flag, url]);
        finished.assert_code_unless_busy(code);
        let document = finished.json();
        let errors = document["errors"].as_array().expect("a list");
        let of_kind =
            errors.iter().filter(|error| error["kind"] == kind).map(|error| number(&error["count"]));
        assert_eq!(of_kind.sum::<u64>(), 20, "{flag}: {errors:?}");
        let resets = document["rst_stream"].as_array().expect("a list");
        assert_eq!(
            resets,
            &[serde_json::json!({"code": CANCEL, "initiator": "local", "count": 20})],
            "{flag}"
        );
        assert_eq!(document["connections_opened"], 1, "{flag}");
    };
    let closed = |flag: &str| {
        let in_clear = attempt(&["--proto=h1", "-n=4", "-c=2", flag, url]).json();
        assert_eq!(in_clear["requests"]["failed"], 4, "{flag}");
        assert_eq!(in_clear["connections_opened"], 4, "{flag}: each took its connection with it");
    };
    // All at once, since each waits for most of its time: a request must have dialled before it is given up, however
    // long the machine stops.
    std::thread::scope(|scope| {
        // If all were cancelled, none succeeded; a server that completes nothing in time counts as unreachable.
        for (flag, kind, code) in [("--cancel-after=5s", "cancelled", 1), ("--timeout=5s", "timeout", 3)] {
            scope.spawn(move || cancelled(flag, kind, code));
            scope.spawn(move || closed(flag));
        }
    });
}

#[test]
fn placeholders_are_filled_anew_for_each_request() {
    const N: usize = 50;
    let (address, heads) = recorder();
    let url = format!("http://{address}/item/{{{{counter}}}}");
    let n = format!("-n={N}");
    assert_eq!(load(&["--template", &n, "-c=1", &url])["requests"]["succeeded"], N);
    let paths: Vec<String> =
        heads.iter().take(N).map(|head| head.split(' ').nth(1).expect("a path").to_owned()).collect();
    let expected: Vec<String> = (0..N).map(|number| format!("/item/{number}")).collect();
    assert_eq!(paths, expected);
}
