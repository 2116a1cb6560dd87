//! Faults of agents and of drivers.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::doing;
use super::super::fleet::{DEADLINE, Fleet, INVALID, Launch, ORIGIN, THREE};
use super::super::raw::{Stranger, publish, subscribe};
use super::{DONE, RUN, UNREACHABLE, begun, begun_by, judged, loading, lost, says};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::Started;

/// The one to which things happen.
const VICTIM: &str = THREE[1];
/// After so long an agent whose driver is gone is free again: the silence that ends a session, and some for looking.
const FREE_WITHIN: Duration = Duration::from_secs(70);
/// What looking at three agents takes.
const LOOKS: Duration = Duration::from_secs(5);
/// For how long an agent is cut off, where it comes back.
const CUT: Duration = Duration::from_secs(5);
/// Drops what goes between this namespace and NATS.
const DROP: &str = "nft 'add table inet cut; add chain inet cut out { type filter hook output priority 0; }; \
                    add chain inet cut in { type filter hook input priority 0; }; \
                    add rule inet cut out tcp dport 4222 drop; add rule inet cut in tcp sport 4222 drop'";
const HEAL: &str = "nft delete table inet cut";

/// Another load that all three agents make.
fn works_again(outcome: &mut ItemOutcome, fleet: &Fleet<'_>) -> Result<()> {
    for name in THREE {
        fleet.await_free(name, FREE_WITHIN)?;
    }
    let ended = begun(fleet, "again")?.end(DEADLINE)?;
    let document = judged(outcome, fleet, "a load afterwards", &ended, &[DONE, INVALID], "again")?;
    lost(outcome, "a load afterwards", document.as_ref(), &[])
}

/// The packets of one agent to NATS are dropped, for a while and for good.
pub fn partition(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let fleet = Fleet::of_three(h2lab)?;
    let (node, _) = fleet.network().node(VICTIM)?;
    let driver = loading(&fleet)?;
    node.sh(DROP)?;
    std::thread::sleep(CUT);
    node.sh(HEAL)?;
    let ended = driver.end(DEADLINE)?;
    let document = judged(&mut outcome, &fleet, "cut off for 5 s", &ended, &[DONE, INVALID], RUN)?;
    lost(&mut outcome, "cut off for 5 s", document.as_ref(), &[])?;
    std::fs::rename(fleet.folder().join(RUN), fleet.folder().join("healed"))?;
    let driver = loading(&fleet)?;
    node.sh(DROP)?;
    let ended = driver.end(DEADLINE)?;
    let document = judged(&mut outcome, &fleet, "cut off for good", &ended, &[INVALID], RUN)?;
    lost(&mut outcome, "cut off for good", document.as_ref(), &[VICTIM])?;
    Ok(outcome)
}

/// An agent is killed, and started again while the load goes on.
pub fn killed(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut fleet = Fleet::of_three(h2lab)?;
    let driver = loading(&fleet)?;
    fleet.kill_agent(VICTIM)?;
    fleet.start_agents(&[VICTIM], Launch::default())?;
    let ended = driver.end(DEADLINE)?;
    let document = judged(&mut outcome, &fleet, "the load", &ended, &[INVALID], RUN)?;
    lost(&mut outcome, "the load", document.as_ref(), &[VICTIM])?;
    works_again(&mut outcome, &fleet)?;
    Ok(outcome)
}

/// An agent is stopped, and goes on when the load is over.
pub fn stopped(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let fleet = Fleet::of_three(h2lab)?;
    let driver = loading(&fleet)?;
    fleet.signal(VICTIM, "STOP")?;
    let ended = driver.end(DEADLINE)?;
    let document = judged(&mut outcome, &fleet, "the load", &ended, &[INVALID], RUN)?;
    lost(&mut outcome, "the load", document.as_ref(), &[VICTIM])?;
    fleet.signal(VICTIM, "CONT")?;
    works_again(&mut outcome, &fleet)?;
    Ok(outcome)
}

/// An agent has no room for what it measures.
pub fn disk_full(h2lab: &H2lab) -> Result<ItemOutcome> {
    const SMALL: &str = "mount -t tmpfs -o size=16k none \"$0\" && exec \"$@\"";
    let mut outcome = ItemOutcome::default();
    let mut fleet = Fleet::of_three(h2lab)?;
    let folder = fleet.folder().join("small");
    std::fs::create_dir(&folder)?;
    let path = folder.display().to_string();
    fleet.kill_agent(VICTIM)?;
    let before = ["unshare", "--mount", "sh", "-c", SMALL, path.as_str()];
    let allow = fleet.url("")?;
    let flags = ["--allow", allow.as_str(), "--folder", path.as_str()];
    fleet.start_agents(&[VICTIM], Launch { before: &before, flags: &flags, ..Launch::default() })?;
    let ended = begun(&fleet, RUN)?.end(DEADLINE)?;
    let document = judged(&mut outcome, &fleet, "the load", &ended, &[INVALID], RUN)?;
    lost(&mut outcome, "the load", document.as_ref(), &[VICTIM])?;
    says(&mut outcome, "the driver", &ended.stdout, "No space left on device");
    says(&mut outcome, VICTIM, &fleet.agent(VICTIM)?.stderr(), "failed for ");
    Ok(outcome)
}

/// A driver is killed in the middle.
pub fn driver_killed(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let fleet = Fleet::of_three(h2lab)?;
    drop(loading(&fleet)?);
    let killed = Instant::now();
    doing(format!("the driver is gone: its agents are waited for, {} s at most", FREE_WITHIN.as_secs()));
    for name in THREE {
        fleet.await_free(name, FREE_WITHIN)?;
        let after = killed.elapsed();
        let text = format!("{name} is seen free {:.1} s after its driver was killed", after.as_secs_f64());
        // The others were looked at one after the other meanwhile.
        outcome.check(after <= FREE_WITHIN + LOOKS, text);
    }
    outcome.check(fleet.report(RUN)?.is_none(), "the killed driver has left no run folder that looks whole");
    works_again(&mut outcome, &fleet)?;
    Ok(outcome)
}

/// Other drivers want the same agents, or one of them and a free one.
pub fn two_drivers(h2lab: &H2lab) -> Result<ItemOutcome> {
    const FREE: &str = "kek-4";
    let mut outcome = ItemOutcome::default();
    let mut fleet = Fleet::new(h2lab, &[THREE[0], THREE[1], THREE[2], FREE, ORIGIN])?;
    fleet.start_nats("", "")?;
    fleet.start_origin()?;
    fleet.start_agents(&[THREE[0], THREE[1], THREE[2], FREE], Launch::default())?;
    let first = loading(&fleet)?;
    // Both while the first goes on.
    let second = begun(&fleet, "second")?;
    let third = begun_by(&fleet, &[VICTIM, FREE], "third")?;
    for (what, driver) in [("second", second), ("third", third)] {
        let ended = driver.end(DEADLINE)?;
        judged(&mut outcome, &fleet, &format!("the {what}"), &ended, &[UNREACHABLE], what)?;
        says(&mut outcome, &format!("the {what}"), &ended.stderr, "busy with");
    }
    let ended = first.end(DEADLINE)?;
    let document = judged(&mut outcome, &fleet, "the first", &ended, &[DONE, INVALID], RUN)?;
    lost(&mut outcome, "the first", document.as_ref(), &[])?;
    Ok(outcome)
}

/// One that plays an agent of another version, and one that plays a driver.
pub fn other_version(h2lab: &H2lab) -> Result<ItemOutcome> {
    /// A session as a driver of an older version would begin it.
    const PACKET: &str = r#"{"agent":6,"message":{"from":1,"ack":0,"held":0}}"#;
    const SESSION: &str = "00000000000000000000000000000006";
    let mut outcome = ItemOutcome::default();
    let fleet = Fleet::of_three(h2lab)?;
    doing("an agent and a driver of version 6");
    let other = Stranger { seconds: 30, fake: "old", ..Stranger::default() };
    let _answering: Started = other.begin(&fleet, ORIGIN, &subscribe("h2lab.who"))?;
    let ended = {
        let (names, url) = (format!("{},old", THREE[0]), fleet.url("/")?);
        let words =
            ["load", "--json", "--quiet", "-q100", "-c10", "-z1s", "--agents", &names, "--out", RUN, &url];
        fleet.drive(&words)?
    };
    judged(&mut outcome, &fleet, "a load", &ended, &[UNREACHABLE], RUN)?;
    says(&mut outcome, "the driver", &ended.stderr, "uses version 6");
    let lines = subscribe(&format!("h2lab.agent.{VICTIM}.from.{SESSION}"))
        + &publish(&format!("h2lab.agent.{VICTIM}.to.{SESSION}"), PACKET);
    let said = Stranger { seconds: 3, ..Stranger::default() }.says(&fleet, ORIGIN, &lines)?;
    says(&mut outcome, "the answer to a driver of version 6", &said, "\"agent\":8");
    says(&mut outcome, "the answer to a driver of version 6", &said, "uses version 6");
    says(&mut outcome, VICTIM, &fleet.agent(VICTIM)?.stderr(), "uses version 6");
    works_again(&mut outcome, &fleet)?;
    Ok(outcome)
}
