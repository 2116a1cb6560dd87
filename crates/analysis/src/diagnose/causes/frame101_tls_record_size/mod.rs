//! FRAME101: bodies in TLS records so small that the overhead of each record is a notable part of all bytes.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::frame::FRAME101 as META;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::count;
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::settings::{Knob, Role, Wish, advise};
use h2lab_wire::trace::FrameKind;

/// Plaintext of the longest record (RFC 8446 §5.1), in bytes.
const FULL: u64 = 16_384;
/// What a record adds at least: its header of 5 bytes and a tag of 16 (RFC 8446 §5.2, RFC 7905 §2).
const OVERHEAD: u64 = 21;
/// Headers of IPv4 and of TCP with its timestamps.
const HEADERS: u64 = 52;
/// With fewer records after the first mebibyte, it was no bulk transfer.
const LEAST: u64 = 1_000;
/// A frame that is cut into this many records had been ready as a whole: a stream of small messages has a record for
/// each.
const CUT: f64 = 2.0;
/// A link is the limit if this part of its capacity is used while responses arrive.
const LIMIT: f64 = 0.8;

/// The rule.
#[derive(Debug)]
pub(super) struct TlsRecordSize;

impl Rule for TlsRecordSize {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let is_h2 = case.cell().protocol.is_multiplexed() && !case.cell().protocol.is_quic();
        let seen = case.records().fold(Seen::default(), Seen::and);
        if is_h2 { finding(case, &seen).into_iter().collect() } else { Vec::new() }
    }
}

/// What came from the server, in all repetitions.
#[derive(Debug, Default)]
struct Seen {
    /// Records after the first mebibyte of their connection, and their bytes.
    late: [u64; 2],
    /// All records, and their bytes.
    all: [u64; 2],
    /// DATA frames, and the bytes before encryption.
    frames: [u64; 2],
    segments: u64,
    /// The time in which responses arrived.
    busy: Duration,
}

impl Seen {
    fn and(mut self, record: &CellRecord) -> Self {
        for connection in &record.connections {
            let records = &connection.tls_records;
            let data = connection.counters.frames_received[usize::from(FrameKind::DATA.0)];
            let segments = connection.tcp_client.as_ref().map_or(0, |tcp| tcp.segments_in);
            add(&mut self.late, [records.records, records.bytes]);
            add(
                &mut self.all,
                [records.early_records + records.records, records.early_bytes + records.bytes],
            );
            add(&mut self.frames, [data, connection.bytes_received]);
            self.segments += u64::from(segments);
        }
        self.busy += busy(record);
        self
    }

    /// Bytes in a record after the first mebibyte, on average, without its protection.
    fn length(&self) -> f64 {
        let [records, bytes] = self.late;
        bytes.saturating_sub(records * OVERHEAD) as f64 / records.max(1) as f64
    }

    /// Whether records cut frames.
    fn is_cut(&self) -> bool {
        let [frames, bytes] = self.frames.map(|n| n as f64);
        self.length() * CUT <= bytes / frames.max(1.0)
    }

    /// Bytes that the longest records would save.
    fn more(&self) -> u64 {
        let [records, bytes] = self.all;
        records.saturating_sub(bytes.div_ceil(FULL + OVERHEAD)) * OVERHEAD
    }

    /// Bytes on the wire.
    const fn wire(&self) -> u64 {
        self.all[1] + self.segments * HEADERS
    }

    /// The part of a link's capacity that was used while responses arrived.
    fn used(&self, bits_per_second: u64) -> f64 {
        let could = self.busy.as_secs_f64() * bits_per_second as f64 / 8.0;
        self.wire() as f64 / could.max(1.0)
    }
}

fn add(to: &mut [u64; 2], more: [u64; 2]) {
    to.iter_mut().zip(more).for_each(|(to, more)| *to += more);
}

/// The time in which at least one response arrived.
fn busy(record: &CellRecord) -> Duration {
    let came = record.samples.iter().filter(|sample| sample.first_byte_at.happened());
    let mut spans: Vec<(Time, Time)> =
        came.map(|sample| (sample.first_byte_at, sample.completed_at)).collect();
    spans.sort_unstable();
    let mut until = Time::ZERO;
    let span = |(from, to): (Time, Time)| {
        let new = to.since(from.max(until));
        until = until.max(to);
        new
    };
    spans.into_iter().map(span).sum()
}

fn finding(case: &Case<'_>, seen: &Seen) -> Option<Finding> {
    let share = seen.more() as f64 / seen.wire().max(1) as f64;
    if seen.late[0] < LEAST || !seen.is_cut() || !case.is_worth(share) {
        return None;
    }
    let percent = share * 100.0;
    let wish = Wish { knob: Knob::RecordSize, role: Role::Front, value: Some(FULL) };
    Some(Finding {
        symptom: format!(
            "the server sent bodies in {} TLS records of {:.0} bytes on average: what protects each of them is {percent:.1} % of \
             all bytes",
            count(seen.all[0]),
            seen.length()
        ),
        evidence: vec![
            Evidence::new("TLS records of the server", seen.all[0] as f64, "records"),
            Evidence::new("bytes in a record after the first mebibyte, on average", seen.length(), "bytes"),
            Evidence::new("DATA frames of the server", seen.frames[0] as f64, "frames"),
            Evidence::new("bytes that records of 16 KiB would save", seen.more() as f64, "bytes"),
        ],
        confidence: Confidence::Observed,
        fixes: vec![advise(&case.peer(), wish)],
        confirm: "the same downloads with records of 16 KiB must take fewer bytes, and less time where the link is the limit"
            .to_owned(),
        ..cost(case, seen, share)
    })
}

/// What the overhead costs: time where the link is known to be the limit.
fn cost(case: &Case<'_>, seen: &Seen, share: f64) -> Finding {
    let link = case.cell().link.as_ref().and_then(|link| link.downlink.bandwidth);
    let is_limit = link.is_some_and(|bandwidth| seen.used(bandwidth.bits_per_second()) >= LIMIT);
    let answered = case.samples().filter(|sample| sample.first_byte_at.happened());
    let coming: Duration = answered.map(|sample| sample.completed_at.since(sample.first_byte_at)).sum();
    let time = coming.mul_f64(share);
    if is_limit && case.is_worth_time(time) {
        return case.finding(&META, time, "on the protection of small records, on a link that was full");
    }
    let why =
        if link.is_some() && !is_limit { "the link was not full" } else { "no limit of the link is known" };
    Finding {
        cost: format!(
            "an observation: {:.1} % of the bytes of all responses; {why}, so no response is known to have waited for it",
            share * 100.0
        ),
        explains: Some(0.0),
        ..case.finding_of_share(&META, 0.0)
    }
}
