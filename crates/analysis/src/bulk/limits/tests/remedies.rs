//! What is to be set at which end, and by which name.

use super::*;

/// `put` at 65,535 bytes per round trip of 100 ms to a server whose `server` field is this.
fn uploaded_to(server: Option<&str>) -> String {
    let mut figures = counted(65_535.0 * 8.0 / 0.1);
    figures.we_send = true;
    figures.min_rtt = Some(Duration::from_millis(100));
    figures.server = server.map(PeerText::from);
    figures.sender.blocked_stream_window = of_a_minute(0.9);
    figures.receiver.stream_window = Some(65_535);
    fixes(&figures)
}

#[test]
fn a_window_of_the_server_is_raised_by_the_servers_own_setting() {
    let haproxy = uploaded_to(Some("HAProxy/2.6.12"));
    assert!(
        haproxy.starts_with(
            "HAProxy: tune.h2.initial-window-size 131072 - a stream window of 128 KiB at the server: twice the \
             64 KiB that it announces"
        ),
        "{haproxy}"
    );
    assert!(haproxy.contains("; global; 65535 by default"), "what the table of settings says: {haproxy}");
    assert!(!haproxy.contains("-w 131072"), "{haproxy}");
    let nginx = uploaded_to(Some("nginx/1.22.1"));
    assert!(nginx.starts_with("nginx: http2_body_preread_size 128k; - "), "{nginx}");
}

#[test]
fn a_proxy_that_may_stand_before_the_server_is_named_too() {
    for server in [Some("h2lab"), None] {
        let fix = uploaded_to(server);
        for setting in
            ["HAProxy `tune.h2.fe.rxbuf 131072` since 3.1", "`tune.h2.initial-window-size 131072` before 2.8"]
        {
            assert!(fix.contains(setting), "{fix}");
        }
    }
    assert!(uploaded_to(Some("h2lab")).starts_with("h2lab: -w 131072 - "), "the server may be ours");
    let proxies = uploaded_to(Some("h2lab"));
    assert!(proxies.contains("that proxy's: HAProxy"), "65,535 is HAProxy's default: {proxies}");
}

#[test]
fn an_upload_without_a_known_bandwidth_says_so_and_what_a_bandwidth_needs() {
    let fix = uploaded_to(Some("HAProxy/2.6.12"));
    let rule = "is unknown (filling it takes 1.192 MiB per 100 Mbit/s at a round trip of 100 ms)";
    assert!(fix.contains(rule), "{fix}");
    assert!(fix.contains("that much memory, at most, for each stream"), "{fix}");
}

#[test]
fn an_upload_over_a_path_of_known_bandwidth_gets_the_window_that_fills_it() {
    let mut figures = counted(65_535.0 * 8.0 / 0.1);
    figures.we_send = true;
    figures.min_rtt = Some(Duration::from_millis(100));
    figures.bandwidth = Bandwidth::from_bits_per_second(100_000_000);
    figures.server = Some("HAProxy/2.6.12".into());
    figures.sender.blocked_stream_window = of_a_minute(0.9);
    // Only 56 KiB per round trip were used of the window that it announced: its size is the announced one.
    figures.receiver.stream_window = Some(131_072);
    let fix = fixes(&figures);
    assert!(fix.contains("twice the 1.192 MiB needed to fill 100mbit for 100 ms"), "{fix}");
    assert!(fix.starts_with("HAProxy: tune.h2.initial-window-size 2621440 - "), "{fix}");
    figures.bandwidth = None;
    let fix = fixes(&figures);
    assert!(fix.contains("twice the 128 KiB that it announces"), "{fix}");
}

#[test]
fn a_window_of_ours_is_raised_by_our_flag_alone() {
    let mut figures = counted(65_535.0 * 8.0 / 0.25);
    figures.server = Some("HAProxy".into());
    figures.sender.blocked_stream_window = of_a_minute(0.9);
    figures.receiver.stream_window = Some(65_535);
    let fix = fixes(&figures);
    assert!(
        fix.starts_with("client: -w 131072 - a stream window of 128 KiB here: twice the 64 KiB it has now"),
        "{fix}"
    );
    assert!(!fix.contains("HAProxy"), "{fix}");
}
