//! `LIMIT`: limits of the peer.

use super::{CauseMeta, Status};
use crate::diagnose::RuleStatus;
use crate::diagnose::waits::CauseKind;
use h2lab_model::bulk::BindingKind;
use h2lab_model::probe::id;

pub(super) const LIMIT101: CauseMeta = CauseMeta {
    id: "LIMIT101",
    name: "pings-too-frequent",
    summary: "Keep-alive PINGs come too often, and the server ends the connection",
    status: Status::Rule {
        status: RuleStatus::Preview,
        rule: &super::limit101_pings_too_frequent::PingsTooFrequent,
    },
    since: "0.1.0",
    page: include_str!("limit101_pings_too_frequent/page.md"),
    checks: &[id::LIMT108, id::CLNT116],
    waits: &[CauseKind::Handshake],
    limits: &[],
    supersedes: &[],
    knob: "keep-alive",
};

pub(super) const LIMIT102: CauseMeta = CauseMeta {
    id: "LIMIT102",
    name: "abuse-limits",
    summary: "Limits against attacks end connections with legitimate traffic",
    status: Status::Rule { status: RuleStatus::Preview, rule: &super::limit102_abuse_limits::AbuseLimits },
    since: "0.1.0",
    page: include_str!("limit102_abuse_limits/page.md"),
    checks: &[id::RESI101, id::RESI102, id::RESI106, id::RESI107, id::LIMT102],
    waits: &[CauseKind::Handshake],
    limits: &[],
    supersedes: &[],
    knob: "cancel-after",
};

pub(super) const LIMIT103: CauseMeta = CauseMeta {
    id: "LIMIT103",
    name: "header-block-too-large",
    summary: "Fields beyond a limit end the stream or the connection",
    status: Status::Rule {
        status: RuleStatus::Preview,
        rule: &super::limit103_header_block_too_large::HeaderBlockTooLarge,
    },
    since: "0.1.0",
    page: include_str!("limit103_header_block_too_large/page.md"),
    checks: &[id::LIMT106, id::RESI103],
    waits: &[],
    limits: &[],
    supersedes: &[],
    knob: "header-bytes",
};

pub(super) const LIMIT104: CauseMeta = CauseMeta {
    id: "LIMIT104",
    name: "body-timeout",
    summary: "A timeout for the whole body ends slow uploads",
    status: Status::Rule { status: RuleStatus::Preview, rule: &super::limit104_body_timeout::BodyTimeout },
    since: "0.1.0",
    page: include_str!("limit104_body_timeout/page.md"),
    checks: &[id::LIMT107, id::MIGR106],
    waits: &[CauseKind::Server],
    limits: &[BindingKind::Peer],
    supersedes: &[],
    knob: "body-duration",
};

pub(super) const LIMIT105: CauseMeta = CauseMeta {
    id: "LIMIT105",
    name: "rate-limit",
    summary: "The server refuses requests above a rate with 429 or 503",
    status: Status::Rule { status: RuleStatus::Preview, rule: &super::limit105_rate_limit::RateLimit },
    since: "0.1.0",
    page: include_str!("limit105_rate_limit/page.md"),
    checks: &[],
    waits: &[],
    limits: &[],
    supersedes: &[],
    knob: "rate",
};
