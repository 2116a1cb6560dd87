//! LIMIT104: uploads are ended at one age, although their bytes flow.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::limit::LIMIT104 as META;
use super::views::ends::ONE_MOMENT;
use super::views::failed::Failed;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::units::{Time, format_bytes, measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, Outcome, Sample};
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

/// At least this many uploads must have been ended: two ages may be alike by chance.
const LEAST: usize = 3;
/// Nobody would set a shorter timeout: products count it in seconds.
const SHORTEST: Duration = Duration::from_secs(1);
/// The ages may differ by this part of the shortest.
const ALIKE: f64 = 0.1;
/// An upload without a byte in this last part of its age had stopped: a timeout between two reads may have ended it.
const STILL: f64 = 0.1;
/// "Request Timeout" (RFC 9110 §15.5.9): the request did not arrive completely in time.
const REQUEST_TIMEOUT: u16 = 408;
/// "Content Too Large" (RFC 9110 §15.5.14).
const TOO_LARGE: u16 = 413;

/// The rule.
#[derive(Debug)]
pub(super) struct BodyTimeout;

impl Rule for BodyTimeout {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let uploads: Vec<Uploads> = case.repetitions.iter().map(Uploads::of).collect();
        let cut = || uploads.iter().flat_map(|of_one| &of_one.cut);
        let ages = || cut().map(Cut::age);
        let Some(ended) = Failed::of(case, cut().map(|upload| upload.sample)) else { return Vec::new() };
        let (Some(shortest), Some(longest)) = (ages().min(), ages().max()) else { return Vec::new() };
        let is_one_age = longest <= shortest + shortest.mul_f64(ALIKE);
        let is_outlived = uploads.iter().any(|of_one| of_one.longest_whole > longest);
        if ages().count() < LEAST || !is_one_age || is_outlived || is_one_moment(&uploads, case) {
            return Vec::new();
        }
        let bytes = || cut().filter_map(|upload| upload.bytes);
        let sent = bytes().min().zip(bytes().max());
        let how = sent.map_or("with 408 Request Timeout".to_owned(), |(least, most)| {
            let [least, most] = [least, most].map(format_bytes);
            format!("with {least} to {most} of their bodies sent and more on the way")
        });
        let mut evidence = vec![
            ended.evidence("uploads that the server ended"),
            Evidence::new("the age of the youngest", millis_f64(shortest), "ms"),
            Evidence::new("the age of the oldest", millis_f64(longest), "ms"),
        ];
        if let Some((least, most)) = sent {
            evidence.push(Evidence::new("bytes sent of the smallest", least as f64, "bytes"));
            evidence.push(Evidence::new("bytes sent of the largest", most as f64, "bytes"));
        }
        let least = sent.map_or(case.cell().work.body_length(), |(least, _)| least);
        vec![Finding {
            symptom: format!(
                "the server ended {} at an age of {} to {}, {how}",
                ended.of_all(),
                measured_time(shortest),
                measured_time(longest)
            ),
            evidence,
            cost: ended.of_all() + " failed",
            confidence: Confidence::Inferred,
            fixes: vec![Fix::new(
                "server",
                "a longer timeout for the body, or a least rate in its place",
                "Traefik: `respondingTimeouts.readTimeout` of the entry point; Apache: `RequestReadTimeout` with MinRate; a \
                 timeout between two reads (nginx `client_body_timeout`) does not end what makes progress",
            )],
            confirm: case.compare(&format!("--body-bytes {}", least / 2))
                + ": bodies that are sent in half the time are not ended",
            of_failures: true,
            ..case.finding_of_share(&META, ended.share())
        }]
    }
}

/// Whether the ends may be one event, which ends all uploads that began together at one age.
fn is_one_moment(uploads: &[Uploads], case: &Case<'_>) -> bool {
    let rtt = case.repetitions.iter().map(|one| one.facts().rtt).max().unwrap_or_default();
    let apart = uploads.iter().map(Uploads::ends_apart).max().unwrap_or_default();
    uploads.iter().filter(|of_one| !of_one.cut.is_empty()).count() < 2 && apart <= ONE_MOMENT.max(rtt)
}

/// An upload that the server ended while its bytes flowed.
#[derive(Debug)]
struct Cut {
    sample: Sample,
    /// Bytes of the body that were sent; `None` where no frames show it.
    bytes: Option<u64>,
}

impl Cut {
    const fn age(&self) -> Duration {
        self.sample.service_time()
    }
}

/// What was sent of a body.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    bytes: u64,
    last: Time,
    /// Whether that is all of it.
    is_whole: bool,
}

/// The uploads of a repetition.
#[derive(Debug, Default)]
struct Uploads {
    cut: Vec<Cut>,
    /// The longest time in which a body was sent completely; without frames, until its answer began.
    longest_whole: Duration,
}

impl Uploads {
    /// The time from the first end to the last.
    fn ends_apart(&self) -> Duration {
        let ends = || self.cut.iter().map(|cut| cut.sample.completed_at);
        ends().max().unwrap_or_default().since(ends().min().unwrap_or_default())
    }

    fn of(repetition: &Repetition<'_>) -> Self {
        let record = repetition.record;
        let mut uploads = Self::default();
        if !record.samples.iter().any(|sample| may_be_cut(&sample)) {
            return uploads;
        }
        let ends = repetition.facts().ends.iter().map(|end| (end.connection, end.age));
        let ends: BTreeMap<u32, Duration> = ends.collect();
        let sent = sent(record);
        let is_unseen = sent.is_empty() && record.cell.work.has_bodies();
        for sample in &record.samples {
            if is_unseen {
                uploads.add_unseen(sample);
            } else if let Some(body) = sent.get(&(sample.connection, sample.stream.0)) {
                uploads.add(sample, body, ends.get(&sample.connection).copied());
            }
        }
        uploads
    }

    /// Adds an upload of which frames show how much was sent; `connection` is the age at which the server ended its
    /// connection, if it did.
    fn add(&mut self, sample: Sample, body: &Sent, connection: Option<Duration>) {
        if body.is_whole {
            self.longest_whole = self.longest_whole.max(body.last.since(sample.sent_at));
            return;
        }
        let age = sample.service_time();
        let is_flowing = sample.completed_at.since(body.last) <= age.mul_f64(STILL);
        // The maximum age of a connection ends an upload that is as old (CONN105).
        let is_of_connection = connection.is_some_and(|whole| whole <= age.mul_f64(1.0 + ALIKE));
        if may_be_cut(&sample) && is_flowing && !is_of_connection {
            self.cut.push(Cut { sample, bytes: Some(body.bytes) });
        }
    }

    /// Adds an upload of which no frames are known: only the status says that its body did not arrive in time.
    fn add_unseen(&mut self, sample: Sample) {
        let is_timeout = sample.outcome == Outcome::Status && sample.status == REQUEST_TIMEOUT;
        if is_timeout && may_be_cut(&sample) {
            self.cut.push(Cut { sample, bytes: None });
        } else if sample.outcome == Outcome::Succeeded {
            self.longest_whole = self.longest_whole.max(sample.time_to_first_byte().unwrap_or_default());
        }
    }
}

/// Whether the server ended the request: by a reset, with its connection, or by an error other than one about the size.
fn may_be_cut(sample: &Sample) -> bool {
    let is_ended = match sample.outcome {
        Outcome::Reset | Outcome::GoAway | Outcome::Closed => true,
        Outcome::Status => sample.status != TOO_LARGE,
        _ => false,
    };
    is_ended && sample.sent_at.happened() && sample.service_time() >= SHORTEST
}

/// The bodies of requests, by connection and stream; empty if frames were not recorded, or are not of HTTP/2.
fn sent(record: &CellRecord) -> BTreeMap<(u32, u32), Sent> {
    let protocol = record.cell.protocol;
    if !protocol.is_multiplexed() || protocol.is_quic() {
        return BTreeMap::new();
    }
    let mut sent: BTreeMap<(u32, u32), Sent> = BTreeMap::new();
    let is_body = |frame: &&FrameEvent| frame.direction == Direction::Up && frame.kind == FrameKind::DATA;
    for frame in record.frames.iter().filter(is_body) {
        let body = sent.entry((frame.connection, frame.stream.0)).or_default();
        body.bytes += u64::from(frame.length);
        body.last = frame.at;
        body.is_whole |= frame.ends_stream();
    }
    sent
}
