//! A report with a check of every verdict.

use h2lab_model::probe::{
    Bound, Check, ChecklistItem, EvidenceItem, Mark, ProbeReport, ServerLimits, Severity, Spent, Subject,
    Verdict, id,
};
use h2lab_wire::trace::Direction;

/// The report.
pub fn report() -> ProbeReport {
    let seen = |direction, at_ms, seen: &str| EvidenceItem { direction, at_ms, seen: seen.to_owned() };
    let failed = Check::new(id::PROT101, Verdict::Fail, "no HTTP/1.1 response received")
        .of("in clear <&\">")
        .severe(Severity::High)
        .with(
            "the server closed the connection",
            vec![
                seen(Direction::Up, 0.25, "GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n"),
                seen(Direction::Down, 1.5, "GOAWAY[0] PROTOCOL_ERROR last_stream_id 0"),
            ],
        )
        .for_product(Some("haproxy"));
    let others = [Verdict::Pass, Verdict::Ignored, Verdict::Unsupported, Verdict::Undecided];
    let others = others.map(|verdict| Check::new(id::PROT101, verdict, format!("this is {verdict}")));
    ProbeReport {
        target: "http://127.0.0.1:8080/".to_owned(),
        subject: Subject::Server,
        software: Some("nginx/1.22.1".to_owned()),
        checks: std::iter::once(failed).chain(others).collect(),
        limits: ServerLimits {
            requests_per_connection: Some(Bound::exact(1_000, "requests", "GOAWAY last_stream_id 1999")),
            ..ServerLimits::default()
        },
        checklist: vec![ChecklistItem {
            item: "limit bodies".to_owned(),
            mark: Mark::Ticked,
            why: "413 above 1 MiB".to_owned(),
            checks: vec!["LIMT105".to_owned()],
        }],
        attempts: Vec::new(),
        spent: Spent { requests: 1_203, bytes: 49_152, received: 98_304, connections: 12, ms: 3_210 },
        warnings: vec!["a doubt".to_owned()],
        version: "0.1.0".to_owned(),
    }
}
