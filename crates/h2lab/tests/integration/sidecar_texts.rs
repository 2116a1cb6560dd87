//! Messages of a sidecar: about a file, about flags, about a request that names no host, and about an instance that
//! ends TLS.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use h2lab_net::tls::ServerTls;

use crate::sidecar::{Sidecar, scripted};
use crate::sidecar_reload::until_it_says;
use crate::support::{DEADLINE, folder, h2lab};

fn check(folder: &Path, text: &str) -> crate::support::Finished {
    let config = folder.join("sidecar.toml");
    fs::write(&config, text).expect("a file");
    h2lab(&["sidecar", "--config", config.to_str().expect("a name"), "--check"])
}

#[test]
fn a_check_tells_what_will_not_work() {
    let folder = folder();
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\nconnect = [\"127.0.0.1:9\"]\n";
    let instances = "[service.a]\ninstances = [\n  \"http://127.0.0.1:9\",\n  \"http://none.invalid:9\",\n]\nca = \"ca.pem\"\n";
    let identity = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    fs::write(folder.path().join("ca.pem"), identity.cert.pem()).expect("a file");
    let told = check(folder.path(), &format!("{listen}{instances}"));
    assert_eq!(told.code, Some(0), "{}", told.transcript());
    assert!(
        told.stdout.ends_with("sidecar.toml is valid: 1 listener, 1 service, 2 instances\n"),
        "{}",
        told.stdout
    );
    for words in [
        "warning: ca of service \"a\" is unused",
        "sidecar.toml: line 8: cannot resolve none.invalid (service \"a\"): ",
    ] {
        assert!(told.stderr.contains(words), "{words}: {}", told.stderr);
    }
    for (text, words) in [
        (format!("user = \"h2lab-nobody\"\n{listen}{instances}"), "user: unknown user \"h2lab-nobody\""),
        (
            format!("user = \"root\"\n{listen}{instances}"),
            "user must name an unprivileged user: \"root\" has UID 0",
        ),
        (
            listen.replace("127.0.0.1:0", "localhost:80"),
            "line 2: \"localhost:80\" is not an address: write IP:PORT: \"127.0.0.1:80\"",
        ),
        (
            format!("{listen}{instances}refersh = \"5s\"\n"),
            "line 11: unknown key \"refersh\"; did you mean \"refresh\"?",
        ),
    ] {
        let told = check(folder.path(), &text);
        assert!(told.code == Some(2) && told.stderr.contains(words), "{words}: {}", told.transcript());
    }
}

#[test]
fn a_socket_that_cannot_be_is_fatal_before_anything_listens() {
    let folder = folder();
    let at = folder.path().join("missing/sidecar.sock");
    let told = h2lab(&[
        "sidecar",
        "--listen=127.0.0.1:0",
        "--to=http://127.0.0.1:9",
        "--take-over",
        at.to_str().expect("a name"),
    ]);
    assert_eq!((told.code, &*told.stdout), (Some(2), ""), "{}", told.transcript());
    assert!(told.stderr.contains("missing does not exist: create it first"), "{}", told.stderr);
    let told = h2lab(&["sidecar", "--listen", "localhost:80", "--to", "http://127.0.0.1:9"]);
    assert!(
        told.code == Some(2) && told.stderr.contains("write IP:PORT: \"127.0.0.1:80\""),
        "{}",
        told.transcript()
    );
}

#[test]
fn help_fits_a_narrow_terminal_and_has_exit_codes_of_its_own() {
    for flag in ["-h", "--help"] {
        let told = h2lab(&["sidecar", flag]);
        let wide = told.stdout.lines().find(|line| line.chars().count() > 80);
        assert_eq!((told.code, wide), (Some(0), None));
        assert!(told.stdout.contains("HTTP/3") && !told.stdout.contains("--fail-if"), "{}", told.stdout);
        let has_signals = ["SIGTERM", "SIGHUP", "SIGUSR1"].iter().all(|signal| told.stdout.contains(signal));
        assert_eq!(has_signals, flag == "--help", "{}", told.stdout);
    }
}

/// HTTP/1.1 must name a host (RFC 9112 §3.2): HTTP/1.0 need not.
#[test]
fn a_request_that_names_no_host_gets_the_one_of_its_instance() {
    let (url, heads) = scripted(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
    });
    let folder = folder();
    let log = folder.path().join("access.log");
    let sidecar = Sidecar::to(std::slice::from_ref(&url), &["--access-log", log.to_str().expect("a name")]);
    let told = sidecar.ask("GET /a HTTP/1.0\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    let head = heads.recv_timeout(DEADLINE).expect("a request").to_lowercase();
    let host = format!("\r\nhost: {}\r\n", url.trim_start_matches("http://"));
    assert!(head.contains(&host) && !head.contains("x-forwarded-host"), "{head}");
    let last = sidecar.stop();
    assert_eq!(last, "1 request from 1 client connection over 1 connection to instances; none failed");
    let line = fs::read_to_string(&log).expect("a log");
    assert!(line.contains("\"GET - /a HTTP/1.0\" 200 "), "{line}");
}

/// Finishes a handshake, reads what follows, and closes.
fn close_after_handshake(mut stream: TcpStream, tls: &ServerTls) {
    let mut session = tls.session().expect("a session");
    let (mut come, mut space) = (Vec::new(), [0; 4_096]);
    while session.is_handshaking() {
        while session.wants_send() {
            session.send(&mut stream).expect("it reads");
        }
        if !session.is_handshaking() {
            break;
        }
        let n = stream.read(&mut space).expect("a handshake");
        come.extend_from_slice(&space[..n]);
        let taken = session.receive(&come).expect("a handshake");
        come.drain(..taken);
    }
    let _ = stream.read(&mut space); // the request: unread bytes would reset the connection
}

#[test]
fn an_instance_that_closes_after_the_handshake_may_have_rejected_the_certificate() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}", listener.local_addr().expect("an address"));
    let tls = ServerTls::self_signed(&["127.0.0.1"], &["h2"]).expect("a certificate");
    thread::spawn(move || {
        for stream in listener.incoming() {
            close_after_handshake(stream.expect("a connection"), &tls);
        }
    });
    let folder = folder();
    let own = rcgen::generate_simple_self_signed(vec!["caller".to_owned()]).expect("a certificate");
    fs::write(folder.path().join("own.pem"), own.cert.pem()).expect("a file");
    fs::write(folder.path().join("own.key"), own.signing_key.serialize_pem()).expect("a file");
    let config = folder.path().join("sidecar.toml");
    for (identity, guess) in [
        ("identity = { cert = 'own.pem', key = 'own.key' }", "may have rejected the client certificate"),
        ("", "may require a client certificate"),
    ] {
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = ['{url}']\ninsecure = true\n{identity}\n"
        );
        fs::write(&config, text).expect("a file");
        let sidecar = Sidecar::with(&config);
        let told =
            sidecar.ask("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        let words = format!("right after the TLS handshake; it {guess}");
        assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
        until_it_says(&sidecar, &words, 1);
        sidecar.stop();
    }
}
