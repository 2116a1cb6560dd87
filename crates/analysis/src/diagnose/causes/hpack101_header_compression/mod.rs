//! HPACK101: the fields of every request are sent in full, and take time on the link.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::hpack::HPACK101 as META;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::units::{Time, format_bytes, measured_time};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, ConnectionRecord};
use h2lab_model::settings::{Knob, Role, Wish, advise};
use h2lab_wire::h2::setting;
use h2lab_wire::trace::{Direction, FrameKind};

/// `SETTINGS_HEADER_TABLE_SIZE` if it is not announced (RFC 9113 §6.5.2).
const DEFAULT_TABLE: u64 = 4_096;
/// With fewer requests on a connection, the first one, which fills the table, is too large a part.
const LEAST_REQUESTS: u64 = 10;
/// Field blocks above this share of the fields' text are hardly compressed: the Huffman code alone saves a quarter.
const HARDLY: f64 = 0.5;
/// The largest share of that text in field blocks if the table holds most of the fields.
const USUAL: f64 = 0.1;
/// What entries take in the table besides their text (RFC 7541 §4.1), for the number of fields that requests usually
/// have at most.
const OVERHEAD: u64 = 32 * 16;
/// Larger tables cost memory for every connection, and encoders use no more.
const LARGEST_TABLE: u64 = 65_536;
/// The header of a frame (RFC 9113 §4.1).
const FRAME_HEADER: u64 = 9;

/// The rule.
#[derive(Debug)]
pub(super) struct HeaderCompression;

impl Rule for HeaderCompression {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let protocol = case.cell().protocol;
        if protocol.is_quic() || !protocol.is_multiplexed() {
            return Vec::new();
        }
        let cost = case.records().map(cost).sum::<Duration>().min(case.response_time());
        let Some(fields) = Fields::of(case).filter(|_| case.is_worth_time(cost)) else { return Vec::new() };
        vec![finding(case, &fields, cost)]
    }
}

/// Whether a connection carried enough requests, and their fields were hardly compressed.
fn is_plain(connection: &ConnectionRecord) -> bool {
    let counters = &connection.counters;
    counters.requests >= LEAST_REQUESTS
        && counters.headers_sent as f64 > counters.headers_plain as f64 * HARDLY
}

/// What is known of the fields, over the connections on which they are hardly compressed.
#[derive(Debug, Clone, Copy)]
struct Fields {
    /// Bytes of their field blocks per request.
    sent: u64,
    /// Bytes of their text per request.
    plain: u64,
    /// Bytes of the server's table; the smallest of them.
    table: u64,
}

impl Fields {
    fn of(case: &Case<'_>) -> Option<Self> {
        let connections = || case.connections().filter(|connection| is_plain(connection));
        let sum = |of: fn(&ConnectionRecord) -> u64| connections().map(of).sum::<u64>();
        let requests = sum(|connection| connection.counters.requests);
        Some(Self {
            table: connections().map(table).min()?,
            sent: sum(|connection| connection.counters.headers_sent) / requests.max(1),
            plain: sum(|connection| connection.counters.headers_plain) / requests.max(1),
        })
    }

    /// Bytes of a table that can hold all of the fields.
    const fn needed(&self) -> u64 {
        self.plain + OVERHEAD
    }
}

/// Bytes of the table that the server allows.
fn table(connection: &ConnectionRecord) -> u64 {
    let announced = connection.http.settings_remote.iter().find(|(id, _)| *id == setting::HEADER_TABLE_SIZE);
    announced.map_or(DEFAULT_TABLE, |(_, bytes)| (*bytes).into())
}

/// Whether the requests come from our own client, which keeps in the table whatever fits unless it was told not to.
fn is_ours(case: &Case<'_>) -> bool {
    case.cell().client.encoder_header_table_size.is_none()
        && case.records().all(|record| !record.is_of_packets())
}

/// How much longer requests took to reach the server than with field blocks of the usual length, over an uplink of
/// known capacity: each frame is sent after those before it, on whatever connection.
fn cost(record: &CellRecord) -> Duration {
    let Some(rate) = record.cell.link.as_ref().and_then(|link| link.uplink.bandwidth) else {
        return Duration::ZERO;
    };
    let lean: BTreeMap<u32, f64> = record
        .connections
        .iter()
        .filter(|connection| is_plain(connection))
        .map(|connection| {
            let counters = &connection.counters;
            (connection.index, counters.headers_plain as f64 * USUAL / counters.headers_sent as f64)
        })
        .collect();
    if lean.is_empty() {
        return Duration::ZERO;
    }
    let [mut as_sent, mut as_usual] = [Time::ZERO; 2];
    let mut cost = Duration::ZERO;
    for frame in record.frames.iter().filter(|frame| frame.direction == Direction::Up) {
        let is_block = matches!(frame.kind, FrameKind::HEADERS | FrameKind::CONTINUATION);
        let part = lean.get(&frame.connection).filter(|_| is_block).copied().unwrap_or(1.0);
        let usual = (f64::from(frame.length) * part) as u64;
        as_sent = as_sent.max(frame.at) + rate.transmission_time(u64::from(frame.length) + FRAME_HEADER);
        as_usual = as_usual.max(frame.at) + rate.transmission_time(usual + FRAME_HEADER);
        if frame.kind == FrameKind::HEADERS {
            cost += as_sent.since(as_usual);
        }
    }
    cost
}

fn finding(case: &Case<'_>, fields: &Fields, cost: Duration) -> Finding {
    let Fields { sent, plain, table } = *fields;
    let each = cost / u32::try_from(case.samples().count()).unwrap_or(u32::MAX).max(1);
    let table_too_small = table < fields.needed();
    let why = if table_too_small {
        format!("the server's table of {} does not hold them", format_bytes(table))
    } else {
        let why =
            if is_ours(case) { ", so they change" } else { ": they change, or the client does not use it" };
        format!("the server's table of {} would hold them{why}", format_bytes(table))
    };
    let larger = fields.needed().next_power_of_two().clamp(DEFAULT_TABLE, LARGEST_TABLE);
    let wish = Wish { knob: Knob::HeaderTableSize, role: Role::Front, value: Some(larger) };
    let stable = Fix::new(
        "client",
        "fewer fields, and values that do not change with every request",
        "a field that is in the table takes a byte or two",
    );
    let encoder = Fix::new(
        "client",
        "an encoder that uses the server's table: its limit is not 0, and it keeps cookies and tokens",
        "fields that stay the same then take a byte or two",
    );
    let by_client = (!table_too_small && !is_ours(case)).then_some(encoder);
    let by_server = (table_too_small && larger > table).then(|| advise(&case.peer(), wish));
    Finding {
        symptom: format!(
            "every request sends {} for {} of fields, {} on the uplink on average: {why}",
            format_bytes(sent),
            format_bytes(plain),
            measured_time(each)
        ),
        evidence: vec![
            Evidence::new("bytes of header blocks in a request", sent as f64, "bytes"),
            Evidence::new("bytes of its fields as text", plain as f64, "bytes"),
            Evidence::new("bytes of the table that the server allows", table as f64, "bytes"),
        ],
        confidence: if table_too_small { Confidence::Observed } else { Confidence::Inferred },
        fixes: by_server.into_iter().chain(by_client).chain([stable]).collect(),
        confirm:
            "run the same cell with --shape bare and without -H: requests are as quick as the path allows"
                .to_owned(),
        ..case.finding(&META, cost, "on the uplink by fields that were sent before")
    }
}
