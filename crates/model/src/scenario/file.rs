//! A scenario: what a user asked for, as a TOML file or as flags. Both fill the same [`Scenario`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::axis::{Axis, ConnectionCount, RequestLimit};
use super::capture::CaptureOptions;
use super::client::ClientAxes;
use super::link::LinkAxes;
use super::ramp::Ramp;
use super::sysctl::SysctlAxes;
use super::topology::Topology;
use crate::workload::{Body, DialPolicy, EngineSettings, H2cMode, MixEntry, Protocol, RequestShape};
use h2lab_base::units::duration_text;

/// What to measure. Missing keys of a file take the values of [`Scenario::default`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Scenario {
    /// The claim that it tests, in a sentence.
    pub claim: String,
    /// The seed of everything random. Several seeds are several groups of cells.
    pub seed: Axis<u64>,
    /// How often each cell is measured; repetitions are pooled. Every second round runs backwards (A/B/B/A).
    #[serde(alias = "visits")]
    pub repetitions: u32,
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
    /// How our client differs from its defaults. An empty table is not written, so that the scenarios of earlier runs
    /// read the same.
    #[serde(skip_serializing_if = "ClientAxes::is_default")]
    pub client: ClientAxes,
    /// How the HTTP/2 engine of our origin behaves.
    #[serde(skip_serializing_if = "EngineSettings::is_default")]
    pub server: EngineSettings,
    /// Which packets are captured, and in what form.
    #[serde(skip_serializing_if = "CaptureOptions::is_default")]
    pub capture: CaptureOptions,
    /// Further cells, measured besides those of this scenario: each table has keys that replace the file's, and its
    /// cells follow. See [`Scenario::variations`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vary: Vec<toml::Table>,
    /// Keys that replace the file's own in a short run: see [`Scenario::quickened`]. A run has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick: Option<toml::Table>,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[allow(clippy::struct_excessive_bools, reason = "they are keys of a file, each by itself")]
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
    pub body: Option<Body>,
    /// Several kinds of requests, drawn by weight; if there is none, all are as said above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<MixEntry>,
    /// Whether `{{…}}` in paths, header values and bodies is filled anew in each request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub template: bool,
    /// Whether run folders and reports keep the values of queries in URLs and paths: they may be secrets.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub secrets: bool,
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
    /// Measured time of one repetition.
    pub measure: Axis<Duration>,
    /// Time before measuring in which requests are sent but not counted.
    #[serde(with = "duration_text")]
    pub warmup: Duration,
    /// Grace period after measuring for requests in flight.
    #[serde(with = "duration_text")]
    pub drain: Duration,
    /// A request unanswered for this long is cancelled.
    #[serde(with = "duration_text")]
    pub timeout: Duration,
    /// Whether requests that the server certainly did not process (REFUSED_STREAM, above the last stream of a GOAWAY, or
    /// its connection was closed before they arrived) are sent again; else they have failed.
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
    /// Where sidecars stand. Not written if there are none: the scenarios of earlier runs read the same.
    #[serde(skip_serializing_if = "is_direct")]
    pub topology: Axis<Topology>,
    /// The programs that are sidecars: proxies of `sut/`. Each is a group of its own in each topology that has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Axis<String>>,
    /// Several matrices instead of this one: each has these axes, except for those that it names itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<Arm>,
    /// Live servers instead, over the live network, without emulation; they are compared with each other.
    pub live: Vec<LiveTarget>,
    /// Protocols; one mentioned twice is an A/A run.
    pub protocols: Axis<Protocol>,
    /// How connections of `h2c` begin.
    pub h2c_mode: H2cMode,
    /// Connections of the multiplexed protocols.
    pub connections: Axis<ConnectionCount>,
    /// Maximum concurrent streams per connection (`-m`).
    pub streams: Axis<u32>,
    /// Connections that HTTP/1.1 opens before measuring.
    pub warm_pool: u32,
    /// Connections up to which HTTP/1.1 grows on demand.
    pub max_connections: u32,
    /// Requests after which a server that we start ends a connection: a number, or `unlimited`. With a proxy it is the
    /// proxy that does, not the origin behind it.
    pub max_requests_per_connection: Axis<RequestLimit>,
    /// The members of `origin` that have this limit; all if none is named. If a proxy and the origin behind it are both
    /// measured, naming the proxy shows which hop is at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited: Option<Axis<String>>,
    /// What the multiplexed protocols dial when no connection is usable.
    pub dial_policy: Axis<DialPolicy>,
}

/// An arm of a study, for the case that most cells of the full product are unwanted: its axes replace the matrix's. An
/// axis that it does not name is the matrix's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Arm {
    /// See [`MatrixAxes::origin`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Axis<String>>,
    /// See [`MatrixAxes::topology`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Axis<Topology>>,
    /// See [`MatrixAxes::sidecar`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Axis<String>>,
    /// See [`MatrixAxes::protocols`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocols: Option<Axis<Protocol>>,
    /// See [`MatrixAxes::connections`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<Axis<ConnectionCount>>,
}

/// A live server, and the protocols in which it is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LiveTarget {
    /// The URL, as given.
    pub url: String,
    /// Its path and query.
    pub path: String,
    /// The protocols of the matrix that have cells there: those that it was found to speak, or that were asked for.
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
            repetitions: 2,
            work: WorkAxes::default(),
            link: LinkAxes::default(),
            sysctl: SysctlAxes::default(),
            matrix: MatrixAxes::default(),
            client: ClientAxes::default(),
            server: EngineSettings::default(),
            capture: CaptureOptions::default(),
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
            secrets: false,
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

impl Arm {
    /// `matrix` with this arm's axes, and without arms.
    fn of(&self, matrix: &MatrixAxes) -> MatrixAxes {
        fn own<T: Clone>(axis: Option<&Axis<T>>, otherwise: &Axis<T>) -> Axis<T> {
            axis.unwrap_or(otherwise).clone()
        }
        MatrixAxes {
            origin: own(self.origin.as_ref(), &matrix.origin),
            topology: own(self.topology.as_ref(), &matrix.topology),
            sidecar: self.sidecar.clone().or_else(|| matrix.sidecar.clone()),
            protocols: own(self.protocols.as_ref(), &matrix.protocols),
            connections: own(self.connections.as_ref(), &matrix.connections),
            arms: Vec::new(),
            ..matrix.clone()
        }
    }
}

impl MatrixAxes {
    /// The matrices that this one stands for: one for each arm, or itself.
    pub fn matrices(&self) -> Vec<Self> {
        match self.arms.as_slice() {
            [] => vec![self.clone()],
            arms => arms.iter().map(|arm| arm.of(self)).collect(),
        }
    }
}
