//! Conditions, verdicts and findings in plain sentences with numbers.

mod unexplained;

use std::collections::BTreeSet;
use std::fmt::Write;

pub(super) use unexplained::{unexplained, unexplained_lines};

use super::format::{NOT_RESOLVED, bound, count, interval_of, millis_unit, plural, rate, ratio};
use super::{Report, condition, factors, notes};
use h2lab_analysis::diagnose::Finding;
use h2lab_analysis::stats::{
    CellState, CellSummary, CellVerdict, Conclusion, Failed, Instability, Judged, Pair, RatioInterval,
    Setting, Tail, Unclaimed,
};
use h2lab_base::text::made_printable;
use h2lab_base::units::{format_duration, measured_time};
use h2lab_model::bulk::rate::bits_text;
use h2lab_model::record::Level;
use h2lab_model::scenario::{Cell, Difference, Target};
use h2lab_model::workload::{Arrival, Protocol};

/// A cell in a sentence: `HTTP/1.1`, `one HTTP/2 connection`, `16 HTTP/2 connections`.
pub(super) fn name(summary: &CellSummary) -> String {
    let cell = &summary.cell;
    let mut name = match (cell.protocol, cell.connections) {
        (Protocol::H1, _) => "HTTP/1.1".to_owned(),
        (Protocol::H1s, _) => "HTTP/1.1 over TLS".to_owned(),
        (Protocol::H2c, 1) => "one HTTP/2 connection".to_owned(),
        (Protocol::H2, 1) => "one HTTP/2 connection over TLS".to_owned(),
        (Protocol::H2c, n) => format!("{n} HTTP/2 connections"),
        (Protocol::H2, n) => format!("{n} HTTP/2 connections over TLS"),
        (Protocol::H3, 1) => "one HTTP/3 connection".to_owned(),
        (Protocol::H3, n) => format!("{n} HTTP/3 connections"),
        (Protocol::Tcp, _) => "TCP without HTTP".to_owned(),
    };
    if cell.twin > 0 {
        let _ = write!(name, " (the same once more, #{})", cell.twin + 1);
    }
    let distinguishes = |difference| summary.naming.distinguishes(difference, cell);
    if distinguishes(Difference::Streams) {
        let _ = write!(name, " of up to {}", plural(u64::from(cell.streams), "stream"));
    }
    if distinguishes(Difference::Limit) {
        let _ = match cell.max_requests_per_connection {
            Some(requests) => write!(name, " of at most {}", plural(u64::from(requests), "request")),
            None => write!(name, " of any number of requests"),
        };
    }
    let others = [
        Difference::Dial,
        Difference::Client,
        Difference::Policy,
        Difference::Server,
        Difference::Setup,
        Difference::Congestion,
        Difference::Sysctls,
        Difference::Queue,
    ];
    for difference in others.into_iter().filter(|difference| distinguishes(*difference)) {
        let values = difference.values(cell);
        if !values.is_empty() {
            let _ = write!(name, " ({})", values.join(", "));
        }
    }
    if distinguishes(Difference::Target) {
        let _ = write!(name, " at {}", cell.target.name());
    }
    name
}

/// A verdict as a sentence with numbers and its certainty. The cause is the cell's costliest finding; without a finding no cause
/// is named.
pub(super) fn verdict(report: &Report<'_>, verdict: &CellVerdict) -> String {
    let Some(cell) = report.analysis.cell(verdict.cell) else { return String::new() };
    let blamed = match verdict.conclusion {
        Conclusion::BaselineUnstable { .. } => report.analysis.cell(verdict.baseline).unwrap_or(cell),
        _ => cell,
    };
    let cause = if names_a_cause(&verdict.conclusion) { cause(report, blamed) } else { String::new() };
    format!("{}{cause}.", headline(report, verdict))
}

/// The sentence about a cell and the first one that differs from it in one setting: `At bbr: one HTTP/2 connection is faster than
/// that at cubic: p95 0.61 × …`.
pub(super) fn pair(report: &Report<'_>, pair: &Pair) -> String {
    let verdict = &pair.verdict;
    let (Some(first), Some(cell)) =
        (report.analysis.cell(verdict.baseline), report.analysis.cell(verdict.cell))
    else {
        return String::new();
    };
    let base = match pair.setting {
        // Names have these.
        Setting::Connections | Setting::Streams | Setting::Dial => name(first),
        _ => {
            let that = if is_plural(first) { "those" } else { "that" };
            format!("{that} at {}", factors::setting(&cell.cell, &first.cell))
        }
    };
    format!("{}.", against(report, verdict, &base))
}

/// A verdict without its cause, as a heading.
pub(super) fn headline(report: &Report<'_>, verdict: &CellVerdict) -> String {
    let baseline = report.analysis.cell(verdict.baseline);
    baseline.map_or(String::new(), |baseline| against(report, verdict, &name(baseline)))
}

/// A verdict without its cause, in which the baseline is called `base`.
fn against(report: &Report<'_>, verdict: &CellVerdict, base: &str) -> String {
    let (Some(baseline), Some(cell)) =
        (report.analysis.cell(verdict.baseline), report.analysis.cell(verdict.cell))
    else {
        return String::new();
    };
    let groups = report.analysis.groups();
    let group =
        groups.iter().find(|group| group.first().is_some_and(|first| first.cell.group == verdict.group));
    let at = group
        .and_then(|group| condition::beginning(report, group))
        .map_or(String::new(), |text| format!("{text}: "));
    let name = name(cell);
    let body = match verdict.conclusion {
        Conclusion::Faster => format!("{name} {} faster than {base}: {}", is(cell), tail(verdict, "")),
        Conclusion::Slower => format!("{name} {} slower than {base}: {}", is(cell), tail(verdict, "")),
        Conclusion::NoDifference => no_difference(verdict, &name, base),
        Conclusion::Unstable { offered_rps, served_rps } => match grown(cell) {
            Some(grown) => format!("with {name} {grown}; {base} {} the load", verb(baseline, "carry")),
            None => format!(
                "{name} {} {} of {} requests/s; {base} {} {}",
                verb(cell, "serve"),
                rate(served_rps),
                rate(offered_rps),
                verb(baseline, "serve"),
                rate(baseline.served_rps)
            ),
        },
        Conclusion::BaselineUnstable { offered_rps, served_rps } => match grown(baseline) {
            Some(grown) => format!("{name} {} the load, with {base} {grown}", verb(cell, "carry")),
            None => format!(
                "{name} {} the load, {base} {} only {} of {} requests/s",
                verb(cell, "carry"),
                verb(baseline, "serve"),
                rate(served_rps),
                rate(offered_rps)
            ),
        },
        Conclusion::BothUnstable if [baseline, cell].into_iter().all(fails) => format!(
            "requests fail over both at {}: {base} {} {}/s, {name} {}/s",
            condition::offered(&cell.cell),
            verb(baseline, "serve"),
            rate(baseline.served_rps),
            rate(cell.served_rps)
        ),
        Conclusion::BothUnstable => format!(
            "neither carries the load of {}: {base} {} {}/s, {name} {}/s",
            condition::offered(&cell.cell),
            verb(baseline, "serve"),
            rate(baseline.served_rps),
            rate(cell.served_rps)
        ),
        Conclusion::Failed | Conclusion::Invalid | Conclusion::Unsupported | Conclusion::UnlikeMachines => {
            format!("no verdict on {name}: {}", first_reason(report, verdict, ""))
        }
    };
    format!("{at}{body}{}{}", served(verdict), served_of_load(verdict))
}

/// Whether failures are why a cell does not serve its load.
fn fails(cell: &CellSummary) -> bool {
    matches!(&cell.state, CellState::Unstable { why, .. } if why.is_of_failures())
}

/// How response times grew, of a cell that shows in nothing else that it does not carry the load.
fn grown(cell: &CellSummary) -> Option<String> {
    match &cell.state {
        CellState::Unstable { why: why @ Instability::Growing { .. }, .. } => Some(format!("the {why}")),
        _ => None,
    }
}

/// The clause about throughput, which applies to a closed loop: there the server determines the rate.
pub(super) fn served(verdict: &CellVerdict) -> String {
    let of_loop = verdict.throughput.filter(|_| !verdict.conclusion.is_of_load());
    of_loop.map_or(String::new(), |of| {
        format!(
            "; served {}{} against {} requests/s)",
            with_interval([of.ratio, of.low, of.high], ""),
            rate(of.cell_rps),
            rate(of.baseline_rps)
        )
    })
}

/// The clause about what is served of a load that is not carried; both rates are in the sentence before it.
fn served_of_load(verdict: &CellVerdict) -> String {
    let Some(of) = verdict.throughput.filter(|_| verdict.conclusion.is_of_load()) else {
        return String::new();
    };
    match interval_of([of.ratio, of.low, of.high], "–") {
        Some(interval) => {
            let open = if of.is_clear_of_one() { "" } else { ", no difference resolved" };
            format!("; served {} × (95 % interval {interval}{open})", ratio(of.ratio))
        }
        None => "; too few rounds to say how far what is served varies".to_owned(),
    }
}

/// `0.95 × HTTP/1.1 (95 % interval 0.82–1.09; `: what follows are the two figures. `not resolved (` where the interval says nothing.
fn with_interval(of: [f64; 3], base: &str) -> String {
    match interval_of(of, "–") {
        Some(interval) => format!("{} ×{base} (95 % interval {interval}; ", ratio(of[0])),
        None => format!("{NOT_RESOLVED} ("),
    }
}

/// Whether a conclusion needs a cause.
const fn names_a_cause(conclusion: &Conclusion) -> bool {
    matches!(
        conclusion,
        Conclusion::Slower
            | Conclusion::Unstable { .. }
            | Conclusion::BaselineUnstable { .. }
            | Conclusion::BothUnstable
    )
}

/// The clause about the cause: the symptom of the costliest finding in the cell, with its rule.
fn cause(report: &Report<'_>, cell: &CellSummary) -> String {
    let findings = report.findings.iter().filter(|finding| finding.cell == cell.cell.index);
    let dearest = findings.max_by(|a, b| a.cost_share.total_cmp(&b.cost_share));
    dearest.map_or(String::new(), |finding| {
        format!(" ({}: {})", finding.rule, lower_first(finding.symptom.trim_end_matches('.')))
    })
}

/// A sentence as a clause: its first letter in lower case, unless its first word is a name such as `HTTP/2` or `DATA`.
pub(super) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}

/// A sentence that begins with a capital letter, unless it begins with a name: `h2c × 1`.
pub(super) fn capitalised(sentence: &str) -> String {
    let is_word = sentence.split(' ').next().is_some_and(|word| word.chars().all(char::is_alphabetic));
    let mut rest = sentence.chars();
    match rest.next() {
        Some(first) if is_word => first.to_uppercase().chain(rest).collect(),
        _ => sentence.to_owned(),
    }
}

fn no_difference(verdict: &CellVerdict, name: &str, base: &str) -> String {
    if let Some(tail) =
        verdict.tail_ratio.filter(|tail| interval_of([tail.ratio, tail.low, tail.high], "").is_none())
    {
        return format!(
            "{name}: no difference resolved: {} {} against {}, and too few or too uneven responses to tell them apart; \
             measure for longer (-z)",
            verdict.tail.name(),
            millis_unit(tail.candidate),
            millis_unit(tail.baseline)
        );
    }
    let why = why_unclaimed(verdict);
    let Some(median) = verdict
        .median_ratio
        .filter(|_| verdict.median_conclusion.as_ref().is_some_and(Conclusion::claims_a_difference))
    else {
        return format!("{name}: {}, no difference resolved{why}", tail(verdict, base));
    };
    let word = if median.ratio < 1.0 { "faster" } else { "slower" };
    format!(
        "{name}: {}, no difference resolved in the tail{why}; the usual request is {word}: p50 {}",
        tail(verdict, base),
        interval(&median, "")
    )
}

/// Which of the rules for a difference was not met, where the interval does not show it.
fn why_unclaimed(verdict: &CellVerdict) -> String {
    match (verdict.unclaimed(), verdict.tail_ratio) {
        (Some(Unclaimed::Small), _) => " (less than 10 %)".to_owned(),
        (Some(Unclaimed::BelowFloor), _) => {
            format!(" (differences below {} are not claimed)", bound(verdict.floor))
        }
        (Some(Unclaimed::Undecided), _) => " (the interval includes 1)".to_owned(),
        (Some(Unclaimed::Unsound), Some(tail)) => too_short(&tail),
        _ => String::new(),
    }
}

/// The remedy, where repetitions were too short for the stalls in them.
fn too_short(tail: &RatioInterval) -> String {
    let seconds = tail.needed_repetition().as_secs_f64().ceil();
    let stall = measured_time(tail.longest_stall);
    format!(
        " (requests stalled together for up to {stall}: that needs repetitions of {seconds} s, -z {seconds}s)"
    )
}

/// `p99 0.95 × HTTP/1.1 (95 % interval 0.82–1.09; 231 ms against 243 ms)`; of bulk work `rate 0.95 × …`.
fn tail(verdict: &CellVerdict, base: &str) -> String {
    if let Some(of) = verdict.bytes {
        let base = if base.is_empty() { String::new() } else { format!(" {base}") };
        let with_interval = with_interval([of.ratio, of.low, of.high], &base);
        let [cell, baseline] = [of.cell_rps, of.baseline_rps].map(|bytes| bits_text(bytes * 8.0));
        return format!("rate {with_interval}{cell} against {baseline})");
    }
    let Some(ratio) = &verdict.tail_ratio else {
        return "too few requests were answered for an interval".to_owned();
    };
    format!("{} {}", verdict.tail.name(), interval(ratio, base))
}

fn interval(interval: &RatioInterval, base: &str) -> String {
    let base = if base.is_empty() { String::new() } else { format!(" {base}") };
    format!(
        "{}{} against {})",
        with_interval([interval.ratio, interval.low, interval.high], &base),
        millis_unit(interval.candidate),
        millis_unit(interval.baseline)
    )
}

fn is_plural(cell: &CellSummary) -> bool {
    cell.cell.protocol.is_multiplexed() && cell.cell.connections != 1
}

fn is(cell: &CellSummary) -> &'static str {
    if is_plural(cell) { "are" } else { "is" }
}

/// `has` in the cell's number.
pub(super) fn has(cell: &CellSummary) -> &'static str {
    if is_plural(cell) { "have" } else { "has" }
}

/// A regular verb in the cell's number.
pub(super) fn verb(cell: &CellSummary, stem: &str) -> String {
    match stem.strip_suffix('y') {
        _ if is_plural(cell) => stem.to_owned(),
        Some(stem) => format!("{stem}ies"),
        None => format!("{stem}s"),
    }
}

/// The first reason for which there is no verdict, and the cell that it is about, with its condition `at`, if that is to be named.
pub(super) fn first_reason(report: &Report<'_>, verdict: &CellVerdict, at: &str) -> String {
    let reason = |index| {
        let summary = report.analysis.cell(index)?;
        Some(format!("{}{at}: {}", summary.label, no_result(summary)?))
    };
    let both = [verdict.baseline, verdict.cell].map(|index| report.analysis.cell(index));
    if verdict.conclusion == Conclusion::UnlikeMachines {
        return format!("{}{at}", unlike_machines(&both));
    }
    if let [Some(baseline), Some(cell)] = both
        && let (Some(one), Some(other)) = (only_statuses(baseline), only_statuses(cell))
    {
        return if one == other {
            format!("both ways answered only {one}{at}")
        } else {
            format!("{} answered only {one}, {} only {other}{at}", baseline.label, cell.label)
        };
    }
    reason(verdict.cell).or_else(|| reason(verdict.baseline)).unwrap_or_default()
}

/// That these cells were measured by machines that are unlike, and by which.
fn unlike_machines(cells: &[Option<&CellSummary>]) -> String {
    let machines = cells.iter().flatten().flat_map(|summary| &summary.machines);
    let names: BTreeSet<_> = machines.map(|machine| made_printable(&machine.agent)).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    format!("it is a comparison across unlike machines ({})", names.join(", "))
}

/// The statuses of a cell that answered, but never with a success.
fn only_statuses(summary: &CellSummary) -> Option<String> {
    matches!(summary.state, CellState::Failed { how: Failed::NoSuccess, .. })
        .then(|| summary.statuses.keys().map(u16::to_string).collect::<Vec<_>>().join(", "))
}

/// Why a cell has no result; `None` if it has one.
pub(super) fn no_result(summary: &CellSummary) -> Option<String> {
    match &summary.state {
        CellState::Invalid { reasons } => reasons.first().cloned(),
        CellState::Failed { why, .. } | CellState::Unsupported { why } => Some(why.clone()),
        CellState::Ok | CellState::Unstable { .. } if summary.is_dead() && !summary.cell.work.bulk => {
            let sent = plural(summary.requests.sent, "request");
            Some(match summary.errors.first() {
                None => format!("none of {sent} was answered"),
                Some(most) if most.count == summary.requests.sent => {
                    format!("none of {sent} succeeded: {}", notes::kind(summary, most))
                }
                Some(most) => format!("none of {sent} succeeded, most: {}", notes::kind(summary, most)),
            })
        }
        CellState::Ok | CellState::Unstable { .. } => None,
    }
}

/// What a cell had to carry: `1,000 requests/s`, `32 in flight`; of a changing rate the mean.
pub(super) fn load(summary: &CellSummary) -> String {
    match summary.cell.work.arrival {
        Arrival::Ramp { .. } => format!("{} requests/s on average", rate(summary.offered_rps)),
        // A load of fewer requests never has so many in flight.
        Arrival::Closed { concurrency } if summary.requests.sent > 0 => {
            format!("{} in flight", count(u64::from(concurrency).min(summary.requests.sent)))
        }
        _ => condition::offered(&summary.cell),
    }
}

/// The note beneath a row for a state other than ok.
pub(super) fn state(summary: &CellSummary) -> Option<String> {
    match &summary.state {
        CellState::Ok => None,
        CellState::Unstable { offered_rps, served_rps, why } => {
            let why = match why {
                // The two rates show it already.
                Instability::Served { failed, .. } if *failed <= 0.01 => String::new(),
                why => format!("; {why}"),
            };
            // A closed loop offers what is answered.
            let offered =
                summary.cell.work.arrival.rate().map(|_| format!("offered {}/s, ", rate(*offered_rps)));
            let offered = offered.unwrap_or_default();
            Some(format!("unstable: {offered}served {}/s{why}", rate(*served_rps)))
        }
        CellState::Invalid { reasons } => Some(format!("invalid: {}", reasons.join("; "))),
        CellState::Failed { why, .. } => Some(format!("failed: {why}")),
        CellState::Unsupported { why } => Some(format!("unsupported: {why}")),
    }
}

/// What was read out of packets: `12 requests of h2c on 2 connections`.
pub(super) fn seen(report: &Report<'_>) -> String {
    let of = |summary: &CellSummary| {
        let requests = plural(summary.requests.sent, "request");
        let connections = plural(summary.connections.opened, "connection");
        format!("{requests} of {} on {connections}", summary.cell.protocol)
    };
    report.analysis.cells.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// The work, and how it was measured, in a line.
pub(super) fn work(report: &Report<'_>) -> Option<String> {
    if report.is_of_packets() {
        return Some(format!(
            "Seen in packets: {}; nothing was changed, so that what was found is observed, not confirmed",
            seen(report)
        ));
    }
    let cells = &report.analysis.cells;
    let first = cells.iter().find(|summary| summary.repetitions > 0).or(cells.first())?;
    let work = &first.cell.work;
    let each = first.measured / first.repetitions.max(1);
    let repetitions = plural(u64::from(first.repetitions), "repetition");
    if work.bulk {
        return Some(format!(
            "{} {}, responses that last or are repeated until the time is over; {repetitions} of {} after a warm-up of {}",
            work.method,
            work.path,
            format_duration(each),
            format_duration(work.phases.warmup)
        ));
    }
    let body = match work.body_length() {
        0 => String::new(),
        bytes => format!(" with a body of {}", h2lab_base::units::format_bytes(bytes)),
    };
    Some(format!(
        "{} {}{body}, {} headers ({} B as text); {} of {} each",
        work.method,
        work.path,
        work.shape,
        work.shape.plain_bytes(),
        repetitions,
        format_duration(each)
    ))
}

/// How large a request of each cell was: `Per request: h1 1,768 B in 2.0 segments`. Cells are left out of which
/// that is not known, and those where a sidecar rewrites requests, since the generator's bytes then never cross the link.
pub(super) fn request_sizes(group: &[&CellSummary]) -> Option<String> {
    let size = |summary: &&CellSummary| {
        let per = &summary.per_request;
        let unit = if summary.cell.protocol.is_quic() { "datagrams" } else { "segments" };
        let segments = per.segments_up.map_or(String::new(), |n| format!(" in {n:.1} {unit}"));
        let bytes = count(per.bytes_up.unwrap_or_default().round() as u64);
        format!("{} {bytes} B{segments}", summary.label)
    };
    let is_sent = |summary: &&&CellSummary| {
        summary.repetitions > 0 && summary.cell.sidecar.is_none() && summary.per_request.bytes_up.is_some()
    };
    let sent: Vec<&CellSummary> = group.iter().filter(is_sent).copied().collect();
    let sizes = sent.iter().map(size).collect::<Vec<_>>().join(", ");
    (!sent.is_empty()).then(|| format!("Per request: {sizes}"))
}

/// How requests were recorded.
pub(super) const fn recorded(level: Level) -> &'static str {
    match level {
        Level::Full => "every request is kept: percentiles are exact",
        Level::Tail => {
            "all requests are counted, in histograms to three digits; kept individually: the slowest, the failed, one \
             in a thousand of the others; no frames from then on"
        }
        Level::Hist => "all requests are counted, in histograms to three digits; none is kept individually",
    }
}

/// The levels at which the cells were recorded, `full: every request …`, the most detailed first. Where they differ, each has its
/// number of cells.
pub(super) fn recordings(report: &Report<'_>) -> Vec<String> {
    let cells = report.analysis.cells.iter().filter(|summary| summary.repetitions > 0);
    let levels: Vec<Level> = cells.map(|summary| summary.level).collect();
    let of = |level: &Level| levels.iter().filter(|one| *one == level).count();
    let rendered = |level: Level| match of(&level) {
        n if n == levels.len() => format!("{level}: {}", recorded(level)),
        n => format!("{level}, {} of {}: {}", n, plural(levels.len() as u64, "cell"), recorded(level)),
    };
    Level::ALL.into_iter().filter(|level| of(level) > 0).map(rendered).collect()
}

/// How verdicts came about, once for all of them: the sample, and the rules as they were used.
pub(super) fn how_sure(report: &Report<'_>) -> Option<String> {
    let ratios: Vec<&RatioInterval> =
        report.analysis.verdicts.iter().filter_map(|v| v.tail_ratio.as_ref()).collect();
    let fewest = ratios.iter().min_by_key(|ratio| ratio.blocks)?;
    let floors = || report.analysis.verdicts.iter().map(|verdict| verdict.floor);
    let floor = match (floors().min()?, floors().max()?) {
        (least, most) if least == most => bound(most),
        (least, most) => format!("{} to {}", bound(least), bound(most)),
    };
    let stalls = if ratios.iter().all(|ratio| ratio.is_sound()) {
        ""
    } else {
        "; nothing is claimed where requests stalled together for more than a quarter of a repetition"
    };
    Some(format!(
        "Intervals: block bootstrap over time and repetitions, at least {} of {}. A difference of the tails is \
         claimed if its interval excludes 1, it is 10 % or more, and at least {floor} (twice how late our own \
         generator and link were, and \
         never less than 0.2 ms){stalls}.",
        plural(fewest.blocks as u64, "block"),
        measured_time(fewest.block)
    ))
}

/// Whether a cell has no other to be compared with: its percentiles are those that there are.
pub(super) fn is_alone(report: &Report<'_>) -> bool {
    report.analysis.cells.len() == 1
}

/// Fewer requests than these have neither a rate nor a tail.
pub(super) const FEW: u64 = 20;

/// Why some p95 or p99 are missing, if any are.
pub(super) fn missing_tails(report: &Report<'_>) -> Option<String> {
    let is_few = |cell: &CellSummary| !cell.cell.work.bulk && (1..FEW).contains(&cell.response.n());
    let few = report.analysis.cells.iter().any(is_few);
    let few = few.then(|| format!("A p95 or p99 is printed only of {FEW} or more requests."));
    if is_alone(report) {
        return few;
    }
    // Bulk work has no tails.
    let is_short = |cell: &CellSummary| !cell.cell.work.bulk && cell.response.tail() == Tail::P95;
    let short = report.analysis.cells.iter().any(is_short);
    let needed = Tail::NEEDED_ABOVE;
    let short = short.then(|| format!("A p99 is printed only with {needed} or more requests above it."));
    let said: Vec<String> = few.into_iter().chain(short).collect();
    (!said.is_empty()).then(|| said.join(" "))
}

/// Warnings about the measurement, each once, with the cells that it is about.
pub(super) fn warnings(report: &Report<'_>) -> Vec<String> {
    let mut by_text: Vec<(&str, Vec<String>)> = Vec::new();
    for group in report.analysis.groups() {
        let at = condition::beginning(report, &group);
        for summary in group {
            let at = at.as_deref().map_or(String::new(), |at| format!(" {}", lower_first(at)));
            let place = format!("{}{at}", summary.label);
            for warning in &summary.warnings {
                match by_text.iter_mut().find(|(text, _)| text == warning) {
                    Some((_, places)) => places.push(place.clone()),
                    None => by_text.push((warning, vec![place.clone()])),
                }
            }
        }
    }
    let of_cells = by_text.into_iter().map(|(text, places)| format!("{text} ({})", places.join("; ")));
    report.analysis.warnings.iter().cloned().chain(of_cells).collect()
}

/// A condition of `--fail-if`, in which group, and what was measured.
pub fn judged(report: &Report<'_>, judged: &Judged) -> String {
    let groups = report.analysis.groups();
    let is_its = |group: &&Vec<&CellSummary>| group.iter().any(|s| s.cell.group == judged.group);
    let at = groups.iter().find(is_its).and_then(|group| condition::beginning(report, group));
    let at = at.map_or(String::new(), |at| format!(" {}", lower_first(&at)));
    format!("{}{at}: {}", judged.condition, judged.measured)
}

/// The hop at fault, for each rule that fires for some of several targets and not for others: a proxy, and its
/// upstream, side by side. The link affects every target: its causes belong to no hop.
pub(super) fn hops(report: &Report<'_>) -> Vec<String> {
    let mut rules: Vec<&str> = report.findings.iter().map(|finding| finding.rule.as_str()).collect();
    rules.sort_unstable();
    rules.dedup();
    rules.into_iter().filter(|rule| !rule.starts_with("LOSS")).filter_map(|rule| hop(report, rule)).collect()
}

/// Whether a rule sees the connections of a cell, and they were measured soundly: a sidecar's are not ours.
fn is_evidence(summary: &CellSummary) -> bool {
    let is_sound = matches!(summary.state, CellState::Ok | CellState::Unstable { .. });
    is_sound && summary.repetitions > 0 && !summary.is_dead() && summary.cell.sidecar.is_none()
}

/// What is asked of a target, and how: a cell without its place in the matrix, its target, and that target's limit of requests.
fn asked(cell: &Cell) -> Cell {
    let (target, seed, request_seed) = (Target::Origin, 0, 0);
    let max_requests_per_connection = None;
    Cell { index: 0, group: 0, seed, request_seed, target, max_requests_per_connection, ..cell.clone() }
}

fn hop(report: &Report<'_>, rule: &str) -> Option<String> {
    let is_found = |summary: &CellSummary| {
        report.findings.iter().any(|finding| finding.rule == rule && finding.cell == summary.cell.index)
    };
    // By target: measured cells, those for which the rule fires, and what was asked.
    let mut targets: Vec<(&str, u64, u64, Vec<Cell>)> = Vec::new();
    for summary in report.analysis.cells.iter().filter(|summary| is_evidence(summary)) {
        let name = summary.cell.target.name();
        let place = targets.iter().position(|target| target.0 == name).unwrap_or(targets.len());
        if place == targets.len() {
            targets.push((name, 0, 0, Vec::new()));
        }
        let (_, all, found, conditions) = &mut targets[place];
        *all += 1;
        *found += u64::from(is_found(summary));
        let condition = asked(&summary.cell);
        if !conditions.contains(&condition) {
            conditions.push(condition);
        }
    }
    let (_, _, _, first) = targets.first()?;
    let is_equal = |of: &[Cell]| of.len() == first.len() && of.iter().all(|one| first.contains(one));
    if !targets.iter().all(|(.., conditions)| is_equal(conditions)) {
        return None;
    }
    let (guilty, free): (Vec<_>, Vec<_>) = targets.into_iter().partition(|&(_, _, found, _)| found > 0);
    if guilty.is_empty() || free.is_empty() {
        return None;
    }
    let names = guilty.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(" and at ");
    let guilty = guilty
        .iter()
        .map(|(name, all, found, _)| format!("at {name} in {found} of {}", plural(*all, "cell")));
    let free = free.iter().map(|(name, all, ..)| format!("at {name} in none of {all}"));
    let rendered = guilty.chain(free).collect::<Vec<_>>().join(", ");
    Some(format!("{rule} is found {rendered}: the cause lies at {names}."))
}

/// The cell of a finding with what distinguishes its group from the others: `h2c × 1 at 3% loss`.
fn place(report: &Report<'_>, finding: &Finding) -> String {
    let groups = report.analysis.groups();
    let is_there = |group: &&Vec<&CellSummary>| group.iter().any(|s| s.cell.index == finding.cell);
    let at = groups.iter().find(is_there).and_then(|group| condition::beginning(report, group));
    let at = at.map_or(String::new(), |at| format!(" {}", lower_first(&at)));
    format!("{}{at}", finding.label)
}

/// A finding's first line: the rule, and the cell with what distinguishes its group from the others.
pub(super) fn finding_title(report: &Report<'_>, finding: &Finding) -> String {
    let sure = finding.confidence.name();
    let level = report.analysis.cell(finding.cell).map(|summary| summary.level).unwrap_or_default();
    let seen = if level == Level::Full { "" } else { ", in a sample of the requests" };
    format!("{} {} in {} ({sure}{seen})", finding.rule, finding.name, place(report, finding))
}

#[cfg(test)]
mod tests;
