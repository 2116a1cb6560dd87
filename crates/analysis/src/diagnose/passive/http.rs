//! The bytes of a connection in clear: which version of HTTP they are, and its frames.

use super::exchanges::Exchanges;
use crate::diagnose::waits::streams::{dialect, offers_upgrade};
use h2lab_base::units::Time;
use h2lab_wire::trace::detail::Reader;
use h2lab_wire::trace::{Dialect, Direction};

/// Bytes that are kept until the protocol is known: it is identified by the client's first bytes, or by the answer to
/// its offer to upgrade.
const EARLY: usize = 1 << 16;
/// Where the status is in a response, `HTTP/1.1 101`.
const STATUS: std::ops::Range<usize> = 9..12;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Http {
    /// As the client's first bytes indicate.
    dialect: Option<Dialect>,
    /// The client has offered to upgrade to HTTP/2, whatever the answer.
    pub is_offered: bool,
    reader: Option<Reader>,
    early: Vec<(Time, Direction, Vec<u8>)>,
    early_bytes: usize,
    /// When the client sent its first bytes.
    pub ready_at: Option<Time>,
    pub exchanges: Exchanges,
}

impl Http {
    /// Processes the next bytes; `None` if they are not HTTP.
    pub fn feed(&mut self, now: Time, direction: Direction, bytes: &[u8], room: &mut usize) -> Option<()> {
        if bytes.is_empty() {
            return Some(());
        }
        if self.reader.is_some() {
            self.read(now, direction, bytes, room);
            return Some(());
        }
        if direction == Direction::Up && self.dialect.is_none() {
            self.dialect = Some(dialect(bytes)?);
            self.is_offered = offers_upgrade(bytes);
            self.ready_at = Some(now);
        }
        self.early_bytes += bytes.len();
        self.early.push((now, direction, bytes.to_vec()));
        let is_full = self.early_bytes > EARLY;
        let dialect = match self.dialect {
            None => return (!is_full).then_some(()),
            Some(_) if self.is_offered => match self.switches() {
                None if !is_full => return Some(()),
                Some(true) => Dialect::Http2,
                None | Some(false) => Dialect::Http1,
            },
            Some(dialect) => dialect,
        };
        self.begin(dialect, room);
        Some(())
    }

    /// Itself, with its version of HTTP, after the last bytes. An offer to upgrade without an answer means HTTP/1.1.
    pub fn settled(mut self) -> Option<(Dialect, Self)> {
        if self.is_offered && self.reader.is_none() {
            self.begin(Dialect::Http1, &mut 0);
        }
        Some((self.dialect?, self))
    }

    /// Whether the server accepts the offer to upgrade; `None` if it has not answered.
    fn switches(&self) -> Option<bool> {
        let down = self.early.iter().filter(|(_, direction, _)| *direction == Direction::Down);
        let down: Vec<u8> = down.flat_map(|(_, _, bytes)| bytes).copied().collect();
        let mut rest = &down[..];
        loop {
            let status = rest.get(STATUS)?;
            if status == b"101" || status[0] != b'1' {
                return Some(status == b"101");
            }
            // Another response follows an interim response.
            let end = rest.windows(4).position(|four| four == b"\r\n\r\n")?;
            rest = &rest[end + 4..];
        }
    }

    fn begin(&mut self, dialect: Dialect, room: &mut usize) {
        self.dialect = Some(dialect);
        self.reader = Some(Reader::new(dialect, 0));
        for (at, direction, early) in std::mem::take(&mut self.early) {
            self.read(at, direction, &early, room);
        }
    }

    fn read(&mut self, now: Time, direction: Direction, bytes: &[u8], room: &mut usize) {
        let Self { reader: Some(reader), exchanges, .. } = self else { return };
        let counted = match direction {
            Direction::Up => &mut exchanges.record.bytes_sent,
            Direction::Down => &mut exchanges.record.bytes_received,
        };
        *counted += bytes.len() as u64;
        reader.feed(now, direction, bytes, &mut |frame| exchanges.see(&frame, room));
    }
}
