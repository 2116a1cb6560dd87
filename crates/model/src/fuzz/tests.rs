//! Every target on seeded mutations. The counts take about ten seconds each in the test profile; ten minutes each
//! under cargo-fuzz, and the bugs planted to prove the targets, are recorded in `results/`.

use super::{Mutator, TARGETS, target};

/// Reports the input that made a target panic.
struct Reporting<'a>(&'a [u8]);

impl Drop for Reporting<'_> {
    #[allow(clippy::print_stderr, reason = "whoever mends the bug needs the input")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was b\"{}\"", self.0.escape_ascii());
        }
    }
}

/// Runs a target on its seeds and on this many mutations of them.
fn run(name: &str, inputs: usize) {
    let target = target(name);
    let run = |input: &[u8]| {
        let _reporting = Reporting(input);
        (target.run)(input);
    };
    let seeds = (target.seeds)();
    for seed in &seeds {
        run(seed);
    }
    let mut mutator = Mutator::new(seeds, 1);
    for _ in 0..inputs {
        run(&mutator.next_input());
    }
}

#[test]
fn frames_are_understood_or_refused() {
    run("frames", 6_000_000);
}

#[test]
fn field_blocks_decode_or_are_refused() {
    run("hpack", 1_500_000);
}

#[test]
fn heads_parse_or_are_refused() {
    run("h1_head", 3_000_000);
}

#[test]
fn bodies_decode_alike_however_they_are_cut() {
    run("h1_body", 7_000_000);
}

#[test]
fn a_server_survives_any_client() {
    run("server", 90_000);
}

#[test]
fn a_client_survives_any_server() {
    run("client", 140_000);
}

#[test]
fn two_engines_never_accuse_each_other() {
    run("pair", 7_000);
}

#[test]
fn what_a_proxy_passes_on_is_the_one_message_that_was_meant() {
    run("proxy", 700_000);
}

#[test]
fn field_sections_decode_or_are_refused() {
    run("qpack", 1_000_000);
}

#[test]
fn http_3_survives_any_peer() {
    run("h3", 1_500_000);
}

#[test]
fn scenario_files_are_read_or_refused() {
    run("scenario", 100_000);
}

#[test]
fn mutations_repeat_with_their_seed_and_differ_without() {
    let inputs = |seed| {
        let mut mutator = Mutator::new((target("frames").seeds)(), seed);
        (0..50).map(|_| mutator.next_input()).collect::<Vec<_>>()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
    assert_eq!(TARGETS.len(), 11);
}
