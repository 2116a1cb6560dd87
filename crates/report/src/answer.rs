//! The answer of a run in a few sentences: what every report begins with, and every run ends with.

#[cfg(test)]
mod tests;

use super::bulk_cells::{self, BulkCell};
use super::causes::{self, Tail};
use super::format::{bound, count, millis_unit, per_second, plural, rate, ratio};
use super::sentences::{self, FEW, name};
use super::style::{Paint, TextStyle, painted};
use super::{Report, condition, notes, pairs};
use h2lab_analysis::diagnose::Finding;
use h2lab_analysis::diagnose::waits::CauseKind;
use h2lab_analysis::stats::{
    Answer, CellState, CellSummary, CellVerdict, Conclusion, Failed, Instability, Latency, Overload,
    RampStep, RampSteps, Unclaimed, is_planned,
};
use h2lab_base::units::millis_f64;
use h2lab_model::bulk::rate::bits_text;
use h2lab_model::record::Outcome;
use h2lab_model::workload::Arrival;
use std::time::Duration;

/// The answer: what loses most, what wins most, and the cause if one was found. Without verdicts it is about the cells themselves.
pub(super) fn of(report: &Report<'_>) -> Vec<String> {
    let why = report.run.failure.as_ref();
    let ended =
        why.map(|why| format!("The run could not go on ({why}): this is what was measured until then."));
    ended.into_iter().chain(of_measured(report)).collect()
}

/// The answer of what was measured, however the run ended.
pub(super) fn of_measured(report: &Report<'_>) -> Vec<String> {
    if let Some(cells) = bulk_cells::of(report) {
        return of_bulk(&cells);
    }
    let mut sentences = match report.analysis.verdicts.as_slice() {
        [] => uncompared(report).into_iter().chain(pairs::answer(report)).chain(of_cells(report)).collect(),
        _ => of_verdicts(report),
    };
    sentences.extend(slow_requests(report));
    sentences
}

/// The same in one line, for JSON and titles.
pub(super) fn line(report: &Report<'_>) -> String {
    of(report).join(" ")
}

/// Appends the answer to a report for a terminal.
pub(super) fn text(out: &mut String, report: &Report<'_>, style: TextStyle) {
    lines(out, &of(report), style);
}

/// Appends the sentences of an answer.
pub(super) fn lines(out: &mut String, sentences: &[String], style: TextStyle) {
    for (k, sentence) in sentences.iter().enumerate() {
        let lead = if k == 0 { "Answer: " } else { "        " };
        painted(out, style, Paint::Bold, lead, sentence);
    }
}

fn of_verdicts(report: &Report<'_>) -> Vec<String> {
    let answer = Answer::of(report.analysis);
    let mut sentences: Vec<String> = [answer.worst, answer.best]
        .into_iter()
        .flatten()
        .filter_map(|verdict| decided(report, verdict))
        .collect();
    let is_said = answer.voids == answer.all;
    let void = answer.void.filter(|_| !is_said).and_then(|void| without(report, &answer, void));
    if sentences.is_empty() {
        // What is missing may be what differs: it comes first.
        sentences.extend(void);
        sentences.extend(open(report, &answer));
    } else {
        sentences.extend(void);
    }
    let blamed = answer.worst.map(|worst| worst.cell).or(answer.best.and_then(overloaded_baseline));
    let neither = answer.both_unstable.filter(|_| blamed.is_none());
    let of_neither =
        || neither.and_then(|both| pool(report, both.baseline).or_else(|| pool(report, both.cell)));
    let why = blamed.and_then(|cell| pool(report, cell).or_else(|| cause(report, cell)));
    sentences.extend(why.or_else(of_neither));
    let setting = pairs::largest_between_conditions(report);
    sentences.extend(setting.map(|pair| sentences::pair(report, pair)));
    let worse = setting.filter(|_| blamed.is_none()).and_then(pairs::worse);
    sentences.extend(worse.and_then(|cell| cause(report, cell)));
    let compared = report.analysis.verdicts.iter().flat_map(|verdict| [verdict.baseline, verdict.cell]);
    sentences.extend(failing(report, compared));
    sentences
}

/// The baseline, if it is the cell that does not carry the load.
fn overloaded_baseline(verdict: &CellVerdict) -> Option<u32> {
    matches!(verdict.conclusion, Conclusion::BaselineUnstable { .. }).then_some(verdict.baseline)
}

/// `Slower at 3% loss: 4 HTTP/2 connections have 1.83 × the p99 of HTTP/1.1 (505 ms against 276 ms; 95 % interval 1.20–2.46).`
fn decided(report: &Report<'_>, verdict: &CellVerdict) -> Option<String> {
    let (cell, baseline) = (report.analysis.cell(verdict.cell)?, report.analysis.cell(verdict.baseline)?);
    let (name, base) = (name(cell), name(baseline));
    let (lead, body) = match verdict.conclusion {
        Conclusion::Unstable { .. } => (lead_of(cell), overloaded(cell, &name, &base)),
        Conclusion::BaselineUnstable { .. } => ("Better", carried(cell, &name, baseline, &base)),
        Conclusion::Faster | Conclusion::Slower => {
            let tail = verdict.tail_ratio?;
            let lead = if tail.ratio < 1.0 { "Faster" } else { "Slower" };
            let body = format!(
                "{name} {} {} × the {} of {base} ({} against {}; 95 % interval {}–{})",
                sentences::has(cell),
                ratio(tail.ratio),
                verdict.tail.name(),
                millis_unit(tail.candidate),
                millis_unit(tail.baseline),
                ratio(tail.low),
                ratio(tail.high)
            );
            (lead, body)
        }
        _ => return None,
    };
    Some(format!("{lead}{}: {body}{}.", at(report, verdict.group), sentences::served(verdict)))
}

/// What to call a cell that does not serve what it is offered.
fn lead_of(cell: &CellSummary) -> &'static str {
    match &cell.state {
        CellState::Unstable { why, .. } if why.is_of_failures() => "Failing",
        _ if cell.pool.is_some() => "Too few connections",
        _ if is_closed(cell) => "Not steady",
        _ => "Overloaded",
    }
}

/// `one HTTP/2 connection serves 295 of 1,000 requests/s, HTTP/1.1 all of them`.
fn overloaded(cell: &CellSummary, name: &str, other: &str) -> String {
    let load = sentences::load(cell);
    match &cell.state {
        CellState::Unstable { why: Instability::Growing { first, second }, .. } => format!(
            "with {name} the mean response time grew from {} to {} during the measured time; {other} carried the {load}",
            millis_unit(*first),
            millis_unit(*second)
        ),
        _ => format!(
            "{name} {} {} of {load}, {other} all of them",
            sentences::verb(cell, "serve"),
            rate(cell.served_rps)
        ),
    }
}

/// `one HTTP/2 connection serves all of 1,000 requests/s, HTTP/1.1 295 of them`: the better one comes first.
fn carried(cell: &CellSummary, name: &str, baseline: &CellSummary, base: &str) -> String {
    let load = sentences::load(baseline);
    match &baseline.state {
        CellState::Unstable { why: Instability::Growing { first, second }, .. } => format!(
            "{name} {} the {load}; with {base} the mean response time grew from {} to {} during the measured time",
            sentences::verb(cell, "carry"),
            millis_unit(*first),
            millis_unit(*second)
        ),
        _ => format!(
            "{name} {} all of {load}, {base} {} of them",
            sentences::verb(cell, "serve"),
            rate(baseline.served_rps)
        ),
    }
}

/// `All 16 HTTP/1.1 connections were in use, and requests waited 340 ms for one; on it they took 10.2 ms. Raise -c.`
fn pool(report: &Report<'_>, cell: u32) -> Option<String> {
    let limit = report.analysis.cell(cell)?.pool?;
    let flag =
        if report.run.command.get(1).is_some_and(|word| word == "load") { "-c" } else { "--max-connections" };
    // Where none of the requests got a connection in time, earlier ones show how long one takes.
    let before = report.analysis.cell(cell)?.transfers.takes.unwrap_or_default();
    let service = if limit.service.is_zero() { before } else { limit.service };
    Some(format!(
        "All {} were in use, and requests waited {} on average for one; on it they took {}. Raise {flag}.",
        plural(u64::from(limit.connections), "HTTP/1.1 connection"),
        millis_unit(limit.waited),
        millis_unit(service)
    ))
}

/// ` at 3% loss`; nothing where there is only one condition.
pub(super) fn at(report: &Report<'_>, group: u32) -> String {
    let groups = report.analysis.groups();
    let its = groups.iter().find(|cells| cells.first().is_some_and(|first| first.cell.group == group));
    let beginning = its.and_then(|cells| condition::beginning(report, cells));
    beginning.map_or(String::new(), |text| format!(" {}", sentences::lower_first(&text)))
}

/// The answer where nothing is faster or slower.
fn open(report: &Report<'_>, answer: &Answer<'_>) -> Vec<String> {
    let comparisons = plural(answer.all as u64, "comparison");
    let compared = || report.analysis.verdicts.first().map(|verdict| sentences::headline(report, verdict));
    if let Some(both) = answer.both_unstable {
        let lead = report.analysis.cell(both.cell).map_or("Overloaded", lead_of);
        return vec![format!("{lead}: {}.", sentences::headline(report, both))];
    }
    if let Some(void) = answer.void.filter(|_| answer.voids == answer.all) {
        return vec![format!("No result: {}.", reason_at(report, void))];
    }
    match (answer.alike, answer.undecided) {
        (1, 0) if answer.all == 1 => vec![format!("No difference: {}.", compared().unwrap_or_default())],
        (0, 1) if answer.all == 1 => vec![format!("Undecided: {}.", compared().unwrap_or_default())],
        (_, 0) => {
            let unclaimed = report.analysis.verdicts.iter();
            let floor = unclaimed
                .filter(|verdict| verdict.unclaimed() == Some(Unclaimed::BelowFloor))
                .map(|verdict| verdict.floor)
                .max();
            let least = floor.map_or(String::new(), |floor| format!(" and {} or more", bound(floor)));
            vec![format!(
                "No difference of 10 % or more{least} in {} of {comparisons}.",
                count(answer.alike as u64)
            )]
        }
        (0, _) => vec![format!(
            "Undecided: none of {comparisons} resolved a difference. Longer or more repetitions (-z, --repetitions) \
             narrow the intervals."
        )],
        (alike, undecided) => vec![format!(
            "{}: of {comparisons} {} {} less than 10 %, {} {} undecided. Longer or more repetitions (-z, \
             --repetitions) narrow the intervals.",
            // What most of them say is what the run says.
            if undecided > alike { "Undecided" } else { "No difference was found" },
            count(alike as u64),
            if alike == 1 { "shows" } else { "show" },
            count(undecided as u64),
            if undecided == 1 { "is" } else { "are" }
        )],
    }
}

/// Why there is no verdict, with the condition if several cells have that name: `h2c × 1 at 3% loss: the link was late`.
fn reason_at(report: &Report<'_>, void: &CellVerdict) -> String {
    let label = report.analysis.cell(void.cell).map_or("", |summary| summary.label.as_str());
    let namesakes = report.analysis.cells.iter().filter(|summary| summary.label == label).count();
    let at = if namesakes > 1 { at(report, void.group) } else { String::new() };
    sentences::first_reason(report, void, &at)
}

/// The comparisons that have no verdict, beside others that do.
fn without(report: &Report<'_>, answer: &Answer<'_>, void: &CellVerdict) -> Option<String> {
    let reason = reason_at(report, void);
    let n = count(answer.voids as u64);
    let verb = if answer.voids == 1 { "has" } else { "have" };
    (!reason.is_empty())
        .then(|| format!("{n} of {} {verb} no verdict: {reason}.", plural(answer.all as u64, "comparison")))
}

/// What explains a smaller part of a difference is not its cause, but a part of it.
const HALF: f64 = 0.5;
/// What costs a smaller share of the response time explains no figure of a run.
pub(super) const LEAST_COST: f64 = 0.05;

/// `Cause (LOSS101): every drop stalls all streams. Change: connections = 16 (client).`
fn cause(report: &Report<'_>, cell: u32) -> Option<String> {
    dearest(report, cell).map(|finding| cause_of(report, finding, ""))
}

/// What a finding says as a cause; `whose` follows its id.
fn cause_of(report: &Report<'_>, finding: &Finding, whose: &str) -> String {
    let symptom = sentences::lower_first(finding.symptom.trim_end_matches('.'));
    format!("{}{whose}: {symptom}.{}", lead_of_cause(finding), change(report, finding))
}

/// The finding of a cell that costs most, of those that cost enough to be its cause. As in the list of findings,
/// observations come last: a cause of failures takes less time than a slow handler, and can be changed.
fn dearest<'a>(report: &Report<'a>, cell: u32) -> Option<&'a Finding> {
    let its = report.findings.iter().filter(|finding| finding.cell == cell);
    // A status has nothing to do with connections, and a server that is gone needs no further explanation.
    let failed = report.analysis.cell(cell).is_some_and(|summary| {
        let most = summary.errors.first().map(|most| most.kind);
        most.is_some_and(|most| !matches!(most, Outcome::Status | Outcome::Connect | Outcome::Timeout))
    });
    let is_enough = |it: &&Finding| failed && it.of_failures || it.cost_share >= LEAST_COST;
    let is_cause = |it: &Finding| !it.is_observation();
    its.filter(is_enough)
        .max_by(|a, b| is_cause(a).cmp(&is_cause(b)).then(a.cost_share.total_cmp(&b.cost_share)))
}

/// `Cause (LOSS101)`; `Part of the cause (LOSS101, 16 % of the difference)` of what explains less than half.
pub(super) fn lead_of_cause(finding: &Finding) -> String {
    match finding.explains.filter(|part| *part > 0.0 && *part < HALF) {
        Some(part) => {
            format!("Part of the cause ({}, {:.0} % of the difference)", finding.rule, part * 100.0)
        }
        None => format!("Cause ({})", finding.rule),
    }
}

/// The first of the fixes that concerns the cell's server, else the first one.
pub(super) fn change(report: &Report<'_>, finding: &Finding) -> String {
    let target = report.analysis.cell(finding.cell).map_or("", |summary| summary.cell.target.name());
    let is_its = |fix: &&h2lab_model::Fix| !fix.product.is_empty() && target.contains(fix.product.as_str());
    let fix = finding.fixes.iter().find(is_its).or(finding.fixes.first()).filter(|fix| fix.has_setting());
    fix.map_or(String::new(), |fix| format!(" Change: {} ({}).", fix.setting, fix.product))
}

/// The answer of cells that are compared with nothing: of the one, or of the worst and the best.
fn of_cells(report: &Report<'_>) -> Vec<String> {
    let cells = &report.analysis.cells;
    let [summary] = cells.as_slice() else { return of_several(report, cells) };
    let mut sentences = vec![of_one(summary)];
    sentences.extend(failures(summary).filter(|_| !is_without_result(summary)));
    let cause = || pool(report, summary.cell.index).or_else(|| cause(report, summary.cell.index));
    match cause().filter(|_| !is_without_result(summary)) {
        Some(cause) => sentences.push(cause),
        // A server that paused is why its tail is long, wherever the requests waited.
        None => sentences
            .extend(silent(summary).or_else(|| phase(summary)).filter(|_| !is_without_result(summary))),
    }
    sentences.extend(stopped(report, summary));
    sentences
}

/// How much of its time a load was measured that somebody interrupted: `Stopped after 1.8 of 8 s.`
fn stopped(report: &Report<'_>, summary: &CellSummary) -> Option<String> {
    /// A load that ends with its last request has at least this time.
    const ENDLESS: Duration = Duration::from_secs(24 * 3600);
    let planned = *report.run.scenario.work.measure.values().first()?;
    let is_short = report.run.interrupted && summary.repetitions == 1 && summary.measured < planned;
    // If nothing was measured, that is the answer.
    let is_short = is_short && !summary.measured.is_zero();
    let seconds = |time: Duration| (time.as_secs_f64() * 10.0).round() / 10.0;
    let measured = seconds(summary.measured);
    is_short.then(|| {
        let of = if planned < ENDLESS { format!(" of {}", seconds(planned)) } else { String::new() };
        format!("Stopped after {measured}{of} s.")
    })
}

/// `Nothing arrived from the server from 1.20 s to 2.20 s.`
fn silent(summary: &CellSummary) -> Option<String> {
    let said = summary.silence?.to_string();
    Some(format!("N{}.", said.strip_prefix('n')?))
}

/// What a server had served when it ended: `Until then 74,289 requests were answered, 62,000/s.`
fn until_then(summary: &CellSummary) -> Option<String> {
    let of_one = |served: &Vec<(Duration, u64)>| {
        let width = served.windows(2).map(|two| two[1].0.saturating_sub(two[0].0)).min()?;
        let (last, _) = served.last()?;
        Some((served.iter().map(|(_, n)| n).sum::<u64>(), *last + width))
    };
    let all: Vec<(u64, Duration)> =
        summary.series.iter().filter_map(|series| of_one(&series.served)).collect();
    let served: u64 = all.iter().map(|(n, _)| n).sum();
    let seconds: f64 = all.iter().map(|(_, time)| time.as_secs_f64()).sum();
    (served > 0 && seconds > 0.0).then(|| {
        let answered = if served == 1 { "request was answered" } else { "requests were answered" };
        format!(" Until then {} {answered}, {}/s.", count(served), rate(served as f64 / seconds))
    })
}

/// A tail that is shorter needs no explanation.
const LONG: Duration = Duration::from_millis(20);

/// The figure of the slow ones of these latencies: its name and its share. Fewer than [`FEW`] have no tail.
fn slow(latency: &Latency) -> (&'static str, f64) {
    if latency.n() < FEW {
        return ("max", 1.0);
    }
    let tail = latency.tail();
    (tail.name(), tail.share())
}

/// `The p95 is 151 ms; the first byte of the response came after 150 ms: the server's time and the path's.`
fn phase(summary: &CellSummary) -> Option<String> {
    let (tail, share) = slow(&summary.response);
    let at = |latency: &Latency| latency.quantile(share);
    let (response, service, first_byte) = (at(&summary.response), at(&summary.service), at(&summary.ttfb));
    let [whole, sent, byte] = [response, service, first_byte].map(millis_unit);
    let what = if service * 2 < response {
        format!("from sending the request on {sent}; before that it waited for a connection or a stream")
    } else if first_byte * 5 > service * 4 && response > 2 * summary.response.quantile(0.5) {
        format!("the first byte of the response came after {byte}: the server's time and the path's")
    } else if first_byte * 2 < service {
        format!("the first byte of the response came after {byte}; the rest is the transfer of the body")
    } else {
        return None;
    };
    (response >= LONG).then(|| format!("The {tail} is {whole}; {what}."))
}

/// Whether a cell has no result: then its figures are no answer.
fn is_without_result(summary: &CellSummary) -> bool {
    summary.is_dead() || !matches!(summary.state, CellState::Ok | CellState::Unstable { .. })
}

/// The answer of one cell.
fn of_one(summary: &CellSummary) -> String {
    if let Some(reason) = sentences::no_result(summary) {
        return match summary.state {
            CellState::Invalid { .. } => format!("Not a valid measurement: {reason}."),
            CellState::Failed { how: Failed::ServerEnded, .. } => {
                format!("The server stopped answering: {reason}.{}", until_then(summary).unwrap_or_default())
            }
            _ => format!("No result: {reason}."),
        };
    }
    let load = sentences::load(summary);
    let latencies = latencies(summary).map_or(String::new(), |latencies| format!(": {latencies}"));
    if let Some(steps) = RampSteps::of(summary) {
        return ramp(&steps);
    }
    match (&summary.state, summary.cell.work.arrival) {
        (CellState::Unstable { why, served_rps, .. }, _) => match why {
            why if why.is_of_failures() => format!("Serves {} of {load}.", rate(*served_rps)),
            Instability::Served { .. } => {
                format!("{}: serves {} of {load}.", lead_of(summary), rate(*served_rps))
            }
            Instability::Growing { .. } if summary.pool.is_some() => {
                format!("{} for {load}: {why}.", lead_of(summary))
            }
            Instability::Growing { .. } if is_closed(summary) => {
                format!("Not steady, {} with {load}: {why}.", per_second(*served_rps, "request"))
            }
            Instability::Growing { .. } => format!("Overloaded by {load}: {why}."),
        },
        (_, Arrival::Closed { .. }) if summary.requests.succeeded < FEW => of_few(summary, &load),
        (_, Arrival::Closed { .. }) => {
            format!("{} with {load}{latencies}.", per_second(summary.served_rps, "request"))
        }
        _ if summary.requests.succeeded < summary.requests.sent => {
            format!("Serves {} of {load}{latencies}.", rate(summary.served_rps))
        }
        _ => format!("Serves all of {load}{latencies}."),
    }
}

/// `8 requests, 2 in flight: median 132 ms, max 160 ms.`
fn of_few(summary: &CellSummary, load: &str) -> String {
    let answered = plural(summary.requests.succeeded, "request");
    match summary.response.percentiles() {
        Some(p) if summary.requests.succeeded == 1 => format!("{answered} in {}.", millis_unit(p.max)),
        Some(p) => {
            format!("{answered}, {load}: median {}, max {}.", millis_unit(p.p50), millis_unit(p.max))
        }
        None => format!("{answered}, {load}."),
    }
}

/// Whether a request is sent only when one is answered: such a loop cannot overload a server.
const fn is_closed(summary: &CellSummary) -> bool {
    matches!(summary.cell.work.arrival, Arrival::Closed { .. })
}

/// `p50 1.2 ms, p99 3.4 ms, max 8 ms`.
fn latencies(summary: &CellSummary) -> Option<String> {
    let tail = summary.response.tail();
    let p = summary.response.percentiles()?;
    Some(format!(
        "p50 {}, {} {}, max {}",
        millis_unit(p.p50),
        tail.name(),
        millis_unit(summary.response.quantile(tail.share())),
        millis_unit(p.max)
    ))
}

/// `Carries 1,400 requests/s; from 1,600 on it does not.`
fn ramp(steps: &RampSteps) -> String {
    match (steps.last_carried(), steps.knee()) {
        (Some(carried), Some(knee)) => format!(
            "Knee: carries {}, but not {} ({}).",
            per_second(carried.offered_rps, "request"),
            rate(knee.offered_rps),
            why_over(knee)
        ),
        (None, Some(knee)) => {
            format!(
                "Overloaded from the start: does not carry {} ({}).",
                per_second(knee.offered_rps, "request"),
                why_over(knee)
            )
        }
        (Some(carried), None) => {
            format!("No knee: carries every rate, up to {}.", per_second(carried.offered_rps, "request"))
        }
        (None, None) => "No result: nothing was offered.".to_owned(),
    }
}

/// `served 1,520`, `p95 45 ms, up from 1.2 ms`.
pub(super) fn why_over(step: &RampStep) -> String {
    match step.why {
        Some(Overload::Served) => format!("served {}", rate(step.served_rps)),
        Some(Overload::Failed(n)) => format!("{} failed", plural(n, "request")),
        Some(Overload::Slower(least)) => {
            format!("p95 {}, up from {}", millis_unit(step.p95.unwrap_or_default()), millis_unit(least))
        }
        None => String::new(),
    }
}

/// `1.2 % of 900 requests failed (most: status 503).`
fn failures(summary: &CellSummary) -> Option<String> {
    let said = notes::failing(summary)?;
    Some(format!("{}{}.", said[..1].to_uppercase(), &said[1..]))
}

/// A smaller share of failures is only in the notes of its cell.
const MANY_FAILURES: f64 = 0.01;

/// Which share of the requests of these cells failed, and how:
/// `HTTP/1.1: 10.0 % of 120 requests failed (the connection was closed).` Of several configurations of a protocol, only
/// the one with most failures is named. A cell without a result is left out: its reason says it.
pub(super) fn failing(report: &Report<'_>, cells: impl Iterator<Item = u32>) -> Option<String> {
    let share = |summary: &CellSummary| summary.requests.failed as f64 / summary.requests.sent.max(1) as f64;
    let mut worst: Vec<&CellSummary> = Vec::new();
    for summary in cells.filter_map(|cell| report.analysis.cell(cell)) {
        if is_without_result(summary) || share(summary) < MANY_FAILURES {
            continue;
        }
        match worst.iter_mut().find(|other| other.cell.protocol == summary.cell.protocol) {
            Some(other) if share(other) >= share(summary) => {}
            Some(other) => *other = summary,
            None => worst.push(summary),
        }
    }
    let said = |summary: &&CellSummary| Some(format!("{}: {}", name(summary), notes::failing(summary)?));
    let said: Vec<String> = worst.iter().filter_map(said).collect();
    (!said.is_empty()).then(|| format!("{}.", sentences::capitalised(&said.join("; "))))
}

/// That a comparison ended before there was anything to compare, if so.
fn uncompared(report: &Report<'_>) -> Option<String> {
    let planned = report.run.scenario.plan();
    let is_comparison =
        planned.windows(2).any(|two| two[0].group == two[1].group && two[0].index != two[1].index);
    let only = match report.analysis.cells.as_slice() {
        [summary] => format!(" when only {} had been measured", name(summary)),
        _ => String::new(),
    };
    let is_early = report.run.interrupted && is_planned(report.run) && is_comparison;
    is_early.then(|| format!("Nothing was compared: the run was interrupted{only}."))
}

/// Cells of which each has a condition of its own.
fn of_several(report: &Report<'_>, cells: &[CellSummary]) -> Vec<String> {
    let mut sentences = Vec::new();
    let place = |summary: &CellSummary| format!("{}{}", name(summary), at(report, summary.cell.group));
    let unstable =
        |summary: &&CellSummary| matches!(summary.state, CellState::Unstable { .. }) && !summary.is_dead();
    let worst = cells.iter().filter(unstable).min_by(|a, b| a.served_share().total_cmp(&b.served_share()));
    sentences.extend(worst.map(|summary| {
        let load = sentences::load(summary);
        format!(
            "{}: {} {} {} of {load}.",
            lead_of(summary),
            place(summary),
            sentences::verb(summary, "serve"),
            rate(summary.served_rps)
        )
    }));
    let is_sound = |summary: &&CellSummary| summary.state == CellState::Ok && !summary.is_dead();
    let tail = |summary: &&CellSummary| summary.response.quantile(slow(&summary.response).1);
    let mut sound: Vec<&CellSummary> = cells.iter().filter(is_sound).collect();
    sound.sort_by_key(tail);
    let figure = |summary: &CellSummary| {
        format!("{} {} ({})", slow(&summary.response).0, millis_unit(tail(&summary)), place(summary))
    };
    match sound.as_slice() {
        [] => {}
        [one] => sentences.push(format!("{}.", figure(one))),
        // What clients did at several places is not the same work: nothing is better or worse.
        several if report.is_of_packets() => sentences.push(of_places(several, figure)),
        [best, .., worst] => sentences.push(format!("From {} to {}.", figure(best), figure(worst))),
    }
    let void: Vec<&CellSummary> = cells.iter().filter(|summary| is_without_result(summary)).collect();
    if !void.is_empty() {
        // Of what clients did at several places none stands for the others.
        let most = if report.is_of_packets() { MOST_PLACES } else { 1 };
        let reason = |summary: &&CellSummary| {
            format!("{}: {}", place(summary), sentences::no_result(summary).unwrap_or_default())
        };
        let reasons: Vec<String> = void.iter().take(most).map(reason).collect();
        let verb = if void.len() == 1 { "has" } else { "have" };
        sentences.push(format!(
            "{} of {} {verb} no result: {}.",
            count(void.len() as u64),
            plural(cells.len() as u64, "cell"),
            reasons.join("; ")
        ));
    }
    if report.is_of_packets() {
        sentences.extend(failing_places(cells, place));
        sentences.extend(cause_of_places(report, cells, place));
        return sentences;
    }
    let blamed = worst.or(sound.last().copied());
    let why = |cell| pool(report, cell).or_else(|| cause(report, cell));
    sentences.extend(blamed.and_then(|summary| why(summary.cell.index)));
    sentences
}

/// Of what clients did at several places, more than this many are only counted.
const MOST_PLACES: usize = 3;

/// How the requests of each place failed, those with most failures first; a place without a result is left out: its
/// reason says it.
fn failing_places(cells: &[CellSummary], place: impl Fn(&CellSummary) -> String) -> Option<String> {
    let mut failing: Vec<(&CellSummary, String)> = cells
        .iter()
        .filter(|summary| !is_without_result(summary))
        .filter_map(|summary| Some((summary, notes::failing(summary)?)))
        .collect();
    failing.sort_by_key(|(summary, _)| std::cmp::Reverse(summary.requests.failed));
    let first: Vec<String> =
        failing.iter().take(MOST_PLACES).map(|(summary, how)| format!("{}: {how}", place(summary))).collect();
    let rest = failing.len().saturating_sub(MOST_PLACES) as u64;
    let more = (rest > 0).then(|| format!("; so did some in {}", plural(rest, "other cell")));
    let said = sentences::capitalised(&first.join("; "));
    (!first.is_empty()).then(|| format!("{said}{}.", more.unwrap_or_default()))
}

/// The cause that costs most time of all places, and of which it is: the place with the longest tail may have none.
fn cause_of_places(
    report: &Report<'_>,
    cells: &[CellSummary],
    place: impl Fn(&CellSummary) -> String,
) -> Option<String> {
    let sound = cells.iter().filter(|summary| !is_without_result(summary));
    let causes = sound.filter_map(|summary| Some((summary, dearest(report, summary.cell.index)?)));
    let time = |(summary, finding): &(&CellSummary, &Finding)| {
        finding.cost_share * summary.response.mean().as_secs_f64() * summary.response.n() as f64
    };
    // Observations last, as above.
    let is_cause = |(_, finding): &(&CellSummary, &Finding)| !finding.is_observation();
    let (summary, finding) =
        causes.max_by(|a, b| is_cause(a).cmp(&is_cause(b)).then(time(a).total_cmp(&time(b))))?;
    Some(cause_of(report, finding, &format!(" for {}", place(summary))))
}

/// The figures of the places with most requests: `p95 38.6 ms (one HTTP/2 connection at …); p95 428 ms (…).`
fn of_places(cells: &[&CellSummary], figure: impl Fn(&CellSummary) -> String) -> String {
    let mut cells = cells.to_vec();
    cells.sort_by_key(|summary| std::cmp::Reverse(summary.requests.sent));
    let first: Vec<String> = cells.iter().take(MOST_PLACES).map(|summary| figure(summary)).collect();
    let rest = cells.len().saturating_sub(MOST_PLACES) as u64;
    let more =
        if rest > 0 { format!("; {} with fewer requests", plural(rest, "cell")) } else { String::new() };
    format!("{}{more}.", first.join("; "))
}

/// What slow requests waited for most, where that was analysed: in the cell where they waited longest.
fn slow_requests(report: &Report<'_>) -> Option<String> {
    let tails = report.analysis.cells.iter().filter_map(|summary| {
        let tail = Tail::of(report, summary.cell.index).filter(|tail| tail.unsupported().is_none())?;
        (tail.split.requests > 0).then_some((summary, tail))
    });
    let mean = |tail: &Tail<'_>| tail.split.total_ns / tail.split.requests.max(1);
    let (summary, tail) = tails.max_by_key(|(_, tail)| mean(tail))?;
    let share = |kind: &CauseKind| tail.split.share(*kind);
    let most = *CauseKind::ALL.iter().max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let whose = if report.analysis.cells.len() > 1 {
        format!(" of {}{}", name(summary), at(report, summary.cell.group))
    } else {
        String::new()
    };
    Some(format!(
        "The slowest twentieth of the requests{whose} waited most for {}: {} of {} ms on average.",
        waited_for(most),
        causes::percent(share(&most)),
        super::format::number(
            (millis_f64(std::time::Duration::from_nanos(mean(&tail))) * 10.0).round() / 10.0
        )
    ))
}

/// A cause as what requests waited for.
const fn waited_for(kind: CauseKind) -> &'static str {
    match kind {
        CauseKind::OwnLoss => "their own lost segments",
        CauseKind::HeadOfLine => "lost segments of other streams",
        CauseKind::UnnamedLoss => "lost segments",
        CauseKind::HandshakeLoss => "lost packets of the handshake",
        CauseKind::Handshake => "the handshake",
        CauseKind::CongestionWindow => "the congestion window",
        CauseKind::FlowWindow => "the flow-control window",
        CauseKind::StreamSlot => "a connection or a stream",
        CauseKind::Server => "the server",
        CauseKind::Client => "the client",
        CauseKind::Queue => "the queue of the link",
        CauseKind::Propagation => "the delay of the link",
        CauseKind::Unknown => "an unknown cause",
    }
}

/// The answer of bulk work: the slowest and the fastest cell, and what limited the slowest.
pub(super) fn of_bulk(cells: &[BulkCell<'_>]) -> Vec<String> {
    let rate = |one: &&BulkCell<'_>| one.rate().unwrap_or(0.0);
    let mut sound: Vec<&BulkCell<'_>> = cells.iter().filter(|one| one.rate().is_some()).collect();
    sound.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    let figure = |one: &BulkCell<'_>| {
        let of_tcp = one
            .of_tcp
            .filter(|_| one.summary.cell.protocol != h2lab_model::workload::Protocol::Tcp)
            .map_or(String::new(), |share| format!(", {} × the rate of TCP alone", ratio(share)));
        let place = if cells.len() == 1 { String::new() } else { format!(" ({})", one.factor) };
        format!("{}{place}: {}{of_tcp}", name(one.summary), bits_text(one.rate().unwrap_or(0.0)))
    };
    let mut sentences = match sound.as_slice() {
        [] => Vec::new(),
        [one] => vec![format!("{}.", figure(one))],
        [slowest, .., fastest] => {
            vec![format!("Slowest: {}.", figure(slowest)), format!("Fastest: {}.", figure(fastest))]
        }
    };
    let void: Vec<&BulkCell<'_>> = cells.iter().filter(|one| one.rate().is_none()).collect();
    if let Some(first) = void.first() {
        let reason = sentences::no_result(first.summary)
            .or_else(|| sentences::state(first.summary))
            .unwrap_or_else(|| "no data was transferred".to_owned());
        sentences.push(format!(
            "{} of {} without a rate: {} ({}): {reason}.",
            count(void.len() as u64),
            plural(cells.len() as u64, "cell"),
            first.summary.label,
            first.factor
        ));
    }
    if let Some(held) = bulk_cells::held(cells).first() {
        sentences.push(format!("{}.{}", held.title, held.change));
    }
    sentences
}
