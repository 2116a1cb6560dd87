//! Congestion control: what the kernel offers, and what the ends use.

use super::error::TopologyError;
use super::setup_step::SetupStep;

/// The congestion control of both ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CongestionReadBack {
    /// Of the socket that connected.
    pub client: String,
    /// Of the socket that was accepted.
    pub server: String,
}

/// Adds the available congestion controls to the error if the kernel refused a route because of an unknown one.
pub(super) fn explain(error: TopologyError, asked: Option<&str>) -> TopologyError {
    let (TopologyError::Refused { step: SetupStep::Route, source, .. }, Some(asked)) = (&error, asked) else {
        return error;
    };
    let available = available();
    if source.raw_os_error() != Some(libc::EINVAL) || available.iter().any(|name| name == asked) {
        return error;
    }
    TopologyError::UnknownCongestion { asked: asked.to_owned(), available }
}

/// The congestion controls that the kernel has loaded.
pub fn available() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    text.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}
