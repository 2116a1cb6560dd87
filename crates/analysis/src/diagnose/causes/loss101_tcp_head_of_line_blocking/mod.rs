//! LOSS101: a lost TCP segment stalls all streams of its connection at once.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::loss::LOSS101 as META;
use super::views::{at_client, more_connections};
use crate::diagnose::facts::retransmissions_of;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::plural;
use h2lab_base::units::{Ratio, Time, measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::scenario::Cell;
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise};
use h2lab_wire::trace::{Facts, Flight, Hole, Stall};

/// How far the end of a stall may lie from the repair of a hole, at least: reading and answering take the server and us
/// a few milliseconds on a busy machine.
const LEAST_SLACK: Duration = Duration::from_millis(5);

/// The rule.
#[derive(Debug)]
pub(super) struct TcpHeadOfLine;

impl Rule for TcpHeadOfLine {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let blocked: Vec<Blocked> =
            case.repetitions.iter().flat_map(|repetition| blocked(repetition.hop())).collect();
        let Some(longest) = blocked.iter().max_by_key(|blocked| blocked.stream_time) else {
            return Vec::new();
        };
        let totals = Totals::of(&blocked);
        if !case.is_worth_time(totals.stream_time) {
            return Vec::new();
        }
        let seen = case.repetitions.iter().all(|repetition| repetition.hop().has_packet_log);
        vec![Finding {
            symptom: totals.symptom(seen) + hop_words(case.cell()),
            evidence: totals.evidence(longest, seen),
            confidence: if seen { Confidence::Observed } else { Confidence::Inferred },
            fixes: fixes(case.cell()),
            confirm: confirm(case),
            ..case.finding(&META, totals.stream_time, "waiting behind a missing segment")
        }]
    }
}

/// Which connection it is, where it is not the generator's own.
const fn hop_words(cell: &Cell) -> &'static str {
    if cell.sidecar.is_some() { ", on the sidecar's connection over the link" } else { "" }
}

/// A time in which several streams of a connection waited behind missing segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Blocked {
    connection: u32,
    begin: Time,
    end: Time,
    /// Streams in flight throughout.
    sharing: usize,
    /// Streams whose answers were overdue in it.
    overdue: usize,
    /// The sum of the times for which they were overdue.
    stream_time: Duration,
    /// Segments that were missing: dropped, or retransmitted.
    segments: usize,
}

/// The stalls of a repetition shared by two or more streams because segments were missing. There may be many thousand, and many more
/// requests: each is looked at only while it is open.
fn blocked(facts: &Facts) -> Vec<Blocked> {
    let mut blocked = Vec::new();
    for stalls in facts.stalls.chunk_by(|one, next| one.connection == next.connection) {
        let connection = stalls[0].connection;
        let holes = Holes::of(facts.holes_of(connection));
        let mut to_come = facts.flights_of(connection).iter().peekable();
        let mut open: Vec<&Flight> = Vec::new();
        for stall in stalls {
            open.retain(|flight| flight.ended_at > stall.begin);
            let sent = std::iter::from_fn(|| to_come.next_if(|flight| flight.sent_at < stall.end));
            open.extend(sent.filter(|flight| flight.ended_at > stall.begin));
            if stall.streams.len() >= 2 {
                blocked.extend(of_stall(facts, &holes, stall, &open));
            }
        }
    }
    blocked
}

/// What missing segments make of a stall; `flights` are all requests that were open in it.
fn of_stall(facts: &Facts, holes: &Holes<'_>, stall: &Stall, flights: &[&Flight]) -> Option<Blocked> {
    let (begin, segments) =
        if facts.has_packet_log { holes.explain(facts, stall) } else { by_retransmission(facts, stall) }?;
    let is_sharing = |flight: &&&Flight| flight.sent_at <= begin && flight.is_open_between(begin, stall.end);
    let sharing = flights.iter().filter(is_sharing).count();
    let overdue = flights.iter().map(|flight| flight.overdue_between(begin, stall.end));
    let overdue: Vec<Duration> = overdue.filter(|time| !time.is_zero()).collect();
    (sharing >= 2).then(|| Blocked {
        connection: stall.connection,
        begin,
        end: stall.end,
        sharing,
        overdue: overdue.len(),
        stream_time: overdue.iter().sum(),
        segments,
    })
}

/// The holes of a connection, by begin and by end.
#[derive(Debug)]
struct Holes<'a> {
    by_begin: &'a [Hole],
    /// The latest end of each of these and all before it.
    latest: Vec<Time>,
    /// The ends in order, each with its begin.
    by_end: Vec<(Time, Time)>,
    /// The begin of the first that was never repaired.
    open_since: Option<Time>,
}

impl<'a> Holes<'a> {
    fn of(by_begin: &'a [Hole]) -> Self {
        let latest = by_begin.iter().scan(Time::ZERO, |latest, hole| {
            *latest = hole.end.max(*latest);
            Some(*latest)
        });
        let mut by_end: Vec<(Time, Time)> = by_begin.iter().map(|hole| (hole.end, hole.begin)).collect();
        by_end.sort_unstable();
        let open_since = by_begin.iter().find(|hole| !hole.end.happened()).map(|hole| hole.begin);
        Self { by_begin, latest: latest.collect(), by_end, open_since }
    }

    /// From when on missing segments explain a stall, and how many. They explain it if frames resumed when a hole was
    /// repaired, and if holes that follow on one another were open for at least half of the stall: a drop somewhere in a
    /// pause of the server is repaired long before the pause ends, and one near its end covers little of it.
    fn explain(&self, facts: &Facts, stall: &Stall) -> Option<(Time, usize)> {
        let slack = (facts.rtt / 4).max(LEAST_SLACK);
        let first = self.by_end.partition_point(|(end, _)| *end < stall.end - slack);
        let ending = self.by_end[first..].iter().take_while(|(end, _)| *end <= stall.end + slack);
        let begins = ending.map(|(_, begin)| *begin).chain(self.open_since);
        let mut begin = begins.filter(|begin| *begin < stall.end).min()?;
        let mut n = self.by_begin.partition_point(|hole| hole.begin < begin);
        while n > 0 && self.latest[n - 1] >= begin {
            n -= 1;
            if self.by_begin[n].end >= begin {
                begin = self.by_begin[n].begin;
            }
        }
        let begin = begin.max(stall.begin);
        let length = stall.end.since(begin);
        let covers = length >= facts.least_stall() && length * 2 >= stall.end.since(stall.begin);
        // Those that had ended by then had begun before.
        let begun = self.by_begin.partition_point(|hole| hole.begin < stall.end);
        let over = self.by_end.partition_point(|(end, _)| *end <= begin);
        covers.then(|| (begin, begun.saturating_sub(over)))
    }
}

/// As [`Holes::explain`], over a network without a packet log: frames resumed when a retransmitted segment
/// arrived, and the stall lasted for the round trip that it takes to detect a loss.
fn by_retransmission(facts: &Facts, stall: &Stall) -> Option<(Time, usize)> {
    let slack = (facts.rtt / 4).max(LEAST_SLACK);
    if stall.end.since(stall.begin) < facts.rtt.max(facts.least_stall()) {
        return None;
    }
    let of_end = |server: bool| {
        let way = if server { facts.rtt / 2 } else { facts.quickest };
        let steps = retransmissions_of(facts, stall.connection, server);
        let first = steps.partition_point(|step| step.until + way + slack < stall.end);
        let ending = steps[first..].iter().take_while(|step| step.after + way <= stall.end + slack);
        ending.map(|step| step.segments).sum::<u32>()
    };
    let segments = of_end(false) + of_end(true);
    (segments > 0).then_some((stall.begin, segments as usize))
}

/// Sums over all blocked times of a cell.
#[derive(Debug, Default)]
struct Totals {
    stalls: usize,
    segments: usize,
    sharing: usize,
    duration: Duration,
    stream_time: Duration,
}

impl Totals {
    fn of(blocked: &[Blocked]) -> Self {
        Self {
            stalls: blocked.len(),
            segments: blocked.iter().map(|blocked| blocked.segments).sum(),
            sharing: blocked.iter().map(|blocked| blocked.sharing).sum(),
            duration: blocked.iter().map(|blocked| blocked.end.since(blocked.begin)).sum(),
            stream_time: blocked.iter().map(|blocked| blocked.stream_time).sum(),
        }
    }

    fn symptom(&self, seen: bool) -> String {
        let each = self.duration / u32::try_from(self.stalls).unwrap_or(u32::MAX).max(1);
        let cause = if seen { "began at" } else { "ended with" };
        let segments = if seen { "drop" } else { "retransmission" };
        format!(
            "{}, {}{} long and shared by {}, {cause} {}",
            plural(self.stalls as u64, "stall"),
            if self.stalls == 1 { "" } else { "on average " },
            measured_time(each),
            plural((self.sharing as f64 / self.stalls.max(1) as f64).round() as u64, "stream"),
            plural(self.segments as u64, segments),
        )
    }

    fn evidence(&self, longest: &Blocked, seen: bool) -> Vec<Evidence> {
        let segments = if seen {
            "dropped segments that they waited for"
        } else {
            "retransmitted segments that ended them"
        };
        vec![
            Evidence::new("shared stalls", self.stalls as f64, "stalls"),
            Evidence::new(
                "streams in flight per shared stall",
                self.sharing as f64 / self.stalls as f64,
                "streams",
            ),
            Evidence::new(segments, self.segments as f64, "segments"),
            Evidence::new("stream-time that was overdue in them", millis_f64(self.stream_time), "ms"),
            Evidence::new(
                &format!("the costliest of them, over {} streams", longest.overdue),
                millis_f64(longest.end.since(longest.begin)),
                "ms",
            )
            .seen(longest.connection, longest.begin),
        ]
    }
}

/// How many times as many connections are advised.
const MANY: u32 = 16;

/// What to change in this cell: not to a congestion control that it has already.
fn fixes(cell: &Cell) -> Vec<Fix> {
    let mut fixes = vec![more_connections(
        Some(u64::from(cell.connections * MANY)),
        "a drop stalls only the streams of its own connection, and halves one congestion window of several; \
         costs handshakes and memory",
    )];
    if cell.congestion.as_deref() != Some("bbr") {
        let wish = Wish { knob: Knob::CongestionControl, role: Role::Kernel, value: None };
        fixes.push(Fix::new(
            "kernel",
            &advise(&Peer::started("linux"), wish).setting,
            "on the sender of the data that is lost: keeps its pace under random loss; the stalls stay but no queue \
             builds up behind them",
        ));
    }
    fixes.push(at_client(
        "HTTP/1.1 on lossy paths",
        Knob::UpstreamProtocol,
        None,
        "one request per connection: a drop stalls that one alone",
    ));
    fixes
}

/// The experiment that must make the stalls disappear.
fn confirm(case: &Case<'_>) -> String {
    let cell = case.cell();
    let many = [1, 4, MANY].map(|times| (cell.connections * times).to_string()).join(",");
    let loss = Ratio::new(cell.loss()).filter(|loss| *loss != Ratio::ZERO);
    let (loss, effect) = loss.map_or_else(Default::default, |loss| {
        (format!(" --loss 0%,{loss}"), "without loss the difference to h1 is gone; ")
    });
    let command = case.compare(&format!("-c {many}{loss}"));
    format!("{command}: {effect}with more connections fewer streams share a stall, and the tail shrinks")
}
