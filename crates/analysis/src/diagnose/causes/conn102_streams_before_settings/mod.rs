//! CONN102: streams that were opened before the server's SETTINGS arrived, and that it refused.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::conn::CONN102 as META;
use super::views::streams_allowed;
use crate::diagnose::{Case, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_model::settings::{Knob, Role, Wish, advise};
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};
use h2lab_wire::{ErrorCode, StreamId};

/// The least that RFC 9113 §6.5.2 recommends.
const RECOMMENDED: u32 = 100;
/// At least this many streams must have been refused.
const LEAST: usize = 2;

/// The rule.
#[derive(Debug)]
pub(super) struct StreamsBeforeSettings;

impl Rule for StreamsBeforeSettings {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        if !case.cell().protocol.is_multiplexed() || case.cell().protocol.is_quic() {
            return Vec::new();
        }
        let mut total = Total::default();
        for repetition in &case.repetitions {
            total.add(repetition);
        }
        let allowed = case.connections().filter_map(streams_allowed).min();
        let Some(allowed) = allowed.filter(|_| total.refused >= LEAST) else { return Vec::new() };
        let finding = case.finding(&META, total.excess, "sending refused requests again");
        let failed = (total.failed + total.unknown) as f64 / (total.requests + total.unknown).max(1) as f64;
        let share = (finding.cost_share + failed).min(1.0);
        let found = Finding {
            symptom: total.symptom(allowed),
            evidence: total.evidence(allowed),
            cost: total.cost(&finding.cost),
            cost_share: share,
            fixes: fixes(case),
            confirm: case.compare("--await-settings")
                + ": with streams held back until the server's SETTINGS have arrived none is refused",
            // Where the time alone is not worth telling, the failures are why it is told.
            of_failures: !case.is_worth(finding.cost_share),
            ..finding
        };
        // Requests that failed, or may have, are told also where they are few: the median shows nothing of them.
        let has_failures = total.failed + total.unknown >= LEAST;
        (has_failures || case.is_worth(share)).then_some(found).into_iter().collect()
    }
}

/// What was refused, over all repetitions.
#[derive(Debug, Default)]
struct Total {
    /// Streams that were opened before SETTINGS, and refused.
    refused: usize,
    connections: usize,
    /// Connections on which the client had received SETTINGS.
    all: usize,
    first: Option<(u32, Time)>,
    /// Requests that were refused in the end.
    failed: usize,
    requests: usize,
    /// Streams that were refused, of a client whose requests cannot be followed: it may have sent them again or not.
    unknown: usize,
    /// How much longer the requests that were sent again took than the quickest.
    excess: Duration,
}

impl Total {
    fn add(&mut self, repetition: &Repetition<'_>) {
        let record = repetition.record;
        let early = refused_early(record);
        for (connection, (refused, at)) in &early {
            self.refused += refused;
            self.connections += usize::from(*refused > 0);
            self.all += 1;
            if *refused > 0 {
                self.first.get_or_insert((*connection, *at));
            }
        }
        let refused: usize = early.values().map(|(refused, _)| refused).sum();
        let quickest = repetition.facts().quickest;
        let (mut excess, mut replays, mut failed) = (Duration::ZERO, 0_usize, 0_usize);
        for sample in &record.samples {
            self.requests += 1;
            let is_early = early.get(&sample.connection).is_some_and(|(refused, _)| *refused > 0);
            failed += usize::from(sample.outcome == Outcome::Refused && is_early);
            if sample.replays > 0 && sample.sent_at.happened() {
                replays += usize::from(sample.replays);
                excess += sample.service_time().saturating_sub(quickest);
            }
        }
        // Requests are sent again for other reasons, too: this cause gets the same share of their time as of their
        // number.
        self.excess += excess.mul_f64(refused.min(replays) as f64 / replays.max(1) as f64);
        self.failed += failed;
        // Of a foreign client no request is known to be another one sent again.
        if replays == 0 && !record.samples.is_empty() {
            self.unknown += refused.saturating_sub(failed);
        }
    }

    /// What it cost; `again` is what requests that were sent again cost, in words.
    fn cost(&self, again: &str) -> String {
        let failed = plural(self.failed as u64, "request");
        if self.unknown == 0 {
            return format!("{again}; {failed} failed");
        }
        let (failed, others) = match self.failed {
            0 => (String::new(), "them".to_owned()),
            _ => (format!("{failed} failed, and "), format!("the other {}", count(self.unknown as u64))),
        };
        format!(
            "{} of {} refused: {failed}whether the client sent {others} again is not known",
            count(self.refused as u64),
            plural((self.requests + self.unknown) as u64, "request"),
        )
    }

    fn symptom(&self, allowed: u32) -> String {
        format!(
            "{} opened before the server's SETTINGS arrived were refused (REFUSED_STREAM) on {} of {}; the server allows {} at a \
             time",
            plural(self.refused as u64, "stream"),
            count(self.connections as u64),
            plural(self.all as u64, "new connection"),
            count(allowed.into()),
        )
    }

    fn evidence(&self, allowed: u32) -> Vec<Evidence> {
        let refused = Evidence::new(
            "streams refused that had been opened before SETTINGS",
            self.refused as f64,
            "streams",
        );
        vec![
            match self.first {
                Some((connection, at)) => refused.seen(connection, at),
                None => refused,
            },
            Evidence::new("connections on which that happened", self.connections as f64, "connections"),
            Evidence::new("streams that the server allows at a time", allowed.into(), "streams"),
            Evidence::new("time that it cost", millis_f64(self.excess), "ms"),
        ]
    }
}

/// For each connection on which SETTINGS arrived: how many streams were opened before them and refused, and when the
/// first one was. Empty where frames were not recorded.
fn refused_early(record: &CellRecord) -> BTreeMap<u32, (usize, Time)> {
    const ACK: u8 = 0x1;
    let mut early: BTreeMap<u32, BTreeSet<StreamId>> = BTreeMap::new();
    let mut found: BTreeMap<u32, (usize, Time)> = BTreeMap::new();
    let is_refusal = |frame: &FrameEvent| {
        frame.kind == FrameKind::RST_STREAM && frame.value == ErrorCode::REFUSED_STREAM.0
    };
    for frame in &record.frames {
        match frame.direction {
            Direction::Up if frame.kind == FrameKind::HEADERS && !found.contains_key(&frame.connection) => {
                early.entry(frame.connection).or_default().insert(frame.stream);
            }
            Direction::Down if frame.kind == FrameKind::SETTINGS && frame.flags & ACK == 0 => {
                found.entry(frame.connection).or_insert((0, Time::NEVER));
            }
            Direction::Down if is_refusal(frame) => {
                let is_early =
                    early.get(&frame.connection).is_some_and(|streams| streams.contains(&frame.stream));
                if let Some((refused, first)) = found.get_mut(&frame.connection).filter(|_| is_early) {
                    *refused += 1;
                    *first = frame.at.min(*first);
                }
            }
            _ => {}
        }
    }
    found
}

fn fixes(case: &Case<'_>) -> Vec<Fix> {
    let wish = Wish { knob: Knob::MaxConcurrentStreams, role: Role::Front, value: Some(RECOMMENDED.into()) };
    vec![
        advise(&case.peer(), wish),
        Fix::new(
            "client",
            "few streams until SETTINGS have arrived, and refused requests again",
            "a refused stream was not processed (RFC 9113 §8.7)",
        ),
    ]
}
