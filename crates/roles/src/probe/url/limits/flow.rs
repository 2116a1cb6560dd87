//! PINGs, windows and frames: how a server handles the credit that it gives and the credit that it has.

use h2lab_base::units::format_bytes;
use h2lab_model::probe::{Bound, Check, Verdict, id};
use h2lab_model::workload::Protocol;
use h2lab_wire::h2::frame::kind;
use h2lab_wire::h2::raw::frame;

use crate::probe::raw_h2_client::{FIRST_WINDOW, Opening, RawH2Client};
use crate::probe::url::results::UrlResults;
use crate::probe::{Prober, Result};

/// PINGs that are sent, in all and together.
const PINGS: (u64, u64) = (200, 20);
/// Fewer than these are what an ordinary client sends as a keep-alive.
const FEW: u64 = 50;
/// Bytes of the upload: below what most servers take as a body.
const UPLOAD: u64 = 768 * 1024;
/// What we let a frame have: the most there is (RFC 9113 §6.5.2).
const LARGEST_FRAME: u32 = (1 << 24) - 1;

/// How many PINGs are answered, and what becomes of the connection.
pub fn pings(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Check> {
    let mut client = RawH2Client::open(prober, protocol, &Opening::default())?;
    let (most, together) = PINGS;
    let mut sent = 0;
    while sent < most && client.ended().is_none() {
        let burst: Vec<u8> =
            (sent..sent + together).flat_map(|n| frame(kind::PING, 0, 0, &n.to_be_bytes())).collect();
        client.send(prober, &burst)?;
        sent += together;
        if !client.until(prober.soon(), prober, |client| client.pongs >= sent)? {
            break;
        }
    }
    let pongs = client.pongs;
    // A server that answers nothing else either is slow, and does not just ignore PINGs.
    let is_alive = pongs >= sent || client.ended().is_some() || client.ask(prober, "GET")?.status.is_some();
    let (bound, verdict, summary) = match client.ended() {
        Some(how) => {
            let verdict = if pongs < FEW { Verdict::Fail } else { Verdict::Pass };
            let bound = Bound::between(Some(pongs), Some(sent), "PINGs", how.clone());
            (bound, verdict, format!("{pongs} of {sent} are answered, and then {how}"))
        }
        None if pongs < sent => {
            let bound = Bound::between(Some(pongs), None, "PINGs", "the others were not answered");
            let verdict = if is_alive { Verdict::Fail } else { Verdict::Undecided };
            (bound, verdict, format!("only {pongs} of {sent} are answered in time"))
        }
        None => {
            let bound = Bound::between(Some(pongs), None, "PINGs", "no more were sent");
            (bound, Verdict::Pass, format!("all {sent} are answered"))
        }
    };
    found.limits.pings = Some(bound);
    Ok(Check::new(id::LIMT108, verdict, summary).with("PINGs, 20 at a time", client.ending(6)))
}

/// What an upload shows of windows and credit.
pub fn upload(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Check> {
    let mut client = RawH2Client::open(prober, protocol, &Opening::default())?;
    client.ping(prober)?; // credit for the connection comes right behind SETTINGS
    let first = client.settings.get(&4).map_or(FIRST_WINDOW, |window| i64::from(*window));
    let bytes = |n: i64| u64::try_from(n).unwrap_or_default();
    let exact = |n: i64, how: &str| Some(Bound::exact(bytes(n), "bytes", how));
    found.limits.stream_window = exact(first, "SETTINGS_INITIAL_WINDOW_SIZE");
    found.limits.connection_window = exact(client.window, "65,535 and the first WINDOW_UPDATE");
    let taken = found.limits.request_body.as_ref().and_then(|bound| bound.at_least).unwrap_or(UPLOAD);
    let n = UPLOAD.min(taken).min(prober.budget.bytes_left() / 3);
    let length = n.to_string();
    let stream = client.request(prober, "POST", &[("content-length", &length)], false)?;
    let sent = client.body(prober, stream, n, true)?;
    let answer = client.answer(prober, stream)?;
    let updates = answer.updates.clone();
    let largest = answer.largest;
    found.limits.largest_stream_window =
        Some(Bound::between(Some(bytes(largest)), None, "bytes", "as far as uploaded"));
    let typical = median(updates.clone());
    found.limits.stream_credit = typical.map(|credit| {
        Bound::exact(u64::from(credit), "bytes", format!("median of {} WINDOW_UPDATEs", updates.len()))
    });
    let is_alive = answer.is_over() || answer.status.is_some() || client.ping(prober)?;
    let evidence = |check: Check| check.with(format!("a POST of {n} bytes"), client.ending(12));
    let status = answer.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
    let check = |verdict, summary| Ok(evidence(Check::new(id::LIMT109, verdict, summary)));
    if sent < n && !answer.is_over() && answer.status.is_none() {
        if !is_alive {
            return check(Verdict::Undecided, format!("no response after {}", format_bytes(sent)));
        }
        let summary = format!("no more credit after {} of {}", format_bytes(sent), format_bytes(n));
        return check(Verdict::Fail, summary);
    }
    let Some(typical) = typical else {
        let summary = format!(
            "no credit was needed or returned for {}: the stream window is {}, and {status} was received after {}",
            format_bytes(n),
            format_bytes(bytes(first)),
            format_bytes(sent)
        );
        return check(Verdict::Undecided, summary);
    };
    let every = format!("{} WINDOW_UPDATEs, median {}", updates.len(), format_bytes(u64::from(typical)));
    let tiny = u64::from(typical) < 1_024 && updates.len() > 64;
    let verdict = if tiny { Verdict::Fail } else { Verdict::Pass };
    let (begin, end) = (format_bytes(bytes(first)), format_bytes(bytes(largest)));
    check(verdict, format!("{every}; the stream window starts at {begin} and was at most {end}"))
}

fn median(mut values: Vec<u32>) -> Option<u32> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// The longest DATA frame when any length is allowed.
pub fn frames(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Check> {
    let settings = vec![(2, 0), (4, 8 << 20), (5, LARGEST_FRAME)];
    let mut client = RawH2Client::open(prober, protocol, &Opening { settings, credit: 16 << 20 })?;
    let answer = client.ask(prober, "GET")?;
    let (largest, body) = (u64::from(client.largest_data), answer.received);
    let rendered = format!("{largest} bytes, of a body of {body}; we accept {LARGEST_FRAME}");
    let evidence = |check: Check| check.with("a GET with MAX_FRAME_SIZE=16777215", client.ending(8));
    if body <= 16_384 {
        let summary = format!("the body is too short to decide: {rendered}");
        return Ok(evidence(Check::new(id::LIMT110, Verdict::Undecided, summary)));
    }
    found.limits.data_frame = Some(Bound::between(Some(largest), None, "bytes", rendered.clone()));
    let tiny = largest < 2_048 && body > 65_536;
    let verdict = if tiny { Verdict::Fail } else { Verdict::Pass };
    Ok(evidence(Check::new(id::LIMT110, verdict, rendered)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_nothing_is_nothing() {
        assert_eq!(median(Vec::new()), None);
        assert_eq!(median(vec![3, 1, 2]), Some(2));
    }
}
