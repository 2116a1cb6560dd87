//! Packets that are dropped individually: "the third data packet of flow 2".

use std::fmt;
use std::str::FromStr;

use super::packet::{FlowNumber, Packet, TCP, flag};
use h2lab_base::units::ParseQuantityError;

/// What is counted to find a packet. A packet can be of several kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketKind {
    /// Every packet.
    Any,
    /// TCP with SYN, SYN-ACK and retransmissions included.
    Syn,
    /// A payload that has not been sent before.
    Data,
    /// A pure acknowledgement: TCP with ACK, without payload, SYN, FIN or RST.
    Ack,
    /// TCP whose payload, SYN or FIN was sent before, wholly or in part.
    Retransmission,
}

impl PacketKind {
    const ALL: [(Self, &str); 5] = [
        (Self::Any, "any"),
        (Self::Syn, "syn"),
        (Self::Data, "data"),
        (Self::Ack, "ack"),
        (Self::Retransmission, "retransmission"),
    ];
}

/// Among which packets a line of a script counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    /// All of the direction.
    Direction,
    /// Those of each flow, one by one: it drops a packet of every flow.
    EachFlow,
    /// Those of the flow with this number, counted from 1.
    Flow(u32),
}

/// One line of a script: drops one packet, or one of each flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptLine {
    /// What is counted.
    pub kind: PacketKind,
    /// Which one is dropped, counted from 1.
    pub nth: u32,
    /// Among which packets.
    pub among: Among,
}

impl FromStr for ScriptLine {
    type Err = ParseQuantityError;

    /// `syn 1 of flow 1`, `data 3 of each flow`, `any 7`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || {
            ParseQuantityError::new(
                text,
                "a line of a script (KIND N [of flow F | of each flow], where KIND is any, syn, data, ack or retransmission, such as `data 3 of flow 2`)",
            )
        };
        let number = |word: &str| word.parse().ok().filter(|&n: &u32| n > 0).ok_or_else(refuse);
        let words: Vec<&str> = text.split_whitespace().collect();
        let (kind, nth, among) = match words.as_slice() {
            [kind, nth] => (kind, nth, Among::Direction),
            [kind, nth, "of", "each", "flow"] => (kind, nth, Among::EachFlow),
            [kind, nth, "of", "flow", flow] => (kind, nth, Among::Flow(number(flow)?)),
            _ => return Err(refuse()),
        };
        let (kind, _) = PacketKind::ALL.into_iter().find(|(_, name)| name == kind).ok_or_else(refuse)?;
        Ok(Self { kind, nth: number(nth)?, among })
    }
}

impl fmt::Display for ScriptLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            PacketKind::ALL.iter().find(|(kind, _)| *kind == self.kind).map_or("any", |(_, name)| name);
        write!(f, "{name} {}", self.nth)?;
        match self.among {
            Among::Direction => Ok(()),
            Among::EachFlow => f.write_str(" of each flow"),
            Among::Flow(flow) => write!(f, " of flow {flow}"),
        }
    }
}

super::text_form!(ScriptLine);

/// Counts of a flow, or of all packets, in one direction.
#[derive(Debug, Clone, Copy, Default)]
struct Passed {
    /// One past the highest sequence number seen.
    next: Option<u32>,
    /// Packets of each kind, in the order of [`PacketKind::ALL`].
    counts: [u32; PacketKind::ALL.len()],
}

impl Passed {
    fn count(&mut self, kind: PacketKind) -> &mut u32 {
        &mut self.counts[kind as usize]
    }
}

/// The state of a script for one direction: it sees every packet as it enters, also those that other impairments drop, as the
/// sender counts them.
#[derive(Debug)]
pub struct Script {
    lines: Vec<ScriptLine>,
    direction: Passed,
    /// The counts of flow n at n - 1.
    flows: Vec<Passed>,
}

impl Script {
    /// Drops the packets that these lines name.
    pub const fn new(lines: Vec<ScriptLine>) -> Self {
        Self {
            lines,
            direction: Passed { next: None, counts: [0; PacketKind::ALL.len()] },
            flows: Vec::new(),
        }
    }

    /// Whether the next packet, which belongs to `flow`, is dropped.
    pub fn takes(&mut self, packet: &Packet, flow: FlowNumber) -> bool {
        if self.lines.is_empty() {
            return false;
        }
        let index = flow.index();
        let mut none = Passed::default();
        let passed = match index {
            Some(index) => {
                if index >= self.flows.len() {
                    self.flows.resize(index + 1, Passed::default());
                }
                &mut self.flows[index]
            }
            None => &mut none,
        };
        let kinds = PacketKind::ALL.map(|(kind, _)| is_of(kind, packet, passed.next));
        passed.next = next_of(packet, passed.next);
        for ((kind, _), _) in PacketKind::ALL.iter().zip(kinds).filter(|(_, is_of)| *is_of) {
            *passed.count(*kind) += 1;
            *self.direction.count(*kind) += 1;
        }
        let (of_flow, of_all) = (*passed, self.direction);
        self.lines.iter().any(|line| {
            let kind = line.kind as usize;
            let counts = match line.among {
                Among::Direction => of_all.counts,
                Among::EachFlow if index.is_some() => of_flow.counts,
                Among::Flow(number) if number == flow.get() => of_flow.counts,
                Among::EachFlow | Among::Flow(_) => return false,
            };
            kinds[kind] && counts[kind] == line.nth
        })
    }
}

/// Sequence numbers that a TCP packet takes: a byte each, and one for SYN and for FIN (RFC 9293 §3.4).
fn length(packet: &Packet) -> u32 {
    packet.payload + u32::from(packet.flags & flag::SYN != 0) + u32::from(packet.flags & flag::FIN != 0)
}

/// Whether a packet was sent before, if its flow has sent everything below `next`.
fn is_old(packet: &Packet, next: Option<u32>) -> bool {
    let is_before = |next: u32| packet.seq.wrapping_sub(next).cast_signed() < 0;
    packet.protocol == TCP && length(packet) > 0 && next.is_some_and(is_before)
}

fn is_of(kind: PacketKind, packet: &Packet, next: Option<u32>) -> bool {
    let is_tcp = packet.protocol == TCP;
    match kind {
        PacketKind::Any => true,
        PacketKind::Syn => is_tcp && packet.flags & flag::SYN != 0,
        PacketKind::Data => packet.payload > 0 && !is_old(packet, next),
        PacketKind::Ack => {
            let others = flag::SYN | flag::FIN | flag::RST;
            is_tcp && packet.payload == 0 && packet.flags & flag::ACK != 0 && packet.flags & others == 0
        }
        PacketKind::Retransmission => is_old(packet, next),
    }
}

/// The new `next` of a flow after this packet.
fn next_of(packet: &Packet, next: Option<u32>) -> Option<u32> {
    if packet.protocol != TCP {
        return None;
    }
    let end = packet.seq.wrapping_add(length(packet));
    match next {
        Some(next) if end.wrapping_sub(next).cast_signed() < 0 => Some(next),
        _ => Some(end),
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::UDP;
    use super::super::testing::tcp_packet;
    use super::*;

    const NONE: [usize; 0] = [];
    const ONE: FlowNumber = FlowNumber::new(1);
    const TWO: FlowNumber = FlowNumber::new(2);

    fn script(lines: &[&str]) -> Script {
        Script::new(lines.iter().map(|line| line.parse().unwrap()).collect())
    }

    /// Which of the packets are dropped, by their place.
    fn dropped(lines: &[&str], packets: &[(FlowNumber, Packet)]) -> Vec<usize> {
        let mut script = script(lines);
        let fates: Vec<bool> = packets.iter().map(|(flow, packet)| script.takes(packet, *flow)).collect();
        (0..fates.len()).filter(|&k| fates[k]).collect()
    }

    /// A client's end of a connection: SYN, ACK, three requests of 100 bytes, a retransmission of the second, FIN.
    fn conversation(flow: FlowNumber, start: u32) -> Vec<(FlowNumber, Packet)> {
        let at = |flags, offset: u32, payload| (flow, tcp_packet(flags, start.wrapping_add(offset), payload));
        let (ack, push) = (flag::ACK, flag::ACK | flag::PSH);
        vec![
            at(flag::SYN, 0, 0),
            at(ack, 1, 0),
            at(push, 1, 100),
            at(push, 101, 100),
            at(push, 201, 100),
            at(push, 101, 100),
            at(ack, 301, 0),
            at(ack | flag::FIN, 301, 0),
        ]
    }

    #[test]
    fn each_kind_is_what_it_says_whatever_the_sequence_numbers_begin_with() {
        for start in [0, 7, u32::MAX, u32::MAX - 150] {
            let packets = conversation(ONE, start);
            for (line, place) in [
                ("any 4", 3),
                ("syn 1", 0),
                ("data 1", 2),
                ("data 3", 4),
                ("ack 1", 1),
                ("ack 2", 6),
                ("retransmission 1", 5),
            ] {
                assert_eq!(dropped(&[line], &packets), [place], "{line} from {start}");
            }
            for line in ["any 9", "syn 2", "data 4", "ack 3", "retransmission 2"] {
                assert_eq!(dropped(&[line], &packets), NONE, "{line} from {start}");
            }
        }
    }

    #[test]
    fn a_syn_that_is_sent_again_is_a_retransmission_and_the_second_syn() {
        let again = [(ONE, tcp_packet(flag::SYN, 7, 0)), (ONE, tcp_packet(flag::SYN, 7, 0))];
        assert_eq!(dropped(&["retransmission 1 of flow 1"], &again), [1]);
        assert_eq!(dropped(&["syn 2 of flow 1"], &again), [1]);
    }

    #[test]
    fn flows_are_counted_by_themselves_and_directions_over_all() {
        let packets: Vec<_> =
            conversation(ONE, 5).into_iter().zip(conversation(TWO, 9)).flat_map(|(a, b)| [a, b]).collect();
        assert_eq!(dropped(&["data 1 of flow 2"], &packets), [5]);
        assert_eq!(dropped(&["data 1 of each flow"], &packets), [4, 5]);
        assert_eq!(dropped(&["data 2"], &packets), [5]);
        assert_eq!(dropped(&["data 2", "data 2 of flow 1", "syn 1 of flow 3"], &packets), [5, 6]);
    }

    #[test]
    fn datagrams_are_data_and_never_sent_again() {
        let datagram = Packet { protocol: UDP, flags: 0, seq: 0, ..tcp_packet(0, 0, 100) };
        let packets = vec![(ONE, datagram); 4];
        assert_eq!(dropped(&["data 3 of flow 1"], &packets), [2]);
        assert_eq!(dropped(&["retransmission 1", "syn 1", "ack 1"], &packets), NONE);
        // Packets without a flow still count in their direction.
        let packets = vec![(FlowNumber::NONE, datagram); 4];
        assert_eq!(dropped(&["any 3", "any 2 of each flow"], &packets), [2]);
    }

    #[test]
    fn lines_parse_and_print_alike() {
        for text in ["any 7", "syn 1 of flow 1", "data 3 of each flow", "retransmission 2 of flow 40"] {
            assert_eq!(text.parse::<ScriptLine>().unwrap().to_string(), text);
        }
        for bad in
            ["", "data", "data 0", "data 1 of flow 0", "data 1 of flow", "fin 1", "data 1 of 2", "3 data"]
        {
            assert!(bad.parse::<ScriptLine>().is_err(), "{bad}");
        }
    }
}
