//! Links of a page that clients of the sidecar get before its response.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use h2lab_base::units::Time;
use h2lab_wire::connection::Request;
use h2lab_wire::{Config, Connection, Event, Role};

use crate::sidecar::Sidecar;
use crate::support::folder;

const NOW: Time = Time::from_millis(1);
const PAGE: &str = "HTTP/1.1 200 OK\r\nlink: </a.css>; rel=preload; as=style\r\nlink: </next>; rel=next\r\ncontent-length: 4\r\n\r\npage";
const OTHER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother";

/// A server whose page waits until the test releases it; everything else is answered at once. Also returns the request
/// lines that it got.
fn server() -> (String, mpsc::Sender<()>, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (go, may_go) = mpsc::channel();
    let (seen, lines) = mpsc::channel();
    let (pages, waiting) = mpsc::channel::<TcpStream>();
    thread::spawn(move || {
        for mut stream in waiting {
            if may_go.recv().is_err() || stream.write_all(PAGE.as_bytes()).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen, pages) = (stream.expect("a connection"), seen.clone(), pages.clone());
            thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while stream.read(&mut byte).unwrap_or(0) == 1 {
                    head.push(byte[0]);
                    if !head.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    let text = String::from_utf8_lossy(&std::mem::take(&mut head)).into_owned();
                    let line = text.lines().next().unwrap_or_default().to_owned();
                    let is_page = line.contains(" /page");
                    let _ = seen.send(line);
                    let again = stream.try_clone().expect("a descriptor");
                    if is_page {
                        let _ = pages.send(again);
                    } else {
                        let _ = stream.write_all(OTHER.as_bytes());
                    }
                }
            });
        }
    });
    (url, go, lines)
}

fn sidecar(url: &str, more: &str) -> Sidecar {
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = ['{url}']\n{more}"
    );
    fs::write(&path, text).expect("a file");
    Sidecar::with(&path)
}

/// An HTTP/2 client that reports its events in short form.
struct Client {
    stream: TcpStream,
    engine: Connection,
}

impl Client {
    fn new(proxy: &Sidecar, enable_push: bool) -> Self {
        let config = Config { enable_push, ..Config::new(Role::Client) };
        Self { stream: proxy.connect(), engine: Connection::h2(config, NOW) }
    }

    fn get(&mut self, path: &str) {
        let request = Request {
            method: "GET",
            authority: "a.test",
            path,
            fields: &[],
            body_length: None,
            end_stream: true,
        };
        self.engine.send_request(NOW, &request).expect("there is room");
    }

    /// All events up to the one that begins like this.
    fn until(&mut self, last: &str) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            while let Some(event) = self.engine.poll_event(NOW) {
                let link = |fields: h2lab_wire::Fields<'_>| {
                    String::from_utf8_lossy(fields.get("link").unwrap_or_default()).into_owned()
                };
                told.push(match event {
                    Event::Interim { stream, head } => {
                        format!("{}: {} {}", stream.0, head.status, link(head.fields))
                    }
                    Event::PushPromise { stream, promised, head } => {
                        format!("{}: promise {} {}", stream.0, promised.0, String::from_utf8_lossy(head.path))
                    }
                    Event::Response { stream, head, .. } => format!("{}: {}", stream.0, head.status),
                    Event::Data { stream, end_stream: true, .. } => format!("{}: end", stream.0),
                    Event::Reset { stream, code, .. } => format!("{}: reset {code}", stream.0),
                    _ => continue,
                });
            }
            if told.iter().any(|line| line.starts_with(last)) {
                return told;
            }
            self.stream.write_all(&self.engine.take_transmit(NOW)).expect("it reads");
            let mut space = [0; 16 * 1024];
            let n = self.stream.read(&mut space).expect("in time");
            assert!(n > 0, "it closed after {told:?}");
            self.engine.handle_input(NOW, &space[..n]);
        }
    }
}

#[test]
fn configured_links_are_told_before_the_instance_has_answered() {
    let (url, go, _lines) = server();
    let proxy = sidecar(
        &url,
        "[[hint]]\nhost = 'a.test'\npath = '/page'\nlink = ['</x.js>; rel=preload; as=script']\n",
    );
    let mut client = Client::new(&proxy, false);
    client.get("/page?q");
    assert_eq!(client.until("1: 103"), ["1: 103 </x.js>; rel=preload; as=script"], "the page waits");
    go.send(()).expect("it waits");
    assert_eq!(client.until("1: end"), ["1: 200", "1: end"]);
    client.get("/other");
    assert_eq!(client.until("3: end"), ["3: 200", "3: end"], "it has no hint");
    // HTTP/1.1 clients get hints only if they are asked for.
    go.send(()).expect("it waits");
    let told = proxy.ask("GET /page HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    let asked = "[hints]\nhttp1 = true\n[[hint]]\npath = '/page'\nlink = ['</x.js>; rel=preload']\n";
    go.send(()).expect("it waits");
    let told = sidecar(&url, asked).ask("GET /page HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 103 ") && told.contains("\r\n\r\nHTTP/1.1 200 "), "{told}");
}

#[test]
fn links_of_a_response_are_told_with_the_next_request_for_it() {
    let (url, go, _lines) = server();
    let proxy = sidecar(&url, "[hints]\nlearn = true\n");
    let mut client = Client::new(&proxy, false);
    client.get("/page");
    go.send(()).expect("it waits");
    assert_eq!(client.until("1: end"), ["1: 200", "1: end"]);
    client.get("/page");
    assert_eq!(
        client.until("3: 103"),
        ["3: 103 </a.css>; rel=preload; as=style"],
        "what is not early is left out"
    );
    go.send(()).expect("it waits");
    assert_eq!(client.until("3: end"), ["3: 200", "3: end"]);
}

#[test]
fn what_is_preloaded_is_pushed_once_to_clients_that_allow_it() {
    let (url, go, lines) = server();
    let hints = "[hints]\npush = true\n[[hint]]\npath = '/page'\n\
                 link = ['</x.js>; rel=preload', '</y.js>; rel=preload; nopush', '<https://b/z>; rel=preload']\n";
    let logs = folder();
    let log = logs.path().join("log");
    let proxy = sidecar(&url, &format!("{hints}[log]\nfile = '{}'\n", log.display()));
    let mut client = Client::new(&proxy, true);
    // Its SETTINGS are there before the page is asked for.
    client.get("/other");
    client.until("1: end");
    client.get("/page");
    let told = client.until("2: end");
    let place = |what: &str| told.iter().position(|line| line.starts_with(what));
    assert!(place("3: promise 2 /x.js").is_some() && place("2: 200").is_some(), "{told:?}");
    assert!(place("3: promise 2") < place("2: 200") && place("3: 200").is_none(), "the page waits: {told:?}");
    go.send(()).expect("it waits");
    client.until("3: end");
    client.get("/page");
    go.send(()).expect("it waits");
    let told = client.until("5: end");
    assert!(!told.iter().any(|line| line.contains("promise")), "it has it: {told:?}");
    let mut refuses = Client::new(&proxy, false);
    refuses.get("/other");
    refuses.until("1: end");
    refuses.get("/page");
    go.send(()).expect("it waits");
    let told = refuses.until("3: end");
    assert!(told[0].starts_with("3: 103 ") && !told.iter().any(|line| line.contains("promise")), "{told:?}");
    let asked: Vec<String> = lines.try_iter().filter(|line| line.contains(".js")).collect();
    assert_eq!(asked, ["GET /x.js HTTP/1.1"]);
    drop((client, refuses));
    let last = proxy.stop();
    assert!(last.contains("; none failed") && last.ends_with(", 1 pushed"), "{last}");
    let log = fs::read_to_string(&log).expect("a log");
    let pushed = log.lines().find(|line| line.contains("/x.js")).expect("a line");
    assert!(pushed.contains(" 127.0.0.1 \"GET a.test /x.js HTTP/2\" 200 "), "{pushed}");
}
