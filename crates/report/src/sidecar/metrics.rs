//! Prometheus' text format, version 0.0.4.

use std::fmt::Write as _;

use h2lab_model::sidecar::{
    BOUNDS, CertificateStatus, Durations, InstanceStatus, ProtectionStatus, ReloadStatus, SidecarStatus,
    ThreadStatus,
};

/// The status of a sidecar as metrics.
pub fn sidecar_metrics(status: &SidecarStatus) -> String {
    let mut out = Metrics::default();
    requests(&mut out, status);
    grpc(&mut out, status);
    retries(&mut out, status);
    lacks(&mut out, status);
    instances(&mut out, status);
    unresolved(&mut out, status);
    protection(&mut out, status);
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
        // Writing to a string cannot fail.
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
        "Completed requests, by service, protocol of the client and status code (0: no response).",
    );
    for service in &status.services {
        for one in &service.requests {
            let code = one.status.to_string();
            let labels = [("service", &*service.name), ("protocol", &one.protocol), ("code", &code)];
            out.line(name, &labels, one.count);
        }
    }
    let name = "request_duration_seconds";
    out.head(name, "histogram", "Time from the arrival of a request until its response was forwarded.");
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

/// gRPC's statuses, by name: with numbers, which peers choose, there could be any number of series.
fn grpc(out: &mut Metrics, status: &SidecarStatus) {
    let name = "grpc_responses_total";
    if status.services.iter().any(|service| !service.grpc.is_empty()) {
        out.head(name, "counter", "Completed gRPC calls, by service and status code.");
    }
    for service in &status.services {
        for (code, count) in &service.grpc {
            out.line(name, &[("service", &service.name), ("code", code)], count);
        }
    }
}

/// What instances answer, by class of the status.
fn responses(out: &mut Metrics, status: &SidecarStatus) {
    let name = "instance_responses_total";
    out.head(name, "counter", "Responses of the instance, by class of the status code.");
    for instance in &status.instances {
        for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(instance.responses.classes) {
            let labels = [("service", &*instance.service), ("instance", &instance.name), ("code", class)];
            out.line(name, &labels, count);
        }
    }
}

fn retries(out: &mut Metrics, status: &SidecarStatus) {
    let name = "retries_total";
    out.head(name, "counter", "Retries, by reason.");
    for (reason, count) in &status.retries {
        out.line(name, &[("reason", reason)], count);
    }
}

fn lacks(out: &mut Metrics, status: &SidecarStatus) {
    let name = "exhausted_total";
    out.head(name, "counter", "Times the system ran out of a resource that connections need.");
    for (what, count) in &status.lacks {
        out.line(name, &[("what", what)], count);
    }
}

fn instances(out: &mut Metrics, status: &SidecarStatus) {
    let name = "connections";
    out.head(name, "gauge", "Connections to instances, by state.");
    for instance in &status.instances {
        for (state, n) in [("open", instance.connections), ("dialling", instance.dialling)] {
            let labels = [("service", &*instance.service), ("instance", &instance.name), ("state", state)];
            out.line(name, &labels, n);
        }
    }
    responses(out, status);
    for (name, kind, help, value) in OF_INSTANCES {
        out.of_instances(status, (name, kind, help), value);
    }
}

/// Name, kind, what it is, and the value of an instance, if it has one.
type OfInstance = (&'static str, &'static str, &'static str, fn(&InstanceStatus) -> Option<f64>);

const fn is(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}

const fn count(n: u64) -> f64 {
    n as f64
}

/// What is said of each instance.
const OF_INSTANCES: [OfInstance; 20] = [
    (
        "instance_up",
        "gauge",
        "0 if the last attempt to connect to the instance failed and no connection to it is usable, else 1.",
        |one| Some(is(!one.is_down)),
    ),
    ("instance_healthy", "gauge", "1 if its health checks pass or none are configured, else 0.", |one| {
        Some(is(!one.is_unhealthy))
    }),
    ("instance_ejected", "gauge", "1 while it is ejected because of failures, else 0.", |one| {
        Some(is(one.is_ejected))
    }),
    ("requests_waiting", "gauge", "Requests waiting for a connection or a stream.", |one| {
        Some(count(one.waiting))
    }),
    ("instance_requests_open", "gauge", "Requests in progress at the instance.", |one| Some(count(one.open))),
    ("instance_requests_total", "counter", "Requests sent to the instance, including retries.", |one| {
        Some(count(one.requests))
    }),
    ("requests_waited_total", "counter", "Requests that had to wait for a connection or a stream.", |one| {
        Some(count(one.waited))
    }),
    (
        "requests_waited_seconds_total",
        "counter",
        "Total time that requests waited for a connection or a stream.",
        |one| Some(one.waited_ns as f64 / 1e9),
    ),
    ("dials_total", "counter", "Connection attempts.", |one| Some(count(one.dialled))),
    ("dials_failed_total", "counter", "Failed connection attempts.", |one| Some(count(one.dials_failed))),
    ("goaways_total", "counter", "GOAWAY frames received from the instance.", |one| Some(count(one.goaways))),
    ("streams_refused_total", "counter", "Streams that the instance refused (REFUSED_STREAM).", |one| {
        Some(count(one.refused))
    }),
    ("streams_reset_total", "counter", "Streams that the instance reset for other reasons.", |one| {
        Some(count(one.resets))
    }),
    (
        "instance_grpc_failures_total",
        "counter",
        "Responses with a grpc-status of UNKNOWN, INTERNAL, UNAVAILABLE or DATA_LOSS.",
        |one| Some(count(one.responses.grpc_failed)),
    ),
    ("responses_malformed_total", "counter", "Responses refused because they are malformed.", |one| {
        Some(count(one.malformed))
    }),
    ("connections_broken_total", "counter", "Connections that broke with requests in progress.", |one| {
        Some(count(one.broken))
    }),
    (
        "request_quota",
        "gauge",
        "Number of requests after which the instance closes a connection, if known.",
        |one| one.quota.map(f64::from),
    ),
    (
        "loss_ratio",
        "gauge",
        "Share of packets to the instance that were lost in the last ten seconds with traffic, 0 to 1.",
        |one| one.path.map(|path| path.loss()),
    ),
    ("rtt_seconds", "gauge", "Smoothed round-trip time, averaged over the connections.", |one| {
        one.path.map(|path| path.rtt_ns as f64 / 1e9)
    }),
    ("congestion_window_segments", "gauge", "Congestion window, averaged over the connections.", |one| {
        one.path.map(|path| path.window)
    }),
];

/// Name, further labels, what it is, and the value of a service. Those of one name follow each other.
type OfService =
    (&'static str, &'static [(&'static str, &'static str)], &'static str, fn(&ProtectionStatus) -> u64);

/// What the protection of services has done.
const OF_SERVICES: [OfService; 10] = [
    ("attempts_failed_total", &[], "Failed attempts at an instance.", |one| one.failures),
    ("service_retries_total", &[], "Requests retried after a failed attempt.", |one| one.retries),
    (
        "retry_budget_exhausted_total",
        &[],
        "Requests not retried because the retry budget was exhausted.",
        |one| one.over_budget,
    ),
    (
        "limits_reached_total",
        &[("limit", "open")],
        "Requests refused with 503 because a limit was reached.",
        |one| one.over_open,
    ),
    (
        "limits_reached_total",
        &[("limit", "waiting")],
        "Requests refused with 503 because a limit was reached.",
        |one| one.over_waiting,
    ),
    (
        "rate_limited_total",
        &[],
        "Requests refused with 429 by a rate limit of the service or its listener.",
        |one| one.rate_limited,
    ),
    ("timeouts_total", &[], "Requests that timed out.", |one| one.timeouts),
    ("ejections_total", &[], "Ejections of instances because of failures.", |one| one.ejections),
    ("health_checks_failed_total", &[], "Failed health checks.", |one| one.failed_checks),
    ("shed_total", &[], "Requests refused with 503 because the memory limit was reached.", |one| one.shed),
];

fn unresolved(out: &mut Metrics, status: &SidecarStatus) {
    let name = "instances_unresolved";
    out.head(name, "gauge", "Instances whose names do not resolve yet.");
    for service in status.services.iter().filter(|service| !service.name.is_empty()) {
        out.line(name, &[("service", &service.name)], service.unresolved.len());
    }
}

fn protection(out: &mut Metrics, status: &SidecarStatus) {
    let mut begun = "";
    for (name, labels, help, value) in OF_SERVICES {
        if begun != name {
            out.head(name, "counter", help);
            begun = name;
        }
        for service in status.services.iter().filter(|service| !service.name.is_empty()) {
            let labels = [&[("service", &*service.name)][..], labels].concat();
            out.line(name, &labels, value(&service.protection));
        }
    }
}

fn threads(out: &mut Metrics, status: &SidecarStatus) {
    let mut of_each = |name, kind, help, value: fn(&ThreadStatus) -> u64| {
        out.head(name, kind, help);
        for thread in &status.by_thread {
            out.line(name, &[("thread", &thread.number.to_string())], value(thread));
        }
    };
    of_each("thread_clients_open", "gauge", "Open client connections of a worker thread.", |one| {
        one.clients_open
    });
    of_each("thread_requests_total", "counter", "Requests received by a worker thread.", |one| one.requests);
}

fn whole(out: &mut Metrics, status: &SidecarStatus) {
    out.single("clients_open", "gauge", "Open client connections.", status.clients_open);
    out.single("clients_total", "counter", "Accepted client connections.", status.clients_accepted);
    out.single("clients_limit", "gauge", "Limit of open client connections.", status.clients_limit);
    let help = "Times the limit of client connections was reached, so that further clients waited.";
    out.single("clients_limit_reached_total", "counter", help, status.clients_limit_reached);
    let help = "Client connections taken over from the previous process.";
    out.single("clients_taken_over_total", "counter", help, status.clients_taken_over);
    out.single("requests_open", "gauge", "Requests in progress.", status.requests_open);
    out.single("memory_bytes", "gauge", "Resident memory of the process.", status.memory_bytes);
    out.single("threads", "gauge", "Worker threads.", status.threads);
    threads(out, status);
    out.single(
        "draining",
        "gauge",
        "1 while the sidecar is shutting down, else 0.",
        u8::from(status.draining),
    );
    out.single("uptime_seconds", "gauge", "Time since the start.", status.uptime_ns as f64 / 1e9);
    let help = "Invalid requests: malformed, too large or too slow; clients closed by a limit.";
    out.single("bad_requests_total", "counter", help, status.bad_requests);
    let help = "Failed TLS and QUIC handshakes with clients.";
    out.single("tls_failures_total", "counter", help, status.tls_failures);
    let help = "Access log lines that were lost.";
    out.single("log_lines_dropped_total", "counter", help, status.log_lines_dropped);
    certificates(out, &status.certificates);
    reloads(out, &status.reloads);
    out.head("build_info", "gauge", "The version of h2lab.");
    out.line("build_info", &[("version", &status.version)], 1);
}

/// Names as those of Prometheus itself and of Alertmanager.
fn reloads(out: &mut Metrics, reloads: &ReloadStatus) {
    let name = "reloads_total";
    out.head(name, "counter", "Reloads of the configuration, by result.");
    out.line(name, &[("result", "ok")], reloads.succeeded);
    out.line(name, &[("result", "failed")], reloads.failed);
    let help = "1 if the last attempt to load the configuration succeeded, else 0.";
    out.single("config_last_reload_successful", "gauge", help, u8::from(reloads.wrong.is_none()));
    let help = "When the configuration in effect was loaded, in seconds since 1970.";
    out.single("config_last_reload_success_timestamp_seconds", "gauge", help, reloads.succeeded_unix_s);
    out.single("config_hash", "gauge", "Hash of the configuration in effect.", reloads.config_hash);
}

fn certificates(out: &mut Metrics, all: &[CertificateStatus]) {
    if all.is_empty() {
        return;
    }
    let name = "certificate_not_after_timestamp_seconds";
    out.head(name, "gauge", "End of validity of each configured certificate, in seconds since 1970.");
    let mut said: Vec<(&str, &str)> = Vec::new();
    let mut sorted: Vec<&CertificateStatus> = all.iter().collect();
    sorted.sort_by_key(|one| one.not_after_unix_s);
    for one in sorted {
        // Of two with the same subject in a file the first to expire counts: a series has one value.
        if !said.contains(&(&one.file, &one.subject)) {
            said.push((&one.file, &one.subject));
            out.line(name, &[("file", &one.file), ("subject", &one.subject)], one.not_after_unix_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use h2lab_model::sidecar::{PathStatus, RequestCount, Responses, ServiceStatus};

    use super::*;

    #[test]
    fn the_reference_has_every_metric_with_its_kind_and_labels() {
        let page = include_str!("../../../../docs/sidecar-reference.md");
        let page = page.split("## Metrics").nth(1).expect("it has a table of metrics");
        let instance =
            InstanceStatus { quota: Some(1), path: Some(PathStatus::default()), ..InstanceStatus::default() };
        let service = ServiceStatus {
            name: "a".to_owned(),
            requests: vec![RequestCount { protocol: "h1".to_owned(), status: 200, count: 2 }],
            grpc: [("OK".to_owned(), 1)].into(),
            ..ServiceStatus::default()
        };
        let status = SidecarStatus {
            retries: [("goaway".to_owned(), 4)].into(),
            lacks: [("files".to_owned(), 1)].into(),
            by_thread: vec![ThreadStatus::default()],
            services: vec![service],
            instances: vec![instance],
            certificates: vec![CertificateStatus::default()],
            ..SidecarStatus::default()
        };
        let text = sidecar_metrics(&status);
        let announced =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE h2lab_sidecar_")?.split_once(' '));
        let mut announced: Vec<(&str, &str)> = announced.collect();
        for (name, kind) in &announced {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            let cells: Vec<&str> = row.unwrap_or_else(|| panic!("{name} is missing")).split(" | ").collect();
            assert_eq!(&cells[2], kind, "{name}");
            let line = text.lines().find(|line| {
                line.strip_prefix("h2lab_sidecar_")
                    .and_then(|line| line.strip_prefix(*name))
                    .is_some_and(|rest| rest.starts_with(['{', ' ']) || rest.starts_with("_bucket{"))
            });
            let line = line.unwrap_or_else(|| panic!("{name} has no value"));
            let labels = line.split(['{', '}']).nth(1).unwrap_or_default();
            let labels: Vec<String> = labels
                .split("\",")
                .filter_map(|label| Some(format!("`{}`", label.split_once('=')?.0)))
                .collect();
            let told = if labels.is_empty() { "-".to_owned() } else { labels.join(", ") };
            assert_eq!(cells[1], told, "{name}");
        }
        let mut told: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        announced.sort_unstable();
        told.sort_unstable();
        assert_eq!(announced.iter().map(|(name, _)| *name).collect::<Vec<_>>(), told);
    }

    #[test]
    fn every_metric_is_announced_once_before_its_lines_and_labels_are_escaped() {
        let mut durations = Durations::default();
        durations.record(Duration::from_millis(3));
        durations.record(Duration::from_secs(100));
        let instance = |name: &str| InstanceStatus {
            service: "a\"b\\c\nd".to_owned(),
            name: name.to_owned(),
            path: Some(PathStatus { sent_per_s: 100.0, again_per_s: 3.0, ..PathStatus::default() }),
            responses: Responses { classes: [0, 1, 2, 3, 4], grpc_failed: 9 },
            malformed: 8,
            ..InstanceStatus::default()
        };
        let certificate = |subject: &str, not_after_unix_s| CertificateStatus {
            file: "a.pem".to_owned(),
            subject: subject.to_owned(),
            not_after_unix_s,
            ..CertificateStatus::default()
        };
        let status = SidecarStatus {
            retries: [("goaway".to_owned(), 4)].into(),
            lacks: [("files".to_owned(), 3)].into(),
            services: vec![ServiceStatus {
                name: "a".to_owned(),
                requests: vec![RequestCount { protocol: "h1".to_owned(), status: 200, count: 2 }],
                durations,
                grpc: [("UNAVAILABLE".to_owned(), 6)].into(),
                protection: ProtectionStatus { over_waiting: 5, ejections: 1, ..ProtectionStatus::default() },
                unresolved: vec!["no address for a.internal".to_owned()],
            }],
            instances: vec![instance("x"), InstanceStatus { is_ejected: true, ..instance("y") }],
            certificates: vec![certificate("CN=a", 300), certificate("CN=a", 200), certificate("CN=b", 100)],
            reloads: ReloadStatus {
                succeeded: 2,
                failed: 1,
                wrong: Some("why".to_owned()),
                succeeded_unix_s: 1_700_000_000,
                config_hash: (1 << 48) - 1,
            },
            version: "1.2.3".to_owned(),
            clients_limit: 500,
            clients_limit_reached: 7,
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
            "h2lab_sidecar_grpc_responses_total{service=\"a\",code=\"UNAVAILABLE\"} 6",
            "h2lab_sidecar_instance_responses_total{service=\"a\\\"b\\\\c\\nd\",instance=\"x\",code=\"5xx\"} 4",
            "h2lab_sidecar_instance_grpc_failures_total{service=\"a\\\"b\\\\c\\nd\",instance=\"x\"} 9",
            "h2lab_sidecar_responses_malformed_total{service=\"a\\\"b\\\\c\\nd\",instance=\"x\"} 8",
            "h2lab_sidecar_retries_total{reason=\"goaway\"} 4",
            "h2lab_sidecar_exhausted_total{what=\"files\"} 3",
            "h2lab_sidecar_limits_reached_total{service=\"a\",limit=\"open\"} 0",
            "h2lab_sidecar_limits_reached_total{service=\"a\",limit=\"waiting\"} 5",
            "h2lab_sidecar_certificate_not_after_timestamp_seconds{file=\"a.pem\",subject=\"CN=a\"} 200",
            "h2lab_sidecar_certificate_not_after_timestamp_seconds{file=\"a.pem\",subject=\"CN=b\"} 100",
            "h2lab_sidecar_ejections_total{service=\"a\"} 1",
            "h2lab_sidecar_clients_limit 500",
            "h2lab_sidecar_clients_limit_reached_total 7",
            "h2lab_sidecar_instances_unresolved{service=\"a\"} 1",
            "h2lab_sidecar_reloads_total{result=\"ok\"} 2",
            "h2lab_sidecar_reloads_total{result=\"failed\"} 1",
            "h2lab_sidecar_config_last_reload_successful 0",
            "h2lab_sidecar_config_last_reload_success_timestamp_seconds 1700000000",
            "h2lab_sidecar_config_hash 281474976710655",
            "h2lab_sidecar_build_info{version=\"1.2.3\"} 1",
            "h2lab_sidecar_instance_healthy{service=\"a\\\"b\\\\c\\nd\",instance=\"x\"} 1",
            "h2lab_sidecar_instance_ejected{service=\"a\\\"b\\\\c\\nd\",instance=\"y\"} 1",
            "h2lab_sidecar_loss_ratio{service=\"a\\\"b\\\\c\\nd\",instance=\"y\"} 0.03",
        ] {
            assert!(text.lines().any(|own| own == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("request_quota"), "nothing was learned");
    }
}
