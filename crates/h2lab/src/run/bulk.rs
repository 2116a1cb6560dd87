//! The generator of a repetition whose work is bulk: data for a time, over HTTP or over TCP alone.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use h2lab_base::units::{Time, nanos};
use h2lab_model::bulk as core_bulk;
use h2lab_model::bulk::{BulkRecord, PartRecord, TransferOutcome, TransferRecord};
use h2lab_model::record::{BulkRepetition, GeneratorSummary, Offered, Outcome, Sample};
use h2lab_model::workload::{H2cMode, Protocol};

use super::messages::{Failure, FailureKind, RepetitionMessage, RepetitionProgress, Writer};
use super::spec::GeneratorSpec;
use h2lab_net::clock::Clock;
use h2lab_net::resources;
use h2lab_net::tcp::{Endpoint, largest_buffers};
use h2lab_roles::bulk;
use h2lab_roles::bulk::job::config;
use h2lab_roles::bulk::raw;
use h2lab_roles::bulk::raw::RawJob;
use h2lab_roles::bulk::{FileLocation, Job, JobError, RequestedFile, RunError, TransferOptions};
use h2lab_roles::client::reach::tls_options;

/// After so long without a byte a server has gone: a link may have black-outs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a generator reports.
struct Moved {
    head: RepetitionMessage,
    samples: Vec<Sample>,
}

/// Moves the data and sends the record of it.
pub(super) fn run<W: Write>(spec: &GeneratorSpec, writer: &mut Writer<W>) -> Result<()> {
    resources::raise_open_files();
    let stolen_before = resources::stolen_ns();
    let mut moved = match spec.cell.protocol {
        Protocol::Tcp => over_tcp(spec, writer)?,
        _ => over_http(spec, writer)?,
    };
    moved.head.generator.stolen_ns = resources::stolen_ns().saturating_sub(stolen_before);
    writer.repetition(&moved.head, &moved.samples, &[], &[])
}

/// The congestion control of our sockets: behind an emulated link the routes of the namespace set TCP's.
pub(super) fn congestion(spec: &GeneratorSpec) -> Option<&str> {
    let is_ours = spec.cell.link.is_none() || spec.cell.protocol.is_quic();
    spec.cell.congestion.as_deref().filter(|_| is_ours)
}

fn over_http<W: Write>(spec: &GeneratorSpec, writer: &mut Writer<W>) -> Result<Moved> {
    let cell = &spec.cell;
    let tls = tls_options(&spec.tls);
    let job = Job {
        wanted: vec![RequestedFile {
            url: cell.work.path.clone(),
            path: cell.work.path.clone(),
            place: FileLocation::Discard,
            bytes: None,
        }],
        address: spec.address.clone(),
        authority: &spec.authority,
        server_name: &spec.server_name,
        tls: &tls,
        protocol: cell.protocol,
        upgrade: cell.protocol == Protocol::H2c && cell.h2c_mode == H2cMode::Upgrade,
        congestion: congestion(spec).map(str::to_owned),
        settings: cell.client,
        fields: &[],
        connections: cell.connections,
        streams: cell.streams,
        // Each response in one request, repeatedly: none is fetched in parts.
        options: TransferOptions::default(),
        duration: Some(core_bulk::duration(&cell.work)),
        listed: usize::MAX, // each is a sample
        timeout: TIMEOUT,
        stop: None,
        clock: Clock::new(spec.clock_origin_ns),
    };
    let began = job.clock.now();
    let got = bulk::run(&job, &mut |now| {
        let (asked, _) = now.transfers.count();
        notify(writer, now.now.since(now.meter.began()), asked);
    })
    .map_err(|error| failure(spec, &error))?;
    let config = config(&job, cell.protocol.is_tls());
    let flow = config.flow;
    // Windows that grow offer in the end what they may grow to.
    let window = |size: u32| flow.auto_limit.map_or(size, |limit| size.max(limit));
    let offered = cell.protocol.is_multiplexed().then(|| Offered {
        stream_window: window(flow.stream_window),
        connection_window: window(flow.connection_window),
        max_frame_size: config.max_frame_size,
        update_bytes: bulk::credit_after(&config),
    });
    let record = got.record;
    let samples = samples(spec, &record);
    let bulk = BulkRepetition {
        meter: record.meter,
        frames: record.frames,
        io: record.io,
        offered,
        receive_buffer: largest_buffers().0,
        send_buffer: None,
    };
    let wall = job.clock.now().since(began);
    let mut warnings = failures(&record.transfers);
    warnings.extend(record.warnings);
    let mut head =
        RepetitionMessage { connections: record.connections, warnings, ..head(bulk, record.cpu, wall) };
    // Only their sum is known; of one pause that is the longest.
    head.generator.paused_ns = nanos(record.paused);
    head.generator.longest_pause_ns = nanos(record.paused);
    Ok(Moved { head, samples })
}

/// Why responses failed, each reason once.
fn failures(transfers: &[TransferRecord]) -> Vec<String> {
    let why = |transfer: &TransferRecord| match &transfer.outcome {
        TransferOutcome::Failed { why, .. } => Some(format!("a response failed: {why}")),
        TransferOutcome::Complete | TransferOutcome::Partial { .. } => None,
    };
    transfers.iter().filter_map(why).collect::<BTreeSet<String>>().into_iter().collect()
}

fn over_tcp<W: Write>(spec: &GeneratorSpec, writer: &mut Writer<W>) -> Result<Moved> {
    let cell = &spec.cell;
    let Endpoint::Tcp(address) = spec.address else { bail!("bytes without HTTP go over TCP only") };
    let job = RawJob {
        address,
        connections: cell.connections,
        congestion: congestion(spec),
        duration: core_bulk::duration(&cell.work),
        clock: Clock::new(spec.clock_origin_ns),
    };
    let began = job.clock.now();
    let got = raw::fetch(&job, &mut |elapsed| notify(writer, elapsed, u64::from(cell.connections))).map_err(
        |error| Failure { kind: FailureKind::Unreachable, message: format!("{}: {error}", spec.address) },
    )?;
    let samples =
        got.parts.iter().map(|part| sample(spec, part, Outcome::Unfinished, got.meter.began())).collect();
    let bulk = BulkRepetition {
        meter: got.meter,
        frames: core_bulk::FrameFigures::default(),
        io: got.io,
        offered: None,
        receive_buffer: largest_buffers().0,
        send_buffer: None,
    };
    let head = RepetitionMessage {
        connections: got.connections,
        ..head(bulk, got.cpu, job.clock.now().since(began))
    };
    Ok(Moved { head, samples })
}

/// Reports how it goes; fails only when the parent is gone, and then we are being killed.
fn notify<W: Write>(writer: &mut Writer<W>, elapsed: Duration, sent: u64) {
    let _ = writer.progress(&RepetitionProgress {
        elapsed_s: elapsed.as_secs_f64(),
        sent,
        ..RepetitionProgress::default()
    });
}

/// All but the connections.
fn head(bulk: BulkRepetition, cpu: Duration, wall: Duration) -> RepetitionMessage {
    let generator = GeneratorSummary {
        cpu_ns: nanos(cpu),
        wall_ns: nanos(wall),
        threads: 1,
        ..GeneratorSummary::default()
    };
    RepetitionMessage {
        started_at: bulk.meter.began(),
        generator,
        bulk: Some(bulk),
        ..RepetitionMessage::default()
    }
}

/// Each response, in the order in which they were asked for.
fn samples(spec: &GeneratorSpec, record: &BulkRecord) -> Vec<Sample> {
    let mut samples = Vec::new();
    for transfer in &record.transfers {
        let outcome = match transfer.outcome {
            TransferOutcome::Complete => Outcome::Succeeded,
            TransferOutcome::Partial { .. } => Outcome::Unfinished,
            TransferOutcome::Failed { .. } => Outcome::Closed,
        };
        if transfer.parts.is_empty() && outcome == Outcome::Closed {
            // It never got a connection, or an answer that was one.
            let at = transfer.started_at.min(record.meter.began());
            samples.push(Sample { outcome, completed_at: at, ..Sample::due(at, true) });
        }
        samples.extend(transfer.parts.iter().map(|part| sample(spec, part, outcome, record.meter.began())));
    }
    samples.sort_by_key(|sample| sample.scheduled_at);
    samples
}

/// A response. It counts if it was in progress in the measured time.
fn sample(spec: &GeneratorSpec, part: &PartRecord, outcome: Outcome, began: Time) -> Sample {
    Sample {
        connection: part.connection,
        stream: part.stream,
        sent_at: part.sent_at,
        first_byte_at: part.first_byte_at,
        completed_at: part.ended_at,
        outcome,
        status: if part.first_byte_at.happened() && spec.cell.protocol != Protocol::Tcp { 200 } else { 0 },
        body_bytes: part.bytes,
        ..Sample::due(part.sent_at, part.ended_at > began + spec.cell.work.phases.warmup)
    }
}

/// What an error means for the exit code.
fn failure(spec: &GeneratorSpec, error: &JobError) -> Failure {
    let kind = match error {
        JobError::Run(RunError::Unreachable(why)) => why.into(),
        JobError::Run(RunError::Io(_)) => FailureKind::Environment,
        JobError::Tls(_) => FailureKind::Harness,
    };
    Failure { kind, message: format!("{}: {error}", spec.address) }
}
