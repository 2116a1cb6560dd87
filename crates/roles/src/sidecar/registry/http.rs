//! One question over HTTP/1.1, on a connection of its own: enough for an agent on the same machine.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use h2lab_base::units::Time;
use h2lab_net::tcp::Read;
use h2lab_net::tls::{ClientTls, TlsSession};
use h2lab_proxy::config::Instance;
use h2lab_wire::connection::Request;
use h2lab_wire::{Config, Connection, Event, Field, Role};

use crate::sidecar::after_handshake::{CLOSED, said_of};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(2);
/// The longest body that is read: a list of 10,000 instances has some MB.
const LONGEST: usize = 32 << 20;

/// What was answered.
pub struct Answered {
    pub status: u16,
    /// The value of the field that was asked for.
    pub field: Option<String>,
    pub body: Vec<u8>,
}

/// Sends `GET path`; the answer must be complete within `timeout`. `wanted`: a field of the response, in lower case.
pub fn get(
    (at, tls): (&Instance, Option<&ClientTls>),
    path: &str,
    fields: &[Field<'_>],
    wanted: &[u8],
    timeout: Duration,
) -> io::Result<Answered> {
    let until = Instant::now() + timeout;
    let mut wire = Wire::new(connect(at)?, tls)?;
    let mut engine = Connection::h1(Config::new(Role::Client));
    let authority = format!(
        "{}:{}",
        if at.host.contains(':') { format!("[{}]", at.host) } else { at.host.clone() },
        at.port
    );
    let request =
        Request { method: "GET", authority: &authority, path, fields, body_length: None, end_stream: true };
    let now = Time::ZERO; // no deadline of the engine's is used
    engine.send_request(now, &request).ok_or_else(|| io::Error::other("the query cannot be sent"))?;
    wire.write(&engine.take_transmit(now))?;
    let mut answered = Answered { status: 0, field: None, body: Vec::new() };
    let mut space = [0; 16 * 1024];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        wire.stream.set_read_timeout(Some(left))?;
        match wire.read(&mut space) {
            Ok(0) => engine.handle_eof(now),
            Ok(n) => engine.handle_input(now, &space[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
        while let Some(event) = engine.poll_event(now) {
            let is_complete = match event {
                Event::Response { head, end_stream, .. } => {
                    answered.status = head.status;
                    let field = head.fields.iter().find(|field| field.name == wanted);
                    answered.field = field.map(|field| String::from_utf8_lossy(field.value).into_owned());
                    end_stream
                }
                Event::Data { data, end_stream, .. } => {
                    if answered.body.len() + data.len() > LONGEST {
                        return Err(io::Error::other("its response is longer than 32 MiB"));
                    }
                    answered.body.extend_from_slice(data);
                    end_stream
                }
                Event::Trailers { .. } => true,
                Event::Closed { error } => {
                    let why = error.map_or_else(|| CLOSED.to_owned(), |error| said_of(&error, "Consul"));
                    return Err(io::Error::other(why));
                }
                _ => false,
            };
            if is_complete {
                return Ok(answered);
            }
        }
    }
}

/// A connection, with TLS or without. It blocks.
struct Wire {
    stream: TcpStream,
    tls: Option<Box<Tls>>,
}

struct Tls {
    session: TlsSession,
    /// What has arrived and the session has not taken yet.
    come: Vec<u8>,
}

impl Wire {
    fn new(stream: TcpStream, tls: Option<&ClientTls>) -> io::Result<Self> {
        let session = tls.map(ClientTls::session).transpose().map_err(io::Error::other)?;
        let tls = session.map(|session| Box::new(Tls { session, come: Vec::new() }));
        Ok(Self { stream, tls })
    }

    /// Writes all; with TLS once its handshake is over.
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Self { stream, tls } = self;
        let Some(tls) = tls else { return stream.write_all(bytes) };
        while tls.session.is_handshaking() {
            tls.take(stream)?;
        }
        while !bytes.is_empty() {
            let n = tls.session.write(bytes).map_err(io::Error::other)?;
            bytes = &bytes[n..];
            tls.send(stream)?;
        }
        Ok(())
    }

    /// Reads what is there, at least a byte; 0 at the end.
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let Self { stream, tls } = self;
        let Some(tls) = tls else { return stream.read(space) };
        loop {
            match tls.session.read(space).map_err(io::Error::other)? {
                Read::Bytes(n) => return Ok(n),
                Read::Eof | Read::Truncated => return Ok(0),
                Read::WouldBlock => tls.take(stream)?,
            }
        }
    }
}

impl Tls {
    /// Sends what TLS has to send, and takes what arrives.
    fn take(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        self.send(stream)?;
        if self.come.is_empty() {
            let mut space = [0; 16 * 1024];
            match stream.read(&mut space)? {
                0 => return self.session.receive_eof().map_err(io::Error::other),
                n => self.come.extend_from_slice(&space[..n]),
            }
        }
        let n = self.session.receive(&self.come).map_err(io::Error::other)?;
        self.come.drain(..n);
        self.send(stream)
    }

    fn send(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        while self.session.wants_send() {
            self.session.send(stream)?;
        }
        Ok(())
    }
}

fn connect(at: &Instance) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (at.host.as_str(), at.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                stream.set_write_timeout(Some(CONNECT))?;
                stream.set_read_timeout(Some(CONNECT))?; // of a handshake
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
