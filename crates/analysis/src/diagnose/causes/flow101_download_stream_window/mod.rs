//! FLOW101: the client's stream window is smaller than bandwidth × round trip.

#[cfg(test)]
mod tests;

use super::flow::FLOW101 as META;
use super::views::stopped::{Stopped, large_enough};
use super::views::windows::{DEFAULT_WINDOW, Scope};
use crate::diagnose::{Case, Confidence, Finding, Rule};
use h2lab_base::units::format_bytes;
use h2lab_model::Fix;
use h2lab_model::record::CellRecord;
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise, first, known};
use h2lab_wire::trace::{Direction, FrameKind};

/// The smallest window that is advised: enough for 320 Mbit/s over 100 ms.
const LEAST: u64 = 4 << 20;

/// The rule.
#[derive(Debug)]
pub(super) struct DownloadStreamWindow;

impl Rule for DownloadStreamWindow {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let stopped = Stopped::of(case, Direction::Down, Scope::Stream, false);
        stopped.map(|stopped| finding(case, &stopped)).into_iter().collect()
    }
}

fn finding(case: &Case<'_>, stopped: &Stopped) -> Finding {
    let large = large_enough(stopped.window, LEAST);
    Finding {
        symptom: format!(
            "{}, until credit for its stream had reached the server: the client's stream window lets {} through",
            stopped.symptom(),
            stopped.rate()
        ),
        evidence: stopped.evidence("the stream"),
        // That the server ran out of credit is concluded from the data that arrived and the credit that was granted.
        confidence: Confidence::Inferred,
        fixes: fixes(case, stopped, large),
        confirm: format!(
            "{}: the stops must go, and the rate must follow the window until the link is full",
            case.compare(&format!("-w {large}"))
        ),
        ..case.finding(&META, stopped.time, "without credit for the stream while the server had more to send")
    }
}

/// A larger stream window; and a connection window of the same size, where that would be the next limit to stop the
/// response.
fn fixes(case: &Case<'_>, stopped: &Stopped, large: u64) -> Vec<Fix> {
    let connection = stopped.longest.connection;
    let credit = case.records().map(|record| download_credit(record, connection)).min().unwrap_or(u64::MAX);
    let is_as_small = credit < stopped.window.saturating_mul(2);
    let both = is_as_small.then(|| {
        let fix = fix(Knob::ConnectionWindow, large);
        let why = format!(
            "both together, since the connection window is as small ({}); {}",
            format_bytes(credit),
            fix.why
        );
        Fix { why, ..fix }
    });
    std::iter::once(fix(Knob::StreamWindow, large)).chain(both).collect()
}

/// What the client must announce.
pub(super) fn fix(knob: Knob, bytes: u64) -> Fix {
    let wish = Wish { knob, role: Role::Client, value: Some(bytes) };
    let ours = advise(&Peer::started("h2lab"), wish);
    let elsewhere = known(wish).map_or(String::new(), |known| format!("; elsewhere: {}", first(&known)));
    let why = format!("{} of our client; {}{elsewhere}", knob.words(), ours.why);
    Fix { wish: Some(wish), ..Fix::new("client", &ours.setting, why) }
}

/// The most credit that a connection had for downloads at any time: the client's connection window, from the frames; at
/// least the initial size of every window (RFC 9113 §6.9.2).
fn download_credit(record: &CellRecord, connection: u32) -> u64 {
    let (mut granted, mut taken, mut most) = (DEFAULT_WINDOW, 0_u64, DEFAULT_WINDOW);
    for frame in record.frames.iter().filter(|frame| frame.connection == connection) {
        match (frame.kind, frame.direction) {
            (FrameKind::WINDOW_UPDATE, Direction::Up) if frame.stream.0 == 0 => {
                granted += u64::from(frame.value);
            }
            (FrameKind::DATA, Direction::Down) => taken += u64::from(frame.length),
            _ => {}
        }
        most = most.max(granted.saturating_sub(taken));
    }
    most
}
