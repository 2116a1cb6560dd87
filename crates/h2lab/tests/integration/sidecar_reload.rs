//! A sidecar whose configuration changes while it runs: by SIGHUP, by `--watch`, and with errors.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use h2lab_net::tls::Identity;
use rustix::process::Signal;

use crate::sidecar::{Sidecar, scripted};
use crate::support::{DEADLINE, binary, folder, free_ports, h2lab, need};

/// A request on a connection of its own.
pub const ASK: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// A server that answers with its name.
pub fn named(play: fn(TcpStream)) -> String {
    let (url, heads) = scripted(play);
    thread::spawn(move || heads.iter().for_each(drop));
    url
}

pub fn one() -> String {
    named(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\none"));
    })
}

pub fn two() -> String {
    named(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\ntwo"));
    })
}

/// Waits until a condition is true.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool, told: impl Fn() -> String) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "{}", told());
        thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
pub fn until_it_answers(sidecar: &Sidecar, body: &str) {
    until(|| sidecar.ask(ASK).ends_with(body), || sidecar.child.log());
}

/// Waits until this many lines of its output contain these words.
#[track_caller]
pub fn until_it_says(sidecar: &Sidecar, words: &str, times: usize) {
    let count = || sidecar.child.log().lines().filter(|line| line.contains(words)).count();
    until(|| count() >= times, || format!("{words}: {}", sidecar.child.log()));
}

/// One listener, whose requests go to this instance.
fn file(address: &str, more: &str, instance: &str) -> String {
    format!(
        "[[listen]]\naddress = \"{address}\"\nservice = \"a\"\n{more}\n[service.a]\ninstances = [\"{instance}\"]\n"
    )
}

#[test]
fn hangup_reads_the_file_again_and_a_wrong_one_changes_nothing() {
    let (one, two) = (one(), two());
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let write = |text: &str| fs::write(&path, text).expect("a file");
    write(&file("127.0.0.1:0", "", &one));
    let sidecar = Sidecar::with(&path);
    let hangup = || sidecar.child.signal(Signal::HUP).expect("it runs");
    assert!(sidecar.ask(ASK).ends_with("one"));

    write(&file("127.0.0.1:0", "", &two));
    hangup();
    until_it_answers(&sidecar, "two");
    until_it_says(&sidecar, "reloaded: 1 listener, 1 service, 1 instance", 1);

    // A file that cannot be read and one that cannot be put into effect change nothing.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let more = format!("[[listen]]\naddress = \"{taken}\"\nservice = \"a\"\n");
    for (n, text) in [
        "[[listen".to_owned(),
        file("127.0.0.1:0", &more, &one),
        file("127.0.0.1:0", "tls = true\nclient-ca = \"none.pem\"\n", &one),
    ]
    .iter()
    .enumerate()
    {
        let _held = TcpListener::bind(&taken);
        write(text);
        hangup();
        until_it_says(&sidecar, "the previous configuration stays in effect", n + 1);
        assert!(sidecar.ask(ASK).ends_with("two"));
    }

    // Settings of the start stay, which is reported as long as the file has other values.
    let start = "threads = 2\nmemory = '1G'\n";
    let more = "[admin]\naddress = '127.0.0.1:1'\n[log]\nformat = 'json'\n";
    write(&(start.to_owned() + &file("127.0.0.1:0", "", &two) + more));
    let words = "changes to threads, memory, [log] format, [admin] address take effect only after a restart";
    for times in 1..3 {
        hangup();
        until_it_says(&sidecar, words, times);
    }

    // A second listener is added, and removed.
    let second = format!("127.0.0.1:{}", free_ports(1));
    let more = format!(
        "[[listen]]\naddress = \"{second}\"\nservice = \"b\"\n[service.b]\ninstances = [\"{one}\"]\n"
    );
    write(&file("127.0.0.1:0", &more, &two));
    hangup();
    until_it_says(&sidecar, &format!("listening http://{second}"), 1);
    let other: SocketAddr = second.parse().expect("an address");
    let mut idle = TcpStream::connect(other).expect("it listens");
    idle.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    idle.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
    let mut space = [0; 4096];
    let n = idle.read(&mut space).expect("a response");
    assert!(space[..n].starts_with(b"HTTP/1.1 200 "));
    // Its client may send another request for most of the drain time.
    write(&(file("127.0.0.1:0", "", &two) + "[timeouts]\ndrain = '100ms'\n"));
    hangup();
    until(|| TcpStream::connect(other).is_err(), || sidecar.child.log());
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).expect("its connection ends in good order");
    assert!(sidecar.ask(ASK).ends_with("two"));
    let last = sidecar.stop();
    assert!(last.contains("; none failed"), "{last}");
}

#[test]
fn what_is_under_way_at_an_instance_that_goes_ends_there() {
    // Its response is complete only when the test says so.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let slow = format!("http://{}", listener.local_addr().expect("an address"));
    let (seen, is_seen) = mpsc::channel();
    let (say, said) = mpsc::channel::<()>();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut space = [0; 4096];
        let _ = stream.read(&mut space);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nslow").expect("it reads");
        seen.send(()).expect("the test waits");
        let _ = said.recv();
        stream.write_all(b"done").expect("it reads");
        let _ = stream.read(&mut space); // until it is closed
    });
    let two = two();
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    fs::write(&path, file("127.0.0.1:0", "", &slow)).expect("a file");
    let sidecar = Sidecar::with(&path);
    let mut client = sidecar.connect();
    client.write_all(ASK.as_bytes()).expect("it reads");
    is_seen.recv_timeout(DEADLINE).expect("the request is under way");
    fs::write(&path, file("127.0.0.1:0", "", &two)).expect("a file");
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until_it_says(&sidecar, ": reloaded: ", 1);
    until_it_answers(&sidecar, "two");
    say.send(()).expect("the server waits");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("all of it");
    assert!(response.ends_with("slowdone"), "{response}");
}

/// Whether curl accepts the certificate of this listener as one of `authority`.
fn is_trusted(curl: &Path, authority: &Path, address: SocketAddr) -> bool {
    let url = format!("https://localhost:{}/", address.port());
    let resolve = format!("localhost:{}:127.0.0.1", address.port());
    let mut command = Command::new(curl);
    command.args(["-s", "--max-time", "60", "--resolve", &resolve, "--cacert"]).arg(authority).arg(url);
    let output = command.output().expect("curl runs");
    output.stdout == b"one"
}

#[test]
fn watched_certificates_are_used_once_they_are_there() {
    let Some(curl) = need("curl") else { return };
    let one = one();
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let identity = || Identity::self_signed(&["localhost"]).expect("a certificate");
    let (first, second) = (identity(), identity());
    let put = |identity: &Identity| {
        fs::write(at("own.key"), &identity.key_pem).expect("a file");
        fs::write(at("own.pem"), &identity.certificates_pem).expect("a file");
    };
    fs::write(at("first.pem"), &first.certificates_pem).expect("a file");
    fs::write(at("second.pem"), &second.certificates_pem).expect("a file");
    put(&first);
    let text =
        file("127.0.0.1:0", "tls = true\n", &one) + "[identity]\ncert = \"own.pem\"\nkey = \"own.key\"\n";
    // `Sidecar` waits for the listener in clear.
    let clear = "[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n";
    fs::write(at("sidecar.toml"), format!("{clear}{text}")).expect("a file");
    let mut command = Command::new(binary());
    command.args(["sidecar", "--watch", "--config"]).arg(at("sidecar.toml"));
    let sidecar = Sidecar::run(command);
    let address = sidecar
        .child
        .wait_for_line(DEADLINE, |line| line.strip_prefix("listening https://")?.parse().ok())
        .expect("the other one");
    assert!(is_trusted(&curl, &at("first.pem"), address), "{}", sidecar.child.log());
    assert!(!is_trusted(&curl, &at("second.pem"), address));
    put(&second);
    until(|| is_trusted(&curl, &at("second.pem"), address), || sidecar.child.log());
    assert!(!is_trusted(&curl, &at("first.pem"), address));
    // A key that does not match its certificate is refused, and the previous one stays.
    fs::write(at("own.key"), &first.key_pem).expect("a file");
    until_it_says(&sidecar, "the previous configuration stays in effect", 1);
    assert!(is_trusted(&curl, &at("second.pem"), address));
}

#[test]
fn a_check_names_files_that_cannot_be_used_and_what_is_of_no_use() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("bad.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        .expect("a file");
    fs::write(at("bad.json"), r#"{"instances": ["ftp://a"]}"#).expect("a file");
    let check = |text: &str| {
        fs::write(at("sidecar.toml"), text).expect("a file");
        h2lab(&["sidecar", "--config", at("sidecar.toml").to_str().expect("a name"), "--check"])
    };
    let of = |listen: &str, service: &str| {
        format!("[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n{listen}\n[service.a]\n{service}\n")
    };
    for (text, words) in [
        (of("tls = true\nclient-ca = \"bad.pem\"", "instances = ['http://a']"), "bad.pem: "),
        (of("", "instances = ['https://a']\nca = \"bad.pem\""), "bad.pem: "),
        (of("", "instances = ['https://a']\nca = \"none.pem\""), "none.pem: No such file"),
        (of("", "instances = ['https://a']\nserver-name = \"a b\""), "a b"),
        (of("", "file = \"bad.json\""), "bad.json: "),
        (of("", "file = \"none.json\""), "none.json: No such file"),
        (of("", "dns-srv = \"users\""), "_h2c._tcp.users.internal"),
        (of("", "instances = [{ url = 'http://a', weight = 2000 }]"), "0 to 1000"),
    ] {
        let refused = check(&text);
        assert!(
            refused.code == Some(2) && refused.stderr.contains(words),
            "{words}: {}",
            refused.transcript()
        );
    }
    let checked = check(&(of("", "dns = \"h2c://a:1\"") + "[service.b]\ninstances = ['http://b']\n"));
    assert!(
        checked.stdout.ends_with(" is valid: 1 listener, 2 services, 1 instance, 1 registry\n"),
        "{}",
        checked.stdout
    );
    assert!(
        checked.stderr.contains("warning: service \"b\" is unused: no listener refers to it"),
        "{}",
        checked.stderr
    );
}

#[test]
fn a_change_between_the_start_and_the_first_look_is_noticed() {
    let (one, two) = (one(), two());
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    // A registry that does not answer: the sidecar waits for it, and has read its file by then.
    let registry = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = registry.local_addr().expect("an address");
    let text = |instance: &str| {
        let service = format!("[service.b]\nconsul = {{ address = 'http://{address}', service = 'b' }}\n");
        file("127.0.0.1:0", "route = [{ path = '/b', service = 'b' }]", instance) + &service
    };
    fs::write(&path, text(&one)).expect("a file");
    let (changed, after) = (path.clone(), format!("{}# another one\n", text(&two)));
    let waiting = thread::spawn(move || {
        let silent = registry.accept().expect("it is asked");
        fs::write(&changed, after).expect("a file");
        (registry, silent)
    });
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(&path).arg("--watch");
    let sidecar = Sidecar::run(command);
    until_it_answers(&sidecar, "two");
    drop(waiting.join().expect("it is done"));
}
