//! h2spec against the origin and h2specd against our client: the usual conformance suites.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use crate::origin::Origin;
use crate::support::{binary, folder, free_ports, need, run_program};

/// Seconds for an answer, in both suites: a busy machine may take the 2 that are their default. No case waits for
/// silence.
const PATIENT: [&str; 2] = ["-o", "30"];

/// What a suite's last line says: `145 tests, 145 passed, 0 skipped, 0 failed`.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    tests: u32,
    passed: u32,
}

/// The summary at the end of what h2spec or h2specd says.
#[track_caller]
fn summary(said: &str) -> Summary {
    let summary = said.lines().rev().find_map(|line| {
        let (tests, rest) = line.split_once(" tests, ")?;
        let (passed, _) = rest.split_once(" passed, ")?;
        Some(Summary { tests: tests.trim().parse().ok()?, passed: passed.parse().ok()? })
    });
    summary.unwrap_or_else(|| panic!("no summary: {said}"))
}

/// Fails unless every one of at least `least` cases passed.
#[track_caller]
pub fn assert_all_passed(said: &str, least: u32) {
    let Summary { tests, passed } = summary(said);
    assert!(tests >= least && passed == tests, "{passed} of {tests}, at least {least} expected:\n{said}");
    println!("{passed} of {tests} cases");
}

/// Fails unless every one of at least `least` cases of h2specd passes in one of three runs. It has races of its own: it
/// mistakes a PING of ours, which measures the round trip, for the acknowledgement of its own one; and if it writes to
/// a connection that we have ended, the kernel's RST may overtake the GOAWAY that it waits for.
#[track_caller]
pub fn assert_each_passes(run: impl Fn() -> String, least: u32) {
    let mut never: Option<BTreeSet<String>> = None;
    let mut said = String::new();
    for _ in 0..3 {
        said = run();
        let Summary { tests, passed } = summary(&said);
        assert!(tests >= least, "{tests} cases, at least {least} expected:\n{said}");
        let failed: BTreeSet<String> =
            said.lines().filter_map(|line| line.trim().strip_prefix("× ")).map(str::to_owned).collect();
        assert!(failed.is_empty() == (passed == tests), "{said}");
        let still = never.map_or_else(|| failed.clone(), |never| &never & &failed);
        if still.is_empty() {
            return println!("{tests} cases");
        }
        never = Some(still);
    }
    panic!("{never:?} failed in each run:\n{said}");
}

/// Runs h2spec against a socket of the origin.
pub fn h2spec(program: &Path, address: SocketAddr, more: &[&str]) -> String {
    let port = address.port().to_string();
    let arguments = [&["-h", "127.0.0.1", "-p", &port, PATIENT[0], PATIENT[1]], more].concat();
    run_program(program, folder().path(), &arguments).stdout
}

#[test]
fn the_origin_passes_every_case_of_h2spec_in_clear_and_over_tls() {
    let Some(program) = need("h2spec") else { return };
    let origin = Origin::start(&[]);
    for (strict, least) in [(&[][..], 145), (&["-S"][..], 146)] {
        assert_all_passed(&h2spec(&program, origin.clear, strict), least);
        assert_all_passed(&h2spec(&program, origin.tls, &[&["-t", "-k"], strict].concat()), least);
    }
}

#[test]
fn our_client_passes_every_case_of_h2specd() {
    let Some(program) = need("h2specd") else { return };
    let client = format!("{} __get", binary().display());
    // One port for each case.
    let first = free_ports(80).to_string();
    // What it prints about its sockets, on the other stream, is endless.
    let arguments = [&["-h", "127.0.0.1", "-f", &first, "-e", &client], &PATIENT[..]].concat();
    assert_each_passes(|| run_program(&program, folder().path(), &arguments).stdout, 57);
}
