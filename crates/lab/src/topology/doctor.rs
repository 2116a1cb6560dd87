//! What this machine allows: every step of a run is performed, not inferred from settings.

use h2lab_base::JsonSchema;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Gid, Signal, Uid, geteuid, getpid, kill_process, set_dumpable_behavior,
};
use rustix::thread::{UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde::{Deserialize, Serialize};

use super::address::Addressing;
use super::capability_check::{Refusal, in_child};
use super::device::{self, Device};
use super::enter::{IsolationLevel, enter_network_namespace, enter_user_namespace};
use super::error::{During, Result, TopologyError};
use super::namespaces::Namespaces;
use super::netlink::Netlink;
use super::netns_handle::{NetnsHandle, new_namespace, within};
use super::sched;
use super::setup_step::SetupStep;
use super::side::Side;
use super::spec::{Mechanism, TopologySpec};
use super::supervisor::die_with_parent;
use super::sys::{Forked, exit_now, fork, threads, unshare, wait_for};
use super::sysctl::{self, Sysctl};

/// Steps of only one of the two mechanisms to move packets: veth pairs with packet rings, or TUN devices.
const WAYS: [SetupStep; 5] =
    [SetupStep::Veth, SetupStep::Offload, SetupStep::Neighbour, SetupStep::PacketRing, SetupStep::Tun];
/// The user as which root performs the steps, too: `nobody` exists everywhere and has no privileges.
const UNPRIVILEGED: u32 = 65_534;
/// Congestion controls that comparisons are usually made with.
const CONGESTIONS: [&str; 3] = ["cubic", "bbr", "reno"];
/// How long a child may take to die with its parent.
const TIMEOUT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Whether a step can be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum StepStatus {
    /// It was done.
    Ok,
    /// It was refused.
    Failed {
        /// The kernel's answer.
        reason: String,
    },
    /// It could not be tried, because an earlier step was refused.
    Blocked {
        /// Id of the earlier step.
        by: String,
    },
    /// This user can do without.
    NotNeeded {
        /// Why.
        reason: String,
    },
}

/// One step of a run, and whether this machine allows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorCheck {
    /// The stable name: `user-namespace`, `route`, `congestion-bbr` …
    pub id: String,
    /// What was tried.
    pub what: String,
    /// The result.
    pub status: StepStatus,
    /// What does not work without it.
    pub consequence: String,
    /// The line that enables it, as far as this machine shows the cause.
    pub remedy: Option<String>,
    /// What still works without it.
    pub still_works: String,
}

impl DoctorCheck {
    /// Whether nothing depends on this step, or it succeeded.
    pub const fn is_fine(&self) -> bool {
        matches!(self.status, StepStatus::Ok | StepStatus::NotNeeded { .. })
    }

    /// Whether a run over the emulated link is impossible without it. Real-time priority and single congestion controls
    /// are optional. One of the two mechanisms to move packets is enough, which the step `connection` proves. The
    /// reflector is the fallback where the others are unavailable, see [`isolation_level`].
    pub fn is_required(&self) -> bool {
        let is_of_one_way = WAYS.iter().any(|step| step.id() == self.id);
        let is_extra = [SetupStep::Realtime, SetupStep::Reflector].iter().any(|step| step.id() == self.id);
        !is_of_one_way && !is_extra && !self.id.starts_with("congestion-")
    }
}

/// What root and a plain user can do here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Examination {
    /// As root; `None` unless h2lab was started as root.
    pub root: Option<Vec<DoctorCheck>>,
    /// As this user. If h2lab was started as root: as `nobody`, or `None` where this root may not change its user.
    pub user: Option<Vec<DoctorCheck>>,
}

/// The isolation level of runs with these answers; `None`: there can be no emulated link.
pub fn isolation_level(checks: &[DoctorCheck]) -> Option<IsolationLevel> {
    let find = |step: SetupStep| checks.iter().find(|check| check.id == step.id());
    if checks.iter().all(|check| check.is_fine() || !check.is_required()) {
        let needs_none = find(SetupStep::UserNamespace)
            .is_some_and(|check| matches!(check.status, StepStatus::NotNeeded { .. }));
        return Some(if needs_none { IsolationLevel::Root } else { IsolationLevel::User });
    }
    find(SetupStep::Reflector)
        .filter(|check| check.status == StepStatus::Ok)
        .map(|_| IsolationLevel::Reflector)
}

/// Performs each step in a process of its own, which ends with everything that it made. Call it before the first thread starts.
pub fn examine() -> Result<Examination> {
    match threads() {
        Ok(1) | Err(_) => {}
        Ok(threads) => return Err(TopologyError::ThreadsRunning { threads }),
    }
    if !geteuid().is_root() {
        return Ok(Examination { root: None, user: Some(examine_as(None)?) });
    }
    let can_be_user = in_child(&|| become_user(UNPRIVILEGED))?.is_none();
    let user = can_be_user.then(|| examine_as(Some(UNPRIVILEGED))).transpose()?;
    Ok(Examination { root: Some(examine_as(None)?), user })
}

/// A step of the list, with how it is tried.
struct CapabilityCheck {
    id: String,
    what: String,
    step: SetupStep,
    consequence: String,
    still_works: &'static str,
    run: Box<dyn Fn() -> Result<()>>,
}

const NO_LINK: &str = "no emulated link: `compare` without a URL and scenarios with a link";
const URLS: &str = "`compare URL` against live servers, and reports of earlier runs";
const ALL: &str = "everything";
const NO_RING: &str = "TUN devices move packets instead, if `tun` works: delays are then less exact when the pump is \
     late, since packets have no arrival timestamp; otherwise, no emulated link";
const NO_TUN: &str = "nothing changes while `packet-ring` works: TUN devices are only the fallback";

/// All steps, in the order of a run.
fn capability_checks() -> Vec<CapabilityCheck> {
    let needed = CapabilityCheck::needed;
    let of_ring = |step: SetupStep, run: fn() -> Result<()>| CapabilityCheck {
        consequence: NO_RING.to_owned(),
        still_works: "the emulated link, if `tun` works",
        ..needed(step, run)
    };
    let mut capability_checks = vec![
        needed(SetupStep::UserNamespace, enter_user_namespace),
        needed(SetupStep::NetworkNamespace, || enter_network_namespace().map(drop)),
        needed(SetupStep::MountNamespace, || isolated(UnshareFlags::NEWNS, SetupStep::MountNamespace)),
        needed(SetupStep::PidNamespace, try_pid_namespace),
        needed(SetupStep::DeathSignal, try_death_signal),
        needed(SetupStep::Sysctl, try_sysctl),
        of_ring(SetupStep::Veth, || on_device(&[Mechanism::PacketRing], Device::set_up)),
        of_ring(SetupStep::Offload, || on_device(&[Mechanism::PacketRing], Device::limit_offload)),
        of_ring(SetupStep::Neighbour, || on_device(&[Mechanism::PacketRing], add_neighbour)),
        of_ring(SetupStep::PacketRing, try_ring),
        CapabilityCheck {
            consequence: NO_TUN.to_owned(),
            still_works: ALL,
            ..needed(SetupStep::Tun, || on_device(&[Mechanism::Tun], Device::set_up))
        },
        needed(SetupStep::Address, || on_device(&EITHER, Device::add_address)),
        needed(SetupStep::Route, || on_device(&EITHER, |device| add_route(device, None))),
        needed(SetupStep::Connection, try_connection),
    ];
    capability_checks.extend(CONGESTIONS.map(|name| CapabilityCheck {
        id: format!("congestion-{name}"),
        what: format!("add a route with congestion control `{name}`"),
        step: SetupStep::Route,
        consequence: format!("no measurements with `--congestion {name}`"),
        still_works: "the other congestion controls",
        run: Box::new(move || on_device(&EITHER, |device| add_route(device, Some(name)))),
    }));
    capability_checks.push(CapabilityCheck {
        consequence:
            "on a busy machine packets leave the link late; repetitions in which they are too late are run again"
                .to_owned(),
        still_works: ALL,
        ..needed(SetupStep::Realtime, || sched::make_realtime().during(SetupStep::Realtime))
    });
    capability_checks
}

/// Tries all steps as this user or as another.
fn examine_as(user: Option<u32>) -> Result<Vec<DoctorCheck>> {
    let is_root = user.is_none() && geteuid().is_root();
    let mut checks = Vec::new();
    for capability_check in capability_checks() {
        let outcome = in_child(&|| user.map_or(Ok(()), become_user).and_then(|()| (capability_check.run)()))?;
        checks.push(capability_check.judge(outcome));
    }
    let reflector = examine_reflector(&checks, user)?;
    checks.push(reflector);
    let has = |step: SetupStep| checks.iter().any(|check| check.id == step.id() && check.is_fine());
    if is_root && has(SetupStep::NetworkNamespace) && !needs_user_namespace()? {
        checks[0].status =
            StepStatus::NotNeeded { reason: "root creates network namespaces without one".to_owned() };
        checks[0].remedy = None;
    }
    Ok(checks)
}

/// Whether both ends can be in this network namespace. Only tried where they cannot have their own namespaces: the
/// capability check creates devices beside the machine's.
fn examine_reflector(others: &[DoctorCheck], user: Option<u32>) -> Result<DoctorCheck> {
    let capability_check = CapabilityCheck::needed(SetupStep::Reflector, try_reflector);
    if isolation_level(others).is_some() {
        let reason = "each end has its own namespace".to_owned();
        return Ok(DoctorCheck { status: StepStatus::NotNeeded { reason }, ..capability_check.judge(None) });
    }
    let outcome = in_child(&|| user.map_or(Ok(()), become_user).and_then(|()| (capability_check.run)()))?;
    Ok(capability_check.judge(outcome))
}

/// Whether root is refused a network namespace of its own, as in most containers.
fn needs_user_namespace() -> Result<bool> {
    let direct = || unshare(UnshareFlags::NEWNET).during(SetupStep::NetworkNamespace);
    Ok(in_child(&direct)?.is_some())
}

impl CapabilityCheck {
    /// A step that the emulated link requires.
    fn needed(step: SetupStep, run: fn() -> Result<()>) -> Self {
        Self {
            id: step.id().to_owned(),
            what: step.what().to_owned(),
            step,
            consequence: NO_LINK.to_owned(),
            still_works: URLS,
            run: Box::new(run),
        }
    }

    fn judge(self, refusal: Option<Refusal>) -> DoctorCheck {
        let (status, remedy) = match refusal {
            None => (StepStatus::Ok, None),
            Some(refusal) if refusal.step == self.step.id() => {
                (StepStatus::Failed { reason: refusal.reason }, refusal.remedy)
            }
            Some(refusal) => (StepStatus::Blocked { by: refusal.step }, None),
        };
        let Self { id, what, consequence, still_works, .. } = self;
        DoctorCheck { id, what, status, consequence, remedy, still_works: still_works.to_owned() }
    }
}

/// Gives up root's privileges permanently: the process then has those of a program that this user started.
fn become_user(user: u32) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    set_thread_groups(&[]).during(SetupStep::UserNamespace)?;
    set_thread_res_gid(gid, gid, gid).during(SetupStep::UserNamespace)?;
    set_thread_res_uid(uid, uid, uid).during(SetupStep::UserNamespace)?;
    // A change of user loses access to our own /proc/self/uid_map; a program started by that user has it.
    set_dumpable_behavior(DumpableBehavior::Dumpable).during(SetupStep::UserNamespace)
}

/// Enters a network namespace, then another one of the kind of `flags`.
fn isolated(flags: UnshareFlags, step: SetupStep) -> Result<()> {
    enter_network_namespace()?;
    unshare(flags).during(step)
}

fn try_pid_namespace() -> Result<()> {
    isolated(UnshareFlags::NEWPID, SetupStep::PidNamespace)?;
    match fork().during(SetupStep::PidNamespace)? {
        Forked::Child => exit_now(i32::from(!getpid().is_init())),
        Forked::Parent(child) if wait_for(child) == 0 => Ok(()),
        Forked::Parent(_) => Err(TopologyError::refused(
            SetupStep::PidNamespace,
            std::io::Error::other("its first process is not 1"),
        )),
    }
}

/// Starts a process that starts another, kills the first, and checks whether the other dies with it.
fn try_death_signal() -> Result<()> {
    let (alive, lifeline) = pipe_with(PipeFlags::CLOEXEC).during(SetupStep::DeathSignal)?;
    let (ready, readied) = pipe_with(PipeFlags::CLOEXEC).during(SetupStep::DeathSignal)?;
    let Forked::Parent(middle) = fork().during(SetupStep::DeathSignal)? else {
        live_and_let_die(&readied);
    };
    drop((lifeline, readied));
    let mut fds = [PollFd::new(&ready, PollFlags::IN)];
    poll(&mut fds, Some(&TIMEOUT)).during(SetupStep::DeathSignal)?;
    kill_process(middle, Signal::KILL).during(SetupStep::DeathSignal)?;
    wait_for(middle);
    // Only the two children held the other end.
    let mut fds = [PollFd::new(&alive, PollFlags::IN)];
    match poll(&mut fds, Some(&TIMEOUT)).during(SetupStep::DeathSignal)? {
        0 => Err(TopologyError::refused(
            SetupStep::DeathSignal,
            std::io::Error::other("the child outlived its parent"),
        )),
        _ => Ok(()),
    }
}

/// The first process of [`try_death_signal`] and the other one; both wait to be killed.
fn live_and_let_die(readied: &std::os::fd::OwnedFd) -> ! {
    let Ok((alive, lifeline)) = pipe_with(PipeFlags::CLOEXEC) else { exit_now(1) };
    if let Ok(Forked::Child) = fork() {
        drop(lifeline);
        let _ = die_with_parent(&alive);
        let _ = rustix::io::write(readied, b".");
    }
    loop {
        // Ends with the process, by a signal.
        let _ = poll(&mut [], None);
    }
}

fn try_sysctl() -> Result<()> {
    enter_network_namespace()?;
    let namespace = new_namespace()?;
    let wanted = Sysctl::of_spec(Side::Client, &TopologySpec::default());
    within(&namespace, || sysctl::apply(Side::Client, &wanted))?.map(drop)
}

/// Both mechanisms to move packets, in the order of preference.
const EITHER: [Mechanism; 2] = [Mechanism::PacketRing, Mechanism::Tun];

/// Does `work` with the device of a client that is connected to a link by the first of `mechanisms` that is available.
fn on_device(mechanisms: &[Mechanism], work: impl FnOnce(&Device) -> Result<()> + Send) -> Result<()> {
    enter_network_namespace()?;
    let netns = NetnsHandle::new()?;
    let link = Netlink::open().during(SetupStep::NetworkNamespace)?;
    let plug_in = |mechanism| Ok((mechanism, device::plug_in(Side::Client, mechanism, &link, &netns)?));
    let mut plugs = mechanisms.iter().copied().map(plug_in);
    let first = plugs.next().expect("a capability check names at least one mechanism");
    // `_plug` holds a TUN device.
    let (mechanism, _plug) = first.or_else(|error| plugs.find_map(Result::ok).ok_or(error))?;
    let open = || Device::open(Side::Client, mechanism, Addressing::V4);
    netns.within(|| open().and_then(|device| work(&device)))?
}

fn add_neighbour(device: &Device) -> Result<()> {
    device.set_up()?;
    device.add_neighbour()
}

fn add_route(device: &Device, congestion: Option<&str>) -> Result<()> {
    device.set_up()?;
    device.add_address()?;
    device.add_route(congestion)
}

fn try_ring() -> Result<()> {
    enter_network_namespace()?;
    device::try_ring(&Netlink::open().during(SetupStep::NetworkNamespace)?)
}

/// A connection through a reflector, in the namespace that we are in.
fn try_reflector() -> Result<()> {
    let spec = TopologySpec { mechanism: Some(Mechanism::Reflector), ..TopologySpec::default() };
    // Whichever part is refused, a run cannot do this step.
    Namespaces::create(&spec).map(drop).map_err(|error| match error {
        TopologyError::Refused { step, source, detail } if detail.is_empty() => {
            TopologyError::Refused { step: SetupStep::Reflector, source, detail: step.to_string() }
        }
        other => other,
    })
}

/// The whole path: a connection through both devices and the pump.
fn try_connection() -> Result<()> {
    enter_network_namespace()?;
    Namespaces::create(&TopologySpec::default()).map(drop)
}
