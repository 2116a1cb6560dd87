//! The notes beneath a cell's row: how its connections ended, and how requests failed.

use std::collections::BTreeMap;

use super::format::{count, millis_unit, noun_of, number, plural};
use h2lab_analysis::stats::{CellSummary, ErrorCount};
use h2lab_model::record::{Fault, Outcome};
use h2lab_wire::ErrorCode;

/// The notes of a cell, in sentences; none if its connections lasted, no request failed, and its label has no number.
pub(super) fn of(summary: &CellSummary) -> Vec<String> {
    [again(summary), hop(summary), connections(summary), failures(summary)].into_iter().flatten().collect()
}

/// What the number in the label of a cell says that has the protocol and the settings of an earlier one.
fn again(summary: &CellSummary) -> Option<String> {
    let twin = summary.cell.twin;
    (twin > 0)
        .then(|| format!("#{}: the same protocol and settings once more, measured for itself", twin + 1))
}

/// How a connection ended, in words, by [`Closing::reason`](h2lab_analysis::stats::Closing::reason).
pub(super) fn ended(reason: &str) -> &'static str {
    match reason {
        "goaway" => "by the server's GOAWAY",
        "server" => "closed by the server",
        "reset" => "reset by the server or the network",
        "timeout" => "timed out",
        "ours" => "ended by the client",
        "broken" => "broken",
        _ => "not established",
    }
}

/// A kind of failure of a cell in words, for sentences: `status 503`, `no connection`.
pub(super) fn kind(summary: &CellSummary, error: &ErrorCount) -> String {
    match error.kind.kind() {
        Outcome::Status => format!("status {}", error.code),
        Outcome::Timeout => "timed out".to_owned(),
        Outcome::Connect => "no connection established".to_owned(),
        Outcome::Tls => "the TLS handshake failed".to_owned(),
        Outcome::Closed | Outcome::GoAway => "the connection was closed".to_owned(),
        Outcome::Protocol => "the response broke the protocol".to_owned(),
        Outcome::Reset | Outcome::Refused if error.code != 0 => {
            format!("the stream was reset with {}", ErrorCode(error.code))
        }
        _ if is_above_goaway(summary, error) => "lost with a GOAWAY".to_owned(),
        Outcome::Refused => "the stream was refused".to_owned(),
        Outcome::Reset => "the stream was reset".to_owned(),
        Outcome::Cancelled => "cancelled by the client".to_owned(),
        other => other.name().to_owned(),
    }
}

/// Whether requests were refused since their streams were above the last one of a GOAWAY. For refused requests it is not
/// recorded whether by a GOAWAY or by a reset, but resets that the server sent are recorded.
fn is_above_goaway(summary: &CellSummary, error: &ErrorCount) -> bool {
    let is_reset = || summary.connections.resets.iter().any(|reset| reset.initiator == "remote");
    error.kind == Outcome::Refused && error.code == 0 && !is_reset()
}

/// `1.2 % of 900 requests failed (most: status 503)`; `None` if none did.
pub fn failing(summary: &CellSummary) -> Option<String> {
    let requests = &summary.requests;
    let most = summary.errors.first().filter(|_| requests.failed > 0)?;
    let share = requests.failed as f64 / requests.sent.max(1) as f64 * 100.0;
    let share = if share < 0.1 { "less than 0.1".to_owned() } else { format!("{share:.1}") };
    let most_of = if summary.errors.len() == 1 { "" } else { "most: " };
    Some(format!(
        "{share} % of {} failed ({most_of}{})",
        plural(requests.sent, "request"),
        kind(summary, most)
    ))
}

/// Failures of a cell by what is said of them, in their order: `88 × go-away (server error)`, `3 × timeout`.
pub(super) fn errors(summary: &CellSummary) -> Vec<String> {
    let mut kinds: Vec<(String, u64)> = Vec::new();
    for error in &summary.errors {
        let is_above = is_above_goaway(summary, error);
        let words = if is_above { NOT_PROCESSED.to_owned() } else { error_words(error) };
        match kinds.iter_mut().find(|(known, _)| *known == words) {
            Some((_, n)) => *n += error.count,
            None => kinds.push((words, error.count)),
        }
    }
    kinds.into_iter().map(|(words, n)| format!("{} × {words}", count(n))).collect()
}

/// Such a request may be sent again, whatever it is (RFC 9113 §6.8): it is no error of the server's.
const NOT_PROCESSED: &str = "not processed: above the last stream of a GOAWAY";

/// `go-away (server error)`
fn error_words(error: &ErrorCount) -> String {
    let code = match (error.kind, error.code) {
        (Outcome::Status, code) => format!(" {code}"),
        // We send that code, if the protocol has one; it says nothing of the server.
        (Outcome::Timeout | Outcome::Unanswered | Outcome::Cancelled, _) | (_, 0) => String::new(),
        (_, code) => format!(" {}", ErrorCode(code)),
    };
    let is_unknown = match error.kind {
        // A status of class 4xx says that the request is wrong; the server cannot be sure of that.
        Outcome::Status => (400..500).contains(&error.code),
        // It may have waited for a connection of ours, or for what the network lost.
        Outcome::Timeout => error.fault == Fault::Client,
        _ => false,
    };
    let whose = if is_unknown { String::new() } else { format!(" ({})", fault(error.fault)) };
    format!("{}{code}{whose}", error.kind)
}

/// Whose fault it was.
pub(super) const fn fault(fault: Fault) -> &'static str {
    match fault {
        Fault::Client => "client error",
        Fault::Link => "network error",
        Fault::Sut | Fault::Origin => "server error",
        Fault::Harness => "h2lab error",
    }
}

/// Why requests were sent again: only the server can have kept them from being processed.
pub(super) fn why_again(summary: &CellSummary) -> &'static str {
    let totals = &summary.connections;
    if totals.goaways.is_empty() && totals.resets.is_empty() {
        "whose connection the server had closed before they arrived"
    } else {
        "which the server left unprocessed (GOAWAY, REFUSED_STREAM)"
    }
}

/// Behind a sidecar the table's connections are the generator's to the sidecar; those over the link are the sidecar's. Both are
/// per repetition.
fn hop(summary: &CellSummary) -> Option<String> {
    let held = summary.hop_connections? as f64 / f64::from(summary.repetitions.max(1));
    let noun = noun_of(if (held - 1.0).abs() < f64::EPSILON { 1 } else { 2 }, "connection");
    Some(format!("{} {noun} over the link; the table has those to the sidecar", number(held)))
}

/// Only where connections ended before the cell did, or carried no request: elsewhere the table says it all. An unused connection
/// of HTTP/1.1's warm pool does not count.
fn connections(summary: &CellSummary) -> Option<String> {
    let totals = &summary.connections;
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for end in totals.closed.iter().filter(|end| end.reason != "cell") {
        *ends.entry(ended(&end.reason)).or_insert(0) += end.count;
    }
    if ends.is_empty()
        && (totals.useless_dials == 0 || !summary.cell.as_generated().protocol.is_multiplexed())
    {
        return None;
    }
    let ends = ends.into_iter().map(|(how, n)| format!("{} {how}", count(n)));
    let useless =
        (totals.useless_dials > 0).then(|| format!("{} carried no request", count(totals.useless_dials)));
    let replayed = summary.requests.replayed;
    let again = (replayed > 0)
        .then(|| format!("requests sent again {}, {}", plural(replayed, "time"), why_again(summary)));
    let gap = (!totals.without_any.is_zero())
        .then(|| format!("{} without any connection", millis_unit(totals.without_any)));
    let opened = plural(totals.opened, "connection");
    let rest: Vec<String> = ends.chain(useless).chain(again).chain(gap).collect();
    Some(format!("{opened} opened: {}", rest.join(", ")))
}

fn failures(summary: &CellSummary) -> Option<String> {
    let errors = errors(summary);
    (!errors.is_empty()).then(|| format!("failed: {}", errors.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_analysis::stats::{Closing, ResetCount};
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::workload::Protocol;

    #[test]
    fn the_code_with_which_we_cancel_is_none_of_the_servers() {
        let code = ErrorCode::CANCEL.0;
        let of = |kind| said(vec![ErrorCount { kind, code, fault: Fault::Sut, count: 3 }]).concat();
        assert_eq!(of(Outcome::Timeout), "3 × timeout (server error)");
        assert_eq!(of(Outcome::Reset), "3 × reset CANCEL (server error)");
    }

    #[test]
    fn whose_fault_a_timeout_was_is_said_only_if_it_is_known() {
        let timeout = |fault, code, count| ErrorCount { kind: Outcome::Timeout, code, fault, count };
        let (ours, server) = (Fault::Client, Fault::Sut);
        let all = [timeout(ours, 8, 252), timeout(server, 8, 4), timeout(ours, 0, 1_000)];
        assert_eq!(said(all.to_vec()), ["1,252 × timeout", "4 × timeout (server error)"]);
    }

    fn clean() -> CellSummary {
        CellSummary::of(&[&one_repetition(&cell(0, 0, Protocol::H2c, 4, 0.0), 0, &Model::CLEAN)])
    }

    fn said(failures: Vec<ErrorCount>) -> Vec<String> {
        errors(&CellSummary { errors: failures, ..clean() })
    }

    #[test]
    fn a_status_of_class_4xx_is_nobodys_error_and_one_of_5xx_the_servers() {
        let status = |code| ErrorCount { kind: Outcome::Status, code, fault: Fault::Sut, count: 2 };
        let of = |code| said(vec![status(code)]).concat();
        assert_eq!([of(399), of(400)], ["2 × status 399 (server error)", "2 × status 400"]);
        assert_eq!([of(499), of(500)], ["2 × status 499", "2 × status 500 (server error)"]);
    }

    #[test]
    fn connections_that_lasted_and_requests_that_succeeded_need_no_note() {
        assert_eq!(of(&clean()), Vec::<String>::new());
    }

    #[test]
    fn a_cell_that_is_the_same_as_an_earlier_one_says_what_its_number_means() {
        let mut again = clean();
        again.cell.twin = 1;
        assert_eq!(of(&again), ["#2: the same protocol and settings once more, measured for itself"]);
    }

    #[test]
    fn a_sidecars_own_connections_are_shown_beside_the_generators() {
        let summary = CellSummary { hop_connections: Some(4), ..clean() };
        assert_eq!(of(&summary), ["4 connections over the link; the table has those to the sidecar"]);
        let rendered = |held, repetitions| {
            let summary = CellSummary { hop_connections: Some(held), repetitions, ..clean() };
            of(&summary)[0].split(" over").next().map(str::to_owned).unwrap()
        };
        let each = [rendered(2, 2), rendered(3, 2), rendered(4, 2)];
        assert_eq!(
            each,
            ["1 connection", "1.50 connections", "2 connections"],
            "of a repetition, as in the table"
        );
    }

    #[test]
    fn ends_are_added_up_by_who_ended_them_whatever_their_last_stream_was() {
        let mut summary = clean();
        let end = |reason: &str, why: &str, count| Closing {
            reason: reason.to_owned(),
            why: why.to_owned(),
            count,
        };
        summary.connections.closed =
            vec![end("cell", "", 4), end("goaway", "last stream 1999", 2), end("goaway", "last stream 7", 1)];
        summary.connections.opened = 1_234;
        assert!(
            of(&summary)[0].starts_with("1,234 connections opened: 3 by the server's GOAWAY"),
            "{:?}",
            of(&summary)
        );
        summary.connections.closed.truncate(1);
        assert_eq!(of(&summary), Vec::<String>::new());
        (summary.connections.useless_dials, summary.requests.replayed) = (99, 1);
        summary.connections.goaways.clear();
        assert!(
            of(&summary)[0].starts_with(
                "1,234 connections opened: 99 carried no request, requests sent again 1 time, whose"
            ),
            "{:?}",
            of(&summary)
        );
    }

    #[test]
    fn what_a_server_refused_is_told_by_what_it_sent() {
        let mut summary = clean();
        let error = ErrorCount { kind: Outcome::Refused, code: 0, fault: Fault::Sut, count: 8 };
        (summary.requests.sent, summary.requests.failed, summary.errors) = (12, 8, vec![error]);
        let said = failing(&summary).unwrap();
        assert_eq!(said, "66.7 % of 12 requests failed (lost with a GOAWAY)");
        assert_eq!(errors(&summary), ["8 × not processed: above the last stream of a GOAWAY"]);
        let reset = ResetCount { code: 7, initiator: "remote".to_owned(), count: 8 };
        summary.connections.resets.push(reset);
        assert_eq!(kind(&summary, &error), "the stream was refused");
        assert_eq!(errors(&summary), ["8 × refused (server error)"]);
    }

    #[test]
    fn failures_are_reported_by_kind_and_whose_fault_they_were() {
        let mut summary = clean();
        summary.errors = vec![
            ErrorCount { kind: Outcome::GoAway, code: 0, fault: Fault::Sut, count: 4_117 },
            ErrorCount { kind: Outcome::Status, code: 502, fault: Fault::Sut, count: 1 },
        ];
        assert_eq!(of(&summary), ["failed: 4,117 × go-away (server error), 1 × status 502 (server error)"]);
    }
}
