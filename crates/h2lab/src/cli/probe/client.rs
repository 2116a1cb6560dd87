//! `h2lab probe client`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_base::secrets::without_command_secrets;
use h2lab_model::probe::client::grade;
use h2lab_model::probe::client::grade::CaseRuns;
use h2lab_model::probe::client::{CaseRun, TestCase, score_card};
use h2lab_model::probe::{ProbeReport, ServerLimits, Spent, Subject};

use super::super::values::whole;
use super::output::ProbeReportArgs;
use crate::cli::exit::Usage;
use crate::cli::values::duration;
use crate::cli::{Exit, help, signals, tls};
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::clock::Clock;
use h2lab_net::resources;
use h2lab_roles::probe::client;
use h2lab_roles::probe::client::{ClientError, ClientTestSpec};

/// Check how a client behaves when its server closes connections, refuses streams or stops responding
///
/// Runs the client's command once for each test case of a built-in server on loopback, and grades: connections per GOAWAY,
/// requests lost of those that could be sent again, windows and how often credit is returned, frame size, PINGs, time to
/// recover,
/// `TCP_NODELAY`, settings that it ignores. Each verdict has its evidence and the library's setting that fixes it; a score card
/// closes the report.
///
/// In the command, `{url}` is the server's URL, `{urls}` several of them (-n), and `{ca}` the file of the authority that signed
/// its certificate. A command that makes several concurrent requests shows more than one with a single request.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab probe client --run 'curl -s --http2-prior-knowledge -Z {urls}'", "curl, twelve requests at a time"),
        ("h2lab probe client --tls --run 'curl -s --cacert {ca} {url}'", "over TLS"),
        ("h2lab probe client --run 'node app.js {url}' --case stream-quota,black-out --json", "two test cases, for scripts"),
    ],
))]
pub struct ProbeClientArgs {
    /// The client's command, for `sh -c`
    #[arg(long, value_name = "COMMAND")]
    run: String,
    /// Number of URLs in {urls} [default: 12]
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u16>(1..=1000))]
    requests: Option<u16>,
    /// Serve TLS: h2 and http/1.1 by ALPN
    #[arg(long)]
    tls: bool,
    /// Run only these test cases, after `plain`: see docs/probe-client.md
    #[arg(long = "case", alias = "act", value_name = "CASE", value_delimiter = ',', value_parser = test_case)]
    test_case: Vec<TestCase>,
    /// Time for the command to exit after the server stops responding, in test cases that do so
    #[arg(long, alias = "patience", value_name = "TIME", default_value = "5s", value_parser = duration)]
    idle_timeout: Duration,
    /// Maximum time of the command in a test case
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    time_limit: Duration,
    #[command(flatten)]
    report: ProbeReportArgs,
}

/// The default number of URLs for `{urls}`.
const URLS: u16 = 12;

fn test_case(name: &str) -> Result<TestCase, String> {
    TestCase::named(name).ok_or_else(|| {
        let names = TestCase::ALL.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
        format!("there is no test case `{name}`: {names}")
    })
}

/// Probes a client.
pub fn main(args: &ProbeClientArgs) -> Result<Exit> {
    args.report.validate()?;
    if !["{url}", "{urls}"].iter().any(|place| args.run.contains(place)) {
        return Err(Usage(
            "--run: the command has neither {url} nor {urls}, where the server's URL goes".to_owned(),
        )
        .into());
    }
    for (is_wrong, message) in [
        (args.run.contains("{ca}") && !args.tls, "{ca} is the authority of --tls, which is not given"),
        (
            args.requests.is_some() && !args.run.contains("{urls}"),
            "-n is the number of {urls}, and --run has none",
        ),
    ] {
        if is_wrong {
            return Err(Usage(message.to_owned()).into());
        }
    }
    tls::announce_key_log()?;
    // If the client opens connections in a stampede, this process needs as many file descriptors as the client.
    resources::raise_open_files();
    let stop = signals::stop_flag()?;
    let script = ClientTestSpec {
        command: args.run.clone(),
        urls: usize::from(args.requests.unwrap_or(URLS)),
        tls: args.tls,
        idle_timeout: args.idle_timeout,
        limit: args.time_limit,
        test_cases: test_cases(&args.test_case),
    };
    let clock = Clock::start();
    let case_runs =
        match client::run_cases(&script, clock, &stop, &mut |test_case| say!("{} …", test_case.name())) {
            Ok(case_runs) => case_runs,
            Err(ClientError::Interrupted) => return Ok(Exit::Interrupted),
            Err(error) => {
                let message = error.to_string();
                return Err(Failure { kind: FailureKind::Environment, message }.into());
            }
        };
    args.report.notify(&report(args, &case_runs))
}

/// `plain` comes first, since all others are compared with it.
fn test_cases(chosen: &[TestCase]) -> Vec<TestCase> {
    let is_chosen = |test_case: &TestCase| {
        chosen.is_empty() || *test_case == TestCase::Plain || chosen.contains(test_case)
    };
    TestCase::ALL.iter().copied().filter(is_chosen).collect()
}

fn report(args: &ProbeClientArgs, case_runs: &[CaseRun]) -> ProbeReport {
    let software = case_runs
        .iter()
        .flat_map(|test_case| &test_case.connections)
        .find_map(|seen| seen.user_agent.clone());
    let checks: Vec<_> = grade::checks(CaseRuns(case_runs))
        .into_iter()
        .map(|check| check.for_product(software.as_deref().or(Some(&args.run))).beside(&args.run))
        .collect();
    let connections: usize = case_runs.iter().map(CaseRun::dials).sum();
    let took: Duration = case_runs.iter().map(|test_case| test_case.took).sum();
    ProbeReport {
        target: without_command_secrets(&args.run),
        subject: Subject::Client,
        software,
        checklist: score_card(&checks),
        checks,
        limits: ServerLimits::default(),
        attempts: Vec::new(),
        spent: Spent {
            requests: case_runs
                .iter()
                .flat_map(|test_case| &test_case.connections)
                .map(|seen| seen.requests.len() as u64)
                .sum(),
            bytes: 0,
            received: 0,
            connections: connections as u64,
            ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        },
        warnings: if case_runs.len() < test_cases(&args.test_case).len() {
            vec![
                "only `plain` was run: what the client does there would affect all other test cases"
                    .to_owned(),
            ]
        } else {
            Vec::new()
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_is_always_played_and_first() {
        assert_eq!(
            test_cases(&[TestCase::BlackOut, TestCase::Quota]),
            [TestCase::Plain, TestCase::Quota, TestCase::BlackOut]
        );
        assert_eq!(test_cases(&[]), TestCase::ALL);
    }
}
