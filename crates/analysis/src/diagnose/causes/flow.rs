//! `FLOW`: flow control.

use super::flow101_download_stream_window::DownloadStreamWindow;
use super::flow102_upload_stream_window::UploadStreamWindow;
use super::flow103_connection_window::ConnectionWindow;
use super::flow105_window_updates_too_often::WindowUpdatesTooOften;
use super::flow106_window_updates_too_late::WindowUpdatesTooLate;
use super::flow108_slow_reader_holds_connection_window::SlowReader;
use super::flow111_window_overflow::WindowOverflow;
use super::flow112_credit_after_acknowledgement::CreditAfterReading;
use super::{CauseMeta, Status};
use crate::diagnose::RuleStatus;
use crate::diagnose::waits::CauseKind;
use h2lab_model::bulk::BindingKind;
use h2lab_model::probe::id;

pub(super) const FLOW101: CauseMeta = CauseMeta {
    id: "FLOW101",
    name: "download-stream-window",
    summary: "The client's stream window is smaller than bandwidth × RTT (download)",
    status: Status::Rule { status: RuleStatus::Preview, rule: &DownloadStreamWindow },
    since: "0.1.0",
    page: include_str!("flow101_download_stream_window/page.md"),
    checks: &[id::CLNT103],
    waits: &[CauseKind::FlowWindow],
    limits: &[BindingKind::StreamWindow],
    supersedes: &[],
    knob: "stream-window",
};

pub(super) const FLOW102: CauseMeta = CauseMeta {
    id: "FLOW102",
    name: "upload-stream-window",
    summary: "The server's stream window is smaller than bandwidth × RTT (upload)",
    status: Status::Rule { status: RuleStatus::Preview, rule: &UploadStreamWindow },
    since: "0.1.0",
    page: include_str!("flow102_upload_stream_window/page.md"),
    checks: &[id::LIMT109],
    waits: &[CauseKind::FlowWindow],
    limits: &[BindingKind::StreamWindow],
    supersedes: &[],
    knob: "parallel-uploads",
};

pub(super) const FLOW103: CauseMeta = CauseMeta {
    id: "FLOW103",
    name: "connection-window",
    summary: "The stream window was raised, the connection window was not",
    status: Status::Rule { status: RuleStatus::Preview, rule: &ConnectionWindow },
    since: "0.1.0",
    page: include_str!("flow103_connection_window/page.md"),
    checks: &[id::CLNT103, id::LIMT109],
    waits: &[CauseKind::FlowWindow],
    limits: &[BindingKind::ConnectionWindow],
    supersedes: &["FLOW101", "FLOW102"],
    knob: "connection-window",
};

pub(super) const FLOW104: CauseMeta = CauseMeta {
    id: "FLOW104",
    name: "window-stops-growing",
    summary: "Flow-control windows are fixed, or their growth stops below the need",
    status: Status::Page(
        "the largest window over time: constant for 20 round trips while the sender waits for credit",
    ),
    since: "0.1.0",
    page: include_str!("flow104_window_stops_growing/page.md"),
    checks: &[id::CLNT103],
    waits: &[CauseKind::FlowWindow],
    limits: &[BindingKind::StreamWindow, BindingKind::ConnectionWindow],
    supersedes: &["FLOW101", "FLOW102"],
    knob: "auto-window",
};

pub(super) const FLOW105: CauseMeta = CauseMeta {
    id: "FLOW105",
    name: "window-updates-too-often",
    summary: "A WINDOW_UPDATE for every DATA frame costs CPU at both ends",
    status: Status::Rule { status: RuleStatus::Preview, rule: &WindowUpdatesTooOften },
    since: "0.1.0",
    page: include_str!("flow105_window_updates_too_often/page.md"),
    checks: &[id::CLNT104],
    waits: &[],
    limits: &[BindingKind::Cpu],
    supersedes: &[],
    knob: "window-update-cadence",
};

pub(super) const FLOW106: CauseMeta = CauseMeta {
    id: "FLOW106",
    name: "window-updates-too-late",
    summary: "Credit comes only when the stream window is exhausted",
    status: Status::Rule { status: RuleStatus::Preview, rule: &WindowUpdatesTooLate },
    since: "0.1.0",
    page: include_str!("flow106_window_updates_too_late/page.md"),
    checks: &[id::CLNT104, id::LIMT109],
    waits: &[CauseKind::FlowWindow],
    limits: &[BindingKind::StreamWindow],
    supersedes: &["FLOW101", "FLOW102"],
    knob: "window-update-cadence",
};

pub(super) const FLOW107: CauseMeta = CauseMeta {
    id: "FLOW107",
    name: "sender-slow-after-credit",
    summary: "The sender has credit again but resumes late",
    status: Status::Page(
        "the time from WINDOW_UPDATE to the next DATA of a stream that has data, at the sender's own host",
    ),
    since: "0.1.0",
    page: include_str!("flow107_sender_slow_after_credit/page.md"),
    checks: &[id::CLNT119],
    waits: &[CauseKind::Client, CauseKind::Server],
    limits: &[BindingKind::Peer],
    supersedes: &[],
    knob: "stream-window",
};

pub(super) const FLOW108: CauseMeta = CauseMeta {
    id: "FLOW108",
    name: "slow-reader-holds-connection-window",
    summary: "One stream that nobody reads uses up the connection window",
    status: Status::Rule { status: RuleStatus::Preview, rule: &SlowReader },
    since: "0.1.0",
    page: include_str!("flow108_slow_reader_holds_connection_window/page.md"),
    checks: &[id::CLNT113, id::RESI109],
    waits: &[CauseKind::FlowWindow],
    limits: &[BindingKind::ConnectionWindow, BindingKind::Peer],
    supersedes: &["FLOW101", "FLOW102", "FLOW103", "FLOW112"],
    knob: "connection-window",
};

pub(super) const FLOW109: CauseMeta = CauseMeta {
    id: "FLOW109",
    name: "credit-leak",
    summary: "Credit of cancelled streams is never returned, until nothing flows",
    status: Status::Page(
        "bytes received, returned and buffered on the connection: the difference grows with each cancelled stream",
    ),
    since: "0.1.0",
    page: include_str!("flow109_credit_leak/page.md"),
    checks: &[id::CLNT108],
    waits: &[CauseKind::FlowWindow],
    limits: &[BindingKind::ConnectionWindow],
    supersedes: &["FLOW101", "FLOW102", "FLOW103", "FLOW108"],
    knob: "cancel-after",
};

pub(super) const FLOW110: CauseMeta = CauseMeta {
    id: "FLOW110",
    name: "windows-too-large",
    summary: "Flow-control windows far above the need fill the memory of a proxy",
    status: Status::NeedsServer("the proxy's memory, and how far it has read ahead of a slow client"),
    since: "0.1.0",
    page: include_str!("flow110_windows_too_large/page.md"),
    checks: &[id::RESI109, id::RESI110],
    waits: &[CauseKind::Server],
    limits: &[BindingKind::Peer],
    supersedes: &[],
    knob: "stream-window",
};

pub(super) const FLOW111: CauseMeta = CauseMeta {
    id: "FLOW111",
    name: "window-overflow",
    summary: "A window grows beyond 2^31 - 1, and the peer ends the connection",
    status: Status::Rule { status: RuleStatus::Preview, rule: &WindowOverflow },
    since: "0.1.0",
    page: include_str!("flow111_window_overflow/page.md"),
    checks: &[id::LIMT109, id::PROT108],
    waits: &[],
    limits: &[],
    supersedes: &[],
    knob: "initial-window-size",
};

pub(super) const FLOW112: CauseMeta = CauseMeta {
    id: "FLOW112",
    name: "credit-after-acknowledgement",
    summary: "Credit waits for the application, so rate = window / (RTT + delay)",
    status: Status::Rule { status: RuleStatus::Preview, rule: &CreditAfterReading },
    since: "0.1.0",
    page: include_str!("flow112_credit_after_acknowledgement/page.md"),
    checks: &[id::CLNT113, id::LIMT109],
    waits: &[CauseKind::FlowWindow, CauseKind::Server],
    limits: &[BindingKind::StreamWindow, BindingKind::Peer],
    supersedes: &["FLOW101", "FLOW102"],
    knob: "read-delay",
};

pub(super) const FLOW113: CauseMeta = CauseMeta {
    id: "FLOW113",
    name: "window-updates-behind-a-lock",
    summary: "WINDOW_UPDATE waits for another stream's read; parallel uploads starve",
    status: Status::NeedsServer(
        "the client's threads: which reads the connection, and which wait for its lock",
    ),
    since: "0.1.0",
    page: include_str!("flow113_window_updates_behind_a_lock/page.md"),
    checks: &[id::CLNT119],
    waits: &[CauseKind::FlowWindow, CauseKind::Client],
    limits: &[BindingKind::Peer],
    supersedes: &["FLOW102"],
    knob: "parallel-uploads",
};
