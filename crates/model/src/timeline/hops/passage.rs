//! What a server forwarded from upstream, and whether in time.

use super::super::summary::TimelineStream;
use super::super::waterfall::InterimResponse;
use super::verdict::HopVerdict;

/// An interim response or a promise that is delayed by this much, or by half the time that it was ahead of the
/// response, whichever is more, was held back: a proxy that forwards takes a fraction of a millisecond.
const HELD_BACK_MS: f64 = 5.0;

/// An event seen in front of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    /// Its identity on both sides of a proxy: the status, or the path.
    pub what: String,
    pub ms: f64,
    /// In how many runs.
    pub runs: u32,
}

/// An event from upstream that a server forwarded.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Passage {
    pub what: String,
    went_ms: f64,
    came_ms: f64,
    /// Its lead over the response behind.
    lead_ms: Option<f64>,
    /// In how many runs it was forwarded, and in how many it came.
    pub runs: (u32, u32),
}

impl Passage {
    fn late_ms(&self) -> f64 {
        (self.went_ms - self.came_ms).max(0.0)
    }

    fn is_held_back(&self) -> bool {
        self.late_ms() > HELD_BACK_MS.max(self.lead_ms.unwrap_or_default() / 2.0)
    }
}

/// Which events from upstream were forwarded: in order, and none before it came. Events of the same kind that a server
/// adds have no partner.
pub(super) fn passages(mut went: Vec<Seen>, came: &[Seen], response_ms: Option<f64>) -> Vec<Passage> {
    let mut passages = Vec::new();
    for one in came {
        // Medians over different sets of runs can be in any order.
        let goes_on = |other: &Seen| other.what == one.what && (other.runs != one.runs || other.ms >= one.ms);
        let Some(place) = went.iter().position(goes_on) else { continue };
        let other = went.remove(place);
        passages.push(Passage {
            what: one.what.clone(),
            went_ms: other.ms,
            came_ms: one.ms,
            lead_ms: response_ms.map(|response| (response - one.ms).max(0.0)),
            runs: (other.runs, one.runs),
        });
    }
    passages
}

/// In how many runs a stream has this time.
pub(super) fn runs_with(one: &TimelineStream, name: &str) -> u32 {
    one.spread.get(name).map_or(1, |spread| spread.runs)
}

pub(super) fn interims(one: &TimelineStream) -> Vec<Seen> {
    let seen = |(place, interim): (usize, &InterimResponse)| Seen {
        what: interim.status.to_string(),
        ms: interim.ms,
        runs: runs_with(one, &format!("interim[{place}]")),
    };
    one.stream.interim.iter().enumerate().map(seen).collect()
}

/// Whether the forwarded events, of which there is one at least, were in time.
pub(super) fn timing(through: &[Passage]) -> (HopVerdict, String) {
    let is_held = through.iter().any(Passage::is_held_back);
    // The latest of those held back, else the latest of all.
    let rendered = through.iter().filter(|one| one.is_held_back() == is_held);
    let Some(worst) = rendered.max_by(|a, b| a.late_ms().total_cmp(&b.late_ms())) else {
        return (HopVerdict::None, String::new());
    };
    let rest = worst.lead_ms.map_or_else(
        || "no response followed it there".to_owned(),
        |lead| format!("it was {lead:.1} ms ahead of the response there"),
    );
    let times: Vec<String> = through.iter().map(|one| format!("{:.1}", one.went_ms)).collect();
    let evidence = format!(
        "{} at {} ms, {:.1} ms after the server behind sent it; {rest}",
        worst.what,
        times.join(", "),
        worst.late_ms()
    );
    (if is_held { HopVerdict::HeldBack } else { HopVerdict::Forwarded }, evidence)
}
