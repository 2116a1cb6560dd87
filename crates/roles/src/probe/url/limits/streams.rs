//! How many streams a server really serves at a time.

use h2lab_base::units::Time;
use h2lab_model::probe::server::{Held, concurrency};
use h2lab_model::probe::{Check, EvidenceItem};
use h2lab_model::workload::Protocol;
use h2lab_wire::h2::frame::kind;
use h2lab_wire::h2::raw::frame;

use crate::probe::raw_h2_client::{Opening, RawH2Client, RawStream};
use crate::probe::url::results::UrlResults;
use crate::probe::{Prober, Result};

/// Streams that are opened at most: above what most servers announce.
const MOST: u64 = 1_030;
/// How many PINGs to send to a server that holds back response heads, to make it flush them.
const PINGS: u32 = 8;
/// Requests that are left for the checks that follow.
const RESERVE: u64 = 4;

/// As many streams as the server announces are opened, and, on another connection, one more: some end the connection for that.
pub fn look(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Check> {
    let announced = found.limits.concurrent_streams_advertised.as_ref().and_then(|bound| bound.value);
    // A connection that ends before that says nothing of it.
    let quota = found.limits.requests_per_connection.as_ref().and_then(|bound| bound.value);
    let left = prober.budget.requests_left().saturating_sub(RESERVE);
    let range = quota.unwrap_or(MOST).min(MOST);
    let room = left.min(range);
    let wanted = announced.map_or(room, |n| n.min(room));
    let (mut held, mut items) = hold(prober, protocol, wanted)?;
    let has_room = prober.budget.requests_left() > wanted + RESERVE && wanted < range;
    if announced == Some(held.served) && held.served == wanted && has_room {
        let one_more;
        (one_more, items) = hold(prober, protocol, wanted + 1)?;
        // What else one more costs does not matter: as many as announced were served before.
        held = Held { served: one_more.served.max(held.served), ..one_more };
    }
    let stopped = match quota {
        Some(n) if n <= left => format!("a connection ends after {n} requests"),
        _ => prober.budget.remedy().to_owned(),
    };
    let (bound, check) = concurrency(announced, &held, MOST, Some(&stopped));
    if bound.is_some() {
        found.limits.concurrent_streams = bound;
    }
    Ok(check.with("streams that are held open by a closed window", items))
}

/// Opens `wanted` streams on a connection. None of them can end while the window that we give the server is closed, if
/// its responses have a body. So those whose head arrives are served at the same time.
fn hold(prober: &mut Prober, protocol: Protocol, wanted: u64) -> Result<(Held, Vec<EvidenceItem>)> {
    let opening = Opening { settings: vec![(2, 0), (4, 0)], credit: 16 << 20 };
    let mut client = RawH2Client::open(prober, protocol, &opening)?;
    client.ping(prober)?; // our settings are in effect when it is answered
    let mut tried = 0;
    while tried < wanted && client.ended().is_none() {
        client.request(prober, "GET", &[], true)?;
        tried += 1;
        if tried % 32 == 0 {
            client.pump(prober, Time::ZERO)?;
        }
    }
    let has_all = |client: &RawH2Client| client.streams.values().all(RawStream::is_settled);
    // nginx keeps small heads in its buffer of TLS until something else must go: an answer to a PING.
    for _ in 0..PINGS {
        if has_all(&client) || client.line.over.is_some() {
            break;
        }
        client.send(prober, &frame(kind::PING, 0, 0, b"h2labpng"))?;
        client.until(prober.now() + prober.timeout / PINGS, prober, has_all)?;
    }
    let count =
        |is: fn(&RawStream) -> bool| client.streams.values().filter(|stream| is(stream)).count() as u64;
    let held = Held {
        tried,
        served: count(|stream| stream.status.is_some() && stream.reset.is_none()),
        refused: count(|stream| stream.reset.is_some()),
        early: count(|stream| stream.ended),
        ended: client.ended(),
    };
    Ok((held, client.ending(8)))
}
