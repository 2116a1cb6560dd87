use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::fleet::testing;
use crate::scenario::{Axis, Scenario};
use crate::workload::EngineSettings;

fn allow(entries: &[&str]) -> AllowList {
    entries.iter().map(|entry| entry.parse::<AllowEntry>().unwrap()).collect()
}

fn permissions(entries: &[&str]) -> Permissions {
    Permissions { allow: allow(entries), limits: AgentLimits::default() }
}

/// Whether one entry permits a host at port 443 over TLS.
fn permits(entry: &str, host: &str) -> bool {
    allow(&[entry]).permits_url("https", host, 443)
}

/// What is said of a load of an URL over HTTP/1.1 with these overrides.
fn load(entries: &[&str], url: &str, reach: &Reach) -> Result<(), Refusal> {
    let is_tls = url.to_ascii_lowercase().starts_with("https");
    let protocol = if is_tls { Protocol::H1s } else { Protocol::H1 };
    let demand = Demand { rate: None, connections: 1, time: Duration::from_secs(1) };
    permissions(entries).check_load(&LoadRequest { url, reach, protocol, congestion: None, demand })
}

fn reach(resolve: &[&str], connect_to: &[&str]) -> Reach {
    Reach {
        resolve: resolve.iter().map(|entry| entry.parse().unwrap()).collect(),
        connect_to: connect_to.iter().map(|entry| entry.parse().unwrap()).collect(),
        ..Reach::default()
    }
}

#[test]
fn an_empty_list_permits_nothing() {
    let nothing = AllowList::default();
    assert!(!nothing.permits_url("http", "localhost", 80));
    assert!(!nothing.permits_address("http", "127.0.0.1:80".parse().unwrap()));
    let refusal = load(&[], "http://localhost/", &Reach::default()).unwrap_err().to_string();
    assert_eq!(refusal, "http://localhost:80 is not permitted here; the agent's --allow has nothing");
}

#[test]
fn a_name_is_compared_as_dns_does() {
    let entry = "https://Api.Example";
    for host in ["api.example", "API.EXAMPLE", "api.example."] {
        assert!(permits(entry, host), "{host}");
        assert!(permits("https://api.example.", host), "{host}");
    }
    for host in [
        "",
        ".",
        "example",
        "x.api.example",
        "api.example.x",
        "api.example..",
        ".api.example",
        "api..example",
    ] {
        assert!(!permits(entry, host), "{host}");
    }
}

#[test]
fn a_star_stands_for_one_label_or_more_before_a_name() {
    let entry = "https://*.staging.example";
    for host in ["a.staging.example", "a.b.staging.example", "A.Staging.Example."] {
        assert!(permits(entry, host), "{host}");
    }
    for host in [
        "staging.example",
        ".staging.example",
        "astaging.example",
        "a.staging.example.evil",
        "10.0.0.1",
        "::1",
    ] {
        assert!(!permits(entry, host), "{host}");
    }
}

#[test]
fn a_star_alone_stands_for_every_name_and_address_but_for_nothing_unclear() {
    for host in ["a", "a.example", "10.0.0.1", "::1", "::ffff:10.0.0.1"] {
        assert!(permits("https://*", host), "{host}");
    }
    assert!(allow(&["https://*:*"]).permits_address("https", "10.0.0.1:1".parse().unwrap()));
    for host in [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "a.0x7f",
        "a b",
        "a@b",
        "[::1]",
        "é",
    ] {
        assert!(!permits("https://*", host), "{host}");
    }
}

#[test]
fn scheme_and_port_belong_to_a_pattern() {
    let list = allow(&["https://a.example", "http://a.example:8080", "HTTP://b.example:*"]);
    let permitted = [
        ("https", "a.example", 443),
        ("HTTPS", "a.example", 443),
        ("http", "a.example", 8080),
        ("http", "b.example", 1),
        ("http", "b.example", 65_535),
    ];
    for (scheme, host, port) in permitted {
        assert!(list.permits_url(scheme, host, port), "{scheme}://{host}:{port}");
    }
    let others = [
        ("https", "a.example", 8080),
        ("http", "a.example", 443),
        ("http", "a.example", 80),
        ("https", "b.example", 443),
        ("ftp", "b.example", 21),
        ("", "b.example", 80),
    ];
    for (scheme, host, port) in others {
        assert!(!list.permits_url(scheme, host, port), "{scheme}://{host}:{port}");
    }
}

#[test]
fn a_network_is_of_addresses_in_whatever_form_and_never_of_names() {
    let entry = "https://10.1.0.0/16";
    for host in ["10.1.0.0", "10.1.255.255", "::ffff:10.1.2.3", "::ffff:a01:203"] {
        assert!(permits(entry, host), "{host}");
    }
    for host in
        ["10.0.255.255", "10.2.0.0", "::10.1.2.3", "::ffff:10.2.0.0", "host.example", "10.1.2.3.example"]
    {
        assert!(!permits(entry, host), "{host}");
    }
    assert!(permits("https://10.1.2.3", "10.1.2.3") && !permits("https://10.1.2.3", "10.1.2.4"));
    assert!(permits("https://[2001:db8::]/32", "2001:DB8:ffff::1"));
    assert!(!permits("https://[2001:db8::]/32", "2001:db9::"));
    // All of IPv6 is not all of IPv4, however that is written; and the other way round.
    assert!(permits("https://[::]/0", "::1") && !permits("https://[::]/0", "::ffff:127.0.0.1"));
    assert!(permits("https://0.0.0.0/0", "127.0.0.1") && !permits("https://0.0.0.0/0", "::1"));
    assert!(permits("https://[::ffff:10.0.0.0]/104", "10.255.0.1"));
    let list = allow(&[entry]);
    for (address, is_permitted) in [
        ("10.1.2.3:443", true),
        ("[::ffff:10.1.2.3]:443", true),
        ("10.1.2.3:80", false),
        ("10.2.0.0:443", false),
    ] {
        assert_eq!(list.permits_address("https", address.parse().unwrap()), is_permitted, "{address}");
        assert!(!list.permits_address("http", address.parse().unwrap()));
    }
    assert!(!allow(&["https://*.example"]).permits_address("https", "10.1.2.3:443".parse().unwrap()));
}

#[test]
fn what_is_no_entry_is_refused_with_what_is_expected() {
    for text in [
        "",
        "*",
        "all",
        "LAB",
        "a.example",
        "ftp://a.example",
        "https://",
        "https://user@a.example",
        "https://u:p@a.example:443",
        "https://a.example/",
        "https://a.example/path",
        "https://a.example?x",
        "https://a.example#x",
        "https://a.example:",
        "https://a.example:0",
        "https://a.example:65536",
        "https://a.example:+1",
        "https://a.example:443:444",
        "https://a.*.example",
        "https://*a.example",
        "https://*.*.example",
        "https://*.",
        "https://*.10.0.0.1",
        "https://é.example",
        "https://a b",
        "https://127.1",
        "https://10.1.0.1/16",
        "https://10.1.0.0/33",
        "https://10.1.0.0/",
        "https://10.1.0.0/+8",
        "https://10.1.0.0/16/8",
        "https://[::1",
        "https://[::1]x",
        "https://[10.0.0.1]",
        "https://[::]/129",
        "https://::1",
        "https://[fe80::1%eth0]",
    ] {
        let refused = text.parse::<AllowEntry>().expect_err(text).to_string();
        assert!(refused.contains("URL pattern"), "{refused}");
    }
    for text in
        ["lab", "serve", "https://*.staging.example:443", "http://10.1.0.0/16:8080", "https://[::1]:*"]
    {
        assert_eq!(text.parse::<AllowEntry>().unwrap().to_string(), text);
    }
}

#[test]
fn a_url_is_refused_unless_it_is_certain_which_server_it_stands_for() {
    let everything = ["http://*:*", "https://*:*"];
    for url in [
        "http://a.example",
        "HTTPS://A.example:8443/x@y?z#",
        "http://[::1]:8080/",
        "http://10.0.0.1?x",
        "http://a/{{pick a|b}}",
    ] {
        assert_eq!(load(&everything, url, &Reach::default()), Ok(()), "{url}");
    }
    for url in [
        "",
        "a.example",
        "//a.example",
        "ftp://a.example",
        "http://",
        "http:///path",
        "http://user:secret@a.example/",
        "http://a.example@evil.example/",
        "http://a.example\\@evil.example/",
        "http://a.example\\evil.example/",
        "http://{{pick a.example|evil.example}}/",
        "http://{{pick a/|b}}.example/",
        "http://a%2eexample/",
        "http://a.example%00/",
        "http://ａ.example/",
        "http://a.example:/",
        "http://a.example:0/",
        "http://a.example:65536/",
        "http://a.example:80:81/",
        "http://[::1/",
        "http://[::1]evil.example/",
        "http://[evil.example]/",
        "http://[fe80::1%25lo]/",
        "http:// a.example/",
        "http://a.example\n/",
    ] {
        let refusal = load(&everything, url, &Reach::default()).expect_err(url);
        assert!(matches!(refusal, Refusal::Url { .. }), "{url}: {refusal}");
        assert!(!refusal.to_string().contains("secret"), "{refusal}");
    }
    for url in ["http://127.1/", "http://2130706433/", "http://0x7f.1/", "http://a..example/"] {
        let refusal = load(&everything, url, &Reach::default()).expect_err(url);
        assert!(matches!(refusal, Refusal::Server { .. }), "{url}: {refusal}");
    }
}

#[test]
fn a_refused_server_is_named_with_what_is_permitted_and_without_path_and_query() {
    let entries = ["https://*.staging.example:443", "lab"];
    assert_eq!(load(&entries, "https://a.staging.example/", &Reach::default()), Ok(()));
    let refusal = load(&entries, "https://prod.example/?token=secret", &Reach::default()).unwrap_err();
    let expected = "https://prod.example:443 is not permitted here; the agent's --allow has \
                    https://*.staging.example:443, lab";
    assert_eq!(refusal.to_string(), expected);
}

#[test]
fn another_host_to_connect_to_is_permitted_only_if_it_is_permitted_itself() {
    let entries = ["http://a.example", "http://b.example:8080", "http://10.1.0.0/16:8080"];
    let of = |connect_to: &str| load(&entries, "http://a.example/", &reach(&[], &[connect_to]));
    for connect_to in ["::b.example:8080", "a.example:80:10.1.2.3:8080", "other:80:evil.example:80", ":::80"]
    {
        assert_eq!(of(connect_to), Ok(()), "{connect_to}");
    }
    for connect_to in [
        "::evil.example:80",
        "::127.0.0.1:",
        ":::22",
        "::b.example:",
        "::127.1:8080",
        "A.EXAMPLE:80:[::1]:80",
    ] {
        let refusal = of(connect_to).expect_err(connect_to);
        assert!(matches!(refusal, Refusal::Detour { flag: "--connect-to", .. }), "{connect_to}: {refusal}");
    }
    // The client looks for the host as the URL has it, with its dot.
    let dotted = load(&entries, "http://a.example./", &reach(&[], &["a.example.:80:evil.example:80"]));
    assert!(matches!(dotted, Err(Refusal::Detour { .. })), "{dotted:?}");
    // A permitted place does not make a server permitted.
    let hidden = load(&entries, "http://evil.example/", &reach(&[], &["::a.example:80"]));
    assert!(matches!(hidden, Err(Refusal::Server { .. })), "{hidden:?}");
}

#[test]
fn a_fixed_address_is_permitted_only_if_it_is_permitted_itself() {
    let entries = ["http://a.example", "http://10.1.0.0/16"];
    let of = |resolve: &[&str]| load(&entries, "http://a.example/", &reach(resolve, &[]));
    for resolve in [["a.example:80:10.1.2.3"], ["a.example:81:127.0.0.1"], ["b.example:80:127.0.0.1"]] {
        assert_eq!(of(&resolve), Ok(()), "{resolve:?}");
    }
    for resolve in [
        ["a.example:80:127.0.0.1"],
        ["*:80:127.0.0.1"],
        ["A.example:80:10.1.2.3,10.2.0.1"],
        ["a.example:80:::ffff:127.0.0.1"],
        ["a.example:80:::1"],
    ] {
        let refusal = of(&resolve).expect_err(resolve[0]);
        assert!(matches!(refusal, Refusal::Detour { flag: "--resolve", .. }), "{resolve:?}: {refusal}");
    }
    // The address of the host that is connected to instead counts.
    let both = reach(&["b.example:80:127.0.0.1"], &["::b.example:80"]);
    let entries = ["http://a.example", "http://b.example"];
    let refusal = load(&entries, "http://a.example/", &both).unwrap_err().to_string();
    let expected =
        "http://a.example:80 is permitted here, but --resolve leads to http://127.0.0.1:80, which is not";
    assert!(refusal.starts_with(expected), "{refusal}");
}

#[test]
fn a_unix_socket_is_never_permitted() {
    let reach = Reach { unix_socket: Some("/run/docker.sock".into()), ..Reach::default() };
    assert_eq!(load(&["http://*:*"], "http://a.example/", &reach), Err(Refusal::UnixSocket));
}

#[test]
fn overrides_that_came_as_a_message_are_made_printable_in_the_refusal() {
    let json = r#"{"connect_to":[{"from":[null,null],"to":["\u001b[2J",null]}]}"#;
    let reach: Reach = serde_json::from_str(json).unwrap();
    let refusal = load(&["http://*:*"], "http://a.example/", &reach).unwrap_err().to_string();
    assert!(refusal.contains("--connect-to") && !refusal.contains('\u{1b}'), "{refusal}");
}

#[test]
fn a_path_may_have_placeholders_and_a_server_none() {
    let of = |url: &str| load(&["http://*:*"], url, &Reach::default()).is_ok();
    assert!(of("http://a.example:1/b?r={{random 1..9}}") && of("http://a.example?{{pick a|b c}}"));
    assert!(!of("http://{{pick a|b}}.example/") && !of("http://a.example:{{random 1..9}}/"));
}

#[test]
fn a_protocol_fits_its_scheme() {
    let demand = Demand { rate: None, connections: 1, time: Duration::ZERO };
    let of = |url, protocol| {
        let reach = Reach::default();
        let load = LoadRequest { url, reach: &reach, protocol, congestion: None, demand };
        permissions(&["http://*", "https://*"]).check_load(&load).is_ok()
    };
    assert!(
        of("https://a/", Protocol::H3) && of("https://a/", Protocol::H2) && of("http://a/", Protocol::H2c)
    );
    assert!(
        !of("https://a/", Protocol::H2c)
            && !of("http://a/", Protocol::H3)
            && !of("https://a/", Protocol::Tcp)
    );
}

#[test]
fn a_congestion_control_has_a_plain_name() {
    for (name, is_plain) in [
        ("bbr", true),
        ("a_b-3", true),
        (&*"x".repeat(15), true),
        (&*"x".repeat(16), false),
        ("", false),
        ("../x", false),
    ] {
        assert_eq!(check_congestion(Some(name)).is_ok(), is_plain, "{name}");
    }
    assert_eq!(check_congestion(None), Ok(()));
    let refusal = check_congestion(Some("\u{1b}[2J")).unwrap_err().to_string();
    assert!(refusal.contains("\\u{1b}"), "{refusal}");
}

#[test]
fn transfers_are_checked_url_by_url_and_their_connections_together() {
    let task = |urls: &[&str]| FetchTask {
        urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        protocol: Protocol::H1,
        connections: 4,
        duration: Duration::from_secs(10),
        congestion: None,
        reach: Reach::default(),
        ..testing::fetch_task(1)
    };
    let mut permissions = permissions(&["http://a.example"]);
    let good = task(&["http://a.example/1", "http://a.example/2"]);
    assert_eq!(permissions.check_fetch(&[good.clone(), good.clone()]), Ok(()));
    let bad = task(&["http://a.example/1", "http://b.example/"]);
    assert!(matches!(permissions.check_fetch(&[good.clone(), bad]), Err(Refusal::Server { .. })));
    let strange = FetchTask { congestion: Some("a/b".to_owned()), ..good.clone() };
    assert!(matches!(permissions.check_fetch(&[strange]), Err(Refusal::Congestion { .. })));
    permissions.limits.connections = Some(7);
    assert_eq!(permissions.check_fetch(std::slice::from_ref(&good)), Ok(()));
    let refused = permissions.check_fetch(&[good.clone(), good.clone()]);
    assert!(matches!(refused, Err(Refusal::Limit { flag: "--max-connections", .. })), "{refused:?}");
    permissions.limits = AgentLimits { time: Some(Duration::from_secs(9)), ..AgentLimits::default() };
    let refused = permissions.check_fetch(std::slice::from_ref(&good));
    assert!(matches!(refused, Err(Refusal::Limit { flag: "--max-time", .. })), "{refused:?}");
    permissions.limits = AgentLimits { rate: Some(1e9), ..AgentLimits::default() };
    assert!(matches!(permissions.check_fetch(&[good]), Err(Refusal::NoRate { .. })));
}

#[test]
fn a_server_of_bytes_needs_its_word_and_a_port_that_is_nobody_elses() {
    let task = |listen: &str| ServeTask {
        listen: listen.parse().unwrap(),
        protocol: Protocol::H1,
        settings: EngineSettings::default(),
        congestion: None,
    };
    let refusal =
        permissions(&["lab", "http://*:*"]).check_serve(&task("0.0.0.0:0")).unwrap_err().to_string();
    assert!(refusal.contains("--allow serve") && refusal.contains("lab, http://*:*"), "{refusal}");
    let serving = permissions(&["serve"]);
    for (listen, is_permitted) in
        [("0.0.0.0:0", true), ("[::]:1024", true), ("0.0.0.0:1023", false), ("0.0.0.0:1", false)]
    {
        assert_eq!(serving.check_serve(&task(listen)).is_ok(), is_permitted, "{listen}");
    }
    let framed = |size| {
        let settings = EngineSettings { max_frame_size: Some(size), ..EngineSettings::default() };
        serving.check_serve(&ServeTask { settings, ..task("0.0.0.0:0") })
    };
    assert_eq!(framed(16_384), Ok(()));
    assert!(matches!(framed(16_383), Err(Refusal::Scenario { .. })));
}

#[test]
fn what_nobody_counts_is_refused_where_bytes_are_bounded() {
    let bounded = |bytes| {
        let limits = AgentLimits { bytes, ..AgentLimits::default() };
        Permissions { allow: allow(&["lab", "serve", "http://*:*"]), limits }
    };
    let serve = ServeTask {
        listen: "0.0.0.0:0".parse().unwrap(),
        protocol: Protocol::H1,
        settings: EngineSettings::default(),
        congestion: None,
    };
    let unit = Scenario { repetitions: 1, ..Scenario::default() }.plan();
    assert_eq!(bounded(None).check_serve(&serve), Ok(()));
    assert_eq!(bounded(None).check_unit(&unit), Ok(()));
    // However large the bound is: it could not be kept.
    let bounded = bounded(Some(1 << 60));
    for refusal in [bounded.check_serve(&serve).unwrap_err(), bounded.check_unit(&unit).unwrap_err()] {
        assert!(matches!(refusal, Refusal::Uncounted { .. }), "{refusal}");
        assert!(refusal.to_string().contains("--max-bytes"), "{refusal}");
    }
    let task = FetchTask { reach: Reach::default(), ..testing::fetch_task(0) };
    assert_eq!(bounded.check_fetch(&[task]), Ok(()), "its bytes are counted");
}

#[test]
fn transfers_that_no_agent_makes_are_refused_without_any_bound() {
    let task = |connections| FetchTask { connections, reach: Reach::default(), ..testing::fetch_task(0) };
    let any = permissions(&["http://*:*"]);
    assert_eq!(any.check_fetch(&[task(20_000)]), Ok(()));
    assert!(matches!(any.check_fetch(&[task(20_001)]), Err(Refusal::Range { what: "connections", .. })));
}

#[test]
fn a_cell_behind_the_link_needs_its_word_whatever_server_it_has() {
    for matrix in
        ["", "origin = 'nginx'", "origin = 'no such program'", "topology = 'sidecar'\nsidecar = 'envoy'"]
    {
        let cells = Scenario::from_toml(&format!("repetitions = 1\n[matrix]\n{matrix}")).unwrap().plan();
        assert_eq!(permissions(&["lab"]).check_unit(&cells), Ok(()), "{matrix}");
        let refusal = permissions(&["serve", "http://*:*"]).check_unit(&cells).unwrap_err();
        assert!(matches!(refusal, Refusal::Role { word: "lab", .. }), "{matrix}: {refusal}");
    }
}

#[test]
fn a_live_server_of_a_unit_is_checked_by_its_url_also_if_only_a_variation_has_it() {
    let live = |url: &str| {
        format!("matrix.protocols = 'h1'\nmatrix.live = [{{ url = '{url}', path = '/', protocols = 'h1' }}]")
    };
    let of_entries = |entries: &[&str], text: &str| {
        permissions(entries).check_unit(&Scenario::from_toml(text).unwrap().plan())
    };
    let of = |text: &str| of_entries(&["lab", "http://a.example"], text);
    assert_eq!(of(&live("http://a.example/")), Ok(()));
    let refused = of(&live("http://b.example/"));
    assert!(matches!(refused, Err(Refusal::Server { .. })), "{refused:?}");
    let varied = |url: &str| format!("repetitions = 1\nmatrix.protocols = 'h1'\n[[vary]]\n{}", live(url));
    assert_eq!(of(&varied("http://a.example/")), Ok(()));
    let refused = of(&varied("http://b.example/"));
    assert!(matches!(refused, Err(Refusal::Server { .. })), "{refused:?}");
    // Without `lab` the cells beside it are refused, too.
    let refused = of_entries(&["http://a.example"], &varied("http://a.example/"));
    assert!(matches!(refused, Err(Refusal::Role { .. })), "{refused:?}");
}

#[test]
fn each_cell_of_a_unit_is_within_the_bounds() {
    let text = "repetitions = 1\n[work]\nwarmup = '1s'\nmeasure = '10s,20s'\ndrain = '1s'\nrate = '10,20'\n\
                [matrix]\nprotocols = 'h2c'";
    let cells = Scenario::from_toml(text).unwrap().plan();
    let flag = |limits: AgentLimits| {
        let permissions = Permissions { allow: allow(&["lab"]), limits };
        match permissions.check_unit(&cells) {
            Ok(()) => None,
            Err(Refusal::Limit { flag, .. }) => Some(flag),
            Err(other) => panic!("{other}"),
        }
    };
    let none = AgentLimits::default();
    assert_eq!(flag(AgentLimits { time: Some(Duration::from_secs(22)), ..none }), None);
    assert_eq!(flag(AgentLimits { time: Some(Duration::from_secs(21)), ..none }), Some("--max-time"));
    assert_eq!(flag(AgentLimits { rate: Some(20.0), ..none }), None);
    assert_eq!(flag(AgentLimits { rate: Some(19.0), ..none }), Some("--max-rate"));
    assert_eq!(flag(AgentLimits { connections: Some(1), ..none }), None);
    assert_eq!(flag(AgentLimits { connections: Some(0), ..none }), Some("--max-connections"));
}

#[test]
fn only_the_cells_that_are_measured_must_be_permitted_and_each_repetition_of_them() {
    let text = "repetitions = 2\n[work]\nrate = '10,20'\n[matrix]\nprotocols = 'h2c'";
    let plan = Scenario::from_toml(text).unwrap().plan();
    let limits = AgentLimits { rate: Some(10.0), ..AgentLimits::default() };
    let permissions = Permissions { allow: allow(&["lab"]), limits };
    let is_slow = |cell: &Cell| Demand::of_cell(cell, 1).rate <= Some(10.0);
    let (slow, fast): (Vec<Cell>, Vec<Cell>) = plan.iter().cloned().partition(is_slow);
    assert!(slow.len() >= 2 && fast.len() >= 2, "both repetitions of each");
    assert_eq!(permissions.check_unit(&slow), Ok(()));
    // A driver of its own may ask for any repetition, and for no other.
    for cell in fast {
        let refused = permissions.check_unit(&[slow[0].clone(), cell]);
        assert!(matches!(refused, Err(Refusal::Limit { flag: "--max-rate", .. })), "{refused:?}");
    }
}

#[test]
fn a_congestion_control_of_a_unit_has_a_plain_name() {
    let name = "\u{1b}[2J".repeat(1000);
    let mut scenario = Scenario::default();
    scenario.link.congestion = Axis::one(name);
    let refusal = permissions(&["lab"]).check_unit(&scenario.plan()).unwrap_err();
    assert!(matches!(refusal, Refusal::Congestion { .. }), "{refusal}");
    assert!(refusal.to_string().len() < 4000 && !refusal.to_string().contains('\u{1b}'), "{refusal}");
}

proptest! {
    #[test]
    fn no_text_is_more_than_a_refusal(text in ".*", host in "[a-z0-9.:*/\\[\\]@-]{0,20}") {
        for text in [text.clone(), format!("http://{text}"), format!("http://{host}")] {
            let _ = text.parse::<AllowEntry>();
            let _ = load(&["http://*:*", "https://*:*"], &text, &Reach::default());
        }
        let list = allow(&["http://a.example", "http://10.0.0.0/8"]);
        let _ = list.permits_url(&text, &host, 80);
        let _ = list.permits_url("http", &text, 80);
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_with_its_bits(bits in any::<u32>(), prefix in 0_u32..=32, other in any::<u32>()) {
        let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
        let first = std::net::Ipv4Addr::from_bits(bits & mask);
        let list = allow(&[&format!("http://{first}/{prefix}")]);
        for address in [bits, other, bits ^ 1 << (prefix % 32)] {
            let host = std::net::Ipv4Addr::from_bits(address);
            prop_assert_eq!(list.permits_url("http", &host.to_string(), 80), address & mask == bits & mask);
        }
    }
}
