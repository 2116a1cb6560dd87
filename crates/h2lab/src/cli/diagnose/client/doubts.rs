//! Whether the machine had enough CPU for a run: h2lab's own lateness looks like a cause.

use std::time::Duration;

use h2lab_analysis::stats::link_doubts;
use h2lab_base::units::measured_time;
use h2lab_model::record::LinkSummary;

/// How long our origin may wait for a CPU in total, or for which share of the run: it waits briefly in every run.
const SERVER_WAITED: Duration = Duration::from_millis(50);
const SERVER_WAITED_SHARE: f64 = 0.1;

/// Why the times of a run are not to be trusted: our link, or our server, had no CPU when it needed one.
pub(super) fn of(
    link: &LinkSummary,
    server_waited: Option<Duration>,
    took: Duration,
    rtt: Duration,
) -> Vec<String> {
    let mut doubts = link_doubts(link, rtt);
    let waited = server_waited.unwrap_or_default();
    if waited >= SERVER_WAITED.max(took.mul_f64(SERVER_WAITED_SHARE)) {
        let [waited, took] = [waited, took].map(measured_time);
        doubts.push(format!("h2lab's own server was ready and had no CPU for {waited} of {took}"));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_link_and_a_server_without_a_cpu_are_doubts() {
        let doubts = |late_us: u64, waited: Option<u64>, took: u64| {
            let link = LinkSummary {
                late_p99_ns: late_us * 1_000,
                wall_ns: took * 1_000_000,
                ..LinkSummary::default()
            };
            let waited = waited.map(Duration::from_millis);
            of(&link, waited, Duration::from_millis(took), Duration::from_millis(25))
        };
        assert!(doubts(1_250, Some(49), 300).is_empty());
        assert!(doubts(1_251, None, 300)[0].starts_with("the emulated link was late"));
        assert_eq!(
            doubts(0, Some(50), 300),
            ["h2lab's own server was ready and had no CPU for 50 ms of 300 ms"]
        );
        assert!(doubts(0, Some(199), 2_000).is_empty() && !doubts(0, Some(200), 2_000).is_empty(), "a tenth");
    }
}
