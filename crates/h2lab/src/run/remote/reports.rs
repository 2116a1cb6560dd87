//! Which reports count. Where the NATS server has permissions, an agent can publish below its own name only: so the subject
//! says whose a report is, and what it says is compared with what that agent may measure.

use anyhow::{Result, anyhow, bail, ensure};
use h2lab_model::fleet::messages::decode_printable;
use h2lab_model::fleet::{AgentName, UnitReport};
use h2lab_nats::StoredReport;

use super::queue::Queue;

/// A report that counts.
#[derive(Debug)]
pub(super) struct Counted {
    /// Whose it is.
    pub agent: AgentName,
    /// The job of its unit.
    pub job: usize,
    /// What it says, printable.
    pub report: UnitReport,
}

/// What a report must belong to.
#[derive(Debug)]
pub(super) struct OfRun<'a> {
    /// The number of the run.
    pub run: &'a str,
    /// Its jobs, and the agents that can measure each.
    pub queue: &'a Queue,
    /// The highest attempt of each job.
    pub attempts: &'a [u32],
    /// Agents that have measured for the run before it was resumed, and may have reported since.
    pub former: &'a [AgentName],
}

/// Reads a report; the error says in printable words why it does not count.
pub(super) fn counted(stored: &StoredReport, of: &OfRun<'_>) -> Result<Counted> {
    let agent: AgentName = stored.agent.parse()?;
    let report: UnitReport = decode_printable(&String::from_utf8_lossy(&stored.payload))
        .map_err(|error| anyhow!("{agent}: {error}"))?;
    ensure!(report.agent == agent.as_str(), "{agent} reports in the name of another agent");
    let is_there =
        |job: &usize| report.run == of.run && report.unit <= of.queue.number(*job, of.attempts[*job]);
    let Some(job) = of.queue.job_of(report.unit).filter(is_there) else {
        bail!("{agent} reports unit {}, which this run does not have", report.unit);
    };
    let may_measure = of.queue.is_for(job, &agent) || of.former.contains(&agent);
    ensure!(may_measure, "{agent} reports unit {}, which is not for it", report.unit);
    ensure!(report.is_sound(), "{agent} reports a part that cannot be its own");
    Ok(Counted { agent, job, report })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use h2lab_model::fleet::messages::encode;
    use h2lab_model::fleet::{Class, UnitPart};
    use h2lab_model::record::HostId;

    use super::super::queue::{Job, JobState};
    use super::*;

    /// Two jobs: the first for a and b, the second, which was added again once, for b.
    fn queue() -> Queue {
        let class = |number, agents: &[&str]| Class {
            number,
            agents: agents.iter().map(|&agent| agent.to_owned()).collect(),
        };
        let job = |class| Job {
            cells: vec![(0, 0)],
            copy: 0,
            class,
            lacks: Vec::new(),
            missing: BTreeMap::new(),
            state: JobState::Open,
        };
        Queue { jobs: vec![job(0), job(1)], classes: vec![class(0, &["a", "b"]), class(1, &["b"])] }
    }

    fn report(agent: &str, unit: u32) -> UnitReport {
        UnitReport {
            run: "run".to_owned(),
            unit,
            agent: agent.to_owned(),
            machine: "Linux".to_owned(),
            likeness: "alike".to_owned(),
            host: HostId::default(),
            outcome: Err("nginx does not start".to_owned()),
            delivered: 3,
        }
    }

    /// What becomes of a report that was published in the name of `agent`.
    fn published(agent: &str, report: &UnitReport) -> Result<usize, String> {
        let payload = encode(report).unwrap().into_bytes();
        let stored = StoredReport { sequence: 1, agent: agent.to_owned(), payload };
        let former: [AgentName; 1] = ["old".parse().unwrap()];
        let queue = queue();
        let of = OfRun { run: "run", queue: &queue, attempts: &[0, 1], former: &former };
        counted(&stored, &of).map(|counted| counted.job).map_err(|why| why.to_string())
    }

    #[test]
    fn a_report_counts_if_its_agent_can_measure_the_unit_and_reports_in_its_own_name() {
        assert_eq!(published("a", &report("a", 0)), Ok(0));
        assert_eq!(published("b", &report("b", 1)), Ok(1));
        assert_eq!(published("old", &report("old", 1)), Ok(1), "it measured before the run was resumed");
        for (agent, named, unit, why) in [
            ("a", "b", 0, "a reports in the name of another agent"),
            ("a", "a", 1, "a reports unit 1, which is not for it"),
            ("c", "c", 0, "c reports unit 0, which is not for it"),
        ] {
            assert_eq!(published(agent, &report(named, unit)), Err(why.to_owned()));
        }
        assert!(published("a\u{1b}", &report("a", 0)).is_err_and(|why| !why.contains('\u{1b}')));
    }

    #[test]
    fn a_unit_that_was_never_in_the_queue_is_none() {
        // Job 1 was added again as unit 3; job 0, which would be unit 2, was not.
        assert_eq!(published("b", &report("b", 3)), Ok(1));
        for unit in [2, 5, u32::MAX] {
            let why = format!("b reports unit {unit}, which this run does not have");
            assert_eq!(published("b", &report("b", unit)), Err(why));
        }
        let other = UnitReport { run: "other".to_owned(), ..report("b", 0) };
        assert!(published("b", &other).is_err_and(|why| why.contains("does not have")));
    }

    #[test]
    fn a_part_of_another_agent_is_not_taken_from_this_one() {
        let part = |object: &str| {
            let part = UnitPart { object: object.to_owned(), bytes: 10, digest: "SHA-256=AAAA".to_owned() };
            UnitReport { outcome: Ok(part), ..report("a", 0) }
        };
        assert_eq!(published("a", &part("run.0.ff.a")), Ok(0));
        assert!(published("a", &part("run.0.ff.b")).is_err_and(|why| why.contains("cannot be its own")));
    }
}
