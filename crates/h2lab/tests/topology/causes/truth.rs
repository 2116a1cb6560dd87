//! What the requests of a conversation must have waited for, derived only from the script and the packet log: no bytes
//! are read, and nothing of `diagnose` is used.

use std::ops::Range;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::{PacketFate, PacketRecord};
use h2lab_wire::trace::Direction;

use super::conversation::{Conversation, stream_of};
use super::plan::{ConversationPlan, Drop};

/// The kinds of cause that a script can bring about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Own,
    HeadOfLine,
    Handshake,
    FlowWindow,
    /// A loss that acknowledgements revealed, by the kernel's counters.
    Fast,
    /// A loss that a timer repaired.
    Timer,
    /// Any other cause that is reported: never the truth.
    Other,
}

impl Kind {
    /// The kinds that the scripts must bring about: a kind that never occurs would not be judged.
    pub const SCRIPTED: [Self; 6] =
        [Self::Own, Self::HeadOfLine, Self::Handshake, Self::FlowWindow, Self::Fast, Self::Timer];

    /// How a loss was repaired.
    pub const fn repaired(is_fast: bool) -> Self {
        if is_fast { Self::Fast } else { Self::Timer }
    }

    /// Its name in the printed figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own lost segment",
            Self::HeadOfLine => "another stream's lost segment",
            Self::Handshake => "lost in the handshake",
            Self::FlowWindow => "flow-control window",
            Self::Fast => "fast retransmit",
            Self::Timer => "timeout or probe",
            Self::Other => "anything else",
        }
    }
}

/// A request waited for something for this long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    pub request: usize,
    pub kind: Kind,
    /// The stream whose segment was lost, if that is another one.
    pub stream: Option<u32>,
    /// The drop's direction and its index in the packet log.
    pub drop: Option<(Direction, u64)>,
    pub length: Duration,
}

/// Bytes of the client's first flight, and of the server's.
const OPENING: [u64; 2] = [24 + 15, 15];

/// The bytes of each message in its direction.
fn messages(plan: &ConversationPlan, direction: Direction) -> Vec<Range<u64>> {
    let shapes = if direction == Direction::Up { &plan.requests } else { &plan.responses };
    let mut at = OPENING[usize::from(direction == Direction::Down)];
    let place = |bytes: u64| {
        let start = at;
        at += bytes;
        start..at
    };
    shapes.iter().map(|shape| shape.bytes() as u64).map(place).collect()
}

/// The packets of one direction, each with its bytes in the stream.
struct DirectionPackets<'a> {
    packets: Vec<(Range<u64>, &'a PacketRecord)>,
    delay: Duration,
}

impl<'a> DirectionPackets<'a> {
    fn new(packet_log: &'a [PacketRecord], direction: Direction, delay: Duration) -> Self {
        let all = packet_log.iter().filter(|packet| packet.direction == direction);
        let first = all.clone().next().map_or(0, |syn| syn.seq).wrapping_add(1);
        let place = |packet: &'a PacketRecord| {
            let start = u64::from(packet.seq.wrapping_sub(first));
            (start..start + u64::from(packet.payload), packet)
        };
        Self { packets: all.map(place).collect(), delay }
    }

    /// For everything that the script dropped: the bytes, and from when to when they were missing because of it.
    fn gaps(&self) -> Vec<(Range<u64>, &'a PacketRecord, Time, Time)> {
        let mut gaps = Vec::new();
        for (n, (bytes, lost)) in self.packets.iter().enumerate() {
            let is_same = |(other, packet): &&(Range<u64>, &PacketRecord)| {
                other.contains(&bytes.start)
                    || (bytes.is_empty() && packet.seq == lost.seq && packet.payload == 0)
            };
            // An acknowledgement carries nothing that could be missing; a SYN comes before the first byte.
            if bytes.is_empty() && bytes.start != u64::from(u32::MAX) {
                continue;
            }
            let had_come =
                self.packets[..n].iter().filter(is_same).any(|(_, packet)| packet.arrived_intact());
            if lost.fate != PacketFate::Scripted || had_come {
                continue;
            }
            let next = self.packets[n + 1..].iter().find(is_same).map(|(_, packet)| *packet);
            let until = next.map_or(Time::NEVER, |next| {
                if next.arrived_intact() { next.out_at } else { next.at + self.delay }
            });
            gaps.push((bytes.clone(), *lost, lost.at + self.delay, until));
        }
        gaps
    }

    /// When bytes were sent for the first time.
    fn sent(&self, bytes: &Range<u64>) -> Time {
        let of = self.packets.iter().find(|(other, _)| other.start < bytes.end && other.end > bytes.start);
        of.map_or(Time::NEVER, |(_, packet)| packet.at)
    }

    /// When the last of the bytes arrived intact.
    fn come(&self, bytes: &Range<u64>) -> Time {
        let of = self.packets.iter().filter(|(other, _)| other.start < bytes.end && other.end > bytes.start);
        of.filter(|(_, packet)| packet.arrived_intact())
            .map(|(_, packet)| packet.out_at)
            .max()
            .unwrap_or(Time::NEVER)
    }
}

/// What the requests waited for; `None` if the script did not do what was planned, for example because a busy machine
/// made one segment of two writes: the conversation must be repeated.
pub fn of(
    plan: &ConversationPlan,
    conversation: &Conversation,
    packet_log: &[PacketRecord],
    delay: Duration,
) -> Option<Vec<Wait>> {
    let direction = plan.drop.direction();
    let direction_packets = DirectionPackets::new(packet_log, direction, delay);
    let gaps = direction_packets.gaps();
    let dropped =
        direction_packets.packets.iter().filter(|(_, packet)| packet.fate == PacketFate::Scripted).count();
    if dropped != plan.script().len() {
        return None;
    }
    let (messages, responses) = (messages(plan, direction), messages(plan, Direction::Down));
    let (all, own) = (0..messages.len(), messages[plan.target].clone());
    let mut waits = Vec::new();
    for (bytes, lost, from, until) in &gaps {
        let drop = Some((direction, lost.index));
        let mut add = |request, kind, stream, since: Time| {
            waits.push(Wait { request, kind, stream, drop, length: until.since(since.max(*from)) });
        };
        match plan.drop {
            Drop::Ack(_) => return None,
            Drop::Syn(_) => {
                all.clone().for_each(|n| add(n, Kind::Handshake, None, conversation.requests[n].due));
            }
            Drop::WindowUpdate => {
                // It comes after all requests.
                if messages.last()?.end != bytes.start {
                    return None;
                }
                add(plan.target, Kind::FlowWindow, None, *from);
            }
            Drop::Segment { .. } | Drop::Retransmission(_) => {
                if !(own.start <= bytes.start && bytes.end <= own.end) {
                    return None;
                }
                add(plan.target, Kind::Own, None, *from);
                for (n, message) in messages.iter().enumerate().skip(plan.target + 1) {
                    add(n, Kind::HeadOfLine, Some(stream_of(plan.target)), direction_packets.come(message));
                }
            }
        }
    }
    if let (Drop::WindowUpdate, Some((_, _, due, _))) = (plan.drop, gaps.first()) {
        // The window was closed from when it was used up to when the lost WINDOW_UPDATE would have opened it.
        let length =
            due.since(DirectionPackets::new(packet_log, Direction::Down, delay).sent(responses.last()?));
        waits.push(Wait { request: plan.target, kind: Kind::FlowWindow, stream: None, drop: None, length });
    }
    let is_hit = gaps.len() == dropped || matches!(plan.drop, Drop::Ack(_) | Drop::Retransmission(_));
    is_hit.then_some(waits)
}
