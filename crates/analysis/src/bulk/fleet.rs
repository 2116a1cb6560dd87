//! What limited the pairs of a fleet, by what was counted at both ends. A client alone sees only its own: of uploads the
//! sender's TCP, of downloads when its windows were closed. Our servers count the CPU time of their thread, and of
//! downloads what their TCP waited for on the connection that carried most.

use h2lab_base::counters::TcpSummary;
use h2lab_model::Confidence;
use h2lab_model::bulk::{
    Binding, BindingKind, ConnectionFigures, ReceiverFigures, SenderFigures, TransferDirection,
};
use h2lab_model::fleet::{FleetRecord, PairEnd, PairFigures, ServerFigures};
use std::time::Duration;

use super::limits;

/// Names the limit of pairs again, with their server's end, where their client found none, guessed one, or could only say
/// that it was at the other end: of downloads a full path above all, since only the sender sees packets queue. A pair that
/// failed, or an end of which was lost, has none: what its death looks like in counters is no limit.
pub fn name_limits(record: &mut FleetRecord) {
    let seen = &*record;
    let servers = seen.servers.iter().enumerate();
    let ends: Vec<Option<ConnectionFigures>> =
        servers.map(|(place, server)| of_server(seen, place, server.served.as_ref()?)).collect();
    let direction = record.asked.direction;
    for pair in &mut record.pairs {
        let (client, server) = (pair.pair.client as usize, pair.pair.server as usize);
        let PairEnd::Reported(figures) = &mut pair.end else { continue };
        let agents = [record.clients.get(client), record.servers.get(server)];
        if figures.is_failed() || agents.into_iter().flatten().any(|agent| agent.lost.is_some()) {
            figures.limit = None;
            continue;
        }
        let found = ends.get(server).and_then(Option::as_ref).map(|end| of_both(end, figures.cpu));
        if let Some(found) = found.filter(|found| explains(found, figures.limit.as_ref(), direction)) {
            let spent = record.servers.get(server).and_then(|agent| agent.served.as_ref());
            // Of uploads a server reports the sum of its connections only.
            let is_one_of_many = direction == TransferDirection::Get
                && spent.is_some_and(|spent| spent.busiest.is_some() && spent.connections > 1);
            figures.limit = Some(of_one("the server's busiest connection", is_one_of_many, found));
        } else if let Some(limit) = figures.limit.take() {
            figures.limit = Some(of_one("its busiest connection", figures.connections > 1, limit));
        }
    }
}

/// A limit whose sentence says that its rate and sizes are those of one connection of many; a full path is that of all.
fn of_one(connection: &str, is_one_of_many: bool, limit: Binding) -> Binding {
    if !is_one_of_many || limit.kind == BindingKind::Link {
        return limit;
    }
    Binding { sentence: format!("on {connection}, {}", limit.sentence), ..limit }
}

/// Whether what both ends show says more than the limit that the client's end has found alone.
fn explains(found: &Binding, limit: Option<&Binding>, direction: TransferDirection) -> bool {
    use BindingKind::{ConnectionWindow, Cpu, Link, Peer, ReceiveBuffer, SendBuffer, StreamWindow, Unknown};
    use TransferDirection::{Get, Put};
    if found.kind == Unknown {
        return false;
    }
    let is_busy = found.kind == Cpu;
    match limit.map(|limit| (limit.kind, direction, limit.confidence)) {
        // A client that names the other end has found nothing at its own, and it knows no size of a buffer there.
        None | Some((Unknown | Peer, ..) | (SendBuffer, Get, _)) => true,
        // A window of which only the size is evidence.
        Some((ReceiveBuffer | StreamWindow | ConnectionWindow, Get, Some(Confidence::Guessed))) => {
            is_busy || found.kind == Link
        }
        // A receiver that has no time to read closes its windows.
        Some((ReceiveBuffer | StreamWindow | ConnectionWindow, Put, _)) => is_busy,
        Some(_) => false,
    }
}

/// What limited a pair with this end of its server, and a client whose thread had so much CPU time.
fn of_both(server: &ConnectionFigures, cpu: Duration) -> Binding {
    let mut both = server.clone();
    let cpu = Some(cpu.min(both.wall));
    if both.we_send {
        both.sender.cpu = cpu;
    } else {
        both.receiver.cpu = cpu;
    }
    limits::binding(&both)
}

/// The server's end of the pairs of the server at this place; `None` if none of them has a result.
fn of_server(record: &FleetRecord, place: usize, served: &ServerFigures) -> Option<ConnectionFigures> {
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
    Some(ConnectionFigures { is_clear: !record.protocol.is_tls(), ..figures })
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
    use h2lab_model::fleet::testing;

    /// A limit as a client has found it.
    fn seen(kind: BindingKind, confidence: Option<Confidence>) -> Binding {
        let sentence = "as its client saw it".to_owned();
        Binding { kind, cause: None, confidence, sentence, fixes: Vec::new() }
    }

    /// The limits of the pairs that reported, after their servers' connections had this round trip instead of 10 ms.
    fn limits(rtt_us: u32, found: Option<&Binding>) -> Vec<Option<Binding>> {
        limits_after(rtt_us, 0.0, found)
    }

    /// The same of servers whose send buffers were full for this share of the time.
    fn limits_after(rtt_us: u32, sndbuf: f64, found: Option<&Binding>) -> Vec<Option<Binding>> {
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
                    sndbuf_limited_us: elapsed.mul_f64(sndbuf).as_micros() as u64,
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
        assert_eq!((binding.kind, binding.confidence), (BindingKind::Link, Some(Confidence::Inferred)));
        assert!(binding.sentence.contains("round trips of 40 ms instead of 10 ms"), "{}", binding.sentence);
        assert!(binding.sentence.contains("the path is full at"), "{}", binding.sentence);
    }

    #[test]
    fn a_rate_that_is_not_the_pairs_is_named_as_that_of_a_connection() {
        let kept = |connections: u64| {
            let mut record = testing::record();
            let PairEnd::Reported(figures) = &mut record.pairs[0].end else { panic!("it has figures") };
            figures.connections = connections;
            figures.limit = Some(seen(BindingKind::StreamWindow, Some(Confidence::Observed)));
            name_limits(&mut record);
            reported(&record).find_map(|(_, figures)| figures.limit.clone()).unwrap().sentence
        };
        assert_eq!(kept(1), "as its client saw it");
        assert_eq!(kept(2), "on its busiest connection, as its client saw it");
        // The servers have two connections each.
        let found = limits_after(10_000, 0.97, Some(&seen(BindingKind::Peer, Some(Confidence::Inferred))));
        let sentence = &found.iter().flatten().next().unwrap().sentence;
        assert!(sentence.starts_with("on the server's busiest connection, "), "{sentence}");
    }

    #[test]
    fn a_pair_that_failed_or_whose_end_died_gets_no_limit() {
        let found = limits(40_000, Some(&seen(BindingKind::Peer, Some(Confidence::Inferred))));
        let is_found: Vec<bool> = found.iter().map(Option::is_some).collect();
        assert_eq!(is_found, [true, false], "the second one lost its server");
        for is_client in [false, true] {
            let mut record = testing::record();
            let PairEnd::Reported(figures) = &mut record.pairs[0].end else { panic!("it has figures") };
            figures.limit = Some(seen(BindingKind::Peer, Some(Confidence::Inferred)));
            let agents = if is_client { &mut record.clients } else { &mut record.servers };
            agents[0].lost = Some("killed by signal 9".to_owned());
            name_limits(&mut record);
            assert!(reported(&record).all(|(_, figures)| figures.limit.is_none()));
        }
    }

    #[test]
    fn a_full_path_is_named_where_a_client_could_only_name_the_other_end_or_guess() {
        let kinds = |rtt_us, sndbuf, (kind, confidence)| -> Vec<BindingKind> {
            let limits = limits_after(rtt_us, sndbuf, Some(&seen(kind, confidence)));
            limits.into_iter().flatten().map(|limit| limit.kind).collect()
        };
        for found in [
            (BindingKind::Peer, Some(Confidence::Inferred)),
            (BindingKind::SendBuffer, Some(Confidence::Guessed)),
            (BindingKind::StreamWindow, Some(Confidence::Guessed)),
            (BindingKind::ReceiveBuffer, Some(Confidence::Guessed)),
        ] {
            // A full send buffer of the server only lengthens the queue.
            for sndbuf in [0.0, 0.97] {
                let kinds = kinds(40_000, sndbuf, found);
                let is_named = !kinds.is_empty() && kinds.iter().all(|kind| *kind == BindingKind::Link);
                assert!(is_named, "{found:?} {sndbuf}: {kinds:?}");
            }
        }
        // What the client counted itself stays, and so does a guess that no counter contradicts.
        let sure = [
            (BindingKind::StreamWindow, Some(Confidence::Inferred)),
            (BindingKind::Cpu, Some(Confidence::Observed)),
        ];
        for found in sure {
            assert!(kinds(40_000, 0.0, found).iter().all(|kind| *kind == found.0), "{found:?}");
        }
        let window = (BindingKind::StreamWindow, Some(Confidence::Guessed));
        assert!(kinds(10_000, 0.0, window).iter().all(|kind| *kind == BindingKind::StreamWindow));
        let buffer = (BindingKind::Peer, Some(Confidence::Inferred));
        assert!(kinds(10_000, 0.97, buffer).iter().all(|kind| *kind == BindingKind::SendBuffer));
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
        let limit = seen(kind, Some(Confidence::Inferred));
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
        let disk = seen(BindingKind::Disk, Some(Confidence::Observed));
        assert!(kinds(limits(40_000, Some(&disk))).iter().all(|kind| *kind == BindingKind::Disk));
    }
}
