use std::collections::BTreeSet;

use super::*;

fn wish(knob: Knob, role: Role, value: impl Into<Option<u64>>) -> Wish {
    Wish { knob, role, value: value.into() }
}

fn every() -> impl Iterator<Item = (&'static Product, &'static Setting)> {
    products().iter().flat_map(|product| product.settings.iter().map(move |setting| (product, setting)))
}

/// Where an entry stands, for the message of a test that fails.
fn at(product: &Product, setting: &Setting) -> String {
    format!("{}.toml, {} {} {:?}", product.id, setting.knob, setting.role, setting.name)
}

#[test]
fn every_knob_has_an_entry_and_an_id_of_its_own() {
    let used: BTreeSet<Knob> = every().map(|(_, setting)| setting.knob).collect();
    for &knob in Knob::ALL {
        assert!(used.contains(&knob), "nothing controls {knob}");
        assert_eq!(knob.id().parse::<Knob>().unwrap(), knob);
        assert!(!knob.words().is_empty());
    }
    assert!("h2.no-such".parse::<Knob>().is_err());
}

#[test]
fn every_entry_has_a_setting_or_a_reason_for_none() {
    for (product, setting) in every() {
        let at = at(product, setting);
        assert_ne!(setting.write.is_some(), setting.none.is_some(), "{at}: one of write and none");
        let Some(write) = &setting.write else { continue };
        assert!(setting.name.is_some() && setting.place.is_some(), "{at}: a name and a place");
        assert_eq!(
            write.matches("{value}").count(),
            usize::from(setting.unit.is_some()),
            "{at}: {{value}} and a unit"
        );
        assert!(setting.range.is_none() || setting.unit.is_some(), "{at}: a range of what?");
        if let Some((least, most)) = setting.range {
            assert!(least < most, "{at}");
        }
        let name = setting.name.as_deref().unwrap().rsplit(' ').next().unwrap();
        let last = name.rsplit(['.', '(']).next().unwrap();
        assert!(write.contains(last), "{at}: `{write}` does not contain the name");
    }
}

#[test]
fn version_ranges_of_a_setting_do_not_overlap_and_are_in_order() {
    for product in products() {
        for (n, setting) in product.settings.iter().enumerate() {
            let at = at(product, setting);
            if let (Some(from), Some(until)) = (&setting.from, &setting.until) {
                assert!(from < until, "{at}");
            }
            let next = product.settings[n + 1..].iter();
            let next = next.filter(|other| other.knob == setting.knob && other.role == setting.role);
            for other in next {
                let (Some(until), Some(from)) = (&setting.until, &other.from) else {
                    panic!("{at}: two entries for all versions");
                };
                assert!(until <= from, "{at}: overlaps with {:?}", other.name);
            }
        }
    }
}

#[test]
fn markers_are_lower_case_and_of_one_product() {
    let mut seen = BTreeSet::new();
    for marker in products().iter().flat_map(|product| &product.markers) {
        assert_eq!(*marker, marker.to_lowercase());
        assert!(seen.insert(marker), "{marker}");
    }
}

#[test]
fn the_name_that_fits_the_version_is_written() {
    let of = |field: &str| advise(&Peer::of_field(field), wish(Knob::StreamWindow, Role::Front, 122_880));
    assert_eq!(of("HAProxy/2.6.12").setting, "tune.h2.initial-window-size 122880");
    assert_eq!(of("HAProxy/2.8.0").setting, "tune.h2.fe.initial-window-size 122880");
    assert_eq!(of("HAProxy/3.2").setting, "tune.h2.fe.rxbuf 122880");
    let unseen = of("HAProxy");
    assert_eq!(unseen.setting, "tune.h2.fe.rxbuf 122880");
    assert!(
        unseen.why.contains(
            "since 3.1; `tune.h2.fe.initial-window-size 122880` from 2.8 to before 3.1, \
             `tune.h2.initial-window-size 122880` before 2.8"
        ),
        "{}",
        unseen.why
    );
}

#[test]
fn a_version_without_the_setting_is_told_so() {
    let fix = advise(&Peer::of_field("HAProxy/2.6.12"), wish(Knob::H2Requests, Role::Front, 100_000));
    let unseen = advise(&Peer::of_field("HAProxy"), wish(Knob::H2Requests, Role::Front, 100_000));
    assert_eq!(unseen.setting, "tune.h2.fe.max-total-streams 100000");
    assert!(unseen.why.ends_with("since 3.0"), "{}", unseen.why);
    assert_eq!(fix.setting, "none");
    assert_eq!(
        fix.why,
        "HAProxy 2.6.12 has no setting for the requests of an HTTP/2 connection: \
         `tune.h2.fe.max-total-streams 100000` since 3.0"
    );
}

#[test]
fn the_protocol_to_the_upstream_of_nginx_depends_on_its_version() {
    let of = |field: &str| advise(&Peer::of_field(field), wish(Knob::UpstreamProtocol, Role::Back, None));
    assert_eq!(of("nginx/1.29.4").setting, "proxy_http_version 2;");
    let older = of("nginx/1.29.3");
    assert_eq!(older.setting, NONE);
    assert!(older.why.contains("grpc_pass"), "{}", older.why);
}

#[test]
fn a_directive_whose_values_help_different_things_has_an_entry_for_each() {
    let of = |knob, role| advise(&Peer::of_field("nginx/1.22.1"), wish(knob, role, None)).setting;
    assert_eq!(of(Knob::RequestBuffering, Role::Front), "proxy_request_buffering off;");
    assert_eq!(of(Knob::InterimResponses, Role::Front), "proxy_request_buffering on;");
    assert_eq!(of(Knob::BodyLength, Role::Back), "proxy_request_buffering on;");
}

#[test]
fn what_an_older_version_does_not_know_is_told_with_what_it_has() {
    let of = |field: &str, said: &str| newer(&Peer::of_field(field), said);
    let said = "nginx: [emerg] unknown directive \"http2\" in nginx.conf:4";
    let expected = "`http2` is known since 1.25.1, and this is nginx 1.22.1: there it is `listen … http2`";
    assert_eq!(of("nginx/1.22.1", said).as_deref(), Some(expected));
    assert_eq!(of("nginx/1.25.1", said), None);
    assert_eq!(of("nginx/1.22.1", "unknown directive \"http22\""), None);
    let haproxy =
        of("HAProxy/2.6.12", "unknown keyword 'tune.h2.fe.max-total-streams' in 'global' section").unwrap();
    assert!(haproxy.ends_with("since 3.0, and this is HAProxy 2.6.12: it has nothing for it"), "{haproxy}");
}

#[test]
fn values_are_written_in_the_unit_of_the_product_and_within_its_range() {
    let line = |peer: Peer, knob, role, value| advise(&peer, wish(knob, role, value)).setting;
    let window = |name: &str, bytes: u64| line(Peer::started(name), Knob::StreamWindow, Role::Front, bytes);
    assert_eq!(window("nginx", 70_000), "http2_body_preread_size 69k;");
    assert_eq!(window("nghttpd", 1 << 20), "--window-bits=21");
    assert_eq!(window("apache", 1), "H2WindowSize 1024");
    assert_eq!(window("origin", 122_880), "-w 122880");
    let idle = |name| line(Peer::started(name), Knob::H2IdleTimeout, Role::Front, 60_001);
    assert_eq!([idle("nginx"), idle("tomcat")], ["keepalive_timeout 61s;", "keepAliveTimeout=\"60001\""]);
    let table = advise(&Peer::of_field("HAProxy/2.6"), wish(Knob::HeaderTableSize, Role::Front, 1 << 20));
    assert_eq!(table.setting, "tune.h2.header-table-size 65536");
    assert!(table.why.starts_with("the most that it takes; global; 4096 by default; "), "{}", table.why);
}

#[test]
fn no_fix_lowers_the_idle_connections_that_traefik_keeps() {
    let fix = advise(&Peer::started("traefik"), wish(Knob::UpstreamKeepAlive, Role::Back, 4));
    assert_eq!(fix.setting, "serversTransport.maxIdleConnsPerHost=1000");
    assert!(fix.why.contains("200 by default"), "{}", fix.why);
}

#[test]
fn without_a_value_the_name_alone_is_given() {
    let fix = advise(&Peer::of_field("nginx/1.22.1"), wish(Knob::H2Requests, Role::Front, None));
    assert_eq!(fix.setting, "keepalive_requests");
    let linux = advise(&Peer::started("linux"), wish(Knob::CongestionControl, Role::Kernel, None));
    assert_eq!(linux.setting, "sysctl -w net.ipv4.tcp_congestion_control=bbr");
}

#[test]
fn what_was_not_checked_says_so_and_what_was_does_not() {
    let why = |name| advise(&Peer::started(name), wish(Knob::StreamWindow, Role::Front, 1 << 20)).why;
    assert!(why("caddy").ends_with("(unchecked)"), "{}", why("caddy"));
    for name in ["nginx", "haproxy", "envoy", "apache", "nghttpx", "h2o", "go"] {
        assert!(!why(name).contains("unchecked"), "{name}: {}", why(name));
    }
}

#[test]
fn for_an_unknown_product_the_known_ones_are_listed() {
    let wanted = wish(Knob::StreamWindow, Role::Front, 122_880);
    for (peer, name) in [(Peer::unknown(), "server"), (Peer::of_field("acme/1"), "acme/1")] {
        let fix = advise(&peer, wanted);
        assert_eq!((fix.product.as_str(), fix.setting.as_str()), (name, NOT_KNOWN));
        for part in [
            "nginx `http2_body_preread_size 120k;`",
            "HAProxy `tune.h2.fe.rxbuf 122880` since 3.1",
            "`h2lab explain` has more",
        ] {
            assert!(fix.why.contains(part), "{}", fix.why);
        }
    }
    let of_proxies = proxies(wanted, None).unwrap();
    assert!(
        of_proxies.contains("HAProxy") && !of_proxies.contains("Jetty") && !of_proxies.contains("Caddy"),
        "{of_proxies}"
    );
    assert_eq!(proxies(wish(Knob::Push, Role::Kernel, None), None), None);
}

#[test]
fn of_proxies_those_whose_default_was_announced_are_first() {
    let wanted = wish(Knob::StreamWindow, Role::Front, 1_310_720);
    let of_haproxy = proxies(wanted, Some(65_535)).unwrap();
    assert!(of_haproxy.starts_with("HAProxy `tune.h2.fe.rxbuf 1310720` since 3.1"), "{of_haproxy}");
    let note = "`tune.h2.initial-window-size 1310720` before 2.8 \
                (its default before 2.8, 65535, is what is announced here)";
    assert!(of_haproxy.contains(note), "{of_haproxy}");
    let of_nginx = proxies(wanted, Some(65_536)).unwrap();
    assert!(
        of_nginx.starts_with("nginx `http2_body_preread_size 1280k;` (its default, 65536, is"),
        "{of_nginx}"
    );
    assert!(!proxies(wanted, Some(131_072)).unwrap().contains("announced here"));
}

#[test]
fn a_known_product_without_an_entry_is_never_given_a_guess() {
    let fix = advise(&Peer::started("undertow"), wish(Knob::EarlyHints, Role::Front, None));
    assert_eq!(fix.setting, NOT_KNOWN);
    assert_eq!(fix.why, "we know of no setting of Undertow for Early Hints (103)");
    assert!(
        fix.line().ends_with(": we know of no setting of Undertow for Early Hints (103)"),
        "{}",
        fix.line()
    );
}
