//! A part of the study of sidecars, with real proxies: `scenarios/sidecar-chaos.toml`, shortened.
//!
//! The tests check who took part, how many connections there were over the link, and what was dropped; never how fast
//! it was.

use std::fs;

use serde_json::Value;

use crate::support::{binary, folder, need, run_program, workspace};

/// RTT 10 ms without loss and with 3 %: the direct way, and the sidecars of three programs, each repetition of 600 ms.
const SMALL: &str = r#"
[quick]
repetitions = 1
work.measure = "600ms"
work.warmup = "200ms"
work.drain = "400ms"
work.rate = 300
link.delay = "5ms"
link.loss = ["0%", "3%"]
matrix.arms = [
    { topology = "direct", protocols = ["h1", "h2c"] },
    { topology = "sidecar", sidecar = "nginx-proxy", protocols = ["h1", "h2c"] },
    { topology = "two-sidecars", sidecar = "haproxy", protocols = ["h1", "h2c"] },
    { topology = "two-sidecars", sidecar = "envoy", protocols = ["h1", "h2c"], connections = 2 },
]
"#;

#[test]
fn real_proxies_make_a_small_study_with_its_tables_and_pictures() {
    if ["nginx", "haproxy", "envoy"].into_iter().any(|program| need(program).is_none()) {
        return;
    }
    let shipped = fs::read_to_string(workspace().join("scenarios/sidecar-chaos.toml")).unwrap();
    let (whole, _) = shipped.split_once("[quick]").expect("the shipped file has a short run");
    let folder = folder();
    fs::write(folder.path().join("small.toml"), format!("{whole}{SMALL}")).unwrap();
    let finished =
        run_program(&binary(), folder.path(), &["run", "small.toml", "--quick", "--json", "-o", "page.html"]);
    let document = finished.json();
    let cells = document["cells"].as_array().expect("cells are a list");
    assert_eq!(cells.len(), 2 * 4 * 2, "{}", finished.transcript());

    for cell in cells {
        let (sidecar, protocol) = (cell["sidecar"]["name"].as_str(), cell["protocol"].as_str());
        if cell["target"] == "origin" && cell["topology"] == "sidecar" && protocol == Some("h2c") {
            assert_eq!(cell["state"], "unsupported", "{cell:#}");
            continue;
        }
        // A machine may be so busy that no request of an open loop is answered in time.
        let is_measured = cell["state"] == "ok";
        assert!(!is_measured || cell["requests"]["succeeded"].as_u64() > Some(0), "{cell:#}");
        let is_lossy = cell["link"]["loss"].as_f64() > Some(0.0);
        let dropped =
            cell["link"]["dropped_up"].as_u64().unwrap() + cell["link"]["dropped_down"].as_u64().unwrap();
        assert_eq!(dropped > 0, is_lossy, "{}", cell["link"]);
        match (sidecar, protocol, cell["hop_connections"].as_u64()) {
            (None, _, held) => assert_eq!(held, None),
            // A worker gets a connection with its first request; a lost SYN may cause one more, never used.
            (Some("envoy"), Some("h2c"), held) if !is_lossy => {
                assert_eq!(held, Some(2), "one for each worker");
            }
            (Some(_), Some("h2c"), held) => assert!((1..=4).contains(&held.unwrap()), "{held:?}"),
            (Some(_), _, held) => assert!(held >= Some(2), "HTTP/1.1 has one for each in flight: {held:?}"),
        }
    }
    assert_study(&document["study"], cells);
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(
        page.contains("two haproxys, h2c × 1") && page.contains("Requests one by one: RTT 10ms, 3% loss")
    );
}

/// Fails unless the study has every configuration under both conditions, and states for each how many connections are
/// needed, or, for a proxy that decides itself, how many it opened.
#[track_caller]
fn assert_study(study: &Value, cells: &[Value]) {
    let names = |list: &str| -> Vec<String> {
        let name = |one: &Value| one["name"].as_str().unwrap().to_owned();
        study[list].as_array().unwrap().iter().map(name).collect()
    };
    assert_eq!(names("conditions"), ["RTT 10ms, 0% loss", "RTT 10ms, 3% loss"]);
    let configurations = [
        "direct, h1",
        "direct, h2c × 1",
        "nginx-proxy sidecar, h1",
        "nginx-proxy sidecar, h2c × 1",
        "two haproxys, h1",
        "two haproxys, h2c × 1",
        "two envoys, h1",
        "two envoys, h2c × 2",
    ];
    assert_eq!(names("configurations"), configurations);
    assert_eq!(study["conditions"][1]["predicted_connections"], 1, "300 requests/s are few");
    let needed = study["needed"].as_array().unwrap();
    assert_eq!(needed.len(), 4 * 2, "four parties, two conditions");
    let of = |parties: &str, condition: usize| -> Vec<&Value> {
        let is_meant = |one: &&Value| one["parties"] == parties && one["condition"] == condition;
        needed.iter().filter(is_meant).collect()
    };
    // HAProxy has no option for the number: without loss, it is the number that it opened, if that is the number of the
    // cell.
    let is_clean = |cell: &&Value| cell["link"]["loss"].as_f64() == Some(0.0);
    let is_haproxy = |cell: &&Value| cell["sidecar"]["name"] == "haproxy" && cell["protocol"] == "h2c";
    let cell = cells.iter().filter(is_clean).find(is_haproxy).expect("it was asked for");
    let haproxy = of("two haproxy sidecars", 0);
    assert_eq!(haproxy.len(), 1, "{needed:#?}");
    assert_eq!(haproxy[0]["protocol"], "h2c");
    // On a machine that is busy with other tests a cell may be invalid: then the study states nothing about it.
    let is_said = haproxy[0]["held"].is_number();
    let is_sound = |cell: &&Value| cell["state"] != "invalid";
    let of_haproxys = cells.iter().filter(is_clean).filter(|cell| cell["sidecar"]["name"] == "haproxy");
    assert!(is_said || !of_haproxys.clone().all(|cell| is_sound(&cell)), "{haproxy:#?}");
    if is_said {
        assert_eq!(
            haproxy[0]["held"].as_f64(),
            cell["hop_connections"].as_f64(),
            "one repetition: {haproxy:#?}"
        );
        assert!(haproxy[0]["held"].as_f64() >= Some(1.0), "{haproxy:#?}");
    }
    let is_null = |key: &&str| haproxy[0][*key].is_null();
    assert!(["connections", "at_most", "more_than"].iter().all(is_null), "{haproxy:#?}");
    // The client without a sidecar is given a number, so none is measured.
    for condition in [0, 1] {
        let direct = of("origin", condition);
        assert!(direct.len() == 1 && direct[0]["held"].is_null(), "{direct:#?}");
    }
    let configurations = study["configurations"].as_array().unwrap();
    for one in needed {
        assert!(
            configurations.iter().any(|configuration| configuration["parties"] == one["parties"]),
            "{one:#} is of no way"
        );
        // HAProxy decides itself; Envoy was given its number, although there was only one.
        let has = |key: &str| !one[key].is_null();
        match one["parties"].as_str().unwrap() {
            "two haproxy sidecars" => {
                assert!(!has("connections") && !has("at_most") && !has("more_than"), "{one:#}");
            }
            "two envoy sidecars" => assert!(!has("held"), "{one:#}"),
            _ => {}
        }
    }
}
