//! The rules. A new one is a folder here and a line in [`RULES`].

mod conn101_request_quota;
mod loss101_tcp_head_of_line;

use super::Rule;

/// All rules, in the order of their ids. The only list.
pub const RULES: &[&dyn Rule] =
    &[&conn101_request_quota::RequestQuota, &loss101_tcp_head_of_line::TcpHeadOfLine];
