//! CONN101: the server ends each connection after a fixed number of requests.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::diagnose::{Confidence, Evidence, Finding, Fix, Rule, RuleMeta, Status, Visit};
use crate::record::{Outcome, Sample};
use crate::scenario::Cell;
use crate::trace::ServerEnd;
use crate::units::{format_duration, millis_f64};

const META: RuleMeta = RuleMeta {
    id: "CONN101",
    name: "request-quota-per-connection",
    status: Status::Stable,
    since: "0.1.0",
    doc: include_str!("doc.md"),
};

/// The rule.
#[derive(Debug)]
pub(super) struct RequestQuota;

impl Rule for RequestQuota {
    fn meta(&self) -> &'static RuleMeta {
        &META
    }

    fn check(&self, visits: &[Visit<'_>]) -> Option<Finding> {
        let quota = quota(visits)?;
        let cost = Cost::of(visits);
        let cell = &visits.first()?.record.cell;
        let mut connections = visits.iter().flat_map(|visit| &visit.record.connections);
        let software = connections.find_map(|connection| connection.server_software.as_deref());
        let (first, requests, ended) = (quota.first, quota.requests, quota.agreeing);
        let how = if first.goaway { "GOAWAY" } else { "closing" };
        Some(Finding {
            rule: META.id.to_owned(),
            name: META.name.to_owned(),
            cell: cell.index,
            label: visits.first()?.label.to_owned(),
            symptom: format!(
                "the server ended {ended} connections by {how} after exactly {requests} requests each; {} were opened",
                cost.opened
            ),
            evidence: vec![
                evidence(
                    "requests after which the server ended a connection",
                    requests.into(),
                    "requests",
                    Some(first),
                ),
                evidence("connections that it ended after just as many", ended as f64, "connections", None),
                evidence("connections that it ended in all", quota.ends as f64, "connections", None),
                evidence("connections opened", cost.opened as f64, "connections", None),
                evidence("requests that waited for a new connection", cost.waited as f64, "requests", None),
                evidence("their waiting time", millis_f64(cost.waiting), "ms", None),
            ],
            cost: cost.sentence(),
            cost_share: cost.share(),
            confidence: Confidence::Observed,
            fixes: fixes(software, requests, first.goaway),
            confirm: confirm(cell, requests),
        })
    }
}

fn evidence(what: &str, value: f64, unit: &str, seen: Option<&ServerEnd>) -> Evidence {
    Evidence {
        what: what.to_owned(),
        value,
        unit: unit.to_owned(),
        connection: seen.map(|end| end.connection),
        at: seen.map(|end| end.at),
    }
}

/// A number of requests after which connections end.
struct Quota<'a> {
    requests: u32,
    /// Connections that ended after just as many.
    agreeing: usize,
    /// Connections that the server ended in all.
    ends: usize,
    /// One of them.
    first: &'a ServerEnd,
}

/// The quota, if there is one: two or more connections ended after the same number of requests, and they are more than
/// half of those that the server ended. A reload or a maximum age ends connections wherever they happen to be. A
/// "quota" of one request is a server that does not keep connections at all, which is another matter.
fn quota<'a>(visits: &'a [Visit<'_>]) -> Option<Quota<'a>> {
    let ends: Vec<&ServerEnd> = visits.iter().flat_map(|visit| &visit.facts.ends).collect();
    let mut by_requests: BTreeMap<u32, Vec<&ServerEnd>> = BTreeMap::new();
    for end in &ends {
        by_requests.entry(end.requests).or_default().push(end);
    }
    let (requests, agreeing) = by_requests.into_iter().max_by_key(|(_, agreeing)| agreeing.len())?;
    let is_quota = requests >= 2 && agreeing.len() >= 2 && agreeing.len() * 2 > ends.len();
    is_quota.then(|| Quota { requests, agreeing: agreeing.len(), ends: ends.len(), first: agreeing[0] })
}

/// What the ends of connections cost.
#[derive(Debug, Default)]
struct Cost {
    opened: usize,
    replayed: usize,
    lost: usize,
    waited: usize,
    waiting: Duration,
    all: Duration,
}

impl Cost {
    fn of(visits: &[Visit<'_>]) -> Self {
        let mut cost = Self::default();
        for visit in visits {
            cost.opened += visit.record.connections.len();
            for sample in &visit.record.samples {
                cost.all += sample.response_time();
                cost.replayed += usize::from(sample.replays > 0);
                cost.lost += usize::from(is_lost(visit, sample));
                if waited(visit, sample) {
                    cost.waited += 1;
                    cost.waiting += Duration::from_nanos(sample.stall_open_ns);
                }
            }
        }
        cost
    }

    fn sentence(&self) -> String {
        let each = self.waiting / u32::try_from(self.waited).unwrap_or(u32::MAX).max(1);
        format!(
            "{} connections opened; {} requests sent again, {} lost; {} waited {} each on average for a new connection \
             ({:.1} % of all response time)",
            self.opened,
            self.replayed,
            self.lost,
            self.waited,
            format_duration(each),
            self.share() * 100.0
        )
    }

    fn share(&self) -> f64 {
        (self.waiting.as_secs_f64() / self.all.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0)
    }
}

/// Whether a request failed because the server ended its connection.
fn is_lost(visit: &Visit<'_>, sample: &Sample) -> bool {
    matches!(sample.outcome, Outcome::GoAway | Outcome::Refused | Outcome::Closed)
        && visit.facts.ends.iter().any(|end| end.connection == sample.connection)
}

/// Whether a request waited for a connection when one had just ended: until the next is ready.
fn waited(visit: &Visit<'_>, sample: &Sample) -> bool {
    let handshakes = visit.record.connections.iter().filter(|connection| connection.ready_at.happened());
    let longest = handshakes
        .map(|connection| connection.ready_at.since(connection.dialled_at))
        .max()
        .unwrap_or_default();
    let sent_at = sample.sent_at.min(sample.completed_at);
    sample.stall_open_ns > 0
        && visit.facts.ends.iter().any(|end| sample.scheduled_at <= end.at + longest && end.at <= sent_at)
}

/// How a server that we recognise limits the requests of a connection.
struct Product {
    /// As it names itself, in lower case.
    marker: &'static str,
    name: &'static str,
    /// The setting over HTTP/2 and over HTTP/1.1, where there is one.
    h2: Option<&'static str>,
    h1: Option<&'static str>,
    why: &'static str,
}

const NGINX: &str = "requests on one connection before nginx ends it, 1000 by default; streams count as requests. The \
                     limit lets memory that is bound to a connection go: raise it, do not remove it";

/// Only settings that were checked against the product. Of h2o and Caddy none is known.
const PRODUCTS: &[Product] = &[
    Product {
        marker: "nginx",
        name: "nginx",
        h2: Some("keepalive_requests 100000;"),
        h1: Some("keepalive_requests 100000;"),
        why: NGINX,
    },
    Product {
        marker: "openresty",
        name: "OpenResty",
        h2: Some("keepalive_requests 100000;"),
        h1: Some("keepalive_requests 100000;"),
        why: NGINX,
    },
    Product {
        marker: "envoy",
        name: "Envoy",
        h2: Some("max_requests_per_connection"),
        h1: Some("max_requests_per_connection"),
        why: "unlimited unless set: raise or remove it",
    },
    Product {
        marker: "haproxy",
        name: "HAProxy",
        h2: Some("tune.h2.fe.max-total-streams"),
        h1: None,
        why: "3.1 and later; unlimited unless set: raise or remove it",
    },
    Product {
        marker: "apache",
        name: "Apache",
        h2: None,
        h1: Some("MaxKeepAliveRequests 0"),
        why: "100 by default; 0 is unlimited",
    },
    Product {
        marker: "h2lab",
        name: "h2lab origin",
        h2: Some("--max-requests-per-connection"),
        h1: Some("--max-requests-per-connection"),
        why: "unlimited unless given: raise or remove it",
    },
    Product { marker: "h2o", name: "h2o", h2: None, h1: None, why: "" },
    Product { marker: "caddy", name: "Caddy", h2: None, h1: None, why: "" },
];

/// What to change: the server's limit, by its name if we know it, and how the client takes it.
fn fixes(software: Option<&str>, requests: u32, goaway: bool) -> Vec<Fix> {
    let named = software.unwrap_or_default().to_ascii_lowercase();
    let product = PRODUCTS.iter().find(|product| named.contains(product.marker));
    let setting = product.and_then(|product| if goaway { product.h2 } else { product.h1 });
    let server = match (product, setting) {
        (Some(product), Some(setting)) => {
            Fix { product: product.name.to_owned(), setting: setting.to_owned(), why: product.why.to_owned() }
        }
        _ => Fix {
            product: product
                .map_or_else(|| software.unwrap_or("server").to_owned(), |product| product.name.to_owned()),
            setting: "unknown".to_owned(),
            why: format!(
                "we know of no setting of this server that limits the requests of a connection; look in its manual, and \
                 in that of a proxy in front of it, for a limit of {requests}"
            ),
        },
    };
    let client = Fix {
        product: "client".to_owned(),
        setting: "more connections (-c), and send again what a GOAWAY left unprocessed".to_owned(),
        why: "connections then end one after another, and no request is lost or waits for the only one"
            .to_owned(),
    };
    vec![server, client]
}

/// The experiment that must make the ends disappear.
fn confirm(cell: &Cell, requests: u32) -> String {
    format!(
        "raise the limit of {requests} requests on {} and run the same cell again: connections opened must fall to the \
         {} that were asked for",
        cell.target.name(),
        cell.connections
    )
}
