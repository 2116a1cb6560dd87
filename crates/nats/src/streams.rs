//! The streams, the bucket and the object store: their names, and what a driver creates.

use std::time::Duration;

use serde_json::{Value, json};

/// The stream of units that wait to be measured, a work queue: `h2lab.cells.<run>.<class>.<unit>`.
pub const CELLS: &str = "H2LAB_CELLS";
/// The stream of the reports of units: `h2lab.reports.<run>.<unit>.<agent>`.
pub const REPORTS: &str = "H2LAB_REPORTS";
/// The key-value bucket of open runs. Its stream is called `KV_H2LAB_RUNS`.
pub const RUNS: &str = "H2LAB_RUNS";
/// The object store of parts. Its stream is called `OBJ_H2LAB_PARTS`.
pub const PARTS: &str = "H2LAB_PARTS";

/// The stream behind [`RUNS`].
pub(crate) const RUNS_STREAM: &str = "KV_H2LAB_RUNS";
/// The stream behind [`PARTS`].
pub(crate) const PARTS_STREAM: &str = "OBJ_H2LAB_PARTS";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Reports and parts that nobody fetches go after this.
const RESULTS_AGE: Duration = DAY.saturating_mul(7);
/// Runs that nobody ends, and their units, go after this.
const RUN_AGE: Duration = DAY.saturating_mul(30);
/// Two messages with one `Nats-Msg-Id` within this are one: what was stored is sent again after a reconnect.
const WINDOW: Duration = Duration::from_secs(600);

/// Each stream with its configuration, as `$JS.API.STREAM.CREATE.<stream>` takes it (NATS 2.9 and newer).
pub(crate) fn configs() -> [(&'static str, Value); 4] {
    let common = |name: &str, subjects: Value, age: Duration| {
        json!({
            "name": name,
            "subjects": subjects,
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": 1,
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": nanoseconds(age),
            "duplicate_window": nanoseconds(WINDOW),
        })
    };
    let mut cells = common(CELLS, json!(["h2lab.cells.>"]), RUN_AGE);
    cells["retention"] = json!("workqueue");
    let reports = common(REPORTS, json!(["h2lab.reports.>"]), RESULTS_AGE);
    let mut runs = common(RUNS_STREAM, json!([format!("$KV.{RUNS}.>")]), RUN_AGE);
    // As every client of NATS creates a bucket with one value a key, but without `deny_delete`: see `Link::purge_step`.
    runs["max_msgs_per_subject"] = json!(1);
    runs["allow_rollup_hdrs"] = json!(true);
    let subjects = json!([format!("$O.{PARTS}.C.>"), format!("$O.{PARTS}.M.>")]);
    let mut parts = common(PARTS_STREAM, subjects, RESULTS_AGE);
    parts["allow_rollup_hdrs"] = json!(true);
    // The pieces of a part are read by direct gets.
    parts["allow_direct"] = json!(true);
    [(CELLS, cells), (REPORTS, reports), (RUNS_STREAM, runs), (PARTS_STREAM, parts)]
}

/// The keys in which a stream that is there already must be as ours: all others are an administrator's to choose.
const NEEDED: [&str; 5] =
    ["subjects", "retention", "allow_rollup_hdrs", "allow_direct", "max_msgs_per_subject"];

/// In what a stream that is there does not serve, if in anything.
pub(crate) fn mismatch(there: &Value, ours: &Value) -> Option<String> {
    let key =
        NEEDED.into_iter().find(|key| ours.get(key).is_some_and(|value| there.get(key) != Some(value)))?;
    let value = there.get(key).map_or_else(|| "absent".to_owned(), Value::to_string);
    Some(format!("the stream that is there has `{key}` = {value}, and {} is needed; delete it", ours[key]))
}

/// JetStream counts times in nanoseconds.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(i64::MAX as u64).min(i64::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_window_is_longer_than_the_age_of_its_stream() {
        for (name, config) in configs() {
            assert!(config["duplicate_window"].as_u64() <= config["max_age"].as_u64(), "{name}");
            assert_eq!(config["name"], name);
        }
    }

    #[test]
    fn a_stream_with_limits_of_its_own_serves_and_one_of_another_kind_does_not() {
        let [(_, ours), ..] = configs();
        let mut there = ours.clone();
        there["max_bytes"] = json!(1000);
        there["num_replicas"] = json!(3);
        assert_eq!(mismatch(&there, &ours), None);
        there["retention"] = json!("limits");
        assert!(mismatch(&there, &ours).is_some_and(|words| words.contains("retention")));
    }

    #[test]
    fn a_key_that_the_server_leaves_out_is_a_mismatch_if_it_is_needed() {
        let [.., (_, ours)] = configs();
        let mut there = ours.clone();
        there.as_object_mut().unwrap().remove("allow_direct");
        assert!(mismatch(&there, &ours).is_some_and(|words| words.contains("absent")));
    }

    #[test]
    fn times_do_not_overflow() {
        assert_eq!(nanoseconds(Duration::from_secs(1)), 1_000_000_000);
        assert_eq!(nanoseconds(Duration::MAX), i64::MAX as u64);
    }
}
