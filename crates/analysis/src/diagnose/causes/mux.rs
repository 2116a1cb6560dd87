//! `MUX`: streams that share a connection.

use super::mux101_stream_limit::StreamLimit;
use super::mux105_serial_processing::SerialProcessing;
use super::mux106_priority_ignored::PriorityIgnored;
use super::mux107_wasted_push::WastedPush;
use super::{CauseMeta, Status};
use crate::diagnose::RuleStatus;
use crate::diagnose::waits::CauseKind;
use h2lab_model::bulk::BindingKind;
use h2lab_model::probe::id;

pub(super) const MUX101: CauseMeta = CauseMeta {
    id: "MUX101",
    name: "stream-limit",
    summary: "MAX_CONCURRENT_STREAMS is reached, and requests wait in the client",
    status: Status::Rule { status: RuleStatus::Preview, rule: &StreamLimit },
    since: "0.1.0",
    page: include_str!("mux101_stream_limit/page.md"),
    checks: &[id::LIMT104, id::CLNT111],
    waits: &[CauseKind::StreamSlot],
    limits: &[],
    supersedes: &[],
    knob: "connections",
};

pub(super) const MUX102: CauseMeta = CauseMeta {
    id: "MUX102",
    name: "one-thread-per-connection",
    summary: "One connection is served by one thread, which has no time left",
    status: Status::NeedsServer(
        "the CPU time of each thread of the server, while the machine as a whole has time left",
    ),
    since: "0.1.0",
    page: include_str!("mux102_one_thread_per_connection/page.md"),
    checks: &[],
    waits: &[CauseKind::Server, CauseKind::Client],
    limits: &[BindingKind::Cpu],
    supersedes: &[],
    knob: "connections",
};

pub(super) const MUX103: CauseMeta = CauseMeta {
    id: "MUX103",
    name: "one-backend-per-connection",
    summary: "A balancer of connections sends all streams to one backend",
    status: Status::NeedsServer(
        "which backend answered each request: a header of its own, its log, or its metrics",
    ),
    since: "0.1.0",
    page: include_str!("mux103_one_backend_per_connection/page.md"),
    checks: &[],
    waits: &[CauseKind::Server],
    limits: &[],
    supersedes: &[],
    knob: "reconnect-every",
};

pub(super) const MUX104: CauseMeta = CauseMeta {
    id: "MUX104",
    name: "unfair-scheduler",
    summary: "The sender favours some streams; others get nothing for seconds",
    status: Status::Page("bytes of DATA per stream and second, over all streams that had data and credit"),
    since: "0.1.0",
    page: include_str!("mux104_unfair_scheduler/page.md"),
    checks: &[],
    waits: &[CauseKind::Server],
    limits: &[BindingKind::Peer],
    supersedes: &[],
    knob: "streams",
};

pub(super) const MUX105: CauseMeta = CauseMeta {
    id: "MUX105",
    name: "serial-processing",
    summary: "The server processes the requests of a connection one after another",
    status: Status::Rule { status: RuleStatus::Preview, rule: &SerialProcessing },
    since: "0.1.0",
    page: include_str!("mux105_serial_processing/page.md"),
    checks: &[],
    waits: &[CauseKind::Server],
    limits: &[BindingKind::Peer],
    supersedes: &[],
    knob: "connections",
};

pub(super) const MUX106: CauseMeta = CauseMeta {
    id: "MUX106",
    name: "priority-ignored",
    summary: "RFC 9218 priority is ignored: urgent responses share with the others",
    status: Status::Rule { status: RuleStatus::Preview, rule: &PriorityIgnored },
    since: "0.1.0",
    page: include_str!("mux106_priority_ignored/page.md"),
    checks: &[],
    waits: &[CauseKind::Server],
    limits: &[],
    supersedes: &[],
    knob: "priority",
};

pub(super) const MUX107: CauseMeta = CauseMeta {
    id: "MUX107",
    name: "wasted-push",
    summary: "Pushed responses take bandwidth that the main response needs",
    status: Status::Rule { status: RuleStatus::Preview, rule: &WastedPush },
    since: "0.1.0",
    page: include_str!("mux107_wasted_push/page.md"),
    checks: &[id::PROT111, id::CLNT110],
    waits: &[CauseKind::Queue],
    limits: &[],
    supersedes: &[],
    knob: "push",
};
