//! Packets that leave the link, and their records.

use std::sync::Arc;

use h2lab_base::units::Time;
use h2lab_link::{IpPacket, Segment, may_follow, write_corrupted, write_header};

use super::capture_buffer::Intake;
use super::packet_log::{Entry, Lateness, PacketLog};
use super::port::{PIECES, Port};

/// The records of the pump's thread, and its reusable buffers.
pub(super) struct PumpRecords {
    pub packet_log: PacketLog,
    pub lateness: Lateness,
    /// Where the bytes of all packets go, if a capture is wanted.
    pub intake: Option<Intake>,
    /// Buffers of frames that have left.
    pub spare: Vec<Vec<u8>>,
    /// Frames of an unknown kind, and frames that the device did not accept.
    pub refused: u64,
}

/// A packet inside the link: a segment of the frame that it came in.
#[derive(Debug)]
pub(super) struct Held {
    pub frame: Arc<IpPacket>,
    pub index: u32,
    pub entry: Entry,
    /// The bit of its payload that is flipped on the way out.
    pub corrupt: Option<u32>,
}

impl Held {
    pub fn segment(&self) -> Segment<'_> {
        self.frame.segment(self.index)
    }
}

/// Packets that leave together, as one super-packet or as a single packet.
#[derive(Debug, Default)]
pub(super) struct PacketBatch {
    packets: Vec<(Time, Held)>,
    /// Frames that they come from.
    pieces: usize,
    /// The buffer of their header.
    header: Vec<u8>,
    /// The buffer of a payload that was changed.
    payload: Vec<u8>,
}

impl PacketBatch {
    /// Appends the packet, or gives it back if it cannot leave with the others.
    pub fn append(&mut self, due: Time, held: Held) -> Option<(Time, Held)> {
        if let [(_, first), .., (_, last)] | [(_, last @ first)] = self.packets.as_slice() {
            let is_piece_of_last = Arc::ptr_eq(&last.frame, &held.frame);
            if last.corrupt.is_some()
                || held.corrupt.is_some()
                || !may_follow(first.segment(), last.segment(), held.segment())
                || (!is_piece_of_last && self.pieces == PIECES)
            {
                return Some((due, held));
            }
            self.pieces += usize::from(!is_piece_of_last);
        } else {
            self.pieces = 1;
        }
        self.packets.push((due, held));
        None
    }

    /// Sends them by `port` at `now`, and records that.
    pub fn leave(&mut self, port: &Port, now: Time, records: &mut PumpRecords) {
        let Self { packets, header, payload: flipped, .. } = self;
        for (due, held) in packets.iter() {
            records.lateness.record(*due, now);
            records.packet_log.leave(held.entry, now);
        }
        if let [(_, first), .., (_, last)] | [(_, last @ first)] = packets.as_slice() {
            header.clear();
            let sent = if let Some(bit) = first.corrupt {
                let offload = write_corrupted(first.segment(), bit, header, flipped);
                port.send(offload, header, std::iter::once(flipped.as_slice()))
            } else {
                let offload = write_header(first.segment(), last.segment(), header);
                let payload = packets
                    .chunk_by(|(_, one), (_, next)| Arc::ptr_eq(&one.frame, &next.frame))
                    .map(|piece| piece[0].1.frame.payload(piece[0].1.index, piece[piece.len() - 1].1.index));
                port.send(offload, header, payload)
            };
            if sent.is_err() {
                records.refused += packets.len() as u64;
            }
        }
        for (_, held) in packets.drain(..) {
            records.spare.extend(Arc::into_inner(held.frame).map(IpPacket::into_bytes));
        }
    }
}
