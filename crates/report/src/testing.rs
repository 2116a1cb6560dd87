//! The run that report tests render: `compare`'s default, with one finding.

use super::{Explained, Report};
use h2lab_analysis::diagnose::waits::{
    Cause, Doubt, Drop, Interval, LatencyBreakdown, LinkStream, Repair, Waits, Whose, dominant,
};
use h2lab_analysis::diagnose::{Confidence, Evidence, Finding};
use h2lab_analysis::stats::{Analysis, analyse};
use h2lab_base::units::Time;
use h2lab_model::Fix;
use h2lab_model::record::{RunRecord, Sample, testing};
use h2lab_wire::trace::Direction;

/// A run, its analysis and a finding about one of its cells: one HTTP/2 connection at 3 % loss.
pub(super) struct Fixture {
    pub run: RunRecord,
    pub analysis: Analysis,
    pub findings: Vec<Finding>,
    /// None, unless a test adds some.
    pub causes: Vec<Explained>,
}

impl Fixture {
    pub fn new() -> Self {
        let run = testing::compare(true);
        let analysis = analyse(&run);
        Self { run, analysis, findings: vec![finding()], causes: Vec::new() }
    }

    pub fn report(&self) -> Report<'_> {
        Report {
            run: &self.run,
            analysis: &self.analysis,
            findings: &self.findings,
            causes: &self.causes,
            folder: Some("./h2lab-runs/20260131T120000Z-42"),
            page: Some("./h2lab-runs/20260131T120000Z-42/report.html"),
            conditions: &[],
        }
    }
}

impl Fixture {
    /// Bulk work over 250 ms of 1 Gbit/s: plain TCP, HTTP/2 at half its speed; with other windows HTTP/2 at a quarter; over
    /// another round trip plain TCP, and HTTP/1.1 at two fifths.
    pub fn bulk() -> Self {
        use h2lab_model::workload::Protocol::{H1, H2c, Tcp};
        let made = [(Tcp, 0, 400e6), (H2c, 0, 200e6), (Tcp, 1, 800e6), (H1, 1, 320e6), (H2c, 2, 100e6)];
        let one_repetition = |(index, (protocol, group, rate))| {
            let mut one_repetition = h2lab_model::bulk::testing::bulk_repetition(protocol, rate);
            (one_repetition.cell.index, one_repetition.cell.group) = (index, group);
            let link = one_repetition.cell.link.as_mut().expect("it has one");
            match group {
                1 => {
                    let delay = std::time::Duration::from_millis(5);
                    (link.uplink.delay, link.downlink.delay) = (delay, delay);
                }
                2 => one_repetition.cell.client.stream_window = Some(65_535),
                _ => {}
            }
            one_repetition
        };
        let repetitions = (0..).zip(made).map(one_repetition).collect();
        let run = RunRecord { repetitions, ..testing::compare(true) };
        let analysis = analyse(&run);
        Self { run, analysis, findings: Vec::new(), causes: Vec::new() }
    }

    /// The same as a study.
    pub fn study() -> Self {
        let mut fixture = Self::new();
        fixture.run.scenario.study = true;
        fixture
    }

    /// The same where no cause can be known of that cell.
    pub fn unsupported() -> Self {
        let mut fixture = Self::explained();
        for one_repetition in &mut fixture.causes {
            let doubts = vec![Doubt::Quic { requests: 5, beside_drops: 3 }];
            one_repetition.waits = Waits { slower_than_ns: 81_000_000, doubts, ..Waits::default() };
        }
        fixture
    }

    /// The same with the causes of slow requests in the cell with one HTTP/2 connection at 3 % loss.
    pub fn explained() -> Self {
        let mut fixture = Self::new();
        let repetitions =
            fixture.run.repetitions.iter().filter(|one_repetition| one_repetition.cell.index == 5);
        fixture.causes = repetitions
            .map(|one_repetition| {
                let slow = one_repetition.samples.iter().enumerate().filter(|(_, sample)| sample.measured);
                let breakdowns: Vec<LatencyBreakdown> =
                    slow.step_by(97).map(|(n, sample)| breakdown(n as u32, &sample)).collect();
                let doubts = vec![Doubt::NotFound { requests: 2 }];
                let split = breakdowns.iter().collect();
                let waits = Waits { slower_than_ns: 81_000_000, breakdowns, split, doubts };
                Explained { cell: 5, repetition: one_repetition.cell.repetition, waits }
            })
            .collect();
        fixture
    }
}

/// A request that waited for the link, then for another stream's segment, then for its own.
fn breakdown(sample: u32, slow: &Sample) -> LatencyBreakdown {
    let (from, until) = (slow.scheduled_at, slow.scheduled_at + slow.response_time());
    let drop = |index| Drop { direction: Direction::Down, index, at: from };
    let other = Whose::Other { stream: 5, id: Some(7) };
    let causes = [
        Cause::Propagation,
        Cause::Loss { whose: other, drop: drop(17), repair: Repair::Timeout },
        Cause::Loss { whose: Whose::Own, drop: drop(18), repair: Repair::Fast },
        Cause::Unknown,
    ];
    let length = until.since(from);
    let ends = [10, 60, 95, 100].map(|share| from + length * share / 100);
    let begins = [from, ends[0], ends[1], ends[2]];
    let parts = causes.into_iter().zip(begins.into_iter().zip(ends));
    let intervals: Vec<Interval> =
        parts.map(|(cause, (from, until))| Interval { from, until, cause }).collect();
    LatencyBreakdown {
        sample,
        scheduled_at: from,
        completed_at: until,
        place: Some(LinkStream { client_port: 40_001, server_port: 8080, stream: Some(2 * sample + 1) }),
        dominant: dominant(&intervals),
        intervals,
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
        explains: None,
        confidence: Confidence::Observed,
        fixes: vec![Fix::new(
            "client",
            "connections = 16",
            "a drop then stalls a sixteenth of the streams, at the cost of 15 more sockets",
        )],
        confirm: "h2lab compare --proto h2c -c 1,16 --loss 3%".to_owned(),
        of_failures: false,
        unaffected_by: None,
    }
}
