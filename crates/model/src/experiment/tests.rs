//! Each change alone, and what it says of itself.

use super::*;
use crate::record::testing::cell;
use crate::settings::Knob as Setting;
use crate::workload::Protocol;

#[test]
fn a_knob_changes_one_setting_and_those_that_change_nothing_are_left_out() {
    let plain = cell(0, 0, Protocol::H2c, 1, 0.0);
    let knobs = Knob::of(&plain);
    assert!(knobs.contains(&Knob::Connections(4)), "{knobs:?}");
    assert!(!knobs.contains(&Knob::NoRequestLimit), "there is none");
    assert!(
        !knobs.contains(&Knob::ManyStreams)
            && !knobs.contains(&Knob::JoinedWrites)
            && !knobs.contains(&Knob::SingleFlight)
    );
    for knob in &knobs {
        let changed = knob.apply(&plain);
        assert_ne!(changed, plain, "{knob:?}");
        assert_eq!(knob.apply(&changed), changed, "{knob:?} twice");
        assert!(!Knob::of(&changed).contains(knob), "{knob:?}");
    }
}

#[test]
fn what_the_user_set_is_set_back() {
    let mut odd = cell(0, 0, Protocol::H2c, 16, 0.0);
    odd.max_requests_per_connection = Some(100);
    odd.dial = DialPolicy::Stampede;
    odd.client.no_coalesce = true;
    odd.client.window_update_bytes = Some(1);
    odd.client.stream_window = Some(65_535);
    odd.policy.reconnect_every = Some(1);
    odd.policy.no_tls_resumption = true;
    odd.streams = 1;
    odd.client.connection_window = Some(65_535);
    odd.client.keep_alive = Some(Duration::from_secs(1));
    odd.client.encoder_header_table_size = Some(0);
    odd.server.no_huffman = true;
    odd.policy.cancel_after = Some(Duration::from_millis(5));
    odd.work.replay = false;
    let knobs = Knob::of(&odd);
    for knob in [
        Knob::NoRequestLimit,
        Knob::SingleFlight,
        Knob::JoinedWrites,
        Knob::DefaultCredit,
        Knob::LargeWindows,
        Knob::KeptConnections,
        Knob::TlsResumption,
        Knob::ManyStreams,
        Knob::LargeConnectionWindow,
        Knob::NoKeepAlive,
        Knob::NoCancellation,
        Knob::Replay,
        Knob::HeaderTable,
        Knob::Huffman,
    ] {
        assert!(knobs.contains(&knob), "{knob:?} of {knobs:?}");
        assert!(!Knob::of(&cell(0, 0, Protocol::H2c, 16, 0.0)).contains(&knob) || knob == Knob::LargeWindows);
    }
    let window = Knob::LargeConnectionWindow.apply(&odd);
    assert_eq!(window.client.stream_window, Some(65_535), "only that of the connection");
    assert!(!knobs.iter().any(|knob| matches!(knob, Knob::Connections(_))), "16 are the most");
    let windows = Knob::LargeWindows.apply(&odd);
    assert_eq!(windows.client.window_update_bytes, Some(1), "that is another knob");
}

#[test]
fn what_every_cell_could_change_needs_a_finding_that_names_it() {
    let plain = cell(0, 0, Protocol::H2c, 1, 0.0);
    let needing = |cell: &Cell| Knob::of(cell).into_iter().filter(Knob::needs_finding).collect::<Vec<_>>();
    assert_eq!(needing(&plain), [Knob::AwaitedSettings, Knob::QuickAcks]);
    let quic = Cell { protocol: Protocol::H3, ..plain };
    assert_eq!(
        needing(&quic),
        [],
        "it has other acknowledgements, and its handshake brings the limit of streams"
    );
}

#[test]
fn a_setting_of_the_server_replaces_another_value_of_the_same_and_nothing_else() {
    let knob = |knob, value| {
        let change = Change { knob, value: Some(value) };
        Knob::Server(ServerSetting { change, words: "x".to_owned(), causes: vec!["CONN101".to_owned()] })
    };
    let plain = cell(0, 0, Protocol::H2c, 1, 0.0);
    let once = knob(Setting::H2Requests, 7).apply(&plain);
    let twice = knob(Setting::H2Requests, 9).apply(&knob(Setting::Push, 1).apply(&once));
    let values: Vec<Option<u64>> = twice.setup.changes.iter().map(|change| change.value).collect();
    assert_eq!(values, [Some(1), Some(9)]);
    assert_eq!(Cell { setup: plain.setup.clone(), ..once }, plain);
    assert_eq!(knob(Setting::Push, 1).causes(), ["CONN101"]);
}

#[test]
fn congestion_windows_are_kept_where_bodies_need_more_than_a_new_connection_sends_at_once() {
    let mut upload = cell(0, 0, Protocol::H2c, 1, 0.0);
    let is_tried = |cell: &Cell| Knob::of(cell).contains(&Knob::KeptCongestionWindow);
    upload.work.body_bytes = INITIAL_WINDOW.into();
    assert!(!is_tried(&upload));
    upload.work.body_bytes += 1;
    assert!(is_tried(&upload));
    upload.link = None;
    assert!(!is_tried(&upload), "the kernel of a live network is the user's");
}

#[test]
fn a_queue_that_is_shorter_than_what_passes_in_a_round_trip_is_lengthened_to_that() {
    let with = |queue: u64| {
        let mut cell = cell(0, 0, Protocol::H2c, 1, 0.0);
        let link = cell.link.as_mut().expect("a link");
        link.downlink.bandwidth = "20mbit".parse().ok();
        link.downlink.queue_bytes = Some(queue);
        cell
    };
    // 20 Mbit/s for 25 ms.
    let short = with(62_499);
    assert!(Knob::of(&short).contains(&Knob::LongQueue));
    assert_eq!(Knob::LongQueue.apply(&short), with(62_500));
    assert!(!Knob::of(&with(62_500)).contains(&Knob::LongQueue));
    let live = Cell { link: None, ..short };
    assert!(!Knob::of(&live).contains(&Knob::LongQueue));
}

#[test]
fn for_a_client_that_is_not_ours_only_what_lies_at_our_end_is_changed() {
    let plain = cell(0, 0, Protocol::H2c, 1, 0.0);
    assert_eq!(Knob::of_our_end(&plain), [Knob::Congestion("bbr".to_owned())]);
    let mut narrow = cell(0, 0, Protocol::H2c, 1, 0.03);
    narrow.max_requests_per_connection = Some(9);
    narrow.policy.no_tls_resumption = true;
    narrow.server.stream_window = Some(65_535);
    narrow.congestion = Some("bbr".to_owned());
    let knobs = Knob::of_our_end(&narrow);
    let all = [
        Knob::NoRequestLimit,
        Knob::TlsResumption,
        Knob::LargeServerWindows,
        Knob::NoLoss,
        Knob::Congestion("cubic".to_owned()),
    ];
    assert_eq!(knobs, all);
    let link = Knob::NoLoss.apply(&narrow).link.expect("a link");
    assert_eq!(Some(link), plain.link, "its delay stays");
    assert!(!Knob::of(&narrow).contains(&Knob::NoLoss), "a loss that was asked for is the question");
    let tls = Cell { protocol: Protocol::H2, ..plain };
    assert!(Knob::of_our_end(&tls).contains(&Knob::Http1), "its ALPN can choose");
    assert_eq!(Knob::Http1.apply(&tls).protocol, Protocol::H1s);
}

#[test]
fn windows_that_our_origin_was_asked_to_have_are_enlarged_however_small_the_bodies_are() {
    let with = |stream, connection| {
        let mut cell = cell(0, 0, Protocol::H2c, 1, 0.0);
        (cell.server.stream_window, cell.server.connection_window) = (Some(stream), Some(connection));
        Knob::of_our_end(&cell).contains(&Knob::LargeServerWindows)
    };
    assert!(with(LARGE_WINDOW - 1, LARGE_WINDOW) && with(LARGE_WINDOW, LARGE_WINDOW - 1));
    assert!(!with(LARGE_WINDOW, LARGE_WINDOW));
}

#[test]
fn knobs_say_in_words_and_flags_what_they_set() {
    assert_eq!(Knob::Connections(4).words(), "4 connections");
    assert_eq!(Knob::Connections(4).flags().as_deref(), Some("-c 4"));
    assert_eq!(Knob::LargeWindows.words(), "a client's stream window of 16 MiB");
}

/// The row of a change in docs/diagnose.md.
fn row(knob: &Knob) -> String {
    let without = |flags: &[&str]| format!("without `{}`", flags.join("`, `"));
    let flag = match (knob.flags(), knob.set_back()) {
        (Some(flags), _) => format!("`{flags}`"),
        (None, []) => "none".to_owned(),
        (None, flags) => without(flags),
    };
    format!("| {} | {flag} | {} |", knob.words(), knob.causes().join(", "))
}

#[test]
fn the_manual_lists_every_change_with_its_flag_and_its_causes() {
    let manual = include_str!("../../../../docs/diagnose.md");
    let knobs = Knob::all(&cell(0, 0, Protocol::H2c, 1, 0.0));
    let missing: Vec<String> =
        knobs.iter().map(row).filter(|row| !manual.lines().any(|line| line == row)).collect();
    assert!(missing.is_empty(), "docs/diagnose.md lacks:\n{}", missing.join("\n"));
    let listed = manual.lines().skip_while(|line| !line.starts_with("| what is changed |")).skip(2);
    assert_eq!(listed.take_while(|line| line.starts_with('|')).count(), knobs.len(), "and has no others");
}
