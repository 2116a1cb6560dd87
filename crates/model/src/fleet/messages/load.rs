//! What is said of a load that several agents make: the task of a share, its progress, and where its records are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fleet::{Reach, Trust};
use crate::record::{Histogram, HostId, Level};
use crate::scenario::{Cell, Scenario, ScenarioError};
use crate::workload::{Protocol, Share};
use h2lab_base::units::Time;

/// The largest sound count: a thousand million requests per second for three days. Ten thousand of them can be added up.
const MOST_COUNT: u64 = 1 << 48;
/// The longest sound time, in nanoseconds: 36 years.
const MOST_NANOS: u128 = 1 << 60;
/// The most bytes of a part: an exabyte.
const MOST_BYTES: u64 = 1 << 60;
/// The longest name of a part.
const LONGEST_OBJECT: usize = 200;
/// The longest digest: that of SHA-512 in hexadecimal digits.
const LONGEST_DIGEST: usize = 128;

/// One agent's share of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadTask {
    /// What the whole load is. The agent plans its only cell itself ([`LoadTask::cell`]), so that all checks of a file apply.
    pub scenario: Scenario,
    /// Congestion control of the generator's sockets; `None` leaves the system's.
    pub congestion: Option<String>,
    /// At most so many requests are sent, by all shares together; `None` leaves it to the phases.
    pub requests: Option<u64>,
    /// Which part of the load is this agent's.
    pub share: Share,
    /// Threads of the generator, 1 or more.
    pub threads: u32,
    /// What is kept of each request.
    pub level: Level,
    /// Whether every frame is recorded.
    pub frames: bool,
    /// The URL, with its path.
    pub url: String,
    /// Where its server is looked for.
    pub reach: Reach,
    /// What to trust and to present in TLS.
    pub trust: Trust,
    /// The protocol.
    pub protocol: Protocol,
}

/// Why a task of a load cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum LoadTaskError {
    /// The driver's scenario would be refused as a file, too.
    #[error("the driver's scenario is refused: {0}")]
    Scenario(#[from] ScenarioError),
    /// It is a matrix, or measures nothing.
    #[error("the driver's scenario is no load: it has not exactly one cell, at one live server")]
    NotOneCell,
    /// The scenario's cell, which is what is spoken, has another protocol than the task.
    #[error("the driver's load is of {task}, and its scenario of {scenario}: both must be the same")]
    OtherProtocol {
        /// The task's.
        task: &'static str,
        /// The scenario's.
        scenario: &'static str,
    },
}

impl LoadTask {
    /// The cell of the whole load. What a driver sends is checked as a file is, and never expanded to more than one cell. Its
    /// protocol is the task's.
    pub fn cell(&self) -> Result<Cell, LoadTaskError> {
        let Scenario { seed, repetitions, work, matrix, vary, quick, .. } = &self.scenario;
        let varies = [
            seed.varies(),
            work.shape.varies(),
            work.rate.varies(),
            work.measure.varies(),
            matrix.protocols.varies(),
            matrix.connections.varies(),
            matrix.streams.varies(),
            matrix.dial_policy.varies(),
            !matrix.arms.is_empty(),
            !vary.is_empty(),
            quick.is_some(),
        ];
        if *repetitions != 1 || matrix.live.len() != 1 || varies.contains(&true) {
            return Err(LoadTaskError::NotOneCell);
        }
        let mut plan = self.scenario.as_received()?.plan();
        let (Some(mut cell), true) = (plan.pop(), plan.is_empty()) else {
            return Err(LoadTaskError::NotOneCell);
        };
        if cell.protocol != self.protocol {
            let (task, scenario) = (self.protocol.name(), cell.protocol.name());
            return Err(LoadTaskError::OtherProtocol { task, scenario });
        }
        // The plan has none, since a live server has no emulated link: this one is of the generator's sockets.
        cell.congestion.clone_from(&self.congestion);
        Ok(cell)
    }
}

/// How far a share is, reported a few times per second: counts since its beginning, warm-up included.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShareProgress {
    /// Since the first request of the load was due; zero before.
    pub elapsed: Duration,
    /// Warm-up and measured time together.
    pub total: Duration,
    /// Requests that were due so far.
    pub due: u64,
    /// Requests that were answered with 2xx or 3xx.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests waiting for a connection or a stream.
    pub waiting: u64,
    /// Requests that have a connection and have not ended.
    pub in_flight: u64,
    /// Connections that are up.
    pub connections: u32,
    /// Connections that were established so far.
    pub opened: u64,
    /// Response times of the requests that succeeded since the last report.
    pub recent: Histogram,
}

impl ShareProgress {
    /// Whether its numbers can be added up: they come from another machine.
    pub(in crate::fleet) fn is_sound(&self) -> bool {
        let counts = [
            self.due,
            self.succeeded,
            self.failed,
            self.waiting,
            self.in_flight,
            self.opened,
            self.recent.n(),
        ];
        let times = [self.elapsed, self.total];
        counts.iter().all(|count| *count <= MOST_COUNT)
            && times.iter().all(|time| time.as_nanos() <= MOST_NANOS)
            && self.recent.adds_up()
    }

    /// Whether it can be later than `earlier`: time and counts do not go backwards. What says the same is its double, whatever
    /// its response times.
    pub(in crate::fleet) fn follows(&self, earlier: &Self) -> bool {
        let counts = |of: &Self| [of.due, of.succeeded, of.failed, of.opened];
        let states = |of: &Self| [of.waiting, of.in_flight, u64::from(of.connections)];
        let rises = counts(self).iter().zip(counts(earlier)).all(|(later, before)| *later >= before);
        let is_double =
            (self.elapsed, counts(self), states(self)) == (earlier.elapsed, counts(earlier), states(earlier));
        self.elapsed >= earlier.elapsed && rises && !is_double
    }

    /// Adds another share's: counts are sums, times those of the share that is farthest.
    pub(in crate::fleet) fn add(&mut self, other: &Self) {
        self.elapsed = self.elapsed.max(other.elapsed);
        self.total = self.total.max(other.total);
        for (sum, count) in [
            (&mut self.due, other.due),
            (&mut self.succeeded, other.succeeded),
            (&mut self.failed, other.failed),
            (&mut self.waiting, other.waiting),
            (&mut self.in_flight, other.in_flight),
            (&mut self.opened, other.opened),
        ] {
            *sum = sum.saturating_add(count);
        }
        self.connections = self.connections.saturating_add(other.connections);
        self.recent.merge(&other.recent);
    }

    /// The same of a share that is over: nothing of it waits, is in flight or is connected any more.
    #[must_use]
    pub(in crate::fleet) fn when_over(&self) -> Self {
        let Self { elapsed, total, due, succeeded, failed, opened, .. } = *self;
        Self { elapsed, total, due, succeeded, failed, opened, ..Self::default() }
    }
}

/// A share is over, and its records are stored: a *part*, the run folder that the agent packed and put into the object store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartReport {
    /// The part's name there. It ends with a point and the agent's name.
    pub object: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The digest that the store computed of it.
    pub digest: String,
    /// When the load's schedule began at this agent, by its own clock: the common instant, or later if it was not ready.
    pub started_at: Time,
    /// Where that clock begins on the monotonic clock of the agent's machine, in nanoseconds: two machines are compared by
    /// their clocks, not by when their processes began.
    #[serde(default)]
    pub clock_origin_ns: u64,
    /// Which machine that is.
    #[serde(default)]
    pub host: HostId,
    /// How long after it was due the share's first request was sent.
    pub late: Duration,
    /// Whether the share ended before its time was over.
    pub interrupted: bool,
    /// CPU time of the generator's threads.
    pub cpu: Duration,
    /// Its counts at the end, without response times: what is known if the part is lost after all.
    pub last: ShareProgress,
}

impl PartReport {
    /// Whether its numbers can be added up and its texts be used: they come from another machine. The part must be one of
    /// `agent`: an agent must not be able to lead a driver to the part of another.
    pub(in crate::fleet) fn is_sound(&self, agent: &str) -> bool {
        is_part_of(&self.object, &self.digest, self.bytes, agent)
            && [self.late, self.cpu].iter().all(|time| time.as_nanos() <= MOST_NANOS)
            && self.started_at.happened()
            && self.last.is_sound()
    }
}

/// Whether this can be the name, the digest and the size of a part that `agent` has stored.
pub(in crate::fleet) fn is_part_of(object: &str, digest: &str, bytes: u64, agent: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let of_agent = object.rsplit_once('.').is_some_and(|(before, name)| !before.is_empty() && name == agent);
    of_agent
        && object.len() <= LONGEST_OBJECT
        && object.chars().all(is_plain)
        && digest.len() <= LONGEST_DIGEST
        && digest.chars().all(|c| c.is_ascii_graphic())
        && bytes <= MOST_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing;
    use crate::scenario::Axis;

    #[test]
    fn a_task_is_planned_by_the_agent_and_has_the_cell_of_the_whole_load() {
        let task = LoadTask { share: Share { number: 1, of: 3 }, ..testing::load_task() };
        let cell = task.cell().unwrap();
        assert_eq!(cell.work.arrival.rate(), Some(6_000.0));
        assert_eq!(cell.congestion.as_deref(), Some("bbr"));
    }

    #[test]
    fn what_is_more_than_one_cell_or_would_be_refused_in_a_file_is_no_task() {
        let changed = |change: fn(&mut Scenario)| {
            let mut task = testing::load_task();
            change(&mut task.scenario);
            task.cell()
        };
        let matrices: [fn(&mut Scenario); 6] = [
            |scenario| scenario.repetitions = 2,
            |scenario| scenario.seed = Axis::new(vec![1, 2]).unwrap(),
            |scenario| scenario.matrix.streams = Axis::new(vec![1, 2]).unwrap(),
            |scenario| scenario.matrix.live.clear(),
            |scenario| scenario.matrix.live[0].protocols = Axis::one(Protocol::H1),
            |scenario| scenario.vary.push("repetitions = 1".parse().unwrap()),
        ];
        for change in matrices {
            assert!(matches!(changed(change), Err(LoadTaskError::NotOneCell)));
        }
        let refused = changed(|scenario| scenario.work.rate = Axis::one(1e9)).unwrap_err();
        assert!(matches!(refused, LoadTaskError::Scenario(_)), "{refused}");
        assert!(refused.to_string().contains("rate"), "{refused}");
    }

    #[test]
    fn a_task_whose_scenario_speaks_another_protocol_is_refused() {
        let of = |protocol| LoadTask { protocol, ..testing::load_task() }.cell();
        assert_eq!(of(Protocol::H2).unwrap().protocol, Protocol::H2);
        let refused = of(Protocol::H1s).unwrap_err();
        assert!(matches!(refused, LoadTaskError::OtherProtocol { .. }), "{refused}");
        assert!(refused.to_string().contains("h1s") && refused.to_string().contains("h2"), "{refused}");
    }

    #[test]
    fn progress_goes_forwards_and_a_double_is_no_progress() {
        let earlier = testing::share_progress(5);
        assert!(testing::share_progress(6).follows(&earlier));
        assert!(!testing::share_progress(4).follows(&earlier));
        assert!(!earlier.follows(&earlier));
        let fewer = ShareProgress { due: earlier.due - 1, ..testing::share_progress(6) };
        assert!(!fewer.follows(&earlier));
        let dialled = ShareProgress { connections: earlier.connections + 1, ..earlier.clone() };
        assert!(dialled.follows(&earlier), "connections come and go while no time passes");
    }

    #[test]
    fn counts_of_shares_are_added_and_times_are_not() {
        let mut sum = testing::share_progress(5);
        sum.add(&testing::share_progress(6));
        assert_eq!((sum.elapsed, sum.due), (Duration::from_secs(6), 22_000));
        assert_eq!((sum.connections, sum.recent.n()), (16, 4));
        let over = sum.when_over();
        assert_eq!((over.due, over.in_flight, over.connections, over.recent.n()), (22_000, 0, 0, 0));
    }

    #[test]
    fn progress_that_nobody_could_add_up_is_not_sound() {
        let sound = testing::share_progress(5);
        assert!(sound.is_sound());
        assert!(ShareProgress { due: MOST_COUNT, ..sound.clone() }.is_sound());
        let histogram = |text: &str| serde_json::from_str::<Histogram>(text).unwrap();
        for wrong in [
            ShareProgress { due: MOST_COUNT + 1, ..sound.clone() },
            ShareProgress { opened: u64::MAX, ..sound.clone() },
            ShareProgress { elapsed: Duration::MAX, ..sound.clone() },
            ShareProgress {
                recent: histogram(r#"{"buckets":[[1,2]],"n":3,"sum_ns":3,"min_ns":1,"max_ns":1}"#),
                ..sound.clone()
            },
            ShareProgress {
                recent: histogram(r#"{"buckets":[[5,1],[1,1]],"n":2,"sum_ns":6,"min_ns":1,"max_ns":5}"#),
                ..sound.clone()
            },
            ShareProgress {
                recent: histogram(r#"{"buckets":[[1,1]],"n":1,"sum_ns":1,"min_ns":9,"max_ns":1}"#),
                ..sound
            },
        ] {
            assert!(!wrong.is_sound(), "{wrong:?}");
        }
    }

    #[test]
    fn a_part_is_the_agents_own_or_none() {
        let report = testing::part_report("kek-1");
        assert!(report.is_sound("kek-1"));
        assert!(!report.is_sound("kek-2") && !report.is_sound("1"));
        for wrong in [
            PartReport { object: "kek-1".to_owned(), ..report.clone() },
            PartReport { object: "../x.kek-1".to_owned(), ..report.clone() },
            PartReport { object: format!("{}.kek-1", "x".repeat(195)), ..report.clone() },
            PartReport { digest: "SHA-256=\u{1b}[2J".to_owned(), ..report.clone() },
            PartReport { digest: "x".repeat(129), ..report.clone() },
            PartReport { bytes: u64::MAX, ..report.clone() },
            PartReport { late: Duration::MAX, ..report.clone() },
            PartReport { started_at: Time::NEVER, ..report.clone() },
            PartReport { last: ShareProgress { due: u64::MAX, ..report.last.clone() }, ..report.clone() },
        ] {
            assert!(!wrong.is_sound("kek-1"), "{wrong:?}");
        }
        let longest = PartReport { object: format!("{}.kek-1", "x".repeat(194)), ..report };
        assert!(longest.is_sound("kek-1"));
    }
}
