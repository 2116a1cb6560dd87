//! What crossed a connection, kept as evidence.

use std::collections::VecDeque;

use h2lab_base::text::printable;
use h2lab_base::units::{Time, millis_f64};
use h2lab_model::probe::EvidenceItem;
use h2lab_wire::trace::detail::{DetailedFrame, Reader, Secrets, line};
use h2lab_wire::trace::{Dialect, Direction};

/// What is kept of a connection: its beginning and its end.
const KEPT: (usize, usize) = (24, 48);
/// Bytes of one crossing that are kept where there are no frames.
const BYTES: usize = 2_048;

/// The recorder of one connection: bytes until [`Transcript::reads_frames`], then frames.
#[derive(Debug)]
pub struct Transcript {
    began: Time,
    secrets: Secrets,
    reader: Option<Box<Reader>>,
    first: Vec<EvidenceItem>,
    last: VecDeque<EvidenceItem>,
}

impl Transcript {
    /// A connection is dialled at `now`. Evidence goes into reports: `secrets` are not in it.
    pub const fn new(now: Time, secrets: Secrets) -> Self {
        Self { began: now, secrets, reader: None, first: Vec::new(), last: VecDeque::new() }
    }

    /// From now on the bytes are HTTP/2, beginning with the client's preface.
    pub fn reads_frames(&mut self) {
        self.reader = Some(Box::new(Reader::new(Dialect::Http2, 0)));
    }

    /// These bytes crossed at `now`.
    pub fn record(&mut self, now: Time, direction: Direction, bytes: &[u8]) {
        let mut rendered = Vec::new();
        match &mut self.reader {
            Some(reader) => {
                let mut keep = |mut frame: DetailedFrame| {
                    self.secrets.hide_in_frame(&mut frame.detail);
                    rendered.push((frame.event.at, line(&frame)));
                };
                reader.feed(now, direction, bytes, &mut keep);
            }
            None => {
                let cut = if bytes.len() > BYTES { " …" } else { "" };
                let shown = self.secrets.hide_in_lines(&bytes[..bytes.len().min(BYTES)]);
                rendered.push((now, printable(&shown) + cut));
            }
        }
        for (at, seen) in rendered {
            self.keep(at, direction, seen);
        }
    }

    /// So many bytes of a flood were sent.
    pub fn count(&mut self, now: Time, n: usize) {
        self.keep(now, Direction::Up, format!("{n} bytes of the flood"));
    }

    fn keep(&mut self, at: Time, direction: Direction, seen: String) {
        let at_ms = (millis_f64(at.since(self.began)) * 1e3).round() / 1e3; // to the microsecond
        let item = EvidenceItem { direction, at_ms, seen };
        if self.first.len() < KEPT.0 {
            self.first.push(item);
            return;
        }
        if self.last.len() == KEPT.1 {
            self.last.pop_front();
        }
        self.last.push_back(item);
    }

    /// All that is kept, in its order.
    pub fn items(&self) -> Vec<EvidenceItem> {
        self.first.iter().chain(&self.last).cloned().collect()
    }

    /// The last `n` of those that `is_wanted` wants.
    pub fn last(&self, n: usize, is_wanted: impl Fn(&EvidenceItem) -> bool) -> Vec<EvidenceItem> {
        let mut found: Vec<EvidenceItem> = self
            .last
            .iter()
            .rev()
            .chain(self.first.iter().rev())
            .filter(|item| is_wanted(item))
            .take(n)
            .cloned()
            .collect();
        found.reverse();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let mut transcript = Transcript::new(Time::from_millis(5), Secrets::default());
        for n in 0..200 {
            transcript.record(Time::from_millis(5 + n), Direction::Up, format!("{n}\r\n").as_bytes());
        }
        let items = transcript.items();
        assert_eq!(items.len(), KEPT.0 + KEPT.1);
        assert_eq!((items[0].seen.as_str(), items[0].at_ms), ("0\\r\\n", 0.0));
        assert_eq!(items[KEPT.0].seen, "152\\r\\n");
        assert_eq!(transcript.last(1, |item| item.seen.starts_with('2'))[0].seen, "23\\r\\n");
    }

    #[test]
    fn after_an_upgrade_frames_are_recorded() {
        let mut transcript = Transcript::new(Time::ZERO, Secrets::default());
        transcript.record(Time::ZERO, Direction::Down, b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
        transcript.reads_frames();
        transcript.record(Time::ZERO, Direction::Down, &[0, 0, 0, 4, 0, 0, 0, 0, 0]);
        let seen: Vec<String> = transcript.items().into_iter().map(|item| item.seen).collect();
        assert_eq!(seen, ["HTTP/1.1 101 Switching Protocols\\r\\n\\r\\n", "SETTINGS[0]"]);
    }
}
