//! From the figures to the document: names, units and rounding.

use std::collections::BTreeMap;

use super::round::{micros, rounded};
use super::runs::ratio;
use super::{
    CellDocument, Document, FramesDocument, GeneratorDocument, HandshakesDocument, LatenciesDocument,
    LatencyDocument, LinkDocument, MemoryDocument, RunsDocument, SettingPairDocument, SettingsDocument,
    StallsDocument, TcpDocument, UnexplainedDocument, VerdictDocument,
};
use crate::{Report, answer, bulk_cells, sentences};
use h2lab_analysis::stats::{
    CellState, CellSummary, CellVerdict, Conclusion, Latency, LinkTotals, Pair, ProcessTotals,
};
use h2lab_base::units::millis_f64;
use h2lab_model::workload::Protocol;
use h2lab_wire::connection::FRAME_TYPES;
use h2lab_wire::setting_name_in;

/// The document of several runs.
pub fn documents(reports: &[Report<'_>]) -> RunsDocument {
    RunsDocument {
        runs: reports.iter().map(document).collect(),
        comparisons: super::runs::comparisons(reports),
    }
}

/// The document of a run.
pub fn document(report: &Report<'_>) -> Document {
    let run = report.run;
    Document {
        version: run.version.clone(),
        command: run.command.clone(),
        started: run.started.clone(),
        machine: run.machine.clone(),
        seed: run.seed,
        run_folder: report.folder.map(str::to_owned),
        report: report.page.map(str::to_owned),
        answer: answer::line(report),
        interrupted: run.interrupted,
        resumed: run.resumed.clone(),
        cells: cells(report),
        verdicts: report.analysis.verdicts.iter().map(|v| verdict(report, v)).collect(),
        pairs: report.analysis.pairs.iter().map(|one| pair(report, one)).collect(),
        findings: report.findings.to_vec(),
        unexplained: unexplained(report),
        study: super::study::document(report),
        machines: super::machines::machines_of(report),
        reproductions: super::machines::reproductions(report),
        warnings: report.analysis.warnings.clone(),
    }
}

fn unexplained(report: &Report<'_>) -> Vec<UnexplainedDocument> {
    let parts = sentences::unexplained(report).into_iter();
    parts.map(|(cell, part)| UnexplainedDocument { cell, part: rounded(part) }).collect()
}

/// Each cell; those of bulk work with their transfers.
fn cells(report: &Report<'_>) -> Vec<CellDocument> {
    let mut cells: Vec<CellDocument> =
        report.analysis.cells.iter().map(|summary| cell(report, summary)).collect();
    for (cell, moved) in cells.iter_mut().zip(bulk_cells::of(report).unwrap_or_default()) {
        cell.bulk = super::bulk::cell(&moved);
    }
    cells
}

fn process(totals: &ProcessTotals) -> ProcessTotals {
    ProcessTotals { cpu_us_per_request: rounded(totals.cpu_us_per_request), ..totals.clone() }
}

pub(super) fn cell(report: &Report<'_>, summary: &CellSummary) -> CellDocument {
    let cell = &summary.cell;
    CellDocument {
        index: cell.index,
        group: cell.group,
        label: summary.label.clone(),
        target: cell.target.name().to_owned(),
        topology: cell.topology(),
        protocol: cell.protocol,
        mode: (cell.protocol == Protocol::H2c).then(|| cell.h2c_mode.name().to_owned()),
        server: summary.server.as_ref().map(process),
        sidecar: summary.sidecar.as_ref().map(process),
        hop_connections: summary.hop_connections,
        connections: cell.connections,
        streams: cell.streams,
        max_requests_per_connection: cell.max_requests_per_connection,
        dial_policy: cell.protocol.is_multiplexed().then(|| cell.dial.name().to_owned()),
        repetitions: summary.repetitions,
        duration_s: summary.measured.as_secs_f64(),
        state: summary.state.name().to_owned(),
        reasons: reasons(&summary.state),
        requests: summary.requests,
        status: summary.statuses.iter().map(|(status, n)| (status.to_string(), *n)).collect(),
        errors: summary.errors.clone(),
        rate_rps: rounded(summary.offered_rps),
        throughput_rps: rounded(summary.served_rps),
        goodput_bytes_per_s: rounded(summary.goodput_bytes_per_s),
        latency_us: LatenciesDocument {
            response: latency(&summary.response),
            service: latency(&summary.service),
            ttfb: latency(&summary.ttfb),
        },
        record: summary.level,
        connections_opened: summary.connections.opened,
        connections_closed: summary.connections.closed.clone(),
        useless_dials: summary.connections.useless_dials,
        zero_connections_ms: rounded(millis_f64(summary.connections.without_any)),
        streams_per_connection: summary.connections.per_connection,
        stalls_us: stalls(summary),
        requests_per_connection: rounded(summary.requests_per_connection()),
        request_bytes: summary.per_request.bytes_up.map(rounded),
        request_segments: summary.per_request.segments_up.map(rounded),
        handshakes: HandshakesDocument {
            count: summary.connections.handshakes.n(),
            p50_us: micros(summary.connections.handshakes.quantile(0.5)),
            p99_us: micros(summary.connections.handshakes.quantile(0.99)),
            resumed: summary.connections.tls.map(|tls| tls.resumed),
        },
        goaway: summary.connections.goaways.clone(),
        rst_stream: summary.connections.resets.clone(),
        pushes: summary.connections.pushes,
        interim: summary.connections.interim.iter().map(|(status, n)| (status.to_string(), *n)).collect(),
        settings: settings(summary),
        header_bytes_saved: summary.connections.header_bytes_saved(),
        bytes: summary.connections.bytes,
        frames: FramesDocument {
            sent: frames(&summary.connections.frames_sent),
            received: frames(&summary.connections.frames_received),
        },
        tcp: TcpDocument { client: summary.tcp_client.clone(), server: summary.tcp_server.clone() },
        quic: summary.quic_client.clone(),
        link: summary.link.as_ref().map(|totals| link(summary, totals)),
        bulk: None,
        causes: super::causes::document(report, summary),
        sysctls: cell.sysctls.clone(),
        generator: generator(summary),
        warnings: summary.warnings.clone(),
        findings: report.findings.iter().filter(|finding| finding.cell == cell.index).cloned().collect(),
        seed: cell.seed,
        version: report.run.version.clone(),
    }
}

fn reasons(state: &CellState) -> Vec<String> {
    match state {
        CellState::Ok => Vec::new(),
        CellState::Unstable { why, .. } => vec![why.to_string()],
        CellState::Invalid { reasons } => reasons.clone(),
        CellState::Failed { why, .. } | CellState::Unsupported { why } => vec![why.clone()],
    }
}

fn latency(latency: &Latency) -> Option<LatencyDocument> {
    latency.percentiles().map(|p| LatencyDocument {
        min: micros(p.min),
        p50: micros(p.p50),
        p90: micros(p.p90),
        p95: micros(p.p95),
        p99: micros(p.p99),
        p999: micros(p.p999),
        max: micros(p.max),
        mean: micros(p.mean),
        n: p.n,
    })
}

fn stalls(summary: &CellSummary) -> StallsDocument {
    let stalls = &summary.connections.stalls;
    StallsDocument { open: micros(stalls.open), window: micros(stalls.window), socket: micros(stalls.socket) }
}

fn settings(summary: &CellSummary) -> Option<SettingsDocument> {
    let named = |settings: &[(u16, u32)]| -> BTreeMap<String, u32> {
        let is_http3 = summary.cell.protocol.is_quic();
        let name = |id| setting_name_in(is_http3, id).map_or_else(|| id.to_string(), str::to_owned);
        settings.iter().map(|&(id, value)| (name(id), value)).collect()
    };
    let connections = &summary.connections;
    (!connections.settings_local.is_empty()).then(|| SettingsDocument {
        local: named(&connections.settings_local),
        remote: named(&connections.settings_remote),
    })
}

fn frames(counts: &[u64; 11]) -> BTreeMap<String, u64> {
    let named = FRAME_TYPES.iter().zip(counts).filter(|(_, n)| **n > 0);
    named.map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

fn link(summary: &CellSummary, totals: &LinkTotals) -> LinkDocument {
    let spec = summary.cell.link.clone().unwrap_or_default();
    let is_up_worse = spec.uplink.loss.share() >= spec.downlink.loss.share();
    let worse = if is_up_worse { &spec.uplink } else { &spec.downlink };
    LinkDocument {
        delay_ms: millis_f64(spec.uplink.delay),
        rtt_ms: millis_f64(spec.rtt()),
        loss: summary.cell.loss(),
        model: worse.loss.name().to_owned(),
        congestion_control: summary.congestion.clone(),
        dropped_up: totals.dropped_up,
        dropped_down: totals.dropped_down,
        tail_dropped: totals.tail_dropped,
        late_us_p99: micros(totals.late_p99),
    }
}

fn generator(summary: &CellSummary) -> GeneratorDocument {
    let generator = &summary.generator;
    GeneratorDocument {
        cpu_us_per_request: rounded(generator.cpu_us_per_request),
        awake_us_per_request: rounded(generator.awake_us_per_request),
        late_us_p50: micros(generator.lateness.quantile(0.5)),
        late_us_p99: micros(generator.lateness.quantile(0.99)),
        late_us_max: micros(generator.lateness.quantile(1.0)),
        threads: generator.threads,
        memory_bytes: MemoryDocument {
            peak: (generator.peak_bytes > 0).then_some(generator.peak_bytes),
            per_connection: generator.bytes_each.0,
            per_request_in_flight: generator.bytes_each.1,
        },
    }
}

fn pair(report: &Report<'_>, pair: &Pair) -> SettingPairDocument {
    let sentence = sentences::pair(report, pair);
    let setting = pair.setting.name().to_owned();
    SettingPairDocument { setting, verdict: VerdictDocument { sentence, ..verdict(report, &pair.verdict) } }
}

fn verdict(report: &Report<'_>, verdict: &CellVerdict) -> VerdictDocument {
    let label = |index| report.analysis.cell(index).map_or(String::new(), |summary| summary.label.clone());
    let load = match verdict.conclusion {
        Conclusion::Unstable { offered_rps, served_rps }
        | Conclusion::BaselineUnstable { offered_rps, served_rps } => Some((served_rps, offered_rps)),
        _ => None,
    };
    VerdictDocument {
        group: verdict.group,
        cell: verdict.cell,
        label: label(verdict.cell),
        baseline: verdict.baseline,
        baseline_label: label(verdict.baseline),
        verdict: verdict.conclusion.name().to_owned(),
        served_rps: load.map(|(served, _)| rounded(served)),
        offered_rps: load.map(|(_, offered)| rounded(offered)),
        percentile: verdict.tail.name().to_owned(),
        tail: verdict.tail_ratio.as_ref().map(ratio),
        median: verdict.median_ratio.as_ref().map(ratio),
        median_verdict: verdict.median_conclusion.map(|conclusion| conclusion.name().to_owned()),
        throughput: verdict.throughput.or(verdict.bytes).as_ref().map(super::runs::rate_ratio),
        floor_us: micros(verdict.floor),
        word: crate::machines::word(verdict).to_owned(),
        sentence: sentences::verdict(report, verdict),
    }
}
