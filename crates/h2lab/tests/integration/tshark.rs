//! What our Tap recorded against what tshark decodes of the same packets, frame by frame.
//!
//! Everything happens in a network namespace of its own, where packets can be captured without any privilege and there is no
//! other traffic.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use h2lab::run::store;
use h2lab_model::record::{CellRecord, CloseReason, ConnectionRecord, Outcome};
use h2lab_model::workload::Protocol;
use h2lab_net::process::Child;
use h2lab_wire::h2::frame::flag;
use h2lab_wire::trace::{Direction, FrameKind};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{DEADLINE, DRAIN, Finished, binary, folder, need};

/// A frame as both report it: type, flags, stream, length.
type SeenFrame = (u8, u8, u32, u32);

/// What may cross when all requests are answered.
const CONTROL: [FrameKind; 3] = [FrameKind::SETTINGS, FrameKind::WINDOW_UPDATE, FrameKind::GOAWAY];

/// The frames of each connection, by our port, in each direction in their order.
type Conversations = BTreeMap<u16, [Vec<SeenFrame>; 2]>;

const fn side(direction: Direction) -> usize {
    match direction {
        Direction::Up => 0,
        Direction::Down => 1,
    }
}

/// tshark, capturing on the loopback device of a namespace that it creates.
struct Capture {
    tshark: PathBuf,
    child: Child,
    file: PathBuf,
}

impl Capture {
    /// `None` if the tests are to do without a program that this needs.
    fn start(folder: &Path) -> Option<Self> {
        let (tshark, ip) = (need("tshark")?, need("ip")?);
        need("setpriv")?; // of the package that has `unshare` and `nsenter`
        let file = folder.join("capture.pcapng");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh", "-c"]);
        command.arg(r#""$1" link set lo up && shift && exec "$@""#).arg("sh").arg(ip).arg(&tshark);
        command.args([
            "-i",
            "lo",
            "-B",
            "64",
            "-f",
            "tcp",
            "-n",
            "-l",
            "-P",
            "-T",
            "fields",
            "-e",
            "tcp.dstport",
            "-w",
        ]);
        command.arg(&file);
        let child = Child::spawn(command, None).expect("unshare starts");
        let capture = Self { tshark, child, file };
        // What it prints before it captures differs from version to version: the first packet that it shows is proof.
        let until = Instant::now() + DEADLINE;
        while !capture.probe_port(1, Duration::from_millis(200)) {
            assert!(Instant::now() < until, "it captures nothing: {}", capture.child.log());
        }
        Some(capture)
    }

    /// A command inside the namespace.
    fn inside(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.child.pid().as_raw_nonzero().to_string();
        command.args(["--user", "--net", "--preserve-credentials", "--target", &pid]).arg(program);
        command
    }

    /// Connects to a port where nothing listens, and returns whether tshark shows that within `timeout`.
    fn probe_port(&self, port: u16, timeout: Duration) -> bool {
        let mut command = self.inside(Path::new("bash"));
        let refused = command.arg("-c").arg(format!("exec 3<>/dev/tcp/127.0.0.1/{port}")).output();
        assert!(!refused.expect("bash starts").status.success(), "nobody listens there");
        let wanted = port.to_string();
        self.child.wait_for_line(timeout, |line| (line == wanted).then_some(())).is_ok()
    }

    /// Ends the capture once everything up to now is in the file, and decodes it. If several connections have the same
    /// port of ours, it returns the last one: a repetition that was disturbed is made again, and its record replaced.
    fn decode(self, server: SocketAddr, protocol: Protocol, keys: &Path) -> Conversations {
        let columns = ["tcp.srcport", "tcp.dstport", "tcp.stream"];
        let columns =
            [&columns[..], &["http2.type", "http2.flags", "http2.streamid", "http2.length"]].concat();
        let (mut seen, mut latest) = (Conversations::new(), BTreeMap::new());
        for row in self.table(server, protocol, keys, &columns) {
            let (port, direction) = flow(&row, server);
            if latest.insert(port, row[2].clone()).is_some_and(|before| before != row[2]) {
                seen.remove(&port);
            }
            let columns: Vec<&str> = row[3..].iter().map(String::as_str).collect();
            seen.entry(port).or_default()[side(direction)].extend(frames(&columns));
        }
        seen
    }

    /// The same as one row per packet that has HTTP/2 in it; values of a column are separated by `|`.
    fn table(
        mut self,
        server: SocketAddr,
        protocol: Protocol,
        keys: &Path,
        columns: &[&str],
    ) -> Vec<Vec<String>> {
        assert!(self.probe_port(2, DEADLINE), "packets come in their order: {}", self.child.log());
        self.child.stop(Signal::INT, DEADLINE).expect("it was running");
        let mut command = Command::new(&self.tshark);
        let below = if protocol.is_tls() { "tls" } else { "http2" };
        command.arg("-r").arg(&self.file).arg("-d").arg(format!("tcp.port=={},{below}", server.port()));
        command.arg("-o").arg(format!("tls.keylog_file:{}", keys.display()));
        // Two CPUs may deliver the segments of a connection in another order; without this option tshark drops all that
        // follows.
        command.args(["-o", "tcp.reassemble_out_of_order:TRUE"]);
        command.args(["-Y", "http2", "-T", "fields", "-E", "aggregator=|", "-E", "occurrence=a"]);
        for column in columns {
            command.args(["-e", column]);
        }
        let finished: Finished = command.output().expect("tshark starts").into();
        assert_eq!(finished.code, Some(0), "{}", finished.transcript());
        finished.stdout.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }
}

/// Our port and the direction of a packet, whose first two columns are the ports.
fn flow(row: &[String], server: SocketAddr) -> (u16, Direction) {
    let [from, to] = [&row[0], &row[1]].map(|port| port.parse::<u16>().expect("a port"));
    if to == server.port() { (from, Direction::Up) } else { (to, Direction::Down) }
}

/// The frames of a packet, from its columns.
fn frames(columns: &[&str]) -> Vec<SeenFrame> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).expect("a number"),
        None => text.parse().expect("a number"),
    };
    let column =
        |text: &str| -> Vec<u32> { text.split('|').filter(|value| !value.is_empty()).map(number).collect() };
    let columns: Vec<Vec<u32>> = columns.iter().map(|text| column(text)).collect();
    let count = columns[0].len();
    assert!(
        columns.iter().all(|column| column.len() == count),
        "a value of each for every frame: {columns:?}"
    );
    (0..count).map(|k| (columns[0][k] as u8, columns[1][k] as u8, columns[2][k], columns[3][k])).collect()
}

/// What the Tap recorded.
fn recorded(repetition: &CellRecord) -> Conversations {
    let mut recorded = Conversations::new();
    for frame in &repetition.frames {
        let port = repetition.connections[frame.connection as usize].local_port;
        let frames = &mut recorded.entry(port).or_default()[side(frame.direction)];
        frames.push((frame.kind.0, frame.flags, frame.stream.0, frame.length));
    }
    recorded
}

/// Measures `path` of a server inside the namespace; `keys` gets the secrets of TLS.
fn compare(
    capture: &Capture,
    (server, protocol, path): (SocketAddr, Protocol, &str),
    (keys, out): (&Path, &Path),
    more: &[&str],
) -> CellRecord {
    let scheme = if protocol.is_tls() { "https" } else { "http" };
    let mut command = capture.inside(&binary());
    command
        .args(["compare", "-k", "--repetitions=1", "--warmup=0s", "-z=200ms", "-c=2", "-q=500", DRAIN])
        .args(more);
    command.arg(format!("--proto={protocol}")).arg("--out").arg(out);
    command.arg(format!("{scheme}://{server}{path}")).env("SSLKEYLOGFILE", keys);
    let finished: Finished = command.output().expect("nsenter starts").into();
    finished.assert_measured();
    store::read(out).expect("a run folder").repetitions.swap_remove(0)
}

/// Uploads of 40 kB that are echoed, with a field too long for one HEADERS; the server ends connections by
/// GOAWAY, and later ones resume.
fn agree_on(protocol: Protocol) {
    let folder = folder();
    let Some(capture) = Capture::start(folder.path()) else { return };
    let mut command = capture.inside(&binary());
    let listen = if protocol.is_tls() { "--tls-listen=127.0.0.1:0" } else { "--listen=127.0.0.1:0" };
    command.args(["origin", listen, "--max-requests-per-connection=20"]);
    let origin = Child::spawn(command, None).expect("nsenter starts");
    let address = |line: &str| line.strip_prefix("listening ")?.split("//").nth(1)?.parse().ok();
    let server: SocketAddr =
        origin.wait_for_line(DEADLINE, address).unwrap_or_else(|error| panic!("{error}: {}", origin.log()));
    let (keys, out) = (folder.path().join("keys"), folder.path().join("run"));
    fs::write(&keys, "").expect("a temporary file");
    let long = format!("-H=X-Long: {}", "~".repeat(17_000));
    let uploads = ["-X=POST", "--body-bytes=40k", &long];
    let repetition = compare(&capture, (server, protocol, "/echo"), (&keys, &out), &uploads);
    let seen = capture.decode(server, protocol, &keys);

    assert!(repetition.connections.len() > 2, "{} connections", repetition.connections.len());
    let resumed =
        repetition.connections.iter().filter(|connection| connection.tls_resumed == Some(true)).count();
    assert_eq!(resumed > 0, protocol.is_tls(), "secrets of resumed sessions are logged too");
    let [up, down] = agreed(&repetition, seen);
    for kind in [FrameKind::HEADERS, FrameKind::DATA, FrameKind::SETTINGS, FrameKind::CONTINUATION] {
        assert!(up[usize::from(kind.0)] > 0, "{protocol}: no {kind} went up: {up:?}");
    }
    for kind in [FrameKind::HEADERS, FrameKind::DATA, FrameKind::WINDOW_UPDATE, FrameKind::GOAWAY] {
        assert!(down[usize::from(kind.0)] > 0, "{protocol}: no {kind} came down: {down:?}");
    }
}

/// Fails unless tshark has `seen` what was recorded; returns how many frames of each kind there were in each direction.
fn agreed(repetition: &CellRecord, mut seen: Conversations) -> [[u32; 10]; 2] {
    // If a connection is open at the end of its cell, its record ends before our client closes it. The server may still
    // be acknowledging SETTINGS on one that was just made, or answering requests that a busy machine left unfinished.
    let is_open = |connection: &&ConnectionRecord| connection.closed == CloseReason::Cell;
    let open: Vec<u16> = repetition.connections.iter().filter(is_open).map(|one| one.local_port).collect();
    let unfinished = repetition.samples.iter().filter(|sample| sample.outcome == Outcome::Unfinished);
    let unfinished: Vec<u32> = unfinished.map(|sample| sample.stream.0).collect();
    let (mut kinds, mut late) = ([[0; 10]; 2], 0);
    for (port, ours) in recorded(repetition) {
        let is_expected =
            |frame: SeenFrame| CONTROL.contains(&FrameKind(frame.0)) || unfinished.contains(&frame.2);
        let may_follow = |frame: SeenFrame| open.contains(&port) && is_expected(frame);
        let mut theirs = seen.remove(&port).unwrap_or_else(|| panic!("tshark knows no connection of {port}"));
        for (k, (ours, theirs)) in ours.iter().zip(&mut theirs).enumerate() {
            let rest = theirs.split_off(ours.len().min(theirs.len()));
            let differs = ours.iter().zip(&*theirs).position(|(ours, theirs)| ours != theirs);
            assert_eq!(differs, None, "port {port}, direction {k}: {ours:?}\n{theirs:?}");
            assert_eq!(ours.len(), theirs.len(), "port {port}, direction {k}: tshark has fewer");
            assert!(rest.iter().all(|frame| may_follow(*frame)), "port {port}, direction {k}: {rest:?}");
            late += rest.iter().filter(|frame| !unfinished.contains(&frame.2)).count();
            for frame in ours {
                kinds[k][usize::from(frame.0)] += 1;
            }
        }
    }
    // Credit of the connection for the body of an unfinished request may follow too.
    let allowed = 4 * open.len() + unfinished.len();
    assert!(late <= allowed, "{late} frames followed on {} connections, {allowed} may", open.len());
    kinds
}

/// Where nghttpd listens inside the namespace.
const NGHTTPD: &str = "127.0.0.1:8443";

/// nghttpd inside the namespace, whose responses end with trailers; `None` if the tests are to do without it.
fn nghttpd(capture: &Capture, folder: &Path, protocol: Protocol) -> Option<Child> {
    let program = need("nghttpd")?;
    // If started by root, it serves as another user.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("our own folder");
    fs::write(folder.join("file"), [b'f'; 5_000]).expect("a temporary file");
    let mut command = capture.inside(&program);
    command.args(["--verbose", "--address=127.0.0.1", "--trailer=x-checksum: 42", "--htdocs"]).arg(folder);
    let (_, port) = NGHTTPD.split_once(':').expect("an address");
    if protocol.is_tls() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let (key, certificate) = (folder.join("key.pem"), folder.join("certificate.pem"));
        fs::write(&key, made.signing_key.serialize_pem()).expect("a temporary file");
        fs::write(&certificate, made.cert.pem()).expect("a temporary file");
        command.arg(port).args([key, certificate]);
    } else {
        command.args(["--no-tls", port]);
    }
    let server = Child::spawn(command, None).expect("nsenter starts");
    let listens = |line: &str| line.contains(&format!("listen {NGHTTPD}")).then_some(());
    server.wait_for_line(DEADLINE, listens).unwrap_or_else(|error| panic!("{error}: {}", server.log()));
    Some(server)
}

fn agree_on_trailers(protocol: Protocol) {
    let folder = folder();
    let Some(capture) = Capture::start(folder.path()) else { return };
    let Some(_nghttpd) = nghttpd(&capture, folder.path(), protocol) else { return };
    let server = NGHTTPD.parse().expect("an address");
    let (keys, out) = (folder.path().join("keys"), folder.path().join("run"));
    fs::write(&keys, "").expect("a temporary file");
    let repetition = compare(&capture, (server, protocol, "/file"), (&keys, &out), &[]);
    assert!(repetition.samples.len() > 50, "{} requests", repetition.samples.len());
    let seen = capture.decode(server, protocol, &keys);
    // The comparison below covers trailers: two HEADERS on a stream, the second of which ends it.
    let trailers = |frames: &[SeenFrame]| {
        let ending = |frame: &&SeenFrame| (frame.0, frame.1 & flag::END_STREAM) == (FrameKind::HEADERS.0, 1);
        frames.iter().filter(ending).count()
    };
    let came: usize = recorded(&repetition).values().map(|[_, down]| trailers(down)).sum();
    assert_eq!(came, repetition.samples.len(), "{protocol}: trailers behind every body");
    let [up, down] = agreed(&repetition, seen).map(|kinds| kinds[usize::from(FrameKind::HEADERS.0)] as usize);
    assert_eq!((up, down), (repetition.samples.len(), 2 * repetition.samples.len()), "{protocol}");
}

#[test]
fn tshark_and_the_tap_agree_on_trailers_in_clear() {
    agree_on_trailers(Protocol::H2c);
}

#[test]
fn tshark_and_the_tap_agree_on_trailers_under_tls_1_3() {
    agree_on_trailers(Protocol::H2);
}

#[test]
fn tshark_and_the_tap_agree_on_every_frame_in_clear() {
    agree_on(Protocol::H2c);
}

#[test]
fn tshark_and_the_tap_agree_on_every_frame_under_tls_1_3() {
    agree_on(Protocol::H2);
}

/// What tshark decodes inside frames, by its names: header fields, settings, increments, last streams.
const INSIDE: [&str; 8] = [
    "http2.header.name",
    "http2.header.value",
    "http2.settings.id",
    "http2.settings.max_concurrent_streams",
    "http2.settings.initial_window_size",
    "http2.window_update.window_size_increment",
    "http2.goaway.last_stream_id",
    "http2.push_promise.promised_stream_id",
];

/// The same values, in the same columns, out of a frame of `trace --json`.
fn inside(frame: &Value) -> [Vec<String>; INSIDE.len()] {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let all = |key: &str, part: &str| -> Vec<String> {
        frame[key].as_array().into_iter().flatten().map(|one| text(&one[part])).collect()
    };
    let one = |key: &str| -> Vec<String> { frame.get(key).map(text).into_iter().collect() };
    let setting = |id: u64| -> Vec<String> {
        let settings = frame["settings"].as_array().into_iter().flatten();
        settings.filter(|one| one["id"] == id).map(|one| text(&one["value"])).collect()
    };
    [
        all("fields", "name"),
        all("fields", "value"),
        all("settings", "id"),
        setting(3),
        setting(4),
        one("increment"),
        one("last_stream_id"),
        one("promised_stream"),
    ]
}

/// Joins what each frame or packet has in each column.
fn join<'a>(rows: impl Iterator<Item = [Vec<String>; INSIDE.len()]> + 'a) -> [Vec<String>; INSIDE.len()] {
    rows.fold(Default::default(), |mut joined: [Vec<String>; INSIDE.len()], row| {
        joined.iter_mut().zip(row).for_each(|(joined, values)| joined.extend(values));
        joined
    })
}

#[test]
fn tshark_and_trace_agree_on_what_is_in_the_frames_of_a_push_and_of_an_early_hint() {
    let folder = folder();
    let Some(capture) = Capture::start(folder.path()) else { return };
    let mut command = capture.inside(&binary());
    command.args(["origin", "--listen=127.0.0.1:0"]);
    let origin = Child::spawn(command, None).expect("nsenter starts");
    let address = |line: &str| line.strip_prefix("listening ")?.split("//").nth(1)?.parse().ok();
    let server: SocketAddr =
        origin.wait_for_line(DEADLINE, address).unwrap_or_else(|error| panic!("{error}: {}", origin.log()));
    let traced: Vec<Value> = ["/push?count=2", "/early?ms=1"]
        .iter()
        .map(|path| {
            let mut command = capture.inside(&binary());
            command.args(["trace", "--json", "--push", "--secrets", "-n=2", "--proto=h2c"]);
            command.arg(format!("http://{server}{path}"));
            let finished: Finished = command.output().expect("nsenter starts").into();
            assert_eq!(finished.code, Some(0), "{}", finished.transcript());
            finished.json()
        })
        .collect();
    let columns = [&["tcp.srcport", "tcp.dstport"], &INSIDE[..]].concat();
    let table = capture.table(server, Protocol::H2c, Path::new(""), &columns);
    for (trace, kind) in traced.iter().zip(["PUSH_PROMISE", "HEADERS"]) {
        let frames = trace["frames"].as_array().expect("frames");
        assert!(frames.iter().any(|frame| frame["type"] == kind), "{trace:#}");
        let port = trace["connections"][0]["local_port"].as_u64().expect("a port");
        for (direction, name) in [(Direction::Up, "up"), (Direction::Down, "down")] {
            let ours = join(frames.iter().filter(|frame| frame["direction"] == name).map(inside));
            let rows = table.iter().filter(|row| {
                let (of, way) = flow(row, server);
                u64::from(of) == port && way == direction
            });
            let split = |text: &String| -> Vec<String> {
                text.split('|').filter(|value| !value.is_empty()).map(str::to_owned).collect()
            };
            let theirs = join(rows.map(|row| std::array::from_fn(|k| split(&row[2 + k]))));
            for (column, (ours, theirs)) in INSIDE.iter().zip(ours.iter().zip(&theirs)) {
                assert_eq!(ours, theirs, "{column} {name}: {trace:#}");
            }
        }
    }
}
