//! What several generators measured side by side, as one: the threads of a process, and the agents that share a load.
//!
//! Samples are put together, tallies are merged by class and slice, and so are their histograms: no percentile is ever computed from
//! other percentiles.

mod order;
#[cfg(test)]
mod tests;

use h2lab_base::counters::TcpTick;
use h2lab_base::text::made_printable;
use h2lab_base::units::Time;
use h2lab_wire::trace::FrameEvent;

use super::tally::Tallier;
use super::{
    CellRecord, ConnectionRecord, GeneratorMemory, GeneratorSummary, Histogram, Level, Sample, TailSample,
    Tally, tally,
};
use order::put_in_order;

/// What one generator measured.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Its requests, in any order.
    pub samples: Vec<Sample>,
    /// Its requests, counted; the slices of all generators have the same beginnings.
    pub tallies: Vec<Tally>,
    /// Its connections.
    pub connections: Vec<ConnectionRecord>,
    /// Its frames, in any order.
    pub frames: Vec<FrameEvent>,
    /// `TCP_INFO` of its connections, in any order.
    pub tcp: Vec<TcpTick>,
    /// How it did.
    pub generator: GeneratorSummary,
}

/// What generators that ran side by side have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// They were threads of one process, whose memory each of them saw: the last measurement covers all of it.
    Threads,
    /// They were processes, with memory of their own: it adds up, as their connections do.
    Processes,
}

impl Measured {
    /// One of all these: connections numbered on, samples in the order of `scheduled_at`, frames and ticks in the order of time,
    /// tallies merged, generators added up.
    pub fn together(parts: impl IntoIterator<Item = Self>, beside: Beside) -> Self {
        let mut all = Self::default();
        let (mut tallies, mut next) = (Vec::new(), 0);
        for mut part in parts {
            part.number_connections_from(next);
            next = part.connections.iter().map(|it| it.index.saturating_add(1)).fold(next, u32::max);
            join(&mut all.samples, &mut part.samples);
            tallies.push(part.tallies);
            join(&mut all.connections, &mut part.connections);
            join(&mut all.frames, &mut part.frames);
            join(&mut all.tcp, &mut part.tcp);
            add(&mut all.generator, &part.generator, beside);
        }
        put_in_order(&mut all.samples);
        all.frames.sort_by_key(|frame| frame.at);
        all.tcp.sort_by_key(|tick| tick.at);
        all.tallies = tally::merge(tallies);
        all
    }

    /// The connection with index 0 becomes number `first`.
    fn number_connections_from(&mut self, first: u32) {
        if first == 0 {
            return;
        }
        let assigned = self.samples.iter_mut().filter(|sample| sample.connection != Sample::NO_CONNECTION);
        // What comes from another machine may have any index.
        let on = |index: &mut u32| *index = index.saturating_add(first);
        assigned.for_each(|sample| on(&mut sample.connection));
        self.connections.iter_mut().for_each(|connection| on(&mut connection.index));
        self.frames.iter_mut().for_each(|frame| on(&mut frame.connection));
        self.tcp.iter_mut().for_each(|tick| on(&mut tick.connection));
    }
}

/// Appends `more`; what is alone, as often it is, is not copied.
fn join<T>(all: &mut Vec<T>, more: &mut Vec<T>) {
    if all.is_empty() {
        std::mem::swap(all, more);
    } else {
        all.append(more);
    }
}

/// Adds how another generator did. What is of a whole machine or process, such as a pause, is that of the worst of them.
fn add(sum: &mut GeneratorSummary, part: &GeneratorSummary, beside: Beside) {
    // What comes from another machine may have any number.
    sum.threads = sum.threads.saturating_add(part.threads);
    sum.cpu_ns = sum.cpu_ns.saturating_add(part.cpu_ns);
    sum.wall_ns = sum.wall_ns.max(part.wall_ns);
    sum.awake_ns = sum.awake_ns.saturating_add(part.awake_ns);
    sum.stolen_ns = sum.stolen_ns.max(part.stolen_ns);
    sum.busiest_ns = sum.busiest_ns.max(part.busiest_ns);
    sum.backlog_at_cut = sum.backlog_at_cut.saturating_add(part.backlog_at_cut);
    // A process that is stopped stops all of its threads at a time.
    sum.paused_ns = sum.paused_ns.max(part.paused_ns);
    sum.longest_pause_ns = sum.longest_pause_ns.max(part.longest_pause_ns);
    sum.level = sum.level.max(part.level);
    let both: fn(u64, u64) -> u64 = match beside {
        Beside::Threads => u64::max,
        Beside::Processes => u64::saturating_add,
    };
    sum.memory = GeneratorMemory {
        before: both(sum.memory.before, part.memory.before),
        connected: both(sum.memory.connected, part.memory.connected),
        peak: both(sum.memory.peak, part.memory.peak),
    };
}

/// What an agent measured of a load that it shared with others.
#[derive(Debug, Clone)]
pub struct SharePart {
    /// The agent's name.
    pub agent: String,
    /// Its record of the load, as it would have it if it were alone. The cell is that of the whole load, as the driver
    /// planned it: figures of all shares are computed by it.
    pub record: CellRecord,
    /// The clock of the merged record less the agent's, in nanoseconds. A time before the origin of that clock becomes its origin.
    pub shift: i64,
}

/// Why records of shares cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// There is no share.
    #[error("no agent has measured anything")]
    Nothing,
    /// They are not of one load.
    #[error("agent {other} measured another load than agent {agent}: their figures do not belong together")]
    OtherLoad {
        /// The agent of the first share.
        agent: String,
        /// The agent whose share is another one's.
        other: String,
    },
}

/// The record of a load of what the agents measured that shared it.
///
/// - The load begins with the first of the shares, and measures for as long as the longest of them: one that made its number of
///   requests early ends early.
/// - What is recorded of each request is what all shares have: if one counts them, those of the others are counted, and of their
///   samples those are kept that [`TailSample`] chooses. Each share's phases, and the slices of its tallies, count from its own
///   beginning: how late one began is no matter of its requests.
/// - CPU time, threads, backlog and memory of the generators add up. The wall-clock time, the busiest thread, pauses and stolen
///   time are those of the agent that had the most.
/// - Warnings bear their agent's name, and so does what of an agent's placement differs from that of the first.
/// - A load has no packets, no link and no server of its own: those are the first share's, if it has any.
pub fn merge_shares(parts: Vec<SharePart>) -> Result<CellRecord, MergeError> {
    let first = parts.first().ok_or(MergeError::Nothing)?;
    if let Some(part) = parts.iter().find(|part| !is_same_load(&part.record, &first.record)) {
        let named = |agent: &str| made_printable(agent).into_owned();
        return Err(MergeError::OtherLoad { agent: named(&first.agent), other: named(&part.agent) });
    }
    let level = parts.iter().map(|part| part.record.generator.level).max().unwrap_or_default();
    let (mut merged, mut measured, mut tallies) = (None::<CellRecord>, Vec::new(), Vec::new());
    for SharePart { agent, mut record, shift } in parts {
        let mut part = taken_out(&mut record, level);
        move_times(&mut record, &mut part, shift);
        tallies.push((record.started_at, std::mem::take(&mut part.tallies)));
        measured.push(part);
        name_warnings(&mut record, &agent);
        match &mut merged {
            Some(merged) => join_heads(merged, record, &agent),
            None => merged = Some(record),
        }
    }
    let mut merged = merged.ok_or(MergeError::Nothing)?;
    let all = Measured::together(measured, Beside::Processes);
    merged.samples = all.samples.into_iter().collect();
    merged.tallies = tally::merge_aligned(tallies, merged.started_at);
    merged.connections = all.connections;
    merged.frames = all.frames;
    merged.tcp = all.tcp;
    merged.generator = all.generator;
    merged.machine = None;
    Ok(merged)
}

/// Whether two records are of shares of one load: how long they measured may differ.
fn is_same_load(one: &CellRecord, other: &CellRecord) -> bool {
    let key = |record: &CellRecord| {
        let cell = &record.cell;
        (cell.protocol, cell.connections, cell.request_seed, cell.work.arrival, cell.work.phases.warmup)
    };
    key(one) == key(other)
}

/// Takes out of `record` what was measured, at this level of recording.
fn taken_out(record: &mut CellRecord, level: Level) -> Measured {
    let mut samples: Vec<Sample> = record.samples.iter().collect();
    record.samples.clear();
    let mut tallies = std::mem::take(&mut record.tallies);
    if level != Level::Full && record.generator.level == Level::Full {
        (samples, tallies) = counted(samples, record);
    }
    if level == Level::Hist {
        samples = Vec::new();
    }
    Measured {
        samples,
        tallies,
        connections: std::mem::take(&mut record.connections),
        frames: std::mem::take(&mut record.frames),
        tcp: std::mem::take(&mut record.tcp),
        generator: record.generator,
    }
}

/// Counts all requests of a share that kept each of them. Returns those that are kept besides being counted, and the tallies.
fn counted(mut samples: Vec<Sample>, record: &CellRecord) -> (Vec<Sample>, Vec<Tally>) {
    samples.sort_by_key(|sample| sample.completed_at);
    let succeeded = samples.iter().filter(|sample| sample.outcome.is_success());
    let mut tail = TailSample::new(record.cell.seed);
    tail.learn(&Histogram::of(succeeded.map(Sample::response_time)));
    let mut tallier = Tallier::new(record.cell.work.phases, record.started_at);
    let mut kept = Vec::new();
    tail.count(&samples, &mut tallier, &mut kept);
    (kept, tallier.finish(0))
}

/// Converts all times of a share to another clock, which is `shift` nanoseconds ahead.
fn move_times(record: &mut CellRecord, part: &mut Measured, shift: i64) {
    // What has not happened on one clock has not on another.
    let moved = |at: &mut Time| {
        if at.happened() {
            *at = Time::from_nanos(at.as_nanos().saturating_add_signed(shift));
        }
    };
    moved(&mut record.started_at);
    for sample in &mut part.samples {
        moved(&mut sample.scheduled_at);
        moved(&mut sample.sent_at);
        moved(&mut sample.first_byte_at);
        moved(&mut sample.completed_at);
    }
    for connection in &mut part.connections {
        moved(&mut connection.dialled_at);
        moved(&mut connection.connected_at);
        moved(&mut connection.ready_at);
        moved(&mut connection.closed_at);
        connection.goaways.iter_mut().for_each(|goaway| moved(&mut goaway.at));
    }
    part.tallies.iter_mut().for_each(|tally| moved(&mut tally.at));
    part.frames.iter_mut().for_each(|frame| moved(&mut frame.at));
    part.tcp.iter_mut().for_each(|tick| moved(&mut tick.at));
}

/// Puts the agent's name before each of its warnings.
fn name_warnings(record: &mut CellRecord, agent: &str) {
    let named = |warning: &mut String| {
        let text = format!("agent {agent}: {warning}");
        *warning = made_printable(&text).into_owned();
    };
    record.warnings.iter_mut().for_each(named);
}

/// Adds to `merged` what a share's record says besides what was measured.
fn join_heads(merged: &mut CellRecord, share: CellRecord, agent: &str) {
    merged.started_at = merged.started_at.min(share.started_at);
    merged.attempt = merged.attempt.max(share.attempt);
    let measure = &mut merged.cell.work.phases.measure;
    *measure = (*measure).max(share.cell.work.phases.measure);
    merged.warnings.extend(share.warnings);
    for placed in share.environment.placement {
        if !merged.environment.placement.contains(&placed) {
            let (name, value) = placed;
            let name = format!("{name} of agent {agent}");
            merged.environment.placement.push((made_printable(&name).into_owned(), value));
        }
    }
}
