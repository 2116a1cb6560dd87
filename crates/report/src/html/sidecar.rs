//! The page of a sidecar for people: how it is, its instances in sentences, what has happened, the last errors.

use std::time::Duration;

use h2lab_base::counts::{count, plural};
use h2lab_base::text::made_printable;
use h2lab_base::units::{format_bytes, measured_time};
use h2lab_model::sidecar::{BOUNDS, CertificateStatus, InstanceStatus, ServiceStatus, SidecarStatus};

use super::{Section, Shell, parts};
use crate::sidecar::{answer, full, instance, lacks, limits, protection, reload, since, unresolved};

/// The page; `address` is where the admin listener is reached.
pub fn sidecar_page(status: &SidecarStatus, address: &str) -> String {
    let none = |words: &str| format!("<p>{words}</p>");
    let sentences: Vec<String> = status.instances.iter().map(instance).collect();
    let done = status.services.iter().flat_map(protection);
    let met: Vec<String> = full(status)
        .into_iter()
        .chain(lacks(status))
        .chain(done)
        .chain(status.instances.iter().flat_map(limits))
        .collect();
    let errors: Vec<String> = status.errors.iter().map(error).collect();
    let expiring = status.certificates.iter().filter_map(CertificateStatus::warning).map(|words| words + ".");
    let nameless = status.services.iter().flat_map(unresolved);
    let list = |items: &[String]| parts::list(items, items.len(), "");
    let mut sections = vec![
        Section::new("instances", "Instances", list(&sentences) + &parts::table(&instances(status))),
        Section::new("connections", "Connections to instances", parts::table(&connections(status))),
        Section::new("services", "Services", parts::table(&services(status))),
        Section::new(
            "events",
            "Events",
            if met.is_empty() { none("None since the start.") } else { list(&met) },
        ),
        Section::new(
            "errors",
            "Last errors",
            if errors.is_empty() { none("None since the start.") } else { list(&errors) },
        ),
        Section::new("process", "Process", parts::lines(&process(status))),
    ];
    if !status.certificates.is_empty() {
        let table = parts::table(&certificates(status));
        sections.insert(sections.len() - 1, Section::new("certificates", "Certificates", table));
    }
    Shell {
        kind: "sidecar".to_owned(),
        answer: answer(status).into_iter().chain(reload(status)).chain(nameless).chain(expiring).collect(),
        notes: vec![
            "Counters since the start; response times of the last 30 to 60 seconds; packet loss of the last ten seconds with traffic. Estimates come \
             from the model that chooses the number of connections. Reload the page for current values; for programs: `/metrics`, \
             `/status`, `/config`, `/healthz`, `/ready`."
                .to_owned(),
            format!("To find out what slows requests down: `h2lab diagnose --sidecar http://{address}`"),
        ],
        sections,
        is_live: true,
        ..Shell::default()
    }
    .render()
}

/// Columns, and rows of them.
type Table = (Vec<(&'static str, &'static str)>, Vec<Vec<String>>);

/// The requests that instances get, and how quickly they answer.
fn instances(status: &SidecarStatus) -> Table {
    let columns = [
        "service", "instance", "protocol", "requests", "2xx, 3xx", "4xx", "5xx", "open", "waiting", "p50",
        "p99",
    ];
    let row = |one: &InstanceStatus| {
        let percentile = |p| one.recent_percentile(p).map_or_else(|| "-".to_owned(), measured_time);
        vec![
            one.service.clone(),
            one.name.clone(),
            one.protocol.clone(),
            count(one.requests),
            count(one.responses.classes[..3].iter().sum()),
            count(one.responses.classes[3]),
            count(one.responses.classes[4]),
            count(one.open),
            count(one.waiting),
            percentile(50.0),
            percentile(99.0),
        ]
    };
    (columns.map(|name| (name, "")).to_vec(), status.instances.iter().map(row).collect())
}

/// The connections to instances.
fn connections(status: &SidecarStatus) -> Table {
    let columns = vec![
        ("service", ""),
        ("instance", ""),
        ("policy", ""),
        ("open", ""),
        ("loss", "%"),
        ("RTT", ""),
        ("window", "segments"),
        ("GOAWAYs", ""),
    ];
    let row = |one: &InstanceStatus| {
        let path = |of: &dyn Fn(&h2lab_model::sidecar::PathStatus) -> String| {
            one.path.as_ref().map_or_else(|| "-".to_owned(), of)
        };
        vec![
            one.service.clone(),
            one.name.clone(),
            one.policy.clone(),
            count(one.connections),
            path(&|path| format!("{:.2}", path.loss() * 100.0)),
            path(&|path| measured_time(Duration::from_nanos(path.rtt_ns))),
            path(&|path| format!("{:.0}", path.window)),
            count(one.goaways),
        ]
    };
    (columns, status.instances.iter().map(row).collect())
}

fn certificates(status: &SidecarStatus) -> Table {
    let row = |one: &CertificateStatus| vec![one.file.clone(), one.subject.clone(), one.until()];
    let columns = ["file", "subject", "valid until"];
    (columns.map(|name| (name, "")).to_vec(), status.certificates.iter().map(row).collect())
}

fn services(status: &SidecarStatus) -> Table {
    let columns = vec![
        ("service", ""),
        ("requests", ""),
        ("2xx, 3xx", ""),
        ("4xx", ""),
        ("5xx", ""),
        ("no response", ""),
        ("p50 ≤", ""),
        ("p99 ≤", ""),
    ];
    let row = |one: &ServiceStatus| {
        let of = |is_of: &dyn Fn(u16) -> bool| {
            let counted = one.requests.iter().filter(|count| is_of(count.status));
            count(counted.map(|count| count.count).sum())
        };
        let name = if one.name.is_empty() { "(no route)" } else { &one.name };
        vec![
            name.to_owned(),
            count(one.requests()),
            of(&|status| (100..400).contains(&status)),
            of(&|status| (400..500).contains(&status)),
            of(&|status| status >= 500),
            of(&|status| status == 0),
            within(one, 0.5),
            within(one, 0.99),
        ]
    };
    (columns, status.services.iter().map(row).collect())
}

/// The bound within which this share of the requests was passed on.
fn within(service: &ServiceStatus, share: f64) -> String {
    let n = service.durations.n();
    let mut so_far = 0;
    for ((ns, _), counted) in BOUNDS.iter().zip(&service.durations.counts) {
        so_far += counted;
        if n > 0 && so_far as f64 >= n as f64 * share {
            return measured_time(Duration::from_nanos(*ns));
        }
    }
    if n == 0 { "-".to_owned() } else { "> 60 s".to_owned() }
}

fn error(error: &h2lab_model::sidecar::LastError) -> String {
    let ago = since(Duration::from_nanos(error.ago_ns));
    let status = if error.status == 0 { String::new() } else { format!(", answered {}", error.status) };
    let of = if error.service.is_empty() { String::new() } else { format!("{}: ", error.service) };
    let times = if error.times > 1 { format!(" ({} times)", count(error.times)) } else { String::new() };
    format!("{ago} ago{times}: {of}{}{status}", made_printable(&error.what))
}

fn process(status: &SidecarStatus) -> Vec<(String, String)> {
    let line = |name: &str, value: String| (name.to_owned(), value);
    let again: u64 = status.retries.values().sum();
    let reasons: Vec<String> = status
        .retries
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(reason, n)| format!("{reason} {}", count(*n)))
        .collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
    let mut lines = vec![
        line("uptime", since(Duration::from_nanos(status.uptime_ns))),
        line("version", status.version.clone()),
        line(
            "memory",
            if status.memory_bytes == 0 { "unknown".to_owned() } else { format_bytes(status.memory_bytes) },
        ),
        line("threads", count(status.threads.into())),
        line(
            "clients",
            format!(
                "{} open (limit {}), {} in total",
                plural(status.clients_open, "connection"),
                count(status.clients_limit),
                count(status.clients_accepted)
            ),
        ),
        line("retries", format!("{}{reasons}", count(again))),
    ];
    if status.log_lines_dropped > 0 {
        lines.push(line(
            "access log",
            format!("{} lost: it cannot be written fast enough", plural(status.log_lines_dropped, "line")),
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use h2lab_model::sidecar::{LastError, RequestCount};

    use super::super::tests::assert_sound;
    use super::*;

    #[test]
    fn the_page_says_how_it_is_and_what_peers_say_is_no_markup() {
        let mut service = ServiceStatus {
            name: "users".to_owned(),
            requests: vec![RequestCount { protocol: "h1".to_owned(), status: 200, count: 3 }],
            ..ServiceStatus::default()
        };
        for ms in [1, 1, 400] {
            service.durations.record(Duration::from_millis(ms));
        }
        let status = SidecarStatus {
            services: vec![service, ServiceStatus::default()],
            instances: vec![InstanceStatus {
                name: "h2c:1".to_owned(),
                connections: 1,
                ..InstanceStatus::default()
            }],
            errors: vec![LastError {
                ago_ns: 5_000_000_000,
                status: 502,
                what: "<script>alert(1)</script>\u{202e}".to_owned(),
                times: 2,
                ..LastError::default()
            }],
            ..SidecarStatus::default()
        };
        let page = sidecar_page(&status, "127.0.0.1:9901");
        assert_sound(&page.replace("http://127.0.0.1:9901", "here"));
        assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert(1)"), "escaped");
        for words in
            ["Instance <code>h2c:1</code>: 1 connection", "(no route)", "(2 times)", "None since the start."]
        {
            assert!(page.contains(words), "{words}");
        }
        assert_eq!([within(&status.services[0], 0.5), within(&status.services[0], 0.99)], ["1 ms", "500 ms"]);
        assert_eq!(within(&status.services[1], 0.5), "-");
    }
}
