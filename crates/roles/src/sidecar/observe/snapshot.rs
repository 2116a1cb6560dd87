//! What a loop answers to a query, and the answers of all loops taken together.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::SCHEMA_VERSION;
use h2lab_model::sidecar::{
    Alone, InstanceStatus, LastError, Observations, PathStatus, ReloadStatus, RequestCount, ServiceStatus,
    SidecarStatus, ThreadStatus,
};
use h2lab_proxy::fields::Version;
use h2lab_proxy::pool::predict::{Carried, one_connection};

use super::{AdminState, Again, Snapshot, unix};
use crate::sidecar::scarce::Scarce;
use crate::sidecar::side::Peer;
use crate::sidecar::{Sidecar, Slot};

/// If one request of so many waits for a stream, streams are what is scarce.
const MANY_WAIT: u64 = 100;

impl Sidecar<'_> {
    /// The answer of this loop; with `records` also what it has seen lately.
    pub(super) fn snapshot(&mut self, records: bool, now: Time) -> Snapshot {
        let status = self.status(now);
        let Some(window) = self.observer.window.as_ref().filter(|_| records) else {
            return Snapshot { status, ..Snapshot::default() };
        };
        let all = (0..self.pools.count()).filter(|instance| !self.pools.is_leaving(*instance)).flat_map(
            |instance| {
                let url = url(self.pools.name(instance));
                let open = self.slots.iter().filter_map(|slot| match slot {
                    Slot::Open(side) if side.peer == Peer::Instance(instance) => {
                        Some((side.watched.as_deref()?, &side.transport, &side.engine, side.requests))
                    }
                    _ => None,
                });
                window.records(instance, &url, open)
            },
        );
        Snapshot { status, records: all.collect(), notes: Vec::new() }
    }

    fn status(&mut self, now: Time) -> SidecarStatus {
        let is_client = |slot: &&Slot| match slot {
            Slot::Open(side) => matches!(side.peer, Peer::Client { .. }),
            Slot::Opening(_) => true,
            Slot::Empty | Slot::Dialling(_) => false,
        };
        let clients_open = self.slots.iter().filter(is_client).count() as u64;
        let here: Vec<u32> =
            (0..self.pools.count()).filter(|number| !self.pools.is_leaving(*number)).collect();
        let instances = here.into_iter().map(|instance| self.instance_status(instance, now)).collect();
        let watch = &self.observer;
        let guards = self.guard.services.iter().map(Some).chain(std::iter::repeat(None));
        let services = (0..).zip(watch.services.iter().zip(guards));
        let services = services.filter(|(_, (one, _))| !one.name.is_empty() || !one.requests.is_empty());
        let services = services.map(|(number, (one, guard))| ServiceStatus {
            name: one.name.clone(),
            requests: one
                .requests
                .iter()
                .map(|&(version, status, count)| RequestCount { protocol: word(version), status, count })
                .collect(),
            durations: one.durations.clone(),
            grpc: one.grpc.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            protection: guard.map(|guard| guard.counts).unwrap_or_default(),
            unresolved: self.pools.without_address(number),
        });
        let name = |service: Option<u32>| {
            let service = service.and_then(|service| watch.services.get(service as usize));
            service.map(|service| service.name.clone()).unwrap_or_default()
        };
        let errors = watch.errors.iter().map(|wrong| LastError {
            ago_ns: now.nanos_since(wrong.at),
            service: name(wrong.service),
            status: wrong.status,
            what: wrong.what.clone(),
            times: wrong.times,
        });
        SidecarStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ns: now.nanos_since(watch.began_at),
            draining: watch.admin.as_ref().is_some_and(super::LoopHandle::is_draining),
            threads: 1,
            by_thread: vec![ThreadStatus {
                number: self.number,
                clients_open,
                requests: self.totals.requests,
            }],
            memory_bytes: 0,
            clients_open,
            clients_accepted: self.totals.clients,
            clients_limit: self.most_clients().into(),
            clients_limit_reached: self.clients.reached,
            clients_taken_over: self.totals.taken_over,
            requests_open: self.exchanges.open() as u64,
            bad_requests: watch.bad_requests,
            tls_failures: watch.tls_failures,
            lacks: Scarce::ALL
                .iter()
                .map(|&(scarce, name)| (name.to_owned(), self.lacks.times(scarce)))
                .collect(),
            log_lines_dropped: watch.log.as_ref().map_or(0, super::LogBuffer::dropped),
            retries: Again::ALL
                .iter()
                .map(|&(reason, name)| (name.to_owned(), watch.again[reason as usize]))
                .collect(),
            services: services.collect(),
            instances,
            errors: errors.collect(),
            certificates: Vec::new(),
            reloads: ReloadStatus::default(),
        }
    }

    fn instance_status(&mut self, instance: u32, now: Time) -> InstanceStatus {
        let base = self.pools.status(instance, &self.slots);
        let service = self.pools.service_of(instance).and_then(|service| self.observer.services.get(service));
        let service = service.map(|service| service.name.clone()).unwrap_or_default();
        let own = |slot: &Slot| match slot {
            Slot::Open(side) if side.peer == Peer::Instance(instance) => side.streams_allowed(),
            _ => None,
        };
        let streams = self.slots.iter().filter_map(own).min();
        let pool = self.pools.get(instance);
        let (is_ejected, is_unhealthy) = (pool.standing.is_out(now), !pool.standing.is_well());
        let counts = self.observer.at(instance);
        counts.streams_allowed = streams.or(counts.streams_allowed);
        counts.recent.merge(&counts.meter.take());
        let mut recent = counts.before.clone();
        recent.merge(&counts.recent);
        InstanceStatus {
            service,
            is_ejected,
            is_unhealthy,
            dialled: counts.dialled,
            dials_failed: counts.dials_failed,
            goaways: counts.goaways,
            refused: counts.refused,
            resets: counts.resets,
            broken: counts.broken,
            malformed: counts.responses.malformed,
            responses: counts.responses.all,
            lately: counts.responses.lately(),
            requests: counts.requests,
            waited: counts.waited,
            waited_ns: counts.waited_for.as_nanos() as u64,
            streams_allowed: counts.streams_allowed,
            path: (counts.path.connections > 0).then_some(counts.path),
            recent,
            ..base
        }
    }
}

fn word(version: Version) -> String {
    let word = match version {
        Version::H1 => "h1",
        Version::H2 => "h2",
        Version::H3 => "h3",
    };
    word.to_owned()
}

/// The URL of an instance as other commands write it.
fn url(name: &str) -> String {
    let (scheme, rest) = name.split_once("://").unwrap_or(("http", name));
    let scheme = if matches!(scheme, "https" | "h1s" | "h2" | "h3") { "https" } else { "http" };
    format!("{scheme}://{rest}")
}

impl AdminState {
    /// The state of the sidecar; `None` if a loop has not answered in time.
    pub fn status(&self, timeout: Duration) -> Option<SidecarStatus> {
        self.all(false, timeout).map(|(status, ..)| status)
    }

    /// What it has seen lately; likewise. `window`: for how long that is kept.
    pub fn observations(&self, window: Duration, timeout: Duration) -> Option<Observations> {
        let (status, records, notes) = self.all(true, timeout)?;
        Some(Observations {
            schema: SCHEMA_VERSION,
            status,
            window_ns: window.as_nanos() as u64,
            taken_unix_ns: unix().as_nanos() as u64,
            records,
            notes,
        })
    }

    fn all(
        &self,
        records: bool,
        timeout: Duration,
    ) -> Option<(SidecarStatus, Vec<h2lab_model::record::CellRecord>, Vec<String>)> {
        let (answers, missing) = self.query(records, timeout);
        if missing > 0 || answers.is_empty() {
            return None;
        }
        let (mut status, mut all, mut notes) = (SidecarStatus::default(), Vec::new(), Vec::new());
        for answer in answers {
            status.add(answer.status);
            all.extend(answer.records);
            notes.extend(answer.notes);
        }
        numbered(&mut all);
        status.memory_bytes = resident();
        status.draining |= self.is_draining();
        status.instances.iter_mut().for_each(foresee);
        Some((status, all, notes))
    }
}

/// Records of several threads of one instance are repetitions of one cell.
fn numbered(records: &mut [h2lab_model::record::CellRecord]) {
    let mut known: Vec<(String, u32)> = Vec::new();
    for record in records {
        let cell = &mut record.cell;
        let key = format!("{} {}", cell.target.name(), cell.protocol);
        let index = match known.iter().position(|(other, _)| *other == key) {
            Some(index) => {
                known[index].1 += 1;
                index
            }
            None => {
                known.push((key, 0));
                known.len() - 1
            }
        };
        (cell.index, cell.group, cell.repetition) = (index as u32, index as u32, known[index].1);
    }
}

/// What one connection would do, if several are in use. The model covers the path alone. So there is no result where
/// the instance allows fewer streams on a connection than requests need, nor where one connection would be faster in
/// the model than what was measured.
fn foresee(instance: &mut InstanceStatus) {
    let (Some(path), true) = (instance.path, instance.connections > 1) else { return };
    if !matches!(instance.protocol.as_str(), "h2" | "h2c" | "h3") {
        return;
    }
    let is_out_of_streams = |allowed: u32| {
        instance.open > u64::from(allowed) || instance.waited * MANY_WAIT >= instance.requests.max(1)
    };
    if instance.streams_allowed.is_some_and(is_out_of_streams) {
        return;
    }
    let PathStatus { sent_per_s, received_per_s, again_per_s, rtt_ns, .. } = path;
    let rtt = Duration::from_nanos(rtt_ns);
    let carried = Carried { sent: sent_per_s, received: received_per_s, again: again_per_s, rtt };
    let one = one_connection(&carried);
    let median = instance.recent_percentile(50.0).unwrap_or(rtt);
    let p99_ns = one.waits.map(|waits| (median + waits).as_nanos() as u64);
    let measured = instance.recent_percentile(99.0).map(|p99| p99.as_nanos() as u64);
    if p99_ns < measured && p99_ns.is_some() {
        return;
    }
    instance.alone = Some(Alone { carries: one.carries, p99_ns });
}

/// Resident memory of this process, in bytes; 0 if it is not known.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::Histogram;

    #[test]
    fn what_one_connection_would_do_is_said_of_several_of_http2() {
        let path = PathStatus {
            sent_per_s: 1_000.0,
            received_per_s: 1_000.0,
            again_per_s: 30.0,
            rtt_ns: 25_000_000,
            window: 8.0,
            connections: 8,
        };
        let foreseen = |protocol: &str, connections: u64, again_per_s: f64| {
            let mut instance = InstanceStatus {
                protocol: protocol.to_owned(),
                connections,
                path: Some(PathStatus { again_per_s, ..path }),
                recent: Histogram::of([Duration::from_millis(26)]),
                ..InstanceStatus::default()
            };
            foresee(&mut instance);
            instance.alone
        };
        assert!(foreseen("h2c", 8, 30.0).is_some_and(|alone| alone.carries < 0.5 && alone.p99_ns.is_none()));
        let clean = foreseen("h2", 2, 0.0).expect("an estimate");
        assert_eq!((clean.carries, clean.p99_ns), (1.0, Some(26_000_000)));
        assert_eq!((foreseen("h2c", 1, 30.0), foreseen("h1", 8, 30.0)), (None, None));
    }

    #[test]
    fn nothing_is_foreseen_where_streams_are_scarce_or_what_is_measured_is_slower() {
        let path = PathStatus {
            sent_per_s: 1_000.0,
            received_per_s: 1_000.0,
            rtt_ns: 100_000,
            connections: 8,
            ..PathStatus::default()
        };
        let base = InstanceStatus {
            protocol: "h2c".to_owned(),
            connections: 8,
            path: Some(path),
            requests: 1_000,
            recent: Histogram::of([Duration::from_millis(1)]),
            ..InstanceStatus::default()
        };
        let foreseen = |mut instance: InstanceStatus| {
            foresee(&mut instance);
            instance.alone.is_some()
        };
        assert!(foreseen(base.clone()));
        let slow_now = (0..100).map(|n| Duration::from_millis(if n < 90 { 1 } else { 20 }));
        assert!(!foreseen(InstanceStatus { recent: Histogram::of(slow_now), ..base.clone() }));
        let few = InstanceStatus { streams_allowed: Some(3), ..base };
        assert!(foreseen(few.clone()));
        assert!(!foreseen(InstanceStatus { open: 20, ..few.clone() }));
        assert!(!foreseen(InstanceStatus { waited: 900, ..few }));
    }

    #[test]
    fn urls_of_instances_are_those_of_other_commands() {
        assert_eq!(url("h2c://10.0.0.7:8080"), "http://10.0.0.7:8080");
        assert_eq!((url("h1s://a:1"), url("h2://a:1")), ("https://a:1".to_owned(), "https://a:1".to_owned()));
    }

    #[test]
    fn the_kernel_says_how_much_memory_is_resident() {
        assert!(resident() > 1 << 20);
    }
}
