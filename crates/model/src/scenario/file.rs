//! A scenario: what a user asked for, as a TOML file or as flags. Both fill the same [`Scenario`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::arm::Arm;
use super::axis::{Axis, ConnectionCount, RequestLimit};
use super::capture::Capture;
use super::client::ClientAxes;
use super::error::ScenarioError;
use super::link::LinkAxes;
use super::ramp::Ramp;
use super::refusals;
use super::sysctl::SysctlAxes;
use super::topology::Topology;
use crate::workload::{DialPolicy, EngineSettings, H2cMode, MixEntry, Protocol, RequestShape};
use h2lab_base::units::duration_text;

/// What to measure. Missing keys of a file take the values of [`Scenario::default`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Scenario {
    /// The claim that it tests, in a sentence.
    pub claim: String,
    /// The seed of everything random. Several seeds are several groups of cells.
    pub seed: Axis<u64>,
    /// How often each cell is visited; visits are pooled. Every second round runs backwards (A/B/B/A).
    pub visits: u32,
    /// Whether the report has a study's part: every topology beside the others, over delay and loss.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub study: bool,
    /// What is sent.
    pub work: WorkAxes,
    /// What the emulated link does.
    pub link: LinkAxes,
    /// Kernel settings of the client's and of the server's network namespace.
    #[serde(skip_serializing_if = "SysctlAxes::is_empty")]
    pub sysctl: SysctlAxes,
    /// Who talks to whom, and how.
    pub matrix: MatrixAxes,
    /// What our client does otherwise than by default. A table that says nothing is not written: the scenarios of earlier
    /// runs read the same.
    #[serde(skip_serializing_if = "ClientAxes::is_default")]
    pub client: ClientAxes,
    /// How the HTTP/2 engine of our origin behaves.
    #[serde(skip_serializing_if = "EngineSettings::is_default")]
    pub server: EngineSettings,
    /// What is made of the bytes of packets.
    #[serde(skip_serializing_if = "Capture::is_default")]
    pub capture: Capture,
    /// What else is measured besides the cells of this scenario: each has keys in place of the file's, and its cells follow.
    /// See [`Scenario::variations`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vary: Vec<toml::Table>,
    /// What a quick look has in place of the file's own keys: see [`Scenario::quickened`]. A run has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick: Option<toml::Table>,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WorkAxes {
    /// `GET`, `POST` …
    pub method: String,
    /// Path and query. The origin answers `/` with 1 KiB.
    pub path: String,
    /// Which header fields go with each request.
    pub shape: Axis<RequestShape>,
    /// Further header fields.
    pub headers: Vec<(String, String)>,
    /// Request body in bytes of filler.
    pub body_bytes: u64,
    /// The request body itself, instead of filler.
    pub body: Option<String>,
    /// Several kinds of requests, drawn by weight; if there is none, all are as said above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<MixEntry>,
    /// Whether `{{…}}` in paths, header values and bodies is filled anew in each request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub template: bool,
    /// Open loop: requests per second, in all.
    pub rate: Axis<f64>,
    /// How open-loop intervals are spread.
    pub arrival: ArrivalShape,
    /// Open loop whose rate changes, instead of `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Ramp>,
    /// Closed loop instead: this many requests in flight, over all connections.
    pub concurrency: Option<u32>,
    /// Whether it is bulk work: see [`Work::bulk`](crate::workload::Work::bulk).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bulk: bool,
    /// Measured time of one visit.
    pub measure: Axis<Duration>,
    /// Time before measuring in which requests are sent but not counted.
    #[serde(with = "duration_text")]
    pub warmup: Duration,
    /// Time after measuring in which what is under way may finish.
    #[serde(with = "duration_text")]
    pub drain: Duration,
    /// A request unanswered for this long is cancelled.
    #[serde(with = "duration_text")]
    pub timeout: Duration,
    /// Whether requests that the server certainly did not process (REFUSED_STREAM, above the last stream of a GOAWAY) are
    /// sent again; else they have failed.
    pub replay: bool,
}

/// How an open loop spreads its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalShape {
    /// Evenly.
    #[default]
    Constant,
    /// With exponentially distributed intervals.
    Poisson,
}

/// Who talks to whom, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MatrixAxes {
    /// Servers that we start behind the link, and proxies in front of our origin: names of `sut/`. Each is a group of its
    /// own.
    pub origin: Axis<String>,
    /// Where sidecars stand. Not written if nowhere: the scenarios of earlier runs read the same.
    #[serde(skip_serializing_if = "is_direct")]
    pub topology: Axis<Topology>,
    /// The programs that are sidecars: proxies of `sut/`. Each is a group of its own in each topology that has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Axis<String>>,
    /// Several matrices instead of this one: each has these axes, but for those that it names itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<Arm>,
    /// Live servers instead, over the network as it is; they are compared with each other.
    pub live: Vec<LiveTarget>,
    /// Protocols; one mentioned twice is an A/A run.
    pub protocols: Axis<Protocol>,
    /// How connections of `h2c` begin.
    pub h2c_mode: H2cMode,
    /// Connections of the multiplexed protocols.
    pub connections: Axis<ConnectionCount>,
    /// Streams that we open at most on one connection (`-m`).
    pub streams: Axis<u32>,
    /// Connections that HTTP/1.1 opens before measuring.
    pub warm_pool: u32,
    /// Connections up to which HTTP/1.1 grows on demand.
    pub max_connections: u32,
    /// Requests after which a server that we start ends a connection: a number, or `unlimited`. With a proxy it is the
    /// proxy that does, not the origin behind it.
    pub max_requests_per_connection: Axis<RequestLimit>,
    /// Those of `origin` that have this limit; all if none is named. With a proxy and, beside it, the origin that stands
    /// behind it, naming the proxy shows which hop is guilty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited: Option<Axis<String>>,
    /// What the multiplexed protocols dial when no connection is usable.
    pub dial_policy: Axis<DialPolicy>,
}

/// A live server and what it is asked in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LiveTarget {
    /// The URL, as given.
    pub url: String,
    /// Its path and query.
    pub path: String,
    /// Of the matrix's protocols those that have cells there: what it was found to speak, or what was asked for.
    pub protocols: Axis<Protocol>,
}

/// Whether there is no sidecar in any cell.
fn is_direct(topology: &Axis<Topology>) -> bool {
    topology.values().iter().all(|topology| *topology == Topology::Direct)
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            claim: "Is HTTP/2 faster or slower than HTTP/1.1 here?".to_owned(),
            seed: Axis::one(1),
            visits: 2,
            work: WorkAxes::default(),
            link: LinkAxes::default(),
            sysctl: SysctlAxes::default(),
            matrix: MatrixAxes::default(),
            client: ClientAxes::default(),
            server: EngineSettings::default(),
            capture: Capture::default(),
            vary: Vec::new(),
            study: false,
            quick: None,
        }
    }
}

impl Default for WorkAxes {
    fn default() -> Self {
        Self {
            method: "POST".to_owned(),
            path: "/".to_owned(),
            shape: Axis::one(RequestShape::Mesh),
            headers: Vec::new(),
            body_bytes: 1024,
            body: None,
            mix: Vec::new(),
            template: false,
            rate: Axis::one(1000.0),
            arrival: ArrivalShape::Constant,
            ramp: None,
            concurrency: None,
            bulk: false,
            measure: Axis::one(Duration::from_secs(3)),
            warmup: Duration::from_millis(400),
            // A lost last segment waits for one retransmission timeout (200 ms + RTT) or two: 600 ms.
            drain: Duration::from_millis(700),
            timeout: Duration::from_secs(30),
            replay: true,
        }
    }
}

impl Default for MatrixAxes {
    fn default() -> Self {
        Self {
            origin: Axis::one("origin".to_owned()),
            topology: Axis::one(Topology::Direct),
            sidecar: None,
            arms: Vec::new(),
            live: Vec::new(),
            protocols: Axis::new(vec![Protocol::H1, Protocol::H2c]).expect("two protocols"),
            h2c_mode: H2cMode::default(),
            connections: Axis::one(ConnectionCount::Exactly(1)),
            // More than any default rate keeps in flight: one connection stays one connection.
            streams: Axis::one(100_000),
            warm_pool: 32,
            max_connections: 512,
            max_requests_per_connection: Axis::one(RequestLimit(None)),
            limited: None,
            dial_policy: Axis::one(DialPolicy::default()),
        }
    }
}

impl Scenario {
    /// Reads a scenario file and checks its values.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        let scenario = Self::of_a_run(text)?;
        scenario.validate()?;
        Ok(scenario)
    }

    /// Reads the scenario of a run that was made, without judging it again: what may be asked for can change from
    /// version to version, and a run keeps no values of header fields.
    pub fn of_a_run(text: &str) -> Result<Self, ScenarioError> {
        toml::from_str(text).map_err(|error| ScenarioError::Syntax(error.to_string().trim_end().to_owned()))
    }

    /// Writes the scenario so that [`Scenario::from_toml`] reads it back.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a scenario is plain data with string keys")
    }

    /// Checks every range.
    pub fn validate(&self) -> Result<(), ScenarioError> {
        let refuse = |field, value: String, expected| Err(ScenarioError::Range { field, value, expected });
        if !(1..=1000).contains(&self.visits) {
            return refuse("visits", self.visits.to_string(), "1 to 1000");
        }
        self.work.validate()?;
        self.sysctl.validate()?;
        self.link.validate()?;
        let matrix = &self.matrix;
        for one in matrix.matrices() {
            let is_above =
                |count: &ConnectionCount| matches!(count, ConnectionCount::Exactly(n) if *n > 20_000);
            let pools = [matrix.warm_pool, matrix.max_connections].map(ConnectionCount::Exactly);
            if one.connections.values().iter().chain(&pools).any(is_above) {
                return refuse("connections", one.connections.to_string(), "1 to 20000");
            }
        }
        if matrix.warm_pool == 0 || matrix.warm_pool > matrix.max_connections {
            return refuse("warm-pool", matrix.warm_pool.to_string(), "1 to max-connections");
        }
        if self.client.policy.reconnect_every == Some(0) {
            return refuse("reconnect-every", "0".to_owned(), "1 or more");
        }
        let policy = &self.client.policy;
        for (field, time) in
            [("cancel-after", policy.cancel_after), ("connect-timeout", policy.connect_timeout)]
        {
            if time.is_some_and(|time| time.is_zero()) {
                return refuse(field, "0".to_owned(), "above 0");
            }
        }
        for engine in [&self.client.engine, &self.server] {
            if let Some((field, value, expected)) = engine.out_of_range() {
                return refuse(field, value.to_string(), expected);
            }
        }
        refusals::combinations(self)?;
        self.variations()?;
        // A quick look that cannot be had is told when the file is read, not when somebody is in a hurry.
        self.quick.as_ref().map_or(Ok(()), |_| self.quickened().map(drop))
    }
}

impl WorkAxes {
    /// Checks every range.
    fn validate(&self) -> Result<(), ScenarioError> {
        let refuse = |field, value: String, expected| Err(ScenarioError::Range { field, value, expected });
        request(&self.method, &self.path, &self.headers)?;
        for entry in &self.mix {
            if !(1..=1_000_000).contains(&entry.weight) {
                return refuse("mix.weight", entry.weight.to_string(), "1 to 1000000");
            }
            request(entry.method.as_ref().unwrap_or(&self.method), &entry.path, &entry.headers)?;
        }
        if let Some(rate) = self.rate.values().iter().find(|rate| **rate > 10_000_000.0) {
            return refuse("rate", rate.to_string(), "above 0, at most 10000000 requests per second");
        }
        if self.concurrency.is_some_and(|n| n == 0 || n > 1_000_000) {
            return refuse("concurrency", format!("{:?}", self.concurrency.unwrap_or(0)), "1 to 1000000");
        }
        if self.body_bytes > 1 << 30 {
            return refuse("body-bytes", self.body_bytes.to_string(), "0 to 1 GiB");
        }
        for measure in self.measure.values() {
            if *measure < Duration::from_millis(100) || *measure > Duration::from_secs(24 * 3600) {
                return refuse("measure", format!("{measure:?}"), "100ms to 24h");
            }
        }
        for (field, duration) in [("warmup", self.warmup), ("drain", self.drain), ("timeout", self.timeout)] {
            if duration > Duration::from_secs(24 * 3600) || (field == "timeout" && duration.is_zero()) {
                return refuse(field, format!("{duration:?}"), "up to 24h; timeout above 0");
            }
        }
        Ok(())
    }
}

/// Checks what is sent in one kind of request.
fn request(method: &str, path: &str, headers: &[(String, String)]) -> Result<(), ScenarioError> {
    let refuse = |field, value: String, expected| Err(ScenarioError::Range { field, value, expected });
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    if !is_token(method) {
        return refuse("method", method.to_owned(), "an HTTP method such as GET or POST");
    }
    if !path.starts_with('/') || !path.bytes().all(|b| b.is_ascii_graphic()) {
        return refuse(
            "path",
            path.to_owned(),
            "a path that begins with / and has no spaces or control characters",
        );
    }
    let is_value = |text: &str| text.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f));
    if let Some((name, value)) = headers.iter().find(|(name, value)| !is_token(name) || !is_value(value)) {
        return refuse("headers", format!("{name}: {value}"), "`Name: value` without control characters");
    }
    refusals::fields(headers)
}
