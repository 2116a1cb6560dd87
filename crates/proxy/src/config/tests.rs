//! Tests of files and of the values in them.

use std::time::Duration;

use super::*;

/// What makes a configuration wrong.
type Change<'a> = &'a dyn Fn(&mut Config);

fn instance(text: &str) -> Result<String, String> {
    text.parse::<Instance>().map(|instance| instance.to_string()).map_err(|error| error.to_string())
}

#[test]
fn configurations_that_say_the_same_have_the_same_number_and_others_another() {
    let of = |more: &str| {
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n[service.a]\ninstances = ['http://a']\n{more}"
        );
        Config::parse(&text).expect(more).hash()
    };
    assert_eq!(of(""), of("# the same\n[timeouts]\nconnect = '5000ms'\n"));
    assert_ne!(of(""), of("[timeouts]\nconnect = '6s'\n"));
    assert!(of("") < 1 << 48);
}

#[test]
fn no_service_is_named_as_something_else_is() {
    let told = |name: &str| {
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:1'\nservice = '{name}'\nconnect = ['127.0.0.1:2']\n[service.'{name}']\n\
             instances = ['http://127.0.0.1:2']"
        );
        Config::parse(&text).map(|_| ()).map_err(|error| error.to_string())
    };
    for name in ["connect:127.0.0.1:2", "connect:", "", "-"] {
        let words = format!("invalid service name \"{name}\"");
        assert!(told(name).is_err_and(|told| told.contains(&words)), "{name}");
    }
    assert_eq!(["a:b", "connect", "--"].map(told), [const { Ok(()) }; 3]);
}

#[test]
fn a_page_has_one_hint_for_each_host_and_one_for_all() {
    let told = |first: &str, second: &str| {
        let hint = |keys: &str| format!("[[hint]]\n{keys}\nlink = ['<x>; rel=preload']\n");
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n[service.a]\ninstances = ['http://a']\n{}{}",
            hint(first),
            hint(second)
        );
        Config::parse(&text).map(|_| ()).map_err(|error| error.to_string())
    };
    let same = told("path = '/'", "path = '/'").expect_err("two of one page");
    assert!(same.ends_with("two [[hint]] are for the page \"/\": put their links into one"), "{same}");
    let same = told("path = '/'\nhost = 'A.test'", "path = '/'\nhost = 'a.test'").expect_err("one host");
    assert!(same.contains(" of host \"a.test\": "), "{same}");
    for (first, second) in [
        ("path = '/'", "path = '/a'"),
        ("path = '/'", "path = '/'\nhost = 'a.test'"),
        ("path = '/'\nhost = 'b.test'", "path = '/'\nhost = 'a.test'"),
    ] {
        assert_eq!(told(first, second), Ok(()), "{first} {second}");
    }
}

#[test]
fn instances_have_a_scheme_a_host_and_a_port() {
    for (text, known) in [
        ("http://a", "http://a:80"),
        ("h2c://10.0.0.1:8080", "h2c://10.0.0.1:8080"),
        ("https://a.test/", "https://a.test:443"),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ("http://[::1]", "http://[::1]:80"),
        ("h1s://a", "h1s://a:443"),
        ("h2://a:1", "h2://a:1"),
        ("h3://a", "h3://a:443"),
    ] {
        assert_eq!(instance(text).as_deref(), Ok(known));
    }
    for text in [
        "a:80",
        "ftp://a",
        "http://",
        "http://a:0",
        "http://a:x",
        "http://a:99999",
        "http://a/b",
        "http://u@a",
        "http://[::1",
        "http://[::1]x",
        "http://:80",
    ] {
        assert!(instance(text).is_err_and(|why| why.contains("invalid instance URL")), "{text}");
    }
}

#[test]
fn a_file_is_read() {
    let text = r#"
        [[listen]]
        address = "127.0.0.1:15001"
        route = [{ host = "a.test", path = "/api", service = "a" }]

        [service.a]
        instances = ["h2c://10.0.0.1:8080", "https://b"]
        policy = "fixed:4"

        [fields]
        via = "edge"
        client = "forwarded"

        [timeouts]
        response = "5s"
    "#;
    let config = Config::parse(text).expect("it is right");
    assert_eq!(config.service["a"].policy, Policy::Fixed(4));
    assert_eq!(
        (config.timeouts.response, config.timeouts.connect),
        (Duration::from_secs(5), Duration::from_secs(5))
    );
    assert_eq!(config.fields.via.as_deref(), Some("edge"));
    for (wrong, words) in [
        ("listen = 1", "invalid type"),
        ("[servce.a]", "unknown key \"servce\""),
        ("[service.a]\ninstances = ['ftp://a']", "invalid instance URL"),
        ("[service.a]\ninstances = ['http://a']\npolicy = 'fixed:x'", "invalid policy"),
    ] {
        let told = Config::parse(wrong).expect_err("it is wrong").to_string();
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn the_file_of_the_documentation_is_right() {
    let page = include_str!("../../../../docs/sidecar.md");
    let text = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let config = Config::parse(text).expect("it is right");
    assert_eq!((config.listen.len(), config.service.len()), (2, 3));
    assert_eq!(config.timeouts, Timeouts::default(), "the page says what the defaults are");
    let fields = OwnFields { via: config.fields.via.clone(), ..OwnFields::default() };
    assert_eq!(config.fields, fields);
    assert_eq!((config.listen[1].h3, config.listen[1].alt_svc), (true, listen::ALT_SVC));
    assert_eq!((config.trace, config.log.format), (Trace::default(), LogFormat::default()));
    let admin = Admin { address: config.admin.address, ..Admin::default() };
    assert_eq!(config.admin, admin);
}

#[test]
fn policies_are_read_and_written() {
    for text in ["adaptive", "fixed:1", "fixed:1024", "per-request"] {
        assert_eq!(text.parse::<Policy>().map(|policy| policy.to_string()).as_deref(), Ok(text));
    }
    for text in ["fixed:0", "fixed:1025", "fixed", "fixed:x", "adaptive:3", ""] {
        assert!(text.parse::<Policy>().is_err(), "{text}");
    }
}

fn change(config: &mut Config, change: impl Fn(&mut Service)) {
    config.service.values_mut().for_each(change);
}

#[test]
fn a_service_has_one_registry() {
    let of = |keys: &str| -> Result<Option<Registry>, String> {
        let service: Service = toml::from_str(keys).map_err(|error| error.to_string())?;
        Ok(service.registry())
    };
    assert_eq!(of("instances = ['http://a']"), Ok(None));
    assert_eq!(of("file = 'a.json'"), Ok(Some(Registry::File("a.json".to_owned()))));
    let url = "h2c://a:1".parse::<Instance>().expect("one");
    assert_eq!(of("dns = 'h2c://a:1'"), Ok(Some(Registry::Dns { url, refresh: REFRESH })));
    let name = SrvName { name: "_h2c._tcp.a.b".to_owned(), speaks: Speaks::H2c };
    let refresh = Duration::from_secs(3);
    assert_eq!(
        of("dns-srv = '_h2c._tcp.a.b.'\nrefresh = '3s'"),
        Ok(Some(Registry::DnsSrv { name, refresh }))
    );
    assert!(
        matches!(of("consul = { service = 'a' }"), Ok(Some(Registry::Consul(consul))) if consul.address.port == 8_500)
    );
    for name in ["_ftp._tcp.a", "_h2c._udp.a", "_h2c._tcp", "_h2c._tcp.", "_h2c._tcp.a..b", "a"] {
        assert!(
            of(&format!("dns-srv = '{name}'")).is_err_and(|told| told.contains("invalid SRV record name")),
            "{name}"
        );
    }
}

#[test]
fn what_does_not_go_together_is_named() {
    let simple = || {
        let address = "127.0.0.1:1".parse().expect("an address");
        Config::simple(address, vec!["h2c://a".parse().expect("an instance")], Policy::default())
    };
    assert_eq!(simple().check(), Ok(()));
    assert_eq!(Config::default().check(), Err(ConfigError::NoListener));
    let changed = |change: &dyn Fn(&mut Config)| {
        let mut config = simple();
        change(&mut config);
        config.check().expect_err("it is wrong").to_string()
    };
    let wrong: &[(Change<'_>, &str)] = &[
        (&|config| config.fields.via = Some("a b".to_owned()), "invalid via"),
        (&|config| config.listen.push(config.listen[0].clone()), "two listeners have the same address"),
        (
            &|config| {
                let host = |host: &str| Route {
                    host: Some(host.to_owned()),
                    path: None,
                    service: "service".to_owned(),
                };
                config.listen[0].route.extend([host("a"), host("b"), host("A")]);
            },
            "two routes for a and any path",
        ),
        (&|config| config.listen = vec![config.listen[0].clone(); 65], "at most 64"),
        (&|config| change(config, |service| service.file = Some("f".to_owned())), "more than one of"),
        (
            &|config| change(config, |service| service.refresh = Some(Duration::from_secs(5))),
            "it has neither",
        ),
        (
            &|config| {
                change(config, |service| {
                    service.instances.clear();
                    service.dns = "http://a".parse().ok();
                    service.refresh = Some(Duration::from_millis(5));
                });
            },
            "at least 1s",
        ),
        (
            &|config| {
                change(config, |service| {
                    service.instances.clear();
                    service.consul = toml::from_str("service = 'a'\naddress = 'h2c://a'").ok();
                });
            },
            "the Consul agent's",
        ),
        (
            &|config| {
                change(config, |service| {
                    service.instances.clear();
                    service.consul = toml::from_str("service = 'a'\nca = 'a.pem'").ok();
                });
            },
            "requires an https://",
        ),
        (&|config| config.listen[0].service = None, "neither a service nor a route"),
        (&|config| config.listen[0].service = Some("b".to_owned()), "add [service.b]"),
        (&|config| config.listen[0].client_ca = Some("f".to_owned()), "requires tls = true"),
        (
            &|config| config.service.values_mut().for_each(|service| service.instances.clear()),
            "has no instances",
        ),
        (
            &|config| {
                let service = "service".to_owned();
                config.listen[0].route.push(Route { host: None, path: Some("a".to_owned()), service });
            },
            "must begin with /",
        ),
    ];
    for (change, words) in wrong {
        let told = changed(change);
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn the_admin_listener_is_for_this_machine_unless_told() {
    let parse = |admin: &str| {
        let text = format!(
            "listen = [{{ address = '127.0.0.1:1', service = 'a' }}]\n[service.a]\ninstances = ['http://a']\n[admin]\n{admin}"
        );
        Config::parse(&text).map_err(|error| error.to_string())
    };
    for right in [
        "",
        "address = '127.0.0.1:9901'",
        "address = '[::1]:9901'\nwindow = '0s'",
        "address = '0.0.0.0:9901'\npublic = true",
    ] {
        assert!(parse(right).is_ok(), "{right}");
    }
    for (wrong, words) in [
        ("address = '0.0.0.0:9901'", "set public = true in [admin]"),
        ("address = '[::]:9901'", "set public = true"),
        ("address = '10.0.0.1:9901'", "set public = true"),
        ("window = '10m'", "at most 300s"),
        ("adress = '127.0.0.1:1'", "did you mean \"address\"?"),
    ] {
        let told = parse(wrong).expect_err("it is wrong");
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn secrets_are_not_shown_and_nothing_else_is_hidden() {
    let file = |token: &str, key: &str, whose: &str| {
        let text = format!(
            "listen = [{{ address = '127.0.0.1:1', service = 'a' }}]
            [service.a]
            consul = {{ service = 'a', token = '{token}' }}
            identity = {{ cert = 'own.pem', key = '{key}' }}
            rate = {{ per-second = 5, key = '{whose}' }}"
        );
        Config::parse(&text).expect("it is right")
    };
    let config = file("abc123", "own.key", "all");
    let shown = config.shown();
    assert!(shown.contains("token = \"(redacted)\"") && !shown.contains("abc123"), "{shown}");
    for there in ["cert = \"own.pem\"", "key = \"own.key\"", "key = \"all\"", "http://127.0.0.1:8500"] {
        assert!(shown.contains(there), "{there}: {shown}");
    }
    assert!(toml::from_str::<toml::Table>(&shown).is_ok(), "{shown}");
    assert_eq!(config.hash(), file("another", "own.key", "all").hash(), "nobody can guess a secret by it");
    let others = [file("abc123", "other.key", "all"), file("abc123", "own.key", "client")];
    assert!(others.iter().all(|other| other.hash() != config.hash()), "same hash, same configuration");
}

#[test]
fn the_tables_of_observation_say_what_they_take() {
    let wrong = |text: &str| Config::parse(text).expect_err("it is wrong").to_string();
    assert!(wrong("[log]\nformat = 'xml'").contains("expected \"text\" or \"json\""));
    assert!(wrong("[trace]\ncontext = 'make'").contains("expected \"pass\" or \"join\""));
    let defaults = (Log::default(), Admin::default(), Trace::default());
    assert_eq!((defaults.0.format, defaults.0.file), (LogFormat::Text, None));
    assert_eq!((defaults.1.address, defaults.1.window), (None, Duration::from_secs(30)));
    assert_eq!(defaults.2.context, TraceContext::Pass);
}
