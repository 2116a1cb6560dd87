//! What limited the pairs of a fleet, where their clients could not see it: with what was counted at our servers' end. What a
//! client counted is in its own report; of uploads that is the sender's end.

use h2lab_base::counters::TcpSummary;
use h2lab_model::bulk::{
    Binding, BindingKind, ConnectionFigures, ReceiverFigures, SenderFigures, TransferDirection,
};
use h2lab_model::fleet::{FleetRecord, PairEnd, PairFigures, ServerFigures};
use std::time::Duration;

use super::limits;

/// Names the limit of pairs without one, if their server's end shows it: of downloads a full path above all, since a client does
/// not see packets queue. A server without CPU time left is also named where its client saw only that the other end was slow.
pub fn name_limits(record: &mut FleetRecord) {
    let seen = &*record;
    let servers = seen.servers.iter().enumerate();
    let found: Vec<Option<Binding>> =
        servers.map(|(place, server)| of_server(seen, place, server.served.as_ref()?)).collect();
    let direction = record.asked.direction;
    for pair in &mut record.pairs {
        let PairEnd::Reported(figures) = &mut pair.end else { continue };
        if let Some(Some(binding)) = found.get(pair.pair.server as usize)
            && explains(binding, figures.limit.as_ref(), direction)
        {
            figures.limit = Some(binding.clone());
        }
    }
}

/// Whether what the server's end shows says more than the limit that the client's end has found.
fn explains(found: &Binding, limit: Option<&Binding>, direction: TransferDirection) -> bool {
    let is_busy = found.kind == BindingKind::Cpu;
    match limit.map(|limit| limit.kind) {
        None | Some(BindingKind::Unknown) => true,
        Some(BindingKind::Peer) => is_busy,
        // A receiver that has no time to read closes its windows.
        Some(BindingKind::ReceiveBuffer | BindingKind::StreamWindow | BindingKind::ConnectionWindow) => {
            is_busy && direction == TransferDirection::Put
        }
        Some(_) => false,
    }
}

/// What limited the pairs of the server at this place, as its own end shows it.
fn of_server(record: &FleetRecord, place: usize, served: &ServerFigures) -> Option<Binding> {
    let its = reported(record).filter(|(server, _)| *server == place);
    let wall = its.map(|(_, pair)| pair.meter.elapsed()).max()?;
    // It is counted from when the server listens, somewhat longer than its pairs take.
    let cpu = Some(served.cpu.min(wall));
    let figures = match (record.asked.direction, &served.busiest) {
        (TransferDirection::Get, Some(end)) => {
            let of_all = reported(record).map(|(_, figures)| figures.bytes()).sum();
            let sent = sent(end, wall, of_all);
            ConnectionFigures { sender: SenderFigures { cpu, ..sent.sender }, ..sent }
        }
        (TransferDirection::Get, None) => ConnectionFigures {
            wall,
            bytes: served.sent,
            sender: SenderFigures { cpu, ..SenderFigures::default() },
            ..ConnectionFigures::default()
        },
        (TransferDirection::Put, _) => ConnectionFigures {
            we_send: true,
            wall,
            bytes: served.received,
            receiver: ReceiverFigures { cpu, ..ReceiverFigures::default() },
            ..ConnectionFigures::default()
        },
    };
    let is_clear = !record.protocol.is_tls();
    let binding = limits::binding(&ConnectionFigures { is_clear, ..figures });
    (binding.kind != BindingKind::Unknown).then_some(binding)
}

/// The pairs with a result, and the places of their servers.
fn reported(record: &FleetRecord) -> impl Iterator<Item = (usize, &PairFigures)> {
    record.pairs.iter().filter_map(|pair| match &pair.end {
        PairEnd::Reported(figures) => Some((pair.pair.server as usize, &**figures)),
        PairEnd::Failed { .. } | PairEnd::Lost { .. } => None,
    })
}

/// A connection as its sender's kernel counted it, beside `of_all` bytes of all pairs.
fn sent(end: &TcpSummary, wall: Duration, of_all: u64) -> ConnectionFigures {
    let micros = |us: u32| (us > 0).then(|| Duration::from_micros(us.into()));
    let limits = end.limits;
    ConnectionFigures {
        wall,
        bytes: end.bytes_acked,
        bytes_beside: of_all.saturating_sub(end.bytes_acked),
        streams: 1,
        min_rtt: micros(end.min_rtt_us),
        rtt: micros(end.rtt_us),
        sender: SenderFigures {
            tcp_busy: limits.map(|limits| Duration::from_micros(limits.busy_us)),
            tcp_rwnd_limited: limits.map(|limits| Duration::from_micros(limits.rwnd_limited_us)),
            tcp_sndbuf_limited: limits.map(|limits| Duration::from_micros(limits.sndbuf_limited_us)),
            bytes_acked: Some(end.bytes_acked),
            retransmits: Some(end.retransmits.into()),
            cwnd_bytes: Some(u64::from(end.cwnd) * u64::from(end.segment_bytes)).filter(|bytes| *bytes > 0),
            congestion_control: Some(end.congestion_control.clone()).filter(|name| !name.is_empty()),
            ..SenderFigures::default()
        },
        ..ConnectionFigures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_base::counters::TcpLimits;
    use h2lab_model::bulk::Certainty;
    use h2lab_model::fleet::testing;

    /// The limits of the pairs that reported, after their servers' connections had this round trip instead of 10 ms.
    fn limits(rtt_us: u32, found: Option<&Binding>) -> Vec<Option<Binding>> {
        let mut record = testing::record();
        let elapsed = reported(&record).map(|(_, pair)| pair.meter.elapsed()).max().unwrap();
        let of_all: u64 = reported(&record).map(|(_, figures)| figures.bytes()).sum();
        for server in &mut record.servers {
            let Some(served) = &mut server.served else { continue };
            served.busiest = Some(TcpSummary {
                rtt_us,
                min_rtt_us: 10_000,
                cwnd: (of_all as f64 / elapsed.as_secs_f64() * 0.01 / 1_448.0) as u32,
                segment_bytes: 1_448,
                bytes_acked: of_all,
                limits: Some(TcpLimits {
                    busy_us: elapsed.as_micros() as u64,
                    rwnd_limited_us: 0,
                    sndbuf_limited_us: 0,
                }),
                congestion_control: "cubic".to_owned(),
                ..TcpSummary::default()
            });
        }
        for pair in &mut record.pairs {
            if let PairEnd::Reported(figures) = &mut pair.end {
                figures.limit = found.cloned();
            }
        }
        name_limits(&mut record);
        reported(&record).map(|(_, figures)| figures.limit.clone()).collect()
    }

    #[test]
    fn pairs_whose_packets_queue_in_the_path_are_limited_by_it() {
        let full = limits(40_000, None);
        let binding = full.iter().flatten().next().unwrap();
        assert_eq!((binding.kind, binding.certainty), (BindingKind::Link, Certainty::Likely));
        assert!(binding.sentence.contains("round trips of 40 ms instead of 10 ms"), "{}", binding.sentence);
        assert!(binding.sentence.contains("the path is full at"), "{}", binding.sentence);
    }

    /// The kind and the sentence of the limits of pairs that go `direction`, after their servers were busy for this share of the
    /// time and their clients had found `kind`.
    fn of_busy_servers(
        direction: TransferDirection,
        share: f64,
        kind: BindingKind,
    ) -> Vec<(BindingKind, String)> {
        let mut record = testing::record();
        record.asked.direction = direction;
        let longest = |record: &FleetRecord, place: usize| {
            let its = reported(record).filter(|(server, _)| *server == place);
            its.map(|(_, pair)| pair.meter.elapsed()).max().unwrap_or_default()
        };
        for place in 0..record.servers.len() {
            let cpu = longest(&record, place).mul_f64(share);
            let Some(served) = &mut record.servers[place].served else { continue };
            (served.cpu, served.received) = (cpu, 1_250_000_000);
        }
        let limit = Binding {
            kind,
            cause: None,
            certainty: Certainty::Likely,
            sentence: "as its client saw it".to_owned(),
            fix: None,
        };
        for pair in &mut record.pairs {
            if let PairEnd::Reported(figures) = &mut pair.end {
                figures.limit = Some(limit.clone());
            }
        }
        name_limits(&mut record);
        let limits = reported(&record).filter_map(|(_, figures)| figures.limit.as_ref());
        limits.map(|limit| (limit.kind, limit.sentence.clone())).collect()
    }

    #[test]
    fn a_server_without_cpu_time_left_is_named_where_its_client_saw_only_a_slow_end() {
        let (get, put) = (TransferDirection::Get, TransferDirection::Put);
        for (direction, seen, end) in [
            (get, BindingKind::Peer, "a thread of the sender was busy"),
            (put, BindingKind::Peer, "a thread of the receiver was busy"),
            (put, BindingKind::ReceiveBuffer, "a thread of the receiver was busy"),
            (put, BindingKind::Unknown, "a thread of the receiver was busy"),
        ] {
            let busy = of_busy_servers(direction, 0.97, seen);
            assert!(!busy.is_empty());
            for (kind, sentence) in busy {
                assert_eq!(kind, BindingKind::Cpu, "{direction:?} {seen:?}");
                assert!(sentence.contains(end), "{sentence}");
            }
            let idle = of_busy_servers(direction, 0.5, seen);
            assert!(idle.iter().all(|(kind, _)| *kind == seen), "{direction:?} {seen:?}: {idle:?}");
        }
    }

    #[test]
    fn what_the_clients_own_end_shows_stays() {
        let stays = |direction, kind| {
            of_busy_servers(direction, 1.0, kind).into_iter().all(|(found, _)| found == kind)
        };
        assert!(stays(TransferDirection::Put, BindingKind::SendBuffer));
        assert!(stays(TransferDirection::Put, BindingKind::Link));
        assert!(stays(TransferDirection::Get, BindingKind::StreamWindow), "the window is the client's");
    }

    #[test]
    fn pairs_without_a_queue_or_with_a_limit_of_their_own_are_not_limited_by_the_path() {
        let kinds = |limits: Vec<Option<Binding>>| -> Vec<BindingKind> {
            limits.into_iter().flatten().map(|binding| binding.kind).collect()
        };
        assert!(!kinds(limits(10_000, None)).contains(&BindingKind::Link));
        let disk = Binding {
            kind: BindingKind::Disk,
            cause: None,
            certainty: Certainty::Measured,
            sentence: "the disk".to_owned(),
            fix: None,
        };
        assert!(kinds(limits(40_000, Some(&disk))).iter().all(|kind| *kind == BindingKind::Disk));
    }
}
