//! Bad input. Each case: one line `error: …` on stderr with what is wrong and where, nothing on stdout, the exit code of the
//! contract (2 usage or scenario, 3 target unreachable), no panic.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::support::{Finished, closed_port, folder, h2lab, workspace};

const USAGE: i32 = 2;
const UNREACHABLE: i32 = 3;

/// Fails unless `finished` is one clear error with this exit code whose text contains every one of `words`.
#[track_caller]
fn assert_error(finished: &Finished, code: i32, words: &[&str]) {
    let shown = finished.transcript();
    assert_eq!(finished.code, Some(code), "{shown}");
    assert!(!finished.stderr.contains("panicked"), "{shown}");
    assert_eq!(finished.stdout, "", "an error belongs on stderr\n{shown}");
    let errors = finished.stderr.lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(errors, 1, "one line that begins with `error: ` is wanted\n{shown}");
    for word in words {
        assert!(finished.stderr.contains(word), "`{word}` is not named\n{shown}");
    }
}

/// Starts a server on a free port that treats each connection with `treat`, for as long as the tests run.
fn server(treat: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let treat = Arc::new(treat);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let treat = Arc::clone(&treat);
            thread::spawn(move || treat(stream));
        }
    });
    address
}

/// Reads until the peer closes, as a server does that sends nothing.
fn swallow(stream: &mut TcpStream) {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
}

/// A server that answers each connection with `bytes` once something was sent to it.
fn answering(bytes: &'static [u8]) -> SocketAddr {
    server(move |mut stream| {
        let mut buffer = [0; 4096];
        if stream.read(&mut buffer).is_ok_and(|n| n > 0) {
            let _ = stream.write_all(bytes); // the client may have closed, which is allowed
            swallow(&mut stream);
        }
    })
}

/// A TLS server with a certificate of its own that never answers a request: only the handshake matters.
fn tls_server() -> SocketAddr {
    let signed =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a self-signed certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .expect("a certificate and its own key");
    let config = Arc::new(config);
    server(move |mut stream| {
        let mut tls = rustls::ServerConnection::new(Arc::clone(&config)).expect("a valid configuration");
        while tls.complete_io(&mut stream).is_ok_and(|(read, written)| read + written > 0) {}
    })
}

fn compare(url: &str) -> Finished {
    h2lab(&["compare", url])
}

#[test]
fn an_unknown_host_is_named() {
    // RFC 6761 §6.4: names below .invalid never resolve.
    assert_error(&compare("http://no-such-host.invalid/"), UNREACHABLE, &["no-such-host.invalid"]);
}

#[test]
fn a_refused_port_is_named() {
    let (_socket, address) = closed_port();
    assert_error(&compare(&format!("http://{address}/")), UNREACHABLE, &[&address.to_string(), "refused"]);
}

#[test]
fn tls_to_a_cleartext_port_says_so() {
    let address = answering(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let finished = h2lab(&["compare", "-k", &format!("https://{address}/")]);
    assert_error(&finished, UNREACHABLE, &[&address.to_string(), "TLS"]);
}

#[test]
fn cleartext_to_a_tls_port_says_so() {
    let address = tls_server();
    assert_error(&compare(&format!("http://{address}/")), UNREACHABLE, &[&address.to_string(), "TLS"]);
}

#[test]
fn a_server_that_closes_at_once_is_named() {
    let address = server(drop);
    assert_error(&compare(&format!("http://{address}/")), UNREACHABLE, &[&address.to_string()]);
}

#[test]
fn a_server_that_never_answers_is_given_up_on() {
    let address = server(|mut stream| swallow(&mut stream));
    assert_error(&compare(&format!("http://{address}/")), UNREACHABLE, &[&address.to_string()]);
}

#[test]
fn a_server_that_sends_garbage_is_named() {
    let address = answering(b"\x00\xff\xfe garbage \x80\x81\r\n\r\n\x16\x03");
    assert_error(&compare(&format!("http://{address}/")), UNREACHABLE, &[&address.to_string()]);
}

#[test]
fn a_value_out_of_range_names_its_flag_and_what_is_allowed() {
    for (flag, value, long) in [
        ("--loss", "101%", "--loss"),
        ("--loss", "much", "--loss"),
        ("--delay", "12.5", "--delay"),
        ("--bandwidth", "0mbit", "--bandwidth"),
        ("--loss-model", "gilbert-elliott:0.5", "--loss-model"),
        ("--proto", "h9", "--proto"),
        ("--shape", "huge", "--shape"),
        ("-c", "0", "--connections"),
        ("-q", "-5", "--rate"),
        ("-z", "soon", "--duration"),
    ] {
        assert_error(&h2lab(&["compare", &format!("{flag}={value}")]), USAGE, &[long, value]);
    }
}

#[test]
fn the_edge_of_a_range_is_inside_it() {
    // The smallest legal values: the run fails at the port, which is closed, and not at a flag.
    let (_socket, address) = closed_port();
    let finished = h2lab(&["compare", "-c", "1", "-q", "1", &format!("http://{address}/")]);
    assert_error(&finished, UNREACHABLE, &["refused"]);
}

#[test]
fn an_url_that_is_none_is_a_usage_error() {
    for url in ["ftp://127.0.0.1/", "http://", "http://127.0.0.1:99999/"] {
        assert_error(&compare(url), USAGE, &[url]);
    }
}

#[test]
fn a_scenario_with_a_typo_names_the_file_and_the_word() {
    let folder = folder();
    let shipped = fs::read_to_string(workspace().join("scenarios/compare.toml")).unwrap();
    let file = folder.path().join("typo.toml");
    fs::write(&file, format!("lose_packets = true\n{shipped}")).unwrap();
    let finished = h2lab(&["run", file.to_str().unwrap()]);
    assert_error(&finished, USAGE, &["typo.toml", "lose_packets"]);
}

#[test]
fn what_does_not_go_together_names_both_flags_before_anything_is_measured() {
    let url = "http://127.0.0.1:1/";
    for (arguments, words) in [
        (vec!["compare", "--delay=10ms", "--jitter=20ms"], ["--jitter = 20ms", "--delay"]),
        (vec!["compare", "--up", "jitter=20ms"], ["--up jitter = 20ms", "--delay"]),
        (vec!["compare", "--queue=64k"], ["--queue", "--bandwidth"]),
        (vec!["compare", "-z=10ms"], ["-z/--duration = 10ms", "100ms"]),
        (vec!["compare", "-c=20001"], ["-c/--connections", "20000"]),
        (vec!["compare", "-H", "Connection: close"], ["-H/--header", "`connection`"]),
        (vec!["compare", url, "-H", "TE: gzip"], ["-H/--header", "`te`"]),
        (vec!["compare", url, "--proto=h1,h2"], ["h2 fits no URL", "http:// takes h1 and h2c"]),
        (vec!["compare", url, "--http3"], ["--http3: h3 fits no URL", "http:// takes h1 and h2c"]),
        (vec!["load", url, "-X=CONNECT"], ["-X/--request = CONNECT", "asks for a tunnel"]),
        (vec!["trace", url, "-X=CONNECT"], ["-X/--request = CONNECT", "asks for a tunnel"]),
        (
            vec!["load", "https://a/", "--http3", "--unix-socket=s"],
            ["--http3: HTTP/3 needs an address", "--unix-socket"],
        ),
        (
            vec!["trace", "https://a/", "--proto=h3", "--unix-socket=s"],
            ["--proto h3: HTTP/3 needs an address", "--unix-socket"],
        ),
        (
            vec!["compare", "https://a/", "--proto=h2,h3", "--unix-socket=s"],
            ["--proto h2,h3: HTTP/3 needs an address", "--unix-socket"],
        ),
        (
            vec!["probe", "https://a/", "--http3", "--unix-socket=s"],
            ["--http3: HTTP/3 needs an address", "--unix-socket"],
        ),
        (
            vec!["bulk", "get", "https://a/x", "--discard", "--http3", "--unix-socket=s"],
            ["--http3: HTTP/3 needs an address", "--unix-socket"],
        ),
        (
            vec!["bulk", "drive", "--clients=local", "--servers=https://a/x", "--http3", "--unix-socket=s"],
            ["--http3: HTTP/3 needs an address", "--unix-socket"],
        ),
        (vec!["compare", url, "--delay=1ms"], ["--delay is for the emulated link", "live servers"]),
        (vec!["compare", "-k"], ["-k/--insecure is for live servers", "give a URL"]),
        (
            vec!["run", "x.toml", "--resolve=a:1:127.0.0.1"],
            ["--resolve is for live servers", "h2lab compare"],
        ),
        (vec!["bulk", "get", url, "-d", "x"], ["-d/--data has no effect on files", "h2lab load"]),
        (vec!["bulk", "get", url, "--discard", "-H", "Range: bytes=1-"], ["-H/--header", "`range`"]),
        (vec!["bulk", "put", "f", url, "-H", "Connection: close"], ["-H/--header", "`connection`"]),
        (vec!["probe", url, "--http3"], ["--http3 does not fit the URL", "http:// takes h1 and h2c"]),
        (vec!["probe", url, "-X=PUT"], ["-X/--request is not for probes", "h2lab trace"]),
        (vec!["timeline", "--hops=nginx", "-4"], ["-4/--ipv4 has no effect with --hops", "ours"]),
        (vec!["timeline", url, "--push", "--no-push"], ["--push", "--no-push"]),
        (
            vec!["trace", url, "--proto=h1,h2c"],
            ["--proto h1,h2c: this command uses one protocol", "h2lab compare"],
        ),
        (vec!["trace", url, "--shape=bare,mesh"], ["one value", "h2lab compare"]),
        (vec!["trace", url, "--h2c-mode=upgrade", "--proto=h1"], ["--h2c-mode", "--proto h2c"]),
        (vec!["compare", url, "--cacert=no-such.pem"], ["--cacert", "no-such.pem"]),
        (
            vec!["compare", url, "-c=1,auto"],
            ["-c/--connections = 1,auto cannot be used with a URL:", "live server"],
        ),
        (vec!["load", url, "-w=1M"], ["-w/--stream-window has no effect", "this is h1; add --proto h2c"]),
        (vec!["load", url, "--push"], ["--push has no effect", "HTTP/2"]),
        (vec!["compare", "--proto=h1,h1", "-f=32k"], ["-f/--max-frame-size has no effect", "--proto h2c"]),
        (vec!["compare", "--proto=h1,h1", "-c=4"], ["-c/--connections has no effect", "--max-connections"]),
        (vec!["trace", url, "--http1.1", "-W=1M"], ["-W/--connection-window has no effect", "this is h1"]),
        (vec!["bulk", "get", url, "--discard", "-w=1M"], ["-w/--stream-window has no effect", "this is h1"]),
        (
            vec!["load", url, "--h2c", "--max-connections=9", "-q=9"],
            ["--max-connections", "it needs HTTP/1.1"],
        ),
        (vec!["load", url, "--max-connections=9"], ["--max-connections 9", "-q or --ramp"]),
        (vec!["load", url, "-c=10", "--max-connections=9", "-q=9"], ["--max-connections 9", "-c 10"]),
        (vec!["load", url, "-q=0.0001", "-z=1s"], ["-q/--rate = 0.0001", "less than one request is due"]),
        (vec!["compare", "--fail-if=h3.p99 > 1"], ["`h3`", "h1, h2c, h2c × 1, h2c × 16, h2c × 4"]),
    ] {
        let finished = h2lab(&arguments);
        assert_error(&finished, USAGE, &words);
        assert!(!finished.stderr.contains("run folder"), "nothing began\n{}", finished.transcript());
    }
}

#[test]
fn in_a_scenario_file_the_keys_are_named() {
    let folder = folder();
    for (text, words) in [
        ("[link]\nqueue = '64k'", ["`queue`", "`bandwidth`"]),
        ("[work]\nconcurrency = 8\nrate = [10, 20]", ["`rate`", "`concurrency`"]),
        ("[work]\nmeasure = '10ms'", ["`measure`", "100ms"]),
        (
            "[matrix]\nprotocols = 'h1'\n[client]\nstream-window = 100000",
            ["[client] stream-window has no effect", "it needs HTTP/2 or HTTP/3"],
        ),
    ] {
        let file = folder.path().join("wrong.toml");
        fs::write(&file, text).unwrap();
        assert_error(&h2lab(&["run", file.to_str().unwrap()]), USAGE, &words);
    }
}

#[test]
fn a_ca_file_without_a_certificate_is_named_before_the_server_is_asked() {
    let folder = folder();
    let file = folder.path().join("empty.pem");
    fs::write(&file, "no certificate").unwrap();
    let (_socket, refused) = closed_port();
    let finished = h2lab(&["compare", "--cacert", file.to_str().unwrap(), &format!("https://{refused}/")]);
    assert_error(&finished, USAGE, &["--cacert", "empty.pem", "it is no PEM file"]);
}

#[test]
fn the_help_begins_with_the_flags_that_matter_and_all_of_them_are_in_the_other() {
    let [short, all] = ["--help", "--help-all"].map(|flag| h2lab(&["compare", flag]));
    assert_eq!((short.code, all.code), (Some(0), Some(0)));
    for words in ["Without a URL", "Examples:", "Exit codes:", "--loss"] {
        assert!(all.stdout.contains(words) && short.stdout.contains(words), "{words}\n{}", short.stdout);
    }
    let place = |words: &str| short.stdout.find(words).unwrap_or_else(|| panic!("{words}\n{}", short.stdout));
    assert!(place("--fail-if") < place("Without a URL") && place("--help-all") < place("Examples:"));
    assert!(!short.stdout.contains("--window-budget") && all.stdout.contains("--window-budget"));
}

#[test]
fn a_scenario_that_is_not_there_is_named() {
    assert_error(&h2lab(&["run", "no-such-scenario.toml"]), USAGE, &["no-such-scenario.toml"]);
}
