//! A bare transfer over TCP, or over rustls on TCP: the yardstick of `cargo xtask bench bulk`, without any HTTP.
//!
//! `raw serve` prints `listening ADDRESS`; `raw get ADDRESS BYTES` asks it for so many bytes and prints a JSON document. With
//! `--certificate FILE` both speak TLS: the server writes its certificate there, the client believes that one alone. Provider,
//! version and cipher suite are what rustls chooses by itself, as they are in `h2lab`.
//!
//! Both ends block and have one thread, since nothing is cheaper than that with one connection. The pieces are as large as those in
//! which `h2lab` writes and reads, so that what is compared is the way to the socket and not its step.

use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, Stream};

/// Bytes that are written at once, and that a read may give.
const PIECE: usize = 256 * 1024;
/// Bytes of ciphertext that a read may give.
const CIPHERTEXT: usize = 256 * 1024;
/// What the certificate is for.
const NAME: &str = "localhost";
/// What is sent, over and over: no page of it is touched twice for the first time.
static BLOCK: [u8; PIECE] = [b'x'; PIECE];

/// One end.
#[derive(Debug, Parser)]
enum End {
    /// Sends as many bytes as it is asked for, one connection after the other, until it is stopped.
    Serve {
        /// Speak TLS, with a certificate that is made at start and written here (PEM).
        #[arg(long, value_name = "FILE")]
        certificate: Option<PathBuf>,
    },
    /// Fetches bytes and throws them away.
    Get {
        /// Where the server listens.
        address: SocketAddr,
        /// How many.
        bytes: u64,
        /// Speak TLS with whoever has this certificate.
        #[arg(long, value_name = "FILE")]
        certificate: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    match End::parse() {
        End::Serve { certificate } => serve(certificate.as_deref()),
        End::Get { address, bytes, certificate } => get(address, bytes, certificate.as_deref()),
    }
}

fn serve(certificate: Option<&Path>) -> Result<()> {
    let tls = certificate.map(server).transpose()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("listening {}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        // A client that goes away is its own affair: the next one may be served.
        if let Err(error) = answer(socket, tls.as_ref()) {
            eprintln!("raw: {error:#}");
        }
    }
}

/// Serves one connection.
fn answer(mut socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> Result<()> {
    let Some(tls) = tls else { return send(&mut socket) };
    let mut session = ServerConnection::new(Arc::clone(tls))?;
    session.set_buffer_limit(Some(PIECE)); // one write of ours, whole
    send(&mut Stream::new(&mut session, &mut socket))
}

/// Reads how much is wanted, and sends it.
fn send(stream: &mut (impl Read + Write)) -> Result<()> {
    let mut wanted = [0; 8];
    stream.read_exact(&mut wanted)?;
    let mut left = u64::from_be_bytes(wanted);
    while left > 0 {
        let n = left.min(PIECE as u64);
        stream.write_all(&BLOCK[..n as usize])?;
        left -= n;
    }
    Ok(stream.flush()?)
}

fn get(address: SocketAddr, bytes: u64, certificate: Option<&Path>) -> Result<()> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let (document, suite) = match certificate {
        None => (receive(&mut socket, bytes)?, None),
        Some(certificate) => {
            let name = ServerName::try_from(NAME)?;
            let mut session = ClientConnection::new(client(certificate)?, name)?;
            let mut socket = Wide(BufReader::with_capacity(CIPHERTEXT, socket));
            let document = receive(&mut Stream::new(&mut session, &mut socket), bytes)?;
            (document, session.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite())))
        }
    };
    let Received { elapsed_s, reads } = document;
    let document =
        serde_json::json!({ "bytes": bytes, "elapsed_s": elapsed_s, "reads": reads, "cipher_suite": suite });
    println!("{document}");
    Ok(())
}

/// What a transfer took.
struct Received {
    /// From the request to the last byte.
    elapsed_s: f64,
    /// How many reads gave something.
    reads: u64,
}

/// Asks for `bytes` and reads them.
fn receive(stream: &mut (impl Read + Write), bytes: u64) -> Result<Received> {
    let start = Instant::now();
    stream.write_all(&bytes.to_be_bytes())?;
    stream.flush()?;
    let mut space = vec![0; PIECE];
    let (mut left, mut reads) = (bytes, 0);
    while left > 0 {
        let n = stream.read(&mut space)?;
        ensure!(n > 0, "the server ended {left} bytes too early");
        left = left.checked_sub(n as u64).context("the server sent more than it was asked for")?;
        reads += 1;
    }
    Ok(Received { elapsed_s: start.elapsed().as_secs_f64(), reads })
}

/// A socket that is read by large pieces: rustls asks for 4 KiB at a time.
struct Wide(BufReader<TcpStream>);

impl Read for Wide {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.0.read(space)
    }
}

impl Write for Wide {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

/// The server's side of TLS; its certificate is written to `file`.
fn server(file: &Path) -> Result<Arc<ServerConfig>> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    std::fs::write(file, made.cert.pem()).with_context(|| format!("cannot write {}", file.display()))?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let config = ServerConfig::builder().with_no_client_auth();
    Ok(Arc::new(config.with_single_cert(vec![made.cert.into()], key)?))
}

/// The client's side, which believes the certificate in `file`.
fn client(file: &Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(
        CertificateDer::from_pem_file(file).with_context(|| format!("cannot read {}", file.display()))?,
    )?;
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}
