//! Tests of the tables that protect services.

use std::time::Duration;

use super::*;

const BEGINNING: &str = "[[listen]]\naddress = \"127.0.0.1:1\"\nservice = \"a\"\n";

fn parse(more: &str) -> Result<Config, String> {
    let instances = "instances = [\"http://a\", \"http://b\"]\n";
    let text = format!("{BEGINNING}[service.a]\n{instances}{more}\n");
    Config::parse(&text).map_err(|error| error.to_string())
}

#[test]
fn the_tables_are_read() {
    let config = parse(
        "health = { path = \"/healthz\", interval = \"2s\" }\nrate = { per-second = 5, key = \"client\" }\n\
         [service.a.timeouts]\nresponse = \"1s\"\n[service.a.limits]\nopen = 7\nwait = \"250ms\"\n\
         [service.a.outlier]\nconsecutive = 2\n[retry]\nattempts = 1\non = [\"connect\", \"503\"]\n",
    )
    .expect("it is right");
    let service = &config.service["a"];
    let health = service.health.as_ref().expect("it has one");
    assert_eq!((health.interval, health.timeout), (Duration::from_secs(2), Duration::from_secs(1)));
    assert_eq!((health.healthy, health.unhealthy), (2, 3));
    assert_eq!(
        service.rate.map(|rate| (rate.per_second, rate.burst, rate.key)),
        Some((5, None, RateKey::Client))
    );
    let timeouts = config.timeouts.of(&service.timeouts);
    assert_eq!((timeouts.response, timeouts.stream), (Duration::from_secs(1), Duration::from_secs(300)));
    assert_eq!(service.limits.bounds().wait, Some(Duration::from_millis(250)));
    assert_eq!(service.outlier.rules().consecutive, 2);
    assert_eq!(config.retry.on, [RetryOn::Connect, RetryOn::Status(503)]);
    let again = toml::to_string(&config).expect("it can be written");
    assert_eq!(Config::parse(&again), Ok(config));
    let memory = format!("memory = \"128M\"\n{BEGINNING}[service.a]\ninstances = [\"http://a\"]\n");
    assert_eq!(Config::parse(&memory).expect("it is right").memory, Some(Size(128 << 20)));
}

#[test]
fn what_makes_no_sense_is_named_with_its_place() {
    for (more, words) in [
        ("[retry]\nattempts = 11", "[retry]: attempts must be from 0 to 10"),
        ("[service.a.retry]\nbudget = 101", "[service.a.retry]: budget is a percentage"),
        ("[retry]\non = [\"404\"]", "invalid retry condition \"404\": expected connect, reset"),
        ("[service.a.limits]\nopen = 0", "[service.a.limits]: open must be at least 1"),
        ("[service.a.limits]\nwait = \"0s\"", "wait must be greater than 0"),
        ("rate = { per-second = 0 }", "[service.a.rate]: per-second and burst must be at least 1"),
        (
            "[service.a.outlier]\nshare = 101",
            "[service.a.outlier]: failures, share and panic are percentages",
        ),
        ("health = { path = \"healthz\" }", "[service.a.health]: path must begin with /"),
        ("health = { path = \"/\", interval = \"1ms\" }", "interval must be at least 100ms"),
        ("health = { path = \"/\", healthy = 0 }", "healthy must be at least 1"),
        ("health = { interval = \"1s\" }", "missing key \"path\""),
    ] {
        let told = parse(more).expect_err(more);
        assert!(told.contains(words), "{more}: {told}");
    }
    let memory = format!("memory = \"1M\"\n{BEGINNING}[service.a]\ninstances = [\"http://a\"]\n");
    let told = Config::parse(&memory).expect_err("too little").to_string();
    assert!(told.contains("at least 64 MiB"), "{told}");
}

#[test]
fn the_documentation_says_what_the_defaults_are() {
    let page = include_str!("../../../../docs/sidecar.md");
    let text = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let config = Config::parse(text).expect("it is right");
    let users = &config.service["users"];
    assert_eq!((&config.retry, &users.outlier), (&Retry::default(), &Outlier::default()));
    let defaults = parse("health = { path = \"/healthz\" }").expect("it is right");
    assert_eq!(users.health, defaults.service["a"].health);
}
