use super::*;
use crate::settings::{Knob, Version};

fn peer(product: &str, version: &str) -> Peer {
    Peer { version: Version::parse(version), ..Peer::started(product) }
}

pub(super) fn change(
    product: &str,
    version: &str,
    knob: Knob,
    value: u64,
    text: &str,
) -> Result<String, String> {
    let files = [ConfigFile::main("a", text)];
    let change = Change { knob, value: Some(value) };
    edited(&peer(product, version), &change, &files).map(|mut files| files.remove(0).text)
}

fn nginx(knob: Knob, value: u64, text: &str) -> Result<String, String> {
    change("nginx", "1.22.1", knob, value, text)
}

#[test]
fn a_value_of_nginx_is_raised_where_it_stands_and_nowhere_else() {
    let text = "http {\n  # keepalive_requests 5;\n  upstream a { keepalive_requests 5; }\n  server {\n    keepalive_requests \
                20; listen 80;\n    location / { keepalive_requests 2000000; }\n  }\n}\n";
    let edited = nginx(Knob::H2Requests, 100_000, text).unwrap();
    assert_eq!(edited, text.replace("keepalive_requests 20;", "keepalive_requests 100000;"));
    assert!(
        nginx(Knob::H2Requests, 10, text).unwrap().contains("http {\n  keepalive_requests 10;"),
        "not there"
    );
}

#[test]
fn what_nginx_does_not_say_is_written_at_the_beginning_of_http() {
    let text = "events {}\nhttp {\n\tserver { return 200 \"{;}\"; }\n}\n";
    let edited = nginx(Knob::MaxConcurrentStreams, 256, text).unwrap();
    assert_eq!(
        edited,
        "events {}\nhttp {\n\thttp2_max_concurrent_streams 256;\n\tserver { return 200 \"{;}\"; }\n}\n"
    );
    let again = nginx(Knob::MaxConcurrentStreams, 256, &edited);
    assert!(again.unwrap_err().contains("as large already"));
    assert!(nginx(Knob::MaxConcurrentStreams, 9, "events {}").is_err(), "there is no http block");
    assert!(nginx(Knob::MaxConcurrentStreams, 257, &edited).unwrap().contains("streams 257;"));
}

#[test]
fn an_included_file_is_edited_where_the_directive_stands() {
    let included = |within: &str, text: &str| ConfigFile {
        within: Some(within.to_owned()),
        ..ConfigFile::main("b", text)
    };
    let main = ConfigFile::main("a", "http { include b; }");
    let change = |knob, value, file: &ConfigFile| {
        let change = Change { knob, value: Some(value) };
        edited(&peer("nginx", "1.22.1"), &change, &[main.clone(), file.clone()])
    };
    let small = included("http", "server { http2_body_preread_size 64k; }");
    let raised = change(Knob::StreamWindow, 1 << 20, &small).unwrap();
    assert_eq!(raised[0], main);
    assert_eq!(raised[1].text, "server { http2_body_preread_size 1024k; }");
    // Written for everything in the included file: a second one in the main file would be a duplicate, which nginx refuses.
    let general = included("http", "http2_max_concurrent_streams 256;");
    let refused = change(Knob::MaxConcurrentStreams, 128, &general).unwrap_err();
    assert!(refused.contains("http2_max_concurrent_streams as large already"), "{refused}");
    let upstream = included("upstream", "keepalive_requests 5;");
    let beside = change(Knob::H2Requests, 100_000, &upstream).unwrap();
    assert_eq!((&beside[1], beside[0].text.contains("keepalive_requests 100000;")), (&upstream, true));
    let server = included("server", "keepalive_requests 5;");
    assert_eq!(change(Knob::H2Requests, 9, &server).unwrap()[1].text, "keepalive_requests 9;");
}

#[test]
fn zero_is_no_limit_only_where_the_product_takes_it_so() {
    let quota = nginx(Knob::H2Requests, 100, "http { keepalive_requests 0; }").unwrap();
    assert_eq!(quota, "http { keepalive_requests 100; }", "nginx closes after every request");
    let envoy = |field: &str| {
        let text = format!("a:\n  \"@type\": {TYPE}\n  common_http_protocol_options: {{ {field} }}\n");
        change("envoy", "1.40.0", Knob::H2Requests, 100, &text)
    };
    assert!(envoy("max_requests_per_connection: 0").unwrap_err().contains("as large already"));
    assert!(
        envoy("max_requests_per_connection: 99").unwrap().contains("{ max_requests_per_connection: 100 }")
    );
}

#[test]
fn statements_of_nginx_are_seen_through_comments_quotes_variables_and_code() {
    let text = "a 'x;y' \"{\"; # b {\nhttp { if ($x = \"${y}\") { set $z ${y}k; } content_by_lua_block { t = { ';' } } c; }";
    let seen: Vec<(String, usize)> =
        nginx::statements(text).iter().map(|one| (one.words.join(" "), one.within.len())).collect();
    let expected = [
        ("a x;y {", 0),
        ("http", 0),
        ("if ($x = ${y})", 1),
        ("set $z ${y}k", 2),
        ("content_by_lua_block", 1),
        ("c", 1),
    ];
    assert_eq!(
        seen.iter().map(|(words, depth)| (words.as_str(), *depth)).collect::<Vec<_>>().len(),
        expected.len()
    );
    for ((words, depth), expected) in seen.iter().zip(expected) {
        assert_eq!(*depth, expected.1, "{words}");
    }
    for text in ["{", "}", "a", "a 'b", "a {", "\\", "${", "x_by_lua_block {", "ü;ß{"] {
        nginx::statements(text);
    }
}

#[test]
fn a_setting_of_haproxy_goes_into_its_section() {
    let of = |version, text: &str| change("haproxy", version, Knob::MaxConcurrentStreams, 128, text);
    let old = "global\n    tune.h2.max-concurrent-streams 4 # few\n    tune.h2.max-concurrent-streams-x 1\ndefaults\n";
    let edited = of("2.6.12", old).unwrap();
    assert!(edited.starts_with(
        "global\n    tune.h2.max-concurrent-streams 128 # few\n    tune.h2.max-concurrent-streams-x 1\n"
    ));
    let new = of("2.8", "defaults\n    mode http\n").unwrap();
    assert_eq!(new, "global\n    tune.h2.fe.max-concurrent-streams 128\ndefaults\n    mode http\n");
    let inside = of("2.8", "# it\nglobal # g\n    daemon\n").unwrap();
    assert_eq!(inside, "# it\nglobal # g\n    tune.h2.fe.max-concurrent-streams 128\n    daemon\n");
}

#[test]
fn a_directive_of_apache_and_a_flag_of_our_origin_are_lines() {
    let of = |product, version, knob, text: &str| change(product, version, knob, 128, text).unwrap();
    let limit = Knob::MaxConcurrentStreams;
    assert_eq!(
        of("apache", "2.4.71", limit, "  h2maxsessionstreams 4\nX 1"),
        "  H2MaxSessionStreams 128\nX 1"
    );
    assert_eq!(of("apache", "2.4.71", limit, "X 1"), "X 1\nH2MaxSessionStreams 128\n");
    let host = "<VirtualHost *:80>\nH2MaxSessionStreams 200\n</VirtualHost>\n";
    assert_eq!(
        of("apache", "2.4.71", limit, host),
        format!("{host}H2MaxSessionStreams 128\n"),
        "others have none"
    );
    let general = change("apache", "2.4.71", limit, 128, &format!("{host}H2MaxSessionStreams 200\n"));
    assert!(general.unwrap_err().contains("as large already"));
    assert_eq!(
        of("h2lab", "0.1.0", limit, "--max-concurrent-streams=4\n--h3\n"),
        "--max-concurrent-streams 128\n--h3\n"
    );
    assert_eq!(
        of(
            "h2lab",
            "0.1.0",
            limit,
            "--h3 --max-concurrent-streams 4 -w 64k # a --max-concurrent-streams 5\n"
        ),
        "--h3 --max-concurrent-streams 128 -w 64k # a --max-concurrent-streams 5\n"
    );
    let window = change("h2lab", "0.1.0", Knob::StreamWindow, 1 << 20, "--stream-window 65535\n").unwrap();
    assert_eq!(window, "-w 1048576\n");
    assert_eq!(of("h2lab", "0.1.0", limit, ""), "--max-concurrent-streams 128\n");
}

const TYPE: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

#[test]
fn a_field_of_envoy_goes_into_every_connection_manager() {
    let of = |text: &str| change("envoy", "1.40.0", Knob::MaxConcurrentStreams, 128, text);
    let yaml = |options: &str| {
        format!(
            "filters:\n- name: a\n  typed_config:\n    \"@type\": {TYPE}\n    stat_prefix: a\n{options}clusters:\n- name: b\n  http2_protocol_options:\n    max_concurrent_streams: 2\n"
        )
    };
    let block =
        |limit: u32| yaml(&format!("    http2_protocol_options:\n      max_concurrent_streams: {limit}\n"));
    assert_eq!(of(&block(4)).unwrap(), block(128));
    assert!(of(&block(128)).unwrap_err().contains("as large already"));
    let flow = |fields: &str| yaml(&format!("    http2_protocol_options: {{{fields}}}\n"));
    assert_eq!(of(&flow("")).unwrap(), flow(" max_concurrent_streams: 128 "));
    assert_eq!(
        of(&flow(" a: 1, max_concurrent_streams: 3 ")).unwrap(),
        flow(" a: 1, max_concurrent_streams: 128 ")
    );
    let nested = " connection_keepalive: { interval: 30s, timeout: 5s }, max_concurrent_streams: 3 ";
    assert_eq!(of(&flow(nested)).unwrap(), flow(&nested.replace("streams: 3", "streams: 128")));
    let commented = block(4).replace("      max", "# { a comment\n      max");
    assert_eq!(of(&commented).unwrap(), commented.replace("streams: 4", "streams: 128"));
    let added = of(&yaml("")).unwrap();
    assert!(added.contains(&format!(
        "{TYPE}\n    http2_protocol_options:\n      max_concurrent_streams: 128\n    stat_prefix"
    )));
    let json = serde_json::json!({ "filters": [
        { "typed_config": { "@type": TYPE, "http2_protocol_options": { "max_concurrent_streams": 4, "x": 1 }, "z": 1 } },
        { "typed_config": { "@type": TYPE, "a": 1 } },
        { "typed_config": { "@type": TYPE, "http2_protocol_options": {}, "a": 1 } },
    ], "clusters": [{ "http2_protocol_options": { "max_concurrent_streams": 4 } }] });
    let edited: serde_json::Value = serde_json::from_str(&of(&format!("{json:#}")).unwrap()).unwrap();
    let mut expected = json;
    for filter in 0..3 {
        expected["filters"][filter]["typed_config"]["http2_protocol_options"]["max_concurrent_streams"] =
            128.into();
    }
    assert_eq!(edited, expected);
}

#[test]
fn a_manager_of_envoy_in_braces_is_changed_within_its_braces() {
    let of = |knob, text: &str| change("envoy", "1.40.0", knob, 128, text);
    let limit = Knob::MaxConcurrentStreams;
    let yaml = |fields: &str| format!("a: {{ \"@type\": {TYPE}, stat_prefix: a{fields} }}\nb: {{ c: 1 }}\n");
    let options =
        |limit: u32| yaml(&format!(", http2_protocol_options: {{ max_concurrent_streams: {limit} }}"));
    assert_eq!(of(limit, &yaml("")).unwrap(), options(128));
    assert_eq!(of(limit, &options(127)).unwrap(), options(128));
    assert!(of(limit, &options(128)).unwrap_err().contains("no place for"), "nothing is too small");
    assert_eq!(of(Knob::HeaderSize, &yaml("")).unwrap(), yaml(", max_request_headers_kb: 1"));
    let json = format!("{{\"f\":[{{\"@type\":\"{TYPE}\",\"a\":1}}]}}");
    let edited: serde_json::Value = serde_json::from_str(&of(limit, &json).unwrap()).unwrap();
    assert_eq!(edited["f"][0]["http2_protocol_options"]["max_concurrent_streams"], 128);
    assert!(of(limit, "a: { b: { c: HttpConnectionManager } }").is_err(), "that is no type");
    let quoted = |fields: &str| yaml(&format!(", via: \"a,b}} \\\"c\"{fields}"));
    let added = ", http2_protocol_options: { max_concurrent_streams: 128 }";
    assert_eq!(of(limit, &quoted("")).unwrap(), quoted(added), "no field ends within quotes");
    let twice = |fields: &str| yaml(&format!(", via: HttpConnectionManager{fields}"));
    assert_eq!(of(limit, &twice("")).unwrap(), twice(added));
    let commented = yaml(" # { a, comment\n ");
    assert!(of(limit, &commented).is_err(), "what follows in the line would be a comment");
}

#[test]
fn what_an_edit_of_envoy_would_break_is_left_as_it_is() {
    let of = |knob, value, fields: &str| {
        let text = format!("a:\n  \"@type\": {TYPE}\n{fields}b: 1\n");
        let fields = |edited: String| {
            let (_, rest) = edited.split_once("Manager\n")?;
            rest.strip_suffix("b: 1\n").map(str::to_owned)
        };
        change("envoy", "1.40.0", knob, value, &text).map(fields)
    };
    let limit = Knob::MaxConcurrentStreams;
    for several in [
        "  http2_protocol_options: { max_concurrent_streams: 1,\n    initial_stream_window_size: 65536 }\n",
        "  http2_protocol_options: {\n    max_concurrent_streams: 1 }\n",
        "  http2_protocol_options: *shared\n",
    ] {
        assert!(of(limit, 128, several).is_err(), "{several}");
    }
    let group =
        |comment: &str| format!("  http2_protocol_options: # {comment}\n    max_concurrent_streams: ");
    let few = format!("{}4 # few\n", group("{ mine }"));
    assert_eq!(of(limit, 128, &few).unwrap(), Some(few.replace("4 #", "128 #")));
    let size = |kib: u32| format!("  max_request_headers_kb: {kib} # much\n");
    assert_eq!(of(Knob::HeaderSize, 65_536, &size(63)).unwrap(), Some(size(64)));
    assert!(of(Knob::HeaderSize, 65_536, &size(65)).is_err(), "it is larger");
}

#[test]
fn a_setting_of_envoys_manager_itself_is_a_field_beside_its_type() {
    let of = |knob, value, text: &str| change("envoy", "1.40.0", knob, value, text);
    let yaml = |fields: &str| format!("a:\n- \"@type\": {TYPE}\n{fields}  stat_prefix: a\nb: 1\n");
    let size = |kib: u64| yaml(&format!("  max_request_headers_kb: {kib}\n"));
    assert_eq!(of(Knob::HeaderSize, 65_536, &yaml("")).unwrap(), size(64));
    assert_eq!(of(Knob::HeaderSize, 65_536, &size(63)).unwrap(), size(64));
    assert!(of(Knob::HeaderSize, 65_536, &size(64)).unwrap_err().contains("as large already"));
    let json = format!("{:#}", serde_json::json!({ "f": { "@type": TYPE, "z": 1 } }));
    let edited: serde_json::Value =
        serde_json::from_str(&of(Knob::HeaderSize, 65_536, &json).unwrap()).unwrap();
    assert_eq!(edited["f"], serde_json::json!({ "@type": TYPE, "max_request_headers_kb": 64, "z": 1 }));
    let filter = of(Knob::RequestRate, 9, &yaml("  http_filters:\n  - name: router\n")).unwrap();
    assert!(
        filter.contains("  http_filters:\n  - { name: limit") && filter.contains("}\n  - name: router\n")
    );
    assert!(of(Knob::RequestRate, 9, &yaml("  http_filters: [{ name: router }]\n")).is_err());
    let refused = of(Knob::SendBuffer, 65_536, &yaml("")).unwrap_err();
    assert!(refused.contains("only fields of an HttpConnectionManager"), "{refused}");
}

#[test]
fn what_a_product_does_not_have_is_refused_with_its_name() {
    let refused = |product, version, knob| change(product, version, knob, 9, "x").unwrap_err();
    assert!(refused("apache", "2.4.71", Knob::H2Requests).contains("Apache"));
    assert!(refused("haproxy", "2.6.12", Knob::H2Requests).contains("HAProxy"));
    assert!(refused("traefik", "3.0", Knob::MaxConcurrentStreams).contains("configurations of Traefik"));
    assert!(edited(&Peer::unknown(), &Change { knob: Knob::Push, value: None }, &[]).is_err());
}

#[test]
fn values_are_read_in_the_units_of_configurations() {
    use crate::settings::Unit;
    for (unit, text, value) in [
        (Unit::Kib, "64k", Some(65_536)),
        (Unit::Bytes, "1m", Some(1 << 20)),
        (Unit::Bytes, "4096;", Some(4_096)),
        (Unit::Count, "0", Some(0)),
        (Unit::Count, "7", Some(7)),
        (Unit::Count, "7k", None),
        (Unit::Seconds, "75", Some(75_000)),
        (Unit::Seconds, "1h", Some(3_600_000)),
        (Unit::Millis, "75", Some(75)),
        (Unit::Millis, "2s", Some(2_000)),
        (Unit::Bits, "16", Some(65_535)),
        (Unit::Bytes, "unlimited", None),
    ] {
        assert_eq!(unit.read(text), value, "{text}");
    }
}
