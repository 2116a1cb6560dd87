//! Both ends of a QUIC connection, whose packets form a scene.

use crate::diagnose::waits::quic::packet::Keys;
use crate::diagnose::waits::tests::scene::{DELAY, Scene};
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::Direction;
use h2lab_wire::trace::Direction::{Down, Up};

const RANDOM: [u8; 32] = [0x11; 32];
/// Connection ids of the ends.
const SERVER: &[u8] = b"srv";
const CLIENT: &[u8] = b"clien";
/// Bytes of every window that is granted in the handshake, unless a test sets it.
pub const WINDOW: u32 = 1 << 20;

/// Both ends.
pub struct Ends {
    pub scene: Scene,
    /// The connection id that the client, or a Retry, chose for the server.
    chosen: &'static [u8],
    handshake: [Keys; 2],
    pub keys: [Keys; 2],
    /// The next packet numbers.
    numbers: [u64; 2],
}

impl Ends {
    /// Without packets. The key log has the secrets.
    pub fn new() -> Self {
        let mut scene = Scene::new();
        scene.record.cell.protocol = Protocol::H3;
        scene.on(0);
        let line = |label: &str, secret: u8| {
            format!("{label} {} {}\n", hexadecimal(&RANDOM), hexadecimal(&[secret; 32]))
        };
        scene.key_log = [
            line("CLIENT_HANDSHAKE_TRAFFIC_SECRET", 1),
            line("SERVER_HANDSHAKE_TRAFFIC_SECRET", 2),
            line("CLIENT_TRAFFIC_SECRET_0", 3),
            line("SERVER_TRAFFIC_SECRET_0", 4),
        ]
        .concat();
        let keys = |secret: u8| Keys::new(0x1301, &[secret; 32]).unwrap();
        Self {
            scene,
            chosen: b"a choice",
            handshake: [keys(1), keys(2)],
            keys: [keys(3), keys(4)],
            numbers: [0, 0],
        }
    }

    /// With a handshake from 0 to 20 ms. `stream_window` is the server's initial window for a stream of the client, and
    /// `window` the client's for all streams.
    pub fn connected_with(window: u32, stream_window: u32) -> Self {
        let mut ends = Self::new();
        ends.hello(0, true, window, stream_window);
        ends.server_hello(10, true);
        ends.finish(20);
        ends
    }

    pub fn connected() -> Self {
        Self::connected_with(WINDOW, WINDOW)
    }

    /// The server requests another first datagram.
    pub fn retry(&mut self, at: u64) {
        self.chosen = b"retried";
        let ids = [&[CLIENT.len() as u8], CLIENT, &[self.chosen.len() as u8], self.chosen].concat();
        let packet = [&[0xf0, 0, 0, 0, 1][..], &ids, b"token and tag"].concat();
        self.scene.datagram(Down, (at, Some(at + DELAY)), &packet);
    }

    /// The next connection between the same ports, with a handshake of 20 ms.
    pub fn connect_again(&mut self, at: u64) {
        *self = Self {
            scene: std::mem::replace(&mut self.scene, Scene::new()),
            chosen: b"another",
            ..Self::new()
        };
        self.hello(at, true, WINDOW, WINDOW);
        self.server_hello(at + 10, true);
        self.finish(at + 20);
    }

    /// The client's first datagram.
    pub fn hello(&mut self, at: u64, arrives: bool, window: u32, stream_window: u32) -> u64 {
        let extensions = parameters(window, stream_window, WINDOW);
        let mut message = [&[1, 0, 0, 0, 3, 3][..], &RANDOM, &[0, 0, 2, 0x13, 1, 1, 0]].concat();
        message.extend(extensions);
        let keys = Keys::initial(self.chosen, Up).unwrap();
        let packet = long(&keys, 0xc0, (self.chosen, CLIENT), 0, &crypto(&finished(message)));
        self.scene.datagram(Up, (at, arrives.then_some(at + DELAY)), &packet)
    }

    /// The server's.
    pub fn server_hello(&mut self, at: u64, arrives: bool) -> u64 {
        let message =
            [&[2, 0, 0, 0, 3, 3][..], &[0x22; 32], &[0, 0x13, 1, 0, 0, 6, 0, 43, 0, 2, 3, 4]].concat();
        let keys = Keys::initial(self.chosen, Down).unwrap();
        let initial = long(&keys, 0xc0, (CLIENT, SERVER), 0, &crypto(&finished(message)));
        let message = [&[8, 0, 0, 0][..], &parameters(WINDOW, WINDOW, WINDOW)].concat();
        let second = long(&self.handshake[1], 0xe0, (CLIENT, SERVER), 0, &crypto(&finished(message)));
        self.scene.datagram(Down, (at, arrives.then_some(at + DELAY)), &[initial, second].concat())
    }

    /// The end of the handshake, and the client's control stream.
    pub fn finish(&mut self, at: u64) {
        let packet = long(&self.handshake[0], 0xe0, (SERVER, CLIENT), 0, &crypto(&[20, 0, 0, 0]));
        let short = self.packet(Up, &stream(2, 0, &[0, 4, 0], false));
        self.scene.datagram(Up, (at, Some(at + DELAY)), &[packet, short].concat());
    }

    /// A 1-RTT packet with these frames.
    fn packet(&mut self, direction: Direction, frames: &[u8]) -> Vec<u8> {
        let to = if direction == Up { SERVER } else { CLIENT };
        let number = self.numbers[direction as usize];
        self.numbers[direction as usize] += 1;
        // Short packets are padded for the sample.
        let frames = [frames, &[0; 4]].concat();
        self.keys[direction as usize].seal(&[&[0x40], to].concat(), number, &frames)
    }

    /// A datagram with a 1-RTT packet of these frames; returns its index.
    pub fn send(&mut self, direction: Direction, at: u64, frames: &[u8]) -> u64 {
        let packet = self.packet(direction, frames);
        self.scene.datagram(direction, (at, Some(at + DELAY)), &packet)
    }

    /// One that the link drops.
    pub fn lose(&mut self, direction: Direction, at: u64, frames: &[u8]) -> u64 {
        let packet = self.packet(direction, frames);
        self.scene.datagram(direction, (at, None), &packet)
    }

    /// A request without a body on a stream, numbered as in QUIC, at 100 ms.
    pub fn ask(&mut self, id: u32) {
        self.send(Up, 100, &stream(id, 0, &[1, 1, 0], true));
    }
}

/// An integer in four bytes.
fn integer(value: u32) -> [u8; 4] {
    (value | 0x8000_0000).to_be_bytes()
}

/// STREAM.
pub fn stream(id: u32, offset: u32, bytes: &[u8], ends: bool) -> Vec<u8> {
    let head = [integer(id), integer(offset), integer(bytes.len() as u32)].concat();
    [&[0x0e | u8::from(ends)], &head[..], bytes].concat()
}

/// ACK of one range.
pub fn ack(first: u32, last: u32) -> Vec<u8> {
    [&[2][..], &integer(last), &[0, 0], &integer(last - first)].concat()
}

/// `MAX_STREAM_DATA`.
pub fn stream_credit(id: u32, limit: u32) -> Vec<u8> {
    [&[0x11][..], &integer(id), &integer(limit)].concat()
}

/// `MAX_DATA`.
pub fn credit(limit: u32) -> Vec<u8> {
    [&[0x10][..], &integer(limit)].concat()
}

fn crypto(message: &[u8]) -> Vec<u8> {
    [&[6, 0][..], &integer(message.len() as u32), message].concat()
}

/// A handshake message with its length.
fn finished(mut message: Vec<u8>) -> Vec<u8> {
    let length = (message.len() as u32 - 4).to_be_bytes();
    message[1..4].copy_from_slice(&length[1..]);
    message
}

/// Extensions with transport parameters.
fn parameters(window: u32, own_streams: u32, others_streams: u32) -> Vec<u8> {
    let values = [(4, window), (5, own_streams), (6, others_streams)];
    let body: Vec<u8> =
        values.iter().flat_map(|(id, value)| [&[*id, 4][..], &integer(*value)].concat()).collect();
    let length = body.len() as u8;
    [&[0, length + 4, 0, 57, 0, length][..], &body].concat()
}

/// A packet with a long header.
fn long(keys: &Keys, first: u8, (to, from): (&[u8], &[u8]), number: u64, frames: &[u8]) -> Vec<u8> {
    let token: &[u8] = if first == 0xc0 { &[0] } else { &[] };
    let length = integer(frames.len() as u32 + 4 + 16);
    let ids = [&[to.len() as u8], to, &[from.len() as u8], from].concat();
    let header = [&[first, 0, 0, 0, 1][..], &ids, token, &length].concat();
    keys.seal(&header, number, frames)
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}
