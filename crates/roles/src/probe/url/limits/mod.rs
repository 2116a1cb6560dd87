//! Where a server's limits are: found by searching, within the budget.

mod flow;
mod idle;
mod quota;
mod sizes;
mod streams;

use std::time::Duration;

use h2lab_model::probe::id;

use super::{Found, decided};
use crate::probe::{ProbeError, Prober};

/// Looks for all of them; `idle` bounds how long an idle connection is watched.
pub fn look(
    prober: &mut Prober,
    idle: Duration,
    found: &mut Found,
    notify: &mut dyn FnMut(&str),
) -> Result<(), ProbeError> {
    notify("how many requests on a connection");
    if let Some(protocol) = found.h1 {
        let check = quota::http1(prober, protocol, found);
        found.add(decided(id::LIMT101, check)?.of(protocol.to_string()));
    }
    if let Some(protocol) = found.h2 {
        quota::http2(prober, protocol, found)?;
        let check = flow::pings(prober, protocol, found);
        found.add(decided(id::LIMT108, check)?);
        let check = flow::frames(prober, protocol, found);
        found.add(decided(id::LIMT110, check)?);
        notify("how large heads and bodies may be");
        let check = sizes::field(prober, protocol, found);
        found.add(decided(id::LIMT106, check)?.of("one field"));
        let check = sizes::block(prober, protocol, found);
        found.add(decided(id::LIMT106, check)?.of("many fields"));
        let check = sizes::body(prober, protocol, found);
        found.add(decided(id::LIMT107, check)?);
        let check = flow::upload(prober, protocol, found);
        found.add(decided(id::LIMT109, check)?);
        notify("how many streams at a time");
        let check = streams::look(prober, protocol, found);
        found.add(decided(id::LIMT104, check)?);
    }
    notify("how long a connection may be idle");
    idle::look(prober, idle, found)
}

#[cfg(test)]
mod tests;
