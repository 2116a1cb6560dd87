//! LIMIT103: the fields of requests exceed a limit of the server.

#[cfg(test)]
mod tests;

use super::limit::LIMIT103 as META;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::format_bytes;
use h2lab_model::record::{CellRecord, ConnectionRecord, Outcome, Sample};
use h2lab_model::settings::{Knob, Role, Wish, advise};
use h2lab_wire::ErrorCode;
use h2lab_wire::h2::setting;

/// "Request Header Fields Too Large" (RFC 6585 §5).
const TOO_LARGE: u16 = 431;
/// Fields with fewer bytes are within the limits of all known servers.
const LARGE: u64 = 7 * 1024;
/// At least this many requests must have failed, and the next as a share of all.
const LEAST: usize = 2;
const LEAST_SHARE: f64 = 0.001;
/// A size that can be configured in most products.
const ENOUGH: u64 = 65_536;
/// Codes with which servers end a stream or a connection whose fields are too large.
const CODES: [ErrorCode; 5] = [
    ErrorCode::ENHANCE_YOUR_CALM,
    ErrorCode::PROTOCOL_ERROR,
    ErrorCode::REFUSED_STREAM,
    ErrorCode::COMPRESSION_ERROR,
    ErrorCode::INTERNAL_ERROR,
];

/// The rule.
#[derive(Debug)]
pub(super) struct HeaderBlockTooLarge;

impl Rule for HeaderBlockTooLarge {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let bytes = case.connections().map(bytes_of_fields).max().unwrap_or_default();
        let bound = case.connections().filter_map(announced).min();
        let is_large = bytes >= LARGE || bound.is_some_and(|bound| bytes > bound);
        let (mut said, mut cut, mut all) = (0_usize, 0_usize, 0_usize);
        for record in case.records() {
            for sample in &record.samples {
                all += 1;
                said += usize::from(sample.status == TOO_LARGE);
                cut += usize::from(is_large && is_cut(record, &sample));
            }
        }
        let (failed, share) = (said + cut, (said + cut) as f64 / all.max(1) as f64);
        if failed < LEAST || share < LEAST_SHARE {
            return Vec::new();
        }
        let how = if said >= cut { "with 431".to_owned() } else { "with RST_STREAM or GOAWAY".to_owned() };
        let bound = bound.filter(|bound| bytes > *bound);
        let announced = bound
            .map_or(String::new(), |bound| format!(", above the {} that it announced", format_bytes(bound)));
        let mut evidence = vec![
            Evidence::new("bytes of fields of a request", bytes as f64, "bytes"),
            Evidence::new("requests answered with 431", said as f64, "requests"),
            Evidence::new("requests ended by RST_STREAM or GOAWAY", cut as f64, "requests"),
        ];
        evidence.extend(
            bound.map(|bound| Evidence::new("bytes that the server announced", bound as f64, "bytes")),
        );
        vec![Finding {
            symptom: format!(
                "the server ended {} {how}: their fields have {}{announced}",
                plural(failed as u64, "request"),
                format_bytes(bytes)
            ),
            evidence,
            cost: format!("{} of {} failed", count(failed as u64), plural(all as u64, "request")),
            confidence: if said > 0 { Confidence::Observed } else { Confidence::Inferred },
            fixes: vec![advise(
                &case.peer(),
                Wish { knob: Knob::HeaderSize, role: Role::Front, value: Some(ENOUGH.max(2 * bytes)) },
            )],
            confirm: "run the same cell with smaller fields: no request fails; `h2lab probe` finds the limit (LIMT106)".to_owned(),
            of_failures: true,
            ..case.finding_of_share(&META, share)
        }]
    }
}

/// Whether the server ended the request in one of the ways in which servers react to fields that are too large. If a
/// GOAWAY does not mark the request as unprocessed, as with Tomcat, the request ends with the connection, and only the
/// GOAWAY has the code.
fn is_cut(record: &CellRecord, sample: &Sample) -> bool {
    let is_one = |code: u32| CODES.iter().any(|known| known.0 == code);
    let is_ended = match sample.outcome {
        Outcome::Reset | Outcome::GoAway | Outcome::Refused => is_one(sample.code),
        Outcome::Closed => {
            let goaways = record.connection(sample.connection).map_or(&[][..], |one| &one.goaways[..]);
            goaways.iter().any(|goaway| is_one(goaway.code) && goaway.at >= sample.sent_at)
        }
        _ => false,
    };
    is_ended && !sample.first_byte_at.happened()
}

/// Bytes of the fields of a request as text.
fn bytes_of_fields(connection: &ConnectionRecord) -> u64 {
    let counters = &connection.counters;
    counters.headers_plain / counters.requests.max(1)
}

fn announced(connection: &ConnectionRecord) -> Option<u64> {
    let settings = connection.http.settings_remote.iter();
    settings.clone().find(|(id, _)| *id == setting::MAX_HEADER_LIST_SIZE).map(|(_, value)| u64::from(*value))
}
