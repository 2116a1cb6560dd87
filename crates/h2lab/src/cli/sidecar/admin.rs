//! The admin listener: the state of the sidecar, over HTTP/1.1.
//!
//! Each client has a thread of its own, so that a slow one delays no health check. The thread sends its queries to the
//! event loops and waits for their answers, which never delays a request.
//!
//! Its socket is handed over with the others, so it is never shut down: that would end it for a successor, too. Instead
//! the thread stops accepting and closes the socket at once, so that a third process can have the address while clients
//! are still answered here.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use h2lab_model::sidecar::SidecarStatus;
use h2lab_net::tcp::{Listener, StreamSocket};
use h2lab_report::{sidecar_metrics, sidecar_page};
use h2lab_roles::sidecar::{AdminState, Live, SidecarConfig, Sockets, certificates};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};

use super::super::exit::Usage;
use super::super::load::exporter::{TIMEOUT, read_head};

/// How long the loops may take to answer; they check for queries ten times per second.
const ANSWERING: Duration = Duration::from_secs(5);
/// How long a client may take to receive its whole answer: observations have some megabytes.
const SENDING: Duration = Duration::from_secs(10);
/// Clients that have a thread of their own; a further one waits for its turn.
const MOST: usize = 16;
/// File descriptors that are held in reserve.
const KEPT: usize = 2;
/// How long to wait before accepting again if that is not possible.
const PAUSE: Duration = Duration::from_millis(50);

/// An admin listener that nobody serves yet.
#[derive(Debug)]
pub(super) struct Bound {
    listener: Listener,
    admin: Arc<AdminState>,
    sockets: Sockets,
}

impl Bound {
    /// Answers for the sidecar of `live`, in a thread.
    pub(super) fn serve(self, live: Arc<Live>) -> Result<Admin> {
        Admin::start(self, live)
    }
}

/// A running admin listener; dropping it ends it.
#[derive(Debug)]
pub(super) struct Admin {
    address: SocketAddr,
    /// They wake the thread, which then ends.
    sockets: Sockets,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens where `config` says, with an inherited socket if there is one for that address; `None` if `config` names
    /// no address.
    pub(super) fn bind(config: &mut SidecarConfig) -> Result<Option<Bound>> {
        let Some(address) = config.file.admin.address else { return Ok(None) };
        let sockets = config.sockets.clone();
        let listener = sockets
            .listener(address)
            .map_err(|error| Usage(format!("cannot listen on {address} (admin): {error}")))?;
        let admin = Arc::new(AdminState::default());
        config.admin = Some(Arc::clone(&admin));
        Ok(Some(Bound { listener, admin, sockets }))
    }

    /// Answers for the sidecar of `live`.
    fn start(bound: Bound, live: Arc<Live>) -> Result<Self> {
        let Bound { listener, admin, sockets } = bound;
        let address = listener.local_address().context("the admin listener has no address")?;
        let woken = sockets.until_released().context("cannot wake the admin listener")?;
        let serving = Serving { admin, live, sockets: sockets.clone(), address, query: Mutex::default() };
        let run = move || {
            let clients = run(&Arc::new(serving), &listener, &woken);
            drop(listener);
            clients.join();
        };
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(run)
            .context("cannot start the thread of the admin listener")?;
        Ok(Self { address, sockets, thread: Some(thread) })
    }

    /// Says where it listens, on standard output.
    pub(super) fn announce(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "admin http://{}", self.address)?;
        out.flush()
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.sockets.release_listener();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
    }
}

/// What the thread needs.
struct Serving {
    admin: Arc<AdminState>,
    live: Arc<Live>,
    sockets: Sockets,
    address: SocketAddr,
    /// Only one query at a time is sent to the loops.
    query: Mutex<()>,
}

/// A client that may have sent a request, until this is dropped.
struct Asking(Arc<Serving>);

impl Asking {
    fn new(serving: &Arc<Serving>) -> Self {
        serving.admin.begin_answer();
        Self(Arc::clone(serving))
    }

    /// Answers the one request of a connection. A client that goes away or sends nothing is not an error.
    fn answer(self, stream: StreamSocket) {
        drop(blocking(stream).and_then(|stream| self.0.answer(stream)));
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.admin.end_answer();
    }
}

/// Threads that answer a client each.
#[derive(Debug, Default)]
struct Threads(Vec<JoinHandle<()>>);

impl Threads {
    /// Answers one more client: in a thread of its own, or in the calling one while [`MOST`] clients have theirs.
    fn answer(&mut self, answer: impl FnOnce() + Send + 'static) {
        self.0.retain(|client| !client.is_finished());
        if self.0.len() == MOST {
            return answer();
        }
        // If no thread can be started, the closure is dropped, and the client's connection with it.
        self.0.extend(std::thread::Builder::new().name("admin-client".to_owned()).spawn(answer));
    }

    /// Waits until all were answered.
    fn join(self) {
        for client in self.0 {
            // A thread that panicked has reported it.
            let _ = client.join();
        }
    }
}

/// Accepts and answers until it is woken, because it is to end or because another process takes over. Returns the
/// threads of clients that are still being answered.
fn run(serving: &Arc<Serving>, listener: &Listener, woken: &UnixStream) -> Threads {
    let (mut kept, mut clients) = (Vec::new(), Threads::default());
    loop {
        keep(&mut kept);
        let mut waited = [PollFd::new(listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        match poll(&mut waited, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return clients,
        }
        let asking = Asking::new(serving);
        // Connections that wait there now are the successor's.
        if !waited[1].revents().is_empty() || serving.sockets.are_handed_on() {
            return clients;
        }
        match listener.accept() {
            Ok(Some(stream)) => clients.answer(move || asking.answer(stream)),
            Ok(None) => {}
            Err(_) => {
                // No file descriptors are left but the reserve. The answer reads files, too, before they are reserved
                // again.
                kept.clear();
                match listener.accept() {
                    Ok(Some(stream)) => asking.answer(stream),
                    Ok(None) => {}
                    Err(_) => std::thread::sleep(PAUSE), // not even the reserve was enough
                }
            }
        }
    }
}

/// An answer.
#[derive(Debug)]
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
}

/// Reserves file descriptors for the next client and for the files that its answer reads: figures are needed most when
/// descriptors have run out. The sidecar may have taken them meanwhile; then they are reserved again once it has fewer
/// open.
fn keep(kept: &mut Vec<File>) {
    while kept.len() < KEPT
        && let Ok(file) = File::open("/dev/null")
    {
        kept.push(file);
    }
}

/// The connection with blocking reads and writes.
fn blocking(stream: StreamSocket) -> io::Result<TcpStream> {
    let fd = stream.into_fd();
    ioctl_fionbio(&fd, false)?;
    Ok(TcpStream::from(fd))
}

/// Writes all of `bytes`, before `until`.
fn send(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

impl Answer {
    const fn ok(kind: &'static str, body: String) -> Self {
        Self { status: "200 OK", kind, body }
    }

    fn no(status: &'static str, why: &str) -> Self {
        Self { status, kind: TEXT, body: format!("{why}\n") }
    }
}

impl Serving {
    /// Answers the one request of a connection.
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        let head = read_head(&mut stream)?;
        let Answer { status, kind, body } = self.respond(&head);
        let is_head = head.starts_with(b"HEAD ");
        let length = body.len();
        let mut all = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\ncache-control: no-store\r\n\
             x-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
        );
        if !is_head {
            all.push_str(&body);
        }
        send(&mut stream, all.as_bytes(), Instant::now() + SENDING)
    }

    fn respond(&self, head: &[u8]) -> Answer {
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !matches!(method, "GET" | "HEAD") {
            return Answer::no("405 Method Not Allowed", "only GET and HEAD are supported");
        }
        let host =
            lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let config = self.live.state().1.config;
        let config = &config.file;
        if !config.admin.public && !host.is_none_or(|(_, host)| is_this_machine(host.trim())) {
            // A page of another site whose name resolves to this address (DNS rebinding).
            return Answer::no(
                "421 Misdirected Request",
                "Host must be localhost or an IP address, unless [admin] has public = true",
            );
        }
        match target.split('?').next().unwrap_or_default() {
            // A successor has taken over the sockets: this listener still answers, and reports ready.
            "/ready" if self.sockets.are_handed_on() => Answer::ok(TEXT, "ok\n".to_owned()),
            "/ready" if self.admin.is_draining() => Answer::no("503 Service Unavailable", "shutting down"),
            "/healthz" | "/ready" => self.health(),
            "/config" => Answer::ok(TEXT, config.shown()),
            "/metrics" => self.status(|status| {
                Answer::ok("text/plain; version=0.0.4; charset=utf-8", sidecar_metrics(status))
            }),
            "/status" => self.status(json),
            "/" => self.status(|status| {
                Answer::ok("text/html; charset=utf-8", sidecar_page(status, &self.address.to_string()))
            }),
            "/observations" => {
                let seen = self.one_at_a_time(|admin| admin.observations(config.admin.window, ANSWERING));
                seen.map_or_else(busy, |seen| json(&seen))
            }
            _ => Answer::no(
                "404 Not Found",
                "not found; available: / (page), /metrics, /status, /observations, /config, /healthz, /ready",
            ),
        }
    }

    fn one_at_a_time<T>(&self, ask: impl FnOnce(&AdminState) -> T) -> T {
        let _turn = self.query.lock().unwrap_or_else(PoisonError::into_inner);
        ask(&self.admin)
    }

    fn status(&self, shown: impl FnOnce(&SidecarStatus) -> Answer) -> Answer {
        self.one_at_a_time(|admin| admin.status(ANSWERING)).map_or_else(busy, |mut status| {
            status.certificates = certificates::as_of_now(&self.live.state().1.config.certificates);
            status.reloads = self.live.reloads();
            shown(&status)
        })
    }

    fn health(&self) -> Answer {
        self.status(|_| Answer::ok(TEXT, "ok\n".to_owned()))
    }
}

fn busy() -> Answer {
    Answer::no("503 Service Unavailable", "a worker thread does not respond")
}

fn json<T: serde::Serialize>(value: &T) -> Answer {
    match serde_json::to_string(value) {
        Ok(body) => Answer::ok(JSON, body + "\n"),
        Err(error) => Answer::no("500 Internal Server Error", &error.to_string()),
    }
}

/// Whether a `Host` field is an address, or names this machine.
fn is_this_machine(host: &str) -> bool {
    if host.parse::<SocketAddr>().is_ok() || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use h2lab_proxy::config::Config;

    use super::*;

    fn serving(public: bool) -> Serving {
        let instances = vec!["h2c://127.0.0.1:1".parse().expect("an instance")];
        let listen = "127.0.0.1:0".parse().expect("an address");
        let mut config = Config::simple(listen, instances, h2lab_proxy::config::Policy::default());
        config.admin.public = public;
        let config = SidecarConfig::new(config, 1, &|_| Ok(Vec::new())).expect("it is right");
        let live = Arc::new(Live::new(config, |_| ()));
        let (sockets, query) = (Sockets::default(), Mutex::default());
        Serving { admin: Arc::default(), live, sockets, address: listen, query }
    }

    #[test]
    fn what_is_not_asked_here_is_refused() {
        let of = |head: &[u8]| serving(false).respond(head).status;
        assert_eq!(of(b"GET /config HTTP/1.1\r\nhost: 127.0.0.1:9901\r\n\r\n"), "200 OK");
        assert_eq!(of(b"GET /config?a HTTP/1.1\r\nHost: [::1]\r\n\r\n"), "200 OK");
        assert_eq!(of(b"GET /config HTTP/1.1\r\nHost: LOCALHOST:1\r\n\r\n"), "200 OK");
        assert_eq!(of(b"GET /none HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(of(b"POST /config HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        assert_eq!(of(b"\xff\xfe"), "405 Method Not Allowed");
        let rebound = b"GET /config HTTP/1.1\r\nhost: evil.example\r\n\r\n";
        assert_eq!(of(rebound), "421 Misdirected Request");
        assert_eq!(serving(true).respond(rebound).status, "200 OK");
    }

    #[test]
    fn sixteen_clients_have_a_thread_and_a_further_one_is_answered_by_the_one_that_accepts() {
        let mut clients = Threads::default();
        let (name, names) = channel();
        let answered = |clients: &mut Threads| {
            let name = name.clone();
            clients.answer(move || name.send(std::thread::current().id()).expect("it is read"));
            names.recv().expect("it is answered")
        };
        let here = std::thread::current().id();
        // Clients that send and read at their own pace.
        let slow: Vec<_> = (0..16)
            .map(|_| {
                let (go, waits) = channel::<()>();
                clients.answer(move || {
                    let _ = waits.recv();
                });
                go
            })
            .collect();
        assert_eq!([(); 3].map(|()| answered(&mut clients)), [here; 3]);
        drop(slow);
        while clients.0.iter().any(|client| !client.is_finished()) {
            std::thread::yield_now();
        }
        assert_ne!(answered(&mut clients), here);
        clients.join();
    }

    #[test]
    fn it_is_not_ready_while_it_is_being_stopped_and_not_healthy_without_loops() {
        let serving = serving(false);
        assert_eq!(serving.respond(b"GET /healthz HTTP/1.1\r\n\r\n").status, "503 Service Unavailable");
        serving.admin.drain();
        let ready = serving.respond(b"GET /ready HTTP/1.1\r\n\r\n");
        assert_eq!((ready.status, &*ready.body), ("503 Service Unavailable", "shutting down\n"));
        serving.sockets.handed_on();
        assert_eq!(serving.respond(b"GET /ready HTTP/1.1\r\n\r\n").status, "200 OK");
    }
}
