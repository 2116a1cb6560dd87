//! h2spec against the origin and h2specd against our client: the suites that the field goes by.

use std::net::SocketAddr;
use std::path::Path;

use crate::origin::Origin;
use crate::support::{binary, folder, free_ports, need, run_program};

/// Seconds for an answer, in both suites: their 2 are what a busy machine may take. No case of them waits for silence.
const PATIENT: [&str; 2] = ["-o", "30"];

/// What a suite's last line says: `145 tests, 145 passed, 0 skipped, 0 failed`.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    tests: u32,
    passed: u32,
}

/// Fails unless every one of at least `least` cases passed.
#[track_caller]
pub fn assert_all_passed(said: &str, least: u32) {
    let summary = said.lines().rev().find_map(|line| {
        let (tests, rest) = line.split_once(" tests, ")?;
        let (passed, _) = rest.split_once(" passed, ")?;
        Some(Summary { tests: tests.trim().parse().ok()?, passed: passed.parse().ok()? })
    });
    let Some(Summary { tests, passed }) = summary else { panic!("no summary: {said}") };
    assert!(tests >= least && passed == tests, "{passed} of {tests}, at least {least} expected:\n{said}");
    println!("{passed} of {tests} cases");
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
    // One for each case.
    let first = free_ports(80).to_string();
    // What it says on the other stream, of its sockets, is endless.
    let said = run_program(
        &program,
        folder().path(),
        &[&["-h", "127.0.0.1", "-f", &first, "-e", &client], &PATIENT[..]].concat(),
    )
    .stdout;
    assert_all_passed(&said, 57);
}
