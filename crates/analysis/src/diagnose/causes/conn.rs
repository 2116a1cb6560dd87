//! `CONN`: connections: dialled, kept, ended.

use super::{CauseMeta, Status};
use crate::diagnose::RuleStatus;
use crate::diagnose::waits::CauseKind;
use h2lab_model::probe::id;

pub(super) const CONN101: CauseMeta = CauseMeta {
    id: "CONN101",
    name: "request-quota-per-connection",
    summary: "The server ends a connection after a number of requests",
    status: Status::Rule {
        status: RuleStatus::Stable,
        rule: &super::conn101_request_quota_per_connection::RequestQuota,
    },
    since: "0.1.0",
    page: include_str!("conn101_request_quota_per_connection/page.md"),
    checks: &[id::LIMT101, id::LIMT102, id::CLNT105],
    waits: &[CauseKind::Handshake, CauseKind::StreamSlot],
    limits: &[],
    supersedes: &[],
    knob: "request-quota",
};

pub(super) const CONN102: CauseMeta = CauseMeta {
    id: "CONN102",
    name: "streams-before-settings",
    summary: "Streams opened before the server's SETTINGS arrive are refused",
    status: Status::Rule {
        status: RuleStatus::Preview,
        rule: &super::conn102_streams_before_settings::StreamsBeforeSettings,
    },
    since: "0.1.0",
    page: include_str!("conn102_streams_before_settings/page.md"),
    checks: &[id::CLNT108, id::CLNT111, id::LIMT104],
    waits: &[CauseKind::StreamSlot],
    limits: &[],
    supersedes: &[],
    knob: "hold-streams-until-settings",
};

pub(super) const CONN103: CauseMeta = CauseMeta {
    id: "CONN103",
    name: "goaway-loses-requests",
    summary: "Requests on their way when a GOAWAY comes fail and are not sent again",
    status: Status::Rule {
        status: RuleStatus::Preview,
        rule: &super::conn103_goaway_loses_requests::GoawayLosesRequests,
    },
    since: "0.1.0",
    page: include_str!("conn103_goaway_loses_requests/page.md"),
    checks: &[id::LIMT102, id::LIMT103, id::CLNT106, id::CLNT107, id::CLNT118],
    waits: &[],
    limits: &[],
    supersedes: &[],
    knob: "replay",
};

pub(super) const CONN104: CauseMeta = CauseMeta {
    id: "CONN104",
    name: "dial-stampede",
    summary: "Every waiting request dials its own connection; one of them is used",
    status: Status::Rule { status: RuleStatus::Preview, rule: &super::conn104_dial_stampede::DialStampede },
    since: "0.1.0",
    page: include_str!("conn104_dial_stampede/page.md"),
    checks: &[id::CLNT105],
    waits: &[CauseKind::Handshake],
    limits: &[],
    supersedes: &[],
    knob: "dial-policy",
};

pub(super) const CONN105: CauseMeta = CauseMeta {
    id: "CONN105",
    name: "periodic-drain",
    summary: "Connections end at a maximum age, many at one moment",
    status: Status::Rule { status: RuleStatus::Preview, rule: &super::conn105_periodic_drain::PeriodicDrain },
    since: "0.1.0",
    page: include_str!("conn105_periodic_drain/page.md"),
    checks: &[id::LIMT102],
    waits: &[CauseKind::Handshake],
    limits: &[],
    supersedes: &[],
    knob: "connection-age",
};

pub(super) const CONN106: CauseMeta = CauseMeta {
    id: "CONN106",
    name: "silent-connection",
    summary: "A connection that the network dropped is reused; every request hangs",
    status: Status::Rule {
        status: RuleStatus::Preview,
        rule: &super::conn106_silent_connection::SilentConnection,
    },
    since: "0.1.0",
    page: include_str!("conn106_silent_connection/page.md"),
    checks: &[id::CLNT115, id::CLNT116, id::LIMT108],
    waits: &[CauseKind::UnnamedLoss, CauseKind::Unknown],
    limits: &[],
    supersedes: &[],
    knob: "keep-alive",
};

pub(super) const CONN107: CauseMeta = CauseMeta {
    id: "CONN107",
    name: "client-does-not-multiplex",
    summary: "The client opens a connection per request and does not multiplex",
    status: Status::Rule {
        status: RuleStatus::Preview,
        rule: &super::conn107_client_does_not_multiplex::ClientDoesNotMultiplex,
    },
    since: "0.1.0",
    page: include_str!("conn107_client_does_not_multiplex/page.md"),
    checks: &[id::CLNT101, id::LIMT104],
    waits: &[CauseKind::Handshake],
    limits: &[],
    supersedes: &[],
    knob: "streams",
};

pub(super) const CONN108: CauseMeta = CauseMeta {
    id: "CONN108",
    name: "wrong-protocol",
    summary: "HTTP/2 was asked for, and another version was spoken",
    status: Status::OfClient(RuleStatus::Preview),
    since: "0.1.0",
    page: include_str!("conn108_wrong_protocol/page.md"),
    checks: &[id::PROT101, id::PROT103, id::PROT104, id::PROT105, id::CLNT101],
    waits: &[],
    limits: &[],
    supersedes: &[],
    knob: "protocol",
};

pub(super) const CONN109: CauseMeta = CauseMeta {
    id: "CONN109",
    name: "connection-coalescing",
    summary: "A connection shared by several hosts is answered with 421",
    status: Status::Rule {
        status: RuleStatus::Preview,
        rule: &super::conn109_connection_coalescing::ConnectionCoalescing,
    },
    since: "0.1.0",
    page: include_str!("conn109_connection_coalescing/page.md"),
    checks: &[id::PROT112],
    waits: &[],
    limits: &[],
    supersedes: &[],
    knob: "authorities-per-connection",
};

pub(super) const CONN110: CauseMeta = CauseMeta {
    id: "CONN110",
    name: "idle-timeout-race",
    summary: "A proxy keeps idle backend connections longer than the backend does",
    status: Status::Rule {
        status: RuleStatus::Preview,
        rule: &super::conn110_idle_timeout_race::IdleTimeoutRace,
    },
    since: "0.1.0",
    page: include_str!("conn110_idle_timeout_race/page.md"),
    checks: &[id::LIMT105, id::CLNT106],
    waits: &[],
    limits: &[],
    supersedes: &["CONN103"],
    knob: "idle-gap",
};

pub(super) const CONN111: CauseMeta = CauseMeta {
    id: "CONN111",
    name: "no-tls-session-resumption",
    summary: "Each new connection pays for a full TLS handshake: nothing is resumed",
    status: Status::Rule {
        status: RuleStatus::Preview,
        rule: &super::conn111_no_tls_session_resumption::NoTlsSessionResumption,
    },
    since: "0.1.0",
    page: include_str!("conn111_no_tls_session_resumption/page.md"),
    checks: &[],
    waits: &[CauseKind::Handshake],
    limits: &[],
    supersedes: &[],
    knob: "tls-resumption",
};
