//! Ends of connections for which the server chose the last request by its number.

use std::collections::{BTreeMap, BTreeSet};

use super::ANNOUNCEMENT;
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

/// The connections on which the client sent a request above the last one that a GOAWAY of the server accepted, at the
/// same time as that one, as in one segment: the server had received both, so that the last one is where it counted to,
/// and not what had arrived by chance. Empty where frames were not recorded.
pub(super) fn cut_in_a_burst(record: &CellRecord) -> BTreeSet<u32> {
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    for connection in &record.connections {
        let named = connection.goaways.iter().rfind(|goaway| goaway.last_stream != ANNOUNCEMENT);
        last.extend(named.map(|goaway| (connection.index, goaway.last_stream)));
    }
    let (mut sent, mut cut): (BTreeMap<u32, Time>, BTreeSet<u32>) = (BTreeMap::new(), BTreeSet::new());
    if last.is_empty() {
        return cut;
    }
    let is_request =
        |frame: &&FrameEvent| frame.direction == Direction::Up && frame.kind == FrameKind::HEADERS;
    for frame in record.frames.iter().filter(is_request) {
        let Some(&last) = last.get(&frame.connection) else { continue };
        if frame.stream.0 == last {
            // Trailers come later on the same stream.
            sent.entry(frame.connection).or_insert(frame.at);
        } else if frame.stream.0 > last && sent.get(&frame.connection) == Some(&frame.at) {
            cut.insert(frame.connection);
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::super::of;
    use super::*;
    use crate::diagnose::testing::Scene;
    use h2lab_model::workload::Protocol;
    use h2lab_wire::StreamId;

    /// How many of five requests that were sent together the server had certainly counted when it ended the connection
    /// with the third as the last, if the client sent the fourth `later` ms after that.
    fn counted(later: u64) -> u32 {
        let scene = Scene::new(Protocol::H2c);
        let scene = (0..3).fold(scene, |scene, n| scene.request(0, 2 * n + 1, 100, 125, 125));
        let mut record = scene.goaway(0, 125, 5, 0).record();
        let head = |stream: u32, at: u64| FrameEvent {
            at: Time::from_millis(at),
            connection: 0,
            stream: StreamId(stream),
            length: 10,
            value: 0,
            kind: FrameKind::HEADERS,
            flags: 5,
            direction: Direction::Up,
        };
        let heads = [(1, 100), (3, 100), (5, 100), (7, 100 + later), (9, 100 + later)];
        record.frames.extend(heads.map(|(stream, at)| head(stream, at)));
        record.frames.sort_by_key(|frame| frame.at);
        let end = of(&record).ends.remove(0);
        assert_eq!(end.requests, 3);
        end.answered + 1
    }

    #[test]
    fn a_request_in_the_segment_of_the_last_shows_that_the_server_counts_to_that() {
        assert_eq!(counted(0), 3);
        assert_eq!(counted(1), 1, "the fourth may have come after the GOAWAY was sent, for any of the three");
    }
}
