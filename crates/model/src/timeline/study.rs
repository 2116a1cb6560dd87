//! A study of waterfalls: many exchanges with many servers, from a file, and the resulting table.

use std::fmt;
use std::time::Duration;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::summary::{TimeSpread, TimelineSummary, spread_of};
use super::waterfall::Waterfall;
use crate::workload::Protocol;
use h2lab_base::units::{duration_text, format_exact};

/// Where a page comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PageSource {
    /// A file of the server's own.
    File,
    /// A server behind it that answers at once.
    Proxy,
    /// A server behind it that answers after a delay.
    SlowProxy,
    /// A program that the server starts for the request.
    Cgi,
    /// A part of the server itself that answers after a delay.
    Handler,
}

/// How the client learns what the page needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Announcement {
    /// The server adds Link fields to the response.
    Link,
    /// The server is configured with what the page needs, and announces it when it is asked.
    Early,
    /// The response from upstream has Link fields.
    BackendLink,
    /// A 103 from upstream has them.
    BackendHints,
}

impl fmt::Display for PageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::File => "file",
            Self::Proxy => "proxy",
            Self::SlowProxy => "slow proxy",
            Self::Cgi => "CGI",
            Self::Handler => "handler",
        })
    }
}

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TimelineStudy {
    /// The claim that it tests, in a sentence.
    pub claim: String,
    /// The exchanges to make.
    pub timeline: TimelineMatrix,
}

/// The exchanges to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TimelineMatrix {
    /// How often each exchange is made; its figures are medians.
    #[serde(default = "default_runs")]
    pub runs: u32,
    /// The protocol of clients.
    #[serde(default = "default_protocol")]
    pub protocol: Protocol,
    /// The servers, by their names.
    pub servers: Vec<String>,
    /// The protocols towards the server behind them. Servers without support have no row.
    pub backends: Vec<Protocol>,
    /// Whether to enable 103 on servers with a switch for it.
    pub early_hints: Vec<bool>,
    /// How long the slow server behind takes.
    #[serde(with = "duration_text")]
    pub backend_delay: Duration,
    /// How long the CGI program takes.
    #[serde(with = "duration_text")]
    pub cgi_delay: Duration,
    /// A request unanswered for this long has failed.
    #[serde(with = "duration_text", default = "default_timeout")]
    pub timeout: Duration,
    /// The figures of another study, for comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Original>,
}

/// What another study found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Original {
    /// What it is.
    pub what: String,
    /// The server that it was about.
    pub server: String,
    /// Its rows.
    pub rows: Vec<OriginalRow>,
}

/// A row of another study's table, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OriginalRow {
    /// Where the page came from.
    pub source: PageSource,
    /// How it was announced.
    pub announcement: Announcement,
    /// When the promises came.
    pub promise_ms: f64,
    /// When the 103 came, if it did.
    pub early_hints_ms: Option<f64>,
    /// When the pushed responses had come.
    pub pushed_ms: f64,
    /// When the response had come.
    pub main_ms: f64,
}

const fn default_runs() -> u32 {
    11
}

const fn default_protocol() -> Protocol {
    Protocol::H2
}

const fn default_timeout() -> Duration {
    Duration::from_secs(5)
}

/// Why a file is not a valid study.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StudyError {
    /// It does not parse. The text names line and column.
    #[error("not a study of timelines: {0}")]
    Syntax(String),
    /// A value is out of range.
    #[error("`timeline.{field}` = {value}: {expected}")]
    Range {
        /// The key.
        field: &'static str,
        /// What was given.
        value: String,
        /// What is accepted.
        expected: &'static str,
    },
}

/// Runs with `--quick`.
const QUICK_RUNS: u32 = 3;

impl TimelineStudy {
    /// Whether the text of a scenario file asks for timelines instead of load.
    pub fn is_asked_for(text: &str) -> bool {
        text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("timeline"))
    }

    /// Reads the file.
    pub fn from_toml(text: &str) -> Result<Self, StudyError> {
        let study: Self = toml::from_str(text).map_err(|error| StudyError::Syntax(error.to_string()))?;
        study.check()?;
        Ok(study)
    }

    fn check(&self) -> Result<(), StudyError> {
        let asked = &self.timeline;
        let refuse = |field, value: String, expected| Err(StudyError::Range { field, value, expected });
        if !(1..=1_000).contains(&asked.runs) {
            return refuse("runs", asked.runs.to_string(), "1 to 1000");
        }
        if asked.protocol == Protocol::Tcp {
            return refuse("protocol", asked.protocol.to_string(), "h1, h1s, h2, h2c or h3");
        }
        if asked.servers.is_empty() || asked.backends.is_empty() || asked.early_hints.is_empty() {
            return refuse("servers", "[]".to_owned(), "servers, backends and early-hints each need a value");
        }
        let slowest = asked.backend_delay.max(asked.cgi_delay);
        if asked.timeout <= slowest {
            let value = format_exact(asked.timeout);
            return refuse("timeout", value, "it must be longer than backend-delay and cgi-delay");
        }
        match asked.backends.iter().find(|one| !matches!(one, Protocol::H1 | Protocol::H2c)) {
            Some(astray) => refuse("backends", astray.to_string(), "they accept h1 or h2c"),
            None => Ok(()),
        }
    }

    /// The same with values overridden by a command line.
    pub fn with(mut self, protocol: Option<Protocol>, timeout: Option<Duration>) -> Result<Self, StudyError> {
        let asked = &mut self.timeline;
        asked.protocol = protocol.unwrap_or(asked.protocol);
        asked.timeout = timeout.unwrap_or(asked.timeout);
        self.check()?;
        Ok(self)
    }

    /// The same with `--quick`.
    #[must_use]
    pub fn quickened(mut self) -> Self {
        self.timeline.runs = self.timeline.runs.min(QUICK_RUNS);
        self
    }
}

/// What one exchange is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineCase {
    /// The server.
    pub server: String,
    /// The protocol in which it asks the server behind it; `null` if it asks no server for this page.
    pub backend: Option<Protocol>,
    /// Whether it was configured to send or forward 103; `null` where it has no such switch.
    pub early_hints: Option<bool>,
    /// Where the page comes from.
    pub source: PageSource,
    /// How it is announced.
    pub announcement: Announcement,
    /// The setting of the server that announces it, or what the server behind sends, if that announces it.
    pub setting: String,
    /// The path that was asked for.
    pub path: String,
}

/// An exchange, and what was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineRow {
    /// What it is about.
    #[serde(flatten)]
    pub case: TimelineCase,
    /// The server's version.
    pub version: String,
    /// When the first promise came: median, in milliseconds since the client began to connect, as all of these.
    pub promise_ms: Option<f64>,
    /// When the first 103 came.
    pub early_hints_ms: Option<f64>,
    /// When the last pushed response had come, in runs in which all of them came.
    pub pushed_ms: Option<f64>,
    /// When the head of the response had come.
    pub main_ms: Option<f64>,
    /// How long the first promise came before the response: the median of the runs' differences.
    pub promise_lead_ms: Option<f64>,
    /// The spread of that over the runs.
    pub promise_lead_spread: Option<TimeSpread>,
    /// How long the first 103 came before the response.
    pub early_hints_lead_ms: Option<f64>,
    /// How often the exchange was made; once if the first one fails.
    pub runs: u32,
    /// In how many of them all of the response came.
    pub answered: u32,
    /// In how many of them a promised response did not come whole.
    pub unfinished: u32,
    /// What went wrong in a run without a complete response.
    pub failed: Option<String>,
    /// The waterfall in medians.
    pub waterfall: TimelineSummary,
}

impl TimelineRow {
    /// The row of these runs.
    pub fn of(case: TimelineCase, version: &str, runs: &[Waterfall]) -> Self {
        let median = |time: fn(&Waterfall) -> Option<f64>| {
            let values: Vec<f64> = runs.iter().filter_map(time).collect();
            spread_of(&values)
        };
        let only = |time| median(time).map(|(median, _)| median);
        let promise_lead = median(|run| Some(main_ms(run)? - run.first_promise_ms()?));
        Self {
            case,
            version: version.to_owned(),
            promise_ms: only(Waterfall::first_promise_ms),
            early_hints_ms: only(hints_ms),
            pushed_ms: only(pushed_ms),
            main_ms: only(main_ms),
            promise_lead_ms: promise_lead.map(|(median, _)| median),
            promise_lead_spread: promise_lead.map(|(_, spread)| spread),
            early_hints_lead_ms: only(|run| Some(main_ms(run)? - hints_ms(run)?)),
            runs: runs.len() as u32,
            answered: runs.iter().filter(|run| run.failed.is_none()).count() as u32,
            unfinished: runs.iter().filter(|run| run.unfinished_pushes() > 0).count() as u32,
            failed: runs.iter().find_map(|run| run.failed.clone()),
            waterfall: TimelineSummary::of(runs),
        }
    }
}

fn main_ms(run: &Waterfall) -> Option<f64> {
    run.asked(None)?.headers_ms
}

fn hints_ms(run: &Waterfall) -> Option<f64> {
    run.asked(None)?.first_interim(103).map(|interim| interim.ms)
}

fn pushed_ms(run: &Waterfall) -> Option<f64> {
    let ends: Option<Vec<f64>> = run.pushed().map(|stream| stream.end_ms).collect();
    ends?.into_iter().reduce(f64::max)
}

/// A server that has no rows, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingServer {
    /// The server.
    pub server: String,
    /// The protocol in which it was to ask the server behind it.
    pub backend: Protocol,
    /// Why it was not asked.
    pub why: String,
}

/// The result of a study: `h2lab run FILE --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyTable {
    /// The version of h2lab.
    pub version: String,
    /// The claim that it tests.
    pub claim: String,
    /// What clients spoke.
    pub protocol: Protocol,
    /// How often each exchange was to be made.
    pub runs: u32,
    /// How long the slow server behind took.
    pub backend_delay_ms: f64,
    /// How long the CGI program took.
    pub cgi_delay_ms: f64,
    /// Whether a signal ended it.
    pub interrupted: bool,
    /// Every exchange.
    pub rows: Vec<TimelineRow>,
    /// Servers that could not be asked.
    pub missing: Vec<MissingServer>,
    /// What another study found.
    pub original: Option<Original>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{exchange, pushed};
    use super::*;

    const FILE: &str = "claim = 'x'\n[timeline]\nservers = ['apache']\nbackends = ['h1', 'h2c']\n\
                        early-hints = [false, true]\nbackend-delay = '80ms'\ncgi-delay = '60ms'\n";

    #[test]
    fn a_study_is_known_by_its_table_and_has_eleven_runs_of_h2_unless_asked() {
        assert!(
            TimelineStudy::is_asked_for(FILE)
                && !TimelineStudy::is_asked_for("claim = 'x'\n[work]\nrate = 5")
        );
        let study = TimelineStudy::from_toml(FILE).unwrap();
        assert_eq!((study.timeline.runs, study.timeline.protocol), (11, Protocol::H2));
        assert_eq!(study.quickened().timeline.runs, 3);
    }

    #[test]
    fn the_shipped_file_begins_with_its_claim_and_has_the_original_beside_it() {
        let text = include_str!("../../../../scenarios/early-push.toml");
        let study = TimelineStudy::from_toml(text).unwrap();
        assert_eq!(text.lines().next().unwrap().strip_prefix("# "), Some(study.claim.as_str()));
        assert_eq!(study.timeline.original.unwrap().rows.len(), 6);
        assert_eq!((study.timeline.servers.len(), study.timeline.runs), (9, 11));
    }

    #[test]
    fn what_means_nothing_is_refused_by_its_key() {
        let rendered =
            |from: &str, to: &str| TimelineStudy::from_toml(&FILE.replace(from, to)).unwrap_err().to_string();
        assert!(rendered("claim", "clame").contains("clame"));
        assert!(rendered("'h2c'", "'h3'").contains("`timeline.backends` = h3"));
        assert!(rendered("[timeline]", "[timeline]\nruns = 0").contains("`timeline.runs` = 0"));
        assert!(rendered("['apache']", "[]").contains("servers"));
        assert!(rendered("[timeline]", "[timeline]\ntimeout = '80ms'").contains("`timeline.timeout` = 80ms"));
    }

    #[test]
    fn a_command_line_may_say_another_protocol_and_timeout_and_is_checked_alike() {
        let study = || TimelineStudy::from_toml(FILE).unwrap();
        let with = study().with(Some(Protocol::H2c), Some(Duration::from_secs(1))).unwrap().timeline;
        assert_eq!((with.protocol, with.timeout), (Protocol::H2c, Duration::from_secs(1)));
        assert_eq!(study().with(None, None).unwrap(), study());
        assert!(study().with(None, Some(Duration::from_millis(70))).is_err());
        assert!(study().with(Some(Protocol::Tcp), None).is_err());
    }

    #[test]
    fn a_lead_is_the_median_of_differences_and_not_the_difference_of_medians() {
        let run = |promise: f64, main: f64| {
            let mut run = exchange("/", &[(103, promise - 1.0)], main);
            run.streams.push(pushed("/style.css", promise, promise + 1.0));
            run.streams.push(pushed("/script.js", promise + 0.5, promise + 9.0));
            run
        };
        let runs = [run(1.0, 11.0), run(2.0, 72.0), run(3.0, 63.0)];
        let row = TimelineRow::of(case(), "2.4", &runs);
        assert_eq!((row.promise_ms, row.main_ms, row.promise_lead_ms), (Some(2.0), Some(63.0), Some(60.0)));
        assert_eq!((row.early_hints_lead_ms, row.pushed_ms), (Some(61.0), Some(11.0)));
        assert_eq!((row.runs, row.answered), (3, 3));
    }

    fn case() -> TimelineCase {
        TimelineCase {
            server: "apache".to_owned(),
            backend: None,
            early_hints: None,
            source: PageSource::Proxy,
            announcement: Announcement::Early,
            setting: "H2PushResource".to_owned(),
            path: "/".to_owned(),
        }
    }

    #[test]
    fn a_response_that_was_cut_is_no_answer() {
        let cut = Waterfall { failed: Some("reset".to_owned()), ..exchange("/", &[], 9.0) };
        let row = TimelineRow::of(case(), "2.4", &[exchange("/", &[], 7.0), cut]);
        assert_eq!((row.runs, row.answered, row.failed.as_deref()), (2, 1, Some("reset")));
    }

    #[test]
    fn a_push_that_never_came_is_no_time_and_is_counted() {
        let run = |end: Option<f64>| {
            let mut run = exchange("/", &[], 9.0);
            run.streams.push(pushed("/1.css", 1.0, 3.0));
            run.streams.push(super::super::WaterfallStream { end_ms: end, ..pushed("/2.css", 1.0, 4.0) });
            run
        };
        let row = TimelineRow::of(case(), "2.4", &[run(Some(4.0)), run(None)]);
        assert_eq!((row.pushed_ms, row.unfinished), (Some(4.0), 1));
        assert_eq!(TimelineRow::of(case(), "2.4", &[run(None)]).pushed_ms, None);
    }
}
