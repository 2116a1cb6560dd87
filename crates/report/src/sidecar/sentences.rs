//! Sentences about a sidecar.

use std::time::Duration;

use h2lab_base::counts::{count, number, plural};
use h2lab_base::text::made_printable;
use h2lab_base::units::measured_time;
use h2lab_model::sidecar::{InstanceStatus, ServiceStatus, SidecarStatus};

/// A share below this is printed as none.
const SOME: f64 = 0.0005;
/// Fewer recent requests make no percentile.
const ENOUGH: u64 = 100;

/// Waiting is mentioned if at least one of this many requests has waited.
const MANY_WAIT: u64 = 100;

/// `2 h 5 min`, of a time since something.
pub fn since(time: Duration) -> String {
    let (hours, minutes, seconds) = (time.as_secs() / 3_600, time.as_secs() / 60 % 60, time.as_secs() % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, _) => format!("{minutes} min {seconds} s"),
        _ => format!("{hours} h {minutes} min"),
    }
}

fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

/// Its state, in one to three sentences.
pub fn answer(status: &SidecarStatus) -> Vec<String> {
    let requests: u64 = status.services.iter().map(h2lab_model::sidecar::ServiceStatus::requests).sum();
    let failed = |code: u16| code == 0 || code >= 500;
    let counts = status.services.iter().flat_map(|service| &service.requests);
    let failures: u64 = counts.filter(|one| failed(one.status)).map(|one| one.count).sum();
    let up = status.instances.iter().filter(|instance| !instance.is_down).count();
    let all = status.instances.len();
    let state = match (status.draining, all - up) {
        (true, _) => "The sidecar is shutting down".to_owned(),
        (false, 0) => format!("The sidecar forwards requests to {}", plural(all as u64, "instance")),
        (false, down) => {
            let is = if down == 1 { "is" } else { "are" };
            format!("{down} of {} {is} unreachable", plural(all as u64, "instance"))
        }
    };
    let uptime = since(Duration::from_nanos(status.uptime_ns));
    let lost = match failures {
        0 => String::new(),
        n => format!(", {} of which failed ({})", count(n), percent(n as f64 / requests.max(1) as f64)),
    };
    vec![
        format!("{state}."),
        format!(
            "{} in {uptime}{lost}; {} in progress.",
            plural(requests, "request"),
            count(status.requests_open)
        ),
    ]
}

/// An instance: `Instance h2c://10.0.0.7:8080 of users: 3.02 % of packets lost, 8 connections, p99 41.0 ms; …`.
pub fn instance(one: &InstanceStatus) -> String {
    let mut said: Vec<String> = Vec::new();
    if one.is_down {
        said.push("unreachable".to_owned());
    }
    if one.is_unhealthy {
        said.push("health checks failing".to_owned());
    }
    if one.is_ejected {
        said.push("ejected because of failures".to_owned());
    }
    if let Some(path) = &one.path {
        let loss = path.loss();
        said.push(if loss < SOME {
            "no packets lost".to_owned()
        } else {
            format!("{} of packets lost", percent(loss))
        });
        said.push(format!("RTT {}", measured_time(Duration::from_nanos(path.rtt_ns))));
    }
    said.push(plural(one.connections, "connection"));
    said.push(match one.recent_percentile(99.0) {
        Some(p99) if one.recent.n() >= ENOUGH => format!("p99 {}", measured_time(p99)),
        Some(_) => {
            let slowest = one.recent_percentile(100.0).unwrap_or_default();
            format!("slowest of the last {} {}", plural(one.recent.n(), "request"), measured_time(slowest))
        }
        None => "no recent requests".to_owned(),
    });
    if one.lately.n() >= ENOUGH && one.lately.failing() >= SOME {
        let kind = if one.lately.grpc_failed > 0 { "5xx or a gRPC failure" } else { "5xx" };
        said.push(format!("{} of responses {kind}", percent(one.lately.failing())));
    }
    let alone = alone(one).map(|words| format!("; {words}")).unwrap_or_default();
    format!("Instance {}: {}{alone}.", named(one), said.join(", "))
}

/// Two services may have an instance with the same URL.
fn named(one: &InstanceStatus) -> String {
    let service = if one.service.is_empty() { String::new() } else { format!(" of service {}", one.service) };
    format!("`{}`{service}", one.name)
}

/// What one connection would do.
fn alone(one: &InstanceStatus) -> Option<String> {
    let alone = one.alone.filter(|_| one.recent.n() > 0)?;
    Some(match alone.p99_ns {
        None => format!(
            "one connection would carry about {:.0} % of this load, with an ever longer queue (estimate)",
            alone.carries * 100.0
        ),
        Some(p99) => format!(
            "one connection would give a p99 of about {} (estimate)",
            measured_time(rounded(Duration::from_nanos(p99)))
        ),
    })
}

/// To two digits: an estimate has no more.
fn rounded(time: Duration) -> Duration {
    let ns = time.as_nanos() as f64;
    if ns < 1.0 {
        return time;
    }
    let unit = 10_f64.powf(ns.log10().floor() - 1.0);
    Duration::from_nanos(((ns / unit).round() * unit) as u64)
}

/// What protects a service has done, in sentences.
pub fn protection(service: &ServiceStatus) -> Vec<String> {
    let done = &service.protection;
    let requests = |n| plural(n, "request");
    let told: [(u64, &dyn Fn(u64) -> String); 8] = [
        (done.over_open, &|n| format!("{} refused: limits.open reached", requests(n))),
        (done.over_waiting, &|n| format!("{} refused: limits.waiting reached", requests(n))),
        (done.rate_limited, &|n| format!("{} refused: rate limit exceeded", requests(n))),
        (done.shed, &|n| format!("{} refused: memory limit reached", requests(n))),
        (done.timeouts, &|n| format!("{} timed out", requests(n))),
        (done.retries, &|n| format!("{} retried after a failure", requests(n))),
        (done.over_budget, &|n| format!("{} not retried: retry budget exhausted", requests(n))),
        (done.ejections, &|n| format!("{} of instances because of failures", plural(n, "ejection"))),
    ];
    let told = told.iter().filter(|(n, _)| *n > 0);
    told.map(|(n, words)| format!("Service `{}`: {}.", service.name, words(*n))).collect()
}

/// Clients that had to wait.
pub fn full(status: &SidecarStatus) -> Option<String> {
    let times = plural(status.clients_limit_reached, "time");
    let is_some = status.clients_limit_reached > 0;
    is_some.then(|| {
        format!(
            "The limit of client connections (`max-clients`) was reached {times}; further clients waited."
        )
    })
}

/// Which instances of a service have no address yet.
pub fn unresolved(service: &ServiceStatus) -> impl Iterator<Item = String> + '_ {
    let told = |why: &String| format!("Service `{}`: {}; retrying.", service.name, made_printable(why));
    service.unresolved.iter().map(told)
}

/// What is wrong with the file, if it was read again and not taken.
pub fn reload(status: &SidecarStatus) -> Option<String> {
    let wrong = status.reloads.wrong.as_ref()?;
    Some(format!(
        "The last reload failed; the previous configuration stays in effect: {}.",
        made_printable(wrong)
    ))
}

/// What the system ran out of, in sentences.
pub fn lacks(status: &SidecarStatus) -> impl Iterator<Item = String> + '_ {
    let some = status.lacks.iter().filter(|(_, times)| **times > 0);
    some.map(|(what, times)| {
        let words = match what.as_str() {
            "files" => "file descriptors of this process",
            "system-files" => "file descriptors of the system",
            "ports" => "local ports",
            _ => "memory for sockets",
        };
        format!("{} could not be opened or accepted: out of {words}.", plural(*times, "connection"))
    })
}

/// Which limits an instance has met, in sentences.
pub fn limits(one: &InstanceStatus) -> Vec<String> {
    let mut limits = Vec::new();
    let name = named(one);
    // Fewer waited for the first connection.
    let is_much = one.waited * MANY_WAIT >= one.requests;
    if let Some(each) = one.waited_ns.checked_div(one.waited).filter(|_| is_much) {
        let each = Duration::from_nanos(each);
        let streams =
            one.streams_allowed.map(|n| format!("; it allows {} per connection", plural(n.into(), "stream")));
        limits.push(format!(
            "{name}: {} waited for a connection or a stream, {} on average{}.",
            plural(one.waited, "request"),
            measured_time(each),
            streams.unwrap_or_default()
        ));
    }
    if let Some(quota) = one.quota {
        let next = "the sidecar opens the next one before that";
        limits.push(format!(
            "{name} closes each connection after {}; {next}.",
            plural(quota.into(), "request")
        ));
    }
    if one.refused > 0 {
        limits.push(format!("{name} has refused {}.", plural(one.refused, "stream")));
    }
    if one.malformed > 0 {
        limits.push(format!("{name} sent {}.", plural(one.malformed, "malformed response")));
    }
    if one.broken > 0 {
        let broken = plural(one.broken, "connection");
        limits.push(format!("{broken} to {name} broke with requests in progress."));
    }
    if one.dials_failed > 0 {
        let (failed, all) = (count(one.dials_failed), plural(one.dialled, "connection attempt"));
        limits.push(format!("{failed} of {all} to {name} failed."));
    }
    limits
}

#[cfg(test)]
mod tests {
    use h2lab_model::record::Histogram;
    use h2lab_model::sidecar::{Alone, PathStatus, ProtectionStatus, ReloadStatus, RequestCount, Responses};

    use super::*;

    fn lossy() -> InstanceStatus {
        InstanceStatus {
            service: "users".to_owned(),
            name: "h2c://10.0.0.7:8080".to_owned(),
            connections: 8,
            path: Some(PathStatus {
                sent_per_s: 1_000.0,
                again_per_s: 30.0,
                rtt_ns: 25_000_000,
                ..PathStatus::default()
            }),
            recent: Histogram::of((1..=200).map(|n| Duration::from_micros(n * 207))),
            alone: Some(Alone { carries: 1.0, p99_ns: Some(2_043_000_000) }),
            ..InstanceStatus::default()
        }
    }

    #[test]
    fn an_instance_is_told_with_what_one_connection_would_do() {
        assert_eq!(
            instance(&lossy()),
            "Instance `h2c://10.0.0.7:8080` of service users: 3 % of packets lost, RTT 25 ms, 8 connections, p99 41.0 ms; one connection \
             would give a p99 of about 2 s (estimate)."
        );
        let overloaded = InstanceStatus { alone: Some(Alone { carries: 0.28, p99_ns: None }), ..lossy() };
        assert!(instance(&overloaded).contains("one connection would carry about 28 % of this load"));
        let idle = InstanceStatus { recent: Histogram::default(), connections: 1, path: None, ..lossy() };
        assert_eq!(
            instance(&idle),
            "Instance `h2c://10.0.0.7:8080` of service users: 1 connection, no recent requests."
        );
        let failing = InstanceStatus {
            lately: Responses { classes: [0, 150, 0, 0, 50], grpc_failed: 0 },
            alone: None,
            ..lossy()
        };
        assert!(
            instance(&failing).ends_with("p99 41.0 ms, 25 % of responses 5xx."),
            "{}",
            instance(&failing)
        );
        let few =
            InstanceStatus { recent: Histogram::of([Duration::from_millis(5)]), alone: None, ..lossy() };
        assert!(instance(&few).ends_with("slowest of the last 1 request 5 ms."), "{}", instance(&few));
    }

    #[test]
    fn what_was_refused_and_left_out_is_told_of_its_service() {
        assert!(protection(&ServiceStatus::default()).is_empty());
        let done = ProtectionStatus { rate_limited: 1, ejections: 2, ..ProtectionStatus::default() };
        let service =
            ServiceStatus { name: "users".to_owned(), protection: done, ..ServiceStatus::default() };
        assert_eq!(
            protection(&service),
            [
                "Service `users`: 1 request refused: rate limit exceeded.",
                "Service `users`: 2 ejections of instances because of failures.",
            ]
        );
        let out = InstanceStatus { is_ejected: true, is_unhealthy: true, ..lossy() };
        assert!(instance(&out).contains("health checks failing, ejected because of failures"));
    }

    #[test]
    fn a_healthy_instance_has_met_no_limit() {
        assert!(limits(&lossy()).is_empty());
        let met = InstanceStatus {
            waited: 10,
            waited_ns: 50_000_000,
            streams_allowed: Some(20),
            quota: Some(137),
            refused: 3,
            malformed: 2,
            broken: 1,
            dialled: 4,
            dials_failed: 2,
            ..lossy()
        };
        let said = limits(&met);
        assert_eq!(said.len(), 6, "{said:?}");
        assert!(said[3].ends_with("sent 2 malformed responses."), "{said:?}");
        assert!(said[0].ends_with("10 requests waited for a connection or a stream, 5 ms on average; it allows 20 streams per connection."), "{said:?}");
        assert!(said[1].contains("after 137 requests"), "{said:?}");
        assert!(said.iter().all(|line| line.contains("`h2c://10.0.0.7:8080` of service users")), "{said:?}");
    }

    #[test]
    fn the_answer_counts_what_failed_and_who_is_down() {
        let requests = [(200, 90), (503, 9), (0, 1), (404, 100)];
        let requests =
            requests.map(|(status, count)| RequestCount { protocol: "h1".to_owned(), status, count });
        let down = InstanceStatus { is_down: true, ..lossy() };
        let status = SidecarStatus {
            uptime_ns: 7_500_000_000_000,
            services: vec![ServiceStatus { requests: requests.into(), ..ServiceStatus::default() }],
            instances: vec![lossy(), down],
            ..SidecarStatus::default()
        };
        let said = answer(&status);
        assert_eq!(said[0], "1 of 2 instances is unreachable.");
        assert_eq!((reload(&status), full(&status)), (None, None));
        let told = full(&SidecarStatus { clients_limit_reached: 2, ..SidecarStatus::default() });
        assert!(told.expect("they had").contains("was reached 2 times"));
        let reloads = ReloadStatus { wrong: Some("a.toml: no \u{1b}".to_owned()), ..ReloadStatus::default() };
        let told = reload(&SidecarStatus { reloads, ..SidecarStatus::default() }).expect("it failed");
        assert!(told.contains("stays in effect: a.toml: no ") && !told.contains('\u{1b}'), "{told}");
        assert!(said[1].starts_with("200 requests in 2 h 5 min, 10 of which failed (5 %)"), "{said:?}");
    }
}
