//! The causes. Each is a folder with its page, a constant in the file of its family, and an entry in [`CAUSES`]; a
//! cause with a rule has `mod.rs` and `tests.rs` in its folder, too. `cargo xtask new-rule` creates all of that.

mod conn;
mod conn101_request_quota_per_connection;
mod conn102_streams_before_settings;
mod conn103_goaway_loses_requests;
mod conn104_dial_stampede;
mod conn105_periodic_drain;
mod conn106_silent_connection;
mod conn107_client_does_not_multiplex;
mod conn109_connection_coalescing;
mod conn110_idle_timeout_race;
mod conn111_no_tls_session_resumption;
mod flow;
mod flow101_download_stream_window;
mod flow102_upload_stream_window;
mod flow103_connection_window;
mod flow105_window_updates_too_often;
mod flow106_window_updates_too_late;
mod flow108_slow_reader_holds_connection_window;
mod flow111_window_overflow;
mod flow112_credit_after_acknowledgement;
mod frame;
mod frame101_tls_record_size;
mod frame102_small_frames;
mod frame103_no_write_coalescing;
mod host;
mod host102_load_generator;
mod host105_server_cpu;
mod host106_slow_handler;
mod host107_slow_disk;
mod hpack;
mod hpack101_header_compression;
mod limit;
mod limit101_pings_too_frequent;
mod limit102_abuse_limits;
mod limit103_header_block_too_large;
mod limit104_body_timeout;
mod limit105_rate_limit;
mod loss;
mod loss101_tcp_head_of_line_blocking;
mod loss102_one_congestion_window;
mod loss103_slow_start_after_idle;
mod loss104_nagle_delayed_ack;
mod loss105_send_buffer_bloat;
mod loss106_queue_too_short;
#[cfg(test)]
mod many;
mod meta;
mod mux;
mod mux101_stream_limit;
mod mux105_serial_processing;
mod mux106_priority_ignored;
mod mux107_wasted_push;
mod proxy;
mod proxy101_no_multiplexing_upstream;
mod sec;
mod sec102_http_1_1_required;
#[cfg(test)]
mod tests;
pub(super) mod views;

use super::waits::CauseKind;
use h2lab_model::bulk::BindingKind;

pub(super) use conn104_dial_stampede::of_one_client as stampede_of_one_client;
pub(super) use conn107_client_does_not_multiplex::{abandoning, single_requests, unkept};
pub use meta::{CauseMeta, FAMILIES, Status};
pub(super) use mux101_stream_limit::held_at_limit;

/// All causes, by family in the order of [`FAMILIES`], then by number. The only list.
pub const CAUSES: &[&CauseMeta] = &[
    &conn::CONN101,
    &conn::CONN102,
    &conn::CONN103,
    &conn::CONN104,
    &conn::CONN105,
    &conn::CONN106,
    &conn::CONN107,
    &conn::CONN108,
    &conn::CONN109,
    &conn::CONN110,
    &conn::CONN111,
    &flow::FLOW101,
    &flow::FLOW102,
    &flow::FLOW103,
    &flow::FLOW104,
    &flow::FLOW105,
    &flow::FLOW106,
    &flow::FLOW107,
    &flow::FLOW108,
    &flow::FLOW109,
    &flow::FLOW110,
    &flow::FLOW111,
    &flow::FLOW112,
    &flow::FLOW113,
    &mux::MUX101,
    &mux::MUX102,
    &mux::MUX103,
    &mux::MUX104,
    &mux::MUX105,
    &mux::MUX106,
    &mux::MUX107,
    &loss::LOSS101,
    &loss::LOSS102,
    &loss::LOSS103,
    &loss::LOSS104,
    &loss::LOSS105,
    &loss::LOSS106,
    &hpack::HPACK101,
    &hpack::HPACK102,
    &frame::FRAME101,
    &frame::FRAME102,
    &frame::FRAME103,
    &proxy::PROXY101,
    &proxy::PROXY102,
    &proxy::PROXY103,
    &proxy::PROXY104,
    &proxy::PROXY105,
    &proxy::PROXY106,
    &limit::LIMIT101,
    &limit::LIMIT102,
    &limit::LIMIT103,
    &limit::LIMIT104,
    &limit::LIMIT105,
    &sec::SEC101,
    &sec::SEC102,
    &host::HOST101,
    &host::HOST102,
    &host::HOST103,
    &host::HOST104,
    &host::HOST105,
    &host::HOST106,
    &host::HOST107,
];

/// The cause with this id or name, whatever its case.
pub fn cause(word: &str) -> Option<&'static CauseMeta> {
    let is_it =
        |cause: &&&CauseMeta| cause.id.eq_ignore_ascii_case(word) || cause.name.eq_ignore_ascii_case(word);
    CAUSES.iter().copied().find(|cause| is_it(&cause))
}

/// The causes that a check of a probe is evidence for if it fails, by the check's id.
pub fn of_check(id: &str) -> impl Iterator<Item = &'static CauseMeta> {
    CAUSES.iter().copied().filter(move |cause| cause.checks.iter().any(|check| check.id == id))
}

/// The cause that a limit of a transfer is evidence for; `None` if it is evidence for no cause of the catalogue, or for
/// several.
pub const fn of_limit(kind: BindingKind, we_send: bool) -> Option<&'static CauseMeta> {
    match kind {
        BindingKind::StreamWindow if we_send => Some(&flow::FLOW102),
        BindingKind::StreamWindow => Some(&flow::FLOW101),
        BindingKind::ConnectionWindow => Some(&flow::FLOW103),
        BindingKind::CongestionWindow => Some(&loss::LOSS102),
        BindingKind::Disk => Some(&host::HOST107),
        _ => None,
    }
}

/// The cause that a part of a slow request's time is evidence for; `None` as with limits.
pub const fn of_wait(kind: CauseKind) -> Option<&'static CauseMeta> {
    match kind {
        CauseKind::HeadOfLine | CauseKind::UnnamedLoss => Some(&loss::LOSS101),
        CauseKind::CongestionWindow => Some(&loss::LOSS102),
        CauseKind::StreamSlot => Some(&mux::MUX101),
        _ => None,
    }
}
