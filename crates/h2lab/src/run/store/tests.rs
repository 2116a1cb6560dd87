//! The run folder gives back what was put in, finished or not.

use h2lab_base::counters::TlsRecords;
use h2lab_model::record::{
    ByteMeter, CloseReason, FrameFigures, GoAwayRecord, HostId, HttpRecord, IoFigures, Level, Marks, Offered,
    OriginCounts, Outcome, PacketFate, RunDelay, RunRecord, Samples,
};
use h2lab_wire::trace::{Direction, FrameKind};
use h2lab_wire::{Counters, StreamId};

use super::*;

fn time(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn tallies(sample: &Sample) -> Vec<Tally> {
    let phases = Scenario::default().plan()[0].work.phases;
    let mut tallier = h2lab_model::record::tally::Tallier::new(phases, Time::ZERO);
    tallier.add(sample);
    tallier.finish(0)
}

fn server(name: &str) -> ServerSummary {
    ServerSummary {
        name: name.to_owned(),
        version: "1".to_owned(),
        cpu_ns: 2,
        wall_ns: 3,
        rss_peak_bytes: 4,
        run_delay: RunDelay { ran_ns: 5, waited_ns: 6, longest_ns: 7, others_ns: 8 },
        disk_wait_ns: 11,
        origin: Some(OriginCounts { requests: 9, busy_ns: 10, ..OriginCounts::default() }),
        disturbance: None,
    }
}

fn measured(cell: &Cell) -> CellRecord {
    let answered = Sample {
        connection: 3,
        stream: StreamId(7),
        sent_at: time(2),
        first_byte_at: time(20),
        completed_at: time(21),
        outcome: Outcome::Succeeded,
        status: 200,
        body_bytes: 1024,
        stall_open_ns: 17,
        ..Sample::due(time(1), true)
    };
    let connection = ConnectionRecord {
        index: 3,
        local_port: 40_001,
        remote_port: 80,
        dialled_at: time(0),
        connected_at: time(1),
        ready_at: Time::NEVER,
        tls_resumed: Some(true),
        tls_records: TlsRecords { early_records: 4, early_bytes: 3, records: 2, bytes: 1 },
        closed_at: Time::NEVER,
        closed: CloseReason::Broken { why: "reset".to_owned() },
        goaways: vec![GoAwayRecord { at: time(9), code: 0, last_stream: 1999, debug: "bye".into() }],
        resets_received: vec![(8, 2)],
        highest_stream: StreamId(1999),
        requests: 1000,
        bytes_sent: 5,
        bytes_received: 6,
        counters: Counters { headers_plain: 9, ..Counters::default() },
        server_software: Some("nginx".into()),
        tcp_client: None,
        tcp_server: None,
        quic_client: None,
        http: HttpRecord {
            resets_sent: vec![(8, 1)],
            interim: vec![(103, 2)],
            settings_local: vec![(2, 0)],
            socket_full_ns: 11,
            ..HttpRecord::default()
        },
    };
    let frame = FrameEvent {
        at: time(4),
        connection: 3,
        stream: StreamId(7),
        length: 1024,
        value: 0,
        kind: FrameKind(0x0c),
        flags: 1,
        direction: Direction::Up,
    };
    let tick = TcpTick {
        at: time(10),
        connection: 3,
        retransmits: 1,
        cwnd: 10,
        rtt_us: 25_000,
        unacked: 2,
        server: true,
    };
    let packet = PacketRecord {
        at: time(5),
        out_at: Time::NEVER,
        index: 12,
        client_port: 40_001,
        server_port: 80,
        bytes: 1500,
        payload: 1448,
        seq: u32::MAX,
        direction: Direction::Down,
        fate: PacketFate::CodelDropped,
        marks: Marks { is_copy: true, is_reordered: true, corrupt: Some(7) },
    };
    CellRecord {
        cell: cell.clone(),
        attempt: 1,
        started_at: time(1),
        tallies: tallies(&answered),
        samples: Samples::from_iter([answered, Sample::due(time(2), false)]),
        connections: vec![connection],
        frames: vec![frame],
        tcp: vec![tick],
        packets: vec![packet],
        link: Some(LinkSummary { late_p99_ns: 5, ..LinkSummary::default() }),
        generator: GeneratorSummary::default(),
        server: Some(server("origin")),
        sidecar: Some(SidecarSummary { process: server("envoy"), connections: 4 }),
        bulk: Some(moved()),
        agents: vec![ShareSummary::new("kek-1", 0, 2)],
        environment: Environment::default(),
        warnings: vec!["late".to_owned()],
        unsupported: None,
        machine: Some(machine()),
    }
}

/// The machine of an agent.
fn machine() -> MeasuredOn {
    let [agent, machine, likeness] = ["kek-1", "Linux, 4 CPUs", "h2lab 0, Linux, 4 CPUs"].map(str::to_owned);
    MeasuredOn { agent, machine, likeness, host: HostId::new("x") }
}

/// What a repetition of bulk work moved.
fn moved() -> BulkRepetition {
    let mut meter = ByteMeter::new(time(1));
    meter.add(time(250), 1000);
    BulkRepetition {
        meter,
        frames: FrameFigures { data: 1, data_bytes: 1000, largest_data: 1000, updates: 0, update_bytes: 0 },
        io: IoFigures { socket_reads: Some(2), largest_buffer: 600, ..IoFigures::default() },
        offered: Some(Offered { max_frame_size: 16_384, ..Offered::default() }),
        receive_buffer: Some(5),
        send_buffer: None,
    }
}

pub(super) fn run() -> RunRecord {
    RunRecord {
        schema: SCHEMA_VERSION,
        version: "0".to_owned(),
        started: "2026-11-21T00:00:00Z".to_owned(),
        command: vec!["h2lab".to_owned()],
        seed: 7,
        machine: "Linux".to_owned(),
        scenario: Scenario::default(),
        repetitions: Vec::new(),
        interrupted: true,
        failure: None,
        resumed: Vec::new(),
    }
}

/// A folder with three repetitions, one without bulk and one that could not be made, and the record that it should give back.
pub(super) fn filled(path: &Path) -> (RunFolder, RunRecord) {
    let mut run = run();
    let plan = run.scenario.plan();
    let empty = CellRecord {
        samples: Samples::new(),
        tallies: Vec::new(),
        connections: Vec::new(),
        frames: Vec::new(),
        tcp: Vec::new(),
        packets: Vec::new(),
        ..measured(&plan[1])
    };
    let mut folder = RunFolder::create(path, &run).unwrap();
    let unsupported = CellRecord::unsupported(plan[2].clone(), "it speaks another protocol".to_owned());
    for record in [measured(&plan[0]), empty, unsupported] {
        folder.add(&record).unwrap();
        run.repetitions.push(record);
    }
    (folder, run)
}

#[test]
fn a_finished_folder_gives_back_every_field() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, mut run) = filled(temporary.path());
    folder.finish(false).unwrap();
    run.interrupted = false;
    assert_eq!(read(temporary.path()).unwrap(), run);
    assert!(!temporary.path().join("visits").exists(), "the parts are joined");
}

#[test]
fn what_was_staged_is_in_the_finished_folder_as_what_was_added() {
    let [added, staged] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (folder, run) = filled(added.path());
    folder.finish(false).unwrap();
    let mut folder = RunFolder::create(staged.path(), &run).unwrap();
    run.repetitions.iter().for_each(|repetition| folder.stage(repetition).unwrap());
    folder.finish(false).unwrap();
    assert_eq!(read(staged.path()).unwrap(), read(added.path()).unwrap());
}

#[test]
fn what_a_request_carries_is_not_in_run_json() {
    const SECRET: &str = "hunter2";
    let shape = || (vec![("authorization".to_owned(), SECRET.to_owned())], Some(SECRET.into()));
    let mut run = run();
    let work = &mut run.scenario.work;
    (work.headers, work.body) = shape();
    let mut kind: h2lab_model::workload::MixEntry = serde_json::from_str(r#"{"path": "/"}"#).unwrap();
    (kind.headers, kind.body) = shape();
    work.mix = vec![kind];
    let mut cell = run.scenario.plan()[0].clone();
    (cell.work.headers, cell.work.body) = shape();
    cell.work.mix.clone_from(&run.scenario.work.mix);
    let temporary = tempfile::tempdir().unwrap();
    let mut folder = RunFolder::create(temporary.path(), &run).unwrap();
    folder.add(&measured(&cell)).unwrap();
    folder.finish(false).unwrap();
    let text = std::fs::read_to_string(temporary.path().join("run.json")).unwrap();
    assert!(!text.contains(SECRET), "{text}");
    let named = text.matches("authorization").count();
    assert_eq!(named, 4, "the names are there, in the scenario's and in the repetition's work and kinds");
}

#[test]
fn a_folder_that_was_never_finished_reads_the_same_and_says_so() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, run) = filled(temporary.path());
    drop(folder);
    assert_eq!(read(temporary.path()).unwrap(), run);
}

/// What a slow request waited for.
fn waits() -> Waits {
    use h2lab_analysis::diagnose::waits::{Cause, CauseKind, Drop, Interval, Repair, Whose};
    let drop = Drop { direction: Direction::Down, index: 12, at: time(5) };
    let cause = Cause::Loss { whose: Whose::Other { stream: 3, id: Some(9) }, drop, repair: Repair::Timeout };
    let breakdown = LatencyBreakdown {
        sample: 0,
        scheduled_at: time(1),
        completed_at: time(21),
        place: None,
        intervals: vec![Interval { from: time(1), until: time(21), cause }],
        dominant: CauseKind::HeadOfLine,
    };
    let breakdowns = vec![breakdown];
    Waits {
        slower_than_ns: 7,
        split: breakdowns.iter().collect(),
        breakdowns,
        doubts: vec![Doubt::NoKeys { connections: 2 }],
    }
}

#[test]
fn what_slow_requests_waited_for_is_given_back_finished_or_not_and_after_a_resumption() {
    let temporary = tempfile::tempdir().unwrap();
    let (mut folder, run) = filled(temporary.path());
    let cell = run.scenario.plan()[3].clone();
    folder.add_explained(&measured(&cell), Some(&waits())).unwrap();
    let expected = [Explained { cell: cell.index, repetition: cell.repetition, waits: waits() }];
    assert_eq!(read_waits(temporary.path()).unwrap(), expected);
    folder.finish(true).unwrap();
    assert_eq!(read_waits(temporary.path()).unwrap(), expected, "joined");
    let Reopened { folder, discarded, .. } = reopen(temporary.path()).unwrap();
    assert_eq!(discarded, Vec::<String>::new());
    assert_eq!(read_waits(temporary.path()).unwrap(), expected, "taken apart");
    folder.finish(false).unwrap();
    assert_eq!(read_waits(temporary.path()).unwrap(), expected);
}

#[test]
fn a_folder_of_which_nobody_asked_for_causes_has_none() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, _) = filled(temporary.path());
    folder.finish(false).unwrap();
    assert_eq!(read_waits(temporary.path()).unwrap(), []);
    assert!(!temporary.path().join("waits.parquet").exists());
    assert!(!std::fs::read_to_string(temporary.path().join("run.json")).unwrap().contains("waits"));
}

#[test]
fn a_folder_of_before_the_tallies_reads_without_them() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, mut run) = filled(temporary.path());
    folder.finish(false).unwrap();
    std::fs::remove_file(temporary.path().join("tallies.parquet")).unwrap();
    run.interrupted = false;
    run.repetitions.iter_mut().for_each(|measured| measured.tallies.clear());
    assert_eq!(read(temporary.path()).unwrap(), run);
}

#[test]
fn a_finished_folder_without_the_counts_of_what_was_not_kept_is_an_error() {
    let temporary = tempfile::tempdir().unwrap();
    let run = run();
    let mut record = measured(&run.scenario.plan()[0]);
    record.generator.level = Level::Tail;
    let mut folder = RunFolder::create(temporary.path(), &run).unwrap();
    folder.add(&record).unwrap();
    folder.finish(false).unwrap();
    assert!(read(temporary.path()).is_ok());
    std::fs::remove_file(temporary.path().join("tallies.parquet")).unwrap();
    let error = read(temporary.path()).unwrap_err().to_string();
    assert!(error.contains("tallies.parquet is missing"), "{error}");
}

#[test]
fn a_folder_of_a_newer_schema_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, _) = filled(temporary.path());
    folder.finish(false).unwrap();
    let path = temporary.path().join("run.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let newer = text.replacen(
        &format!("\"schema\": {SCHEMA_VERSION}"),
        &format!("\"schema\": {}", SCHEMA_VERSION + 1),
        1,
    );
    assert_ne!(text, newer);
    std::fs::write(&path, newer).unwrap();
    assert!(read(temporary.path()).unwrap_err().to_string().contains("use a newer one"));
}

#[test]
fn a_damaged_table_is_an_error_that_names_the_file() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, _) = filled(temporary.path());
    folder.finish(false).unwrap();
    std::fs::write(temporary.path().join("samples.parquet"), b"PAR1 not really").unwrap();
    assert!(format!("{:#}", read(temporary.path()).unwrap_err()).contains("samples.parquet"));
}

/// The samples of a table, each with its repetition.
fn all(path: &Path) -> Result<Vec<(u64, Sample)>> {
    let mut rows = Vec::new();
    table::read(path, &mut |repetition, row| {
        rows.push((repetition, row));
        Ok(())
    })?;
    Ok(rows)
}

#[test]
fn a_table_is_read_in_pieces_across_row_groups() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("samples.parquet");
    let (folder, run) = filled(&temporary.path().join("run"));
    drop(folder);
    let one = run.repetitions.iter().find_map(|repetition| repetition.samples.get(0)).unwrap();
    // Every third one was not sent, which is NULL.
    let sent_at = |n: u32| if n.is_multiple_of(3) { Time::NEVER } else { Time::from_nanos(n.into()) };
    let sample = |n| Sample { connection: n, sent_at: sent_at(n), number: 0, ..one };
    let written: Vec<(u64, Sample)> =
        (0..28_193).map(|n| (if n < 20_001 { 3 } else { 7 }, sample(n))).collect();
    let samples: Vec<Sample> = written.iter().map(|(_, sample)| *sample).collect();
    table::write_all::<Sample>(&path, [(3, &samples[..20_001]), (7, &samples[20_001..])]).unwrap();
    assert!(all(&path).unwrap() == written);
}

#[test]
fn a_folder_that_is_read_takes_no_more_than_20_bytes_per_sample() {
    let temporary = tempfile::tempdir().unwrap();
    let mut run = run();
    let usual = |n: u64| Sample {
        connection: (n % 4) as u32,
        stream: StreamId((n / 4 * 2 + 1) as u32),
        sent_at: Time::from_nanos(n * 2_500 + 1_000),
        first_byte_at: Time::from_nanos(n * 2_500 + 200_000 + n * n % 50_021),
        completed_at: Time::from_nanos(n * 2_500 + 201_000 + n * n % 50_021),
        outcome: Outcome::Succeeded,
        status: 200,
        ..Sample::due(Time::from_nanos(n * 2_500), true)
    };
    let record =
        CellRecord { samples: (0..50_000).map(usual).collect(), ..measured(&run.scenario.plan()[0]) };
    let mut folder = RunFolder::create(temporary.path(), &run).unwrap();
    folder.add(&record).unwrap();
    run.repetitions.push(record);
    let read = read(temporary.path()).unwrap();
    assert_eq!(read, run);
    assert!(read.repetitions[0].samples.bytes() <= 50_000 * 20, "{}", read.repetitions[0].samples.bytes());
}

#[test]
fn a_bit_that_changes_anywhere_in_a_table_is_an_error_or_changes_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, _) = filled(temporary.path());
    folder.finish(false).unwrap();
    let path = temporary.path().join("samples.parquet");
    let (whole, good) = (std::fs::read(&path).unwrap(), all(&path).unwrap());
    let mut unnoticed = 0;
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, &damaged).unwrap();
        match all(&path) {
            Ok(same) => {
                assert_eq!(same, good, "byte {at}");
                unnoticed += 1;
            }
            Err(error) => assert!(format!("{error:#}").contains("samples.parquet"), "{error:#}"),
        }
    }
    assert!(unnoticed <= "h2lab.crc32c".len(), "{unnoticed} bytes are not looked at");
}

#[test]
fn a_table_of_before_the_checksums_is_read() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, _) = filled(temporary.path());
    folder.finish(false).unwrap();
    let path = temporary.path().join("samples.parquet");
    let good = read(temporary.path()).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let key = bytes.windows(12).rposition(|window| window == b"h2lab.crc32c").unwrap();
    bytes[key..key + 12].copy_from_slice(b"another.name");
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(read(temporary.path()).unwrap(), good);
}

/// The repetition of the plan that [`filled`] has not made.
fn missing(run: &RunRecord) -> CellRecord {
    measured(&run.scenario.plan()[3])
}

#[test]
fn a_torn_repetition_is_discarded_and_the_next_one_takes_its_number() {
    let whole = {
        let temporary = tempfile::tempdir().unwrap();
        drop(filled(temporary.path()));
        std::fs::read(temporary.path().join("visits/0000.samples.parquet")).unwrap()
    };
    for length in [0, 1, 4, whole.len() / 2, whole.len() - 1] {
        let temporary = tempfile::tempdir().unwrap();
        let (folder, mut run) = filled(temporary.path());
        drop(folder);
        let part = temporary.path().join("visits/0000.samples.parquet");
        std::fs::write(&part, &whole[..length]).unwrap();
        let mut again = reopen(temporary.path()).unwrap();
        assert_eq!(again.discarded.len(), 1, "{length} of {} bytes", whole.len());
        assert!(again.discarded[0].contains("0000.samples.parquet"), "{:?}", again.discarded);
        let first = run.repetitions.remove(0);
        assert_eq!(again.run, run, "the others stay");
        again.folder.add(&first).unwrap();
        again.folder.finish(false).unwrap();
        run.repetitions.insert(0, first);
        run.interrupted = false;
        assert_eq!(read(temporary.path()).unwrap(), run);
    }
}

#[test]
fn a_table_that_is_missing_tears_its_repetition_too() {
    let temporary = tempfile::tempdir().unwrap();
    drop(filled(temporary.path()));
    std::fs::remove_file(temporary.path().join("visits/0001.link.parquet")).unwrap();
    let again = reopen(temporary.path()).unwrap();
    assert_eq!((again.run.repetitions.len(), again.discarded.len()), (2, 1));
}

#[test]
fn an_orderly_interrupted_run_is_taken_apart_and_resumed() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, mut run) = filled(temporary.path());
    folder.finish(true).unwrap();
    for round in 0..2 {
        let mut again = reopen(temporary.path()).unwrap();
        assert_eq!((&again.run, again.discarded.len()), (&run, 0));
        assert_eq!(read(temporary.path()).unwrap(), run, "in pieces it reads the same");
        again.folder.resume(format!("resume {round}")).unwrap();
        run.resumed.push(format!("resume {round}"));
        if round == 1 {
            again.folder.add(&missing(&run)).unwrap();
            run.repetitions.push(missing(&run));
        }
        again.folder.finish(round == 0).unwrap();
    }
    run.interrupted = false;
    assert_eq!(read(temporary.path()).unwrap(), run);
    assert_eq!(read_heads(temporary.path()).unwrap().repetitions.len(), 4);
    assert!(format!("{:#}", reopen(temporary.path()).unwrap_err()).contains("complete"));
}

#[test]
fn a_kill_while_a_repetition_is_written_leaves_only_what_is_swept_away() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, run) = filled(temporary.path());
    drop(folder);
    let half = ["visits/0003.samples.parquet", "visits/0003.frames.parquet.partial", "run.json.partial"];
    for name in half {
        std::fs::write(temporary.path().join(name), b"PAR1").unwrap();
    }
    let mut again = reopen(temporary.path()).unwrap();
    assert_eq!(again.run, run, "run.json does not name it");
    assert!(half[1..].iter().all(|name| !temporary.path().join(name).exists()));
    again.folder.add(&missing(&run)).unwrap();
    drop(again);
    let mut expected = run.clone();
    expected.repetitions.push(missing(&run));
    assert_eq!(read(temporary.path()).unwrap(), expected);
}

#[test]
fn two_processes_never_add_to_one_folder() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, _) = filled(temporary.path());
    assert!(is_running(temporary.path()));
    assert!(format!("{:#}", reopen(temporary.path()).unwrap_err()).contains("still running"));
    drop(folder);
    assert!(!is_running(temporary.path()));
    reopen(temporary.path()).unwrap();
}

#[test]
fn tables_that_could_not_be_joined_are_named() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("run");
    let (folder, _) = filled(&path);
    let apart = unjoined(&path);
    assert!(apart.contains(&"connections.parquet".to_owned()) && apart.len() == 6, "{apart:?}");
    assert!(read(&path).is_ok(), "the parts are there");
    folder.finish(false).unwrap();
    assert_eq!(unjoined(&path), Vec::<String>::new());
}

#[test]
fn the_secrets_of_a_repetition_that_was_killed_do_not_outlive_the_run_even_if_it_cannot_be_joined() {
    for is_whole in [true, false] {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let (folder, run) = filled(&path);
        let capture = folder.next_pcap(&run.repetitions[0].cell).unwrap().with_extension("partial");
        let keys = path.join("keys-00000000000000ff.partial");
        for file in [&capture, &keys] {
            std::fs::write(file, "CLIENT_RANDOM 3a ff").unwrap();
        }
        if !is_whole {
            std::fs::remove_dir_all(path.join("visits")).unwrap();
        }
        assert_eq!(folder.finish(true).is_ok(), is_whole);
        assert!(!capture.exists() && !keys.exists());
    }
}
