//! `FRAME`: frames, records, writes.

use super::frame101_tls_record_size::TlsRecordSize;
use super::frame102_small_frames::SmallFrames;
use super::frame103_no_write_coalescing::NoWriteCoalescing;
use super::{CauseMeta, Status};
use crate::diagnose::RuleStatus;
use crate::diagnose::waits::CauseKind;
use h2lab_model::bulk::BindingKind;
use h2lab_model::probe::id;

pub(super) const FRAME101: CauseMeta = CauseMeta {
    id: "FRAME101",
    name: "tls-record-size",
    summary: "TLS records are so small that their protection is a part of all bytes",
    status: Status::Rule { status: RuleStatus::Preview, rule: &TlsRecordSize },
    since: "0.1.0",
    page: include_str!("frame101_tls_record_size/page.md"),
    checks: &[],
    waits: &[CauseKind::Server],
    limits: &[BindingKind::Cpu],
    supersedes: &[],
    knob: "tls-record-size",
};

pub(super) const FRAME102: CauseMeta = CauseMeta {
    id: "FRAME102",
    name: "small-frames",
    summary: "DATA frames are shorter than receivers accept, and cost CPU",
    status: Status::Rule { status: RuleStatus::Preview, rule: &SmallFrames },
    since: "0.1.0",
    page: include_str!("frame102_small_frames/page.md"),
    checks: &[id::LIMT110, id::CLNT102],
    waits: &[],
    limits: &[BindingKind::Cpu],
    supersedes: &[],
    knob: "max-frame-size",
};

pub(super) const FRAME103: CauseMeta = CauseMeta {
    id: "FRAME103",
    name: "no-write-coalescing",
    summary: "Each frame leaves in its own segment, system call or TLS record",
    status: Status::Rule { status: RuleStatus::Preview, rule: &NoWriteCoalescing },
    since: "0.1.0",
    page: include_str!("frame103_no_write_coalescing/page.md"),
    checks: &[],
    waits: &[CauseKind::Client, CauseKind::Server],
    limits: &[BindingKind::Cpu],
    supersedes: &[],
    knob: "coalesce",
};
