//! Step `agents`: many machines over NATS, in network namespaces with a real nats-server.

mod arrivals;
mod bulk;
mod documented;
mod faults;
mod figures;
mod fleet;
mod network;
mod percentiles;
mod raw;
mod refused;
mod rest;
mod strangers;
mod study;

use std::fmt;

use anyhow::Result;

use super::suites::{Tests, suite};
use super::{Item, item};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

/// The promises.
pub fn items() -> Vec<Item> {
    let mut items = vec![
        item(
            "arrivals",
            "three agents at 2,000/s each: arrivals at the origin are one process at 6,000/s (tshark's gaps beside one generator); clocks \
             that differ (time namespaces) change the printed offset only; started within 1 ms + clock error",
            arrivals::arrivals,
        ),
        item(
            "percentiles",
            "merged p50, p99, p99.9 are those of all requests by DuckDB within a histogram's precision at --record full, and p99.9 at tail",
            percentiles::percentiles,
        ),
        item(
            "simulated",
            "in virtual time: 300 agents and 30,000/s are one schedule; agents of which 5 % die: no other is lost, nothing is \
             counted twice",
            simulated,
        ),
        item(
            "study",
            "a study of cells of <= 25 % of a CPU by two agents in <= 0.6 x the time of one, the same verdicts, each comparison on one \
             machine",
            study::study,
        ),
        item(
            "study-killed",
            "an agent killed twice on the way, the driver once (then --resume): the study is whole, no repetition twice",
            study::killed,
        ),
        item(
            "bulk",
            "3 clients x 2 servers over the emulated link, get and put: the sum within 2 % of the receiving device's counters; a client \
             killed: marked lost, the others kept",
            bulk::bulk,
        ),
        item(
            "strangers",
            "TLS and the permissions of docs/agents.md: strangers and other agents can neither command an agent nor read or forge \
             results: tried, refused, logged",
            strangers::strangers,
        ),
        item(
            "refused",
            "a target outside --allow, or more than an agent's bounds: refused with the reason before a packet leaves (tshark)",
            refused::refused,
        ),
    ];
    items.extend(faults::items());
    items.extend([
        item("rest", "three idle agents for a minute: each <= 40 MiB resident and <= 0.5 % of a CPU", rest::rest),
        item(
            "first-load",
            "docs/agents.md as a new user would: from nothing to the first load by three agents in five commands",
            documented::first_load,
        ),
    ]);
    items
}

/// Says what an item does now: its figures are printed when it is over, and that may take minutes.
fn doing(words: impl fmt::Display) {
    println!("    … {words}");
}

/// What takes more agents than there are machines.
fn simulated(h2lab: &H2lab) -> Result<ItemOutcome> {
    let model = ["--package", "h2lab-model", "--lib"];
    doing("tests of the model and of the generator");
    // It prints the table of docs/agents.md, takes a release build, and asserts what the others do.
    let tests = Tests { skip: &["the_scale_table"], ..Tests::from("fleet::many::") };
    let mut outcome = suite(h2lab, &model, tests)?;
    outcome.add(suite(
        h2lab,
        &["--package", "h2lab-roles", "--lib"],
        "three_hundred_shares_send_thirty_thousand",
    )?);
    Ok(outcome)
}
