//! What no agent transfers, whatever its flags are: numbers that would use up its threads or its memory, and requests
//! that a file could not have either.

use std::time::Duration;

use super::Refusal;
use crate::fleet::FetchTask;
use crate::scenario::Scenario;
use crate::workload::EngineSettings;
use h2lab_base::units::format_duration;

/// The most pairs at a time: each has a thread.
const MOST_PAIRS: usize = 1_000;
/// The most connections of all pairs together, which are those of a scenario.
const MOST_CONNECTIONS: u64 = 20_000;
/// The most requests at a time on a connection.
const MOST_STREAMS: u32 = 10_000;
/// The most requests at a time of all pairs together, which are those of a closed loop.
const MOST_REQUESTS: u64 = 1_000_000;
/// The longest time, which is that of a scenario.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Refuses transfers that no agent makes; those of `tasks` run at a time.
pub(super) fn check(tasks: &[FetchTask]) -> Result<(), Refusal> {
    if tasks.len() > MOST_PAIRS {
        return out_of_range("pairs of one agent", tasks.len().to_string(), "up to 1000");
    }
    let (mut connections, mut requests) = (0_u64, 0_u64);
    for task in tasks {
        check_one(task)?;
        connections += u64::from(task.connections);
        requests += u64::from(task.connections) * u64::from(task.streams);
    }
    if connections > MOST_CONNECTIONS {
        let expected = "up to 20000, of all pairs of an agent together";
        return out_of_range("connections", connections.to_string(), expected);
    }
    if requests > MOST_REQUESTS {
        let expected = "up to 1000000, of all pairs of an agent together";
        return out_of_range("requests at a time", requests.to_string(), expected);
    }
    Ok(())
}

fn check_one(task: &FetchTask) -> Result<(), Refusal> {
    if task.urls.is_empty() {
        return out_of_range("URLs of a pair", "0".to_owned(), "1 or more");
    }
    if task.connections == 0 {
        return out_of_range("connections", "0".to_owned(), "1 or more");
    }
    if !(1..=MOST_STREAMS).contains(&task.streams) {
        return out_of_range("requests at a time on a connection", task.streams.to_string(), "1 to 10000");
    }
    if task.timeout.is_zero() || task.timeout > LONGEST {
        return out_of_range("timeout", format_duration(task.timeout), "above 0, up to 24h");
    }
    if task.duration > LONGEST {
        return out_of_range("duration", format_duration(task.duration), "up to 24h");
    }
    check_requests(&task.settings, &task.fields)
}

/// Refuses settings of an engine, and header fields of requests, that a scenario could not have.
pub(super) fn check_requests(settings: &EngineSettings, fields: &[(String, String)]) -> Result<(), Refusal> {
    let mut scenario = Scenario::default();
    scenario.client.engine = *settings;
    scenario.work.headers = fields.to_vec();
    scenario.validate().map_err(Refusal::from)
}

fn out_of_range(what: &'static str, asked: String, expected: &'static str) -> Result<(), Refusal> {
    Err(Refusal::Range { what, asked, expected })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing;

    /// What is refused of one task with this change: the number that is out of range, or what a file could not have.
    fn refused(change: impl FnOnce(&mut FetchTask)) -> Option<&'static str> {
        let mut task = testing::fetch_task(0);
        change(&mut task);
        what(check(&[task]))
    }

    fn what(checked: Result<(), Refusal>) -> Option<&'static str> {
        match checked {
            Ok(()) => None,
            Err(Refusal::Range { what, .. }) => Some(what),
            Err(Refusal::Scenario { .. }) => Some("scenario"),
            Err(other) => panic!("{other}"),
        }
    }

    /// So many pairs of `connections` connections with `streams` requests each.
    fn pairs(count: u32, connections: u32, streams: u32) -> Option<&'static str> {
        let task = |pair| FetchTask { connections, streams, ..testing::fetch_task(pair) };
        what(check(&(0..count).map(task).collect::<Vec<_>>()))
    }

    #[test]
    fn pairs_connections_and_requests_are_bounded_together() {
        assert_eq!(pairs(0, 1, 1), None, "a client may have nothing to do");
        assert_eq!([1_000, 1_001].map(|count| pairs(count, 1, 1)), [None, Some("pairs of one agent")]);
        assert_eq!([10_000, 10_001].map(|n| pairs(2, n, 1)), [None, Some("connections")]);
        assert_eq!(pairs(1, u32::MAX, 1), Some("connections"));
        assert_eq!([500, 501].map(|n| pairs(2, n, 1_000)), [None, Some("requests at a time")]);
        assert_eq!(pairs(1_000, u32::MAX, 10_000), Some("connections"), "the sum does not overflow");
    }

    #[test]
    fn a_pair_has_something_to_do_and_a_bounded_time() {
        assert_eq!(refused(|_| ()), None);
        assert_eq!(refused(|task| task.urls.clear()), Some("URLs of a pair"));
        let connections = [0, 1].map(|n| refused(|task| task.connections = n));
        assert_eq!(connections, [Some("connections"), None]);
        let streams = [0, 1, 10_000, 10_001].map(|n| refused(|task| task.streams = n));
        let out = Some("requests at a time on a connection");
        assert_eq!(streams, [out, None, None, out]);
        let times = [Duration::ZERO, Duration::from_nanos(1), LONGEST, LONGEST + Duration::from_nanos(1)];
        let timeouts = times.map(|time| refused(|task| task.timeout = time));
        assert_eq!(timeouts, [Some("timeout"), None, None, Some("timeout")]);
        let durations = times.map(|time| refused(|task| task.duration = time));
        assert_eq!(durations, [None, None, None, Some("duration")]);
    }

    #[test]
    fn what_a_file_could_not_have_a_task_does_not_have_either() {
        let frames = [16_383, 16_384].map(|size| refused(|task| task.settings.max_frame_size = Some(size)));
        assert_eq!(frames, [Some("scenario"), None]);
        let keep_alive = [Duration::ZERO, Duration::from_millis(1)]
            .map(|time| refused(|task| task.settings.keep_alive = Some(time)));
        assert_eq!(keep_alive, [Some("scenario"), None]);
        for (name, value, is_taken) in [
            ("x-tenant", "a b\t\u{e9}", true),
            ("host", "a.example:8080", true),
            ("x tenant", "a", false),
            ("", "a", false),
            ("x-a", "b\r\nx-c: d", false),
            ("x-a", "b\0", false),
            ("host", "a\nb", false),
            ("content-length", "3", false),
            ("connection", "close", false),
        ] {
            let refused = refused(|task| task.fields = vec![(name.to_owned(), value.to_owned())]);
            assert_eq!(refused.is_none(), is_taken, "{name}: {value:?}");
        }
        let fields = [("x\u{1b}[2J".to_owned(), "secret".to_owned())];
        let words = check_requests(&EngineSettings::default(), &fields).unwrap_err().to_string();
        assert!(!words.contains('\u{1b}') && !words.contains("secret"), "{words}");
    }
}
