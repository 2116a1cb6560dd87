//! LOSS105: small responses wait behind the data of a large one that the sender had queued.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::loss::LOSS105 as META;
use super::views::bodies::{Bodies, Part};
use super::views::{mean, median};
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::plural;
use h2lab_base::units::{Time, format_bytes, measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, Sample};
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise};
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

/// A scheduler that takes streams in turn puts one or two frames of 16 KiB before a response; this many bytes are a
/// queue.
const QUEUE: u64 = 64 << 10;
/// What TCP has in flight while it probes for the rate of the path takes fewer round trips than this.
const ROUND_TRIPS: u32 = 3;
/// A response that is larger than the queue divided by this waits for its own bytes, too.
const SMALL: u64 = 8;
/// For this share of the small responses the large one continues after them: where the server could choose, it chose
/// well (else MUX104).
const OVERTAKING: f64 = 0.5;
/// Fewer responses that waited, or that did not, may be chance.
const LEAST: usize = 5;
/// Responses with no data before them waited for at most the median wait of the others divided by this: their handler
/// is not the cause.
const ALONE: u32 = 4;
/// Data arrived throughout: no gap was as long as the wait divided by this.
const GAP: u32 = 4;
/// The part of the wait that our client's TCP measured is in the queue of the path; from this share on, that queue is
/// the one to shorten. The smoothed round-trip time lags, so a smaller share proves nothing.
const PATH: f64 = 0.5;

/// The rule.
#[derive(Debug)]
pub(super) struct SendBufferBloat;

impl Rule for SendBufferBloat {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let protocol = case.cell().protocol;
        if !protocol.is_multiplexed() || protocol.is_quic() {
            return Vec::new();
        }
        let mut seen = Seen::default();
        case.repetitions.iter().for_each(|repetition| seen.add(repetition));
        let is_it = seen.is_queue() && case.is_worth_time(seen.queued.iter().map(|queued| queued.wait).sum());
        is_it.then(|| finding(case, &seen)).into_iter().collect()
    }
}

/// A response that waited behind data of another one.
#[derive(Debug, Clone, Copy)]
struct Queued {
    connection: u32,
    /// When the response could have arrived.
    from: Time,
    wait: Duration,
    /// Bytes of DATA that arrived before it.
    ahead: u64,
    /// Whether the response with most of these bytes continued after it.
    goes_on: bool,
    /// How much longer than its minimum the round trip of our client's TCP was, in the last sample of that time.
    path: Duration,
}

/// The short responses of a cell.
#[derive(Debug, Default)]
struct Seen {
    queued: Vec<Queued>,
    /// How long the responses waited that had no data before them.
    alone: Vec<Duration>,
}

impl Seen {
    fn add(&mut self, repetition: &Repetition<'_>) {
        let record = repetition.record;
        let quickest = repetition.facts().quickest;
        let came = came(record);
        for sample in record.samples.iter().filter(|sample| sample.outcome.is_success()) {
            let Some(time) = sample.time_to_first_byte() else { continue };
            let Some(came) = came.get(&sample.connection) else { continue };
            let wait = time.saturating_sub(quickest);
            let before = came.bodies.between(sample.sent_at + quickest, sample.first_byte_at);
            match before.bytes() {
                ahead if ahead >= QUEUE => self.queued.extend(queued(repetition, &sample, came, &before)),
                0 => self.alone.push(wait),
                _ => {}
            }
        }
    }

    fn is_queue(&self) -> bool {
        let overtaking = self.queued.iter().filter(|queued| queued.goes_on).count();
        self.queued.len() >= LEAST
            && self.alone.len() >= LEAST
            && overtaking as f64 >= OVERTAKING * self.queued.len() as f64
            && median(&self.alone) * ALONE <= median(&self.waits())
    }

    fn waits(&self) -> Vec<Duration> {
        self.queued.iter().map(|queued| queued.wait).collect()
    }
}

/// What arrived on a connection, by time.
#[derive(Debug, Default)]
struct Came {
    /// DATA of responses that were requested: pushed responses are another cause (MUX107).
    bodies: Bodies,
    /// The round trip as measured by our client's TCP.
    rtts: Vec<(Time, Duration)>,
}

impl Came {
    /// The latest round trip that TCP had measured at this time; zero if there is none.
    fn rtt(&self, at: Time) -> Duration {
        let upto = self.rtts.partition_point(|tick| tick.0 <= at);
        upto.checked_sub(1).map_or(Duration::ZERO, |last| self.rtts[last].1)
    }
}

/// What arrived on each connection.
fn came(record: &CellRecord) -> BTreeMap<u32, Came> {
    let mut came: BTreeMap<u32, Came> = BTreeMap::new();
    let is_asked_for = |frame: &&FrameEvent| frame.direction == Direction::Down && frame.stream.0 % 2 == 1;
    let data = record.frames.iter().filter(|frame| frame.kind == FrameKind::DATA);
    for frame in data.filter(is_asked_for) {
        let bodies = &mut came.entry(frame.connection).or_default().bodies;
        bodies.push(frame.at, frame.stream, frame.length.into());
    }
    for tick in record.tcp.iter().filter(|tick| !tick.server) {
        let rtt = Duration::from_micros(tick.rtt_us.into());
        came.entry(tick.connection).or_default().rtts.push((tick.at, rtt));
    }
    came
}

/// A response with data before it, if it is short compared with that data, and if most of the data belongs to one other
/// response and arrived without a long gap.
fn queued(repetition: &Repetition<'_>, sample: &Sample, came: &Came, before: &Part<'_>) -> Option<Queued> {
    let (from, until) = (before.begin(), sample.first_byte_at);
    let (ahead, wait, rtt) = (before.bytes(), until.since(from), repetition.facts().rtt);
    if wait < rtt * ROUND_TRIPS || sample.body_bytes > ahead / SMALL {
        return None;
    }
    let large = before.most().filter(|_| before.gap() < wait / GAP)?;
    Some(Queued {
        connection: sample.connection,
        from,
        wait,
        ahead,
        goes_on: before.goes_on(large),
        path: came.rtt(until).saturating_sub(rtt).min(wait),
    })
}

fn finding(case: &Case<'_>, seen: &Seen) -> Finding {
    let sum = |of: fn(&Queued) -> Duration| seen.queued.iter().map(of).sum::<Duration>();
    let (waited, path) = (sum(|queued| queued.wait), sum(|queued| queued.path));
    let count = seen.queued.len() as u64;
    let ahead = seen.queued.iter().map(|queued| queued.ahead).sum::<u64>() / count.max(1);
    let is_path = path.as_secs_f64() >= PATH * waited.as_secs_f64();
    let place = if is_path { "in the path" } else { "in the server's socket or the path" };
    let mut evidence = Evidence::list([
        ("short responses that data of another one came before", count as f64, "responses"),
        ("bytes before each, on average", ahead as f64, "bytes"),
        ("median wait of these", millis_f64(median(&seen.waits())), "ms"),
        ("median wait of those with nothing before them", millis_f64(median(&seen.alone)), "ms"),
        ("growth of the round trip in all of the waits", millis_f64(path), "ms"),
    ]);
    let longest = seen.queued.iter().max_by_key(|queued| queued.wait);
    evidence.extend(longest.map(|longest| {
        Evidence::new("the longest wait", millis_f64(longest.wait), "ms")
            .seen(longest.connection, longest.from)
    }));
    Finding {
        symptom: format!(
            "{} came {} late on average, behind {} of a large one on the same connection, which then went on: it was queued {place}",
            plural(count, "short response"),
            measured_time(mean(waited, count)),
            format_bytes(ahead),
        ),
        evidence,
        confidence: Confidence::Inferred,
        fixes: fixes(case, is_path),
        confirm: case.compare(&format!("-c {},4", case.cell().connections))
            + ": with more connections, or with TCP_NOTSENT_LOWAT at the server, short responses must come sooner",
        ..case.finding(&META, waited, "behind data of large responses that had been queued before")
    }
}

/// A setting of the server's product, if it has one, changes that server alone; the kernel's setting works for any
/// server.
fn fixes(case: &Case<'_>, is_path: bool) -> Vec<Fix> {
    let own = case.advise(Knob::NotsentLowat, None);
    let own = Some(own).filter(|own| !is_path && case.peer().product.is_some() && own.has_setting());
    let linux = |knob, value| advise(&Peer::started("linux"), Wish { knob, role: Role::Kernel, value });
    let other = Fix::new(
        "client",
        "large downloads on a connection of their own",
        "short responses then wait for none",
    );
    let first = if is_path {
        linux(Knob::CongestionControl, None)
    } else {
        linux(Knob::NotsentLowat, Some(128 << 10))
    };
    own.into_iter().chain([first, other]).collect()
}
