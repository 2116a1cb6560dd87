use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{FrameHeader, HEADER_LENGTH, PREFACE, flag, kind};
use socket2::{Domain, Socket, Type};

use crate::support::DEADLINE;

/// The payload of the PING after everything else.
const LAST_PING: [u8; 8] = *b"the last";

/// How many frames go with one write: as many as a real attacker would send in one packet.
const BATCH: usize = 20;

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader { length: payload.len() as u32, kind, flags, stream };
    [&header.encode()[..], payload].concat()
}

/// HEADERS of a request for `path`, complete but for what `flags` says.
pub fn request(stream: u32, flags: u8, method: &str, path: &str) -> Vec<u8> {
    frame(kind::HEADERS, flags | flag::END_HEADERS, stream, &block(method, path))
}

/// The field block of a request: literals that use no table.
pub fn block(method: &str, path: &str) -> Vec<u8> {
    let literal = |index: u8, value: &str| [&[index, value.len() as u8], value.as_bytes()].concat();
    // Indexes of the static table: :method, :path, :authority; 6 is `:scheme: http`.
    [literal(2, method), literal(4, path), literal(1, "a"), vec![0x86]].concat()
}

/// WINDOW_UPDATE.
pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// SETTINGS with `SETTINGS_INITIAL_WINDOW_SIZE`.
pub fn initial_window(bytes: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&[0, 4][..], &bytes.to_be_bytes()].concat())
}

/// What the origin said to an attacker until it closed the connection, or the attacker did.
#[derive(Debug, Default)]
pub struct Received {
    /// Code and debug data of its last GOAWAY.
    pub goaway: Option<(ErrorCode, String)>,
    /// Streams that it reset, with codes.
    pub resets: Vec<(u32, ErrorCode)>,
    /// Frames by type.
    pub frames: [u32; 10],
    /// Streams whose final status was 200.
    pub served: u32,
    /// Lengths of DATA frames.
    pub data: Vec<usize>,
}

impl Received {
    /// Fails unless the connection ended with `ENHANCE_YOUR_CALM` and this reason.
    #[track_caller]
    pub fn assert_calmed(&self, words: &str) {
        assert_eq!(self.goaway, Some((ErrorCode::ENHANCE_YOUR_CALM, words.to_owned())));
    }

    /// Notes a frame.
    pub fn note(&mut self, header: FrameHeader, payload: &[u8]) {
        if let Some(count) = self.frames.get_mut(usize::from(header.kind)) {
            *count += 1;
        }
        let code = |bytes: &[u8]| ErrorCode(u32::from_be_bytes(bytes.try_into().expect("four bytes")));
        match header.kind {
            kind::GOAWAY => {
                let debug = String::from_utf8_lossy(&payload[8..]).into_owned();
                self.goaway = Some((code(&payload[4..8]), debug));
            }
            kind::RST_STREAM => self.resets.push((header.stream, code(payload))),
            kind::DATA => self.data.push(payload.len()),
            // 8 is `:status: 200` of the static table; in our responses it always comes first, after a change of the
            // table's size.
            kind::HEADERS => {
                self.served += u32::from(payload.iter().find(|byte| **byte & 0xe0 != 0x20) == Some(&0x88));
            }
            _ => {}
        }
    }
}

/// A misbehaving end of an HTTP/2 connection: a client, or with [`Self::on`] a server. A thread of its own reads what the other
/// end sends, so that neither side waits.
pub struct Attacker {
    stream: TcpStream,
    closed: Arc<AtomicBool>,
    /// A message for each stream that the origin ended, and one for its answer to [`LAST_PING`].
    milestones: Receiver<()>,
    ear: Option<JoinHandle<Received>>,
}

impl Attacker {
    /// Connects, exchanges SETTINGS, and listens.
    pub fn new(address: SocketAddr) -> Self {
        let mut attacker = Self::not_reading(address, None);
        attacker.listen();
        attacker
    }

    /// Connects, exchanges SETTINGS, and reads nothing. `receive_buffer`: the most bytes that the kernel buffers for
    /// us.
    pub fn not_reading(address: SocketAddr, receive_buffer: Option<usize>) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes).expect("a legal size");
        }
        socket.connect(&address.into()).expect("the origin accepts");
        let mut stream = TcpStream::from(socket);
        stream.set_nodelay(true).expect("TCP");
        let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
        let greeting = [&PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[]), &ack].concat();
        stream.write_all(&greeting).expect("the origin reads");
        Self::on(stream)
    }

    /// A server whose greeting has been exchanged on `stream`. It reads nothing until [`Self::listen`].
    pub fn on(stream: TcpStream) -> Self {
        Self { stream, closed: Arc::new(AtomicBool::new(false)), milestones: channel().1, ear: None }
    }

    /// Begins to read.
    pub fn listen(&mut self) {
        let stream = self.stream.try_clone().expect("a descriptor");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
        let closed = Arc::clone(&self.closed);
        let (milestone, milestones) = channel();
        self.milestones = milestones;
        self.ear = Some(std::thread::spawn(move || {
            let received = receive(stream, &milestone);
            closed.store(true, Ordering::Relaxed);
            received
        }));
    }

    /// Sends `bytes`; `false` if the origin takes no more.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        !self.closed.load(Ordering::Relaxed) && self.stream.write_all(bytes).is_ok()
    }

    /// Sends the results of `make` for 0, 1, 2 … in batches, up to `count` of them or until the origin takes no more;
    /// returns how many were sent.
    pub fn flood(&mut self, count: usize, mut make: impl FnMut(u32) -> Vec<u8>) -> usize {
        for batch in 0..count.div_ceil(BATCH) {
            let range = batch * BATCH..((batch + 1) * BATCH).min(count);
            let bytes: Vec<u8> = range.flat_map(|n| make(n as u32)).collect();
            if !self.send(&bytes) {
                return batch * BATCH;
            }
        }
        count
    }

    /// Waits until the origin closes, and returns what it sent.
    pub fn until_closed(mut self) -> Received {
        if self.ear.is_none() {
            self.listen();
        }
        self.ear.take().expect("it listens").join().expect("frames are well-formed")
    }

    /// Waits until the origin has ended `streams` and answered a last PING, closes, and returns what the origin sent.
    pub fn finish(mut self, streams: u32) -> Received {
        self.send(&frame(kind::PING, 0, 0, &LAST_PING));
        for _ in 0..=streams {
            if self.milestones.recv_timeout(DEADLINE).is_err() {
                break; // the connection has ended, or what was received will show what is missing
            }
        }
        // It may have closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
        self.until_closed()
    }
}

/// The next frame of a connection.
pub fn read_frame(stream: &mut TcpStream) -> io::Result<(FrameHeader, Vec<u8>)> {
    let mut header = [0; HEADER_LENGTH];
    stream.read_exact(&mut header)?;
    let header = FrameHeader::parse(&header);
    let mut payload = vec![0; header.length as usize];
    stream.read_exact(&mut payload)?;
    Ok((header, payload))
}

/// The frames of an HTTP/2 connection until it ends. Each PING is answered.
pub struct Frames(pub TcpStream);

impl Iterator for Frames {
    type Item = (FrameHeader, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, payload) = read_frame(&mut self.0).ok()?;
        if header.kind == kind::PING && header.flags & flag::ACK == 0 {
            self.0.write_all(&frame(kind::PING, flag::ACK, 0, &payload)).ok()?;
        }
        Some((header, payload))
    }
}

/// Reads frames until the origin closes the connection, in order or by a reset.
fn receive(mut stream: TcpStream, milestone: &Sender<()>) -> Received {
    let mut received = Received::default();
    loop {
        let (header, payload) = match read_frame(&mut stream) {
            Ok(frame) => frame,
            Err(error) => {
                let in_time = error.kind() != io::ErrorKind::WouldBlock;
                assert!(in_time, "the other end did not end the connection: {received:?}");
                return received;
            }
        };
        received.note(header, &payload);
        let carries_end = matches!(header.kind, kind::HEADERS | kind::DATA);
        if (carries_end && header.flags & flag::END_STREAM != 0)
            || (header.kind == kind::PING && payload == LAST_PING)
        {
            // The receiver is gone if the attacker only waits for the end.
            let _ = milestone.send(());
        }
    }
}

/// The n-th stream of a client.
pub const fn nth(n: u32) -> u32 {
    2 * n + 1
}
