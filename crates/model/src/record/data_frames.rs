//! The actual DATA frames, as against the limits asked for.

use serde::{Deserialize, Serialize};

use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

/// DATA frames in the direction of the data, and the credit that was returned for it. All zero where there are no frames,
/// in HTTP/1.1; HTTP/3 has no credit of its own, QUIC has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FrameFigures {
    /// DATA frames.
    pub data: u64,
    /// Bytes in them: data and padding, without frame heads.
    pub data_bytes: u64,
    /// The longest of them, in bytes of payload.
    pub largest_data: u64,
    /// WINDOW_UPDATEs the other way, of streams and connection.
    pub updates: u64,
    /// Their increments together, in bytes. Each byte of data is returned twice: to its stream and to the connection.
    pub update_bytes: u64,
}

impl FrameFigures {
    /// Takes a frame that the Tap has seen of an HTTP/2 or HTTP/3 connection whose data flows in the direction `data`.
    pub fn see(&mut self, frame: &FrameEvent, data: Direction) {
        match frame.kind {
            FrameKind::DATA if frame.direction == data => {
                self.data += 1;
                self.data_bytes += u64::from(frame.length);
                self.largest_data = self.largest_data.max(frame.length.into());
            }
            FrameKind::WINDOW_UPDATE if frame.direction != data => {
                self.updates += 1;
                self.update_bytes += u64::from(frame.value);
            }
            _ => {}
        }
    }

    /// Adds what was seen of other connections.
    pub fn add(&mut self, other: &Self) {
        self.data += other.data;
        self.data_bytes += other.data_bytes;
        self.largest_data = self.largest_data.max(other.largest_data);
        self.updates += other.updates;
        self.update_bytes += other.update_bytes;
    }

    /// Mean payload of a DATA frame, in bytes; `None` without one.
    pub fn mean_data(&self) -> Option<f64> {
        (self.data > 0).then(|| self.data_bytes as f64 / self.data as f64)
    }

    /// Mean increment of a WINDOW_UPDATE, in bytes; `None` without one.
    pub fn mean_update(&self) -> Option<f64> {
        (self.updates > 0).then(|| self.update_bytes as f64 / self.updates as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_base::units::Time;
    use h2lab_wire::StreamId;

    fn frame(kind: FrameKind, direction: Direction, length: u32, value: u32) -> FrameEvent {
        let (at, stream) = (Time::ZERO, StreamId(1));
        FrameEvent { at, connection: 0, stream, length, value, kind, flags: 0, direction }
    }

    #[test]
    fn data_counts_one_way_and_credit_the_other() {
        let mut figures = FrameFigures::default();
        for (kind, direction, length, value) in [
            (FrameKind::DATA, Direction::Down, 16_384, 0),
            (FrameKind::DATA, Direction::Down, 32_768, 0),
            (FrameKind::DATA, Direction::Up, 100_000, 0),
            (FrameKind::HEADERS, Direction::Down, 90_000, 0),
            (FrameKind::WINDOW_UPDATE, Direction::Up, 4, 8192),
            (FrameKind::WINDOW_UPDATE, Direction::Up, 4, 16_384),
            (FrameKind::WINDOW_UPDATE, Direction::Down, 4, 1 << 30),
        ] {
            figures.see(&frame(kind, direction, length, value), Direction::Down);
        }
        assert_eq!((figures.data, figures.largest_data, figures.updates), (2, 32_768, 2));
        assert_eq!((figures.mean_data(), figures.mean_update()), (Some(24_576.0), Some(12_288.0)));
        let mut all = figures;
        all.add(&figures);
        assert_eq!((all.data, all.largest_data, all.update_bytes), (4, 32_768, 49_152));
    }

    #[test]
    fn means_need_something_to_be_the_mean_of() {
        let frames = FrameFigures::default();
        assert_eq!((frames.mean_data(), frames.mean_update()), (None, None));
    }
}
