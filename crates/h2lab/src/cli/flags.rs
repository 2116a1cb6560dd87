//! What clap reports about flags: which were given, which a command does not take and why, and which one sets a key of
//! a scenario.

use std::marker::PhantomData;
use std::ops::Deref;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use h2lab_model::scenario::{Cell, Scenario, ScenarioError};

use super::exit::Usage;

/// The flags of `T`, and which of them were given. Those that a command never takes, as `R` says, are not in its help,
/// and are refused with the reason, since similar commands take them.
#[derive(Debug, Clone, Default)]
pub struct Flags<T, R = TakesAll> {
    values: T,
    /// Clap's name of each that was given, and its spelling in messages.
    given: Vec<(String, String)>,
    refusal: PhantomData<R>,
}

/// Which flags a command does not take.
pub trait FlagRefusal {
    /// Why it does not take the flag that clap calls `id`; `None` if it does.
    fn why(id: &str) -> Option<&'static str>;
}

/// Every flag is taken.
#[derive(Debug, Clone, Default)]
pub struct TakesAll;

impl FlagRefusal for TakesAll {
    fn why(_: &str) -> Option<&'static str> {
        None
    }
}

impl<T, R> Flags<T, R> {
    /// Clap's name of each that was given, and its spelling in messages.
    pub fn given(&self) -> &[(String, String)] {
        &self.given
    }

    /// Refuses all that were given but those that clap calls one of `taken`.
    pub fn refuse(&self, taken: &[&str], why: &str) -> Result<(), Usage> {
        match self.given.iter().find(|(id, _)| !taken.contains(&id.as_str())) {
            Some((_, flag)) => Err(Usage(format!("{flag} {why}"))),
            None => Ok(()),
        }
    }
}

/// As if none had been given.
impl<T, R> From<T> for Flags<T, R> {
    fn from(values: T) -> Self {
        Self { values, given: Vec::new(), refusal: PhantomData }
    }
}

impl<T, R> Deref for Flags<T, R> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.values
    }
}

impl<T: Args, R: FlagRefusal> Args for Flags<T, R> {
    fn augment_args(command: Command) -> Command {
        let refused = |arg: &&Arg| R::why(arg.get_id().as_str()).is_some();
        let ids: Vec<_> = of::<T>().get_arguments().filter(refused).map(|arg| arg.get_id().clone()).collect();
        ids.into_iter()
            .fold(T::augment_args(command), |command, id| command.mut_arg(id, |arg| arg.hide(true)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Args, R: FlagRefusal> FromArgMatches for Flags<T, R> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given =
            |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let given: Vec<(String, String)> = of::<T>()
            .get_arguments()
            .filter(is_given)
            .map(|arg| (arg.get_id().to_string(), written(arg)))
            .collect();
        for (id, flag) in &given {
            if let Some(why) = R::why(id) {
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, format!("{flag} {why}\n")));
            }
        }
        Ok(Self { values: T::from_arg_matches(matches)?, given, refusal: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A command with the flags of `T` alone.
fn of<T: Args>() -> Command {
    T::augment_args(Command::new("flags"))
}

/// A flag as messages name it: `-X/--request`; a positional argument by its description: `a URL`.
pub fn written(arg: &Arg) -> String {
    match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}/--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, Some(long)) => format!("--{long}"),
        (None, None) => {
            format!("a {}", arg.get_value_names().map_or(arg.get_id().as_str(), |names| &names[0]))
        }
    }
}

/// Checks a scenario to which flags were applied. The file was checked before, so any error now comes from a flag, and
/// the message names it.
pub fn check(scenario: &Scenario) -> Result<(), Usage> {
    scenario.validate().map_err(|error| in_flags(&error))
}

fn in_flags(error: &ScenarioError) -> Usage {
    let command = super::command();
    Usage(error.rendered(|key| flag(&command, key)))
}

/// The flag that sets a scenario's `key`, which is also clap's id of it: that of `compare`, else of another subcommand.
/// A flag has one spelling in all of them.
fn flag(command: &Command, key: &str) -> String {
    let called = |key: &str| {
        let id = key.replace(['-', '.'], "_");
        let compare = command.find_subcommand("compare");
        let mut arguments =
            compare.into_iter().chain(command.get_subcommands()).flat_map(Command::get_arguments);
        arguments.find(|arg| arg.get_id().as_str() == id).map(written)
    };
    let of_a_side =
        || key.split_once('.').and_then(|(side, inner)| Some(format!("{} {inner}", called(side)?)));
    called(key).or_else(of_a_side).unwrap_or_else(|| format!("the file's `{key}`"))
}

/// The cell of a scenario whose axes have one value each.
pub fn only_cell(scenario: &Scenario) -> Result<Cell, Usage> {
    let mut plan = scenario.plan();
    if plan.iter().any(|cell| cell.index != plan[0].index) {
        return Err(Usage("each flag takes one value here; `h2lab compare` takes lists".to_owned()));
    }
    Ok(plan.swap_remove(0))
}

/// Drops the claim of `file` if flags have made another scenario of it: the claim would be printed beside figures that
/// it is not about. Longer or more repetitions and other seeds measure the same, and so does a run whose packets are
/// kept.
pub fn keep_claim(scenario: &mut Scenario, file: &Scenario) {
    let mut same = file.clone();
    (same.repetitions, same.seed, same.work.measure, same.capture) =
        (scenario.repetitions, scenario.seed.clone(), scenario.work.measure.clone(), scenario.capture);
    if same != *scenario {
        scenario.claim = Scenario::default().claim;
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_an_error_can_name_leads_to_a_flag() {
        let command = super::super::command();
        let keys = "repetitions rate concurrency measure warmup drain timeout method headers body-bytes delay jitter queue bandwidth \
                    connections max-requests-per-connection limited protocols h2c-mode dial-policy ramp arrival snaplen \
                    reconnect-every cancel-after connect-timeout jitter-order loss-per loss queue-discipline reorder blackout \
                    steps uplink.delay downlink.queue sysctl.client sysctl.server stream-window max-frame-size";
        for key in keys.split_whitespace() {
            assert!(flag(&command, key).contains("--"), "{key}: {}", flag(&command, key));
        }
        for (key, named) in [
            ("measure", "-z/--duration"),
            ("uplink.delay", "--up delay"),
            ("sysctl.client", "--sysctl-client"),
            ("live", "a URL"),
            ("path", "--path"),
            ("claim", "the file's `claim`"),
            ("threads", "-t/--threads"),
        ] {
            assert_eq!(flag(&command, key), named);
        }
    }

    #[test]
    fn a_claim_is_kept_while_the_same_is_measured() {
        let file = Scenario::from_toml("claim = 'It is slow.'").unwrap();
        let mut scenario = file.clone();
        (scenario.repetitions, scenario.seed) = (9, "1,2".parse().unwrap());
        keep_claim(&mut scenario, &file);
        assert_eq!(scenario.claim, "It is slow.");
        scenario.link.loss = "5%".parse().unwrap();
        keep_claim(&mut scenario, &file);
        assert_eq!(scenario.claim, Scenario::default().claim);
    }

    #[test]
    fn an_error_says_the_flag_and_not_the_key() {
        let mut scenario = Scenario::default();
        scenario.work.measure = "10ms".parse().unwrap();
        let reported = check(&scenario).unwrap_err().to_string();
        assert_eq!(reported, "-z/--duration = 10ms is out of range: 100ms to 24h");
    }
}
