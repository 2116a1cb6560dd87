//! Single requests as CSV in vegeta's twelve columns, without a header line, so that `vegeta report`, `vegeta plot` and other
//! tools for its results accept ours.
//!
//! The columns (`lib/results.go` of vegeta 12): timestamp in nanoseconds of the epoch, status, latency in nanoseconds, bytes
//! out, bytes in, error, body (base64), attack, sequence number, method, URL, header fields (base64). Bodies and header
//! fields are not recorded and empty.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::csv::quoted;
use super::{Report, condition};
use h2lab_analysis::stats::repetitions_by_cell;
use h2lab_base::units::nanos;
use h2lab_model::record::{CellRecord, Outcome, Sample};
use h2lab_model::scenario::Target;

/// The measured requests of these runs, each cell an attack of its own. `started_ns` is when each run's clock began, in
/// nanoseconds of the epoch, in the order of `reports`.
///
/// A request's time is when it was due, and its latency runs from there: for an open loop vegeta then computes what our own
/// report states, including the client's queueing. Requests without a sample are missing.
pub fn vegeta(reports: &[Report<'_>], started_ns: &[u64]) -> String {
    let mut out = String::new();
    for (report, started_ns) in reports.iter().zip(started_ns) {
        let names = names(report);
        for (index, repetitions) in repetitions_by_cell(&report.run.repetitions) {
            let label = names.get(&index).map_or("", String::as_str);
            let attack =
                if reports.len() == 1 { label.to_owned() } else { format!("{} {label}", report.name()) };
            let attack = quoted(&attack);
            let mut seq = 0_u64;
            for repetition in repetitions {
                let kinds = Kinds::of(repetition);
                for sample in repetition.samples.iter().filter(|sample| sample.measured) {
                    line(&mut out, &sample, *started_ns, &attack, seq, &kinds);
                    seq += 1;
                }
            }
        }
    }
    out
}

/// A name for each cell that no other cell has: its label, what distinguishes its condition, and where that is not enough its number.
fn names(report: &Report<'_>) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for group in report.analysis.groups() {
        let condition = condition::beginning(report, &group).unwrap_or_default();
        for summary in group {
            let words = [summary.label.clone(), condition.to_lowercase()];
            let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
            names.insert(summary.cell.index, words.join(" "));
        }
    }
    let mut uses: BTreeMap<String, u32> = BTreeMap::new();
    for name in names.values() {
        *uses.entry(name.clone()).or_default() += 1;
    }
    for (index, name) in &mut names {
        if uses.get(name).is_some_and(|uses| *uses > 1) {
            let _ = write!(name, " #{index}"); // a String takes everything
        }
    }
    names
}

fn line(out: &mut String, sample: &Sample, started_ns: u64, attack: &str, seq: u64, kinds: &Kinds) {
    let kind = kinds.get(sample);
    let error = match sample.outcome {
        Outcome::Succeeded => "",
        outcome => outcome.name(),
    };
    // Infallible: it writes to memory.
    let _ = writeln!(
        out,
        "{},{},{},{},{},{error},,{attack},{seq},{},{},",
        started_ns.saturating_add(sample.scheduled_at.as_nanos()),
        sample.status,
        nanos(sample.response_time()),
        if sample.sent_at.happened() { kind.body_bytes } else { 0 },
        sample.body_bytes,
        kind.method,
        kind.url,
    );
}

/// The requests of a repetition, by their kind.
struct Kinds(Vec<Kind>);

struct Kind {
    method: String,
    url: String,
    body_bytes: u64,
}

impl Kinds {
    fn of(repetition: &CellRecord) -> Self {
        let work = &repetition.cell.work;
        let server = server(repetition);
        let plain = Kind {
            method: quoted(&work.method),
            url: quoted(&format!("{server}{}", work.path)),
            body_bytes: work.body_length(),
        };
        let kinds = work.mix.iter().map(|entry| Kind {
            method: quoted(entry.method.as_ref().unwrap_or(&work.method)),
            url: quoted(&format!("{server}{}", entry.path)),
            body_bytes: entry.body.as_ref().map_or(work.body_length(), |body| body.bytes().len() as u64),
        });
        let mut kinds: Vec<Kind> = kinds.collect();
        if kinds.is_empty() {
            kinds.push(plain);
        }
        Self(kinds)
    }

    /// The kind of a request; a record with an unknown kind gets the last.
    fn get(&self, sample: &Sample) -> &Kind {
        &self.0[usize::from(sample.kind).min(self.0.len() - 1)]
    }
}

/// `scheme://host:port` of a repetition's server. Servers behind a link have no name that is valid outside.
fn server(repetition: &CellRecord) -> String {
    let cell = &repetition.cell;
    match &cell.target {
        Target::Url { url } => {
            let authority = url.find("://").map_or(0, |at| at + 3);
            let path = url[authority..].find(['/', '?', '#']).map_or(url.len(), |at| authority + at);
            url[..path].to_owned()
        }
        target => format!("{}://{}", if cell.protocol.is_tls() { "https" } else { "http" }, target.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::*;
    use h2lab_model::workload::MixEntry;

    const EPOCH: u64 = 1_700_000_000_000_000_000;

    fn rows(fixture: &Fixture) -> Vec<Vec<String>> {
        let text = vegeta(&[fixture.report()], &[EPOCH]);
        text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
    }

    #[test]
    fn every_measured_request_is_a_line_of_twelve_columns() {
        let fixture = Fixture::new();
        let rows = rows(&fixture);
        let measured =
            fixture.run.repetitions.iter().flat_map(|repetition| &repetition.samples).filter(|s| s.measured);
        assert_eq!(rows.len(), measured.count());
        assert!(rows.iter().all(|row| row.len() == 12));
        let first = fixture.run.repetitions[0].samples.iter().find(|sample| sample.measured).unwrap();
        let expected = [
            (EPOCH + first.scheduled_at.as_nanos()).to_string(),
            "200".to_owned(),
            nanos(first.response_time()).to_string(),
            "1024".to_owned(),
            "1024".to_owned(),
            String::new(),
            String::new(),
            "h1 without loss".to_owned(),
            "0".to_owned(),
            "POST".to_owned(),
            "http://origin/".to_owned(),
            String::new(),
        ];
        assert_eq!(rows[0], expected);
    }

    #[test]
    fn sequence_numbers_go_on_over_the_repetitions_of_a_cell() {
        let rows = rows(&Fixture::new());
        let first_attack: Vec<u64> = rows
            .iter()
            .take_while(|row| row[7] == "h1 without loss")
            .map(|row| row[8].parse().unwrap())
            .collect();
        assert!(first_attack.iter().copied().eq(0..first_attack.len() as u64));
        assert!(first_attack.len() > 5_000, "two repetitions of 3 s at 1,000/s: {}", first_attack.len());
    }

    #[test]
    fn failures_have_an_error_and_kinds_their_own_url_and_body() {
        let mut fixture = Fixture::new();
        let repetition = &mut fixture.run.repetitions[0];
        repetition.cell.target = Target::Url { url: "http://a.example:81?x=1".to_owned() };
        let entry = |path: &str, body: Option<&str>| MixEntry {
            weight: 1,
            path: path.to_owned(),
            body: body.map(Into::into),
            ..MixEntry::default()
        };
        repetition.cell.work.mix = vec![entry("/a", None), entry("/b,c", Some("four"))];
        let at = repetition.samples.iter().position(|sample| sample.measured).unwrap();
        let failed =
            Sample { kind: 1, outcome: Outcome::Status, status: 503, ..repetition.samples.get(at).unwrap() };
        repetition.samples.edit()[at] = failed;
        let text = vegeta(&[fixture.report()], &[EPOCH]);
        let line = text.lines().next().unwrap();
        assert!(
            line.ends_with(",1024,status,,h1 without loss,0,POST,\"http://a.example:81/b,c\","),
            "{line}"
        );
        assert_eq!((line.split(',').nth(1), line.split(',').nth(3)), (Some("503"), Some("4")));
        assert!(
            text.lines().nth(1).unwrap().ends_with(",1024,,,h1 without loss,1,POST,http://a.example:81/a,")
        );
    }
}
