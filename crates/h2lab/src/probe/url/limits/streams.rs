//! How many streams a server really serves at a time.

use std::time::Duration;

use h2lab_core::probe::{Bound, Check, Exhibit, Verdict, id};
use h2lab_core::units::Time;
use h2lab_core::wire::h2::frame::kind;
use h2lab_core::workload::Protocol;

use super::super::Found;
use crate::probe::talk::{Opening, Stream, Talk, settings};
use crate::probe::{ProbeError, Prober};

/// Streams that are opened at most: above what most servers announce.
const MOST: u64 = 1_030;
/// Requests that are left for the checks that follow.
const RESERVE: u64 = 4;
/// How long a server may take to refuse what is too much, once it answers a PING that was sent behind it.
const SETTLE: Duration = Duration::from_millis(200);

/// What became of streams that were held open together.
struct Held {
    served: u64,
    refused: u64,
    /// Responses that have no body, so that nothing holds their streams open.
    early: u64,
    ended: Option<String>,
    exhibits: Vec<Exhibit>,
}

/// As many streams as the server announces are opened, and, on another connection, one more: some end the connection for that.
pub fn look(prober: &mut Prober, protocol: Protocol, found: &mut Found) -> Result<Check, ProbeError> {
    let announced = found.limits.concurrent_streams_advertised.as_ref().and_then(|bound| bound.value);
    // A connection that ends before that says nothing of it.
    let quota = found.limits.requests_per_connection.as_ref().and_then(|bound| bound.value);
    let room = prober.budget().requests_left().saturating_sub(RESERVE).min(MOST).min(quota.unwrap_or(MOST));
    let wanted = announced.map_or(room, |n| n.min(room));
    let mut held = hold(prober, protocol, wanted)?;
    let mut tried = wanted;
    let has_room = prober.budget().requests_left() > wanted + RESERVE && wanted < quota.unwrap_or(MOST);
    if announced == Some(held.served) && held.served == wanted && has_room {
        held = hold(prober, protocol, wanted + 1)?;
        tried = wanted + 1;
        if held.refused > 0 || held.ended.is_some() {
            // What else that costs does not matter: as many as announced were served before.
            held.served = held.served.max(wanted);
        }
    }
    let Held { served, refused, early, ended, exhibits } = held;
    if early > 0 {
        let summary = format!(
            "{early} responses have no body, so that their streams end at once; give a path with one"
        );
        return Ok(Check::new(id::LIMT104, Verdict::Undecided, summary));
    }
    let (bound, check) = conclude(announced, tried, served, refused, ended);
    found.limits.concurrent_streams = Some(bound);
    Ok(check.with("streams that are held open by a closed window", exhibits))
}

/// Opens `wanted` streams on a connection. None of them can end while the window that we give the server is closed, if its
/// responses have a body; then it is opened.
fn hold(prober: &mut Prober, protocol: Protocol, wanted: u64) -> Result<Held, ProbeError> {
    let opening = Opening { settings: vec![(2, 0), (4, 0)], credit: 16 << 20 };
    let mut talk = Talk::open(prober, protocol, &opening)?;
    talk.ping(prober)?; // our settings are in effect when it is answered
    let path = prober.host.path.clone();
    for n in 0..wanted {
        talk.request(prober, "GET", &path, &[], true)?;
        if n % 32 == 31 {
            talk.pump(prober, Time::ZERO)?;
        }
        if talk.ended().is_some() {
            break;
        }
    }
    talk.ping(prober)?;
    let until = prober.now() + SETTLE;
    talk.until(prober, until, |talk| {
        talk.streams.values().all(|stream| stream.status.is_some() || stream.is_over())
    })?;
    let early = talk.streams.values().filter(|stream| stream.ended).count() as u64;
    let refused = talk.streams.values().filter(|stream| stream.reset.is_some()).count() as u64;
    // Now they may end.
    talk.frame(prober, kind::SETTINGS, 0, 0, &settings(&[(4, 1 << 20)]))?;
    let until = prober.soon();
    talk.until(prober, until, |talk| talk.streams.values().all(Stream::is_over))?;
    let served = talk.streams.values().filter(|stream| stream.ended).count() as u64;
    Ok(Held { served, refused, early, ended: talk.ended(), exhibits: talk.ending(8) })
}

fn conclude(
    announced: Option<u64>,
    wanted: u64,
    served: u64,
    refused: u64,
    ended: Option<String>,
) -> (Bound, Check) {
    let told = announced.map_or_else(|| "no limit".to_owned(), |n| n.to_string());
    let at_least = |why: String| Bound::between(Some(served), None, "streams", why);
    let pass = |summary: String| Check::new(id::LIMT104, Verdict::Pass, summary);
    let fail = |summary: String| Check::new(id::LIMT104, Verdict::Fail, summary);
    match announced {
        Some(n) if served == n && (refused > 0 || ended.is_some()) => {
            let summary = format!("{served} at a time, as announced, and one more is refused");
            (Bound::exact(served, "streams", "one more was refused"), pass(summary))
        }
        Some(n) if served > n => {
            let summary =
                format!("{served} at a time although {n} are announced: nothing holds clients to it");
            (at_least("more than announced".to_owned()), pass(summary))
        }
        _ if served < wanted && (refused > 0 || ended.is_some()) => {
            let why = ended.unwrap_or_else(|| format!("{refused} were refused"));
            let summary =
                format!("only {served} of {wanted} at a time are served, where {told} is announced: {why}");
            (Bound::exact(served, "streams", why), fail(summary))
        }
        _ if served < wanted => {
            let summary = format!("only {served} of {wanted} at a time were answered in time");
            (at_least("the others were not answered in time".to_owned()), fail(summary))
        }
        _ => {
            let summary = format!("{served} at a time; {told} announced");
            (at_least("no more were opened within the budget".to_owned()), pass(summary))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_announced_and_what_is_served_are_compared() {
        let verdict = |announced, wanted, served, refused| {
            let (bound, check) = conclude(announced, wanted, served, refused, None);
            (bound.value, bound.at_least, check.verdict)
        };
        assert_eq!(verdict(Some(128), 129, 128, 1), (Some(128), Some(128), Verdict::Pass));
        assert_eq!(verdict(Some(128), 129, 129, 0), (None, Some(129), Verdict::Pass));
        assert_eq!(verdict(Some(128), 129, 100, 29), (Some(100), Some(100), Verdict::Fail));
        assert_eq!(verdict(Some(1_000), 70, 70, 0), (None, Some(70), Verdict::Pass));
        assert_eq!(verdict(None, 70, 60, 0), (None, Some(60), Verdict::Fail));
    }
}
