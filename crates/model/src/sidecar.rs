//! What a sidecar reports about itself: counters since it began, and the present state of the paths to its instances.
//!
//! Each of its threads counts separately; [`SidecarStatus::add`] adds them up.

mod certificate;
mod protection;
mod reload;
mod responses;

use std::collections::BTreeMap;
use std::time::Duration;

use h2lab_base::units::nanos;
use serde::{Deserialize, Serialize};

use crate::record::{CellRecord, Histogram};
pub use certificate::{CertificateStatus, CertificateTrouble};
pub use protection::ProtectionStatus;
pub use reload::ReloadStatus;
pub use responses::Responses;

/// Upper bounds of the buckets of durations, in nanoseconds, and as Prometheus writes them, in seconds.
pub const BOUNDS: [(u64, &str); 14] = [
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
    (60_000_000_000, "60"),
];

/// Errors that are kept.
pub const MOST_ERRORS: usize = 16;

/// A sidecar, or one of its threads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SidecarStatus {
    /// The version of h2lab.
    pub version: String,
    /// Since it began, in nanoseconds.
    pub uptime_ns: u64,
    /// It is being stopped: it accepts no more connections.
    pub draining: bool,
    /// Threads that pass requests on.
    pub threads: u32,
    /// Each of them.
    pub by_thread: Vec<ThreadStatus>,
    /// Resident memory of the process, in bytes; 0 if that is not known.
    pub memory_bytes: u64,
    /// Connections of clients that are open.
    pub clients_open: u64,
    /// Connections of clients so far.
    pub clients_accepted: u64,
    /// Connections of clients that may be open at a time.
    pub clients_limit: u64,
    /// How often that limit was reached, so that others had to wait.
    pub clients_limit_reached: u64,
    /// Of the accepted connections, those that the previous process handed over.
    pub clients_taken_over: u64,
    /// Requests under way.
    pub requests_open: u64,
    /// Requests that were refused before they had a service: malformed, too large, too late.
    pub bad_requests: u64,
    /// Connections of clients whose TLS handshake failed.
    pub tls_failures: u64,
    /// Lines of the access log that were dropped, since the disk did not take them.
    pub log_lines_dropped: u64,
    /// How often the system ran out of something that a connection needs: `files`, `system-files`, `ports`, `memory`.
    pub lacks: BTreeMap<String, u64>,
    /// How often a request was sent again, by reason.
    pub retries: BTreeMap<String, u64>,
    /// By service, in the order of their names.
    pub services: Vec<ServiceStatus>,
    /// By service and instance.
    pub instances: Vec<InstanceStatus>,
    /// The last errors, the newest first.
    pub errors: Vec<LastError>,
    /// Certificates in the files of its configuration; of a thread none.
    pub certificates: Vec<CertificateStatus>,
    /// How its configuration was read; of a thread nothing.
    pub reloads: ReloadStatus,
}

/// A thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadStatus {
    /// Its number, from 0 on; the first one accepts connections.
    pub number: u32,
    /// Connections of clients that it has.
    pub clients_open: u64,
    /// Requests so far.
    pub requests: u64,
}

/// Requests of a service; those that no route takes have the name "".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// Its requests, by the client's protocol and the status.
    pub requests: Vec<RequestCount>,
    /// From the arrival of each request until its response was passed on.
    pub durations: Durations,
    /// gRPC statuses that clients received, by name.
    pub grpc: BTreeMap<String, u64>,
    /// Counters of its protection.
    pub protection: ProtectionStatus,
    /// Why some of its instances have no address, one each.
    pub unresolved: Vec<String>,
}

/// A number of requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestCount {
    /// What the client speaks: `h1`, `h2`, `h3`.
    pub protocol: String,
    /// The status of the response; 0 where the client got none.
    pub status: u16,
    /// How many.
    pub count: u64,
}

/// Durations, counted in the buckets of [`BOUNDS`] and one more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// How many fell into each.
    pub counts: Vec<u64>,
    /// Their sum, in nanoseconds.
    pub sum_ns: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Self { counts: vec![0; BOUNDS.len() + 1], sum_ns: 0 }
    }
}

impl Durations {
    /// Counts one.
    pub fn record(&mut self, took: Duration) {
        let ns = nanos(took);
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < ns);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// How many there are.
    pub fn n(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, other)| *own += other);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
}

/// An instance of a service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceStatus {
    /// Its service.
    pub service: String,
    /// As it is written: `h2c://10.0.0.7:8080`.
    pub name: String,
    /// How many connections it gets: `adaptive`, `fixed:4` …
    pub policy: String,
    /// What it speaks, as far as that is known: `h1`, `h1s`, `h2c`, `h2`, `h3`.
    pub protocol: String,
    /// The last dial of any thread failed, and there is no connection that takes further requests.
    pub is_down: bool,
    /// It is left out because it failed (`outlier`).
    pub is_ejected: bool,
    /// Its health checks failed.
    pub is_unhealthy: bool,
    /// Connections that carry requests.
    pub connections: u64,
    /// Connections being dialled.
    pub dialling: u64,
    /// Requests that wait for a connection, or a stream of one.
    pub waiting: u64,
    /// Requests that it has not answered.
    pub open: u64,
    /// Connections dialled so far.
    pub dialled: u64,
    /// Of these, those that could not be made.
    pub dials_failed: u64,
    /// Times at which it announced the end of a connection by GOAWAY.
    pub goaways: u64,
    /// Streams that it refused (`REFUSED_STREAM`).
    pub refused: u64,
    /// Streams that it reset otherwise.
    pub resets: u64,
    /// Connections that ended while they carried requests.
    pub broken: u64,
    /// Responses that were refused because they are malformed.
    pub malformed: u64,
    /// What it has answered.
    pub responses: Responses,
    /// The same for the last 30 to 60 s.
    pub lately: Responses,
    /// Requests that were given to it.
    pub requests: u64,
    /// Of these, those that had to wait for a connection or a stream.
    pub waited: u64,
    /// For how long they waited, in all.
    pub waited_ns: u64,
    /// After how many requests it ends a connection, as far as that was learned.
    pub quota: Option<u32>,
    /// Streams that it allows on a connection; none if it sets no bound, or has not said.
    pub streams_allowed: Option<u32>,
    /// The paths of its connections, HTTP/2 only.
    pub path: Option<PathStatus>,
    /// Responses of the last 30 to 60 s: from when a request came until its response was passed on.
    pub recent: Histogram,
    /// What one connection would do, by the model that determines their number; none if there is no more than one.
    pub alone: Option<Alone>,
}

/// The paths of an instance's connections.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PathStatus {
    /// Segments with data that are sent per second, repetitions included.
    pub sent_per_s: f64,
    /// Segments with data that come per second.
    pub received_per_s: f64,
    /// Segments that are sent again per second.
    pub again_per_s: f64,
    /// Smoothed round trip, the mean of all connections, in nanoseconds.
    pub rtt_ns: u64,
    /// Congestion window in segments, the mean of all connections.
    pub window: f64,
    /// Connections that were read.
    pub connections: u32,
}

impl PathStatus {
    /// The share of packets that are lost on the way to the instance, estimated from retransmissions.
    pub fn loss(&self) -> f64 {
        if self.sent_per_s > 0.0 { (self.again_per_s / self.sent_per_s).min(1.0) } else { 0.0 }
    }

    fn add(&mut self, other: &Self) {
        let (own, others) = (f64::from(self.connections), f64::from(other.connections));
        let all = (own + others).max(1.0);
        let mean = |a: f64, b: f64| (a * own + b * others) / all;
        self.rtt_ns = mean(self.rtt_ns as f64, other.rtt_ns as f64) as u64;
        self.window = mean(self.window, other.window);
        self.sent_per_s += other.sent_per_s;
        self.received_per_s += other.received_per_s;
        self.again_per_s += other.again_per_s;
        self.connections += other.connections;
    }
}

/// An estimate of what one connection would do with the requests of all.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Alone {
    /// The share of the packets that it would carry, 0 to 1: less than 1 where its congestion window is too small, and
    /// the rest would wait longer and longer.
    pub carries: f64,
    /// The 99th percentile of response times in that case, in nanoseconds; none where it does not carry everything.
    pub p99_ns: Option<u64>,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LastError {
    /// How long ago, in nanoseconds.
    pub ago_ns: u64,
    /// Its service; empty if it has none.
    pub service: String,
    /// The status that the client was given; 0 if it was given none, or there is no client.
    pub status: u16,
    /// What happened.
    pub what: String,
    /// How often it happened.
    pub times: u64,
}

impl SidecarStatus {
    /// Adds another thread of the same sidecar.
    pub fn add(&mut self, other: Self) {
        if self.version.is_empty() {
            self.version = other.version;
        }
        self.uptime_ns = self.uptime_ns.max(other.uptime_ns);
        self.draining |= other.draining;
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        // All threads share one log.
        self.log_lines_dropped = self.log_lines_dropped.max(other.log_lines_dropped);
        self.threads += other.threads;
        self.by_thread.extend(other.by_thread);
        self.by_thread.sort_by_key(|thread| thread.number);
        self.clients_open += other.clients_open;
        self.clients_accepted += other.clients_accepted;
        self.clients_limit = self.clients_limit.max(other.clients_limit); // of all threads together
        self.clients_limit_reached += other.clients_limit_reached;
        self.clients_taken_over += other.clients_taken_over;
        self.requests_open += other.requests_open;
        self.bad_requests += other.bad_requests;
        self.tls_failures += other.tls_failures;
        for (what, count) in other.lacks {
            *self.lacks.entry(what).or_default() += count;
        }
        for (reason, count) in other.retries {
            *self.retries.entry(reason).or_default() += count;
        }
        for service in other.services {
            match self.services.iter_mut().find(|own| own.name == service.name) {
                Some(own) => own.add(service),
                None => self.services.push(service),
            }
        }
        for instance in other.instances {
            let is_it =
                |own: &&mut InstanceStatus| (&own.service, &own.name) == (&instance.service, &instance.name);
            match self.instances.iter_mut().find(is_it) {
                Some(own) => own.add(&instance),
                None => self.instances.push(instance),
            }
        }
        for error in other.errors {
            // An error without a client (status 0) is the cause of the errors that clients received: one entry, which
            // counts the clients.
            let is_same = |own: &&mut LastError| {
                let is_status = own.status == error.status || own.status == 0 || error.status == 0;
                is_status && (&own.service, &own.what) == (&error.service, &error.what)
            };
            match self.errors.iter_mut().find(is_same) {
                Some(own) => {
                    own.times = match (own.status, error.status) {
                        (0, 1..) => error.times,
                        (1.., 0) => own.times,
                        _ => own.times + error.times,
                    };
                    own.status = own.status.max(error.status);
                    own.ago_ns = own.ago_ns.min(error.ago_ns);
                }
                None => self.errors.push(error),
            }
        }
        self.errors.sort_by_key(|error| error.ago_ns);
        self.errors.truncate(MOST_ERRORS);
    }
}

impl ServiceStatus {
    fn add(&mut self, other: Self) {
        for count in other.requests {
            let is_it =
                |own: &&mut RequestCount| (&own.protocol, own.status) == (&count.protocol, count.status);
            match self.requests.iter_mut().find(is_it) {
                Some(own) => own.count += count.count,
                None => self.requests.push(count),
            }
        }
        self.durations.add(&other.durations);
        for (name, count) in other.grpc {
            *self.grpc.entry(name).or_default() += count;
        }
        self.protection.add(&other.protection);
        if self.unresolved.is_empty() {
            self.unresolved = other.unresolved; // the same in all threads
        }
    }

    /// All of its requests.
    pub fn requests(&self) -> u64 {
        self.requests.iter().map(|count| count.count).sum()
    }
}

impl InstanceStatus {
    fn add(&mut self, other: &Self) {
        // An instance is up if one thread has a connection to it. All threads report the same about the last dial.
        self.is_down &= other.is_down;
        self.is_ejected |= other.is_ejected;
        self.is_unhealthy |= other.is_unhealthy;
        if self.connections == 0 && other.connections > 0 {
            self.protocol.clone_from(&other.protocol);
        }
        self.connections += other.connections;
        self.dialling += other.dialling;
        self.waiting += other.waiting;
        self.open += other.open;
        self.dialled += other.dialled;
        self.dials_failed += other.dials_failed;
        self.goaways += other.goaways;
        self.refused += other.refused;
        self.resets += other.resets;
        self.broken += other.broken;
        self.malformed += other.malformed;
        self.responses.add(&other.responses);
        self.lately.add(&other.lately);
        self.requests += other.requests;
        self.waited += other.waited;
        self.waited_ns += other.waited_ns;
        self.quota = self.quota.or(other.quota);
        self.streams_allowed = self.streams_allowed.or(other.streams_allowed);
        match (&mut self.path, &other.path) {
            (Some(own), Some(other)) => own.add(other),
            (own @ None, other) => *own = *other,
            (Some(_), None) => {}
        }
        self.recent.merge(&other.recent);
    }

    /// A percentile of recent response times; none if there were none.
    pub fn recent_percentile(&self, percent: f64) -> Option<Duration> {
        let n = self.recent.n();
        let rank = (n as f64 * percent / 100.0).ceil() as u64;
        (n > 0).then(|| self.recent.at_rank(rank.max(1)))
    }
}

/// What a sidecar has seen on its connections to instances lately, for `h2lab diagnose --sidecar`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observations {
    /// The layout of `records`: [`SCHEMA_VERSION`](crate::record::SCHEMA_VERSION).
    pub schema: u32,
    /// Its status.
    pub status: SidecarStatus,
    /// For how long requests and frames are kept, in nanoseconds; 0 if they are not.
    pub window_ns: u64,
    /// When these were taken, in nanoseconds since 1970.
    pub taken_unix_ns: u64,
    /// The requests, connections, frames and readings of TCP of each instance and protocol in the window, of each thread.
    pub records: Vec<CellRecord>,
    /// What was left out, in sentences.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(status: u16, rtt: u64, is_down: bool) -> SidecarStatus {
        let mut durations = Durations::default();
        durations.record(Duration::from_millis(rtt));
        SidecarStatus {
            threads: 1,
            clients_open: 2,
            lacks: BTreeMap::from([("files".to_owned(), 2)]),
            retries: BTreeMap::from([("goaway".to_owned(), 3)]),
            clients_limit: 500,
            clients_limit_reached: 1,
            services: vec![ServiceStatus {
                name: "a".to_owned(),
                requests: vec![RequestCount { protocol: "h1".to_owned(), status, count: 5 }],
                grpc: BTreeMap::from([("OK".to_owned(), 2)]),
                durations,
                protection: ProtectionStatus { ejections: 2, rate_limited: 7, ..ProtectionStatus::default() },
                unresolved: vec!["no address for a.internal".to_owned()],
            }],
            instances: vec![InstanceStatus {
                name: "h2c://a:80".to_owned(),
                connections: 1,
                is_down,
                path: Some(PathStatus {
                    sent_per_s: 100.0,
                    again_per_s: 3.0,
                    rtt_ns: rtt,
                    connections: 1,
                    ..PathStatus::default()
                }),
                recent: Histogram::of([Duration::from_millis(rtt)]),
                ..InstanceStatus::default()
            }],
            errors: vec![LastError {
                ago_ns: rtt,
                status,
                what: "x".to_owned(),
                times: 2,
                ..LastError::default()
            }],
            ..SidecarStatus::default()
        }
    }

    #[test]
    fn threads_are_added_to_one_status() {
        let mut all = SidecarStatus::default();
        for one in [thread(200, 10, true), thread(200, 30, false), thread(503, 50, false)] {
            all.add(one);
        }
        assert_eq!((all.threads, all.clients_open, all.retries["goaway"]), (3, 6, 9));
        assert_eq!(
            (all.lacks["files"], all.services[0].unresolved.len()),
            (6, 1),
            "threads have the same names"
        );
        assert_eq!((all.clients_limit, all.clients_limit_reached), (500, 3), "one bound for all of them");
        let requests = &all.services[0].requests;
        assert_eq!(
            requests.iter().map(|one| (one.status, one.count)).collect::<Vec<_>>(),
            [(200, 10), (503, 5)]
        );
        assert_eq!((all.services[0].requests(), all.services[0].durations.n()), (15, 3));
        let protection = all.services[0].protection;
        assert_eq!((protection.ejections, protection.rate_limited, protection.shed), (6, 21, 0));
        let [instance] = &all.instances[..] else { panic!("one instance: {all:?}") };
        let path = instance.path.expect("a path");
        assert_eq!(
            (instance.connections, instance.is_down, path.rtt_ns, path.connections),
            (3, false, 30, 3)
        );
        assert!((path.loss() - 0.03).abs() < 1e-9 && (path.sent_per_s - 300.0).abs() < 1e-9);
        assert_eq!(all.services[0].grpc["OK"], 6);
        let percentile = |p| instance.recent_percentile(p).map(|took| took.as_millis());
        assert_eq!((percentile(50.0), percentile(99.0)), (Some(30), Some(50)));
        let errors: Vec<_> =
            all.errors.iter().map(|error| (error.ago_ns, error.status, error.times)).collect();
        assert_eq!(errors, [(10, 200, 4), (50, 503, 2)], "what several threads met is one error");
        let mut cause = SidecarStatus { errors: thread(0, 5, false).errors, ..SidecarStatus::default() };
        cause.add(thread(502, 7, false));
        let [error] = &cause.errors[..] else { panic!("one error: {cause:?}") };
        assert_eq!((error.ago_ns, error.status, error.times), (5, 502, 2), "its cause is no other one");
        let read: SidecarStatus =
            serde_json::from_str(&serde_json::to_string(&all).expect("JSON")).expect("what was written");
        assert_eq!(read, all);
    }

    #[test]
    fn durations_fall_into_the_bucket_whose_bound_they_do_not_exceed() {
        let mut durations = Durations::default();
        for ms in [0, 1, 2, 60_000, 60_001] {
            durations.record(Duration::from_millis(ms));
        }
        assert_eq!((durations.counts[0], durations.counts[1]), (2, 1));
        assert_eq!(durations.counts[13..], [1, 1]);
        assert_eq!(durations.n(), 5);
    }
}
