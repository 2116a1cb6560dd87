//! `LOSS`: TCP and the network.

use super::loss102_one_congestion_window::OneCongestionWindow;
use super::loss103_slow_start_after_idle::SlowStartAfterIdle;
use super::loss104_nagle_delayed_ack::NagleDelayedAck;
use super::loss105_send_buffer_bloat::SendBufferBloat;
use super::loss106_queue_too_short::QueueTooShort;
use super::{CauseMeta, Status};
use crate::diagnose::RuleStatus;
use crate::diagnose::waits::CauseKind;
use h2lab_model::bulk::BindingKind;
use h2lab_model::probe::id;

pub(super) const LOSS101: CauseMeta = CauseMeta {
    id: "LOSS101",
    name: "tcp-head-of-line-blocking",
    summary: "A lost segment stalls all streams of its connection at once",
    status: Status::Rule {
        status: RuleStatus::Stable,
        rule: &super::loss101_tcp_head_of_line_blocking::TcpHeadOfLine,
    },
    since: "0.1.0",
    page: include_str!("loss101_tcp_head_of_line_blocking/page.md"),
    checks: &[],
    waits: &[CauseKind::HeadOfLine, CauseKind::UnnamedLoss],
    limits: &[],
    supersedes: &[],
    knob: "connections",
};

pub(super) const LOSS102: CauseMeta = CauseMeta {
    id: "LOSS102",
    name: "one-congestion-window",
    summary: "One congestion window carries all that N connections carried before",
    status: Status::Rule { status: RuleStatus::Preview, rule: &OneCongestionWindow },
    since: "0.1.0",
    page: include_str!("loss102_one_congestion_window/page.md"),
    checks: &[],
    waits: &[CauseKind::CongestionWindow],
    limits: &[BindingKind::CongestionWindow],
    supersedes: &[],
    knob: "connections",
};

pub(super) const LOSS103: CauseMeta = CauseMeta {
    id: "LOSS103",
    name: "slow-start-after-idle",
    summary: "After a pause TCP starts again with a small congestion window",
    status: Status::Rule { status: RuleStatus::Preview, rule: &SlowStartAfterIdle },
    since: "0.1.0",
    page: include_str!("loss103_slow_start_after_idle/page.md"),
    checks: &[],
    waits: &[CauseKind::CongestionWindow],
    limits: &[BindingKind::CongestionWindow],
    supersedes: &[],
    knob: "slow-start-after-idle",
};

pub(super) const LOSS104: CauseMeta = CauseMeta {
    id: "LOSS104",
    name: "nagle-delayed-ack",
    summary: "Nagle's algorithm waits for an ACK: a round trip, or 40 ms more",
    status: Status::Rule { status: RuleStatus::Preview, rule: &NagleDelayedAck },
    since: "0.1.0",
    page: include_str!("loss104_nagle_delayed_ack/page.md"),
    checks: &[id::CLNT117],
    waits: &[CauseKind::Client, CauseKind::Server],
    limits: &[],
    supersedes: &[],
    knob: "nodelay",
};

pub(super) const LOSS105: CauseMeta = CauseMeta {
    id: "LOSS105",
    name: "send-buffer-bloat",
    summary: "A short response waits behind queued data of a large one",
    status: Status::Rule { status: RuleStatus::Preview, rule: &SendBufferBloat },
    since: "0.1.0",
    page: include_str!("loss105_send_buffer_bloat/page.md"),
    checks: &[],
    waits: &[CauseKind::Server, CauseKind::Queue],
    limits: &[BindingKind::SendBuffer],
    supersedes: &[],
    knob: "notsent-lowat",
};

pub(super) const LOSS106: CauseMeta = CauseMeta {
    id: "LOSS106",
    name: "queue-too-short",
    summary: "The bottleneck's queue is shorter than bandwidth × RTT and overflows",
    status: Status::Rule { status: RuleStatus::Preview, rule: &QueueTooShort },
    since: "0.1.0",
    page: include_str!("loss106_queue_too_short/page.md"),
    checks: &[],
    waits: &[CauseKind::HeadOfLine, CauseKind::CongestionWindow],
    limits: &[BindingKind::CongestionWindow],
    // The drops are the mechanism, and the queue is why there are any.
    supersedes: &["LOSS101", "LOSS102"],
    knob: "queue",
};
