//! LOSS101: a lost TCP segment stalls all streams of its connection at once.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::loss::LOSS101 as META;
use super::views::missing::Blocked;
use super::views::{PACED, at_client, hop_words, is_lost_to_full_queues, more_connections};
use crate::diagnose::{Against, Case, Confidence, Evidence, Finding, Repetition, Rule};
use crate::stats::CellSummary;
use h2lab_base::counts::plural;
use h2lab_base::units::{Ratio, measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::CellRecord;
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise};

/// The rule.
#[derive(Debug)]
pub(super) struct TcpHeadOfLine;

impl Rule for TcpHeadOfLine {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let blocked: Vec<Blocked> = case.repetitions.iter().flat_map(Repetition::blocked).copied().collect();
        let Some(longest) = blocked.iter().max_by_key(|blocked| blocked.stream_time) else {
            return Vec::new();
        };
        let totals = Totals::of(&blocked);
        if !case.is_worth_time(totals.stream_time) {
            return Vec::new();
        }
        let seen = case.repetitions.iter().all(|repetition| repetition.hop().has_packet_log);
        let is_full = seen && is_lost_to_full_queues(case);
        let at_queue = if is_full { " at a full queue" } else { "" };
        vec![Finding {
            symptom: totals.symptom(seen) + at_queue + hop_words(case.cell()),
            evidence: totals.evidence(longest, seen),
            confidence: if seen { Confidence::Observed } else { Confidence::Inferred },
            fixes: fixes(case, is_full),
            confirm: confirm(case),
            ..case.finding(&META, totals.stream_time, "waiting behind a missing segment")
        }]
    }
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

/// By which factor more connections are advised.
const MANY: u32 = 16;

/// What to change in this cell; not to a congestion control that it already has. A path whose only drops are those of a
/// full queue is not lossy: its senders fill the queue.
fn fixes(case: &Case<'_>, is_full: bool) -> Vec<Fix> {
    let cell = case.cell();
    let mut fixes = vec![more_connections(
        Some(u64::from(cell.connections * MANY)),
        "a drop stalls only the streams of its own connection, and halves one congestion window of several; \
         costs handshakes and memory",
    )];
    if cell.congestion.as_deref() != Some("bbr") {
        let wish = Wish { knob: Knob::CongestionControl, role: Role::Kernel, value: None };
        let random = "on the sender of the data that is lost: keeps its pace under random loss; the stalls stay but no \
                      queue builds up behind them";
        let why = if is_full { PACED } else { random };
        let setting = advise(&Peer::started("linux"), wish).setting;
        fixes.push(Fix { wish: Some(wish), ..Fix::new("kernel", &setting, why) });
    }
    if !is_full && !is_http1_as_slow(case) {
        fixes.push(at_client(
            "HTTP/1.1 on lossy paths",
            Knob::UpstreamProtocol,
            None,
            "one request per connection: a drop stalls that one alone",
        ));
    }
    fixes
}

/// Whether HTTP/1.1 was measured, and the tail of its response times is no shorter.
fn is_http1_as_slow(case: &Case<'_>) -> bool {
    let is_of_http1 = |against: &&Against<'_>| !against.repetitions[0].cell.protocol.is_multiplexed();
    let against = case.against.as_ref().filter(is_of_http1);
    against.filter(|_| !case.cell().work.bulk).is_some_and(|against| {
        let own: Vec<&CellRecord> = case.records().collect();
        let share = against.verdict.tail.share();
        let [own, other] =
            [&own, &against.repetitions].map(|records| CellSummary::of(records).response.quantile(share));
        own <= other
    })
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
