//! Which bytes of a TCP connection contain which frames of which streams.

use std::collections::BTreeMap;
use std::ops::Range;

use h2lab_base::units::Time;
use h2lab_model::workload::ID_FIELD;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::detail::{Detail, DetailedFrame, Head, Reader};
use h2lab_wire::trace::{Dialect, Direction, FrameKind};

/// The most bytes that are kept until the client's first bytes arrive, which identify the protocol.
const EARLY: usize = 1 << 16;
/// The initial size of every window (RFC 9113 §6.9.2).
pub(super) const DEFAULT_WINDOW: u64 = 65_535;

/// A frame, and its place. Heads and bodies of HTTP/1.1 count as HEADERS and DATA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    /// Its stream, 0 for the connection.
    pub stream: u32,
    /// Its type.
    pub kind: FrameKind,
    /// Bytes of the TCP stream that must have arrived before all of it can be read.
    pub bytes: Range<u64>,
    /// The total that DATA up to its end has used of the connection window; 0 for other frames.
    pub connection_flow: u64,
    /// The same for its stream window.
    pub stream_flow: u64,
}

/// An increment of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Update {
    /// The total of this window's increments, including this one.
    pub granted: u64,
    /// Where its frame begins in the TCP stream of its direction.
    pub begins_at: u64,
    /// Where it ends.
    pub ends_at: u64,
}

/// A setting that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set {
    id: u16,
    value: u32,
    ends_at: u64,
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// In the order of the bytes.
    all: Vec<Placed>,
    /// The total that DATA has used so far, by stream; that of the connection at 0.
    flows: BTreeMap<u32, u64>,
    /// WINDOW_UPDATEs that its sender has sent, by stream; those of the connection at 0.
    updates: BTreeMap<u32, Vec<Update>>,
    settings: Vec<Set>,
    /// HTTP/1.1, whose frames have no headers.
    is_http1: bool,
    /// With TLS: for each record its first plaintext byte and its places in the TCP stream, in order. Without TLS it is
    /// empty: plaintext bytes are TCP's.
    records: Vec<(u64, Range<u64>)>,
    plaintext: u64,
}

impl Frames {
    /// All frames, in the order of their bytes.
    pub fn all(&self) -> &[Placed] {
        &self.all
    }

    /// The frames that have bytes of `bytes`.
    pub fn of(&self, bytes: &Range<u64>) -> &[Placed] {
        let from = self.all.partition_point(|frame| frame.bytes.end <= bytes.start);
        let until = self.all.partition_point(|frame| frame.bytes.start < bytes.end);
        self.all.get(from..until).unwrap_or_default()
    }

    /// The first WINDOW_UPDATE of its sender that brings the total of a window's increments to at least this much.
    /// Stream 0 is the connection's window.
    pub fn update(&self, stream: u32, granted: u64) -> Option<&Update> {
        let updates = self.updates.get(&stream)?;
        updates.get(updates.partition_point(|update| update.granted < granted))
    }

    /// The last value of a setting, among the frames for which `known` returns true for the place of their end.
    fn setting(&self, id: u16, known: impl Fn(u64) -> bool) -> Option<u32> {
        self.settings.iter().rev().find(|set| set.id == id && known(set.ends_at)).map(|set| set.value)
    }

    /// The initial window of streams that its sender has granted, according to those SETTINGS for which `known` returns
    /// true for the place of their end.
    pub fn initial_window(&self, known: impl Fn(u64) -> bool) -> u64 {
        self.setting(setting::INITIAL_WINDOW_SIZE, known).map_or(DEFAULT_WINDOW, u64::from)
    }

    /// How many concurrent streams its sender accepts: each value that it announced, with the place of the frame's end.
    pub fn stream_limits(&self) -> impl Iterator<Item = (u64, u32)> {
        self.settings
            .iter()
            .filter(|set| set.id == setting::MAX_CONCURRENT_STREAMS)
            .map(|set| (set.ends_at, set.value))
    }

    /// The place of these plaintext bytes in the TCP stream.
    fn places(&self, plain: Range<u64>) -> Range<u64> {
        if self.records.is_empty() {
            return plain;
        }
        let record = |byte: u64| {
            let behind = self.records.partition_point(|(first, _)| *first <= byte);
            behind.checked_sub(1).map_or(0..0, |at| self.records[at].1.clone())
        };
        record(plain.start).start..record(plain.end.saturating_sub(1).max(plain.start)).end
    }

    /// DATA of `length` bytes uses that much of a window; returns the new total.
    fn consume(&mut self, stream: u32, length: u32) -> u64 {
        let flow = self.flows.entry(stream).or_default();
        *flow += u64::from(length);
        *flow
    }

    fn add(&mut self, detailed: &DetailedFrame) -> Option<&Placed> {
        let (event, end) = (detailed.event, detailed.ends_at);
        // A head before the frames of an upgraded connection has no frame header.
        let is_head = matches!(&detailed.detail, Detail::Head(Head { start_line: Some(_), .. }));
        let header = if is_head || self.is_http1 { 0 } else { 9 };
        let start = end.saturating_sub(u64::from(event.length) + header);
        let bytes = self.places(start..end);
        match &detailed.detail {
            Detail::WindowUpdate { increment } => {
                let updates = self.updates.entry(event.stream.0).or_default();
                let granted = updates.last().map_or(0, |last| last.granted) + u64::from(*increment);
                updates.push(Update { granted, begins_at: bytes.start, ends_at: bytes.end });
            }
            Detail::Settings { settings, .. } => {
                let known = settings.iter().filter(|set| {
                    matches!(set.id, setting::MAX_CONCURRENT_STREAMS | setting::INITIAL_WINDOW_SIZE)
                });
                let set = |set: &h2lab_wire::trace::detail::Setting| Set {
                    id: set.id,
                    value: set.value,
                    ends_at: bytes.end,
                };
                self.settings.extend(known.map(set));
            }
            _ => {}
        }
        let mut placed =
            Placed { stream: event.stream.0, kind: event.kind, bytes, connection_flow: 0, stream_flow: 0 };
        if event.kind == FrameKind::DATA {
            placed.connection_flow = self.consume(0, event.length);
            placed.stream_flow = self.consume(event.stream.0, event.length);
        }
        self.all.push(placed);
        self.all.last()
    }
}

/// A request and its response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Exchange {
    /// Its `x-h2lab-id`.
    pub id: Option<u64>,
    /// Its frames in the direction up, as indices.
    up: Vec<u32>,
    down: Vec<u32>,
    /// The first RST_STREAM in each direction, up and down, as indices.
    resets: [Option<u32>; 2],
}

impl Exchange {
    /// Its frames of one direction, as indices.
    pub fn frames(&self, direction: Direction) -> &[u32] {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// The first RST_STREAM of one direction, as an index.
    pub fn reset(&self, direction: Direction) -> Option<u32> {
        self.resets[usize::from(direction == Direction::Down)]
    }
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Protocol {
    /// No bytes yet.
    #[default]
    Open,
    /// HTTP/1.1 or HTTP/2.
    Http(Dialect),
    /// Something else.
    Other,
}

/// All streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub protocol: Protocol,
    reader: Option<Reader>,
    /// What the server sent before the client sent anything.
    early: Vec<(Range<u64>, Vec<u8>)>,
    early_bytes: usize,
    is_tls: bool,
    up: Frames,
    down: Frames,
    exchanges: BTreeMap<u32, Exchange>,
}

impl Streams {
    /// The streams of a connection; `is_tls`: its bytes come from TLS records.
    pub fn new(is_tls: bool) -> Self {
        Self { is_tls, ..Self::default() }
    }

    /// The frames of one direction.
    pub const fn frames(&self, direction: Direction) -> &Frames {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// Whether it is HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.protocol == Protocol::Http(Dialect::Http2)
    }

    /// The exchange of one stream.
    pub fn exchange(&self, stream: u32) -> Option<&Exchange> {
        self.exchanges.get(&stream)
    }

    /// All exchanges, by stream.
    pub fn exchanges(&self) -> impl Iterator<Item = (u32, &Exchange)> {
        self.exchanges.iter().map(|(stream, exchange)| (*stream, exchange))
    }

    /// Processes the next plaintext bytes of a direction; `places` is where they are in the TCP stream.
    pub fn feed(&mut self, direction: Direction, places: Range<u64>, bytes: &[u8]) {
        if bytes.is_empty() || self.protocol == Protocol::Other {
            return;
        }
        if self.protocol == Protocol::Open {
            if direction == Direction::Down {
                self.early_bytes += bytes.len();
                if self.early_bytes > EARLY {
                    self.protocol = Protocol::Other;
                    self.early.clear();
                    return;
                }
                self.early.push((places, bytes.to_vec()));
                return;
            }
            self.begin(bytes);
        }
        self.read(direction, places, bytes);
    }

    fn begin(&mut self, first: &[u8]) {
        self.protocol = dialect(first).map_or(Protocol::Other, Protocol::Http);
        let Protocol::Http(dialect) = self.protocol else { return };
        self.reader = Some(Reader::new(dialect, 0));
        for frames in [&mut self.up, &mut self.down] {
            frames.is_http1 = dialect == Dialect::Http1;
        }
        for (places, bytes) in std::mem::take(&mut self.early) {
            self.read(Direction::Down, places, &bytes);
        }
    }

    fn read(&mut self, direction: Direction, bytes_at: Range<u64>, bytes: &[u8]) {
        let Self { reader: Some(reader), up, down, exchanges, is_tls, .. } = self else { return };
        let frames = if direction == Direction::Up { up } else { down };
        if *is_tls {
            frames.records.push((frames.plaintext, bytes_at));
        }
        frames.plaintext += bytes.len() as u64;
        // The time is not used here: the place of the bytes determines their time.
        reader.feed(Time::ZERO, direction, bytes, &mut |detailed| {
            let index = frames.all.len() as u32;
            let Some(placed) = frames.add(&detailed) else { return };
            if placed.kind == FrameKind::RST_STREAM
                && let Some(exchange) = exchanges.get_mut(&placed.stream)
            {
                exchange.resets[usize::from(direction == Direction::Down)].get_or_insert(index);
            }
            if placed.stream == 0 || !matters(placed.kind) {
                return;
            }
            let exchange = exchanges.entry(placed.stream).or_default();
            match direction {
                Direction::Up => exchange.up.push(index),
                Direction::Down => exchange.down.push(index),
            }
            if let (Direction::Up, Detail::Head(head)) = (direction, &detailed.detail) {
                exchange.id = id_of(head).or(exchange.id);
            }
        });
    }
}

/// Whether a frame is part of a message.
const fn matters(kind: FrameKind) -> bool {
    matches!(kind, FrameKind::DATA | FrameKind::HEADERS | FrameKind::CONTINUATION)
}

/// The protocol, from a client's first bytes: HTTP/2 by its preface or by an upgrade, or HTTP/1.1 by a request line.
pub(in crate::diagnose) fn dialect(first: &[u8]) -> Option<Dialect> {
    if is_preface(first) {
        return Some(Dialect::Http2);
    }
    let method = first.split(|byte| *byte == b' ').next()?;
    if method.is_empty() || method.len() == first.len() || !method.iter().all(u8::is_ascii_uppercase) {
        return None;
    }
    let upgrades = first.split(|byte| *byte == b'\n').any(|line| {
        let line = line.trim_ascii().to_ascii_lowercase();
        line.starts_with(b"upgrade:") && line.ends_with(b"h2c")
    });
    Some(if upgrades { Dialect::Http2 } else { Dialect::Http1 })
}

/// Whether a client's first bytes are a request that offers to continue with HTTP/2, which its server may decline.
pub(in crate::diagnose) fn offers_upgrade(first: &[u8]) -> bool {
    dialect(first) == Some(Dialect::Http2) && !is_preface(first)
}

/// Whether they are the beginning of HTTP/2's preface.
fn is_preface(first: &[u8]) -> bool {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0";
    let length = first.len().min(PREFACE.len());
    first[..length] == PREFACE[..length]
}

/// The number in a head's `x-h2lab-id`.
fn id_of(head: &Head) -> Option<u64> {
    head.fields.iter().find(|field| field.name.eq_ignore_ascii_case(ID_FIELD))?.value.parse().ok()
}
