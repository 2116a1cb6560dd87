//! What is left to do before a service is used over h2c: the points of a checklist, from the checks that decide them.

use super::{Check, ChecklistItem, Mark, Verdict};

/// A point: what is to be settled, the checks that settle it, and its text when they do.
struct Point {
    item: &'static str,
    checks: &'static [&'static str],
    /// This many of them, from the first on, must have been made.
    needed: usize,
    settled: &'static str,
}

/// The points, in the order in which they are to be settled.
const POINTS: [Point; 7] = [
    Point {
        item: "limit request bodies, on an upgrade too",
        checks: &["LIMT107", "MIGR107", "MIGR109"],
        needed: 1,
        settled: "longer ones are refused, or not read to the end",
    },
    Point {
        item: "check the additional interfaces",
        checks: &["PROT105", "PROT107"],
        needed: 2,
        settled: "the port has no entry to HTTP/2 beyond RFC 9113",
    },
    Point {
        item: "check that the gateway stops h2c smuggling",
        checks: &["PROT105"],
        needed: 1,
        settled: "this server does not upgrade, so there is nothing to tunnel to",
    },
    Point {
        item: "keep large responses on few requests on HTTP/1.1",
        checks: &["MIGR108"],
        needed: 1,
        settled: "responses of this path are not large",
    },
    Point {
        item: "the same responses over HTTP/1.1 and HTTP/2",
        checks: &["MIGR101", "MIGR103", "MIGR104", "MIGR106"],
        needed: 2,
        settled: "no difference was seen",
    },
    Point {
        item: "do not rely on the connection",
        checks: &["MIGR102", "MIGR105"],
        needed: 2,
        settled: "no forbidden fields, no connection taken over by another protocol",
    },
    Point {
        item: "connections that last",
        checks: &["LIMT101", "LIMT104"],
        needed: 2,
        settled: "no request quota reached, and streams are served as announced",
    },
];

/// The checklist that follows from `checks`. A point with undecided checks stays open.
pub fn checklist(checks: &[Check]) -> Vec<ChecklistItem> {
    POINTS.iter().map(|point| settle(point, checks)).collect()
}

fn settle(point: &Point, checks: &[Check]) -> ChecklistItem {
    let its: Vec<&Check> = checks.iter().filter(|check| point.checks.contains(&check.id.as_str())).collect();
    let upgrades = its.iter().find(|check| check.id == "PROT105" && check.verdict == Verdict::Pass);
    let failed = its.iter().find(|check| check.verdict == Verdict::Fail);
    let open = its.iter().find(|check| check.verdict == Verdict::Undecided);
    let is_made = |id: &&&str| its.iter().any(|check| check.id == **id);
    let missing = point.checks.iter().take(point.needed).find(|id| !is_made(id));
    let is_smuggling = point.checks == ["PROT105"];
    let (mark, why) = match (upgrades, failed, open) {
        (Some(_), ..) if is_smuggling => (
            Mark::Open,
            "this server upgrades to h2c: `h2lab probe smuggling` shows whether the proxy before it forwards that".to_owned(),
        ),
        (.., Some(check)) if is_smuggling => {
            (Mark::Open, format!("{}; `h2lab probe smuggling` shows more about a proxy", check.summary))
        }
        (Some(_), ..) => {
            (Mark::Crossed, "it upgrades to h2c, which RFC 9113 removed: disable it unless it is used".to_owned())
        }
        (_, Some(check), _) => (Mark::Crossed, check.summary.clone()),
        (.., Some(check)) => (Mark::Open, check.summary.clone()),
        _ if missing.is_some() => (Mark::Open, "not all of it could be checked here".to_owned()),
        _ => (Mark::Ticked, point.settled.to_owned()),
    };
    ChecklistItem {
        item: point.item.to_owned(),
        mark,
        why,
        checks: point.checks.iter().map(|id| (*id).to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{CheckMeta, explain, id};

    fn marks(checks: &[(&CheckMeta, Verdict)]) -> Vec<Mark> {
        let checks: Vec<Check> =
            checks.iter().map(|(meta, verdict)| Check::new(meta, *verdict, "so it is")).collect();
        checklist(&checks).into_iter().map(|item| item.mark).collect()
    }

    #[test]
    fn every_point_rests_on_checks_that_there_are() {
        for id in POINTS.iter().flat_map(|point| point.checks) {
            assert!(explain(id).is_some(), "{id}");
        }
    }

    #[test]
    fn a_point_is_ticked_crossed_or_open_as_its_checks_are() {
        use Mark::{Crossed, Open, Ticked};
        assert_eq!(marks(&[]), [Open; 7]);
        let upgrade = marks(&[(id::PROT105, Verdict::Pass)]);
        assert_eq!(upgrade[1..3], [Crossed, Open]);
        let half = marks(&[(id::PROT105, Verdict::Ignored), (id::LIMT107, Verdict::Fail)]);
        assert_eq!(half[..3], [Crossed, Open, Ticked]);
        let whole = marks(&[(id::PROT105, Verdict::Ignored), (id::PROT107, Verdict::Pass)]);
        assert_eq!(whole[1], Ticked);
        let unknown = checklist(&[Check::new(id::PROT105, Verdict::Undecided, "silence")]);
        assert!(unknown[2].mark == Open && unknown[2].why.contains("probe smuggling"), "{:?}", unknown[2]);
        let quota = marks(&[(id::LIMT101, Verdict::Fail), (id::LIMT103, Verdict::Undecided)]);
        assert_eq!(quota[6], Crossed);
    }
}
