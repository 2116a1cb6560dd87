//! What limited the pairs of a fleet, where their clients could not see it: with what the kernels of our servers
//! counted.

use h2lab_base::counters::TcpSummary;
use h2lab_model::bulk::{Binding, BindingKind, ConnectionFigures, SenderFigures};
use h2lab_model::fleet::{FleetRecord, PairEnd, PairFigures};
use std::time::Duration;

use super::limits;

/// Names the limit of pairs without one, if that of their server's busiest connection shows it: a full path above all,
/// since a client does not see packets queue.
pub fn name_limits(record: &mut FleetRecord) {
    let busiest: Vec<Option<TcpSummary>> =
        record.servers.iter().map(|server| server.served.as_ref()?.busiest.clone()).collect();
    let of_all: u64 = reported(record).map(|(_, figures)| figures.bytes()).sum();
    let found: Vec<Option<Binding>> = busiest
        .iter()
        .enumerate()
        .map(|(server, end)| {
            let elapsed =
                reported(record).filter(|(its, _)| *its == server).map(|(_, pair)| pair.meter.elapsed());
            let binding = limits::binding(&figures(end.as_ref()?, elapsed.max()?, of_all));
            (binding.kind != BindingKind::Unknown).then_some(binding)
        })
        .collect();
    for pair in &mut record.pairs {
        let PairEnd::Reported(figures) = &mut pair.end else { continue };
        let is_open = figures.limit.as_ref().is_none_or(|limit| limit.kind == BindingKind::Unknown);
        if let Some(Some(binding)) = found.get(pair.pair.server as usize).filter(|_| is_open) {
            figures.limit = Some(binding.clone());
        }
    }
}

/// The pairs with a result, and the places of their servers.
fn reported(record: &FleetRecord) -> impl Iterator<Item = (usize, &PairFigures)> {
    record.pairs.iter().filter_map(|pair| match &pair.end {
        PairEnd::Reported(figures) => Some((pair.pair.server as usize, &**figures)),
        PairEnd::Failed { .. } | PairEnd::Lost { .. } => None,
    })
}

/// A connection as its sender's kernel counted it, beside `of_all` bytes of all pairs.
fn figures(end: &TcpSummary, wall: Duration, of_all: u64) -> ConnectionFigures {
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
