//! `HOST`: the machines at both ends.

use super::{CauseMeta, Status};
use crate::diagnose::RuleStatus;
use crate::diagnose::waits::CauseKind;
use h2lab_model::bulk::BindingKind;
use h2lab_model::probe::id;

pub(super) const HOST101: CauseMeta = CauseMeta {
    id: "HOST101",
    name: "zero-copy-lost",
    summary: "Framing keeps the server from sendfile and kernel TLS",
    status: Status::NeedsServer("the server's CPU time per byte over both versions, and its system calls"),
    since: "0.1.0",
    page: include_str!("host101_zero_copy_lost/page.md"),
    checks: &[id::MIGR108],
    waits: &[CauseKind::Server],
    limits: &[BindingKind::Cpu],
    supersedes: &[],
    knob: "sendfile",
};

pub(super) const HOST102: CauseMeta = CauseMeta {
    id: "HOST102",
    name: "load-generator",
    summary: "The load generator is the limit, or compares unlike things",
    status: Status::Rule { status: RuleStatus::Preview, rule: &super::host102_load_generator::LoadGenerator },
    since: "0.1.0",
    page: include_str!("host102_load_generator/page.md"),
    checks: &[],
    waits: &[CauseKind::Client],
    limits: &[BindingKind::Cpu],
    // A client that is late has the same symptoms as whatever makes requests wait.
    supersedes: &[
        "CONN101", "FLOW101", "FLOW103", "LOSS101", "LOSS102", "LOSS105", "MUX101", "MUX102", "MUX105",
        "HOST105", "HOST106",
    ],
    knob: "generator",
};

pub(super) const HOST103: CauseMeta = CauseMeta {
    id: "HOST103",
    name: "udp-path",
    summary: "HTTP/3 is slower than HTTP/2: UDP costs CPU, or its buffers overflow",
    status: Status::NeedsServer(
        "UDP counters and system calls of the machine that sends or receives, and its CPU",
    ),
    since: "0.1.0",
    page: include_str!("host103_udp_path/page.md"),
    checks: &[id::PROT106],
    waits: &[],
    limits: &[BindingKind::Cpu, BindingKind::ReceiveBuffer],
    supersedes: &[],
    knob: "udp-segmentation",
};

pub(super) const HOST104: CauseMeta = CauseMeta {
    id: "HOST104",
    name: "memory-per-connection",
    summary: "Each pooled connection pins memory, and idle ones are kept",
    status: Status::NeedsServer("the process's memory against its number of idle connections"),
    since: "0.1.0",
    page: include_str!("host104_memory_per_connection/page.md"),
    checks: &[id::RESI110],
    waits: &[],
    limits: &[],
    supersedes: &[],
    knob: "idle-connections",
};

pub(super) const HOST105: CauseMeta = CauseMeta {
    id: "HOST105",
    name: "server-cpu",
    summary: "The server has no CPU time left, and requests wait in it",
    status: Status::Rule { status: RuleStatus::Preview, rule: &super::host105_server_cpu::ServerCpu },
    since: "0.1.0",
    page: include_str!("host105_server_cpu/page.md"),
    checks: &[],
    waits: &[CauseKind::Server],
    limits: &[BindingKind::Cpu],
    supersedes: &[],
    knob: "server-cpu",
};

pub(super) const HOST106: CauseMeta = CauseMeta {
    id: "HOST106",
    name: "slow-handler",
    summary: "The server takes its time for each response, whatever the protocol",
    status: Status::Rule { status: RuleStatus::Preview, rule: &super::host106_slow_handler::SlowHandler },
    since: "0.1.0",
    page: include_str!("host106_slow_handler/page.md"),
    checks: &[],
    waits: &[CauseKind::Server],
    limits: &[],
    supersedes: &[],
    knob: "handler-delay",
};

pub(super) const HOST107: CauseMeta = CauseMeta {
    id: "HOST107",
    name: "slow-disk",
    summary: "A disk is slower than the path, and the transfer waits for it",
    status: Status::Rule { status: RuleStatus::Preview, rule: &super::host107_slow_disk::SlowDisk },
    since: "0.1.0",
    page: include_str!("host107_slow_disk/page.md"),
    checks: &[],
    waits: &[CauseKind::Server],
    limits: &[BindingKind::Disk],
    // Its handler is slow because it waits for the disk.
    supersedes: &["HOST106"],
    knob: "disk",
};
