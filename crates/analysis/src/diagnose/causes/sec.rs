//! `SEC`: security.

use super::{CauseMeta, Status};
use crate::diagnose::RuleStatus;
use crate::diagnose::waits::CauseKind;
use h2lab_model::probe::id;

pub(super) const SEC101: CauseMeta = CauseMeta {
    id: "SEC101",
    name: "h2c-upgrade-forwarded",
    summary: "`Upgrade: h2c` passes the proxy's rules, or serves one request only",
    status: Status::NeedsServer(
        "what the proxy forwards: the upgrade fields at the backend, and the tunnel behind a 101",
    ),
    since: "0.1.0",
    page: include_str!("sec101_h2c_upgrade_forwarded/page.md"),
    checks: &[id::PROT105, id::SMUG101, id::SMUG102, id::SMUG103, id::SMUG104, id::MIGR107],
    waits: &[],
    limits: &[],
    supersedes: &[],
    knob: "upgrade",
};

pub(super) const SEC102: CauseMeta = CauseMeta {
    id: "SEC102",
    name: "http-1-1-required",
    summary: "The server demands HTTP/1.1 for some paths, as for client certificates",
    status: Status::Rule {
        status: RuleStatus::Preview,
        rule: &super::sec102_http_1_1_required::Http11Required,
    },
    since: "0.1.0",
    page: include_str!("sec102_http_1_1_required/page.md"),
    checks: &[],
    waits: &[CauseKind::Handshake],
    limits: &[],
    supersedes: &[],
    knob: "protocol",
};
