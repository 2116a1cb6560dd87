//! Open streams compared with what servers allow, over time, and how long requests waited meanwhile.

use std::time::Duration;

use super::streams_allowed;
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, Level, Sample};

/// The least number of requests that show how long one takes with hardly any other in flight; if there are fewer, the
/// quickest request is used.
const ENOUGH: usize = 3;
/// At most this many streams beside a request do not slow it down. A quarter of a large limit may: a path or a server
/// has less room than that.
const FEW: u64 = 8;

/// How requests waited for streams in a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::diagnose) struct Slots {
    /// Streams that the server allows on a connection.
    pub limit: u32,
    /// Requests that took the last free stream after they had waited: they show how long one takes beside all others.
    pub requests: u64,
    /// Requests that waited, including those that were never sent.
    pub waiters: u64,
    /// How long they waited while all streams of all connections were in use, in total.
    pub waited: Duration,
    /// For how long all streams were in use and requests waited.
    pub full: Duration,
    /// From the first request to the end of the last.
    pub all: Duration,
    /// How long the requests that waited took after they were sent, on average.
    pub service: Duration,
    /// The same for requests that had few others beside them.
    pub unhindered: Duration,
}

/// An event. At equal times, ends come first, so that a stream that is reused is not counted twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request ends; the index of its sample.
    Ended(usize),
    /// A connection accepts no more requests.
    Closed,
    /// A connection can carry requests.
    Ready,
    /// A request begins to wait.
    Waits,
    /// A request that waited is sent, or is given up.
    WaitOver,
    /// A request is sent; the index of its sample.
    Sent(usize),
}

/// The slots of this repetition. `None` if no server's limit was below what the client would have opened, or if not
/// every request was recorded.
pub(in crate::diagnose) fn slots(record: &CellRecord) -> Option<Slots> {
    let waits = record.samples.iter().any(|sample| sample.stall_open_ns > 0);
    if !waits || record.generator.level != Level::Full || record.cell.protocol.is_quic() {
        return None;
    }
    let limit = record.connections.iter().filter_map(streams_allowed).min()?;
    if limit > record.cell.streams {
        return None;
    }
    let samples: Vec<Sample> = record.samples.iter().collect();
    let mut sweep = Sweep { limit, sent: vec![None; samples.len()], ..Sweep::default() };
    for (at, event) in events(record, &samples) {
        sweep.pass(at, event, &samples);
    }
    Some(sweep.finish(&samples))
}

fn events(record: &CellRecord, samples: &[Sample]) -> Vec<(Time, Event)> {
    let mut events = Vec::new();
    for connection in record.connections.iter().filter(|connection| connection.ready_at.happened()) {
        events.push((connection.ready_at, Event::Ready));
        events.push((connection.usable_until(), Event::Closed));
    }
    for (index, sample) in samples.iter().enumerate() {
        let sent_at = sample.sent_at.min(sample.completed_at);
        if sample.stall_open_ns > 0 {
            events.push((sent_at - Duration::from_nanos(sample.stall_open_ns), Event::Waits));
            events.push((sent_at, Event::WaitOver));
        }
        if sample.sent_at.happened() {
            events.push((sample.sent_at, Event::Sent(index)));
            events.push((sample.completed_at, Event::Ended(index)));
        }
    }
    events.retain(|(at, _)| at.happened());
    events.sort_unstable();
    events
}

/// The state at one time.
#[derive(Debug, Default)]
struct Sweep {
    limit: u32,
    now: Time,
    began: Option<Time>,
    connections: u64,
    open: u64,
    waiting: u64,
    /// The largest capacity so far.
    most: u64,
    slots: Slots,
    /// Open streams, summed over time: streams × seconds.
    stream_seconds: f64,
    /// When each sample was sent, and `stream_seconds` then.
    sent: Vec<Option<(Time, f64)>>,
    /// Samples that were sent when at most a quarter of all streams were in use, and at most [`FEW`]; and how many
    /// others were open beside them on average until they ended. A server that ends many at once has few open for a
    /// moment, and is as busy as before.
    quiet: Vec<(usize, f64)>,
    /// Samples that took the last free stream, after they had waited.
    hindered: Vec<usize>,
}

impl Sweep {
    fn capacity(&self) -> u64 {
        self.connections * u64::from(self.limit)
    }

    /// The number of streams beside a request that do not slow it down.
    fn few(&self) -> u64 {
        (self.capacity() / 4).min(FEW)
    }

    fn ended(&mut self, index: usize, at: Time) {
        self.open = self.open.saturating_sub(1);
        let Some((sent, before)) = self.sent[index] else { return };
        let took = at.since(sent).as_secs_f64().max(f64::MIN_POSITIVE);
        self.quiet.push((index, (self.stream_seconds - before) / took - 1.0));
    }

    fn pass(&mut self, at: Time, event: Event, samples: &[Sample]) {
        let passed = at.since(self.now);
        self.now = at;
        self.stream_seconds += passed.as_secs_f64() * self.open as f64;
        self.most = self.most.max(self.capacity());
        if self.waiting > 0 && self.capacity() > 0 && self.open >= self.capacity() {
            self.slots.full += passed;
            self.slots.waited += passed * u32::try_from(self.waiting).unwrap_or(u32::MAX);
        }
        match event {
            Event::Ended(index) => self.ended(index, at),
            Event::Closed => self.connections = self.connections.saturating_sub(1),
            Event::Ready => self.connections += 1,
            Event::Waits => {
                self.waiting += 1;
                self.slots.waiters += 1;
            }
            Event::WaitOver => self.waiting = self.waiting.saturating_sub(1),
            Event::Sent(index) => {
                self.began.get_or_insert(at);
                if self.open <= self.few() && samples[index].stall_open_ns == 0 {
                    self.sent[index] = Some((at, self.stream_seconds));
                }
                self.open += 1;
                // A request that was refused and sent again waited in between.
                let took_a_slot = samples[index].stall_open_ns > 0 && samples[index].replays == 0;
                if self.open >= self.capacity() && took_a_slot {
                    self.hindered.push(index);
                }
            }
        }
    }

    fn finish(self, samples: &[Sample]) -> Slots {
        let mean = |indices: &[usize]| {
            let sum: Duration = indices.iter().map(|index| samples[*index].service_time()).sum();
            sum / u32::try_from(indices.len()).unwrap_or(u32::MAX).max(1)
        };
        let answered = || samples.iter().filter(|sample| sample.outcome.is_success());
        let quickest = || answered().map(Sample::service_time).min();
        let beside = |most: f64| {
            let quiet = self.quiet.iter().filter(|(_, others)| *others <= most);
            quiet.map(|(index, _)| *index).collect::<Vec<usize>>()
        };
        // Samples with few others open all the time; else those with less than half of what is open at the limit, so
        // that crowding is visible.
        let unhindered = [(self.most / 4).min(FEW) as f64, self.most as f64 / 2.0].map(beside);
        let unhindered = unhindered.iter().find(|indices| indices.len() >= ENOUGH);
        let unhindered = unhindered.map_or_else(|| quickest().unwrap_or_default(), |indices| mean(indices));
        Slots {
            limit: self.limit,
            requests: self.hindered.len() as u64,
            all: self.now.since(self.began.unwrap_or(self.now)),
            service: mean(&self.hindered),
            unhindered,
            ..self.slots
        }
    }
}
