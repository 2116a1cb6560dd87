//! A server that notes when requests arrive: HTTP/1.1, and HTTP/2 in clear by prior knowledge.
//!
//! `cargo xtask bench load --only pacing` measures with it how punctual load generators are. It answers everything that
//! it finds in one read with one write and parses no more than it must (HPACK not at all), so that it is never the
//! bottleneck. Requests have no bodies.
//!
//! A request arrives when the kernel gets the packet with its last byte: a second thread sees each packet of the
//! loopback device with its time. The server wakes later: on a virtual machine by 10 to 60 µs, which varies and is not
//! caused by the client. Without the right to see packets the times are those of the reads (`SO_TIMESTAMPNS`), and
//! requests that have waited in the socket together have the time of the last of them.
//!
//! It prints `listening URL`, serves until its standard input ends, and then prints the arrivals, a line of nanoseconds
//! of real time for each.

use std::collections::HashMap;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2lab_lab::topology::sched;
use h2lab_net::clock::Clock;
use h2lab_net::reactor::{Completion, Reactor, Token};
use h2lab_net::tcp::{Listener, Read, StreamSocket, Written};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// How often the server checks whether standard input has ended.
const CHECK_PERIOD: Duration = Duration::from_millis(20);
/// Bytes of a read.
const READ: usize = 256 * 1024;
/// Bytes of packets that may wait to be read; none may be lost.
const RECEIVE_BUFFER: usize = 256 << 20;
const LISTENER: Token = Token(0);

/// IPv4 among Ethernet's protocols, TCP among IP's.
const ETH_P_IP: u16 = 0x800;
const TCP: u8 = 6;

/// The client's first bytes on HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 0x1;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
const ACK: u8 = 0x1;
const END_STREAM_AND_HEADERS: u8 = 0x5;
/// `:status: 200` in HPACK (RFC 7541, entry 8 of the static table).
const STATUS_200: u8 = 0x88;
const ANSWER_H1: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// What a connection speaks, as its first byte shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Unknown,
    Http1,
    Http2,
}

/// What a client sends on a connection.
struct Requests {
    speaks: Speaks,
    /// Bytes that are no whole request or frame yet.
    unread: Vec<u8>,
    /// Answers to what is whole.
    answers: Vec<u8>,
}

impl Requests {
    const fn new() -> Self {
        Self { speaks: Speaks::Unknown, unread: Vec::new(), answers: Vec::new() }
    }

    /// Takes bytes that have arrived; returns how many requests they complete.
    fn take(&mut self, bytes: &[u8]) -> usize {
        self.unread.extend_from_slice(bytes);
        if self.speaks == Speaks::Unknown {
            self.speaks = match self.unread.first() {
                // No HTTP/1.1 method that a load generator uses begins with these bytes; PUT and PATCH would need three
                // bytes.
                Some(b'P') if self.unread.len() < PREFACE.len() => return 0,
                Some(b'P') if self.unread.starts_with(PREFACE) => {
                    self.unread.drain(..PREFACE.len());
                    frame(&mut self.answers, SETTINGS, 0, 0, &[]);
                    Speaks::Http2
                }
                Some(_) => Speaks::Http1,
                None => return 0,
            };
        }
        if self.speaks == Speaks::Http2 { self.take_frames() } else { self.take_heads() }
    }

    fn take_heads(&mut self) -> usize {
        let (mut requests, mut from) = (0, 0);
        let end = |bytes: &[u8]| bytes.windows(HEAD_END.len()).position(|window| window == HEAD_END);
        while let Some(at) = end(&self.unread[from..]) {
            from += at + HEAD_END.len();
            requests += 1;
            self.answers.extend_from_slice(ANSWER_H1);
        }
        self.unread.drain(..from);
        requests
    }

    fn take_frames(&mut self) -> usize {
        let (mut requests, mut from) = (0, 0);
        while let Some(header) = self.unread.get(from..from + FRAME_HEADER) {
            let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
            let (kind, flags) = (header[3], header[4]);
            let stream = u32::from_be_bytes([header[5] & 0x7f, header[6], header[7], header[8]]);
            let body = from + FRAME_HEADER..from + FRAME_HEADER + length;
            let Some(payload) = self.unread.get(body.clone()) else { break };
            match kind {
                HEADERS => {
                    requests += 1;
                    frame(&mut self.answers, HEADERS, END_STREAM_AND_HEADERS, stream, &[STATUS_200]);
                }
                SETTINGS if flags & ACK == 0 => frame(&mut self.answers, SETTINGS, ACK, 0, &[]),
                PING if flags & ACK == 0 => frame(&mut self.answers, PING, ACK, 0, payload),
                _ => {}
            }
            from = body.end;
        }
        self.unread.drain(..from);
        requests
    }
}

/// One connection of the server.
struct Connection {
    stream: StreamSocket,
    requests: Requests,
}

impl Connection {
    /// Sends what is pending; whether the connection is still open.
    fn flush(&mut self) -> bool {
        let unsent = &mut self.requests.answers;
        while !unsent.is_empty() {
            match self.stream.write(unsent) {
                Ok(Written::Bytes(n)) => drop(unsent.drain(..n)),
                Ok(Written::WouldBlock) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

/// Appends a frame (RFC 9113 §4.1) of at most 255 octets.
fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u8::try_from(payload.len()).expect("only PING is sent back, of eight octets");
    out.extend_from_slice(&[0, 0, length, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Makes the kernel record when received data arrived on a socket; connections inherit this from their listener.
fn ask_for_stamps(socket: &impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the value is an int that is only read, and its size is that of an int.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads what is there, and when its last byte came, in nanoseconds of real time.
fn read_stamped(socket: &impl AsFd, space: &mut [u8]) -> io::Result<(Read, u64)> {
    // Room for the one control message that was asked for, aligned as its header needs it.
    let mut control = [0_u64; 8];
    let mut part = libc::iovec { iov_base: space.as_mut_ptr().cast(), iov_len: space.len() };
    // SAFETY: all zeros is a valid msghdr, without buffers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
    // SAFETY: the buffers that the message names are ours, as long as it says, and outlive the call.
    let n = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    match n {
        0 => return Ok((Read::Eof, 0)),
        1.. => {}
        _ => {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok((Read::WouldBlock, 0)),
                _ => Err(error),
            };
        }
    }
    // SAFETY: the kernel has filled the control buffer up to msg_controllen, which CMSG_FIRSTHDR checks.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    let header = header.filter(|header| header.cmsg_type == libc::SCM_TIMESTAMPNS);
    let header = header.ok_or_else(|| io::Error::other("the kernel did not say when it came"))?;
    // SAFETY: a message of this type has a timespec as its data, at any alignment.
    let at: libc::timespec = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
    let nanos = at.tv_sec.cast_unsigned() * 1_000_000_000 + at.tv_nsec.cast_unsigned();
    Ok((Read::Bytes(n.cast_unsigned()), nanos))
}

/// The packets of the loopback device to one port.
struct Packets {
    socket: OwnedFd,
    port: u16,
    /// By the client's port: its requests, and the sequence number that follows.
    flows: HashMap<u16, (Requests, u32)>,
    space: Vec<u8>,
}

impl Packets {
    /// Opens a packet socket, for which a privilege is needed.
    fn to(port: u16) -> io::Result<Self> {
        // Only received packets: otherwise each packet would be seen twice, when it is sent and when it arrives.
        let protocol =
            rustix::net::Protocol::from_raw(NonZeroU32::new(u32::from(ETH_P_IP.to_be())).expect("not 0"));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, Some(protocol))?;
        ask_for_stamps(&socket)?;
        set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)?;
        Ok(Self { socket, port, flows: HashMap::new(), space: vec![0; READ] })
    }

    /// When each request arrived, until it `is_over`.
    fn arrivals(mut self, is_over: &AtomicBool) -> io::Result<Vec<u64>> {
        let mut arrivals = Vec::new();
        loop {
            let over = is_over.load(Ordering::Acquire);
            while let (Read::Bytes(n), came) = read_stamped(&self.socket, &mut self.space)? {
                let requests = self.take(n).unwrap_or_default();
                arrivals.extend(std::iter::repeat_n(came, requests));
            }
            if over {
                return Ok(arrivals);
            }
            // The socket queues them: waking for each packet would take CPU time from what is measured.
            std::thread::sleep(CHECK_PERIOD);
        }
    }

    /// How many requests end with the packet of `n` bytes in the space; `None` if it is of no interest.
    fn take(&mut self, n: usize) -> Option<usize> {
        let ip = &self.space[..n];
        let header = usize::from(ip.first()? & 0xf) * 4;
        let tcp = ip.get(header..usize::from(u16::from_be_bytes([ip[2], *ip.get(3)?])).max(header))?;
        if ip.get(9) != Some(&TCP) || tcp.get(2..4)? != self.port.to_be_bytes() {
            return None;
        }
        let sequence = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
        let payload = tcp.get(usize::from(tcp.get(12)? >> 4) * 4..).filter(|payload| !payload.is_empty())?;
        let client = u16::from_be_bytes([tcp[0], tcp[1]]);
        let (requests, next) = self.flows.entry(client).or_insert((Requests::new(), sequence));
        // The bytes of a retransmission have arrived before.
        if sequence != *next {
            return None;
        }
        *next = sequence.wrapping_add(payload.len() as u32);
        let count = requests.take(payload);
        requests.answers.clear();
        Some(count)
    }
}

/// The server.
struct Server {
    reactor: Reactor,
    clock: Clock,
    /// By token, after the listener's. The place of a closed connection is not used again: a run has few thousand
    /// connections.
    connections: Vec<Option<Connection>>,
    /// Nanoseconds of each request.
    arrivals: Vec<u64>,
    space: Vec<u8>,
}

impl Server {
    fn turn(&mut self) -> std::io::Result<()> {
        self.reactor.wait(self.clock.now() + CHECK_PERIOD)?;
        while let Some(completion) = self.reactor.next_completion() {
            match completion {
                Completion::Accepted { result: Ok(stream), .. } => {
                    self.connections.push(None);
                    let token = Token(self.connections.len() as u32);
                    self.reactor.submit_stream(token, &stream)?;
                    let connection = Connection { stream, requests: Requests::new() };
                    self.connections[token.0 as usize - 1] = Some(connection);
                }
                Completion::Ready { token, .. } => self.ready(token),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads until there is no more, answering after each read.
    fn ready(&mut self, token: Token) {
        let place = &mut self.connections[token.0 as usize - 1];
        let Some(connection) = place else { return };
        let mut stands = connection.flush();
        while stands {
            match read_stamped(&connection.stream, &mut self.space) {
                Ok((Read::Bytes(n), came)) => {
                    let requests = connection.requests.take(&self.space[..n]);
                    self.arrivals.extend(std::iter::repeat_n(came, requests));
                    stands = connection.flush();
                }
                Ok((Read::WouldBlock, _)) => return,
                Ok((Read::Eof | Read::Truncated, _)) | Err(_) => stands = false,
            }
        }
        self.reactor.forget(token);
        *place = None;
    }
}

fn main() -> anyhow::Result<()> {
    let clock = Clock::start();
    let mut reactor = Reactor::new(clock)?;
    let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    ask_for_stamps(&listener)?;
    let address = listener.local_address()?;
    let packets = Packets::to(address.port());
    println!("listening http://{address}");
    reactor.submit_accept(LISTENER, listener)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    std::thread::spawn(move || {
        // An error is an end too.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::Release);
    });
    let over = Arc::clone(&is_over);
    let packets = packets.ok().map(|packets| std::thread::spawn(move || packets.arrivals(&over)));
    // This server must not be late itself. Where it gets no priority, its own delay counts against all clients alike.
    sched::prefer();
    let mut server =
        Server { reactor, clock, connections: Vec::new(), arrivals: Vec::new(), space: vec![0; READ] };
    while !is_over.load(Ordering::Acquire) {
        server.turn()?;
    }
    let seen = packets.map(|packets| packets.join().expect("it does not panic")).transpose()?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for arrival in seen.unwrap_or(server.arrivals) {
        writeln!(out, "{arrival}")?;
    }
    Ok(out.flush()?)
}
