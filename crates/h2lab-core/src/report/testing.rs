//! The run that report tests render: `compare`'s default, with one finding.

use super::Report;
use crate::diagnose::{Confidence, Evidence, Finding, Fix};
use crate::record::{RunRecord, testing};
use crate::stats::{Analysis, analyse};
use crate::units::Time;

/// A run, its analysis and a finding about its seventh cell's neighbour: one HTTP/2 connection at 3 % loss.
pub(super) struct Fixture {
    pub run: RunRecord,
    pub analysis: Analysis,
    pub findings: Vec<Finding>,
}

impl Fixture {
    pub fn new() -> Self {
        let run = testing::compare(true);
        let analysis = analyse(&run);
        Self { run, analysis, findings: vec![finding()] }
    }

    pub fn report(&self) -> Report<'_> {
        Report {
            run: &self.run,
            analysis: &self.analysis,
            findings: &self.findings,
            folder: Some("./h2lab-runs/20260131T120000Z-42"),
            page: Some("./h2lab-runs/20260131T120000Z-42/report.html"),
        }
    }
}

fn finding() -> Finding {
    Finding {
        rule: "LOSS101".to_owned(),
        name: "tcp-head-of-line-blocking".to_owned(),
        cell: 5,
        label: "h2c × 1".to_owned(),
        symptom: "Every drop stalls all streams of the connection, 31 at a time on average.".to_owned(),
        evidence: vec![Evidence {
            what: "streams that shared a stall that began at a drop".to_owned(),
            value: 31.0,
            unit: "streams".to_owned(),
            connection: Some(0),
            at: Some(Time::from_millis(1_204)),
        }],
        cost: "Stalls account for 83 % of all request time in this cell.".to_owned(),
        cost_share: 0.83,
        confidence: Confidence::Observed,
        fixes: vec![Fix {
            product: "client".to_owned(),
            setting: "connections = 16".to_owned(),
            why: "a drop then stalls a sixteenth of the streams, at the cost of 15 more sockets".to_owned(),
        }],
        confirm: "h2lab compare --proto h2c -c 1,16 --loss 3%".to_owned(),
    }
}
