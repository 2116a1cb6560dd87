//! `HPACK`: header compression.

use super::hpack101_header_compression::HeaderCompression;
use super::{CauseMeta, Status};
use crate::diagnose::RuleStatus;
use crate::diagnose::waits::CauseKind;
use h2lab_model::bulk::BindingKind;
use h2lab_model::probe::id;

pub(super) const HPACK101: CauseMeta = CauseMeta {
    id: "HPACK101",
    name: "header-compression",
    summary: "Header compression fails, or saves nothing",
    status: Status::Rule { status: RuleStatus::Preview, rule: &HeaderCompression },
    since: "0.1.0",
    page: include_str!("hpack101_header_compression/page.md"),
    checks: &[id::PROT108, id::RESI104],
    waits: &[],
    limits: &[BindingKind::Cpu],
    // HOST106's least time includes what long requests take on the link.
    supersedes: &["HOST106"],
    knob: "header-table-size",
};

pub(super) const HPACK102: CauseMeta = CauseMeta {
    id: "HPACK102",
    name: "header-copies",
    summary: "A codec copies header blocks, which costs CPU for every request",
    status: Status::NeedsServer("a profile of the server's CPU, or two builds of it with the same traffic"),
    since: "0.1.0",
    page: include_str!("hpack102_header_copies/page.md"),
    checks: &[],
    waits: &[CauseKind::Server],
    limits: &[BindingKind::Cpu],
    supersedes: &[],
    knob: "header-bytes",
};
