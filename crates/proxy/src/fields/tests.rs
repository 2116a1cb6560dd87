use proptest::prelude::*;

use super::*;

const ORIGIN: Origin<'_> = Origin { version: Version::H1, address: "192.0.2.7", tls: false };

fn bare() -> OwnFields {
    OwnFields { via: None, client: ClientFields::None, ..OwnFields::default() }
}

/// The field lines that the next hop gets, and what was asked.
fn passed(fields: &[(&str, &str)], own: &OwnFields) -> (Vec<String>, Asked) {
    let mut head = Head::default();
    let asked = Fields::of(fields, |fields| {
        let incoming = incoming(b"GET", b"/", fields);
        request(&incoming, ORIGIN, own, &mut head).expect("it is legal")
    });
    (lines(&head), asked)
}

fn incoming<'a>(method: &'a [u8], path: &'a [u8], fields: Fields<'a>) -> RequestHead<'a> {
    RequestHead {
        method,
        scheme: b"http",
        authority: b"a.test:80",
        path,
        protocol: b"",
        is_http10: false,
        fields,
    }
}

fn lines(head: &Head) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    head.fields().map(|field| format!("{}: {}", text(field.name), text(field.value))).collect()
}

#[test]
fn what_concerns_one_connection_ends_here() {
    let fields = [
        ("connection", "keep-alive, X-Hop"),
        ("connection", "upgrade,HTTP2-Settings"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAAQAAP__"),
        ("x-hop", "1"),
        ("x-end", "2"),
        ("host", "a.test"),
        ("content-length", "12"),
    ];
    let (lines, asked) = passed(&fields, &bare());
    assert_eq!((lines, asked), (vec!["x-end: 2".to_owned()], Asked::default()));
}

#[test]
fn connection_cannot_take_away_what_every_recipient_needs() {
    let fields = [("connection", "close, Authorization, x-forwarded-for"), ("authorization", "Basic eA==")];
    assert_eq!(passed(&fields, &bare()).0, ["authorization: Basic eA=="]);
}

#[test]
fn trailers_are_asked_for_hop_by_hop() {
    let fields = [("te", "gzip, trailers;q=1, trailers"), ("connection", "te")];
    assert_eq!(passed(&fields, &bare()).0, ["te: trailers"]);
    let mut head = Head::default();
    assert_eq!(te(&head, Version::H1), None);
    head.add(b"te", &[b"trailers"]);
    assert_eq!(te(&head, Version::H1), Some(Field::new("connection", "te")));
    assert_eq!(te(&head, Version::H2), None, "there is no field of a connection");
    assert!(passed(&[("te", "gzip")], &bare()).0.is_empty());
}

#[test]
fn cookies_are_one_line() {
    let fields = [("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c=3")];
    assert_eq!(passed(&fields, &bare()).0, ["x: y", "cookie: a=1; b=2; c=3"]);
}

#[test]
fn websocket_is_the_only_upgrade() {
    let with = |upgrade| [("connection", "Upgrade"), ("upgrade", upgrade)];
    assert!(passed(&with("websocket"), &bare()).1.websocket);
    assert!(!passed(&with("h2c"), &bare()).1.websocket);
    assert!(!passed(&[("upgrade", "websocket")], &bare()).1.websocket, "Connection does not name it");
}

#[test]
fn an_upgrade_of_http10_or_with_content_is_ignored() {
    let offer = [("connection", "Upgrade"), ("upgrade", "websocket")];
    let asked = |is_http10: bool, more: &[(&str, &str)]| {
        Fields::of(&[&offer[..], more].concat(), |fields| {
            let incoming = RequestHead { is_http10, ..incoming(b"GET", b"/", fields) };
            request(&incoming, ORIGIN, &bare(), &mut Head::default()).expect("it is legal").websocket
        })
    };
    assert!(asked(false, &[]) && asked(false, &[("content-length", "0")]));
    assert!(!asked(true, &[]), "RFC 9110 §7.8");
    for content in [("content-length", "3"), ("transfer-encoding", "chunked")] {
        assert!(!asked(false, &[content]), "{content:?}");
    }
}

#[test]
fn the_next_hop_learns_who_asked() {
    let said = [("x-forwarded-for", "10.0.0.1"), ("x-forwarded-proto", "https"), ("forwarded", "for=_a")];
    let own = |client, trusted| OwnFields { client, trusted, ..bare() };
    assert_eq!(
        passed(&said, &own(ClientFields::XForwarded, false)).0,
        ["x-forwarded-for: 192.0.2.7", "x-forwarded-proto: http", "x-forwarded-host: a.test:80"],
        "a stranger may say anything"
    );
    assert_eq!(
        passed(&said, &own(ClientFields::XForwarded, true)).0,
        [
            "x-forwarded-for: 10.0.0.1, 192.0.2.7",
            "x-forwarded-proto: https",
            "x-forwarded-host: a.test:80",
            "forwarded: for=_a"
        ]
    );
    assert_eq!(
        passed(&said, &own(ClientFields::Forwarded, true)).0[0],
        "forwarded: for=_a, for=192.0.2.7;proto=http;host=\"a.test:80\""
    );
    assert_eq!(passed(&said, &own(ClientFields::None, false)).0.len(), 3);
    let others = [("x-real-ip", "10.0.0.1"), ("x-forwarded-port", "443"), ("connection", "x-real-ip")];
    let has = |client, trusted| {
        let (lines, _) = passed(&others, &own(client, trusted));
        others[..2].iter().filter(|(name, value)| lines.contains(&format!("{name}: {value}"))).count()
    };
    for client in [ClientFields::XForwarded, ClientFields::Forwarded] {
        assert_eq!([has(client, false), has(client, true)], [0, 2], "{client:?}");
    }
    assert_eq!(has(ClientFields::None, false), 2, "what the client says passes");
    let mut head = Head::default();
    let six = Origin { address: "2001:db8::1", tls: true, version: Version::H2 };
    let own = OwnFields { client: ClientFields::Forwarded, ..OwnFields::default() };
    request(&incoming(b"GET", b"/", Fields::default()), six, &own, &mut head).expect("legal");
    assert_eq!(
        lines(&head),
        ["forwarded: for=\"[2001:db8::1]\";proto=https;host=\"a.test:80\"", "via: 2 h2lab"]
    );
}

#[test]
fn via_names_every_proxy_in_order() {
    let fields = [("via", "1.0 first"), ("via", "2 second")];
    let own = OwnFields { client: ClientFields::None, ..OwnFields::default() };
    assert_eq!(passed(&fields, &own).0, ["via: 1.0 first, 2 second, 1.1 h2lab"]);
    let old = |version| {
        let mut head = Head::default();
        let said = ResponseHead { status: 200, is_http10: true, fields: Fields::default() };
        response(&said, version, &own, &mut head);
        lines(&head).concat()
    };
    assert_eq!(old(Version::H1), "via: 1.0 h2lab");
    assert_eq!(passed(&fields, &bare()).0.len(), 2, "without a name those before pass");
}

#[test]
fn max_forwards_counts_down() {
    let mut head = Head::default();
    let mut ask = |left: &str| {
        Fields::of(&[("max-forwards", left)], |fields| {
            request(&incoming(b"OPTIONS", b"*", fields), ORIGIN, &bare(), &mut head)
        })
        .map(|asked| (asked.ends_here, lines(&head)))
    };
    assert_eq!(ask("1"), Ok((false, vec!["max-forwards: 0".to_owned()])));
    assert_eq!(ask("0"), Ok((true, vec![])));
    assert_eq!(passed(&[("max-forwards", "3")], &bare()).0, ["max-forwards: 3"], "GET has no such count");
}

#[test]
fn a_wait_for_100_is_seen_and_passes() {
    let (lines, asked) = passed(&[("expect", "100-Continue")], &bare());
    assert_eq!((lines, asked.expects_continue), (vec!["expect: 100-Continue".to_owned()], true));
}

#[test]
fn what_http1_would_read_as_something_else_is_refused() {
    let mut head = Head::default();
    let mut ask = |method: &[u8], path: &[u8], authority: &[u8]| {
        let head_in = RequestHead { authority, ..incoming(method, path, Fields::default()) };
        request(&head_in, ORIGIN, &bare(), &mut head).err()
    };
    assert_eq!(ask(b"GET /x HTTP/1.1\r\nx:", b"/", b"a"), Some(Refused::Method));
    assert_eq!(ask(b"", b"/", b"a"), Some(Refused::Method));
    for path in [&b"/ HTTP/1.1\r\nHost: b"[..], b"/a b", b"/\0", b"/\x7f", b"/\xff", b"/a#b"] {
        assert_eq!(ask(b"GET", path, b"a"), Some(Refused::Target), "{path:?}");
    }
    for authority in
        [&b"a\r\nx: y"[..], b"a b", b"u@a", b"a/b", b"a?b", b"a#b", b"a\\b", b"[::1", b"a:99999", b"a:b"]
    {
        assert_eq!(ask(b"GET", b"/", authority), Some(Refused::Authority), "{authority:?}");
    }
    assert_eq!(ask(b"M-SEARCH", "/é?q=%20".as_bytes(), b"[2001:db8::1]:80"), None);
}

#[test]
fn responses_and_trailers_lose_what_is_of_the_hop() {
    let mut head = Head::default();
    let fields = [
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=1"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2,h2c"),
        ("content-length", "5"),
        ("via", "1.1 a"),
        ("set-cookie", "a"),
        ("set-cookie", "b"),
    ];
    Fields::of(&fields, |fields| {
        response(
            &ResponseHead { status: 200, is_http10: false, fields },
            Version::H2,
            &OwnFields::default(),
            &mut head,
        );
    });
    assert_eq!(lines(&head), ["set-cookie: a", "set-cookie: b", "via: 1.1 a, 2 h2lab"]);
    assert_eq!((head.status, head.body_length), (200, Some(5)));
    let trailing = [("content-length", "5"), ("grpc-status", "0"), ("transfer-encoding", "x"), ("host", "b")];
    Fields::of(&trailing, |fields| trailers(fields, &mut head));
    assert_eq!(lines(&head), ["grpc-status: 0"]);
}

#[test]
fn a_response_that_names_more_fields_than_are_looked_at_does_not_pass() {
    for (count, told) in [(16, Ok(())), (17, Err(Refused::Options))] {
        let names: Vec<String> = (0..count).map(|n| format!("x-{n}")).collect();
        // In two lines, with one field that `Connection` must not remove.
        let (first, second) = (names[..9].join(", "), names[9..].join(",") + ", cookie");
        Fields::of(&[("connection", &*first), ("connection", &*second)], |fields| {
            assert_eq!(check_response(&ResponseHead { status: 200, is_http10: false, fields }), told);
        });
    }
}

proptest! {
    /// Whatever a request contains, no field of a hop passes, and every other one does, once and in order.
    #[test]
    fn nothing_of_a_hop_passes_and_all_else_does(
        fields in proptest::collection::vec(
            (
                prop_oneof![
                    Just("connection"), Just("te"), Just("upgrade"), Just("transfer-encoding"), Just("x-a"), Just("x-b"),
                    Just("keep-alive"), Just("http2-settings"), Just("cookie")
                ],
                prop_oneof![
                    Just("x-a"), Just("close, x-b"), Just("websocket"), Just("h2c"), Just("trailers"), Just(","), Just("")
                ],
            ),
            0..12,
        )
    ) {
        let hidden = |name: &str| {
            let lines = fields.iter().filter(|(field, _)| *field == "connection");
            lines.flat_map(|(_, value)| value.split(',')).any(|option| option.trim() == name)
        };
        let (lines, _) = passed(&fields, &bare());
        let expected: Vec<String> = fields
            .iter()
            .filter(|(name, _)| name.starts_with("x-") && !hidden(name))
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        let kept: Vec<&String> = lines.iter().filter(|line| line.starts_with("x-")).collect();
        prop_assert_eq!(kept, expected.iter().collect::<Vec<_>>());
        let is_known = |line: &String| line.starts_with("x-") || line.starts_with("cookie: ") || line == "te: trailers";
        prop_assert!(lines.iter().all(is_known), "{:?}", lines);
    }
}

#[test]
fn a_message_that_announces_trailers_is_told_no_length_in_http_1_1() {
    let mut head = Head::default();
    head.body_length = Some(3);
    assert_eq!(body_length(&head, Version::H1), Some(3));
    head.add(b"trailer", &[b"x-digest"]);
    assert_eq!((body_length(&head, Version::H1), body_length(&head, Version::H2)), (None, Some(3)));
}

#[test]
fn a_request_that_names_no_host_says_nothing_of_it() {
    let mut head = Head::default();
    let incoming =
        RequestHead { authority: b"", is_http10: true, ..incoming(b"GET", b"/", Fields::default()) };
    for client in [ClientFields::XForwarded, ClientFields::Forwarded] {
        let own = OwnFields { client, ..bare() };
        let asked = request(&incoming, ORIGIN, &own, &mut head).expect("it is legal");
        let lines = lines(&head);
        assert!(asked.is_http10 && !lines.is_empty(), "{lines:?}");
        assert!(lines.iter().all(|line| !line.contains("host")), "{lines:?}");
    }
}
