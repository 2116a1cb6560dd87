//! Parts of HTTP/2 that few use, with implementations that are not ours at the other end.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use h2lab_model::workload::Protocol;
use h2lab_net::clock::Clock;
use h2lab_wire::connection::Request;
use h2lab_wire::{Config, Connection, Event, Field, Role, StreamId};

use crate::origin::{Origin, over_all_protocols};
use crate::peers::Peer;
use crate::support::{DEADLINE, DRAIN, folder, h2lab, need, read_once, run_program};

/// What nghttp prints with these arguments; `None` if the tests are to do without it.
#[track_caller]
fn nghttp(arguments: &[&str]) -> Option<String> {
    let arguments = [&["--no-verify-peer", "--timeout=60s"], arguments].concat();
    let finished = run_program(&need("nghttp")?, folder().path(), &arguments);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    Some(finished.stdout)
}

#[test]
fn pushed_resources_arrive_beside_the_answer_and_a_client_may_refuse_them() {
    let origin = Origin::start(&[]);
    for url in
        [format!("http://{}/push?count=3", origin.clear), format!("https://{}/push?count=3", origin.tls)]
    {
        let Some(said) = nghttp(&["-ns", &url]) else { return };
        // A row of its statistics; an asterisk marks what was pushed.
        let rows: Vec<&str> = said.lines().filter(|line| line.contains(" 200 ")).collect();
        let pushed = |row: &&&str| row.contains(" * ") && row.contains("4K /bytes/4k?pushed=");
        assert_eq!((rows.len(), rows.iter().filter(pushed).count()), (4, 3), "{said}");

        let said = nghttp(&["-nv", "--no-push", &url]).expect("nghttp was there");
        assert!(!said.contains("PUSH_PROMISE") && said.contains(":status: 200"), "{said}");
    }
}

#[test]
fn a_path_that_pushes_answers_clients_that_know_no_push() {
    let origin = Origin::start(&[]);
    over_all_protocols(&origin, |curl, protocol| {
        let answer = curl.get("/push", &[]);
        assert_eq!((answer.status, answer.body.len()), (200, 1024), "{protocol}");
    });
}

#[test]
fn trailers_of_a_request_come_back_behind_its_echo() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let payload = folder.path().join("payload");
    for body in ["", "some body"] {
        fs::write(&payload, body).unwrap();
        let (data, url) = (format!("-d{}", payload.display()), format!("http://{}/echo", origin.clear));
        let Some(said) = nghttp(&["-v", &data, "--trailer", "x-checksum: 42", &url]) else { return };
        let received = said.rsplit("recv (stream_id=").next().unwrap();
        assert!(received.contains("x-checksum: 42"), "{body:?}: {said}");
        assert!(said.contains(body), "{said}");
    }
    // curl's command line cannot send trailers, but a socket can; it shows those that come.
    let mut stream = origin.connect();
    let request = "POST /echo HTTP/1.1\r\nhost: h\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
                   4\r\nWiki\r\n0\r\nx-checksum: 42\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("transfer-encoding: chunked\r\n"), "{answer}");
    assert!(answer.ends_with("4\r\nWiki\r\n0\r\nx-checksum: 42\r\n\r\n"), "{answer}");
}

#[test]
fn padding_in_both_directions_changes_no_body() {
    let origin = Origin::start(&["--padding", "255"]);
    over_all_protocols(&origin, |curl, protocol| {
        for (path, length) in [("/", 1024), ("/bytes/3M", 3 << 20), ("/bytes/0", 0)] {
            assert_eq!(curl.get(path, &[]).body.len(), length, "{protocol} {path}");
        }
    });
    let folder = folder();
    let payload = folder.path().join("payload");
    let body: String = ('a'..='z').cycle().take(100_000).collect();
    fs::write(&payload, &body).unwrap();
    let (data, url) =
        (format!("-d{}", payload.display()), format!("http://{}/echo", origin.address(Protocol::H2c)));
    let Some(said) = nghttp(&["--padding=200", &data, &url]) else { return };
    assert!(said.trim_end() == body, "{} bytes came back", said.len());
}

#[test]
fn priorities_of_rfc_7540_are_read_and_have_no_effect() {
    let origin = Origin::start(&[]);
    // nghttp opens with five PRIORITY frames on idle streams and gives its HEADERS a weight and a parent.
    let Some(said) = nghttp(&["-nv", "-p", "1", &format!("http://{}/", origin.clear)]) else { return };
    assert!(said.contains("send PRIORITY frame") && said.contains(":status: 200"), "{said}");
    assert!(!said.contains("recv RST_STREAM") && !said.contains("recv GOAWAY"), "{said}");
}

#[test]
fn our_client_takes_trailers_and_padding_of_nghttpd() {
    let Some(server) = Peer::nghttpd(&["--trailer=x-end: 1", "--padding=200"]) else { return };
    let url = format!("http://{}/file", server.address);
    let finished =
        h2lab(&["compare", "--json", "--proto=h2c", "-q=100", "-z=2s", "--repetitions=1", DRAIN, &url]);
    finished.assert_measured();
    let cell = &finished.json()["cells"][0];
    assert_eq!(cell["requests"]["failed"], 0, "{cell}");
    let sent = server.child.wait_for_line(DEADLINE, |line| line.contains("x-end: 1").then_some(()));
    sent.unwrap_or_else(|error| panic!("{error}: {}", server.child.log()));
}

#[test]
fn an_urgent_answer_overtakes_the_others_that_are_under_way() {
    const LARGE: usize = 40 << 20;
    const URGENT: usize = 20 << 20;
    let origin = Origin::start(&[]);
    let mut config = Config::new(Role::Client);
    (config.flow.stream_window, config.flow.connection_window) = (1 << 30, 1 << 30);
    let mut client = Client::new(origin.connect(), &config);
    let large: Vec<StreamId> = (0..4).map(|_| client.ask(&format!("/bytes/{LARGE}"), "u=5, i")).collect();
    client.read_until(|received| large.iter().all(|stream| received.get(stream).is_some_and(|n| *n > 0)));
    let urgent = client.ask(&format!("/bytes/{URGENT}"), "u=1");
    client.read_until(|received| received.get(&urgent) == Some(&URGENT));
    let others: usize = large.iter().map(|stream| client.received[stream]).sum();
    // If all streams shared the bandwidth, the others would have received 80 MiB meanwhile; first come, first served,
    // all of their 160. What they did receive was in the buffers of both sockets when the urgent response was
    // requested.
    assert!(others < 60 << 20, "{} MiB", others >> 20);
}

/// Our own engine on a blocking socket.
struct Client {
    engine: Connection,
    stream: TcpStream,
    clock: Clock,
    /// Bytes of body by stream.
    received: BTreeMap<StreamId, usize>,
}

impl Client {
    fn new(stream: TcpStream, config: &Config) -> Self {
        let clock = Clock::start();
        Self { engine: Connection::h2(*config, clock.now()), stream, clock, received: BTreeMap::new() }
    }

    /// Asks for `path` with this priority.
    fn ask(&mut self, path: &str, priority: &str) -> StreamId {
        let request = Request {
            method: "GET",
            authority: "h",
            path,
            fields: &[Field::new("priority", priority)],
            body_length: None,
            end_stream: true,
        };
        let stream = self.engine.send_request(self.clock.now(), &request).expect("a stream");
        self.flush();
        stream
    }

    fn flush(&mut self) {
        let now = self.clock.now();
        let bytes = self.engine.poll_transmit(now).to_vec();
        self.stream.write_all(&bytes).expect("the origin reads");
        self.engine.handle_transmitted(now, bytes.len());
    }

    /// Reads until so much has come.
    fn read_until(&mut self, is_enough: impl Fn(&BTreeMap<StreamId, usize>) -> bool) {
        while !is_enough(&self.received) {
            let n = read_once(&mut self.stream, self.engine.recv_space()).expect("the origin answers");
            assert!(n > 0, "it closed");
            let now = self.clock.now();
            self.engine.handle_received(now, n);
            while let Some(event) = self.engine.poll_event(now) {
                match event {
                    Event::Data { stream, data, .. } => {
                        *self.received.entry(stream).or_default() += data.len();
                    }
                    Event::Closed { error } => panic!("{error:?}"),
                    _ => {}
                }
            }
            self.flush();
        }
    }
}
