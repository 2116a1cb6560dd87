use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

use h2lab::run::store;
use h2lab_model::record::{CellRecord, CloseReason, ConnectionRecord, Fault, Outcome, Sample};
use h2lab_net::process::Child;
use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{PREFACE, flag, kind};
use rustix::process::Pid;
use socket2::SockRef;

use super::GROWTH;
use super::attacker::{Attacker, Received, frame, read_frame};
use crate::support::{DEADLINE, binary, folder};

/// Requests of each connection that are answered before something happens on it.
const ANSWERED: usize = 2;

/// What a server does to its victim, and when.
#[derive(Clone, Copy)]
pub enum Attack {
    /// In place of the answer to the third request of a connection, which came on this stream. Then the server reads
    /// until our client closes the connection.
    Http2(fn(&mut Attacker, u32)),
    /// As the answer to every third request of a connection, to be sent on its stream; all others are served.
    Streams(fn(u32) -> Vec<u8>),
    /// HTTP/1.1: in place of the answer to the third request of a connection.
    Http1(fn(&mut TcpStream)),
    /// On a connection of HTTP/2 before anything else.
    Greeting(fn(&mut TcpStream)),
}

impl Attack {
    const fn protocol(self) -> &'static str {
        if let Self::Http1(_) = self { "h1" } else { "h2c" }
    }
}

/// What became of a run and of the connection on which it was attacked.
pub struct Met {
    /// The attacked connection, from the run folder.
    pub connection: ConnectionRecord,
    /// What our client sent on it from the attack on.
    pub received: Received,
    /// All that was measured.
    pub cell: CellRecord,
}

impl Met {
    /// Fails unless our client ended the connection for this reason, and sent the server this code.
    #[track_caller]
    pub fn assert_ended(&self, code: ErrorCode, words: &str) {
        assert_eq!(self.received.goaway, Some((code, words.to_owned())));
        self.assert_recorded(&match code {
            ErrorCode::ENHANCE_YOUR_CALM => words.to_owned(),
            code => format!("invalid HTTP/2 from the peer: {words} ({code})"),
        });
    }

    /// Fails unless the record says that we ended the connection for this reason.
    #[track_caller]
    pub fn assert_recorded(&self, why: &str) {
        assert_eq!(self.connection.closed, CloseReason::Local { why: why.to_owned() });
    }

    /// Fails unless the connection ended by a bound whose text begins so: its number depends on how many requests the client had
    /// sent by then.
    #[track_caller]
    pub fn assert_calmed(&self, beginning: &str) {
        let (code, words) = self.received.goaway.clone().expect("a GOAWAY");
        assert!(code == ErrorCode::ENHANCE_YOUR_CALM && words.starts_with(beginning), "{words}");
        self.assert_recorded(&words);
    }

    /// The requests that the attacked connection carried and that failed.
    pub fn failed(&self) -> Vec<Sample> {
        self.samples(true).filter(|sample| sample.outcome.is_failure()).collect()
    }

    /// The requests that the attacked connection carried, or all others.
    pub fn samples(&self, attacked: bool) -> impl Iterator<Item = Sample> {
        let index = self.connection.index;
        self.cell.samples.iter().filter(move |sample| (sample.connection == index) == attacked)
    }
}

/// Lets our load generator, as users run it, meet a server that makes this `attack`, and checks what holds for every one:
/// the run ends by itself; requests of other connections are served, those of the attacked one are the server's fault;
/// the generator does not grow with the attack. `more` are further arguments of `h2lab compare`.
#[track_caller]
pub fn meet(attack: Attack, more: &[&str]) -> Met {
    let met = meet_any(attack, more);
    for sample in met.samples(false) {
        assert_eq!(sample.outcome, Outcome::Succeeded, "a request on another connection: {sample:?}");
    }
    for sample in met.failed() {
        assert_eq!(sample.outcome.fault(), Some(Fault::Sut), "{sample:?}");
    }
    let later = met.cell.connections.iter().filter(|other| other.index > met.connection.index);
    let served: u32 = later.map(|connection| connection.requests).sum();
    println!("{served} requests served on connections after the attacked one");
    met
}

/// As [`meet`], where requests of other connections may fail too, or the attacked one's by our own timeout.
#[track_caller]
pub fn meet_any(attack: Attack, more: &[&str]) -> Met {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    // Few bytes that our client sends fit into the kernel if they are not read. Connections inherit it.
    SockRef::from(&listener).set_recv_buffer_size(4_096).expect("a legal size");
    let url = format!("http://{}/", listener.local_addr().expect("a bound socket has an address"));
    let folder = folder();
    let out = folder.path().join("run");
    let mut command = Command::new(binary());
    command.args(["compare", &url, "--proto", attack.protocol(), "-q=200", "--repetitions=1"]);
    if !more.iter().any(|word| word.starts_with("-z=")) {
        command.arg("-z=800ms");
    }
    let is_h1 = attack.protocol().starts_with("h1");
    command.arg(if is_h1 { "--max-connections=1" } else { "-c=1" });
    command.args(["--warmup=0ms", "--drain=60s", "--out"]).arg(&out).args(more);
    let run = Arc::new(OnceLock::new());
    let (reports, reported) = channel();
    let server = Server { attack, run: Arc::clone(&run), reports };
    std::thread::spawn(move || server.accept(&listener));
    let mut child = Child::spawn(command, None).expect("the binary starts");
    run.set(child.pid()).expect("it is set once");
    let ended = child.wait(DEADLINE).expect("it can be waited for");
    assert!(ended.is_some(), "the run does not end by itself: {}", child.log());
    let mut run = store::read(&out).unwrap_or_else(|error| panic!("{error:#}: {}", child.log()));
    let cell = run.repetitions.pop().expect("one repetition");
    // A repetition that the machine was too busy for is made again: its connections are in no record.
    let ports: Vec<u16> = cell.connections.iter().map(|connection| connection.local_port).collect();
    let report = loop {
        match reported.recv_timeout(DEADLINE) {
            Ok(report) if ports.contains(&report.port) => break report,
            Ok(_) => {}
            Err(error) => panic!("no connection was attacked: {error}: {}", child.log()),
        }
    };
    println!("the generator grew by {} KiB", report.growth / 1024);
    assert!(report.growth < GROWTH, "the generator grew by {} bytes", report.growth);
    let attacked = cell.connections.iter().find(|connection| connection.local_port == report.port);
    let connection = attacked.expect("its port was found before").clone();
    Met { connection, received: report.received, cell }
}

/// What the server recorded about the connection that it attacked.
struct Report {
    /// The client's port.
    port: u16,
    received: Received,
    /// Bytes by which the most memory that the generator ever had rose during the attack.
    growth: u64,
}

/// The server: behaves on the first connection of its protocol, which is used to find it, and then in turns of three:
/// one connection ends in an orderly way after a few requests, one is attacked, one is served to its end.
struct Server {
    attack: Attack,
    /// The process of `h2lab compare`, whose child the generator is.
    run: Arc<OnceLock<Pid>>,
    reports: Sender<Report>,
}

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lot {
    Served,
    Ended,
    Attacked,
}

impl Server {
    /// Takes connections until the tests end.
    fn accept(self, listener: &TcpListener) {
        let server = Arc::new(self);
        let (mut number, mut generator) = (0, None);
        for stream in listener.incoming().flatten() {
            stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
            stream.set_nodelay(true).expect("TCP");
            let mut first = [0; 3];
            // Our client always sends first. A connection that speaks the other protocol only tests whether the server
            // speaks it.
            let speaks = stream.peek(&mut first).is_ok_and(|n| n > 0);
            let speaks_h2 = first[0] == PREFACE[0] && first[1] == PREFACE[1];
            if !speaks || speaks_h2 != (server.attack.protocol() == "h2c") {
                continue;
            }
            // A repetition that is made again, because the machine was too busy for it, gets the same turns.
            let children = server.children();
            if number > 0 && generator.replace(children.clone()) != Some(children) {
                number = 1;
            }
            let lot = match (number, number % 3) {
                (0, _) | (_, 0) => Lot::Served,
                (_, 1) => Lot::Ended,
                _ => Lot::Attacked,
            };
            number += 1;
            let server = Arc::clone(&server);
            // A client that aborts its connection is no error of the server.
            std::thread::spawn(move || server.serve(stream, lot).unwrap_or_default());
        }
    }

    fn serve(&self, mut stream: TcpStream, lot: Lot) -> io::Result<()> {
        match (self.attack, lot) {
            (Attack::Http1(_), _) => self.serve_http1(stream, lot),
            (Attack::Greeting(attack), Lot::Attacked) => {
                let (port, before) = (stream.peer_addr()?.port(), self.peak());
                attack(&mut stream);
                let during = self.peak();
                // Our client sends only its preface, which does not matter here.
                io::copy(&mut stream, &mut io::sink()).unwrap_or_default();
                self.report(port, (before, during), Received::default());
                Ok(())
            }
            _ => self.serve_http2(stream, lot),
        }
    }

    /// Answers requests of HTTP/2 frame by frame until the client closes, or an attack has.
    fn serve_http2(&self, mut stream: TcpStream, lot: Lot) -> io::Result<()> {
        let port = stream.peer_addr()?.port();
        stream.read_exact(&mut [0; PREFACE.len()])?;
        stream.write_all(
            &[frame(kind::SETTINGS, 0, 0, &[]), frame(kind::SETTINGS, flag::ACK, 0, &[])].concat(),
        )?;
        let (mut requests, mut received, before) = (0, Received::default(), self.peak());
        while let Ok((header, payload)) = read_frame(&mut stream) {
            received.note(header, &payload);
            if header.kind != kind::HEADERS {
                continue;
            }
            requests += 1;
            match self.attack {
                Attack::Http2(attack) if lot == Lot::Attacked && requests > ANSWERED => {
                    let before = self.peak();
                    let mut attacker = Attacker::on(stream);
                    attack(&mut attacker, header.stream);
                    let during = self.peak();
                    let received = attacker.until_closed();
                    self.report(port, (before, during), received);
                    return Ok(());
                }
                Attack::Streams(answer) if lot == Lot::Attacked && requests % (ANSWERED + 1) == 0 => {
                    stream.write_all(&answer(header.stream))?;
                }
                _ if lot == Lot::Ended && requests > ANSWERED => {
                    let last = [header.stream.to_be_bytes(), [0; 4]].concat();
                    stream.write_all(&[served(header.stream), frame(kind::GOAWAY, 0, 0, &last)].concat())?;
                    // The client closes, and sends elsewhere what it had sent here meanwhile.
                    io::copy(&mut stream, &mut io::sink())?;
                    return Ok(());
                }
                _ => stream.write_all(&served(header.stream))?,
            }
        }
        if lot == Lot::Attacked {
            self.report(port, (before, self.peak()), received);
        }
        Ok(())
    }

    /// Answers requests of HTTP/1.1 until the client closes, or an attack has.
    fn serve_http1(&self, stream: TcpStream, lot: Lot) -> io::Result<()> {
        let Attack::Http1(attack) = self.attack else { return Ok(()) };
        let port = stream.peer_addr()?.port();
        let mut out = stream.try_clone()?;
        let mut lines = BufReader::new(stream).lines();
        let mut requests = 0;
        while let Some(line) = lines.next() {
            if !line?.is_empty() {
                continue;
            }
            requests += 1;
            let close = lot == Lot::Ended && requests > ANSWERED;
            if lot == Lot::Attacked && requests > ANSWERED {
                let before = self.peak();
                attack(&mut out);
                let during = self.peak();
                while let Some(Ok(_)) = lines.next() {} // until the client closes
                self.report(port, (before, during), Received::default());
                return Ok(());
            }
            let connection = if close { "close" } else { "keep-alive" };
            write!(out, "HTTP/1.1 200 OK\r\nconnection: {connection}\r\ncontent-length: 2\r\n\r\nok")?;
        }
        Ok(())
    }

    /// Sends the test what was received. `peaks`: the values of [`Server::peak`] when the attack began, and when the
    /// server had finished it: by now the run may be over, and the generator gone.
    fn report(&self, port: u16, peaks: (u64, u64), received: Received) {
        let (before, during) = peaks;
        assert!(before > 0, "the generator's memory can be read");
        let growth = self.peak().max(during).saturating_sub(before);
        // The receiver is gone if the test has failed already.
        let _ = self.reports.send(Report { port, received, growth });
    }

    /// The most memory that the generator has had so far, in bytes; 0 if there is none.
    fn peak(&self) -> u64 {
        let status = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/status")).ok();
        let peak_of = |pid: &str| {
            let status = status(pid)?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        };
        self.children().iter().filter_map(|pid| peak_of(pid)).max().unwrap_or(0) * 1024
    }

    /// The child processes of the run: the generator of a repetition, or none.
    fn children(&self) -> Vec<String> {
        let run = self.run.wait().as_raw_nonzero();
        let tasks = std::fs::read_dir(format!("/proc/{run}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        lists.flat_map(|pids| pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
    }
}

/// A whole answer: the head from the static table, and five bytes.
pub fn served(stream: u32) -> Vec<u8> {
    [head(stream, 0, &[0x88]), frame(kind::DATA, flag::END_STREAM, stream, b"hello")].concat()
}

/// HEADERS with a whole field block.
pub fn head(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flags | flag::END_HEADERS, stream, block)
}
