//! States on both sides of each threshold.

use super::*;
use h2lab_model::record::testing::{Model, cell, one_repetition};
use h2lab_model::record::{
    BulkRepetition, ByteMeter, CloseReason, DisturbanceKind, FrameFigures, IoFigures, RunDelay,
    SidecarSummary,
};
use h2lab_model::workload::Protocol;

fn clean() -> CellRecord {
    one_repetition(&cell(0, 0, Protocol::H2c, 4, 0.0), 0, &Model::CLEAN)
}

fn state_of(record: &CellRecord) -> CellState {
    CellSummary::of(&[record]).state
}

#[test]
fn a_generator_that_did_not_run_makes_its_figures_invalid() {
    let paused = |total_ms: u64, longest_ms: u64| {
        let mut record = clean();
        record.generator.wall_ns = 20_000_000_000;
        record.generator.paused_ns = total_ms * 1_000_000;
        record.generator.longest_pause_ns = longest_ms * 1_000_000;
        invalid_reasons(&record)
    };
    assert_eq!(paused(100, 100), Vec::<String>::new());
    assert_eq!(paused(200, 40), Vec::<String>::new(), "1 % of twenty seconds");
    assert_eq!(paused(201, 40).len(), 1);
    assert_eq!(paused(101, 101).len(), 1);
    let reasons = paused(2_000, 2_000);
    assert!(reasons[0].contains("did not run for 2 s of 20 s, at most 2 s at a time"), "{reasons:?}");
}

fn disturbed(kind: DisturbanceKind) -> CellRecord {
    let disturbance = Some(Disturbance { process: "nginx".to_owned(), after_ns: 1_500_000_000, kind });
    let mut record = clean();
    record.server = Some(ServerSummary { disturbance, ..ServerSummary::default() });
    record
}

/// Why the figures are invalid for a server whose threads ran for `ran` and waited for `waited` milliseconds of ten
/// seconds, at most `longest` at once, while other programs used `others` of CPU time.
fn starved_by(ran: u64, waited: u64, longest: u64, others: u64) -> Vec<String> {
    let [ran_ns, waited_ns, longest_ns, others_ns] = [ran, waited, longest, others].map(|ms| ms * 1_000_000);
    let run_delay = RunDelay { ran_ns, waited_ns, longest_ns, others_ns };
    let server = ServerSummary {
        name: "nginx".to_owned(),
        wall_ns: 10_000_000_000,
        run_delay,
        ..ServerSummary::default()
    };
    let mut record = clean();
    let requests: u32 = record.connections.iter().map(|connection| connection.requests).sum();
    assert!((1_000..100_000).contains(&requests), "{requests}");
    record.connections[0].requests += 100_000 - requests;
    record.server = Some(server.clone());
    let reasons = invalid_reasons(&record);
    record.server = None;
    record.sidecar = Some(SidecarSummary { process: server, connections: 1 });
    assert_eq!(invalid_reasons(&record), reasons, "a sidecar is judged alike");
    reasons
}

#[test]
fn a_server_that_got_no_cpu_for_long_at_a_time_is_measured_again() {
    assert_eq!(starved_by(100, 200, 100, 10_000), Vec::<String>::new());
    let reasons = starved_by(100, 200, 101, 10_000);
    assert!(
        reasons[0].starts_with("nginx's threads together waited 200 ms (in 10 s of time) for a CPU"),
        "{reasons:?}"
    );
}

#[test]
fn a_loaded_server_may_lose_a_tenth_of_its_cpu_to_other_programs_and_an_idle_one_more() {
    assert_eq!(starved_by(9_000, 1_000, 0, 10_000), Vec::<String>::new());
    assert_eq!(starved_by(8_999, 1_001, 0, 10_000).len(), 1);
    assert_eq!(starved_by(1_000, 3_999, 0, 10_000), Vec::<String>::new(), "it was not the limit");
    assert_eq!(starved_by(1_000, 4_001, 0, 10_000).len(), 1);
}

#[test]
fn a_server_that_overloads_its_cpus_itself_is_data() {
    assert_eq!(starved_by(20_000, 60_000, 0, 8_000), Vec::<String>::new(), "others took a tenth");
    assert_eq!(starved_by(20_000, 60_000, 0, 8_001).len(), 1);
}

#[test]
fn a_server_may_wait_a_millisecond_per_request_or_five_percent_of_the_median() {
    let waited = |micros_each: u64| {
        let mut record = clean();
        let requests: u32 = record.connections.iter().map(|connection| connection.requests).sum();
        let waited_ns = micros_each * 1_000 * u64::from(requests);
        let run_delay = RunDelay { waited_ns, others_ns: waited_ns, ..RunDelay::default() };
        // A time so long that the server is idle for most of it.
        let wall_ns = waited_ns * 100;
        record.server = Some(ServerSummary { run_delay, wall_ns, ..ServerSummary::default() });
        invalid_reasons(&record).len()
    };
    // 5 % of a little more than 25 ms.
    assert_eq!([1_250, 1_300].map(waited), [0, 1]);
}

#[test]
fn a_server_that_others_stop_or_kill_is_no_result_and_is_measured_again() {
    for kind in [
        DisturbanceKind::Stopped { for_ns: 1_000_000_000 },
        DisturbanceKind::ChildEnded,
        DisturbanceKind::Killed { signal: 9 },
    ] {
        let record = disturbed(kind);
        let CellState::Invalid { reasons } = state_of(&record) else { panic!() };
        assert_eq!(reasons, invalid_reasons(&record));
        assert!(reasons[0].contains("nginx"), "{reasons:?}");
    }
}

#[test]
fn a_server_that_ends_by_itself_is_a_result_and_no_reason_to_measure_again() {
    for kind in [DisturbanceKind::Exited { code: 1 }, DisturbanceKind::Crashed { signal: 11 }] {
        let mut record = disturbed(kind);
        record.link.as_mut().unwrap().late_p99_ns = 5_000_000;
        assert_eq!(invalid_reasons(&record), Vec::<String>::new(), "late or not");
        let CellState::Failed { why, how: Failed::ServerEnded } = state_of(&record) else { panic!() };
        assert!(why.contains("nginx") && why.contains("1.5s"), "{why}");
    }
}

#[test]
fn a_cell_without_a_success_failed_and_says_what_came_instead() {
    let ended = |outcome, status, n: usize| {
        let mut record = clean();
        for sample in record.samples.edit().iter_mut().take(n) {
            (sample.outcome, sample.status) = (outcome, status);
        }
        state_of(&record)
    };
    let all = usize::MAX;
    let CellState::Failed { why, how: Failed::NoSuccess } = ended(Outcome::Status, 404, all) else {
        panic!()
    };
    assert!(why.starts_with("no response was a success: ") && why.ends_with("× 404"), "{why}");
    let CellState::Failed { why, how: Failed::NoResponse } = ended(Outcome::Timeout, 0, all) else {
        panic!()
    };
    assert!(why.ends_with("all ended as `timeout`"), "{why}");
    let but_one = clean().samples.len() - 1;
    assert!(matches!(ended(Outcome::Status, 404, but_one), CellState::Unstable { .. }), "one succeeded");
    let mut bulk = clean();
    bulk.cell.work.bulk = true;
    bulk.samples.edit().iter_mut().for_each(|sample| sample.outcome = Outcome::Timeout);
    assert!(!matches!(state_of(&bulk), CellState::Failed { .. }), "its bytes count");
}

#[test]
fn a_cell_that_serves_what_it_is_offered_is_ok() {
    assert_eq!(state_of(&clean()), CellState::Ok);
}

/// A change of each measured request, given its number and the measured time.
type Change<'a> = &'a dyn Fn(usize, &mut Sample, (Time, Time));

#[test]
fn a_stall_at_the_end_is_no_overload_and_the_same_share_missing_all_the_time_is() {
    let mut short = cell(0, 0, Protocol::H1, 4, 0.0);
    short.work.arrival = Arrival::Constant { rate: 100.0 };
    short.work.phases.measure = Duration::from_secs(1);
    let of = |change: Change<'_>| {
        let mut record = one_repetition(&short, 0, &Model::CLEAN);
        let window = window(&record);
        for (n, sample) in record.samples.edit().iter_mut().filter(|s| s.measured).enumerate() {
            change(n, sample, window);
        }
        state_of(&record)
    };
    // Everything that was due in the last `millis` milliseconds, or would have been answered then, is answered after
    // the end.
    let stalled_for = |millis: u64| {
        of(&move |_, sample, (_, until)| {
            if sample.completed_at + Duration::from_millis(millis) >= until {
                sample.completed_at = sample.completed_at.max(until);
            }
        })
    };
    assert_eq!([60, 200].map(stalled_for), [CellState::Ok, CellState::Ok], "up to a quarter of the time");
    assert!(matches!(stalled_for(300), CellState::Unstable { .. }));
    // A server that falls behind by 6 % of the time.
    let slower = of(&|_, sample, (from, _)| {
        sample.completed_at += sample.scheduled_at.since(from).mul_f64(0.06);
    });
    assert!(matches!(slower, CellState::Unstable { .. }), "{slower:?}");
    let failing = of(&|n, sample, _| {
        if n % 20 == 0 {
            sample.outcome = Outcome::Reset;
        }
    });
    assert!(matches!(failing, CellState::Unstable { .. }), "5 % failed");
}

/// The state of three repetitions of 3 s at 50 requests per second, after `change` of each measured request.
fn of_fifty_per_second(change: Change<'_>) -> CellState {
    let mut steady = cell(0, 0, Protocol::H1, 4, 0.0);
    steady.work.arrival = Arrival::Constant { rate: 50.0 };
    steady.work.phases.measure = Duration::from_secs(3);
    let repetitions = [0, 1, 2].map(|round| {
        let mut record = one_repetition(&steady, round, &Model::CLEAN);
        let window = window(&record);
        for (n, sample) in record.samples.edit().iter_mut().filter(|s| s.measured).enumerate() {
            change(n, sample, window);
        }
        record
    });
    CellSummary::of(&repetitions.each_ref()).state
}

#[test]
fn one_stall_near_the_end_of_each_repetition_is_no_overload_and_a_backlog_that_grows_is() {
    // No response between these times before the end.
    let stalled = |begun_ms: u64, over_ms: u64| {
        of_fifty_per_second(&move |_, sample, (_, until)| {
            let over = until - Duration::from_millis(over_ms);
            if sample.completed_at + Duration::from_millis(begun_ms) >= until {
                sample.completed_at = sample.completed_at.max(over);
            }
        })
    };
    assert_eq!(stalled(400, 100), CellState::Ok, "300 ms, over before the end");
    assert_eq!(stalled(150, 0), CellState::Ok, "a reconnection at the end");
    assert_eq!(stalled(450, 0), CellState::Ok);
    assert!(matches!(stalled(700, 0), CellState::Unstable { .. }), "more than half a second");
    // All are answered, but ever later: at the end, 4 % of them after it, as with a stall of 120 ms.
    let behind = of_fifty_per_second(&|_, sample, (from, _)| {
        sample.completed_at += sample.scheduled_at.since(from).mul_f64(0.04);
    });
    assert!(matches!(behind, CellState::Unstable { .. }), "{behind:?}");
}

#[test]
fn requests_that_fail_at_the_end_are_no_stall() {
    let failing = of_fifty_per_second(&|_, sample, (_, until)| {
        if sample.scheduled_at + Duration::from_millis(200) >= until {
            sample.outcome = Outcome::Reset;
        }
    });
    assert!(matches!(failing, CellState::Unstable { .. }), "{failing:?}");
}

/// Makes `n` measured requests of a clean repetition complete after the window.
fn postponed(n: usize) -> CellRecord {
    let mut record = clean();
    let (_, until) = window(&record);
    let is_inside = |sample: &&mut Sample| sample.measured && sample.completed_at < until;
    for sample in record.samples.edit().iter_mut().filter(is_inside).step_by(20).take(n) {
        sample.completed_at = until;
    }
    record
}

#[test]
fn serving_less_than_98_percent_is_unstable() {
    assert_eq!(state_of(&postponed(59)), CellState::Ok);
    let CellState::Unstable { offered_rps, served_rps, why } = state_of(&postponed(62)) else { panic!() };
    assert!((offered_rps - 1000.0).abs() < 1e-9 && (979.0..980.0).contains(&served_rps), "{served_rps}");
    assert!(matches!(why, Instability::Served { .. }), "{why}");
}

#[test]
fn a_request_that_straddles_the_end_of_a_slow_cells_window_is_no_instability() {
    let mut slow = cell(0, 0, Protocol::H1, 4, 0.0);
    slow.work.arrival = Arrival::Constant { rate: 10.0 };
    let with_missing = |n: usize| {
        let mut record = one_repetition(&slow, 0, &Model::CLEAN);
        record
            .samples
            .edit()
            .iter_mut()
            .filter(|s| s.measured)
            .take(n)
            .for_each(|s| s.outcome = Outcome::Closed);
        state_of(&record)
    };
    assert_eq!(with_missing(2), CellState::Ok);
    assert!(matches!(with_missing(3), CellState::Unstable { .. }));
}

#[test]
fn an_open_loop_without_warm_up_is_stable_although_the_last_answers_come_late() {
    let mut sudden = cell(0, 0, Protocol::H1, 4, 0.0);
    sudden.work.phases.warmup = Duration::ZERO;
    let mut record = one_repetition(&sudden, 0, &Model::CLEAN);
    let (_, until) = window(&record);
    record.samples.edit().iter_mut().for_each(|sample| sample.completed_at += Duration::from_millis(200));
    let late = record.samples.iter().filter(|sample| sample.measured && sample.completed_at >= until);
    assert!(late.count() as f64 > (1.0 - SERVED_SHARE) * record.samples.len() as f64);
    assert_eq!(state_of(&record), CellState::Ok);
}

#[test]
fn the_fill_of_a_closed_loop_is_no_growth_and_what_comes_after_it_is() {
    // A server that takes 100 ms per request, and ten requests in flight: the first ten wait 100 ms, 200 ms …, all
    // others a second.
    let after_the_fill = |late: Duration| {
        let mut record = clean();
        record.cell.work.arrival = Arrival::Closed { concurrency: 10 };
        let (from, until) = window(&record);
        let middle = from + record.cell.work.phases.measure / 2;
        let kept = record.samples.iter().filter(|sample| sample.measured).take(30);
        let samples = (0_u64..)
            .zip(kept)
            .map(|(k, sample)| {
                let ended = from + Duration::from_millis(100 * (k + 1));
                let due = if k < 10 { from } else { from + Duration::from_millis(100 * (k - 9)) };
                let more = if due >= middle { late } else { Duration::ZERO };
                let completed_at = (ended + more).min(until - Duration::from_nanos(1));
                Sample {
                    scheduled_at: due,
                    sent_at: due,
                    first_byte_at: completed_at,
                    completed_at,
                    ..sample
                }
            })
            .collect();
        record.samples = samples;
        let summary = CellSummary::of(&[&record]);
        instability(&summary, &[&record])
    };
    assert_eq!(after_the_fill(Duration::ZERO), None);
    let grown = after_the_fill(Duration::from_millis(300));
    assert!(matches!(grown, Some(Instability::Growing { .. })), "{grown:?}");
}

#[test]
fn response_times_that_grow_are_unstable() {
    let grown_by = |millis: u64| {
        let mut record = clean();
        let middle = window(&record).0 + record.cell.work.phases.measure / 2;
        let until = window(&record).1;
        for sample in record.samples.edit().iter_mut().filter(|s| s.scheduled_at >= middle) {
            // The last requests stay inside the window, so that only the growth is visible.
            let room = until.since(sample.completed_at).saturating_sub(Duration::from_nanos(1));
            sample.completed_at += Duration::from_millis(millis).min(room);
        }
        state_of(&record)
    };
    assert_eq!(grown_by(95), CellState::Ok);
    assert!(matches!(grown_by(120), CellState::Unstable { why: Instability::Growing { .. }, .. }));
}

#[test]
fn responses_of_bulk_work_may_take_longer_and_longer() {
    let of = |bulk: bool| {
        let mut record = clean();
        let middle = window(&record).0 + record.cell.work.phases.measure / 2;
        let until = window(&record).1;
        for sample in record.samples.edit().iter_mut().filter(|s| s.scheduled_at >= middle) {
            sample.completed_at = until - Duration::from_nanos(1);
        }
        record.cell.work.arrival = Arrival::Closed { concurrency: 1 };
        record.cell.work.bulk = bulk;
        instability(&CellSummary::of(&[&record]), &[&record])
    };
    assert_eq!(of(true), None);
    assert!(matches!(of(false), Some(Instability::Growing { .. })));
}

#[test]
fn a_late_link_is_invalid_beyond_five_percent_of_the_round_trip() {
    let late = |ns: u64| {
        let mut record = clean();
        record.link.as_mut().unwrap().late_p99_ns = ns;
        state_of(&record)
    };
    assert_eq!(late(1_250_000), CellState::Ok); // 5 % of 25 ms
    let CellState::Invalid { reasons } = late(1_250_001) else { panic!() };
    assert_eq!(reasons, ["the emulated link was late: p99 1.25 ms, 1.25 ms is allowed"]);
}

#[test]
fn a_link_that_did_not_run_for_a_tenth_of_a_second_is_invalid() {
    let late = |millis: u64| {
        let mut record = clean();
        record.link.as_mut().unwrap().late_max_ns = millis * 1_000_000;
        invalid_reasons(&record)
    };
    assert_eq!(late(100), Vec::<String>::new());
    assert!(late(101)[0].contains("late by up to 101 ms at once"), "{:?}", late(101));
}

#[test]
fn of_a_machine_that_was_taken_away_is_reported_if_that_did_harm() {
    let taken = |percent: u64, late_ns: u64| {
        let mut record = clean();
        record.generator.stolen_ns = record.generator.wall_ns / 100 * percent;
        record.link.as_mut().unwrap().late_p99_ns = late_ns;
        invalid_reasons(&record)
    };
    assert!(taken(50, 0).is_empty(), "nothing was late");
    assert_eq!(taken(1, 2_000_000).len(), 1);
    let [_, why] = &taken(21, 2_000_000)[..] else { panic!() };
    assert_eq!(why, "the hypervisor gave 21 % of this machine's CPU time to others (steal)");
}

#[test]
fn a_late_generator_is_invalid_beyond_a_millisecond_or_five_percent_of_the_median() {
    let late = |micros: u64| {
        let mut record = clean();
        for sample in record.samples.edit().iter_mut() {
            sample.sent_at = sample.scheduled_at + Duration::from_micros(micros);
        }
        state_of(&record)
    };
    assert_eq!(late(1_250), CellState::Ok); // 5 % of a little more than 25 ms
    assert!(matches!(late(1_300), CellState::Invalid { .. }));
}

/// Why the figures are invalid for a closed loop of ten requests that took `wall`, with request n late by `late(n)`.
fn closed(wall: Duration, late: impl Fn(usize) -> Duration) -> Vec<String> {
    let mut record = clean();
    record.cell.work.arrival = Arrival::Closed { concurrency: 10 };
    record.generator.wall_ns = nanos(wall);
    record.generator.cpu_ns = 0;
    for (n, sample) in record.samples.edit().iter_mut().enumerate() {
        sample.sent_at = sample.scheduled_at + late(n);
    }
    invalid_reasons(&record)
}

#[test]
fn a_closed_loop_that_is_over_at_once_is_invalid_only_beyond_a_pause() {
    let all = |late: u64| move |_| Duration::from_millis(late);
    let [short, longer] = [99, 100].map(Duration::from_millis);
    assert_eq!(closed(short, all(100)), Vec::<String>::new());
    assert!(closed(short, all(101))[0].contains("100 ms is allowed"));
    assert!(closed(longer, all(3))[0].contains("the generator was late"));
    let mut open = clean();
    open.generator.wall_ns = nanos(short);
    open.samples.edit().iter_mut().for_each(|s| s.sent_at = s.scheduled_at + Duration::from_millis(3));
    assert!(invalid_reasons(&open)[0].contains("the generator was late"), "an open loop has due times");
}

#[test]
fn the_requests_that_begin_a_closed_loop_may_be_late_and_no_more_of_them() {
    let measured = clean().samples.iter().filter(|sample| sample.measured).count();
    let late = |n: usize| {
        let mut record = clean();
        record.cell.work.arrival = Arrival::Closed { concurrency: 400 };
        record.connections.truncate(1);
        record.connections[0].requests = measured as u32;
        for sample in record.samples.edit().iter_mut().filter(|sample| sample.measured).take(n) {
            sample.sent_at = sample.scheduled_at + Duration::from_millis(5);
        }
        invalid_reasons(&record)
    };
    let others = (measured - 400) / 100;
    assert_eq!(late(400 + others - 1), Vec::<String>::new(), "the first 400, and a hundredth of the others");
    assert!(late(400 + others + 1)[0].contains("the generator was late"));
}

#[test]
fn waiting_for_a_connection_is_not_the_generators_lateness() {
    let mut record = clean();
    for sample in record.samples.edit().iter_mut() {
        sample.sent_at = sample.scheduled_at + Duration::from_millis(20);
        sample.stall_open_ns = 19_900_000;
    }
    assert_eq!(state_of(&record), CellState::Ok);
}

#[test]
fn a_client_of_bulk_may_be_what_holds_it_back() {
    let mut record = clean();
    record.generator.cpu_ns = record.generator.wall_ns;
    assert_eq!(invalid_reasons(&record).len(), 1);
    record.bulk = Some(BulkRepetition {
        meter: ByteMeter::new(Time::ZERO),
        frames: FrameFigures::default(),
        io: IoFigures::default(),
        offered: None,
        receive_buffer: None,
        send_buffer: None,
    });
    assert_eq!(invalid_reasons(&record), Vec::<String>::new());
}

#[test]
fn a_busy_core_of_ours_is_invalid() {
    let busy = |percent: u64, awake: u64| {
        let mut record = clean();
        record.generator.cpu_ns = record.generator.wall_ns / 100 * percent;
        record.generator.awake_ns = record.generator.wall_ns / 100 * awake;
        state_of(&record)
    };
    assert_eq!(busy(94, 0), CellState::Ok);
    assert!(matches!(busy(95, 0), CellState::Invalid { .. }));
    // Busy-waiting to be on time is not overload.
    assert_eq!(busy(99, 5), CellState::Ok);
    assert!(matches!(busy(99, 4), CellState::Invalid { .. }));
    let mut record = clean();
    record.generator.threads = 4;
    record.generator.busiest_ns = record.generator.wall_ns / 100 * 94;
    assert_eq!(state_of(&record), CellState::Ok);
    record.generator.busiest_ns = record.generator.wall_ns / 100 * 96;
    let CellState::Invalid { reasons } = state_of(&record) else { panic!() };
    assert_eq!(reasons, ["the generator's busiest of 4 threads was 96 % busy"]);
    let mut record = clean();
    let link = record.link.as_mut().unwrap();
    link.cpu_ns = link.wall_ns;
    assert!(matches!(state_of(&record), CellState::Invalid { .. }));
}

#[test]
fn a_packet_that_nobody_can_account_for_is_invalid() {
    let mut record = clean();
    record.link.as_mut().unwrap().down.delivered -= 1;
    let CellState::Invalid { reasons } = state_of(&record) else { panic!() };
    assert!(reasons[0].contains("downlink's packet log"), "{reasons:?}");
    let mut record = clean();
    record.link.as_mut().unwrap().device_drops = 1;
    assert!(matches!(state_of(&record), CellState::Invalid { .. }));
}

#[test]
fn a_cell_without_any_answer_of_its_protocol_is_unsupported_and_says_why() {
    let mut record = clean();
    for sample in record.samples.edit().iter_mut() {
        sample.outcome = Outcome::Protocol;
    }
    for connection in &mut record.connections {
        connection.closed = CloseReason::Local { why: "the peer does not speak HTTP/2".to_owned() };
    }
    assert_eq!(
        state_of(&record),
        CellState::Unsupported { why: "the peer does not speak HTTP/2".to_owned() }
    );
    record.samples.edit().last_mut().unwrap().outcome = Outcome::Succeeded;
    assert!(matches!(state_of(&record), CellState::Unstable { .. }));
}

#[test]
fn a_cell_of_which_no_request_began_in_the_measured_time_says_so_and_is_not_measured_again() {
    let mut record = clean();
    let run_delay = RunDelay { longest_ns: 10_000_000_000, ..RunDelay::default() };
    record.server = Some(ServerSummary { run_delay, ..ServerSummary::default() });
    assert_eq!(invalid_reasons(&record).len(), 1, "a server without CPU time is measured again");
    record.samples.edit().iter_mut().for_each(|sample| sample.measured = false);
    assert_eq!(invalid_reasons(&record), Vec::<String>::new());
    let CellState::Invalid { reasons } = state_of(&record) else { panic!() };
    assert!(reasons[0].starts_with("no request began in the measured time"), "{reasons:?}");
    record.connections.iter_mut().for_each(|connection| connection.requests = 0);
    assert!(matches!(state_of(&record), CellState::Unsupported { .. }), "none was sent at all");
}

#[test]
fn what_was_stopped_during_the_warm_up_is_invalid_and_says_nothing_of_the_server() {
    let mut record = clean();
    record.cell.work.phases.measure = Duration::ZERO;
    record.samples.edit().iter_mut().for_each(|sample| sample.measured = false);
    let CellState::Invalid { reasons } = state_of(&record) else { panic!() };
    assert_eq!(reasons, ["it was stopped during the warm-up: nothing was measured"]);
}

#[test]
fn a_live_server_that_answers_nothing_after_a_repetition_that_it_answered_has_ended() {
    let live = |is_silent: bool| {
        let mut record = clean();
        (record.server, record.link) = (None, None);
        let (_, until) = window(&record);
        for sample in record.samples.edit().iter_mut().filter(|_| is_silent) {
            (sample.outcome, sample.first_byte_at) = (Outcome::Unfinished, Time::NEVER);
            sample.completed_at = until + Duration::from_millis(700);
        }
        record
    };
    let has_ended = |all: [&CellRecord; 2]| {
        matches!(CellSummary::of(&all).state, CellState::Failed { how: Failed::ServerEnded, .. })
    };
    assert!(has_ended([&live(false), &live(true)]));
    assert!(!has_ended([&live(true), &live(false)]), "it may have been slow to begin");
}
