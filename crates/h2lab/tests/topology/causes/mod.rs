//! The causes of waiting in the report, compared with scripts that determine them.
//!
//! Each script drops a packet by name, or a packet and its retransmission, of a conversation over the kernel's TCP. What the
//! requests must have waited for follows from the script and from the times in the packet log; see [`truth`].

mod conversation;
mod counters;
mod plan;
mod truth;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use h2lab_analysis::diagnose::waits;
use h2lab_analysis::diagnose::waits::{
    CapturedConnections, Cause, Interval, LatencyBreakdown, Repair, Waits, Whose,
};
use h2lab_base::counters::TlsRecords;
use h2lab_base::random::Counter;
use h2lab_base::units::{Ratio, Time};
use h2lab_lab::topology::{
    CaptureBuffer, CapturedPackets, LinkResult, Namespaces, Pump, PumpOptions, Side, TopologySpec,
};
use h2lab_link::{Impairment, LinkSpec, LossModel, write_packet};
use h2lab_model::record::{
    CellRecord, CloseReason, ConnectionRecord, HttpRecord, Outcome, PacketRecord, Sample,
};
use h2lab_model::scenario::Scenario;
use h2lab_net::clock::Clock;
use h2lab_wire::trace::Direction;
use h2lab_wire::{Counters, StreamId};

use super::cases::lab;
use conversation::{Conversation, stream_of};
use counters::Repairs;
use plan::{ConversationPlan, Drop};
use truth::{Kind, Wait};

/// The number of scripts with each congestion control; `cargo xtask verify chaos` asks for more.
const SCRIPTS: &str = "H2LAB_CAUSE_SCRIPTS";
const FEW: u64 = 12;
/// The link's delay each way.
const DELAY: Duration = Duration::from_millis(10);
/// Shorter waits are not judged: a busy machine causes them. Lengths of waits, and how much is unknown, are judged only
/// by `cargo xtask verify chaos --only causes`: a machine that is busy with other tests influences these, too.
const LEAST: Duration = Duration::from_millis(10);
/// If the script did not do what was planned, the conversation is repeated: only an impossible plan reaches this time.
const DEADLINE: Duration = Duration::from_secs(120);
/// Requests of a conversation under random loss.
const LONG_CONVERSATION: usize = 300;
/// The maximum share of their time that may be unknown.
const UNKNOWN: f64 = 0.05;
/// The minimum of the scores for each kind of cause.
const PROMISED: f64 = 0.99;

/// For one kind: how many of the reported causes were right, and how many of the true ones were reported.
#[derive(Debug, Default)]
struct Score {
    report: u32,
    right: u32,
    truths: u32,
    found: u32,
}

impl Score {
    fn count(&mut self, is_right: bool) {
        self.report += 1;
        self.right += u32::from(is_right);
    }

    fn find(&mut self, is_found: bool) {
        self.truths += 1;
        self.found += u32::from(is_found);
    }

    fn precision(&self) -> f64 {
        share(self.right, self.report)
    }

    fn recall(&self) -> f64 {
        share(self.found, self.truths)
    }
}

fn share(part: u32, whole: u32) -> f64 {
    if whole == 0 { 1.0 } else { f64::from(part) / f64::from(whole) }
}

/// A separate case for each congestion control, since that is set once for a lab.
pub fn causes_are_those_that_scripts_made_under_cubic() {
    run("cubic");
}

/// The same under BBR.
pub fn causes_are_those_that_scripts_made_under_bbr() {
    run("bbr");
}

fn run(congestion: &str) {
    let scripts = std::env::var(SCRIPTS).ok().and_then(|count| count.parse().ok()).unwrap_or(FEW);
    let namespaces =
        lab(&TopologySpec { congestion: Some(congestion.to_owned()), ..TopologySpec::default() });
    let is_timed = scripts > FEW;
    let mut random = Counter::new(7, congestion);
    let mut scores: BTreeMap<Kind, Score> = BTreeMap::new();
    let mut misses = Vec::new();
    for n in 0..scripts {
        let plan = ConversationPlan::new(n, &mut random);
        let held = Held::until_planned(&namespaces, &plan);
        let wrong = held.judge(&mut scores, is_timed);
        if !wrong.is_empty() {
            let is_wrong = |breakdown: &&LatencyBreakdown| {
                wrong.iter().any(|(_, wait)| wait.request == breakdown.sample as usize)
            };
            let breakdowns: Vec<String> =
                held.waits.breakdowns.iter().filter(is_wrong).map(LatencyBreakdown::to_string).collect();
            misses.push(format!("{:?}\n{wrong:?}\n{}", plan.drop, breakdowns.join("\n")));
        }
    }
    for (kind, score) in &scores {
        println!(
            "figure: {congestion}, {}: precision {:.1} % of {}, recall {:.1} % of {}",
            kind.name(),
            100.0 * score.precision(),
            score.report,
            100.0 * score.recall(),
            score.truths
        );
    }
    println!("figure: {congestion}: {scripts} scripts, {} of them with something wrong", misses.len());
    little_is_unknown(&namespaces, congestion, is_timed);
    let missing: Vec<&str> = Kind::SCRIPTED
        .iter()
        // A timer repairs a loss if nothing follows the lost packet, which is so in few scripts.
        .filter(|kind| scripts > FEW || **kind != Kind::Timer)
        .filter(|kind| scores.get(kind).is_none_or(|score| score.truths == 0))
        .map(|kind| kind.name())
        .collect();
    assert!(missing.is_empty(), "no script brought about: {}", missing.join(", "));
    let holds = scores.values().all(|score| score.precision() >= PROMISED && score.recall() >= PROMISED);
    assert!(holds, "{}", misses.join("\n\n"));
}

/// A conversation in which the script did what was planned.
struct Held {
    truth: Vec<Wait>,
    report: Vec<Wait>,
    waits: Waits,
    /// Whether the kernel says that it repaired a single loss by acknowledgements, or by timers; `None` if that is unknown for
    /// one loss.
    is_fast: Option<bool>,
}

impl Held {
    /// Repeats the conversation until the script did what was planned.
    fn until_planned(namespaces: &Namespaces, plan: &ConversationPlan) -> Self {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(held) = Self::once(namespaces, plan) {
                return held;
            }
            assert!(Instant::now() < until, "the script never did what was planned: {plan:?}");
        }
    }

    fn once(namespaces: &Namespaces, plan: &ConversationPlan) -> Option<Self> {
        let is_up = plan.drop.direction() == Direction::Up;
        let mut link = LinkSpec::symmetric(Impairment { delay: DELAY, ..Impairment::default() });
        if is_up { &mut link.uplink } else { &mut link.downlink }.script = plan.script();
        let repairs = || Repairs::read(namespaces, if is_up { Side::Client } else { Side::Server });
        let before = repairs();
        let (conversation, result, captured) = converse(namespaces, plan, &link);
        let truth = truth::of(plan, &conversation, &result.packets, DELAY)?;
        let waits = explain(link, &conversation, &result, &captured);
        let report = waits.breakdowns.iter().flat_map(report).collect();
        let is_one_loss = matches!(plan.drop, Drop::Segment { .. });
        let is_fast = if is_one_loss { repairs().is_fast_since(before) } else { None };
        Some(Self { truth, report, waits, is_fast })
    }

    /// Counts the correct reports and the true causes that were found; returns what is wrong.
    fn judge(&self, scores: &mut BTreeMap<Kind, Score>, is_timed: bool) -> Vec<(&'static str, Wait)> {
        let mut wrong = Vec::new();
        for wait in self.report.iter().filter(|wait| wait.length >= LEAST) {
            let is_right = self.truth.iter().any(|other| agree(other, wait, is_timed));
            scores.entry(wait.kind).or_default().count(is_right);
            wrong.extend((!is_right).then_some(("reported and not true", *wait)));
        }
        for wait in self.truth.iter().filter(|wait| wait.length >= LEAST) {
            let is_found = self.report.iter().any(|other| agree(wait, other, is_timed));
            scores.entry(wait.kind).or_default().find(is_found);
            wrong.extend((!is_found).then_some(("true and not reported", *wait)));
        }
        if let Some(is_fast) = self.is_fast {
            for (report, wait) in self.repairs() {
                scores.entry(Kind::repaired(report)).or_default().count(report == is_fast);
                scores.entry(Kind::repaired(is_fast)).or_default().find(report == is_fast);
                wrong.extend((report != is_fast).then_some(("not so repaired", wait)));
            }
        }
        wrong
    }

    /// For each wait for a lost segment, whether it is reported to have ended by a fast retransmit.
    fn repairs(&self) -> impl Iterator<Item = (bool, Wait)> {
        let parts = self
            .waits
            .breakdowns
            .iter()
            .flat_map(|breakdown| breakdown.intervals.iter().map(move |part| (breakdown, part)));
        parts.filter(|(_, part)| part.length() >= LEAST).filter_map(|(breakdown, part)| match part.cause {
            Cause::Loss { repair, .. } => Some((repair == Repair::Fast, wait(breakdown, part)?)),
            _ => None,
        })
    }
}

/// Runs a conversation over a link, and keeps its packets.
fn converse(
    namespaces: &Namespaces,
    plan: &ConversationPlan,
    link: &LinkSpec,
) -> (Conversation, LinkResult, CapturedPackets) {
    let folder = tempfile::tempdir().expect("a folder for packets");
    let (capture_buffer, intake) = CaptureBuffer::start(folder.path()).expect("a file for packets");
    let options = PumpOptions { intake: Some(intake), ..PumpOptions::default() };
    let pump = Pump::start(namespaces, link, 1, options).expect("a pump");
    let conversation = conversation::hold(namespaces, plan, Clock::new(0));
    let result = pump.stop().expect("the pump ends");
    (conversation, result, capture_buffer.finish().expect("the packets were kept"))
}

/// Under random loss there is no script to compare with, but hardly any time may remain unexplained.
fn little_is_unknown(namespaces: &Namespaces, congestion: &str, is_timed: bool) {
    let loss = LossModel::bernoulli(Ratio::new(0.03).expect("a share"));
    let link = LinkSpec::symmetric(Impairment { delay: DELAY, loss, ..Impairment::default() });
    let (conversation, result, captured) =
        converse(namespaces, &ConversationPlan::without_drop(LONG_CONVERSATION), &link);
    let waits = explain(link, &conversation, &result, &captured);
    let unknown = waits.split.share(waits::CauseKind::Unknown);
    let parts: Vec<String> = waits::CauseKind::ALL
        .iter()
        .copied()
        .filter(|kind| waits.split.parts.contains_key(kind))
        .map(|kind| format!("{} {:.1} %", kind.name(), 100.0 * waits.split.share(kind)))
        .collect();
    println!("figure: {congestion}, 3 % random loss, {LONG_CONVERSATION} streams: {}", parts.join(", "));
    assert!(result.summary.up.lost + result.summary.down.lost > 0, "nothing was lost");
    assert!(!is_timed || unknown <= UNKNOWN, "unknown: {unknown}");
}

/// The product's explanation.
fn explain(
    link: LinkSpec,
    conversation: &Conversation,
    result: &LinkResult,
    captured: &CapturedPackets,
) -> Waits {
    let mut cell = Scenario::default().plan().swap_remove(0);
    (cell.link, cell.sidecar) = (Some(link), None);
    let sample = |(n, request): (usize, &conversation::Timing)| {
        // Until the connection was established, the request waited for it.
        let ready = request.written.min(conversation.connected.max(request.due));
        Sample {
            connection: 0,
            stream: StreamId(stream_of(n)),
            sent_at: request.written,
            first_byte_at: request.completed,
            completed_at: request.completed,
            outcome: Outcome::Succeeded,
            stall_open_ns: ready.since(request.due).as_nanos() as u64,
            ..Sample::due(request.due, true)
        }
    };
    let mut repetition = CellRecord::empty(cell);
    repetition.samples = conversation.requests.iter().enumerate().map(sample).collect();
    repetition.connections = vec![connection(conversation)];
    let mut records: BTreeMap<(Direction, u64), &PacketRecord> = BTreeMap::new();
    records.extend(result.packets.iter().map(|record| ((record.direction, record.index), record)));
    let mut capture = CapturedConnections::new("");
    for kept in captured.frames() {
        let frame = captured.frame(kept).expect("a packet that was kept");
        for segment in 0..kept.entered.segments {
            let index = kept.entered.index + u64::from(segment);
            let mut bytes = Vec::new();
            write_packet(frame.segment(segment), None, &mut bytes);
            capture.packet(records[&(kept.entered.direction, index)], &bytes);
        }
    }
    capture.explain_above(&repetition, &[], Duration::ZERO)
}

fn connection(conversation: &Conversation) -> ConnectionRecord {
    ConnectionRecord {
        index: 0,
        local_port: conversation.client_port,
        remote_port: conversation.server_port,
        dialled_at: conversation.dialled,
        connected_at: conversation.connected,
        ready_at: conversation.connected,
        tls_resumed: None,
        tls_records: TlsRecords::default(),
        closed_at: Time::NEVER,
        closed: CloseReason::Cell,
        goaways: Vec::new(),
        resets_received: Vec::new(),
        highest_stream: StreamId(0),
        requests: conversation.requests.len() as u32,
        bytes_sent: 0,
        bytes_received: 0,
        counters: Counters::default(),
        server_software: None,
        tcp_client: None,
        quic_client: None,
        tcp_server: None,
        http: HttpRecord::default(),
    }
}

/// A latency breakdown in the terms of the truth: waits that have to do with drops and windows, by kind and drop.
fn report(breakdown: &LatencyBreakdown) -> Vec<Wait> {
    let mut waits: Vec<Wait> = Vec::new();
    for next in breakdown.intervals.iter().filter_map(|part| wait(breakdown, part)) {
        let is_same =
            |other: &&mut Wait| (other.kind, other.stream, other.drop) == (next.kind, next.stream, next.drop);
        match waits.iter_mut().find(is_same) {
            Some(known) => known.length += next.length,
            None => waits.push(next),
        }
    }
    waits
}

fn wait(breakdown: &LatencyBreakdown, part: &Interval) -> Option<Wait> {
    let (kind, stream) = kind(&part.cause)?;
    let drop = part.cause.drop().map(|drop| (drop.direction, drop.index));
    Some(Wait { request: breakdown.sample as usize, kind, stream, drop, length: part.length() })
}

fn kind(cause: &Cause) -> Option<(Kind, Option<u32>)> {
    match cause {
        Cause::Loss { whose: Whose::Own, .. } => Some((Kind::Own, None)),
        Cause::Loss { whose: Whose::Other { stream, .. }, .. } => Some((Kind::HeadOfLine, Some(*stream))),
        Cause::Handshake { drop: Some(_) } => Some((Kind::Handshake, None)),
        Cause::FlowWindow { .. } => Some((Kind::FlowWindow, None)),
        Cause::Loss { .. } | Cause::CongestionWindow { after: None } | Cause::StreamSlot | Cause::Unknown => {
            Some((Kind::Other, None))
        }
        // A drop shrinks the window for what is written after it (under BBR packet by packet): no script determines for
        // how long. The other causes occur with or without a drop, or come from a busy machine.
        Cause::CongestionWindow { after: Some(_) }
        | Cause::Handshake { drop: None }
        | Cause::Server
        | Cause::Client
        | Cause::Queue
        | Cause::Propagation => None,
    }
}

/// Whether both are the same wait, and, if `is_timed`, of about the same length.
fn agree(truth: &Wait, report: &Wait, is_timed: bool) -> bool {
    let slack = (truth.length / 10).max(Duration::from_millis(5));
    let is_same = (truth.request, truth.kind, truth.stream, truth.drop)
        == (report.request, report.kind, report.stream, report.drop);
    is_same && (!is_timed || truth.length.abs_diff(report.length) <= slack)
}
