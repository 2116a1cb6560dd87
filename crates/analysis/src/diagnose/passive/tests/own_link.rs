//! A client behind this run's own link: rules have the link's capacity.

use super::*;
use h2lab_link::Impairment;

/// Requests of a client behind this link, one every 100 ms: each has its cookie of 2,000 bytes in full, as an encoder without a table
/// sends it.
fn findings(link: Option<LinkSpec>) -> Vec<diagnose::Finding> {
    let capture = link.map_or_else(|| Capture::new(""), Capture::of_run);
    let mut scene = Scene { capture, ..Scene::new(0) };
    scene.packet(Direction::Up, 100, 0, SYN, &[2, 4, 5, 180], &[]);
    scene.packet(Direction::Down, 120, 0, SYN | ACK, &[2, 4, 5, 180], &[]);
    scene.packet(Direction::Up, 120, 1, ACK, &[], &[]);
    // A literal without indexing (RFC 7541 §6.2.2) of static name 32, and the length as a prefix of 7 bits (§5.1).
    let cookie = [&[0x82, 0x84, 0x86, 0x0f, 0x11, 0x7f, 0xd1, 0x0e][..], &[b'x'; 2_000]].concat();
    let mut scene = scene.asked(&[]);
    for n in 0..12_u32 {
        let (at, stream) = (200 + 100 * u64::from(n), 2 * n + 1);
        let request = frame(HEADERS, END, stream, &cookie);
        let (first, rest) = request.split_at(1_400);
        scene.say(Direction::Up, at, first);
        scene.say(Direction::Up, at, rest);
        scene.say(Direction::Down, at + 40, &answer(stream));
    }
    let captured = scene.finish();
    let counters = &captured.records[0].connections[0].counters;
    assert_eq!((counters.requests, counters.headers_sent), (12, 12 * 2_008), "{:?}", captured.notes);
    diagnose::run(&captured.records)
}

fn uplink(rate: &str) -> LinkSpec {
    let delay = Duration::from_millis(WAY);
    let bandwidth = Some(rate.parse().expect("a rate"));
    let [up, down] = [Impairment { delay, bandwidth, ..Impairment::default() }, Impairment::default()];
    LinkSpec { uplink: up, downlink: Impairment { delay, ..down } }
}

#[test]
fn what_fields_take_on_a_link_is_known_where_its_capacity_is() {
    let hpack = |link| findings(link).into_iter().find(|finding| finding.rule == "HPACK101");
    // 2,008 bytes instead of a tenth of the text take 7.2 ms longer, of 40 ms.
    let found = hpack(Some(uplink("2mbit"))).expect("a finding");
    assert!((found.cost_share - 0.18).abs() < 0.01, "{}", found.cost);
    assert!(found.symptom.ends_with("they change, or the client does not use it"), "{}", found.symptom);
    // 2 ms, 5 % of the time, correspond to 7.2 Mbit/s.
    assert!(hpack(Some(uplink("7mbit"))).is_some());
    assert!(hpack(Some(uplink("7500kbit"))).is_none());
    assert!(hpack(Some(LinkSpec::default())).is_none(), "it carries anything at once");
    assert!(hpack(None).is_none(), "a capture of somebody else's path");
}
