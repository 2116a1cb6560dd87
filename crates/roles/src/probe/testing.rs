//! Servers that do what a test says, and a prober for them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use h2lab_base::units::Time;
use h2lab_model::probe::{Allowance, Budget, Check, Verdict};
use h2lab_wire::h2::frame::{FrameHeader, HEADER_LENGTH, PREFACE, flag, kind};
use h2lab_wire::h2::inspect::FieldBlocks;
use h2lab_wire::h2::raw::{field_block, frame};
use h2lab_wire::trace::detail::Secrets;

use super::prober::WaitPolicy;
use super::raw_h2_client::settings;
use super::url::UrlResults;
use super::{Host, Prober, Result};
use h2lab_net::clock::Clock;
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::TlsOptions;
use rustix::io::ioctl_fionread;

/// Far above what a server of a test takes to answer, on any machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server that leaves something unanswered may send nothing before that is taken for silence, if it is not
/// busy.
const SHORT: Duration = Duration::from_millis(400);

/// How soon a wait for a busy server checks again.
const AGAIN: Duration = Duration::from_millis(5);

type OnRequest = Arc<dyn Fn(&mut Peer, &Request) + Send + Sync>;
type OnFrame = Arc<dyn Fn(&mut Peer, &ClientFrame) -> bool + Send + Sync>;
type OnHead = Arc<dyn Fn(&mut Peer, &str) + Send + Sync>;

/// A server and what it does.
#[derive(Clone, Default)]
pub struct Server {
    settings: Vec<(u16, u32)>,
    is_silent: bool,
    never_rests: bool,
    on_request: Option<OnRequest>,
    on_frame: Option<OnFrame>,
    on_head: Option<OnHead>,
}

/// A frame of the client.
pub struct ClientFrame {
    pub header: FrameHeader,
    pub payload: Vec<u8>,
}

/// A request of HTTP/2, when its head has come.
pub struct Request {
    pub stream: u32,
    pub fields: Vec<(String, String)>,
}

impl Request {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// What is known of a server's connections.
#[derive(Debug)]
struct Connections {
    began: Instant,
    /// Each connection for as long as it lives, and whether it waits for bytes.
    all: Mutex<Vec<(Weak<TcpStream>, Arc<AtomicBool>)>>,
}

impl Connections {
    fn is_busy(&self, dialled: u64) -> bool {
        let all = self.all.lock().unwrap();
        let acts = |(stream, is_waiting): &(Weak<TcpStream>, Arc<AtomicBool>)| {
            let Some(stream) = stream.upgrade() else { return false };
            !is_waiting.load(Ordering::SeqCst) || ioctl_fionread(&*stream).is_ok_and(|bytes| bytes > 0)
        };
        self.began.elapsed() < TIMEOUT && ((all.len() as u64) < dialled || all.iter().any(acts))
    }
}

/// While the server is busy, its silence does not count.
impl WaitPolicy for Connections {
    fn is_over(&self, now: Time, until: Time, dialled: u64) -> bool {
        now >= until && !self.is_busy(dialled)
    }

    fn next_check(&self, now: Time, until: Time) -> Time {
        until.max(now + AGAIN)
    }

    fn connect_timeout(&self, _: Duration) -> Duration {
        TIMEOUT
    }
}

/// The server's end of a connection.
pub struct Peer {
    stream: Arc<TcpStream>,
    is_waiting: Arc<AtomicBool>,
    /// The number of this connection, from 0.
    pub connection: usize,
    /// Heads of requests that have come on it, with this one.
    pub requests: usize,
    /// Frames that have come on it, with this one.
    pub frames: usize,
    is_open: bool,
}

impl Peer {
    pub fn send(&mut self, bytes: &[u8]) {
        self.is_open &= (&*self.stream).write_all(bytes).is_ok();
    }

    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    pub fn close(&mut self) {
        self.is_open = false;
    }

    pub fn goaway(&mut self, last: u32, code: u32) {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        self.send(&frame(kind::GOAWAY, 0, 0, &payload));
    }

    /// Returns when the client has read everything that it was sent in HTTP/2, or has gone: it answers a PING that is
    /// sent last.
    pub fn until_read(&mut self) {
        self.send(&frame(kind::PING, 0, 0, &[0; 8]));
        while let Some((header, _)) = self.take_frame() {
            if header.kind == kind::PING && header.has(flag::ACK) {
                return;
            }
        }
    }

    fn take_frame(&mut self) -> Option<(FrameHeader, Vec<u8>)> {
        let header = self.take(HEADER_LENGTH)?;
        let header = FrameHeader::parse(header.first_chunk()?);
        let payload = self.take(header.length as usize)?;
        Some((header, payload))
    }

    /// Bytes up to `n`; `None` at the end.
    fn take(&mut self, n: usize) -> Option<Vec<u8>> {
        let (mut bytes, mut filled) = (vec![0; n], 0);
        while filled < n {
            // What has arrived stays in the socket until it is recorded that we act on it.
            self.is_waiting.store(true, Ordering::SeqCst);
            let has_come = self.stream.peek(&mut [0]).is_ok_and(|n| n > 0);
            self.is_waiting.store(false, Ordering::SeqCst);
            filled += (&*self.stream).read(&mut bytes[filled..]).ok().filter(|_| has_come)?;
        }
        Some(bytes)
    }
}

/// A server of HTTP/2 that calls `on_request` for the head of each request, and otherwise follows the protocol.
pub fn h2(on_request: impl Fn(&mut Peer, &Request) + Send + Sync + 'static) -> Server {
    Server { on_request: Some(Arc::new(on_request)), ..Server::default() }
}

/// A server of HTTP/1.1 that calls `on_head` for the head of each request.
pub fn h1(on_head: impl Fn(&mut Peer, &str) + Send + Sync + 'static) -> Server {
    Server { on_head: Some(Arc::new(on_head)), ..Server::default() }
}

impl Server {
    /// With these SETTINGS.
    pub fn announcing(self, settings: &[(u16, u32)]) -> Self {
        Self { settings: settings.to_vec(), ..self }
    }

    /// It leaves something unanswered, for which no test is to wait long.
    pub fn silent(self) -> Self {
        Self { is_silent: true, ..self }
    }

    /// It sends for ever.
    pub fn endless(self) -> Self {
        Self { never_rests: true, ..self }
    }

    /// Frames go to `on_frame` first, which returns whether nothing else is to be done with them.
    pub fn framing(self, on_frame: impl Fn(&mut Peer, &ClientFrame) -> bool + Send + Sync + 'static) -> Self {
        Self { on_frame: Some(Arc::new(on_frame)), ..self }
    }

    /// The same with HTTP/1.1 on the same port.
    pub fn and_h1(self, on_head: impl Fn(&mut Peer, &str) + Send + Sync + 'static) -> Self {
        Self { on_head: Some(Arc::new(on_head)), ..self }
    }

    /// Listens, for as long as the process lives.
    pub fn start(self) -> SocketAddr {
        self.start_known().0
    }

    fn start_known(self) -> (SocketAddr, Arc<Connections>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Connections { began: Instant::now(), all: Mutex::default() });
        let known = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = self.clone();
                let (stream, is_waiting) = (Arc::new(stream), Arc::new(AtomicBool::new(false)));
                let mut all = connections.all.lock().unwrap();
                let connection = all.len();
                all.push((Arc::downgrade(&stream), Arc::clone(&is_waiting)));
                let mut peer = Peer { stream, is_waiting, connection, requests: 0, frames: 0, is_open: true };
                std::thread::spawn(move || server.serve(&mut peer));
            }
        });
        (address, known)
    }

    fn serve(&self, peer: &mut Peer) -> Option<()> {
        let first = peer.take(3)?;
        if first == PREFACE[..3] {
            self.on_request.as_ref()?;
            peer.take(PREFACE.len() - 3)?;
            return self.serve_h2(peer);
        }
        self.serve_h1(peer, first)
    }

    fn serve_h1(&self, peer: &mut Peer, first: Vec<u8>) -> Option<()> {
        // A TLS ClientHello is answered by closing.
        const HANDSHAKE: u8 = 22;
        let on_head = self.on_head.clone().filter(|_| first[0] != HANDSHAKE)?;
        let mut head = first;
        while peer.is_open {
            while !head.ends_with(b"\r\n\r\n") {
                head.extend(peer.take(1)?);
            }
            peer.requests += 1;
            let text = String::from_utf8_lossy(&head).into_owned();
            on_head(peer, &text);
            // Small bodies are read and discarded.
            let length = text.to_ascii_lowercase().lines().find_map(|line| {
                line.strip_prefix("content-length:").and_then(|n| n.trim().parse::<usize>().ok())
            });
            peer.take(length.filter(|n| peer.is_open && *n < 1_000).unwrap_or(0))?;
            head.clear();
        }
        Some(())
    }

    fn serve_h2(&self, peer: &mut Peer) -> Option<()> {
        peer.send(&frame(kind::SETTINGS, 0, 0, &settings(&self.settings)));
        let (mut blocks, mut block) = (FieldBlocks::default(), Vec::new());
        while peer.is_open {
            let (header, payload) = peer.take_frame()?;
            let one = ClientFrame { header, payload };
            peer.frames += 1;
            if self.on_frame.as_ref().is_some_and(|on_frame| on_frame(peer, &one)) {
                continue;
            }
            match header.kind {
                kind::SETTINGS if !header.has(flag::ACK) => {
                    peer.send(&frame(kind::SETTINGS, flag::ACK, 0, &[]));
                }
                kind::PING if !header.has(flag::ACK) => {
                    peer.send(&frame(kind::PING, flag::ACK, 0, &one.payload));
                }
                kind::HEADERS | kind::CONTINUATION => {
                    block.extend(one.payload);
                    if header.has(flag::END_HEADERS) {
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        // A head that is too large to decode is a request all the same.
                        let fields = blocks.decode(&block).map_or_else(
                            |_| Vec::new(),
                            |(fields, _)| {
                                fields.iter().map(|one| (text(one.name), text(one.value))).collect()
                            },
                        );
                        block.clear();
                        peer.requests += 1;
                        (self.on_request.as_ref()?)(peer, &Request { stream: header.stream, fields });
                    }
                }
                _ => {}
            }
        }
        Some(())
    }
}

/// A whole response of HTTP/2.
pub fn response(stream: u32, status: u16, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    [head(stream, status, fields), frame(kind::DATA, flag::END_STREAM, stream, body)].concat()
}

/// The head of a response of HTTP/2, with more to come.
pub fn head(stream: u32, status: u16, fields: &[(&str, &str)]) -> Vec<u8> {
    let status = status.to_string();
    let all = [(":status", status.as_str())].into_iter().chain(fields.iter().copied());
    let block = field_block(all.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    frame(kind::HEADERS, flag::END_HEADERS, stream, &block)
}

/// A reset of a stream.
pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// A prober of this server with all rights of its owner.
pub fn prober(server: Server) -> Prober {
    prober_within(server, Allowance { rate: 100_000.0, ..Allowance::OWNED })
}

/// The same with another allowance.
pub fn prober_within(server: Server, allowance: Allowance) -> Prober {
    let timeout = if server.is_silent { SHORT } else { TIMEOUT };
    let never_rests = server.never_rests;
    let (address, connections) = server.start_known();
    let host = Host {
        endpoint: Endpoint::Tcp(address),
        server_name: "localhost".to_owned(),
        authority: address.to_string(),
        path: "/".to_owned(),
        tls: TlsOptions::default(),
        fields: Vec::new(),
        protocols: Vec::new(),
        hidden: Secrets::default(),
    };
    let clock = Clock::start();
    let budget = Budget::new(allowance, clock.now());
    let mut prober = Prober::new(host, budget, clock, timeout, Arc::new(AtomicBool::new(false)));
    if !never_rests {
        prober.waits = connections;
    }
    prober
}

/// The checks that `look` adds when it meets `server`.
pub fn checks(server: Server, look: impl FnOnce(&mut Prober, &mut UrlResults) -> Result<()>) -> Vec<Check> {
    let mut found = UrlResults::default();
    look(&mut prober(server), &mut found).unwrap();
    found.checks
}

/// The verdicts of these by their ids.
pub fn verdicts(
    server: Server,
    look: impl FnOnce(&mut Prober, &mut UrlResults) -> Result<()>,
) -> BTreeMap<String, Verdict> {
    checks(server, look).into_iter().map(|check| (check.id, check.verdict)).collect()
}
