//! What limited a transfer of `bulk`, for other programs: SARIF, `JUnit`. The ids, words and fixes are those of a diagnosis.

use h2lab_analysis::bulk::BulkSummary;
use h2lab_model::Confidence;
use h2lab_model::bulk::{Binding, BulkRecord, TransferOutcome, TransferRecord};
use h2lab_model::fleet::{FleetRecord, FleetSummary, PairEnd, PairState};
use serde_json::{Value, json};

use crate::diagnosis::rules;
use crate::junit::{Case, CaseOutcome, Suites};
use crate::sarif::{SarifResult, log};
use crate::{bulk_text, fleet_text, limit};

/// What both forms report.
struct Found {
    version: String,
    /// `h2lab bulk get http://a/x`, or the pairs of a drive.
    name: String,
    /// Wall-clock time.
    seconds: f64,
    answer: String,
    /// Whether anything was transferred.
    is_carried: bool,
    /// Why the figures say nothing, if so: h2lab, or a server of the fleet, did not run, or no byte was moved. Then no limit is
    /// reported.
    void: Option<String>,
    /// Each limit, with what was limited.
    limits: Vec<(String, Binding)>,
    /// What was not transferred, and why.
    failures: Vec<String>,
}

impl Found {
    fn of_transfer(record: &BulkRecord) -> Self {
        let summary = BulkSummary::of(record);
        let target = record.transfers.first().map_or(String::new(), |transfer| transfer.url.clone());
        let limit = summary.binding().map(|bound| bound.binding.clone());
        let answer = bulk_text::parts(record).answer.join(" ");
        let void = (record.is_void() || record.moved_nothing()).then(|| answer.clone());
        let failure = |transfer: &TransferRecord| match &transfer.outcome {
            TransferOutcome::Failed { why, .. } => Some(format!("{}: {why}", transfer.url)),
            TransferOutcome::Complete | TransferOutcome::Partial { .. } => None,
        };
        Self {
            version: record.version.clone(),
            name: format!("h2lab bulk {} {target}", record.direction.name()),
            seconds: summary.elapsed.as_secs_f64(),
            answer,
            is_carried: summary.tally.complete + summary.tally.partial > 0,
            limits: limit.filter(|_| void.is_none()).map(|limit| (target, limit)).into_iter().collect(),
            void,
            failures: record.transfers.iter().filter_map(failure).collect(),
        }
    }

    fn of_fleet(record: &FleetRecord) -> Self {
        let sound = record.pairs.iter().filter(|pair| pair.state() != PairState::Invalid);
        let limits = sound.filter_map(|pair| match &pair.end {
            PairEnd::Reported(figures) => Some((fleet_text::pair_name(record, pair), figures.limit.clone()?)),
            PairEnd::Failed { .. } | PairEnd::Lost { .. } => None,
        });
        let parts = fleet_text::parts(record);
        let summary = FleetSummary::of(record);
        let doubts = || format!("Not a valid measurement: {}.", summary.doubts(record).join("; "));
        let void = summary.is_void(record).then(doubts);
        Self {
            version: record.version.clone(),
            name: "h2lab bulk drive".to_owned(),
            seconds: summary.elapsed.as_secs_f64(),
            answer: parts.answer,
            is_carried: record.pairs.iter().any(|pair| matches!(pair.end, PairEnd::Reported(_))),
            limits: limits.filter(|_| void.is_none()).collect(),
            void,
            failures: parts.troubles,
        }
    }

    /// The limits that are evidence for something.
    fn known(&self) -> impl Iterator<Item = (&str, &Binding)> {
        let known = self.limits.iter().filter(|(_, limit)| limit::is_known(limit));
        known.map(|(target, limit)| (target.as_str(), limit))
    }

    /// As a SARIF log. Each limit is for `review`: nothing was changed to confirm it.
    fn sarif(&self) -> Value {
        let result = |(target, limit): (&str, &Binding)| SarifResult {
            rule: id(limit).to_owned(),
            kind: "review",
            level: "warning",
            target: target.to_owned(),
            message: shown(limit),
            properties: json!({ "limit": limit.kind, "confidence": limit.confidence }),
        };
        let results: Vec<SarifResult> = self.known().map(result).collect();
        let failures: Vec<String> = self.void.iter().chain(&self.failures).cloned().collect();
        log(&self.version, &rules(&results), &results, &failures)
    }

    /// As a `JUnit` document. Each limit is a case that is skipped, since nothing was changed to confirm it; what was not
    /// transferred is an error.
    fn junit(self) -> String {
        let case = |(target, limit): (&str, &Binding)| Case {
            class: format!("h2lab.bulk.{}", id(limit)),
            name: format!("{}: {target}", limit.words()),
            outcome: CaseOutcome::Skipped(format!("{}, not confirmed: {}", sure(limit), shown(limit))),
        };
        let limits = self.known().map(case).collect();
        let whole = |name: String, outcome| Case { class: "h2lab.bulk.transfer".to_owned(), name, outcome };
        let errored =
            |kind: &str, why: &str| CaseOutcome::Errored { kind: kind.to_owned(), message: why.to_owned() };
        let failed = self.failures.iter();
        let failed = failed.map(|why| whole("not transferred".to_owned(), errored("failed", why)));
        let carried = match &self.void {
            Some(why) => Some(errored("invalid", why)),
            None => self.is_carried.then(|| CaseOutcome::Passed(self.answer.clone())),
        };
        let carried = carried.map(|outcome| whole("transferred".to_owned(), outcome));
        let transfers = carried.into_iter().chain(failed).collect();
        let all = vec![("Transfers".to_owned(), transfers), ("Limits".to_owned(), limits)];
        Suites { name: self.name, seconds: self.seconds, all }.xml()
    }
}

/// The cause's id; of a limit that is evidence for none or several, its name.
fn id(limit: &Binding) -> &str {
    limit.cause.as_deref().unwrap_or_else(|| limit.kind.name())
}

fn sure(limit: &Binding) -> &'static str {
    limit.confidence.map_or("unknown", Confidence::name)
}

/// What shows it, and what to change.
fn shown(limit: &Binding) -> String {
    let fixes = limit::fixes(limit).into_iter().map(|fix| format!("fix, {fix}"));
    let shown = format!("{}: {}", limit::named(limit), limit.sentence);
    std::iter::once(shown).chain(fixes).collect::<Vec<_>>().join("\n")
}

/// What limited a transfer, as a SARIF log.
pub fn bulk_sarif(record: &BulkRecord) -> Value {
    Found::of_transfer(record).sarif()
}

/// What limited a transfer and what failed, as a `JUnit` document.
pub fn bulk_junit(record: &BulkRecord) -> String {
    Found::of_transfer(record).junit()
}

/// What limited the pairs of a fleet, as a SARIF log.
pub fn fleet_sarif(record: &FleetRecord) -> Value {
    Found::of_fleet(record).sarif()
}

/// What limited the pairs of a fleet and what failed, as a `JUnit` document.
pub fn fleet_junit(record: &FleetRecord) -> String {
    Found::of_fleet(record).junit()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use h2lab_model::bulk::testing::record;
    use h2lab_model::bulk::{BindingKind, SenderFigures};
    use h2lab_model::fleet::testing;
    use h2lab_model::record::Fault;

    #[test]
    fn a_limit_has_the_id_and_the_confidence_of_its_cause_and_is_not_called_a_failure() {
        // A window of which only the size agrees: a guess.
        let mut record = record();
        for figures in &mut record.figures {
            figures.sender = SenderFigures::default();
            figures.receiver.stream_window = Some(3 << 20);
        }
        let sarif = bulk_sarif(&record);
        let run = &sarif["runs"][0];
        let result = &run["results"][0];
        assert_eq!((&result["ruleId"], &result["kind"]), (&json!("FLOW101"), &json!("review")), "{sarif:#}");
        assert_eq!(result["properties"]["confidence"], "guessed");
        assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "FLOW101", "its page is there");
        assert_eq!(run["invocations"][0]["executionSuccessful"], false, "a file failed");
        let junit = bulk_junit(&record);
        assert!(junit.contains("classname=\"h2lab.bulk.FLOW101\""), "{junit}");
        assert!(junit.contains("guessed, not confirmed: the stream window (FLOW101), guessed: "), "{junit}");
        assert!(junit.contains("failures=\"0\" errors=\"1\""), "{junit}");
    }

    #[test]
    fn what_was_not_transferred_or_not_measured_soundly_is_no_case_that_passes() {
        let mut failed = record();
        for transfer in &mut failed.transfers {
            let why = "no response".to_owned();
            transfer.outcome = TransferOutcome::Failed { why, fault: Fault::Sut };
        }
        let junit = bulk_junit(&failed);
        assert!(!junit.contains("name=\"transferred\"") && junit.contains("no response"), "{junit}");
        let mut void = record();
        void.paused = void.elapsed();
        let junit = bulk_junit(&void);
        assert!(junit.contains("type=\"invalid\" message=\"Not a valid measurement: "), "{junit}");
        let sarif = bulk_sarif(&void);
        assert_eq!(sarif["runs"][0]["results"], json!([]), "its limit was not measured");
        let why = &sarif["runs"][0]["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"];
        assert!(why.as_str().is_some_and(|why| why.starts_with("Not a valid measurement: ")), "{why}");
    }

    #[test]
    fn a_limit_of_no_one_cause_has_its_own_name_and_the_same_fixes() {
        let sarif = bulk_sarif(&record());
        let result = &sarif["runs"][0]["results"][0];
        assert_eq!(result["ruleId"], "send-buffer", "{sarif:#}");
        let message = result["message"]["text"].as_str().unwrap();
        assert!(message.contains("\nfix, Linux: sysctl -w net.ipv4.tcp_wmem="), "{message}");
    }

    #[test]
    fn each_pair_of_a_fleet_has_its_limit_and_what_is_unknown_is_no_result() {
        let mut record = testing::record();
        let kinds = [(BindingKind::Cpu, Some(Confidence::Observed)), (BindingKind::Unknown, None)];
        for (pair, (kind, confidence)) in record.pairs.iter_mut().zip(kinds) {
            let PairEnd::Reported(figures) = &mut pair.end else { panic!("the first two have reported") };
            figures.limit = Some(limit::testing(kind, confidence));
        }
        let sarif = fleet_sarif(&record);
        let results = sarif["runs"][0]["results"].as_array().unwrap();
        assert_eq!((results.len(), &results[0]["ruleId"]), (1, &json!("cpu")), "{sarif:#}");
        let junit = fleet_junit(&record);
        assert!(junit.contains("the CPU: ssh:kek-1 ") && !junit.contains(" errors=\"0\" time="), "{junit}");
    }

    #[test]
    fn a_pair_whose_client_did_not_run_has_no_limit() {
        let results = |paused: Duration| {
            let mut record = testing::record();
            let pair = record.pairs.iter_mut().find(|pair| pair.state() == PairState::Complete);
            let Some(PairEnd::Reported(figures)) = pair.map(|pair| &mut pair.end) else { panic!("one is") };
            figures.limit = Some(limit::testing(BindingKind::Cpu, Some(Confidence::Observed)));
            figures.paused = paused;
            fleet_sarif(&record)["runs"][0]["results"].as_array().map(Vec::len)
        };
        assert_eq!(results(Duration::ZERO), results(Duration::from_secs(3_600)).map(|others| others + 1));
    }
}
