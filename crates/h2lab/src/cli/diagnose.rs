//! `h2lab diagnose`: why HTTP/2 is slow here, proved by changing one setting at a time.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use h2lab_analysis::experiment::{Experiment, Outcome, Setup};
use h2lab_analysis::stats::Ending;
use h2lab_analysis::{diagnose, stats};
use h2lab_base::units::Time;
use h2lab_model::experiment::Knob;
use h2lab_model::record::{CellRecord, RunRecord};
use h2lab_model::scenario::{Axis, Cell, Scenario};
use h2lab_report::{Diagnosis, repetition_figures};

use super::cells::{CellArgs, check_programs, new_run};
use super::exit::Usage;
use super::flags::Flags;
use super::output::{self, Concluded};
use super::progress::{ProgressLine, describe};
use super::reach::{self, ReachArgs};
use super::values::duration;
use super::{Exit, compare, discover, help, note, signals, tls};
use crate::run::execute::{Live, PlanContext, RunObserver, execute_rounds};
use crate::run::messages::{Failure, RepetitionProgress};
use crate::run::preflight;
use h2lab_net::clock::Clock;

/// Rounds of the two protocols before anything is changed.
const FIRST_ROUNDS: u32 = 2;
/// Rounds of a change before it is looked at for the first time: of a single one little is known of how much they differ.
const UNSEEN: u32 = 2;
/// Rounds with changes at most: each is a look at every change, for which the intervals pay.
const LOOKS: u32 = 5;

/// Find out why HTTP/2 is slow here: change one setting at a time, and measure what it does
///
/// Measures the same work over HTTP/1.1 and over one HTTP/2 connection, over an emulated link or against a live server. If HTTP/2
/// is not known to be as good, it repeats the measurement with one setting of the client changed, then with another one, always
/// interleaved with the unchanged one, until each change is decided or the budget is spent. Each is `confirmed` (better by 10 %
/// or more), `worse`, `refuted` (no effect of 15 % or more) or `undecided`. The intervals are corrected for all that is tried.
///
/// Without a URL: the built-in origin, or --origin, behind an emulated link with 3 % loss. With a URL: 50 requests per second,
/// unless -q or --concurrency asks for more.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab diagnose", "one HTTP/2 connection over a link that loses 3 %"),
        ("h2lab diagnose --loss 0% --max-requests-per-connection 100", "a server that closes connections"),
        ("h2lab diagnose https://service.example/", "a live server, at 50 requests per second"),
        ("h2lab diagnose -q 500 --budget 3m http://127.0.0.1:8080/ --json", "your own, for longer"),
    ],
))]
pub struct DiagnoseArgs {
    /// A live server (http:// or https://)
    #[arg(id = "live", value_name = "URL", value_parser = reach::url_text())]
    url: Option<String>,
    /// Begin no further round after this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    budget: Duration,
    #[command(flatten)]
    cells: CellArgs,
    #[command(flatten)]
    reach: Flags<ReachArgs>,
    /// Exit with 1 if a change is confirmed: there is a cause that can be fixed
    #[arg(long, value_name = "WHAT")]
    fail_on: Option<FailOn>,
    /// One JSON document on stdout instead of text
    #[arg(long)]
    json: bool,
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

/// Runs the command.
pub fn main(args: &DiagnoseArgs, command_line: Vec<String>) -> Result<Exit> {
    tls::announce_key_log()?;
    let (scenario, live) = scenario(args)?;
    let base = Base::of(&scenario)?;
    check_programs(&base.cells)?;
    let stop = signals::stop_flag()?;
    preflight::sysctls(&base.cells, &stop)?;
    let repeat = repeated(&command_line);
    let (folder, run) = new_run(scenario, args.out.as_deref(), command_line)?;
    let context = PlanContext { live: &live, stop: &stop };
    let mut progress = Progress::new(args.quiet, args.budget);
    let clock = Clock::start();
    let plan = RefCell::new(Plan { base: &base, rounds: 0, knobs: Vec::new() });
    let mut next = |run: &RunRecord| {
        let is_spent = clock.now().since(Time::ZERO) >= args.budget;
        plan.borrow_mut().next(run, is_spent)
    };
    let executed = execute_rounds(run, &mut next, folder, &context, &mut progress);
    progress.line.clear();
    let executed = executed?;
    let run = executed.run.without_secrets();
    let setup = plan.borrow().setup();
    let concluded = Concluded::new(&run, Some(&executed.folder));
    let stored = concluded.store();
    let experiment = Experiment::of(&run, &setup).context("the server was not measured")?;
    let diagnosis = Diagnosis {
        report: concluded.report(),
        experiment: &experiment,
        subject: setup.subject,
        repeat: &repeat,
    };
    if args.json {
        output::print(&(serde_json::to_string_pretty(&diagnosis.document())? + "\n"))?;
    } else {
        output::show(&diagnosis.text(output::style()))?;
    }
    executed.failure.map_or(stored, Err)?;
    if run.interrupted {
        return Ok(Exit::Interrupted);
    }
    exit(args, &run, &setup, &experiment)
}

/// The exit code: of the two cells without a change, and of `--fail-on`.
fn exit(args: &DiagnoseArgs, run: &RunRecord, setup: &Setup, experiment: &Experiment) -> Result<Exit> {
    let mut base = run.clone();
    base.repetitions.retain(|one| Some(one.cell.index) == setup.twin || one.cell.index == setup.subject);
    match output::judge_endings(&Ending::of(&stats::analyse(&base)), false)? {
        Exit::Done if args.fail_on == Some(FailOn::Confirmed) && !experiment.confirmed().is_empty() => {
            Ok(Exit::CheckFailed)
        }
        exit => Ok(exit),
    }
}

/// What is measured, with the flags of the command line in place of the defaults.
fn scenario(args: &DiagnoseArgs) -> Result<(Scenario, Live)> {
    let one = |scenario: Scenario| Scenario { repetitions: 1, ..scenario };
    let Some(url) = &args.url else {
        args.reach.refuse(&[], "is for live servers: give a URL")?;
        let mut scenario = compare::embedded()?;
        scenario.matrix.connections = Axis::one(1.into());
        scenario.link.loss = Axis::one("3%".parse().context("a constant")?);
        scenario.work.measure = Axis::one(Duration::from_secs(3));
        return Ok((one(args.cells.applied(&scenario, false)?), Live::default()));
    };
    let mut defaults = discover::gentle();
    defaults.work.measure = Axis::one(Duration::from_secs(3));
    let mut scenario = one(args.cells.applied_live(&defaults)?);
    let protocol = &args.cells.client.protocol;
    let live = discover::find(&mut scenario, std::slice::from_ref(url), protocol, &args.reach)?;
    Ok((scenario, live))
}

/// The command that compares the protocols as this one does; the flags of a change follow.
fn repeated(command_line: &[String]) -> String {
    let rest = command_line.iter().skip(1).map(|word| if word == "diagnose" { "compare" } else { word });
    let mut words = vec!["h2lab"];
    let mut is_value = false;
    for word in rest {
        if std::mem::take(&mut is_value) || word.starts_with("--budget=") || word.starts_with("--fail-on=") {
            continue;
        }
        if word == "--budget" || word == "--fail-on" {
            is_value = true;
            continue;
        }
        words.push(word);
    }
    words.join(" ")
}

/// The cells without a change: that which is asked about, and the same work over another protocol.
struct Base {
    /// Both, or the one.
    cells: Vec<Cell>,
    subject: u32,
    twin: Option<u32>,
}

impl Base {
    fn of(scenario: &Scenario) -> Result<Self> {
        let cells = scenario.plan();
        let subject = cells
            .iter()
            .rfind(|cell| cell.protocol.is_multiplexed())
            .ok_or_else(|| Usage("only HTTP/1.1 is spoken: there is no HTTP/2 to diagnose".to_owned()))?;
        let twin = cells.iter().find(|cell| cell.index != subject.index);
        if cells.len() > 2 {
            let message = format!(
                "these are {} configurations, and diagnose examines one against another protocol: give one value to each flag",
                cells.len()
            );
            return Err(Usage(message).into());
        }
        let (subject, twin) = (subject.index, twin.map(|twin| twin.index));
        Ok(Self { subject, twin, cells })
    }

    fn cell(&self, index: u32) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.index == index)
    }
}

/// Which repetitions are made next.
struct Plan<'a> {
    base: &'a Base,
    rounds: u32,
    /// Changes, with the indices of their cells: none before the first rounds are over.
    knobs: Vec<(u32, Knob)>,
}

impl Plan<'_> {
    fn setup(&self) -> Setup {
        let Base { subject, twin, .. } = *self.base;
        Setup { subject, twin, knobs: self.knobs.clone(), looks: LOOKS + 1 - UNSEEN }
    }

    /// The repetitions of the next round; none if all is decided, or the budget is spent.
    fn next(&mut self, run: &RunRecord, is_spent: bool) -> Vec<Cell> {
        let round = self.rounds;
        self.rounds += 1;
        if round < FIRST_ROUNDS {
            return self.round(round, &[]);
        }
        let Some(experiment) = Experiment::of(run, &self.setup()) else { return Vec::new() };
        if round == FIRST_ROUNDS {
            if experiment.is_healthy() {
                return Vec::new();
            }
            self.knobs = self.suspects(run);
        }
        let is_open = |index: u32| {
            let known = experiment.trials.iter().find(|trial| trial.cell == index);
            known.is_none_or(|trial| {
                let is_void = matches!(trial.outcome, Outcome::Void(_));
                trial.rounds < UNSEEN || !(is_void || trial.outcome.is_final())
            })
        };
        let open: Vec<(u32, Knob)> =
            self.knobs.iter().filter(|(index, _)| is_open(*index)).cloned().collect();
        if is_spent || open.is_empty() || round >= FIRST_ROUNDS + LOOKS {
            return Vec::new();
        }
        self.round(round, &open)
    }

    /// One repetition of each cell; every second round in reverse, so that what drifts is in none more than in another.
    fn round(&self, round: u32, knobs: &[(u32, Knob)]) -> Vec<Cell> {
        let twin = self.base.twin.filter(|_| round < FIRST_ROUNDS);
        let base = twin.into_iter().chain([self.base.subject]).filter_map(|index| self.base.cell(index));
        let mut cells: Vec<Cell> = base.cloned().collect();
        if let Some(subject) = self.base.cell(self.base.subject) {
            cells.extend(knobs.iter().map(|(index, knob)| Cell { index: *index, ..knob.apply(subject) }));
        }
        for cell in &mut cells {
            cell.repetition = round;
            cell.seed = cell.seed.wrapping_add(u64::from(round));
            cell.request_seed = cell.request_seed.wrapping_add(u64::from(round));
        }
        if round % 2 == 1 {
            cells.reverse();
        }
        cells
    }

    /// The changes to try: first those that take away what was found, the costliest first.
    fn suspects(&self, run: &RunRecord) -> Vec<(u32, Knob)> {
        let Some(subject) = self.base.cell(self.base.subject) else { return Vec::new() };
        let findings = diagnose::findings(&run.repetitions, &stats::analyse(run).verdicts);
        let place = |knob: &Knob| {
            let its = |finding: &diagnose::Finding| {
                finding.cell == subject.index && knob.causes().contains(&finding.rule.as_str())
            };
            findings.iter().position(its).unwrap_or(usize::MAX)
        };
        let measured = stats::repetitions_of(run, subject.index);
        let bytes = stats::CellSummary::of(&measured);
        let bytes = bytes.goodput_bytes_per_s / bytes.served_rps.max(f64::MIN_POSITIVE);
        let mut knobs = Knob::of(subject);
        knobs.retain(|knob| knob.concerns(bytes));
        knobs.sort_by_key(place);
        let first = self.base.cells.iter().map(|cell| cell.index).max().unwrap_or(0) + 1;
        (first..).zip(knobs).collect()
    }
}

/// A bar of the budget on a terminal, a line for each repetition elsewhere.
struct Progress {
    line: ProgressLine,
    has_lines: bool,
    budget: Duration,
    label: String,
    clock: Clock,
}

impl Progress {
    fn new(is_quiet: bool, budget: Duration) -> Self {
        let line = ProgressLine::new(is_quiet);
        let has_lines = line.is_hidden() && !is_quiet;
        Self { line, has_lines, budget, label: String::new(), clock: Clock::start() }
    }

    fn show(&self, words: &str) {
        let passed = self.clock.now().since(Time::ZERO);
        let share = passed.as_secs_f64() / self.budget.as_secs_f64().max(f64::MIN_POSITIVE);
        self.line.show_share(share, &format!("{}{words}", self.label));
    }
}

impl RunObserver for Progress {
    fn begins(&mut self, _: usize, _: usize, cell: &Cell, attempt: u32) {
        let again = if attempt == 0 { String::new() } else { format!(" (try {})", attempt + 1) };
        self.label = format!("round {} {}{again}", cell.repetition + 1, describe(cell));
        self.show("");
    }

    fn progress(&mut self, progress: &RepetitionProgress) {
        self.show(&format!(": {} answered", progress.completed));
    }

    fn invalid(&mut self, cell: &Cell, doubts: &[String]) {
        self.line.clear();
        note(&format_args!("the repetition of {} is invalid: {}", describe(cell), doubts.join("; ")));
    }

    fn finished(&mut self, _: usize, record: &CellRecord) {
        if self.has_lines {
            let figures = repetition_figures(record).map_or(String::new(), |figures| format!(": {figures}"));
            say!("{}{figures}", self.label);
        }
    }

    fn failed(&mut self, cell: &Cell, failure: &Failure) {
        self.line.clear();
        note(&format_args!("{}: unsupported: {failure}", describe(cell)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Base {
        let mut scenario = compare::embedded().unwrap();
        scenario.matrix.connections = Axis::one(1.into());
        scenario.link.loss = Axis::one("3%".parse().unwrap());
        scenario.repetitions = 1;
        Base::of(&scenario).unwrap()
    }

    #[test]
    fn a_round_changes_one_setting_of_each_cell_and_turns_the_order_around() {
        let base = base();
        let plan = Plan { base: &base, rounds: 0, knobs: Vec::new() };
        let first = plan.round(0, &[]);
        assert_eq!(first.len(), 2, "the twin and the subject");
        let knobs = [(7, Knob::Connections(4)), (8, Knob::LongFrames)];
        let [second, third] = [2, 3].map(|round| plan.round(round, &knobs));
        let order = |cells: &[Cell]| cells.iter().map(|cell| cell.index).collect::<Vec<_>>();
        assert_eq!(order(&second), [base.subject, 7, 8]);
        assert_eq!(order(&third), [8, 7, base.subject]);
        assert_eq!((second[1].connections, second[2].connections), (4, 1));
        assert!(second.iter().all(|cell| cell.request_seed == second[0].request_seed), "the same load");
        assert_ne!(second[0].seed, third[2].seed);
    }

    #[test]
    fn several_configurations_are_refused() {
        let mut scenario = compare::embedded().unwrap();
        scenario.repetitions = 1;
        assert!(Base::of(&scenario).is_err());
    }

    #[test]
    fn the_command_to_repeat_is_compare_without_what_only_diagnose_takes() {
        let words = "/usr/bin/h2lab diagnose --budget 3m -q 5 --fail-on=confirmed http://a/";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        assert_eq!(repeated(&words), "h2lab compare -q 5 http://a/");
    }
}
