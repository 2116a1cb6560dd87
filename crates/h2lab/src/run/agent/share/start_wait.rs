//! The wait of a share for its start: connections are dialled and kept meanwhile.

use std::time::{Duration, Instant};

use h2lab_base::units::format_duration;

use super::RunningShare;
use h2lab_roles::fleet::agent::LONGEST_WAIT;
use h2lab_roles::load::{Readiness, StartGate};

/// How often a load that is dialling is looked at, should it end without an error.
const CHECK_PERIOD: Duration = Duration::from_millis(100);

/// How long the connections of a share may be dialled and kept before it begins, where a task may take `most`.
pub(super) fn longest_wait(most: Option<Duration>) -> Duration {
    most.map_or(LONGEST_WAIT, |most| most.min(LONGEST_WAIT))
}

/// The time before a share begins, over all attempts.
#[derive(Debug)]
pub(super) struct StartWait {
    pub(super) since: Instant,
    pub(super) most: Duration,
}

impl StartWait {
    /// Follows a load until it is told when to begin, or `is_over`; `planned` is called when its connections are up. One that takes
    /// longer is ended: its driver may never say when.
    pub(super) fn wait_for_start(
        &self,
        gate: &StartGate,
        running: &RunningShare,
        is_over: impl Fn() -> bool,
        planned: impl FnOnce(),
    ) {
        let left = || self.most.saturating_sub(self.since.elapsed());
        let is_told = loop {
            match gate.wait_ready(CHECK_PERIOD.min(left())) {
                Readiness::Ready => {
                    planned();
                    break gate.wait_for_instant(left());
                }
                Readiness::Ended => return,
                Readiness::Dialling if is_over() => return,
                Readiness::Dialling if left().is_zero() => break false,
                Readiness::Dialling => {}
            }
        };
        if !is_told {
            running.end(|| {
                let (time, most) = (format_duration(self.most), format_duration(LONGEST_WAIT));
                format!(
                    "it had not begun within {time}: connections are dialled and kept for --max-time at most, and never for more \
                     than {most}"
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use h2lab_base::units::Time;
    use h2lab_model::record::testing::cell;
    use h2lab_model::workload::Protocol;

    use super::*;
    use h2lab_roles::client::reach::tls_options;
    use h2lab_roles::load::{self, LoadSpec};

    #[test]
    fn a_share_waits_for_its_start_as_long_as_a_task_may_take_and_ten_minutes_at_most() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        assert_eq!(longest_wait(None), minutes(10));
        assert_eq!([9, 10, 11].map(|n| longest_wait(Some(minutes(n)))), [9, 10, 10].map(minutes));
    }

    /// Whether a share is ended that has waited for as long as it may, and whether it was planned.
    fn waited(gate: &StartGate, running: &RunningShare, is_over: bool) -> (bool, bool) {
        let wait = StartWait { since: Instant::now(), most: Duration::ZERO };
        let mut is_planned = false;
        wait.wait_for_start(gate, running, || is_over, || is_planned = true);
        (running.limit.get().is_some(), is_planned)
    }

    #[test]
    fn connections_that_are_not_up_in_time_are_not_waited_for() {
        assert_eq!(waited(&StartGate::new(), &RunningShare::default(), false), (true, false));
        assert_eq!(waited(&StartGate::new(), &RunningShare::default(), true), (false, false));
    }

    #[test]
    fn connections_are_not_kept_for_a_driver_that_never_says_when_to_begin() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for is_told in [false, true] {
            let running = RunningShare::default();
            let gate = running.next_gate();
            let mut cell = cell(0, 0, Protocol::H1, 1, 0.0);
            (cell.connections, cell.max_connections) = (1, 1);
            let spec = LoadSpec {
                cell,
                address: server.local_addr().unwrap().into(),
                authority: "localhost".to_owned(),
                server_name: "localhost".to_owned(),
                tls: tls_options(&h2lab_model::fleet::Trust::default()),
                clock_origin_ns: h2lab_net::clock::Clock::start().origin_ns(),
                // One that begins ends at once.
                requests: Some(0),
                threads: 1,
                record: Some(h2lab_model::record::Level::Hist),
                tap: false,
                on_thread: None,
                sharp: false,
                share: h2lab_model::workload::Share::default(),
                start: Some(&gate),
                stop: Some(&running.stop),
            };
            std::thread::scope(|scope| {
                let loading = scope.spawn(|| load::run(&spec, &mut |_| ()));
                assert_eq!(gate.wait_ready(Duration::from_secs(60)), Readiness::Ready);
                if is_told {
                    running.begin(Time::ZERO);
                }
                // One that was released may have ended by now.
                let (is_ended, is_planned) = waited(&gate, &running, false);
                assert!(is_ended != is_told && (is_planned || is_told));
                let result = loading.join().unwrap().unwrap().close();
                assert_eq!(result.interrupted, !is_told);
            });
        }
    }
}
