//! Flows by number: 1 is the flow whose first packet entered the link first, in either direction.

use std::collections::BTreeMap;

use super::packet::{Flow, FlowNumber, Packet, TCP, UDP, flag};
use super::{LinkSpec, LossPer};

/// What is known of a flow.
#[derive(Debug, Clone, Copy)]
struct Known {
    number: FlowNumber,
    /// Sequence number of the SYN that began it.
    began: Option<u32>,
}

/// All flows that a link has seen, shared by both directions.
///
/// Ports are reused: a SYN with another sequence number between the same endpoints begins a new flow.
#[derive(Debug)]
pub struct Flows {
    is_needed: bool,
    known: BTreeMap<Flow, Known>,
    count: u32,
    /// The flow of the last packet: most often the next packet's too.
    last: Option<(Flow, FlowNumber)>,
}

impl Flows {
    /// For a link. Flows are distinguished only if an impairment needs it: a look-up costs as much as the rest
    /// of a packet's processing.
    pub fn of(link: &LinkSpec) -> Self {
        let is_needed = [&link.uplink, &link.downlink]
            .iter()
            .any(|way| !way.script.is_empty() || way.loss_per == LossPer::Connection);
        Self { is_needed, known: BTreeMap::new(), count: 0, last: None }
    }

    /// The number of a packet's flow, a new one if this is the first packet of it. Both directions have the same.
    pub fn number(&mut self, packet: &Packet) -> FlowNumber {
        if !self.is_needed || ![TCP, UDP].contains(&packet.protocol) {
            return FlowNumber::NONE;
        }
        let flow = packet.flow();
        let begins = packet.flags & (flag::SYN | flag::ACK) == flag::SYN;
        if let Some((last, number)) = self.last
            && last == flow
            && !begins
        {
            return number;
        }
        let began = begins.then_some(packet.seq);
        let number = match self.known.get(&flow) {
            Some(known) if !begins || known.began == began => known.number,
            _ => {
                self.count += 1;
                let number = FlowNumber::new(self.count);
                self.known.insert(flow, Known { number, began });
                number
            }
        };
        self.last = Some((flow, number));
        number
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{back, tcp_packet};
    use super::super::{FlowEndpoint, Impairment};
    use super::*;

    fn needed() -> Flows {
        let impairment = Impairment { loss_per: LossPer::Connection, ..Impairment::default() };
        Flows::of(&LinkSpec { downlink: impairment, ..LinkSpec::default() })
    }

    fn syn(port: u16, seq: u32) -> Packet {
        let packet = tcp_packet(flag::SYN, seq, 0);
        Packet { source: FlowEndpoint { port, ..packet.source }, ..packet }
    }

    #[test]
    fn flows_are_numbered_by_their_first_packet_in_either_direction() {
        let mut flows = needed();
        let (one, two) = (syn(40_000, 7), syn(40_001, 9));
        assert_eq!(flows.number(&one).get(), 1);
        assert_eq!(flows.number(&two).get(), 2);
        assert_eq!(flows.number(&back(Packet { flags: flag::SYN | flag::ACK, ..one })).get(), 1);
        assert_eq!(flows.number(&one).get(), 1, "a SYN that is sent again begins nothing");
        let data = Packet { flags: flag::ACK, seq: 8, payload: 100, ..two };
        assert_eq!(flows.number(&data).get(), 2);
        assert_eq!(flows.number(&data).get(), 2);
    }

    #[test]
    fn a_port_that_is_used_again_is_another_flow() {
        let mut flows = needed();
        assert_eq!(flows.number(&syn(40_000, 7)).get(), 1);
        assert_eq!(flows.number(&syn(40_000, 8)).get(), 2);
        assert_eq!(flows.number(&Packet { flags: flag::ACK, ..syn(40_000, 9) }).get(), 2);
    }

    #[test]
    fn udp_has_flows_and_other_protocols_have_none() {
        let mut flows = needed();
        assert_eq!(flows.number(&Packet { protocol: 1, ..syn(0, 0) }), FlowNumber::NONE);
        assert_eq!(flows.number(&Packet { protocol: UDP, flags: 0, ..syn(53, 0) }).get(), 1);
    }

    #[test]
    fn flows_that_nobody_asked_for_are_not_counted() {
        let mut flows = Flows::of(&LinkSpec::default());
        assert_eq!(flows.number(&syn(40_000, 7)), FlowNumber::NONE);
    }
}
