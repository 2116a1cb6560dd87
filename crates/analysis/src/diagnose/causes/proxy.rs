//! `PROXY`: proxies and translation.

use super::proxy101_no_multiplexing_upstream::NoMultiplexingUpstream;
use super::{CauseMeta, Status};
use crate::diagnose::RuleStatus;
use crate::diagnose::waits::CauseKind;
use h2lab_model::probe::id;

pub(super) const PROXY101: CauseMeta = CauseMeta {
    id: "PROXY101",
    name: "no-multiplexing-upstream",
    summary: "The proxy speaks HTTP/1.1 upstream, or one stream at a time",
    status: Status::Rule { status: RuleStatus::Preview, rule: &NoMultiplexingUpstream },
    since: "0.1.0",
    page: include_str!("proxy101_no_multiplexing_upstream/page.md"),
    checks: &[],
    waits: &[CauseKind::Server],
    limits: &[],
    supersedes: &[],
    knob: "upstream-protocol",
};

pub(super) const PROXY102: CauseMeta = CauseMeta {
    id: "PROXY102",
    name: "illegal-headers",
    summary: "The backend sends fields that HTTP/2 forbids, and the stream is reset",
    status: Status::Page(
        "RST_STREAM or GOAWAY with PROTOCOL_ERROR after response HEADERS, beside the fields of the HTTP/1.1 response",
    ),
    since: "0.1.0",
    page: include_str!("proxy102_illegal_headers/page.md"),
    checks: &[id::MIGR102, id::DOWN107],
    waits: &[],
    limits: &[],
    supersedes: &[],
    knob: "protocol",
};

pub(super) const PROXY103: CauseMeta = CauseMeta {
    id: "PROXY103",
    name: "interim-responses-lost",
    summary: "103 or 100 is dropped or held back on the way",
    status: Status::NeedsServer(
        "both sides of the proxy: when the origin sent the interim response, when the client had it",
    ),
    since: "0.1.0",
    page: include_str!("proxy103_interim_responses_lost/page.md"),
    checks: &[id::PROT110, id::MIGR106, id::CLNT109],
    waits: &[CauseKind::Server],
    limits: &[],
    supersedes: &[],
    knob: "hops",
};

pub(super) const PROXY104: CauseMeta = CauseMeta {
    id: "PROXY104",
    name: "websocket-over-http2",
    summary: "WebSocket needs extra HTTP/1.1 connections, or fails over HTTP/2",
    status: Status::Page(
        "SETTINGS_ENABLE_CONNECT_PROTOCOL of the server, and the answer to an extended CONNECT",
    ),
    since: "0.1.0",
    page: include_str!("proxy104_websocket_over_http2/page.md"),
    checks: &[id::PROT109, id::MIGR105],
    waits: &[CauseKind::Handshake],
    limits: &[],
    supersedes: &[],
    knob: "extended-connect",
};

pub(super) const PROXY105: CauseMeta = CauseMeta {
    id: "PROXY105",
    name: "pinned-slow-backend",
    summary: "A pool that reuses the last idle connection pins the slow backend",
    status: Status::NeedsServer("the proxy's pool: which backend's connection each request took"),
    since: "0.1.0",
    page: include_str!("proxy105_pinned_slow_backend/page.md"),
    checks: &[],
    waits: &[CauseKind::Server],
    limits: &[],
    supersedes: &[],
    knob: "pool-order",
};

pub(super) const PROXY106: CauseMeta = CauseMeta {
    id: "PROXY106",
    name: "backend-error-as-reset",
    summary: "A proxy turns a backend error into RST_STREAM and logs nothing",
    status: Status::NeedsServer("the response of the backend, beside what the proxy made of it"),
    since: "0.1.0",
    page: include_str!("proxy106_backend_error_as_reset/page.md"),
    checks: &[id::MIGR102, id::MIGR104],
    waits: &[],
    limits: &[],
    supersedes: &[],
    knob: "backend-protocol",
};
