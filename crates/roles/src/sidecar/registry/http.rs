//! One question over HTTP/1.1, on a connection of its own: enough for an agent on the same machine.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use h2lab_base::units::Time;
use h2lab_proxy::config::Instance;
use h2lab_wire::connection::Request;
use h2lab_wire::{Config, Connection, Event, Field, Role};

/// For so long a connection is waited for.
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

/// `GET path`, whose answer is complete within `patience`. `wanted`: a field of the response, in lower case.
pub fn get(
    at: &Instance,
    path: &str,
    fields: &[Field<'_>],
    wanted: &[u8],
    patience: Duration,
) -> io::Result<Answered> {
    let until = Instant::now() + patience;
    let mut stream = connect(at)?;
    let mut engine = Connection::h1(Config::new(Role::Client));
    let authority = format!(
        "{}:{}",
        if at.host.contains(':') { format!("[{}]", at.host) } else { at.host.clone() },
        at.port
    );
    let request =
        Request { method: "GET", authority: &authority, path, fields, body_length: None, end_stream: true };
    let now = Time::ZERO; // no deadline of the engine's is used
    engine.send_request(now, &request).ok_or_else(|| io::Error::other("the question cannot be asked"))?;
    stream.write_all(&engine.take_transmit(now))?;
    let mut answered = Answered { status: 0, field: None, body: Vec::new() };
    let mut space = [0; 16 * 1024];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut space) {
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
                        return Err(io::Error::other("its answer is longer than 32 MiB"));
                    }
                    answered.body.extend_from_slice(data);
                    end_stream
                }
                Event::Trailers { .. } => true,
                Event::Closed { error } => {
                    let why = error
                        .map_or_else(|| "it closed the connection".to_owned(), |error| error.to_string());
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

fn connect(at: &Instance) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (at.host.as_str(), at.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                stream.set_write_timeout(Some(CONNECT))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
