//! A running sidecar, observed at its own connections to instances: what findings mean there.
//!
//! Nothing is compared, packets are not visible, and the client in the rules is the sidecar: what a client could
//! change, it changes automatically or by its configuration.

use std::time::Duration;

use h2lab_base::counters::TcpSummary;
use h2lab_base::counts::{count, number, plural};
use h2lab_base::units::measured_time;
use h2lab_model::Fix;
use h2lab_model::record::CellRecord;
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise};
use h2lab_model::sidecar::{InstanceStatus, Responses, SidecarStatus};

use super::Finding;

/// The causes that are visible from its requests, connections, frames and readings of TCP. Others need packets, a view
/// of the server or of a CPU, or another client than the sidecar.
pub const CHECKED: [&str; 8] =
    ["CONN101", "FLOW101", "FLOW102", "FLOW103", "FLOW106", "FLOW108", "LOSS101", "MUX101"];

/// What is needed for the others, in a sentence.
pub const NOT_CHECKED: &str = "Not looked for: causes that take the packets of both directions (`h2lab diagnose capture.pcapng`), a \
     comparison (`h2lab diagnose URL`), or a view of the instance's own host. A packet that is lost on the way from an instance is not \
     seen here, only one on the way to it.";

/// The product that the settings of a sidecar belong to.
const OURS: &str = "h2lab sidecar";

/// With fewer responses of an instance, the share that fails is not meaningful.
const ENOUGH: u64 = 20;
/// A smaller share of failures is not reported.
const SOME: f64 = 0.02;
/// At most this many instances are reported.
const MOST: usize = 5;

/// Instances that answer many requests with a failure, the worst first: 5xx, or a failure in terms of gRPC. Covers the
/// last half minute to a minute.
pub fn failing(status: &SidecarStatus) -> Vec<String> {
    let fails = |one: &&InstanceStatus| one.lately.n() >= ENOUGH && one.lately.failing() >= SOME;
    let mut worst: Vec<&InstanceStatus> = status.instances.iter().filter(fails).collect();
    worst.sort_by(|a, b| b.lately.failing().total_cmp(&a.lately.failing()));
    let told = worst.iter().take(MOST).map(|one| {
        let others =
            status.instances.iter().filter(|other| other.service == one.service && other.name != one.name);
        let mut rest = Responses::default();
        others.for_each(|other| rest.add(&other.lately));
        let rest = match rest.n() {
            0 => String::new(),
            _ => format!("; the others fail {} %", number(rest.failing() * 100.0)),
        };
        let kind = match (one.lately.classes[4], one.lately.grpc_failed) {
            (_, 0) => "5xx",
            (0, _) => "a gRPC failure",
            _ => "5xx or a gRPC failure",
        };
        format!(
            "instance {} of service {} answers {} % of its requests with {kind} ({} of {}){rest}",
            one.name,
            one.service,
            number(one.lately.failing() * 100.0),
            count(one.lately.failed()),
            count(one.lately.n())
        )
    });
    told.collect()
}

/// How a sidecar's connections to an instance are configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Own {
    /// The sidecar decides by itself how many there are.
    pub adapts: bool,
    /// Their congestion control is bbr.
    pub is_bbr: bool,
}

/// Findings in a form that a sidecar's user can apply. `own`: the configuration for the instance of this cell.
pub fn of_sidecar(findings: Vec<Finding>, own: &dyn Fn(u32) -> Own) -> Vec<Finding> {
    let is_checked = |finding: &Finding| CHECKED.contains(&finding.rule.as_str());
    let fixed = |mut finding: Finding| {
        let of_cell = own(finding.cell);
        finding.fixes = finding.fixes.into_iter().filter_map(|fix| of_own(fix, of_cell)).collect();
        finding
    };
    findings.into_iter().filter(is_checked).map(fixed).collect()
}

/// Fewer lost segments, or a smaller share of all, may be the normal variation of a path.
const LEAST_LOST: u64 = 10;
const LEAST_SHARE: f64 = 0.005;

/// What TCP reports of the path to each instance where it loses segments. This is a fact beside the findings, since it
/// may hardly slow requests down. It covers the whole time of each connection of the window. `own` as in
/// [`of_sidecar`].
pub fn losses(records: &[CellRecord], own: &dyn Fn(u32) -> Own) -> Vec<String> {
    // Each thread of the sidecar has its own record for an instance.
    let mut names: Vec<&str> = records.iter().map(|record| record.cell.target.name()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().filter_map(|name| loss(name, records, own)).take(MOST).collect()
}

fn loss(name: &str, records: &[CellRecord], own: &dyn Fn(u32) -> Own) -> Option<String> {
    let of_it: Vec<&CellRecord> = records.iter().filter(|record| record.cell.target.name() == name).collect();
    let connections = of_it.iter().flat_map(|record| &record.connections);
    let ends: Vec<&TcpSummary> = connections.filter_map(|one| one.tcp_client.as_ref()).collect();
    let lost: u64 = ends.iter().map(|end| u64::from(end.lost())).sum();
    let all: u64 = ends.iter().map(|end| u64::from(end.segments_out)).sum();
    let share = lost as f64 / all.max(1) as f64;
    if lost < LEAST_LOST || share < LEAST_SHARE {
        return None;
    }
    let rtt = ends.iter().map(|end| end.min_rtt_us).filter(|rtt| *rtt > 0).min()?;
    let may_adapt =
        of_it.iter().any(|record| record.cell.protocol.is_multiplexed() && !own(record.cell.index).adapts);
    let advice = if may_adapt {
        format!("; {} opens as many connections as such a path needs", own_line(Knob::UpstreamConnections))
    } else {
        String::new()
    };
    Some(format!(
        "{:.1} % of the segments to {name} were lost ({} of {} on {}), RTT {}{advice}",
        share * 100.0,
        count(lost),
        count(all),
        plural(ends.len() as u64, "connection"),
        measured_time(Duration::from_micros(rtt.into())),
    ))
}

/// The line of the sidecar's configuration for what it does towards instances.
fn own_line(knob: Knob) -> String {
    advise(&Peer::started("h2lab"), Wish { knob, role: Role::Back, value: None }).setting
}

/// Turns a fix for the client into one of the sidecar's configuration, or none.
fn of_own(fix: Fix, own: Own) -> Option<Fix> {
    let wish = match fix.wish {
        Some(wish) if wish.role == Role::Client => wish,
        _ if fix.product == "client" => return None, // the sidecar already sends again, and dials once
        _ if fix.product == "kernel" && own.is_bbr => return None,
        _ if fix.product == "kernel" => {
            return Some(Fix::new(OURS, &own_line(Knob::CongestionControl), fix.why));
        }
        _ => return Some(fix),
    };
    match wish.knob {
        Knob::UpstreamConnections if own.adapts => None,
        Knob::UpstreamConnections | Knob::UpstreamProtocol => {
            Some(Fix::new(OURS, &own_line(wish.knob), fix.why))
        }
        // The sidecar's windows grow with the path.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::Scene;
    use crate::diagnose::{cause, run};

    #[test]
    fn what_is_checked_has_a_rule() {
        for id in CHECKED {
            assert!(cause(id).is_some_and(|cause| cause.rule().is_some()), "{id}");
        }
        assert!(CHECKED.is_sorted());
    }

    #[test]
    fn fixes_are_those_of_the_sidecars_own_file() {
        let record = Scene::with_shared_stall().record();
        let fixes = |is_so: bool| -> Vec<String> {
            let own = Own { adapts: is_so, is_bbr: is_so };
            let findings = of_sidecar(run(std::slice::from_ref(&record)), &|_| own);
            assert_eq!(findings.len(), 1, "LOSS101");
            findings[0].fixes.iter().map(|fix| format!("{}: {}", fix.product, fix.setting)).collect()
        };
        let plain = fixes(false);
        assert_eq!(plain[0], "h2lab sidecar: policy = \"adaptive\"", "{plain:?}");
        assert!(plain.iter().all(|fix| !fix.starts_with("client")), "{plain:?}");
        assert!(plain.contains(&"h2lab sidecar: congestion = \"bbr\"".to_owned()), "{plain:?}");
        let adapting = fixes(true);
        assert!(adapting.iter().all(|fix| !fix.contains("adaptive") && !fix.contains("bbr")), "{adapting:?}");
    }

    #[test]
    fn an_instance_that_fails_is_told_beside_the_others() {
        let instance = |name: &str, good: u64, bad: u64, grpc_failed: u64| InstanceStatus {
            service: "users".to_owned(),
            name: name.to_owned(),
            lately: Responses { classes: [0, good, 0, 0, bad], grpc_failed },
            ..InstanceStatus::default()
        };
        let told = |instances: Vec<InstanceStatus>| {
            failing(&SidecarStatus { instances, ..SidecarStatus::default() })
        };
        assert_eq!(
            told(vec![instance("a", 600, 0, 0), instance("b", 60, 40, 0), instance("c", 400, 0, 0)]),
            [
                "instance b of service users answers 40 % of its requests with 5xx (40 of 100); the others fail 0 %"
            ]
        );
        assert_eq!(
            told(vec![instance("a", 100, 0, 50)]),
            ["instance a of service users answers 50 % of its requests with a gRPC failure (50 of 100)"]
        );
        assert!(told(vec![instance("a", 0, 19, 0), instance("b", 99, 1, 0)]).is_empty(), "too few");
        let many: Vec<InstanceStatus> = (0..40).map(|n| instance(&n.to_string(), 50, 50 + n, 0)).collect();
        let told = told(many);
        assert!(told.len() == 5 && told[0].starts_with("instance 39 "), "{told:?}");
    }

    #[test]
    fn a_path_that_loses_segments_is_told_once_whatever_that_costs_and_however_many_threads_there_are() {
        let record = |lost: u32, all: u32| {
            let mut record = Scene::with_shared_stall().record();
            let end = TcpSummary {
                retransmits: lost + 30,
                spurious: 30, // had arrived
                segments_out: all,
                min_rtt_us: 25_100,
                ..TcpSummary::default()
            };
            record.connections.truncate(1);
            record.connections[0].tcp_client = Some(end);
            record
        };
        let said = |records: &[CellRecord], adapts: bool| losses(records, &|_| Own { adapts, is_bbr: false });
        let of_two = [record(40, 1_000), record(9, 580)];
        let [fixed, adapting] = [false, true].map(|adapts| said(&of_two, adapts));
        assert_eq!(fixed.len(), 1, "{fixed:?}");
        assert!(fixed[0].starts_with("3.1 % of the segments to "), "{fixed:?}");
        assert!(fixed[0].contains("(49 of 1,580 on 2 connections), RTT 25.1 ms;"), "{fixed:?}");
        assert!(fixed[0].contains("adaptive") && !adapting[0].contains("adaptive"), "{adapting:?}");
        let few = [record(9, 300), record(40, 10_000)].map(|record| said(&[record], false).len());
        assert_eq!(few, [0, 0]);
    }

    #[test]
    fn other_causes_are_left_out() {
        let other = Finding { rule: "HOST102".to_owned(), ..Finding::default() };
        assert!(of_sidecar(vec![other], &|_| Own::default()).is_empty());
    }
}
