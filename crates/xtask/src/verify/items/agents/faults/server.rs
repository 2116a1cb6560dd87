//! Faults of the NATS server, and what it refuses.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::super::doing;
use super::super::fleet::{DEADLINE, Fleet, INVALID, Launch, ORIGIN, THREE, send};
use super::super::raw::{Stranger, publish, subscribe};
use super::{DONE, RUN, UNREACHABLE, begun, judged, loading, lost, says};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::Ending;

/// For how long the server is away.
const AWAY: Duration = Duration::from_secs(2);
/// A driver waits 10 s for a server that is absent; the rest is what a busy machine takes.
const GIVEN_UP: Duration = Duration::from_secs(20);

/// It is killed and started again.
pub fn restarted(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut fleet = Fleet::of_three(h2lab)?;
    let driver = loading(&fleet)?;
    fleet.kill_nats();
    std::thread::sleep(AWAY);
    fleet.start_nats("", "")?;
    let ended = driver.end(DEADLINE)?;
    let document = judged(&mut outcome, &fleet, "the load", &ended, &[DONE, INVALID], RUN)?;
    lost(&mut outcome, "the load", document.as_ref(), &[])?;
    for name in THREE {
        let log = fleet.agent(name)?.stderr();
        says(&mut outcome, name, &log, "disconnected from NATS");
        says(&mut outcome, name, &log, "connected again");
    }
    Ok(outcome)
}

/// It is not there when agents and drivers start.
pub fn absent(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut fleet = Fleet::new(h2lab, &[THREE[0], THREE[1], THREE[2], ORIGIN])?;
    fleet.start_origin()?;
    for name in THREE {
        fleet.begin_agent(name, Launch::default())?;
    }
    doing("agents and drivers without a server");
    let ended = fleet.drive(&["agents", "--json"])?;
    let text =
        format!("agents: {} after {:.1} s: {}", ended.ending, ended.took.as_secs_f64(), ended.last_words());
    let is_told = ended.ending == Ending::Code(UNREACHABLE) && ended.stderr.contains("no connection to NATS");
    outcome.check(is_told && ended.took <= GIVEN_UP, text);
    let ended = begun(&fleet, RUN)?.end(DEADLINE)?;
    judged(&mut outcome, &fleet, "a load", &ended, &[UNREACHABLE], RUN)?;
    outcome.check(ended.took <= GIVEN_UP, format!("a load ends after {:.1} s", ended.took.as_secs_f64()));
    says(&mut outcome, THREE[0], &fleet.agent(THREE[0])?.stderr(), "waits for the NATS server");
    fleet.start_nats("", "")?;
    for name in THREE {
        fleet.await_agent(name)?;
    }
    let ended = begun(&fleet, "later")?.end(DEADLINE)?;
    let document = judged(&mut outcome, &fleet, "a load later", &ended, &[DONE, INVALID], "later")?;
    lost(&mut outcome, "a load later", document.as_ref(), &[])?;
    Ok(outcome)
}

/// A client subscribes and never reads.
pub fn slow(h2lab: &H2lab) -> Result<ItemOutcome> {
    /// What is sent to it: more than the server keeps for a client, and than sockets hold.
    const MESSAGES: usize = 128;
    let mut outcome = ItemOutcome::default();
    let mut fleet = Fleet::of_three(h2lab)?;
    fleet.kill_nats();
    fleet.start_nats("", "max_pending: 8MB\nwrite_deadline: \"2s\"")?;
    for name in THREE {
        fleet.await_free(name, DEADLINE)?;
    }
    let driver = loading(&fleet)?;
    let reader =
        Stranger { seconds: 60, ..Stranger::default() }.begin(&fleet, ORIGIN, &subscribe("flood"))?;
    std::thread::sleep(AWAY);
    send(&reader, "STOP")?;
    let flood = publish("flood", &"x".repeat(900_000)).repeat(MESSAGES);
    let said = Stranger { seconds: 5, ..Stranger::default() }.says(&fleet, ORIGIN, &flood)?;
    ensure!(said.contains("PONG"), "the flood was not taken: {said}");
    let ended = driver.end(DEADLINE)?;
    let document = judged(&mut outcome, &fleet, "the load", &ended, &[DONE, INVALID], RUN)?;
    lost(&mut outcome, "the load", document.as_ref(), &[])?;
    says(&mut outcome, "nats-server", &fleet.nats_log(), "Slow Consumer");
    Ok(outcome)
}

/// `JetStream` has no room for the parts.
pub fn quota(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut fleet = Fleet::new(h2lab, &[THREE[0], THREE[1], THREE[2], ORIGIN])?;
    fleet.start_nats("max_file_store: 16KB", "")?;
    fleet.start_origin()?;
    fleet.start_agents(&THREE, Launch::default())?;
    let ended = begun(&fleet, RUN)?.end(DEADLINE)?;
    judged(&mut outcome, &fleet, "a load", &ended, &[UNREACHABLE], RUN)?;
    outcome.check(fleet.report(RUN)?.is_none(), "no run folder");
    says(&mut outcome, "the driver", &ended.stderr, "NATS cannot store more");
    for name in THREE {
        says(&mut outcome, name, &fleet.agent(name)?.stderr(), "failed for ");
    }
    Ok(outcome)
}

/// One agent may not store parts.
pub fn permission(h2lab: &H2lab) -> Result<ItemOutcome> {
    const USERS: &str = "authorization {\n  users: [\n    { user: \"all\", password: \"pass\" }\n    { user: \"less\", password: \
                         \"pass\", permissions: { publish: { deny: [\"$O.>\"] } } }\n  ]\n}";
    let mut outcome = ItemOutcome::default();
    let mut fleet = Fleet::new(h2lab, &[THREE[0], THREE[1], THREE[2], ORIGIN])?;
    fleet.start_nats("", USERS)?;
    fleet.start_origin()?;
    std::fs::write(fleet.folder().join("password"), "pass\n")?;
    let allow = fleet.url("")?;
    for name in THREE {
        let user = if name == THREE[1] { "less" } else { "all" };
        let flags = ["--allow", &allow, "--nats-user", user, "--nats-password-file", "password"];
        fleet.start_agents(&[name], Launch { flags: &flags, ..Launch::default() })?;
    }
    let (names, url) = (THREE.join(","), fleet.url("/")?);
    let words = [
        "load",
        "--json",
        "--quiet",
        "--record",
        "full",
        "-c30",
        "-q600",
        "-z5s",
        "--agents",
        &names,
        "--out",
        RUN,
        "--nats-user",
        "all",
        "--nats-password-file",
        "password",
        &url,
    ];
    doing("a load of 5 s by three agents");
    let ended = fleet.drive(&words)?;
    let document = judged(&mut outcome, &fleet, "a load", &ended, &[INVALID], RUN)?;
    lost(&mut outcome, "a load", document.as_ref(), &[THREE[1]])?;
    says(&mut outcome, "the driver", &ended.stdout, "does not permit this user the subject `$O.H2LAB_PARTS.");
    says(&mut outcome, THREE[1], &fleet.agent(THREE[1])?.stderr(), "failed for ");
    Ok(outcome)
}
