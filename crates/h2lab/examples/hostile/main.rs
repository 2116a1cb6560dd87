//! One hostile server of `servers.toml`, as a process: `cargo xtask verify faults` lets every command meet each of them.
//!
//! `hostile NAME --speak h1|h1s|h2|h2c|h3 --seed N` prints one line of JSON when it listens (its port, and what was drawn at
//! random), and does what its row says to each connection until it is stopped. The integration tests include this file
//! as a module and use the servers as instances of a sidecar.

mod conversation;
mod file;
mod script;

use std::collections::BTreeMap;
use std::io::{self, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde::Deserialize;
use serde_json::json;

use conversation::Conversation;
use script::Step;

pub use script::Draws;

/// Timeout of reads and writes. A client that takes nothing for this long is gone or waits to be stopped itself: this
/// server must not outlive it by much.
const IO_TIMEOUT: Duration = Duration::from_secs(120);

/// What is spoken to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Speech {
    /// HTTP/1.1 in clear.
    H1,
    /// HTTP/1.1 over TLS.
    H1s,
    /// HTTP/2 over TLS.
    H2,
    /// HTTP/2 in clear.
    H2c,
    /// Datagrams, on whose port HTTP/3 is expected.
    H3,
}

impl Speech {
    const fn is_tls(self) -> bool {
        matches!(self, Self::H1s | Self::H2)
    }

    const fn is_http2(self) -> bool {
        matches!(self, Self::H2 | Self::H2c)
    }
}

/// One hostile server.
#[derive(Debug, Parser)]
struct Arguments {
    /// Its row in servers.toml.
    name: String,
    /// What it speaks.
    #[arg(long)]
    speak: Speech,
    /// The seed of everything random in its row.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Listen here, to be found again after a restart.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// A row, as far as the server itself needs it; `servers.toml` says what each key means.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Row {
    begin: Option<Vec<String>>,
    each: Vec<String>,
    first: String,
    attacked: String,
    raw: bool,
    windows: Option<bool>,
    alpn: Option<String>,
}

/// What is done, and to which connections.
#[derive(Debug)]
pub struct Plan {
    speech: Speech,
    /// Steps on a connection before anything is read; `None`: as the protocol requires.
    begin: Option<Vec<Step>>,
    /// After each request that was read whole.
    each: Vec<Step>,
    /// How many requests of a connection are served correctly before.
    first: u64,
    /// How many connections are attacked; all others are served correctly.
    attacked: u64,
    tls: Option<Arc<ServerConfig>>,
    /// Whether bytes that a client sends are returned to its flow-control windows.
    gives_windows: bool,
    accepted: AtomicU32,
    /// How many responses of a file were sent.
    answers: AtomicU32,
}

/// The words of one key as steps.
fn steps(words: &[String], draws: &mut Draws) -> Result<Vec<Step>> {
    words.iter().map(|text| Step::parse(text, draws).with_context(|| format!("`{text}`"))).collect()
}

impl Plan {
    fn of(row: &Row, speech: Speech, draws: &mut Draws) -> Result<Self> {
        let is_encrypted = speech.is_tls() && !row.raw;
        let alpn = row.alpn.as_deref().unwrap_or(if speech.is_http2() { "h2" } else { "http/1.1" });
        Ok(Self {
            speech,
            begin: row.begin.as_deref().map(|words| steps(words, draws)).transpose()?,
            each: steps(&row.each, draws)?,
            first: draws.number(&row.first, 0)?,
            attacked: draws.number(&row.attacked, u64::MAX)?,
            tls: is_encrypted.then(|| tls(alpn)).transpose()?,
            gives_windows: row.windows.unwrap_or(true),
            accepted: AtomicU32::new(0),
            answers: AtomicU32::new(0),
        })
    }

    /// Serves one connection to its end.
    fn meet(&self, socket: TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(IO_TIMEOUT))?;
        socket.set_write_timeout(Some(IO_TIMEOUT))?;
        let is_attacked = u64::from(self.accepted.fetch_add(1, Ordering::Relaxed)) < self.attacked;
        let handle = socket.try_clone()?;
        match &self.tls {
            None => Conversation::new(self, handle, socket, is_attacked).hold(),
            Some(config) => {
                let session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                let stream = StreamOwned::new(session, socket);
                Conversation::new(self, handle, stream, is_attacked).hold()
            }
        }
    }
}

/// A certificate of our own, which the clients are configured not to verify.
fn tls(alpn: &str) -> Result<Arc<ServerConfig>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let config = ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(vec![made.cert.into()], key)?;
    if alpn != "none" {
        config.alpn_protocols = vec![alpn.into()];
    }
    Ok(Arc::new(config))
}

/// Answers every datagram with what the row's `begin` sends, as datagrams.
fn serve_datagrams(socket: &UdpSocket, begin: &[Step]) -> Result<()> {
    let mut space = [0; 2_048];
    loop {
        let (_, from) = socket.recv_from(&mut space)?;
        for step in begin {
            if let Step::Send(bytes) = step {
                socket.send_to(bytes, from)?;
            }
        }
    }
}

/// Says where it listens and what was drawn. The line is all that it ever prints.
fn announce(address: SocketAddr, draws: &Draws) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", json!({ "port": address.port(), "drew": draws.drawn() }))?;
    Ok(out.flush()?)
}

/// Starts the server of this row, on threads that end with the process; where it listens.
pub fn start(row: &Row, speech: Speech, port: u16, draws: &mut Draws) -> Result<SocketAddr> {
    let plan = Plan::of(row, speech, draws)?;
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    if speech == Speech::H3 {
        let socket = UdpSocket::bind(at)?;
        let address = socket.local_addr()?;
        std::thread::spawn(move || serve_datagrams(&socket, plan.begin.as_deref().unwrap_or_default()));
        return Ok(address);
    }
    let listener = TcpListener::bind(at)?;
    let address = listener.local_addr()?;
    let plan = Arc::new(plan);
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let plan = Arc::clone(&plan);
            // A client that aborts its connection is no error of the server.
            std::thread::spawn(move || plan.meet(socket).unwrap_or_default());
        }
    });
    Ok(address)
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let rows: BTreeMap<String, Row> = toml::from_str(include_str!("servers.toml"))?;
    let row = rows.get(&arguments.name).with_context(|| format!("no row is called {}", arguments.name))?;
    let mut draws = Draws::new(arguments.seed, &arguments.name);
    let address = start(row, arguments.speak, arguments.port, &mut draws)?;
    announce(address, &draws)?;
    loop {
        std::thread::park(); // it ends as its row says, or is ended
    }
}

/// Reads until the client closes.
fn drain(stream: &mut impl Read) {
    io::copy(stream, &mut io::sink()).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    #[test]
    fn every_row_is_understood() -> Result<()> {
        let rows: BTreeMap<String, Row> = toml::from_str(include_str!("servers.toml"))?;
        ensure!(rows.len() >= 40);
        for (name, row) in rows {
            Plan::of(&row, Speech::H1, &mut Draws::new(1, &name)).with_context(|| name)?;
        }
        Ok(())
    }
}
