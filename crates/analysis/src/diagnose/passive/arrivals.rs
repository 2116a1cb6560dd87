//! When the bytes of TLS records arrived. A record can be read when the last of its bytes has arrived, which may be a
//! round trip later than the first: 16 KiB do not fit in an initial congestion window of ten segments (RFC 6928 §2).
//! The server had sent them long before.

use std::collections::VecDeque;

use h2lab_base::units::Time;

/// The header of a record (RFC 8446 §5.2). In TLS 1.2 at most 8 more bytes follow it, too few to matter here.
const HEADER: u64 = 5;
/// Segments whose times are kept: a record of 18 KiB needs that many if each segment has one byte of it.
const MOST: usize = 18 << 10;

/// The arrivals of one direction that do not belong to a record that was read before.
#[derive(Debug, Default)]
pub(super) struct Arrivals(VecDeque<(u64, Time)>);

impl Arrivals {
    /// All bytes of the stream before `end` have now arrived.
    pub fn add(&mut self, end: u64, now: Time) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((end, now));
    }

    /// Passes the contents of the record at `place` to `each` in pieces, with the time at which each piece arrived.
    pub fn pieces(&mut self, place: u64, mut contents: &[u8], mut each: impl FnMut(Time, &[u8])) {
        let mut place = place + HEADER;
        while !contents.is_empty() {
            while self.0.front().is_some_and(|(end, _)| *end <= place) {
                self.0.pop_front();
            }
            let (end, at) = self.0.front().copied().unwrap_or((u64::MAX, Time::NEVER));
            let length = usize::try_from(end - place).map_or(contents.len(), |left| left.min(contents.len()));
            let (piece, rest) = contents.split_at(length);
            each(at, piece);
            (place, contents) = (place + length as u64, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_cut_where_segments_ended() {
        let mut arrivals = Arrivals::default();
        let pieces = |place, contents: &str, arrivals: &mut Arrivals| {
            let mut pieces = Vec::new();
            arrivals.pieces(place, contents.as_bytes(), |at, piece| {
                let millis = if at.happened() { at.as_nanos() / 1_000_000 } else { 0 };
                pieces.push((millis, String::from_utf8_lossy(piece).into_owned()));
            });
            pieces
        };
        // A record of a handshake, then one whose header is split between segments, then one within a segment.
        for (end, at) in [(100, 1), (103, 2), (108, 3), (200, 4)] {
            arrivals.add(end, Time::from_millis(at));
        }
        assert_eq!(pieces(100, "abcdefgh", &mut arrivals), [(3, "abc".to_owned()), (4, "defgh".to_owned())]);
        assert_eq!(pieces(150, "xyz", &mut arrivals), [(4, "xyz".to_owned())]);
        assert_eq!(pieces(200, "late", &mut arrivals), [(0, "late".to_owned())], "unknown");
        (0..=MOST as u64).for_each(|n| arrivals.add(300 + n, Time::from_millis(5)));
        assert_eq!(arrivals.0.len(), MOST);
    }
}
