//! The summary of one load for a terminal, in the order of hey and oha; zeros are left out.

pub(super) mod agents;

use std::time::Duration;

use super::Report;
use super::format::{
    bytes, count, distinct_millis, millis, millis_unit, noun_of, number, per_second, plural, rate,
};
use super::page::{Page, listed, some};
use super::style::{Paint, TextStyle, paragraph};
use super::table::{Column, name, number as numeric};
use super::text::{findings, places};
use super::{answer, notes, sentences};
use h2lab_analysis::stats::{
    CellState, CellSummary, Closing, Latency, LostShares, QuicEnd, RampStep, RampSteps, bars,
};
use h2lab_wire::ErrorCode;
use h2lab_wire::connection::FRAME_TYPES;
use h2lab_wire::setting_name_in;

/// Kinds of one thing, or names, that are listed; the others are counted.
const LISTED: usize = 6;

/// The summary of a run that is a load: it has one cell.
///
/// # Panics
///
/// If the run has no repetition.
pub fn load_text(report: &Report<'_>, style: TextStyle) -> String {
    let summary = report.analysis.cells.first().expect("a load has one cell");
    let mut page = counted(summary, style);
    agents::write(&mut page, report);
    doubts(&mut page, report, summary);
    findings(&mut page.out, report, style);
    places(&mut page.out, report, style);
    page.blank();
    answer::text(&mut page.out, report, style);
    style.printable(page.out)
}

/// The counts and times of a cell, without conclusions.
pub(super) fn counts(summary: &CellSummary, style: TextStyle) -> String {
    counted(summary, style).out
}

fn counted(summary: &CellSummary, style: TextStyle) -> Page {
    let mut page = Page::new(style);
    requests(&mut page, summary);
    latencies(&mut page, summary);
    if !summary.is_dead() {
        histogram(&mut page, &summary.response);
    }
    ramp(&mut page, summary);
    outcomes(&mut page, summary);
    connections(&mut page, summary);
    traffic(&mut page, summary);
    generator(&mut page, summary);
    page
}

/// The first few of many items, each a `noun`, and how many more there are.
fn first_few(items: impl IntoIterator<Item = String>, noun: &str) -> String {
    let mut items: Vec<String> = items.into_iter().collect();
    if items.len() > LISTED {
        let more = items.split_off(LISTED).len();
        items.push(format!("and {}", plural(more as u64, &format!("more {noun}"))));
    }
    items.join(", ")
}

/// A share of 1 in percent: `99.95 %`.
fn percent(part: u64, whole: u64) -> String {
    format!("{} %", number((part as f64 / whole.max(1) as f64 * 1e4).round() / 100.0))
}

fn requests(page: &mut Page, summary: &CellSummary) {
    let counts = &summary.requests;
    let text = listed([
        Some(format!(
            "{} {} in {}",
            count(counts.sent),
            if counts.unsent > 0 { "due" } else { "sent" },
            h2lab_base::units::format_duration(rounded(summary.measured))
        )),
        some(counts.unsent, "never sent"),
        Some(format!("{} succeeded ({})", count(counts.succeeded), percent(counts.succeeded, counts.sent))),
        some(counts.failed, "failed"),
        some(counts.unfinished, "unfinished"),
    ]);
    page.line("Requests", &text);
    let again = (counts.replayed > 0)
        .then(|| format!("{}, {}", plural(counts.replayed, "time"), notes::why_again(summary)));
    page.line("  sent again", &again.unwrap_or_default());
    let offered = (summary.cell.work.arrival.rate().is_some())
        .then(|| format!(" of {}/s that were due", rate(summary.offered_rps)));
    let lost = summary.lost_shares.as_ref().map(lost_shares).unwrap_or_default();
    page.line(
        "Throughput",
        &format!("{}{}{lost}", per_second(summary.served_rps, "success"), offered.unwrap_or_default()),
    );
    let each = summary.goodput_bytes_per_s / summary.served_rps.max(f64::MIN_POSITIVE);
    let goodput = format!("{}/s of bodies, {} each", bytes(summary.goodput_bytes_per_s), bytes(each));
    page.line("Goodput", if summary.goodput_bytes_per_s > 0.0 { &goodput } else { "" });
}

/// `; the share of c (58/s) is lost`.
fn lost_shares(lost: &LostShares) -> String {
    let names = first_few(lost.agents.iter().cloned(), "agent");
    let each = lost.each_rps.map(rate);
    match (lost.agents.len(), each) {
        (1, Some(each)) => format!("; the share of {names} ({each}/s) is lost"),
        (1, None) => format!("; the share of {names} is lost"),
        (_, Some(each)) => format!("; the shares of {names} ({each}/s each) are lost"),
        (_, None) => format!("; the shares of {names} are lost"),
    }
}

/// Rounded to milliseconds.
fn rounded(time: Duration) -> Duration {
    Duration::from_millis((time.as_secs_f64() * 1e3).round() as u64).max(Duration::from_millis(1))
}

fn latencies(page: &mut Page, summary: &CellSummary) {
    let title = "Latency, ms";
    let columns = [
        name(title),
        numeric("min", "").rank(5),
        numeric("p50", "").rank(1),
        numeric("p90", "").rank(6),
        numeric("p95", "").rank(2),
        numeric("p99", "").rank(1),
        numeric("p99.9", "").rank(7),
        numeric("max", "").rank(3),
        numeric("mean", "").rank(4),
    ];
    // The ages of unfinished requests are no response times where nothing was answered.
    if summary.is_dead() {
        return;
    }
    let kinds =
        [("  response", &summary.response), ("  service", &summary.service), ("  TTFB", &summary.ttfb)];
    let rows: Vec<Vec<String>> = kinds.into_iter().filter_map(|(name, of)| row(name, of)).collect();
    if rows.is_empty() {
        return;
    }
    // A block does not show the first column's title.
    if page.style.is_narrow() {
        page.heading(title);
    } else {
        page.blank();
    }
    page.table(Paint::Bold, &columns, &rows);
}

/// The columns of [`step_rows`].
pub(super) const STEP_COLUMNS: [Column; 7] = [
    name("from"),
    numeric("offered", "/s").rank(1),
    numeric("served", "/s").rank(1),
    numeric("p50", "ms").rank(3),
    numeric("p95", "ms").rank(2),
    numeric("p99", "ms").rank(4),
    name("").rank(1),
];

/// A row for each step of a rate that changes; the knee is named.
pub(super) fn step_rows(steps: &RampSteps) -> Vec<Vec<String>> {
    let row = |step: &RampStep| {
        let time = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), millis);
        let is_knee = steps.knee().is_some_and(|knee| knee.from == step.from);
        let word = match (is_knee, step.why) {
            (true, _) => "knee",
            (false, Some(_)) => "too much",
            (false, None) => "",
        };
        vec![
            format!("{:.1} s", step.from.as_secs_f64()),
            rate(step.offered_rps),
            rate(step.served_rps),
            time(step.p50),
            time(step.p95),
            time(step.p99),
            word.to_owned(),
        ]
    };
    steps.steps.iter().map(row).collect()
}

/// The steps of a rate that changes.
fn ramp(page: &mut Page, summary: &CellSummary) {
    let Some(steps) = RampSteps::of(summary) else { return };
    page.heading("Each step of the rate");
    page.table(Paint::Dim, &STEP_COLUMNS, &step_rows(&steps));
}

fn row(name: &str, latency: &Latency) -> Option<Vec<String>> {
    let p = latency.percentiles()?;
    let times = [p.min, p.p50, p.p90, p.p95, p.p99, p.p999, p.max, p.mean];
    Some(std::iter::once(name.to_owned()).chain(times.map(millis)).collect())
}

/// As hey does: a bar for each tenth of the range; the longest fills the width.
fn histogram(page: &mut Page, response: &Latency) {
    let bars = bars(response);
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0);
    if bars.len() < 2 {
        return;
    }
    page.heading("Response times, ms");
    let times = distinct_millis(&bars.iter().map(|bar| bar.up_to).collect::<Vec<_>>());
    let counts: Vec<String> = bars.iter().map(|bar| count(bar.count)).collect();
    let widest = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or(0);
    let (time_width, count_width) = (widest(&times), widest(&counts));
    let room = page.style.behind(time_width + count_width + 8).min(60) as u64;
    for ((time, n), bar) in times.iter().zip(&counts).zip(&bars) {
        // A bar that is not zero is always visible.
        let length = (bar.count * room).div_ceil(most.max(1));
        let line = format!("  {time:>time_width$} [{n:>count_width$}] {}", "■".repeat(length as usize));
        page.out.push_str(line.trim_end());
        page.out.push('\n');
    }
}

fn outcomes(page: &mut Page, summary: &CellSummary) {
    page.blank();
    let statuses = summary.statuses.iter().map(|(status, n)| format!("{status}: {}", count(*n)));
    page.line("Status", &first_few(statuses, "kind"));
    page.line("Errors", &first_few(notes::errors(summary), "kind"));
}

fn connections(page: &mut Page, summary: &CellSummary) {
    let totals = &summary.connections;
    let each = totals.per_connection.map(|spread| {
        let range = if spread.min == spread.max {
            String::new()
        } else {
            format!(" ({} to {})", count(spread.min.into()), count(spread.max.into()))
        };
        let each = summary.requests_per_connection();
        let noun = noun_of(if (each - 1.0).abs() < f64::EPSILON { 1 } else { 2 }, "request");
        format!("{} {noun} each{range}", number(each))
    });
    let text = listed([
        Some(format!("{} opened", count(totals.opened))),
        each,
        some(totals.useless_dials, "useless"),
        some(totals.not_established, "not established"),
    ]);
    page.line("Connections", &text);
    if !totals.handshakes.is_empty() {
        let at = |share| millis(totals.handshakes.quantile(share));
        let tls =
            totals.tls.map(|tls| format!(", {} of {} resumed a session", count(tls.resumed), count(tls.all)));
        let times = format!("p50 {}, p99 {}, max {} ms", at(0.5), at(0.99), at(1.0));
        page.line("  handshakes", &(times + &tls.unwrap_or_default()));
    }
    let ends = totals.closed.iter().filter(|end| end.reason != "cell");
    let ended = ends.map(|end| format!("{} {}", count(end.count), how(end)));
    page.line("  ended", &first_few(ended, "kind"));
    if !totals.without_any.is_zero() {
        page.line("  without any", &millis_unit(totals.without_any));
    }
    let goaways = totals.goaways.iter().map(|goaway| {
        let debug = if goaway.debug.is_empty() { String::new() } else { format!(" `{}`", goaway.debug) };
        format!(
            "{} × {} last stream {}{debug}",
            count(goaway.count),
            ErrorCode(goaway.code),
            goaway.last_stream_id
        )
    });
    page.line("  GOAWAY", &first_few(goaways, "kind"));
    let resets = totals.resets.iter().map(|reset| {
        let whom = if reset.initiator == "local" { "the client" } else { "the server" };
        Some(format!("{} × {} by {whom}", count(reset.count), ErrorCode(reset.code)))
    });
    page.line("  RST_STREAM", &listed(resets));
    let pushes = totals.pushes;
    page.line("  pushes", &listed([some(pushes.accepted, "accepted"), some(pushes.refused, "refused")]));
    page.line(
        "  interim",
        &listed(totals.interim.iter().map(|(status, n)| Some(format!("{status}: {}", count(*n))))),
    );
    let is_http3 = summary.cell.protocol.is_quic();
    for (name, whose, settings) in [
        ("  settings", "the client's", &totals.settings_local),
        ("", "the server's", &totals.settings_remote),
    ] {
        if !settings.is_empty() {
            page.line(name, &format!("{whose}: {}", self::settings(is_http3, settings)));
        }
    }
}

/// `MAX_CONCURRENT_STREAMS 128, …`
fn settings(is_http3: bool, settings: &[(u16, u32)]) -> String {
    let rendered = settings.iter().map(|&(id, value)| match setting_name_in(is_http3, id) {
        Some(name) => format!("{name} {}", count(value.into())),
        None => format!("{id:#06x} {}", count(value.into())),
    });
    rendered.collect::<Vec<_>>().join(", ")
}

/// How connections ended, in words.
fn how(end: &Closing) -> String {
    let why = if end.why.is_empty() { String::new() } else { format!(" ({})", end.why) };
    format!("{}{why}", notes::ended(&end.reason))
}

fn traffic(page: &mut Page, summary: &CellSummary) {
    let totals = &summary.connections;
    let counts = &totals.bytes;
    let (sent, received) = (bytes(counts.sent as f64), bytes(counts.received as f64));
    page.line("Bytes", &format!("{sent} sent, {received} received"));
    if summary.cell.protocol.is_multiplexed() && counts.headers_plain > 0 {
        let saved = totals.header_bytes_saved();
        let (plain, sent) = (bytes(counts.headers_plain as f64), bytes(counts.headers_sent as f64));
        let compression = if summary.cell.protocol.is_quic() { "QPACK" } else { "HPACK" };
        page.line(
            "  headers",
            &format!("{plain} as {sent}: {compression} saves {}", percent(saved, counts.headers_plain)),
        );
        page.line("Frames sent", &frames(&totals.frames_sent));
        page.line("  received", &frames(&totals.frames_received));
    }
    if let Some(tcp) = &summary.tcp_client {
        let rtt = millis(Duration::from_micros(tcp.rtt_us_p50.into()));
        let retransmits = plural(tcp.retransmits, "retransmit");
        let text = format!(
            "{retransmits} by the client, RTT {rtt} ms, cwnd {}, {}",
            tcp.cwnd_p50, tcp.congestion_control
        );
        page.line("TCP", &text);
    }
    if let Some(quic) = &summary.quic_client {
        page.line("QUIC", &self::quic(quic));
    }
    let waited = [
        ("a connection or stream", totals.stalls.open),
        ("a window", totals.stalls.window),
        ("the socket", totals.stalls.socket),
    ];
    let sent = summary.requests.sent.max(1) as f64;
    let waiting = waited.map(|(what, time)| {
        let each = Duration::from_secs_f64(time.as_secs_f64() / sent);
        (!time.is_zero()).then(|| format!("{what}: {}", millis_unit(each)))
    });
    let waiting = listed(waiting);
    page.line("Waited for", &if waiting.is_empty() { waiting } else { waiting + " a request" });
}

/// `1,000 packets sent by the client, 30 lost, RTT 25.1 ms, cwnd 14.5 kB, datagrams of 1,452 B at most, cubic`
fn quic(end: &QuicEnd) -> String {
    let rtt = millis(Duration::from_micros(end.rtt_us_p50.into()));
    let (sent, lost) = (plural(end.packets_sent, "packet"), count(end.packets_lost));
    let (cwnd, mtu) = (bytes(end.cwnd_bytes_p50 as f64), count(end.mtu.into()));
    let name = &end.congestion_control;
    format!(
        "{sent} sent by the client, {lost} lost, RTT {rtt} ms, cwnd {cwnd}, datagrams of {mtu} B at most, {name}"
    )
}

fn frames(counts: &[u64; 11]) -> String {
    let named = FRAME_TYPES.iter().zip(counts).filter(|(_, n)| **n > 0);
    named.map(|(name, n)| format!("{name} {}", count(*n))).collect::<Vec<_>>().join(", ")
}

fn generator(page: &mut Page, summary: &CellSummary) {
    let generator = &summary.generator;
    if generator.threads == 0 {
        return; // It was read out of packets of another client.
    }
    let late = (!generator.lateness.is_empty()).then(|| {
        let at = |share| millis(generator.lateness.quantile(share));
        format!("late by p50 {}, p99 {}, max {} ms", at(0.5), at(0.99), at(1.0))
    });
    let awake = match generator.awake_us_per_request {
        awake if awake > 0.0 => format!(" ({} of them busy-waiting for timing)", number(awake)),
        _ => String::new(),
    };
    let text = listed([
        Some(plural(generator.threads.into(), "thread")),
        Some(format!("{} µs of CPU per request", number(generator.cpu_us_per_request)) + &awake),
        late,
    ]);
    page.line("Generator", &text);
    let (connection, request) = generator.bytes_each;
    let memory = listed([
        (generator.peak_bytes > 0).then(|| format!("{} at most", bytes(generator.peak_bytes as f64))),
        connection.map(|each| format!("{} a connection", bytes(each as f64))),
        request.map(|each| format!("{} a request in flight", bytes(each as f64))),
    ]);
    page.line("  memory", &memory);
    page.line("Recorded", &format!("{}: {}", summary.level, sentences::recorded(summary.level)));
}

/// The reasons for doubt: the state first, then all warnings.
fn doubts(page: &mut Page, report: &Report<'_>, summary: &CellSummary) {
    let state = match &summary.state {
        CellState::Ok => None,
        _ => sentences::state(summary),
    };
    let warnings = report.analysis.warnings.iter().chain(&summary.warnings).cloned();
    let doubts: Vec<String> = state.into_iter().chain(warnings).collect();
    if doubts.is_empty() {
        return;
    }
    page.heading("Warnings");
    for doubt in doubts {
        paragraph(&mut page.out, page.style, "- ", &doubt);
    }
}

#[cfg(test)]
mod tests;
