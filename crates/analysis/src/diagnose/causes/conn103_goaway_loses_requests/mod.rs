//! CONN103: requests that are in flight when a GOAWAY arrives fail, and are not sent again.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::conn::CONN103 as META;
use super::conn101_request_quota_per_connection::ENOUGH;
use super::conn110_idle_timeout_race::races;
use super::views::ends::Ends;
use crate::diagnose::facts::ANNOUNCEMENT;
use crate::diagnose::{Case, Evidence, Finding, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_model::Fix;
use h2lab_model::record::{CloseReason, GoAwayRecord, Outcome};
use h2lab_model::settings::Knob;
use h2lab_wire::ErrorCode;

/// At least this many requests must be lost: a single one may have failed at the same moment for another reason.
const LEAST_LOST: usize = 2;
/// At least this share of all requests must be lost: below it are the failures of any network.
const LEAST_SHARE: f64 = 0.001;
/// For how long a server should continue after the first GOAWAY.
const GRACE_MS: u64 = 10_000;

/// The rule.
#[derive(Debug)]
pub(super) struct GoawayLosesRequests;

impl Rule for GoawayLosesRequests {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let mut lost = Lost::default();
        for repetition in &case.repetitions {
            let ends = Ends::by_goaway(repetition, ErrorCode::NO_ERROR.0);
            lost.goaways += ends.len();
            // For a connection that was idle there is another cause, and a longer timeout is its fix.
            let idle: BTreeSet<(u32, u32)> =
                races(repetition).iter().map(|race| (race.connection, race.stream)).collect();
            // Our own client closes a connection for reasons of its own, and no advice to a user's client is for it.
            let is_foreign = repetition.record.is_of_packets();
            let closed = repetition.record.connections.iter().filter(|_| is_foreign);
            let closed = closed.filter(|connection| matches!(connection.closed, CloseReason::Local { .. }));
            let closed_by_client: BTreeSet<u32> = closed.map(|connection| connection.index).collect();
            for sample in &repetition.record.samples {
                lost.requests += 1;
                // A request that was sent again until the client gave up is not lost because of one GOAWAY, but because
                // they come so often.
                let is_given_up = sample.outcome == Outcome::Refused && sample.replays > 0;
                let is_idle = idle.contains(&(sample.connection, sample.stream.0));
                if ends.lost(&sample) && !is_given_up && !is_idle {
                    lost.all += 1;
                    lost.unprocessed += usize::from(sample.outcome == Outcome::Refused);
                    let is_closed = closed_by_client.contains(&sample.connection);
                    lost.given_up += usize::from(sample.outcome == Outcome::GoAway && is_closed);
                }
            }
        }
        let stopped: Vec<u32> =
            case.connections().filter_map(|connection| abrupt(&connection.goaways)).collect();
        lost.abrupt = stopped.len();
        lost.after = match stopped[..] {
            // A last stream of 0: it processed none, which is no limit.
            [stream] if lost.goaways == 1 && stream > 0 => Some(stream.div_ceil(2)),
            _ => None,
        };
        if lost.all < LEAST_LOST || lost.share() < LEAST_SHARE {
            return Vec::new();
        }
        vec![lost.finding(case)]
    }
}

/// The last stream that the server named if it ended a connection in one step, so that requests in flight were above it.
fn abrupt(goaways: &[GoAwayRecord]) -> Option<u32> {
    let orderly = goaways.iter().filter(|goaway| goaway.code == ErrorCode::NO_ERROR.0);
    let lasts: Vec<u32> = orderly.map(|goaway| goaway.last_stream).collect();
    lasts.iter().copied().min().filter(|_| !lasts.contains(&ANNOUNCEMENT))
}

#[derive(Debug, Default)]
struct Lost {
    goaways: usize,
    requests: usize,
    /// Lost requests.
    all: usize,
    /// GOAWAYs that were not announced.
    abrupt: usize,
    /// Lost requests that the server certainly did not process.
    unprocessed: usize,
    /// Lost requests that the server went on with, on connections that a client that is not ours closed.
    given_up: usize,
    /// After how many requests the server ended a connection at once, if it ended no other. Several that agree are CONN101.
    after: Option<u32>,
}

impl Lost {
    fn share(&self) -> f64 {
        self.all as f64 / self.requests.max(1) as f64
    }

    /// How many of them were not announced: `3 of them`.
    fn abrupt_words(&self) -> String {
        match self.abrupt {
            n if n < self.goaways => format!("{} of them", count(n as u64)),
            1 => "and".to_owned(),
            _ => "all of them".to_owned(),
        }
    }

    fn finding(&self, case: &Case<'_>) -> Finding {
        let percent = self.share() * 100.0;
        let finding = case.finding_of_share(&META, self.share());
        Finding {
            symptom: format!(
                "the server ended {} by GOAWAY, {} without announcing it; {} failed ({percent:.1} %), of which {} may be \
                 sent again since their streams were above the last of the GOAWAY",
                plural(self.goaways as u64, "connection"),
                self.abrupt_words(),
                plural(self.all as u64, "request"),
                count(self.unprocessed as u64),
            ),
            evidence: self.evidence(),
            cost: format!(
                "{} of {} failed ({percent:.1} %)",
                count(self.all as u64),
                plural(self.requests as u64, "request")
            ),
            fixes: self.fixes(case),
            confirm: case.compare("").trim_end().to_owned()
                + ": without --no-replay requests above the last stream are sent again, and must not fail",
            of_failures: true,
            ..finding
        }
    }

    fn evidence(&self) -> Vec<Evidence> {
        let mut evidence = Evidence::list([
            ("requests that failed with a GOAWAY", self.all as f64, "requests"),
            ("of these, certainly not processed", self.unprocessed as f64, "requests"),
            ("connections ended by GOAWAY", self.goaways as f64, "connections"),
            ("of these, without an announcement", self.abrupt as f64, "connections"),
        ]);
        let given_up = ("of the lost ones, given up by a client that closed", self.given_up as f64);
        let more = [
            (self.given_up > 0).then_some(given_up),
            self.after.map(|after| ("requests up to the last stream of the GOAWAY", after.into())),
        ];
        evidence.extend(more.into_iter().flatten().map(|(what, n)| Evidence::new(what, n, "requests")));
        evidence
    }

    /// The limit of requests that the only connection that ended may have met.
    fn limit(&self, case: &Case<'_>) -> Option<Fix> {
        let after = u64::from(self.after?);
        let fix = case.advise(Knob::H2Requests, Some(ENOUGH.max(10 * after)));
        let after = plural(after, "request");
        let why = format!("if it is a limit: the connection ended after {after}; {}", fix.why);
        fix.has_setting().then_some(Fix { why, ..fix })
    }

    fn fixes(&self, case: &Case<'_>) -> Vec<Fix> {
        let ours = if case.cell().work.replay { "" } else { " (remove --no-replay)" };
        let again = Fix::new(
            "client",
            &format!("send requests above the last stream of a GOAWAY again{ours}"),
            "they were not processed, so that any of them may be repeated (RFC 9113 §6.8); keep bodies until the answer begins",
        );
        let stay = Fix::new(
            "client",
            "after a GOAWAY, read the responses of streams up to its last one before closing",
            "the server still answers them; before JDK 24 and 17.0.17, the JDK's HttpClient fails all requests of the \
             connection with `GOAWAY received` (JDK-8335181)",
        );
        let grace = (self.abrupt > 0).then(|| case.advise(Knob::GoAwayGrace, Some(GRACE_MS)));
        let client = [(self.unprocessed > 0).then_some(again), (self.given_up > 0).then_some(stay)];
        client.into_iter().chain([self.limit(case), grace]).flatten().collect()
    }
}
