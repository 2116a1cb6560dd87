//! Client and server of a conversation: HTTP/2 by hand over the kernel's TCP, one write for each message, so that the
//! position of every byte is known.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_lab::topology::{Namespaces, Side};
use h2lab_net::clock::Clock;

use super::plan::{ConversationPlan, Drop, SMALL_WINDOW, Shape};

/// Time between two requests.
const PACE: Duration = Duration::from_millis(5);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const INITIAL_WINDOW: u16 = 4;
const ENDS: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// When things happened to one request.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    pub due: Time,
    pub written: Time,
    pub completed: Time,
}

/// The result of a conversation.
#[derive(Debug)]
pub struct Conversation {
    pub client_port: u16,
    pub server_port: u16,
    pub dialled: Time,
    pub connected: Time,
    pub requests: Vec<Timing>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn settings(window: usize) -> Vec<u8> {
    frame(4, 0, 0, &[&INITIAL_WINDOW.to_be_bytes()[..], &(window as u32).to_be_bytes()].concat())
}

/// A field block of exactly this many bytes: an indexed field (RFC 7541 §6.1), and one with a value to fill it up
/// (§6.2.2).
fn block(indexed: u8, bytes: usize) -> Vec<u8> {
    let mut block = vec![indexed, 0x00, 0x01, b'x'];
    let mut value = bytes - block.len() - 1;
    if value < 127 {
        block.push(value as u8);
    } else {
        // The length in three more octets (§5.1): 7 bits each, padded with zeros that do not change the value.
        value -= 3;
        let rest = value - 127;
        block.extend([0x7f, rest as u8 | 0x80, (rest >> 7) as u8 | 0x80, (rest >> 14) as u8]);
    }
    block.resize(bytes, b'v');
    block
}

fn message(indexed: u8, stream: u32, shape: Shape, ends: bool) -> Vec<u8> {
    let is_over = if shape.body == 0 && ends { ENDS } else { 0 };
    let mut bytes = frame(1, END_HEADERS | is_over, stream, &block(indexed, shape.head));
    if shape.body > 0 {
        bytes.extend(frame(0, if ends { ENDS } else { 0 }, stream, &vec![b'd'; shape.body]));
    }
    assert_eq!(bytes.len(), shape.bytes());
    bytes
}

/// The stream of request `n`.
pub const fn stream_of(n: usize) -> u32 {
    2 * n as u32 + 1
}

/// Reads frames: type, flags, stream, length.
struct Frames(TcpStream);

impl Frames {
    fn next(&mut self) -> Option<(u8, u8, u32, usize)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        self.0.read_exact(&mut vec![0; length]).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some((head[3], head[4], stream, length))
    }
}

fn ready(socket: &TcpStream) {
    socket.set_nodelay(true).expect("a socket takes TCP_NODELAY");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket takes a timeout");
}

/// Answers each request once it is complete.
fn serve(listener: &TcpListener, plan: &ConversationPlan) {
    let Ok((mut socket, _)) = listener.accept() else { return };
    ready(&socket);
    let mut frames = Frames(socket.try_clone().expect("a socket can be cloned"));
    frames.0.read_exact(&mut [0; PREFACE.len()]).expect("a preface");
    while let Some((kind, flags, stream, _)) = frames.next() {
        let written = match kind {
            4 => socket.write_all(&settings(1 << 20)),
            // Only one stream is given window credit: the rest of its response follows.
            8 => socket.write_all(&frame(0, ENDS, stream, &[b'd'; 100])),
            _ if flags & ENDS != 0 => {
                let n = (stream as usize - 1) / 2;
                let is_whole = plan.drop != Drop::WindowUpdate || n != plan.target;
                socket.write_all(&message(0x88, stream, plan.responses[n], is_whole))
            }
            _ => Ok(()),
        };
        if written.is_err() {
            return;
        }
    }
}

/// Sends requests at its pace and reads the answers at the same time.
fn ask(address: SocketAddr, plan: &ConversationPlan, clock: Clock) -> Conversation {
    let dialled = clock.now();
    let mut socket = TcpStream::connect(address).expect("the server is there");
    let connected = clock.now();
    ready(&socket);
    let mut frames = Frames(socket.try_clone().expect("a socket can be cloned"));
    let window = if plan.drop == Drop::WindowUpdate { SMALL_WINDOW } else { 1 << 20 };
    socket.write_all(&[PREFACE, &settings(window)].concat()).expect("a connection");
    frames.next().expect("the server's SETTINGS");
    let streams = plan.requests.len();
    let reader = thread::spawn(move || read(frames, streams, clock));
    // If the handshake is what requests wait for, they are due when it begins.
    let first = if matches!(plan.drop, Drop::Syn(_)) { dialled } else { clock.now() + PACE };
    let mut requests = Vec::new();
    for (n, shape) in plan.requests.iter().enumerate() {
        let due = first + PACE * n as u32;
        // Packets of two requests are never combined in one segment, even if all are due.
        let earliest = requests.last().map_or(due, |last: &Timing| due.max(last.written + PACE));
        thread::sleep(earliest.since(clock.now()));
        let written = clock.now();
        socket.write_all(&message(0x82, stream_of(n), *shape, true)).expect("a connection");
        requests.push(Timing { due, written, completed: Time::NEVER });
    }
    let completed = reader.join().expect("all responses come");
    for (request, completed) in requests.iter_mut().zip(completed) {
        request.completed = completed;
    }
    let client_port = socket.local_addr().expect("a bound socket").port();
    // A reset ends it at once: no FIN remains that would be retransmitted into the next conversation's link.
    socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).expect("a socket takes SO_LINGER");
    Conversation { client_port, server_port: address.port(), dialled, connected, requests }
}

/// When each stream ended. A stream that has used up a small window is given more credit.
fn read(mut frames: Frames, streams: usize, clock: Clock) -> Vec<Time> {
    let mut completed = vec![Time::NEVER; streams];
    while completed.iter().any(|at| !at.happened()) {
        let (kind, flags, stream, length) = frames.next().expect("the server answers");
        if flags & ENDS != 0 && kind < 2 {
            completed[(stream as usize - 1) / 2] = clock.now();
        } else if kind == 0 && length == SMALL_WINDOW {
            let update = frame(8, 0, stream, &1000_u32.to_be_bytes());
            frames.0.write_all(&update).expect("a connection");
        }
    }
    completed
}

/// Runs the conversation between the two sides.
pub fn hold(namespaces: &Namespaces, plan: &ConversationPlan, clock: Clock) -> Conversation {
    let listen = || TcpListener::bind((Side::Server.address(), 0)).expect("a free port");
    let listener = namespaces.within(Side::Server, listen).expect("the server's side");
    let address = listener.local_addr().expect("a bound socket");
    assert_ne!(address.ip(), Ipv4Addr::LOCALHOST);
    thread::scope(|scope| {
        scope.spawn(|| serve(&listener, plan));
        namespaces.within(Side::Client, || ask(address, plan, clock)).expect("the client's side")
    })
}
