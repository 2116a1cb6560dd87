//! Whether the number of the client's connections limited an open loop.

use std::time::Duration;

use super::summary::CellSummary;
use super::tallied;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Arrival;

/// Shorter waits do not count.
const SHORTEST: Duration = Duration::from_millis(1);
/// If a server takes more than this many times longer per response while all connections are in use than when it had
/// least to do, requests wait for the server itself: more connections would only make it slower.
const SLOWED: u32 = 2;

/// Requests waited for a connection, and for longer than they took on it, while the server answered as fast as ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimit {
    /// The connections, all in use.
    pub connections: u32,
    /// For how long requests waited for a connection, on average.
    pub waited: Duration,
    /// How long the median request took on it.
    pub service: Duration,
}

/// See [`PoolLimit`]. Only for HTTP/1.1: the number of streams on a multiplexed connection also depends on the server.
/// A closed loop never has more requests than connections.
pub(super) fn limit(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<PoolLimit> {
    let generated = summary.cell.as_generated();
    let connections = generated.max_connections;
    let is_full = summary.connections.opened >= u64::from(connections) * repetitions.len() as u64;
    let is_open = !matches!(summary.cell.work.arrival, Arrival::Closed { .. });
    if generated.protocol.is_multiplexed() || !is_open || !is_full || summary.cell.work.bulk {
        return None;
    }
    let waited = summary.connections.stalls.open.div_f64(summary.requests.sent.max(1) as f64);
    let service = summary.service.quantile(0.5);
    let is_longer = waited >= SHORTEST && waited > summary.service.mean();
    let quickest = repetitions.iter().filter_map(|repetition| quickest(repetition)).min()?;
    (is_longer && service <= quickest * SLOWED).then_some(PoolLimit { connections, waited, service })
}

/// The shortest time on a connection, including the warm-up if it was recorded: few connections were in use then.
fn quickest(repetition: &CellRecord) -> Option<Duration> {
    if !repetition.tallies.is_empty() {
        let kept = tallied::SERVICE.of(&[repetition]);
        return (kept.n() > 0).then(|| kept.quantile(0.0));
    }
    let answered = repetition.samples.iter().filter(|sample| sample.outcome.is_success());
    answered.map(|sample| sample.service_time()).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::workload::Protocol;

    /// The limit of a clean repetition in which each request waited this long for a connection, and all but the first
    /// took `tenths` tenths of their time on it.
    fn of(protocol: Protocol, waited: u64, tenths: u32, more: u32) -> Option<PoolLimit> {
        let mut record = one_repetition(&cell(0, 0, protocol, 32, 0.0), 0, &Model::CLEAN);
        record.cell.max_connections = record.connections.len() as u32 + more;
        let waited = Duration::from_millis(waited);
        for (n, sample) in record.samples.edit().iter_mut().enumerate() {
            let service = sample.service_time() * if n == 0 { 10 } else { tenths } / 10;
            sample.stall_open_ns = waited.as_nanos() as u64;
            sample.sent_at = sample.scheduled_at + waited;
            sample.completed_at = sample.sent_at + service;
        }
        CellSummary::of(&[&record]).pool
    }

    #[test]
    fn a_full_pool_is_the_limit_if_requests_wait_longer_for_it_than_on_it() {
        let limit = of(Protocol::H1, 100, 10, 0).unwrap();
        assert_eq!((limit.connections, limit.waited), (32, Duration::from_millis(100)));
        assert!(limit.service < Duration::from_millis(30));
        assert_eq!(of(Protocol::H1, 20, 10, 0), None, "they take 25 ms on it");
        assert_eq!(of(Protocol::H1, 100, 10, 1), None, "one more could have been opened");
        assert_eq!(of(Protocol::H2c, 100, 10, 0), None);
    }

    #[test]
    fn a_server_that_gets_slower_with_the_load_is_what_requests_wait_for() {
        assert!(of(Protocol::H1, 500, 19, 0).is_some());
        assert_eq!(of(Protocol::H1, 500, 21, 0), None);
    }
}
