//! Packets and packet log joined to a file for Wireshark: what each end of the link sent, what the other got, and why some did
//! not come.

use std::io::Write;

use anyhow::Result;
use h2lab_link::pcapng;
use h2lab_link::pcapng::EnhancedPacket;
use h2lab_link::{IpPacket, write_packet};
use h2lab_model::record::{PacketFate, PacketRecord};
use h2lab_wire::trace::Direction;

use h2lab_lab::topology::{CapturedPackets, Kept};

/// The places at which packets are seen. A direction's entry is even, its exit one more.
///
/// One file has all four, so that no two clocks or files need to be laid side by side; a display filter makes it the
/// capture of one end: `frame.interface_id in {0, 3}` is the client's, `{1, 2}` the server's.
const INTERFACES: [(&str, &str); 4] = [
    ("uplink in", "client to server, as the client sent it"),
    ("uplink out", "client to server, as the server received it"),
    ("downlink in", "server to client, as the server sent it"),
    ("downlink out", "server to client, as the client received it"),
];

/// Bytes that are written at once.
const BLOCK: usize = 1 << 18;

/// All that goes into a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Snapshot<'a> {
    /// Every frame that entered.
    pub packets: &'a CapturedPackets,
    /// What became of each packet.
    pub packet_log: &'a [PacketRecord],
    /// Lines of a key log.
    pub secrets: &'a [u8],
    /// When the run's clock began, in nanoseconds since 1970.
    pub epoch_ns: u64,
    /// Bytes of each packet that are written at most.
    pub snaplen: Option<u32>,
}

/// A packet at a place, in the order of time.
#[derive(Debug, Clone, Copy)]
struct PacketEvent {
    at_ns: u64,
    interface: u32,
    /// Its frame.
    frame: usize,
    segment: u32,
    /// Where the packet log has it; `None` if that was full.
    record: Option<u32>,
}

/// Writes the file.
pub(super) fn write(mut out: impl Write, all: &Snapshot<'_>) -> Result<()> {
    let mut block = Vec::with_capacity(2 * BLOCK);
    pcapng::begin(&mut block, &INTERFACES);
    if !all.secrets.is_empty() {
        pcapng::secrets(&mut block, all.secrets);
    }
    let frames = all.packets.frames();
    // Super-packets have many segments, and those of one pass a place one after the other.
    let mut at_hand: [Option<(usize, IpPacket)>; INTERFACES.len()] = Default::default();
    let mut bytes = Vec::new();
    for event in packet_events(frames, all.packet_log) {
        let slot = &mut at_hand[event.interface as usize];
        let frame = match slot {
            Some((frame, bytes)) if *frame == event.frame => bytes,
            _ => &mut slot.insert((event.frame, all.packets.frame(&frames[event.frame])?)).1,
        };
        bytes.clear();
        let record = event.record.map(|place| &all.packet_log[place as usize]);
        let flipped = record.filter(|_| !event.is_entry()).and_then(|record| record.marks.corrupt);
        write_packet(frame.segment(event.segment), flipped, &mut bytes);
        let comment = comment(record, event.is_entry());
        let length = bytes.len() as u32;
        bytes.truncate(all.snaplen.unwrap_or(length) as usize);
        let seen = EnhancedPacket {
            interface: event.interface,
            at_nanos: all.epoch_ns + event.at_ns,
            bytes: &bytes,
            length,
            comment: comment.as_deref(),
        };
        pcapng::packet(&mut block, &seen);
        if block.len() >= BLOCK {
            out.write_all(&block)?;
            block.clear();
        }
    }
    out.write_all(&block)?;
    Ok(out.flush()?)
}

/// Every packet at every place where it was, in the order of time.
fn packet_events(frames: &[Kept], packet_log: &[PacketRecord]) -> Vec<PacketEvent> {
    let key = |place: u32| {
        let record = &packet_log[place as usize];
        (record.direction == Direction::Down, record.index)
    };
    let mut places: Vec<u32> = (0..packet_log.len() as u32).collect();
    // Stable: a copy stays behind its original, which has the same index.
    places.sort_by_key(|place| key(*place));
    let mut packet_events = Vec::with_capacity(2 * packet_log.len());
    for (frame, kept) in frames.iter().enumerate() {
        let entered = kept.entered;
        let entry = 2 * u32::from(entered.direction == Direction::Down);
        for segment in 0..entered.segments {
            let wanted = (entered.direction == Direction::Down, entered.index + u64::from(segment));
            let from = places.partition_point(|place| key(*place) < wanted);
            let mine = || places[from..].iter().copied().take_while(|place| key(*place) == wanted);
            let at_ns = entered.at.as_nanos();
            let first = PacketEvent { at_ns, interface: entry, frame, segment, record: mine().next() };
            packet_events.push(first);
            let delivered = mine().filter(|place| packet_log[*place as usize].fate == PacketFate::Delivered);
            packet_events.extend(delivered.map(|place| PacketEvent {
                at_ns: packet_log[place as usize].out_at.as_nanos(),
                interface: entry + 1,
                record: Some(place),
                ..first
            }));
        }
    }
    packet_events.sort_by_key(|event| event.at_ns);
    packet_events
}

impl PacketEvent {
    const fn is_entry(&self) -> bool {
        self.interface.is_multiple_of(2)
    }
}

/// What Wireshark could not know of a packet, before or behind the link.
fn comment(record: Option<&PacketRecord>, is_entry: bool) -> Option<String> {
    let Some(record) = record else {
        return Some("the packet log was full: unknown whether it was delivered".to_owned());
    };
    let marks = record.marks;
    let rendered = match record.fate {
        PacketFate::InFlight => "still inside when the link ended".to_owned(),
        fate if fate.is_drop() => format!("dropped: {}", fate.name()),
        _ if is_entry => return None,
        _ => {
            let words = [
                marks.corrupt.map(|bit| format!("corrupt: bit {bit} of its payload was flipped")),
                marks.is_copy.then(|| "a copy that the link made".to_owned()),
                marks.is_reordered.then(|| "reordered by the link".to_owned()),
            ];
            let words: Vec<String> = words.into_iter().flatten().collect();
            if words.is_empty() {
                return None;
            }
            words.join(", ")
        }
    };
    Some(format!("{rendered}; packet {} of the {}", record.index, way(record.direction)))
}

const fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "uplink",
        Direction::Down => "downlink",
    }
}

#[cfg(test)]
mod tests {
    use h2lab_base::units::Time;
    use h2lab_model::record::Marks;

    use super::*;

    const RECORD: PacketRecord = PacketRecord {
        at: Time::ZERO,
        out_at: Time::ZERO,
        index: 7,
        client_port: 1,
        server_port: 2,
        bytes: 60,
        payload: 8,
        seq: 0,
        direction: Direction::Down,
        fate: PacketFate::Delivered,
        marks: Marks { is_copy: false, is_reordered: false, corrupt: None },
    };

    #[test]
    fn a_packet_says_why_it_did_not_come_and_what_was_done_to_it_where_that_shows() {
        let lost = PacketRecord { fate: PacketFate::Lost, ..RECORD };
        assert_eq!(comment(Some(&lost), true).unwrap(), "dropped: lost; packet 7 of the downlink");
        let marks = Marks { is_copy: true, is_reordered: false, corrupt: Some(3) };
        let changed = PacketRecord { marks, ..RECORD };
        assert_eq!(comment(Some(&changed), true), None, "it entered as it was");
        let rendered = comment(Some(&changed), false).unwrap();
        assert_eq!(
            rendered,
            "corrupt: bit 3 of its payload was flipped, a copy that the link made; packet 7 of the downlink"
        );
        assert_eq!(comment(Some(&RECORD), false), None);
        assert!(comment(None, true).unwrap().contains("packet log was full"));
    }
}
