//! Where a server's limits are: found by searching, within the budget.

mod flow;
mod idle;
mod quota;
mod sizes;
mod streams;

use std::time::Duration;

use h2lab_model::probe::id;

use super::results::{UrlResults, decided};
use crate::probe::{Prober, Result};

/// Looks for all of them; `idle` bounds how long an idle connection is watched.
pub fn look(
    prober: &mut Prober,
    idle: Duration,
    found: &mut UrlResults,
    notify: &mut dyn FnMut(&str),
) -> Result<()> {
    notify("requests per connection");
    if let Some(protocol) = found.h1 {
        let check = quota::http1(prober, protocol, found);
        found.add(decided(id::LIMT101, check)?.of(protocol.to_string()));
    }
    if let Some(protocol) = found.h2 {
        quota::http2(prober, protocol, found)?;
        found.decide(id::LIMT108, |found| flow::pings(prober, protocol, found))?;
        found.decide(id::LIMT110, |found| flow::frames(prober, protocol, found))?;
        notify("maximum sizes of heads and bodies");
        let check = sizes::field(prober, protocol, found);
        found.add(decided(id::LIMT106, check)?.of("one field"));
        let check = sizes::block(prober, protocol, found);
        found.add(decided(id::LIMT106, check)?.of("many fields"));
        found.decide(id::LIMT107, |found| sizes::body(prober, protocol, found))?;
        found.decide(id::LIMT109, |found| flow::upload(prober, protocol, found))?;
        notify("concurrent streams");
        found.decide(id::LIMT104, |found| streams::look(prober, protocol, found))?;
    }
    notify(idle::STEP);
    idle::look(prober, idle, found, notify)
}

#[cfg(test)]
mod tests;
