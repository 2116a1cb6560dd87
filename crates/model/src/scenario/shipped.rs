//! The scenario files that come with h2lab: each is valid, and measures what its comments say.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Cell, Estimate, Scenario};
use crate::workload::Protocol;

macro_rules! shipped {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../../scenarios/", $name, ".toml")))),*]
    };
}

const ALL: [(&str, &str); 11] = shipped!(
    "compare",
    "h3",
    "keepalive-requests",
    "keepalive-requests-envoy",
    "sidecar-chaos",
    "sidecar-goaway",
    "bbr-vs-cubic",
    "burst-vs-random",
    "connections-knob",
    "long-fat-link",
    "frame-size"
);

/// The file that asks for timelines instead of load; its test is beside its reader, `timeline::study`.
const TIMELINES: &str = "early-push";

fn read(name: &str) -> Scenario {
    let (_, text) = ALL.iter().find(|(known, _)| *known == name).unwrap();
    Scenario::from_toml(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Different cells of a plan, and how long all repetitions take, in minutes.
fn size(plan: &[Cell]) -> (usize, f64) {
    let cells: BTreeSet<u32> = plan.iter().map(|cell| cell.index).collect();
    (cells.len(), Estimate::new(plan).left(Duration::ZERO).as_secs_f64() / 60.0)
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "compares the list with the folder of the repository, which only a test can read"
)]
fn no_file_of_the_folder_is_forgotten() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let files =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let names = ALL.iter().map(|(name, _)| *name).chain([TIMELINES]);
    let known: BTreeSet<String> = names.map(|name| format!("{name}.toml")).collect();
    assert_eq!(files.collect::<BTreeSet<String>>(), known);
}

#[test]
fn every_file_begins_with_its_claim_and_survives_being_written() {
    for (name, text) in ALL {
        let scenario = read(name);
        let first = text.lines().next().and_then(|line| line.strip_prefix("# "));
        assert_eq!(first, Some(scenario.claim.as_str()), "{name}");
        assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario, "{name}");
        assert_eq!(Scenario::of_a_run_to_show(&scenario.to_toml()).unwrap(), scenario, "{name}");
    }
}

#[test]
fn the_study_has_the_seven_topologies_under_nine_conditions() {
    let plan = read("sidecar-chaos").plan();
    let (cells, minutes) = size(&plan);
    // HTTP/2 between two of Debian's nginx is `unsupported`, which the run detects at its start; a plan cannot know.
    let nginx = plan.iter().filter(|cell| cell.parties() == "two nginx-proxy sidecars");
    let unsupported = nginx.filter(|cell| cell.protocol == Protocol::H2c && cell.repetition == 0).count();
    assert_eq!((cells, unsupported), (180, 9));
    assert!((120.0..210.0).contains(&minutes), "{minutes}");
    for parties in [
        "origin",
        "haproxy sidecar, origin",
        "envoy sidecar, origin",
        "two envoy sidecars",
        "two h2lab sidecars",
    ] {
        let here = plan.iter().filter(|cell| cell.parties() == parties && cell.repetition == 0);
        let conditions: BTreeSet<String> = here.map(|cell| format!("{:?}", cell.link)).collect();
        assert_eq!(conditions.len(), 9, "{parties}");
    }
    let protocols = |parties: &str| -> BTreeSet<String> {
        plan.iter().filter(|cell| cell.parties() == parties).map(Cell::label).collect()
    };
    assert_eq!(
        protocols("two envoy sidecars").into_iter().collect::<Vec<_>>(),
        ["h1", "h2 × 1", "h2c × 1", "h2c × 8"]
    );
}

#[test]
fn quick_looks_take_minutes_and_have_fifty_requests_above_their_p99() {
    for (name, cells, most) in [
        ("sidecar-chaos", 78, 10.0),
        ("bbr-vs-cubic", 6, 1.0),
        ("burst-vs-random", 14, 2.0),
        ("connections-knob", 14, 2.0),
    ] {
        let plan = read(name).quickened().unwrap().plan();
        let (found, minutes) = size(&plan);
        assert_eq!(found, cells, "{name}");
        assert!(minutes < most, "{name}: {minutes}");
        for cell in plan {
            let requests = cell.work.arrival.rate().unwrap() * cell.work.phases.measure.as_secs_f64();
            assert!(requests * 0.01 >= 50.0, "{name}: {requests}");
        }
    }
}

#[test]
fn bulk_work_varies_one_factor_at_a_time_and_each_has_tcp_beside_it() {
    for (name, cells, minutes, quick_cells, quick_minutes) in
        [("long-fat-link", 40, 75.0..90.0, 15, 6.0), ("frame-size", 33, 5.0..10.0, 15, 2.0)]
    {
        let scenario = read(name);
        let (whole, quick) = (scenario.plan(), scenario.quickened().unwrap().plan());
        let (found, takes) = size(&whole);
        assert!(found == cells && minutes.contains(&takes), "{name}: {found} cells, {takes} minutes");
        let (found, takes) = size(&quick);
        assert!(found == quick_cells && takes < quick_minutes, "{name}: {found} cells, {takes} minutes");
        for plan in [whole, quick] {
            let conditions = |plan: &[Cell]| -> BTreeSet<String> {
                let rendered =
                    |cell: &Cell| format!("{:?} {:?} {:?}", cell.link, cell.congestion, cell.sysctls);
                plan.iter().map(rendered).collect()
            };
            let tcp: Vec<Cell> = plan.iter().filter(|cell| cell.protocol == Protocol::Tcp).cloned().collect();
            assert_eq!(conditions(&plan), conditions(&tcp), "{name}");
            assert!(plan.iter().all(|cell| cell.work.bulk && cell.work.phases.drain.is_zero()), "{name}");
        }
    }
}

#[test]
fn the_queue_of_the_long_fat_link_holds_what_is_on_the_way() {
    for cell in read("long-fat-link").plan() {
        let impairment = &cell.link.as_ref().unwrap().downlink;
        let rtt = (impairment.delay * 2).as_secs_f64();
        let product = impairment.bandwidth.unwrap().bits_per_second() as f64 / 8.0 * rtt;
        assert!(impairment.queue_bytes.unwrap() as f64 >= product, "{impairment}");
    }
}
