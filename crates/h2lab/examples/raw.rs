//! A bare transfer over TCP, or over rustls on TCP: the yardstick of `cargo xtask bench bulk`, without any HTTP.
//!
//! `raw serve` prints `listening ADDRESS`; `raw get ADDRESS BYTES` asks it for so many bytes and prints a JSON document. With
//! `--certificate FILE` both speak TLS: the server writes its certificate there, the client trusts only that one. Provider,
//! version and cipher suite are rustls's defaults, as in `h2lab`.
//!
//! Both ends block and have one thread, since nothing is cheaper than that with one connection. The pieces are as large
//! as those that `h2lab` writes and reads, so that the comparison is of the path to the socket and not of the piece
//! size.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, Stream};
use socket2::{Domain, Socket, Type};

/// Bytes of one write, and the most that one read returns.
const PIECE: usize = 256 * 1024;
/// Larger than any flight of a client's handshake, and than a record with a request.
const HANDSHAKE: usize = 4096;
const TOO_MUCH: &str = "the server sent more than it was asked for";
/// What the certificate is for.
const NAME: &str = "localhost";
/// Pieces begin at this many places in turn, `APART` bytes from each other, as those of `h2lab` do: a single place
/// could be a bad one for the copies that the kernel makes, and would remain so.
const PLACES: usize = 16;
const APART: usize = 257;
/// What is sent, repeatedly: its pages are faulted in only once.
static BLOCK: [u8; PIECE + PLACES * APART] = [b'x'; PIECE + PLACES * APART];

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
        /// Keep the socket's receive buffer at so many bytes, which the kernel doubles (`SO_RCVBUF`), instead of letting it grow.
        #[arg(long, value_name = "BYTES")]
        receive_buffer: Option<usize>,
        /// Speak TLS with whoever has this certificate.
        #[arg(long, value_name = "FILE")]
        certificate: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    match End::parse() {
        End::Serve { certificate } => serve(certificate.as_deref()),
        End::Get { address, bytes, receive_buffer, certificate } => {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            // Before it connects: the receive window is chosen then.
            receive_buffer.map(|bytes| socket.set_recv_buffer_size(bytes)).transpose()?;
            socket.connect(&address.into())?;
            get(socket.into(), bytes, certificate.as_deref())
        }
    }
}

fn serve(certificate: Option<&Path>) -> Result<()> {
    let tls = certificate.map(server).transpose()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("listening {}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        // A client that goes away is no error of the server: the next one may be served.
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
    for place in (0..PLACES).cycle() {
        if left == 0 {
            break;
        }
        let n = left.min(PIECE as u64);
        stream.write_all(&BLOCK[place * APART..][..n as usize])?;
        left -= n;
    }
    Ok(stream.flush()?)
}

fn get(socket: TcpStream, bytes: u64, certificate: Option<&Path>) -> Result<()> {
    socket.set_nodelay(true)?;
    let (start, request) = (Instant::now(), bytes.to_be_bytes());
    match certificate {
        None => receive(socket, request, bytes)?,
        Some(certificate) => {
            let session = UnbufferedClientConnection::new(client(certificate)?, ServerName::try_from(NAME)?)?;
            Encrypted { socket, incoming: vec![0; PIECE], held: 0 }.receive(session, request, bytes)?;
        }
    }
    let elapsed_s = start.elapsed().as_secs_f64();
    println!("{}", serde_json::json!({ "bytes": bytes, "elapsed_s": elapsed_s }));
    Ok(())
}

/// Asks for `left` bytes and reads them.
fn receive(mut socket: TcpStream, request: [u8; 8], mut left: u64) -> Result<()> {
    socket.write_all(&request)?;
    let mut space = vec![0; PIECE];
    while left > 0 {
        let n = socket.read(&mut space)?;
        ensure!(n > 0, "the server ended {left} bytes too early");
        left = left.checked_sub(n as u64).context(TOO_MUCH)?;
    }
    Ok(())
}

/// The socket of a client that speaks TLS, and the ciphertext that was read and not yet used.
///
/// It uses rustls' interface without buffers, which decrypts in place. With `rustls::Stream`, copying out of its
/// buffers took half of this client's time, which would have made it the slower end.
struct Encrypted {
    socket: TcpStream,
    incoming: Vec<u8>,
    held: usize,
}

impl Encrypted {
    /// Makes the handshake, asks for `left` bytes and reads them.
    fn receive(
        mut self,
        mut session: UnbufferedClientConnection,
        request: [u8; 8],
        mut left: u64,
    ) -> Result<()> {
        let (mut outgoing, mut is_asked) = (Vec::new(), false);
        while left > 0 {
            let UnbufferedStatus { mut discard, state, .. } =
                session.process_tls_records(&mut self.incoming[..self.held]);
            let mut wants_more = false;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        left = left.checked_sub(record.payload.len() as u64).context(TOO_MUCH)?;
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    let begun = outgoing.len();
                    outgoing.resize(begun + HANDSHAKE, 0);
                    let n = data.encode(&mut outgoing[begun..])?;
                    outgoing.truncate(begun + n);
                }
                ConnectionState::TransmitTlsData(data) => {
                    self.socket.write_all(&outgoing)?;
                    outgoing.clear();
                    data.done();
                }
                ConnectionState::WriteTraffic(mut traffic) if !is_asked => {
                    let mut record = [0; HANDSHAKE];
                    let n = traffic.encrypt(&request, &mut record)?;
                    self.socket.write_all(&record[..n])?;
                    is_asked = true;
                }
                ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => wants_more = true,
                state => bail!("the server ended {left} bytes too early: {state:?}"),
            }
            self.incoming.copy_within(discard..self.held, 0);
            self.held -= discard;
            if wants_more {
                let n = self.socket.read(&mut self.incoming[self.held..])?;
                ensure!(n > 0, "the server ended {left} bytes too early");
                self.held += n;
            }
        }
        Ok(())
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

/// The client's side, which trusts the certificate in `file`.
fn client(file: &Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(
        CertificateDer::from_pem_file(file).with_context(|| format!("cannot read {}", file.display()))?,
    )?;
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}
