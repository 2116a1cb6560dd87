//! When the congestion window held back data of one end of a connection, by the packet log alone.
//!
//! The log has no acknowledgement numbers. But a receiver acknowledges what has arrived, and when each of its packets
//! was sent is known: that packet acknowledges what had left the link by then.

use std::time::Duration;

use super::capture::rto_min;
use super::flow::{Flow, History, Numbers, Transmission};
use super::sending::{Ack, Before, Send, Sending, Timers};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, PacketRecord};
use h2lab_wire::trace::Direction;

/// A shorter payload fills no segment, although it may be the longest of its sender.
const LEAST_FULL: u32 = 1_000;

/// A time in which the congestion window of one end, reduced by a loss, held back data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::diagnose) struct Held {
    /// The connection.
    pub connection: u32,
    /// The direction of the data.
    pub direction: Direction,
    /// When its sender had last sent new data.
    pub from: Time,
    /// When it sent new data again.
    pub until: Time,
    /// The segments that it had sent in the round trip before `from`: what its window let through.
    pub window: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// The times in which data of the connection from this port was held back in this direction, in order. Times with a
/// queue of half a round trip or more in the path, `rtt` long without one, are left out: the path is full then.
pub(in crate::diagnose) fn held(
    record: &CellRecord,
    (connection, port): (u32, u16),
    direction: Direction,
    rtt: Duration,
) -> Vec<Held> {
    let its = || record.packets.iter().filter(move |packet| packet.client_port == port);
    let data = || its().filter(move |packet| packet.direction == direction && packet.payload > 0);
    let Some(first) = data().next() else { return Vec::new() };
    let full = data().map(|packet| packet.payload).max().unwrap_or_default().max(LEAST_FULL);
    let mut numbers = Numbers::from_first(first.seq);
    let mut flow = Flow::default();
    let mut sends: Vec<Send> = Vec::new();
    for packet in data() {
        let Some(start) = numbers.place(packet.seq) else { continue };
        let (bytes, sent) = (start..start + u64::from(packet.payload), Transmission::of(packet));
        let before = flow.last_sent(bytes.clone()).map(|last| Before { at: last.at, start });
        numbers.advance(bytes.end);
        flow.add(bytes.clone(), sent);
        // A copy is made by the link, not by the sender.
        if !packet.marks.is_copy {
            sends.push(Send { bytes, sent, before, is_full: packet.payload >= full });
        }
    }
    let history = flow.finish();
    let replies = its().filter(|packet| packet.direction != direction && packet.arrived_intact());
    let acks = replies.map(|reply| acknowledgement(&history, reply)).collect();
    let timers = Timers { rtt, rto_min: rto_min(&record.cell.sysctls) };
    let sending = Sending::follow(direction, &sends, acks, timers);
    let reduced = sending.holds().filter(|hold| hold.after.is_some() && hold.until.happened());
    let held = reduced.filter_map(|hold| {
        let begin = sends.partition_point(|send| send.sent.at + rtt <= hold.from);
        let end = sends.partition_point(|send| send.sent.at <= hold.from);
        let window = sends.get(begin..end).unwrap_or_default();
        let is_queued = |Send { sent, .. }: &Send| sent.out_at.happened() && sent.out_at.since(sent.at) > rtt;
        let bytes: u64 = window.iter().map(|send| send.bytes.end - send.bytes.start).sum();
        let one = Held {
            connection,
            direction,
            from: hold.from,
            until: hold.until,
            window: window.len() as u32,
            bytes,
        };
        (!window.iter().any(is_queued)).then_some(one)
    });
    held.collect()
}

/// What the receiver acknowledges with this packet: all that it can read, and what has arrived beyond.
fn acknowledgement(history: &History, reply: &PacketRecord) -> Ack {
    let all = history.all();
    let read = all.partition_point(|range| range.readable <= reply.at);
    let end = read.checked_sub(1).map_or(0, |last| all[last].bytes.end);
    let ahead = all[read..].iter().take_while(|range| range.sent.first_sent() <= reply.at);
    let arrived = ahead.filter(|range| range.sent.arrived() <= reply.at);
    Ack { at: reply.out_at, end, sacks: arrived.map(|range| range.bytes.clone()).collect() }
}
