//! Prometheus' text format, version 0.0.4.

use std::fmt::Write as _;

use h2lab_model::sidecar::{BOUNDS, Durations, InstanceStatus, SidecarStatus, ThreadStatus};

/// The status of a sidecar as metrics.
pub fn sidecar_metrics(status: &SidecarStatus) -> String {
    let mut out = Metrics::default();
    requests(&mut out, status);
    retries(&mut out, status);
    instances(&mut out, status);
    paths(&mut out, status);
    whole(&mut out, status);
    out.text
}

#[derive(Default)]
struct Metrics {
    text: String,
}

impl Metrics {
    /// Begins the metric with this name.
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // A string takes everything.
        let _ = write!(self.text, "# HELP h2lab_sidecar_{name} {help}\n# TYPE h2lab_sidecar_{name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(self.text, "h2lab_sidecar_{name}");
        if !labels.is_empty() {
            self.text.push('{');
            for (n, (key, value)) in labels.iter().enumerate() {
                let comma = if n == 0 { "" } else { "," };
                let _ = write!(self.text, "{comma}{key}=\"{}\"", escaped(value));
            }
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// A metric with one value.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        self.line(name, &[], value);
    }

    /// A metric with a value of each instance.
    fn of_instances(
        &mut self,
        status: &SidecarStatus,
        (name, kind, help): (&str, &str, &str),
        value: impl Fn(&InstanceStatus) -> Option<f64>,
    ) {
        let mut is_begun = false;
        for instance in &status.instances {
            let Some(value) = value(instance) else { continue };
            if !std::mem::replace(&mut is_begun, true) {
                self.head(name, kind, help);
            }
            self.line(name, &[("service", &instance.service), ("instance", &instance.name)], value);
        }
    }
}

/// As the format wants it in a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn requests(out: &mut Metrics, status: &SidecarStatus) {
    let name = "requests_total";
    out.head(
        name,
        "counter",
        "Requests that are over, by what the client speaks and was given (0: nothing).",
    );
    for service in &status.services {
        for one in &service.requests {
            let code = one.status.to_string();
            let labels = [("service", &*service.name), ("protocol", &one.protocol), ("code", &code)];
            out.line(name, &labels, one.count);
        }
    }
    let name = "request_duration_seconds";
    out.head(name, "histogram", "From the coming of a request until its response was passed on.");
    for service in &status.services {
        histogram(out, name, &service.name, &service.durations);
    }
}

fn histogram(out: &mut Metrics, name: &str, service: &str, durations: &Durations) {
    let bucket = format!("{name}_bucket");
    let mut so_far = 0;
    let bounds = BOUNDS.iter().map(|(_, bound)| *bound).chain(["+Inf"]);
    for (bound, count) in bounds.zip(&durations.counts) {
        so_far += count;
        out.line(&bucket, &[("service", service), ("le", bound)], so_far);
    }
    let seconds = durations.sum_ns as f64 / 1e9;
    out.line(&format!("{name}_sum"), &[("service", service)], seconds);
    out.line(&format!("{name}_count"), &[("service", service)], so_far);
}

fn retries(out: &mut Metrics, status: &SidecarStatus) {
    let name = "retries_total";
    out.head(name, "counter", "Requests that were sent again, by what ended the attempt before.");
    for (reason, count) in &status.retries {
        out.line(name, &[("reason", reason)], count);
    }
}

fn instances(out: &mut Metrics, status: &SidecarStatus) {
    let count = |n: u64| Some(n as f64);
    let name = "connections";
    out.head(name, "gauge", "Connections to instances.");
    for instance in &status.instances {
        for (state, n) in [("open", instance.connections), ("dialling", instance.dialling)] {
            let labels = [("service", &*instance.service), ("instance", &instance.name), ("state", state)];
            out.line(name, &labels, n);
        }
    }
    let up = |one: &InstanceStatus| Some(if one.is_down { 0.0 } else { 1.0 });
    out.of_instances(status, ("instance_up", "gauge", "Whether the instance could be reached."), up);
    let waiting = ("requests_waiting", "gauge", "Requests that wait for a connection or a stream.");
    out.of_instances(status, waiting, |one| count(one.waiting));
    let open = ("instance_requests_open", "gauge", "Requests that the instance has not answered.");
    out.of_instances(status, open, |one| count(one.open));
    let requests =
        ("instance_requests_total", "counter", "Requests given to the instance, repetitions included.");
    out.of_instances(status, requests, |one| count(one.requests));
    let waited =
        ("requests_waited_total", "counter", "Requests that had to wait for a connection or a stream.");
    out.of_instances(status, waited, |one| count(one.waited));
    let time = ("requests_waited_seconds_total", "counter", "For how long they waited.");
    out.of_instances(status, time, |one| Some(one.waited_ns as f64 / 1e9));
    let dials = ("dials_total", "counter", "Connections dialled.");
    out.of_instances(status, dials, |one| count(one.dialled));
    let failed = ("dials_failed_total", "counter", "Connections that could not be made.");
    out.of_instances(status, failed, |one| count(one.dials_failed));
    let goaways = ("goaways_total", "counter", "GOAWAYs that the instance sent.");
    out.of_instances(status, goaways, |one| count(one.goaways));
    let refused = ("streams_refused_total", "counter", "Streams that the instance refused (REFUSED_STREAM).");
    out.of_instances(status, refused, |one| count(one.refused));
    let resets = ("streams_reset_total", "counter", "Streams that the instance reset otherwise.");
    out.of_instances(status, resets, |one| count(one.resets));
    let broken =
        ("connections_broken_total", "counter", "Connections that ended while they carried requests.");
    out.of_instances(status, broken, |one| count(one.broken));
    let quota = (
        "request_quota",
        "gauge",
        "After how many requests the instance ends a connection, where that was learned.",
    );
    out.of_instances(status, quota, |one| one.quota.map(f64::from));
}

fn paths(out: &mut Metrics, status: &SidecarStatus) {
    let loss = (
        "loss_ratio",
        "gauge",
        "Share of the packets to the instance that were sent again, over ten seconds.",
    );
    out.of_instances(status, loss, |one| one.path.map(|path| path.loss()));
    let rtt = ("rtt_seconds", "gauge", "Smoothed round trip, the mean of all connections.");
    out.of_instances(status, rtt, |one| one.path.map(|path| path.rtt_ns as f64 / 1e9));
    let window = ("congestion_window_segments", "gauge", "Congestion window, the mean of all connections.");
    out.of_instances(status, window, |one| one.path.map(|path| path.window));
}

fn threads(out: &mut Metrics, status: &SidecarStatus) {
    let mut of_each = |name, kind, help, value: fn(&ThreadStatus) -> u64| {
        out.head(name, kind, help);
        for thread in &status.by_thread {
            out.line(name, &[("thread", &thread.number.to_string())], value(thread));
        }
    };
    of_each("thread_clients_open", "gauge", "Connections of clients that a thread has.", |one| {
        one.clients_open
    });
    of_each("thread_requests_total", "counter", "Requests that came to a thread.", |one| one.requests);
}

fn whole(out: &mut Metrics, status: &SidecarStatus) {
    out.single("clients_open", "gauge", "Connections of clients.", status.clients_open);
    out.single("clients_total", "counter", "Connections of clients so far.", status.clients_accepted);
    out.single("requests_open", "gauge", "Requests under way.", status.requests_open);
    out.single("memory_bytes", "gauge", "Resident memory of the process.", status.memory_bytes);
    out.single("threads", "gauge", "Threads that pass requests on.", status.threads);
    threads(out, status);
    out.single("draining", "gauge", "Whether it is being stopped.", u8::from(status.draining));
    out.single("uptime_seconds", "gauge", "Since it began.", status.uptime_ns as f64 / 1e9);
    let help = "Lines of the access log that were dropped, since the disk did not take them.";
    out.single("log_lines_dropped_total", "counter", help, status.log_lines_dropped);
    out.head("info", "gauge", "The version of h2lab.");
    out.line("info", &[("version", &status.version)], 1);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use h2lab_model::sidecar::{PathStatus, RequestCount, ServiceStatus};

    use super::*;

    #[test]
    fn every_metric_is_announced_once_before_its_lines_and_labels_are_escaped() {
        let mut durations = Durations::default();
        durations.record(Duration::from_millis(3));
        durations.record(Duration::from_secs(100));
        let instance = |name: &str| InstanceStatus {
            service: "a\"b\\c\nd".to_owned(),
            name: name.to_owned(),
            path: Some(PathStatus { sent_per_s: 100.0, again_per_s: 3.0, ..PathStatus::default() }),
            ..InstanceStatus::default()
        };
        let status = SidecarStatus {
            retries: [("goaway".to_owned(), 4)].into(),
            services: vec![ServiceStatus {
                name: "a".to_owned(),
                requests: vec![RequestCount { protocol: "h1".to_owned(), status: 200, count: 2 }],
                durations,
            }],
            instances: vec![instance("x"), instance("y")],
            ..SidecarStatus::default()
        };
        let text = sidecar_metrics(&status);
        let mut known = BTreeSet::new();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                current = rest.split(' ').next().expect("a name").to_owned();
                assert!(known.insert(current.clone()), "{current} twice");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&current), "{line} after {current}");
                assert!(line.rsplit(' ').next().is_some_and(|value| value.parse::<f64>().is_ok()), "{line}");
            }
        }
        for line in [
            "h2lab_sidecar_requests_total{service=\"a\",protocol=\"h1\",code=\"200\"} 2",
            "h2lab_sidecar_request_duration_seconds_bucket{service=\"a\",le=\"0.0025\"} 0",
            "h2lab_sidecar_request_duration_seconds_bucket{service=\"a\",le=\"0.005\"} 1",
            "h2lab_sidecar_request_duration_seconds_bucket{service=\"a\",le=\"+Inf\"} 2",
            "h2lab_sidecar_request_duration_seconds_count{service=\"a\"} 2",
            "h2lab_sidecar_retries_total{reason=\"goaway\"} 4",
            "h2lab_sidecar_loss_ratio{service=\"a\\\"b\\\\c\\nd\",instance=\"y\"} 0.03",
        ] {
            assert!(text.lines().any(|own| own == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("request_quota"), "nothing was learned");
    }
}
