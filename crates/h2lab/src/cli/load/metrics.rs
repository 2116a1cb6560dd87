//! Live numbers of a load for Prometheus: counted by the generator's threads, read by the exporter's.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use h2lab_base::units::nanos;
use h2lab_model::record::{Outcome, Sample};

use h2lab_roles::load::{LoadProgress, SampleListener};

/// Upper bounds of the buckets of response times: Prometheus' usual ones, and what a fast service needs below.
const BUCKETS: [(&str, u64); 15] = [
    ("0.0001", 100_000),
    ("0.00025", 250_000),
    ("0.0005", 500_000),
    ("0.001", 1_000_000),
    ("0.0025", 2_500_000),
    ("0.005", 5_000_000),
    ("0.01", 10_000_000),
    ("0.025", 25_000_000),
    ("0.05", 50_000_000),
    ("0.1", 100_000_000),
    ("0.25", 250_000_000),
    ("0.5", 500_000_000),
    ("1", 1_000_000_000),
    ("2.5", 2_500_000_000),
    ("10", 10_000_000_000),
];

/// Statuses have three digits (RFC 9110 §15); anything else that a server sends counts as the last.
const STATUSES: usize = 1_000;

/// What one thread has counted. Only that thread writes here, so that no count needs a lock or a locked instruction.
#[derive(Debug)]
struct Shard {
    /// Complete responses by status.
    statuses: Vec<AtomicU64>,
    /// Requests that ended otherwise, by outcome.
    outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Successes in each bucket; beyond the last are those of no bucket.
    buckets: [AtomicU64; BUCKETS.len() + 1],
    /// Response times of the successes, added up.
    sum_ns: AtomicU64,
}

impl Shard {
    fn new() -> Self {
        Self {
            statuses: (0..STATUSES).map(|_| AtomicU64::new(0)).collect(),
            outcomes: Default::default(),
            buckets: Default::default(),
            sum_ns: AtomicU64::new(0),
        }
    }
}

/// Adds to a counter that only this thread writes.
fn add(count: &AtomicU64, n: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// The numbers of a load.
#[derive(Debug)]
pub struct Metrics {
    shards: Vec<Shard>,
    connections: AtomicU64,
    opened: AtomicU64,
    in_flight: AtomicU64,
    waiting: AtomicU64,
    due: AtomicU64,
}

impl SampleListener for Metrics {
    fn ended(&self, thread: u32, sample: &Sample) {
        let Some(shard) = self.shards.get(thread as usize) else { return };
        if !sample.outcome.is_complete() {
            add(&shard.outcomes[sample.outcome as usize], 1);
            return;
        }
        add(&shard.statuses[usize::from(sample.status).min(STATUSES - 1)], 1);
        if sample.outcome.is_success() {
            let ns = nanos(sample.response_time());
            add(&shard.buckets[BUCKETS.partition_point(|(_, bound)| *bound < ns)], 1);
            add(&shard.sum_ns, ns);
        }
    }
}

impl Metrics {
    /// Nothing yet, of so many threads.
    pub fn new(threads: u32) -> Self {
        let count = || AtomicU64::new(0);
        Self {
            shards: (0..threads).map(|_| Shard::new()).collect(),
            connections: count(),
            opened: count(),
            in_flight: count(),
            waiting: count(),
            due: count(),
        }
    }

    /// Takes over the progress, which is reported about ten times per second.
    pub fn show(&self, progress: &LoadProgress) {
        self.connections.store(progress.connections.into(), Ordering::Relaxed);
        self.opened.store(progress.opened, Ordering::Relaxed);
        self.in_flight.store(progress.in_flight, Ordering::Relaxed);
        self.waiting.store(progress.waiting, Ordering::Relaxed);
        self.due.store(progress.due, Ordering::Relaxed);
    }

    /// All of it in Prometheus' text format 0.0.4. What has not occurred is left out of the counters by outcome and status.
    pub fn text(&self) -> String {
        let mut out = String::with_capacity(4096);
        head(
            &mut out,
            "h2lab_requests_total",
            "counter",
            "Requests that ended, by outcome and status (0: no response).",
        );
        let requests = self.requests();
        for &(outcome, status, n) in &requests {
            let labels = format!("outcome=\"{outcome}\",status=\"{status}\"");
            line(&mut out, "h2lab_requests_total", &labels, &n.to_string());
        }
        let name = "h2lab_response_time_seconds";
        head(&mut out, name, "histogram", "Completed minus due, of successful requests.");
        let mut so_far = 0;
        let counts = (0..=BUCKETS.len()).map(|place| self.sum(|shard| &shard.buckets[place]));
        for (bound, n) in BUCKETS.iter().map(|(bound, _)| *bound).chain(["+Inf"]).zip(counts) {
            so_far += n;
            line(&mut out, &format!("{name}_bucket"), &format!("le=\"{bound}\""), &so_far.to_string());
        }
        let seconds = self.sum(|shard| &shard.sum_ns) as f64 / 1e9;
        line(&mut out, &format!("{name}_sum"), "", &seconds.to_string());
        line(&mut out, &format!("{name}_count"), "", &so_far.to_string());
        // The progress is older than the counts above by up to a tenth of a second: what has ended was due.
        let due = read(&self.due).max(requests.iter().map(|(.., n)| n).sum());
        let singles = [
            ("h2lab_connections_open", "gauge", "Connections that are up.", read(&self.connections)),
            (
                "h2lab_connections_opened_total",
                "counter",
                "Connections established so far.",
                read(&self.opened),
            ),
            ("h2lab_requests_in_flight", "gauge", "Requests on a connection.", read(&self.in_flight)),
            (
                "h2lab_requests_waiting",
                "gauge",
                "Requests that wait for a connection or a stream.",
                read(&self.waiting),
            ),
            ("h2lab_requests_due_total", "counter", "Requests that were due so far.", due),
        ];
        for (name, kind, help, value) in singles {
            head(&mut out, name, kind, help);
            line(&mut out, name, "", &value.to_string());
        }
        out
    }

    /// (outcome, status, requests) of what has occurred.
    fn requests(&self) -> Vec<(&'static str, usize, u64)> {
        let complete = (0..STATUSES).map(|status| {
            let outcome = if (200..400).contains(&status) { Outcome::Succeeded } else { Outcome::Status };
            (outcome.name(), status, self.sum(|shard| &shard.statuses[status]))
        });
        let others = Outcome::ALL
            .iter()
            .map(|&outcome| (outcome.name(), 0, self.sum(move |shard| &shard.outcomes[outcome as usize])));
        complete.chain(others).filter(|(.., n)| *n > 0).collect()
    }

    fn sum<'a>(&'a self, of: impl Fn(&'a Shard) -> &'a AtomicU64) -> u64 {
        self.shards.iter().map(|shard| read(of(shard))).sum()
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Infallible: it writes to memory.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: &str) {
    let _ = if labels.is_empty() {
        writeln!(out, "{name} {value}")
    } else {
        writeln!(out, "{name}{{{labels}}} {value}")
    };
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use h2lab_base::units::Time;

    use super::*;

    fn sample(outcome: Outcome, status: u16, micros: u64) -> Sample {
        let completed_at = Time::ZERO + Duration::from_micros(micros);
        Sample { completed_at, outcome, status, ..Sample::due(Time::ZERO, true) }
    }

    #[test]
    fn requests_are_counted_by_outcome_and_status_over_all_threads() {
        let metrics = Metrics::new(2);
        for thread in [0, 0, 1] {
            metrics.ended(thread, &sample(Outcome::Succeeded, 200, 900));
        }
        metrics.ended(1, &sample(Outcome::Status, 503, 100));
        metrics.ended(1, &sample(Outcome::Timeout, 0, 100));
        metrics.ended(0, &sample(Outcome::Status, u16::MAX, 100));
        metrics.show(&LoadProgress { connections: 7, opened: 9, in_flight: 3, ..LoadProgress::default() });
        let text = metrics.text();
        for line in [
            "h2lab_requests_total{outcome=\"succeeded\",status=\"200\"} 3",
            "h2lab_requests_total{outcome=\"status\",status=\"503\"} 1",
            "h2lab_requests_total{outcome=\"status\",status=\"999\"} 1",
            "h2lab_requests_total{outcome=\"timeout\",status=\"0\"} 1",
            "h2lab_response_time_seconds_count 3",
            "h2lab_connections_open 7",
            "h2lab_connections_opened_total 9",
            "h2lab_requests_in_flight 3",
        ] {
            assert!(text.lines().any(|reported| reported == line), "{line}\n{text}");
        }
    }

    #[test]
    fn no_more_requests_have_ended_than_were_due() {
        let metrics = Metrics::new(1);
        let due = |expected: u64| {
            let line = format!("h2lab_requests_due_total {expected}\n");
            assert!(metrics.text().contains(&line), "{line}{}", metrics.text());
        };
        metrics.show(&LoadProgress { due: 2, ..LoadProgress::default() });
        due(2);
        for outcome in [Outcome::Succeeded, Outcome::Timeout, Outcome::Status] {
            metrics.ended(0, &sample(outcome, 200, 100));
        }
        due(3);
        metrics.show(&LoadProgress { due: 7, ..LoadProgress::default() });
        due(7);
    }

    #[test]
    fn buckets_are_cumulative_and_include_their_bound() {
        let metrics = Metrics::new(1);
        for micros in [1_000, 1_001, 20_000_000] {
            metrics.ended(0, &sample(Outcome::Succeeded, 200, micros));
        }
        let text = metrics.text();
        for (bound, n) in [("0.0005", 0), ("0.001", 1), ("0.0025", 2), ("10", 2), ("+Inf", 3)] {
            let line = format!("h2lab_response_time_seconds_bucket{{le=\"{bound}\"}} {n}");
            assert!(text.lines().any(|reported| reported == line), "{line}\n{text}");
        }
        assert!(text.contains("h2lab_response_time_seconds_sum 20.002001\n"), "{text}");
    }

    #[test]
    fn every_line_is_a_comment_or_a_sample_of_the_text_format() {
        let metrics = Metrics::new(1);
        metrics.ended(0, &sample(Outcome::Succeeded, 204, 5));
        for line in metrics.text().lines().filter(|line| !line.starts_with("# ")) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(name.starts_with("h2lab_"), "{line}");
        }
    }
}
