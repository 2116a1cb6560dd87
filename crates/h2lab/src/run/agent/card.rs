//! What an agent reports of its machine: all that a driver needs to know before it gives work to it.

use anyhow::{Context, Result};
use h2lab_lab::sut;
use h2lab_lab::topology::doctor::{self, DoctorCheck, StepStatus};
use h2lab_lab::topology::{SetupStep, available_congestion};
use h2lab_model::fleet::{AGENT_VERSION, AgentCard, AgentLimits, AgentName};
use h2lab_model::record::HostId;
use h2lab_net::{machine, resources};

/// How the checks of congestion controls begin, as `doctor` names them.
const CONGESTION: &str = "congestion-";

/// Where Linux says which machine this is: random(4).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The identity of this machine; it is not known where Linux does not say it.
pub(super) fn host() -> HostId {
    HostId::new(&std::fs::read_to_string(BOOT_ID).unwrap_or_default())
}

/// The card of an agent on this machine that is free and has just begun to serve. Each step of a lab is tried, and each
/// server asked for its version: call it before the first thread starts.
pub fn examined(name: AgentName, allow: Vec<String>, limits: AgentLimits) -> Result<AgentCard> {
    let examination = doctor::examine().context("cannot find out what this machine can do")?;
    let checks = examination.root.or(examination.user).unwrap_or_default();
    let programs = sut::available().into_iter().filter_map(|server| Some((server.name, server.version?)));
    let uname = rustix::system::uname();
    Ok(AgentCard {
        name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        agent: AGENT_VERSION,
        machine: machine::machine(),
        host: host(),
        kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
        cpu_model: cpu_model(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        cpus: u32::try_from(machine::cpus()).unwrap_or(u32::MAX),
        memory: resources::memory(),
        isolation: doctor::isolation_level(&checks).map(|level| level.name().to_owned()),
        realtime: is_done(&checks, SetupStep::Realtime.id()),
        programs: programs.collect(),
        congestion: congestion(&checks, available_congestion()),
        limits,
        allow,
        busy: None,
        serves_s: 0,
    })
}

fn is_done(checks: &[DoctorCheck], id: &str) -> bool {
    checks.iter().any(|check| check.id == id && check.status == StepStatus::Ok)
}

/// Those that a lab has set, which may load a module for them, and those that were `loaded` before.
fn congestion(checks: &[DoctorCheck], loaded: Vec<String>) -> Vec<String> {
    let tried = checks.iter().filter(|check| check.status == StepStatus::Ok);
    let tried = tried.filter_map(|check| check.id.strip_prefix(CONGESTION).map(str::to_owned));
    let mut all: Vec<String> = tried.chain(loaded).collect();
    all.sort();
    all.dedup();
    all
}

/// The model by `/proc/cpuinfo`, of which not every architecture has a line; then it is empty.
fn cpu_model(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map(|(_, model)| model.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: &str, status: StepStatus) -> DoctorCheck {
        DoctorCheck {
            id: id.to_owned(),
            what: String::new(),
            status,
            consequence: String::new(),
            remedy: None,
            still_works: String::new(),
        }
    }

    #[test]
    fn a_congestion_control_counts_if_it_is_loaded_or_was_set_in_a_lab() {
        let failed = StepStatus::Failed { reason: "no such file".to_owned() };
        let checks = [
            check("congestion-cubic", StepStatus::Ok),
            check("congestion-bbr", failed),
            check("route", StepStatus::Ok),
        ];
        let loaded = ["reno", "cubic"].map(str::to_owned).into();
        assert_eq!(congestion(&checks, loaded), ["cubic", "reno"]);
    }

    #[test]
    fn a_step_that_was_refused_or_not_tried_is_not_done() {
        let checks = [
            check("realtime", StepStatus::Blocked { by: "user-namespace".to_owned() }),
            check("route", StepStatus::Ok),
        ];
        assert!(is_done(&checks, "route") && !is_done(&checks, "realtime") && !is_done(&checks, "tun"));
    }

    #[test]
    fn the_model_of_the_cpu_is_that_of_the_first_one() {
        let text = "processor\t: 0\nmodel name\t: A CPU: fast\n\nprocessor\t: 1\nmodel name\t: another\n";
        assert_eq!(cpu_model(text), "A CPU: fast");
        assert_eq!(cpu_model("processor\t: 0\n"), "");
    }
}
