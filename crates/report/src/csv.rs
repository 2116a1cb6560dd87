//! The cells as CSV (RFC 4180): one line per cell, for spreadsheets and scripts.

use super::Report;
use super::document::{BulkCellDocument, CellDocument, document};

const HEADER: &str = "run,index,group,label,target,protocol,connections,streams,delay_ms,loss,congestion,state,offered_rps,\
served_rps,sent,succeeded,failed,unfinished,p50_us,p95_us,p99_us,max_us,mean_us,n,connections_opened,\
retransmits_client,retransmits_server,dropped_up,dropped_down,sysctls,\
bulk_factor,bulk_rate_bps,bulk_of_tcp,bulk_bytes,bulk_elapsed_s,bulk_cpu_s_per_gb,bulk_server_cpu_s_per_gb,\
bulk_retransmits,bulk_limit";

/// The cells of these runs as CSV with a header line. Unknown values are empty. Latencies of every state are given; `state`
/// qualifies them.
pub fn csv(reports: &[Report<'_>]) -> String {
    let mut out = format!("{HEADER}\r\n");
    for report in reports {
        for cell in &document(report).cells {
            out += &line(report.name(), cell).join(",");
            out += "\r\n";
        }
    }
    out
}

fn line(run: &str, cell: &CellDocument) -> Vec<String> {
    let latency = |pick: fn(&super::document::LatencyDocument) -> f64| {
        text(cell.latency_us.response.as_ref().map(pick))
    };
    let link = cell.link.as_ref();
    let mut fields = vec![
        quoted(run),
        cell.index.to_string(),
        cell.group.to_string(),
        quoted(&cell.label),
        quoted(&cell.target),
        cell.protocol.to_string(),
        cell.connections.to_string(),
        cell.streams.to_string(),
        text(link.map(|link| link.delay_ms)),
        text(link.map(|link| link.loss)),
        text(link.and_then(|link| link.congestion_control.clone())),
        cell.state.clone(),
        cell.rate_rps.to_string(),
        cell.throughput_rps.to_string(),
    ];
    let requests = &cell.requests;
    fields.extend(
        [requests.sent, requests.succeeded, requests.failed, requests.unfinished].map(|n| n.to_string()),
    );
    fields.extend([
        latency(|l| l.p50),
        latency(|l| l.p95),
        latency(|l| l.p99),
        latency(|l| l.max),
        latency(|l| l.mean),
    ]);
    fields.extend([
        text(cell.latency_us.response.map(|l| l.n)),
        cell.connections_opened.to_string(),
        text(cell.tcp.client.as_ref().map(|end| end.retransmits)),
        text(cell.tcp.server.as_ref().map(|end| end.retransmits)),
        text(link.map(|link| link.dropped_up)),
        text(link.map(|link| link.dropped_down)),
        quoted(&cell.sysctls.rendered().collect::<Vec<_>>().join("; ")),
    ]);
    fields.extend(transfer(cell.bulk.as_ref()));
    fields
}

/// The transfer; the rate is the median of the repetitions. Empty where the work is not bulk.
fn transfer(bulk: Option<&BulkCellDocument>) -> [String; 9] {
    let Some(bulk) = bulk else { return Default::default() };
    [
        quoted(&bulk.factor),
        bulk.rate_bps.median.to_string(),
        text(bulk.of_tcp),
        bulk.bytes.to_string(),
        bulk.elapsed_s.to_string(),
        text(bulk.cpu_s_per_gb),
        text(bulk.server_cpu_s_per_gb),
        text(bulk.retransmits),
        text(bulk.limit.as_ref().map(|limit| limit.kind.name())),
    ]
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// A field that may contain commas or quotes.
pub(super) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_as_many_fields_as_the_header() {
        let fixture = super::super::testing::Fixture::new();
        let csv = csv(&[fixture.report()]);
        let fields: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(fields.len(), 9);
        assert!(fields.iter().all(|&n| n == fields[0]), "{fields:?}");
        assert!(csv.ends_with("\r\n"));
    }

    #[test]
    fn transfers_have_their_rate_and_what_held_them_back() {
        let fixture = super::super::testing::Fixture::bulk();
        let csv = csv(&[fixture.report()]);
        let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        let column = |name: &str| rows[0].iter().position(|of| *of == name).unwrap();
        let rates: Vec<&str> = rows[1..].iter().map(|row| row[column("bulk_rate_bps")]).collect();
        assert_eq!(rates, ["400000000", "200000000", "800000000", "320000000", "100000000"]);
        let held = |row: usize| rows[row][column("bulk_limit")];
        assert!(rows[1..].iter().enumerate().all(|(row, _)| !held(row + 1).is_empty()), "{csv}");
        assert_eq!(rows[2][column("bulk_of_tcp")], "0.5");
    }

    #[test]
    fn of_several_runs_each_line_says_of_which_it_is() {
        let fixture = super::super::testing::Fixture::new();
        let second = Report { folder: None, ..fixture.report() };
        let csv = csv(&[fixture.report(), second]);
        let runs: Vec<&str> = csv.lines().map(|line| line.split(',').next().unwrap()).collect();
        assert_eq!(runs.len(), 1 + 2 * 8, "one header");
        assert_eq!((runs[0], runs[1], runs[8]), ("run", runs[1], runs[1]));
        assert_eq!(runs[1], "./h2lab-runs/20260131T120000Z-42");
        assert_eq!((runs[9], runs[16]), ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"));
    }

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        assert_eq!(quoted("http://a/?x=1,2"), "\"http://a/?x=1,2\"");
        assert_eq!(quoted("a \"b\""), "\"a \"\"b\"\"\"");
        assert_eq!(quoted("h2c × 4"), "h2c × 4");
    }
}
