//! `h2lab diagnose`: why HTTP/2 is slow here, proved by changing one setting at a time.

mod again;
mod capture;
mod client;
mod fix;
mod observed;
mod own;
mod plan;
mod progress;
mod rate;
mod recorded;
mod sidecar;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use h2lab_analysis::experiment::{Experiment, Setup};
use h2lab_analysis::stats;
use h2lab_analysis::stats::Ending;
use h2lab_base::units::Time;
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::{Axis, Cell, Scenario};
use h2lab_report::{Diagnosis, Fixing};

use self::client::ClientRunArgs;
use self::plan::{Base, Plan};
use self::progress::Progress;
use super::cells::{CellArgs, check_programs, new_run};
use super::documents::{DocumentArgs, Form, json};
use super::exit::Usage;
use super::flags::Flags;
use super::output::{self, Concluded};
use super::reach::{self, ReachArgs};
use super::values::duration;
use super::{Exit, compare, discover, help, scenarios, signals, tls};
use crate::run::execute::{Executed, Live, LiveServer, PlanContext, execute_rounds};
use crate::run::messages::{Failure, FailureKind, with_causes};
use crate::run::{history, preflight, store};
use h2lab_lab::sut::OwnConfig;
use h2lab_net::clock::Clock;

/// Find out why HTTP/2 is slow here: change one setting at a time, and measure what it does
///
/// Measures the same work over HTTP/1.1 and over one HTTP/2 connection, over an emulated link or against a live server. If HTTP/2
/// is not known to be as good, it repeats the measurement with one setting of the client changed, then with another one, always
/// interleaved with the unchanged one, until each change is decided or the budget is spent. Each is `confirmed` (better by 10 %
/// or more), `worse`, `refuted` (no effect of 15 % or more) or `undecided`. The intervals are corrected for all that is tried.
///
/// Without WHAT: the built-in origin, or --origin, behind an emulated link with 3 % loss. A URL gets as many requests per second
/// as it carries in a short ramp, at most 50 unless -q, --concurrency or --i-own-this-host asks for more. A scenario must have one
/// cell of HTTP/2, and at most one to compare it with; flags select them. A run folder, or a capture of packets, is read and not
/// measured: what it shows is reported, and the exit code is 0, that of a run which could not go on, or 1 by --fail-on. With
/// --sidecar and the URL of a running sidecar's admin listener, the last half minute of its connections is read. With --run, a
/// client of yours is run against h2lab's own server.
///
/// A server of HTTP/2 alone is measured without a comparison, and changes are tried all the same, so that this is no failure. For one of
/// HTTP/1.1 alone there is nothing to diagnose: the exit code is 3, and 2 if its --config says so.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab diagnose", "one HTTP/2 connection over a link that loses 3 %"),
        ("h2lab diagnose --loss 0% --max-requests-per-connection 100", "a server that closes connections"),
        ("h2lab diagnose https://service.example/", "a live server, at no more than 50 requests per second"),
        ("h2lab diagnose -q 500 --budget 3m http://127.0.0.1:8080/ --json", "your own, for longer"),
        ("h2lab diagnose https://service.example/ --junit --fail-on confirmed", "for CI"),
        ("h2lab diagnose http://127.0.0.1:3000/ --via https://example.org/", "is it the proxy?"),
        ("h2lab diagnose --origin nginx --config nginx.conf --loss 0% --delay 20ms --fix", "your configuration, and a fix of it"),
        ("h2lab diagnose latest", "what the newest run shows, without measuring"),
        ("h2lab diagnose capture.pcapng --keylog keys.log", "what a capture shows"),
        ("h2lab diagnose --tls --run 'python3 client.py {url} {ca}'", "your own client: what its connections show"),
        ("h2lab diagnose --sidecar http://127.0.0.1:9901", "a running sidecar: what it sees on its connections"),
        ("h2lab diagnose --again latest", "after a fix: how much of the difference is gone"),
    ],
))]
pub struct DiagnoseArgs {
    /// A live server (http:// or https://), a scenario (FILE.toml, or the name of a shipped one), a run folder, or a capture
    /// (pcapng or pcap)
    #[arg(value_name = "WHAT")]
    what: Option<String>,
    /// The URL of the same service through a proxy: also say whether the difference arises there or at the server itself
    #[arg(long, value_name = "URL", requires = "what")]
    via: Option<String>,
    /// The server is yours: search a rate up to 6,000 requests per second instead of 50
    #[arg(long, requires = "what")]
    i_own_this_host: bool,
    /// Measure what an earlier run measured again, and report how much of its difference is gone
    #[arg(long, value_name = "RUN", conflicts_with_all = ["what", "via", "fail_on"])]
    again: Option<PathBuf>,
    /// Start the server of --origin (nginx, haproxy, envoy, apache, origin) with this configuration of yours
    ///
    /// It is read with what it includes and used as it is, but for the addresses, the user, the logs and the like, which is said;
    /// upstreams are replaced by h2lab's origin, and relative paths begin at its folder. A configuration of `origin` has a flag of
    /// `h2lab origin` on each line.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["via", "again"])]
    config: Option<PathBuf>,
    /// Ask the server of --config for this path, with its query [default: /]
    #[arg(long, value_name = "PATH", requires = "config")]
    path: Option<String>,
    /// Then change the setting that helps most in a copy of the server's configuration, and measure what that changes
    ///
    /// Four further rounds of both protocols, with and without it, after the budget. They may take as long as the budget, or as six
    /// rounds in which nothing is measured again; a fix that is not measured in all four by then is undecided. The changed copy and the diff
    /// are in the run folder. Nothing is changed on live servers.
    #[arg(long, conflicts_with = "again")]
    fix: bool,
    /// The secrets of TLS in a capture, as clients write them with `SSLKEYLOGFILE`; a pcapng may have them embedded
    #[arg(long, value_name = "FILE", requires = "what")]
    keylog: Option<PathBuf>,
    #[command(flatten)]
    client: ClientRunArgs,
    /// Begin no further round after this long; with 0s, a client of --run is run once and nothing is changed [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,
    #[command(flatten)]
    cells: CellArgs,
    #[command(flatten)]
    reach: Flags<ReachArgs>,
    /// Exit with 1 if a change is confirmed: there is a cause that can be fixed
    #[arg(long, value_name = "WHAT")]
    fail_on: Option<FailOn>,
    #[command(flatten)]
    documents: DocumentArgs,
    /// Run folder [default: h2lab-runs/<UTC>-<seed>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Suppress progress; warnings are still printed
    #[arg(short_alias = 's', long, alias = "silent")]
    quiet: bool,
}

/// When `diagnose` fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// A change was shown to help.
    Confirmed,
}

/// Who is measured.
#[derive(Clone, Copy)]
struct Servers<'a> {
    live: &'a Live,
    /// The user's configuration of the server that is started.
    own: Option<&'a OwnConfig>,
}

/// What is diagnosed.
enum What {
    Live(String),
    Scenario(PathBuf),
    Run(PathBuf),
    Capture(PathBuf),
}

impl What {
    /// What the user means: a folder with a run, a file or name of a scenario, else a URL.
    fn of(word: &str) -> Result<Self> {
        let path = Path::new(word);
        if history::is_relative(path) || path.is_dir() {
            return Ok(Self::Run(history::find(path)?));
        }
        if capture::is_capture(path) {
            return Ok(Self::Capture(path.to_owned()));
        }
        let is_scenario = path.extension().is_some_and(|end| end == "toml") || scenarios::is_shipped(path);
        if is_scenario {
            return Ok(Self::Scenario(path.to_owned()));
        }
        let url = reach::with_scheme(word);
        if !url.contains("://") {
            let lead = if path.exists() {
                format!("{word} is none of what can be diagnosed")
            } else {
                format!(
                    "{word} does not exist as a folder or a file, and is no URL; what can be diagnosed is"
                )
            };
            return Err(Usage(format!(
                "{lead}: a URL (it begins with http:// or https://), a run folder (`h2lab runs` \
                 lists them; `latest`), a capture (.pcapng, .pcap), a scenario FILE.toml, or one that ships, such as {} (`h2lab run --list`)",
                scenarios::near(word)
            ))
            .into());
        }
        Ok(Self::Live(url))
    }
}

/// The budget, unless the user gives another.
const BUDGET: Duration = Duration::from_secs(60);
/// Why `--i-own-this-host` is refused.
const OWNED: &str =
    "--i-own-this-host lets diagnose search for a rate of a live server, and here the load is given";

/// Runs the command.
pub fn main(args: &DiagnoseArgs, command_line: Vec<String>) -> Result<Exit> {
    let clock = Clock::start();
    args.documents.validate()?;
    let what = args.what.as_deref().map(What::of).transpose()?;
    if args.i_own_this_host && !matches!(what, Some(What::Live(_))) {
        return Err(Usage(OWNED.to_owned()).into());
    }
    if let Some(address) = args.sidecar()? {
        return args.of_sidecar(&address, command_line);
    }
    if args.keylog.is_some() && !matches!(what, Some(What::Capture(_))) {
        return Err(Usage("--keylog is for a capture".to_owned()).into());
    }
    if let Some(words) = args.client.command()? {
        return args.run_client(words, command_line);
    }
    if let Some(again) = &args.again {
        return args.again(&history::find(again)?, command_line);
    }
    match &what {
        Some(What::Capture(file)) => {
            args.refuse_measuring("a capture is only read", false)?;
            let (run, notes, unread) = capture::read(file, args.keylog.as_deref(), command_line)?;
            return args.conclude(&Concluded::of_capture(&run, notes), Some(unread));
        }
        Some(What::Run(folder)) => return args.of_run_folder(folder),
        _ => {}
    }
    measured(args, what.as_ref(), command_line, clock)
}

/// Measures a live server, or servers that are started, with changes of one setting each; `clock` began with the command.
fn measured(
    args: &DiagnoseArgs,
    what: Option<&What>,
    command_line: Vec<String>,
    clock: Clock,
) -> Result<Exit> {
    let own = args.own(what)?;
    let (mut scenario, live) = scenario(args, what, own.as_ref())?;
    // No other command takes the user's configuration.
    let mut repeat = match own {
        Some(_) => Vec::new(),
        None => repeated(&command_line, args.what.as_deref(), args.via.as_deref()),
    };
    let mut before = None;
    if let Some(What::Live(url)) = what {
        speaks_h2(&scenario, &live)?;
        holds_responses(&scenario, &live)?;
        let url = args.via().unwrap_or_else(|| url.clone());
        match args.carried(&mut scenario, &url, &live)? {
            ControlFlow::Continue(None) => {}
            ControlFlow::Continue(Some(found)) => {
                repeat.extend(args.load_flags(&scenario, found.rate));
                before = Some(found);
            }
            ControlFlow::Break(exit) => return Ok(exit),
        }
    }
    let mut base = Base::of(&scenario, args.via().as_deref())?;
    own::put_into(&mut base.cells, own.as_ref());
    let plan = Plan { budget: args.budget(), ..Plan::new(&base, own.as_ref(), args.fix) };
    let plan = RefCell::new(plan);
    let mut next = |run: &RunRecord, is_spent: bool| {
        plan.borrow_mut().next(run, is_spent, clock.now().since(Time::ZERO))
    };
    let servers = Servers { live: &live, own: own.as_ref() };
    let ramps = before.as_ref().and_then(|found| found.ramps.as_ref());
    let executed = args.measure(scenario, &base, servers, (command_line, ramps), &mut next)?;
    let run = executed.run.without_secrets();
    let plan = plan.into_inner();
    let setup = plan.setup();
    let is_measured = run.repetitions.iter().any(|one| one.unsupported.is_none());
    let experiment = match Experiment::of(&run, &setup) {
        Some(experiment) => experiment,
        None if run.interrupted && is_measured && executed.failure.is_none() => Experiment::unmeasured(),
        None => return nothing_measured(&run, &executed.folder, executed.failure),
    };
    let concluded =
        Concluded::new(&run, Some(&executed.folder)).warned(before.as_ref().and_then(rate::Found::remark));
    let verdicts = experiment.verdicts(concluded.verdicts());
    let concluded =
        concluded.compared(&verdicts).found_before(before.and_then(|found| found.limit), setup.subject);
    let subject = setup.subject;
    let is_via = args.via.is_some();
    let took = clock.now().since(Time::ZERO);
    let fixing = base.cell(subject).filter(|_| args.fix).map(|cell| match &plan.fix {
        Some(chosen) => fix::made(chosen, &run, cell, own.as_ref(), &executed.folder),
        None if run.interrupted && executed.failure.is_some() => {
            Ok(Fixing::Not("the run had ended before".to_owned()))
        }
        None if run.interrupted => Ok(Fixing::Not("the run was interrupted before".to_owned())),
        None => Ok(fix::not_made(&experiment, &run, concluded.report().findings, cell, own.as_ref())),
    });
    let fixing = fixing.transpose()?;
    let fix = fixing.as_ref();
    let (experiment, repeat) = (&experiment, &repeat[..]);
    let (took, unread) = (Some(took), None);
    let failure = executed.failure.as_ref().map(|error| error.root_cause().to_string());
    let failure = failure.as_deref();
    let stored = concluded.store_page(|| {
        let report = concluded.report();
        let of_page = Diagnosis { report, experiment, subject, repeat, fix, is_via, unread, took, failure };
        h2lab_report::diagnosis_page(&of_page)
    });
    let concluded = concluded.lacking(&stored);
    let report = concluded.report();
    let diagnosis = Diagnosis { report, experiment, subject, repeat, fix, is_via, unread, took, failure };
    args.print_diagnosis(&diagnosis)?;
    executed.failure.map_or(stored, Err)?;
    if run.interrupted {
        return Ok(Exit::Interrupted);
    }
    let exit = exit(&run, &setup)?;
    Ok(if exit == Exit::Done { args.judged(experiment, fix) } else { exit })
}

/// Whether a change was shown to help, by the experiment or by the rounds of a fix.
fn is_confirmed(experiment: &Experiment, fix: Option<&Fixing>) -> bool {
    !experiment.confirmed().is_empty() || fix.and_then(Fixing::confirmed).is_some()
}

impl DiagnoseArgs {
    /// Prints a diagnosis, and writes its files.
    fn print_diagnosis(&self, diagnosis: &Diagnosis<'_>) -> Result<()> {
        self.documents.notify(|form, style| {
            Ok(match form {
                Form::Html => h2lab_report::diagnosis_page(diagnosis),
                Form::Text => diagnosis.text(style),
                Form::Markdown => diagnosis.markdown(),
                Form::Json => json(&diagnosis.document())?,
                Form::Sarif => json(&diagnosis.sarif())?,
                Form::Junit => diagnosis.junit(),
            })
        })
    }

    /// After how long no further round begins.
    fn budget(&self) -> Duration {
        self.budget.unwrap_or(BUDGET)
    }

    /// The exit code of a sound experiment, and of the rounds of a fix, under `--fail-on`.
    fn judged(&self, experiment: &Experiment, fix: Option<&Fixing>) -> Exit {
        let fails = self.fail_on == Some(FailOn::Confirmed) && is_confirmed(experiment, fix);
        if fails { Exit::CheckFailed } else { Exit::Done }
    }

    /// The URL of the proxy.
    fn via(&self) -> Option<String> {
        self.via.as_deref().map(reach::with_scheme)
    }

    /// Enters a rate that the server carries, unless the user gave a load. Ends the command if the user stopped the search.
    fn carried(
        &self,
        scenario: &mut Scenario,
        url: &str,
        live: &Live,
    ) -> Result<ControlFlow<Exit, Option<rate::Found>>> {
        let loads = ["rate", "concurrency", "ramp"];
        if self.cells.work.given().iter().any(|(id, _)| loads.contains(&id.as_str())) {
            if self.i_own_this_host {
                return Err(Usage(OWNED.to_owned()).into());
            }
            return Ok(ControlFlow::Continue(None));
        }
        if self.i_own_this_host && self.cells.policy.max_connections.is_none() {
            scenario.matrix.max_connections = rate::OWN_CONNECTIONS;
        }
        if live.refuses() {
            // Where no request succeeds, no rate is carried: the previous rate is as good as any other.
            return Ok(ControlFlow::Continue(None));
        }
        if let Some(rate) =
            live.takes().and_then(|takes| rate::of_long(takes, scenario.matrix.max_connections))
        {
            say!(
                "{}",
                rate::words_of_long(rate, live.takes().unwrap_or_default(), scenario.matrix.max_connections)
            );
            scenario.work.rate = Axis::one(rate);
            return Ok(ControlFlow::Continue(Some(rate::Found::at(rate))));
        }
        Ok(match rate::find(scenario, url, live, self.i_own_this_host, self.quiet)? {
            ControlFlow::Break(()) => {
                super::note(&"interrupted while a rate was searched for: nothing was measured");
                ControlFlow::Break(Exit::Interrupted)
            }
            ControlFlow::Continue(found) => {
                if let Some(found) = &found {
                    say!("{}", found.words(scenario));
                    scenario.work.rate = Axis::one(found.rate);
                }
                ControlFlow::Continue(found)
            }
        })
    }

    /// The flags of `compare` for a load that was searched for.
    fn load_flags(&self, scenario: &Scenario, rate: f64) -> Vec<String> {
        let connections = self.i_own_this_host && self.cells.policy.max_connections.is_none();
        let connections =
            connections.then(|| format!("--max-connections={}", scenario.matrix.max_connections));
        ["-q".to_owned(), rate.to_string()].into_iter().chain(connections).collect()
    }

    /// Measures the rounds that `next` asks for.
    fn measure(
        &self,
        scenario: Scenario,
        base: &Base,
        servers: Servers<'_>,
        (command_line, ramps): (Vec<String>, Option<&RunRecord>),
        next: &mut dyn FnMut(&RunRecord, bool) -> Vec<Cell>,
    ) -> Result<Executed> {
        tls::announce_key_log()?;
        check_programs(&base.cells)?;
        let stop = signals::stop_flag()?;
        preflight::sysctls(&base.cells, &stop)?;
        let (folder, run) = new_run(scenario, self.out.as_deref(), command_line)?;
        if let Some(Err(error)) = ramps.map(|ramps| folder.keep_ramps(ramps)) {
            let why = with_causes(&error);
            super::note(&format_args!("what the ramp of the rate showed is not in the run folder: {why}"));
        }
        let context = PlanContext { live: servers.live, stop: &stop, own: servers.own };
        let mut progress = Progress::new(self.quiet, self.budget());
        let clock = Clock::start();
        let mut next = |run: &RunRecord| next(run, clock.now().since(Time::ZERO) >= self.budget());
        let executed = execute_rounds(run, &mut next, folder, &context, &mut progress);
        progress.line.clear();
        executed
    }
}

/// The result of a run without a repetition of the subject. A folder without any repetition is of no use.
fn nothing_measured(run: &RunRecord, folder: &Path, failure: Option<anyhow::Error>) -> Result<Exit> {
    match failure {
        Some(failure) => Err(failure),
        None if run.interrupted => {
            super::note(&"interrupted before anything was measured");
            if run.repetitions.is_empty() {
                store::discard(folder)?;
            }
            Ok(Exit::Interrupted)
        }
        None => {
            Err(Failure { kind: FailureKind::Unreachable, message: "the server was not measured".to_owned() }
                .into())
        }
    }
}

/// The exit code of what was measured: of the cells without a change.
fn exit(run: &RunRecord, setup: &Setup) -> Result<Exit> {
    let mut base = run.clone();
    base.repetitions.retain(|one| Some(one.cell.index) == setup.twin || one.cell.index == setup.subject);
    output::judge_endings(&Ending::of(&stats::analyse(&base)), false)
}

/// Refuses what can only be HTTP/1.1, with what became of the offer of HTTP/2.
fn speaks_h2(scenario: &Scenario, live: &Live) -> Result<(), Failure> {
    if scenario.plan().iter().any(|cell| cell.protocol.is_multiplexed()) {
        return Ok(());
    }
    let offer = |server: &LiveServer| {
        let (protocol, why) = server.refused.iter().find(|(protocol, _)| protocol.is_multiplexed())?;
        Some(format!("{} was offered {protocol}: {why}", server.url))
    };
    let offers: Vec<String> = live.servers.iter().filter_map(offer).collect();
    let (kind, message) = if offers.is_empty() {
        let why = "only HTTP/1.1 was asked for (--proto), so that there is no HTTP/2 to diagnose";
        (FailureKind::Usage, why.to_owned())
    } else {
        let offers = offers.join("; ");
        let why =
            format!("no request of HTTP/2 had a response, so that there is no HTTP/2 to diagnose; {offers}");
        (FailureKind::Unreachable, why)
    };
    Err(Failure { kind, message })
}

/// Refuses a measured time so short that it contains no response: no experiment could give a result.
fn holds_responses(scenario: &Scenario, live: &Live) -> Result<(), Failure> {
    match discover::too_long(scenario, live) {
        None => Ok(()),
        Some(why) => Err(Failure {
            kind: FailureKind::Invalid,
            message: format!("{why}, and give it a longer --budget"),
        }),
    }
}

/// What is measured, with the flags of the command line in place of the defaults.
fn scenario(args: &DiagnoseArgs, what: Option<&What>, own: Option<&OwnConfig>) -> Result<(Scenario, Live)> {
    let one = |scenario: Scenario| Scenario { repetitions: 1, ..scenario };
    let Some(What::Live(url)) = what else {
        if args.via.is_some() {
            return Err(
                Usage("--via is for a live server: give the URL of the server itself".to_owned()).into()
            );
        }
        args.reach.refuse(&[], "is for live servers: give a URL")?;
        let mut scenario = match what {
            Some(What::Scenario(path)) => Scenario::from_toml(&scenarios::text_of(path)?)
                .with_context(|| format!("in {}", path.display()))?,
            _ => lossy()?,
        };
        if let Some(own) = own {
            if let Some(path) = &args.path {
                scenario.work.path.clone_from(path);
            }
            own::compare_what_it_speaks(&mut scenario, &args.cells, own)?;
        }
        return Ok((one(args.cells.applied(&scenario, false)?), Live::default()));
    };
    if args.via().as_ref() == Some(url) {
        let why = "is the URL of the server itself: give that of the same service through the proxy";
        return Err(Usage(format!("--via {url} {why}")).into());
    }
    let mut defaults = discover::gentle();
    defaults.work.measure = Axis::one(Duration::from_secs(3));
    let mut scenario = one(args.cells.applied_live(&defaults)?);
    let protocol = &args.cells.client.protocol;
    let urls: Vec<String> = std::iter::once(url.clone()).chain(args.via()).collect();
    let live = discover::find(&mut scenario, &urls, protocol, &args.reach)?;
    Ok((scenario, live))
}

/// What is diagnosed without anything named: one connection over a link with losses.
fn lossy() -> Result<Scenario> {
    let mut scenario = compare::embedded()?;
    scenario.matrix.connections = Axis::one(1.into());
    scenario.link.loss = Axis::one("3%".parse().context("a constant")?);
    scenario.work.measure = Axis::one(Duration::from_secs(3));
    Ok(scenario)
}

/// Flags with a value that `compare` does not have, or that say where results go.
const OWN: [&str; 7] = ["--budget", "--fail-on", "--via", "--out", "-o", "--output", "--html"];
/// The same without a value.
const SWITCHES: [&str; 8] =
    ["--i-own-this-host", "--fix", "--json", "--sarif", "--junit", "--quiet", "--silent", "-s"];

/// The command that compares the protocols as this one does, at the proxy if there is one; the flags of a change follow.
fn repeated(command_line: &[String], what: Option<&str>, via: Option<&str>) -> Vec<String> {
    let rest = command_line.iter().skip(1).filter(|word| !SWITCHES.contains(&word.as_str()));
    let rest = rest.map(|word| match word.as_str() {
        "diagnose" => "compare",
        word if Some(word) == what => via.unwrap_or(word),
        word => word,
    });
    let words: Vec<String> = std::iter::once("h2lab").chain(rest).map(str::to_owned).collect();
    h2lab_report::without_flags(&words, &OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_nothing_is_refused_with_what_it_may_be_and_the_nearest_scenario() {
        let refused = |word: &str| What::of(word).err().unwrap().to_string();
        let why = refused("sidecar");
        assert!(why.starts_with("sidecar does not exist as a folder or a file, and is no URL; "), "{why}");
        assert!(
            why.contains("run folder") && why.contains("such as sidecar-chaos (`h2lab run --list`)"),
            "{why}"
        );
        assert!(refused("bbr-cubic").contains("such as bbr-vs-cubic"));
        let gone = refused("no/such/folder");
        assert!(gone.starts_with("no/such/folder does not exist as a folder or a file"), "{gone}");
        for kind in ["a URL (it begins with", "a run folder (", "a capture ("] {
            assert!(gone.contains(kind), "{kind}: {gone}");
        }
        let there = tempfile::NamedTempFile::new().unwrap();
        let why = refused(&there.path().display().to_string());
        assert!(why.contains(" is none of what can be diagnosed: a URL"), "{why}");
        assert!(matches!(What::of("127.0.0.1:80"), Ok(What::Live(_))));
    }

    #[test]
    fn the_rounds_of_a_fix_confirm_what_the_experiment_left_open() {
        use h2lab_analysis::experiment::{Effect, Metric, Outcome, Remedy};

        let experiment = Experiment::unmeasured();
        let by_fix = |outcome: Outcome| {
            let effect = Effect { ratio: 2.0, low: 1.9, high: 2.1, before: 1.0, after: 2.0 };
            let remedy = Remedy {
                metric: Metric::Served,
                before: None,
                after: None,
                effect,
                outcome,
                closed: None,
                harm: Vec::new(),
                rounds: 4,
                doubt: None,
            };
            let made = Fixing::Made {
                words: "x".to_owned(),
                cause: Some(("MUX101".to_owned(), false)),
                remedy: Some(Box::new(remedy)),
                diff: String::new(),
                files: Vec::new(),
            };
            is_confirmed(&experiment, Some(&made))
        };
        assert!(by_fix(Outcome::Confirmed) && !by_fix(Outcome::Undecided));
        assert!(!is_confirmed(&experiment, Some(&Fixing::Not(String::new()))));
        assert!(!is_confirmed(&experiment, None));
    }

    #[test]
    fn a_run_without_verified_certificates_is_repeated_without() {
        let insecure = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            ReachArgs::default().as_in(&words).tls.insecure
        };
        assert!(insecure("h2lab diagnose -k https://a/") && insecure("h2lab diagnose --insecure https://a/"));
        assert!(insecure("h2lab diagnose -sk https://a/"));
        assert!(!insecure("h2lab diagnose https://a/ -kinda") && !insecure("h2lab diagnose https://a/k"));
    }

    #[test]
    fn the_command_to_repeat_is_compare_without_what_only_diagnose_takes() {
        let words = "/usr/bin/h2lab diagnose --budget 3m -q 5 --fail-on=confirmed --json -o a.html http://a/";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        assert_eq!(repeated(&words, Some("http://a/"), None).join(" "), "h2lab compare -q 5 http://a/");
        let words = ["h2lab", "diagnose", "http://a/", "--via", "http://b/"].map(str::to_owned);
        let at_proxy = repeated(&words, Some("http://a/"), Some("http://b/"));
        assert_eq!(at_proxy.join(" "), "h2lab compare http://b/");
    }
}
