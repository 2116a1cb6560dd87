//! What a scenario expands to.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::testing::scenarios;

use super::*;
use crate::scenario::ScenarioError;

fn labels(cells: &[Cell]) -> Vec<String> {
    cells.iter().map(Cell::label).collect()
}

fn scenario(text: &str) -> Scenario {
    Scenario::from_toml(text).unwrap()
}

#[test]
fn rounds_alternate_their_direction() {
    let plan = scenario("[matrix]\nprotocols = ['h1', 'h2c']\nconnections = [1, 4]").plan();
    assert_eq!(labels(&plan), ["h1", "h2c × 1", "h2c × 4", "h2c × 4", "h2c × 1", "h1"]);
    assert_eq!(plan[0].index, plan[5].index);
    assert_ne!(plan[0].seed, plan[5].seed, "each repetition has a seed of its own");
    assert!(
        plan[..3].iter().all(|cell| cell.request_seed == plan[0].request_seed),
        "all carry the same load"
    );
    assert_ne!(plan[0].request_seed, plan[5].request_seed);
}

#[test]
fn links_make_groups_and_protocols_do_not() {
    let plan = scenario("repetitions = 1\n[link]\nloss = ['0%', '3%']").plan();
    assert_eq!(plan.iter().map(|cell| cell.group).collect::<Vec<_>>(), [0, 0, 1, 1]);
    assert_eq!(plan[0].seed, plan[2].seed, "the same cell on another link meets the same draws");
}

#[test]
fn a_protocol_named_twice_is_an_a_a_run() {
    let plan = scenario("repetitions = 1\n[matrix]\nprotocols = ['h1', 'h1']").plan();
    assert_eq!(labels(&plan), ["h1", "h1#2"]);
    assert_ne!(plan[0].seed, plan[1].seed);
}

#[test]
fn live_servers_share_a_group_and_have_no_link() {
    let live = "repetitions = 1\n[[matrix.live]]\nurl = 'http://127.0.0.1:1/a'\npath = '/a'\nprotocols = 'h1'\n\
                [[matrix.live]]\nurl = 'http://127.0.0.1:2/'\npath = '/'\nprotocols = 'h1,h2c'";
    let plan = scenario(live).plan();
    assert_eq!(labels(&plan), ["h1", "h1", "h2c × 1"]);
    assert_eq!(plan[0].work.path, "/a");
    assert!(plan.iter().all(|cell| cell.group == 0 && cell.link.is_none()));
}

#[test]
fn no_loss_appears_once_whatever_the_models() {
    let plan = scenario(
        "repetitions = 1\n[link]\nloss = ['0%', '3%']\nloss-model = ['bernoulli', 'gilbert-elliott']",
    )
    .plan();
    let groups = plan.iter().map(|cell| cell.group).max().unwrap() + 1;
    assert_eq!(groups, 3);
}

#[test]
fn one_direction_can_differ() {
    let plan =
        scenario("repetitions = 1\n[link]\nloss = '3%'\ndelay = '10ms'\n[link.uplink]\nloss = '0%'").plan();
    let link = plan[0].link.as_ref().unwrap();
    assert_eq!(link.uplink.loss.share().to_string(), "0%");
    assert_eq!(link.downlink.loss.share().to_string(), "3%");
    assert_eq!(link.uplink.delay, link.downlink.delay);
}

#[test]
fn a_typo_is_refused_with_its_line() {
    let error = Scenario::from_toml("[work]\nrate = 10\nmesure = '3s'").unwrap_err().to_string();
    assert!(error.contains("mesure") && error.contains("line 3"), "{error}");
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    for (text, field) in [
        ("repetitions = 0", "repetitions"),
        ("[work]\nrate = 20000000", "rate"),
        ("[work]\nmeasure = '1ms'", "measure"),
        ("[work]\npath = 'x'", "path"),
        ("[work]\nmethod = 'G T'", "method"),
        ("[work]\nheaders = [['a', \"b\\r\\nc\"]]", "headers"),
        ("[link]\ndelay = '61s'", "delay"),
        ("[matrix]\nconnections = 20001", "connections"),
        ("[matrix]\nwarm-pool = 600", "warm-pool"),
    ] {
        match Scenario::from_toml(text).unwrap_err() {
            ScenarioError::Range { field: named, .. } | ScenarioError::Malformed { field: named, .. } => {
                assert_eq!(named, field);
            }
            why => panic!("{text}: {why}"),
        }
    }
}

#[test]
fn a_scenario_survives_its_own_file() {
    let scenario = scenario(
        "repetitions = 3\n[link]\nloss = ['0%', '3%']\n[link.uplink]\ndelay = '5ms'\n[work]\nconcurrency = 8",
    );
    assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario);
}

/// Groups of a plan, whether or not its scenario may be asked for.
fn groups(text: &str) -> u32 {
    Scenario::of_a_run(text).unwrap().plan().iter().map(|cell| cell.group).max().unwrap() + 1
}

/// The losses of a plan of one cell per group: model of the uplink, model of the downlink.
fn models(text: &str) -> Vec<(String, String)> {
    let cells = scenario(&format!("repetitions = 1\n{text}\n[matrix]\nprotocols = 'h1'")).plan();
    let links = cells.into_iter().map(|cell| cell.link.unwrap());
    links.map(|link| (link.uplink.loss.name().to_owned(), link.downlink.loss.name().to_owned())).collect()
}

#[test]
fn every_loss_model_appears_where_either_direction_loses() {
    let both = "loss-model = ['bernoulli', 'gilbert-elliott']";
    let named = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(up, down)| ((*up).to_owned(), (*down).to_owned())).collect()
    };
    assert_eq!(models(&format!("[link]\nloss = '0%'\n{both}")), named(&[("none", "none")]));
    assert_eq!(
        models(&format!("[link]\nloss = '0%'\n{both}\n[link.uplink]\nloss = '3%'")),
        named(&[("bernoulli", "none"), ("gilbert-elliott", "none")])
    );
    let without = "[link.uplink]\nloss = '0%'\n[link.downlink]\nloss = '0%'";
    assert_eq!(models(&format!("[link]\nloss = '3%'\n{both}\n{without}")), named(&[("none", "none")]));
}

#[test]
fn an_axis_without_effect_multiplies_nothing() {
    for (with, without, effect, none) in [
        ("[work]\nrate = [10, 20]", "[work]\nrate = [10, 20]\nconcurrency = 8", 2, 1),
        ("[link]\nqueue = ['64k', '1M']\nbandwidth = '10mbit'", "[link]\nqueue = ['64k', '1M']", 2, 1),
        (
            "[link]\ndelay = ['1ms', '2ms']\n[link.uplink]\ndelay = '5ms'",
            "[link]\ndelay = ['1ms', '2ms']\n[link.uplink]\ndelay = '5ms'\n[link.downlink]\ndelay = '5ms'",
            2,
            1,
        ),
        ("seed = [1, 2]", "seed = [1, 1]", 2, 1),
    ] {
        assert_eq!((groups(with), groups(without)), (effect, none), "{without}");
    }
    let live =
        "[link]\nloss = ['0%', '3%']\n[[matrix.live]]\nurl = 'http://a/'\npath = '/'\nprotocols = 'h1'";
    assert_eq!(groups(live), 1, "a live server has no emulated link");
}

#[test]
fn limits_and_dial_policies_are_compared_within_a_group_and_servers_are_not() {
    let text = "repetitions = 1\n[matrix]\nprotocols = 'h1s,h2'\norigin = 'origin,nginx'\n\
                max-requests-per-connection = [100000, 1000]\ndial-policy = 'single-flight,stampede'";
    let plan = scenario(text).plan();
    let of = |group: u32| plan.iter().filter(move |cell| cell.group == group);
    assert_eq!(
        (of(0).count(), of(1).count(), plan.len()),
        (6, 6, 12),
        "h1s dials as it does, in both limits"
    );
    let limits: Vec<_> = of(0).map(|cell| cell.max_requests_per_connection.unwrap()).collect();
    assert_eq!(limits, [100_000, 1_000, 100_000, 1_000, 100_000, 1_000]);
    assert!(of(0).filter(|cell| cell.dial == DialPolicy::Stampede).all(|c| c.protocol == Protocol::H2));
}

#[test]
fn sidecars_stand_where_the_topology_has_them_and_are_groups_of_their_own() {
    let matrix = "origin = ['origin', 'nginx']\nsidecar = ['envoy', 'haproxy']\nprotocols = 'h1'\n\
                  topology = ['direct', 'sidecar', 'two-sidecars']";
    let plan = scenario(&format!("repetitions = 1\n[matrix]\n{matrix}")).plan();
    let rendered: Vec<(String, Topology)> =
        plan.iter().map(|cell| (cell.parties(), cell.topology())).collect();
    let expected = [
        ("origin", Topology::Direct),
        ("nginx", Topology::Direct),
        ("envoy sidecar, origin", Topology::Sidecar),
        ("envoy sidecar, nginx", Topology::Sidecar),
        ("haproxy sidecar, origin", Topology::Sidecar),
        ("haproxy sidecar, nginx", Topology::Sidecar),
        ("two envoy sidecars", Topology::TwoSidecars),
        ("two haproxy sidecars", Topology::TwoSidecars),
    ];
    assert_eq!(rendered, expected.map(|(parties, topology)| (parties.to_owned(), topology)));
    assert!(plan.iter().enumerate().all(|(k, cell)| cell.group == k as u32));
}

#[test]
fn a_sidecar_is_asked_in_http1_whatever_the_link_carries() {
    let matrix = "topology = 'direct,two-sidecars'\nsidecar = 'envoy'\nprotocols = 'h2'\n\
                  connections = 4\nstreams = [10, 20]\nwarm-pool = 8\nmax-connections = 9";
    let plan = scenario(&format!("repetitions = 1\n[matrix]\n{matrix}")).plan();
    // Streams are a setting of our client, which is not on the link behind a sidecar.
    assert_eq!(plan.iter().map(|cell| cell.group).collect::<Vec<_>>(), [0, 0, 1]);
    let generated = plan[2].as_generated();
    assert_eq!((plan[2].protocol, plan[2].connections), (Protocol::H2, 4));
    assert_eq!((generated.protocol, generated.streams), (Protocol::H1, 1));
    assert_eq!((generated.connections, generated.max_connections), (8, 9));
    assert_eq!(plan[0].as_generated(), plan[0]);
}

#[test]
fn a_limit_of_one_server_leaves_those_beside_it_alone() {
    let text = "repetitions = 1\n[matrix]\nprotocols = 'h1s,h2,h2'\norigin = 'nginx-proxy,origin'\n\
                max-requests-per-connection = [100000, 1000]\nlimited = 'nginx-proxy'";
    let plan = scenario(text).plan();
    let limits = |group: u32| -> Vec<Option<u32>> {
        plan.iter().filter(|cell| cell.group == group).map(|cell| cell.max_requests_per_connection).collect()
    };
    assert_eq!(limits(0), [Some(100_000), Some(1_000)].repeat(3));
    assert_eq!(limits(1), [None; 3], "once in each protocol, and the A/A run stays one");
    let all = scenario(&text.replace("limited = 'nginx-proxy'", "limited = 'nginx-proxy,origin'")).plan();
    assert_eq!(all, scenario(&text.replace("limited = 'nginx-proxy'", "")).plan());
}

#[test]
fn a_file_and_a_cell_of_a_time_without_these_keys_still_read() {
    let old = Scenario::of_a_run("[matrix]\nmax-requests-per-connection = 1000").unwrap();
    assert_eq!(old.plan()[0].max_requests_per_connection, Some(1000));
    let cell = scenario("repetitions = 1").plan().remove(0);
    let json = serde_json::to_string(&cell).unwrap();
    assert!(!json.contains("max_requests_per_connection") && !json.contains("policy"), "{json}");
    assert_eq!(serde_json::from_str::<Cell>(&json).unwrap(), cell);
}

#[test]
fn a_ramp_a_mix_and_a_policy_reach_every_cell() {
    let text = "repetitions = 1\n[client]\nreconnect-every = 10\n[work]\nramp = '10..20/2s'\ntemplate = true\n\
                [[work.mix]]\nweight = 2\npath = '/a'\n[[work.mix]]\nweight = 1\npath = '/{{n}}'\nmethod = 'PUT'";
    for cell in scenario(text).plan() {
        let over = std::time::Duration::from_secs(2);
        assert_eq!(cell.work.arrival, Arrival::Ramp { from: 10.0, to: 20.0, over, steps: 0 });
        assert_eq!((cell.work.mix.len(), cell.work.template), (2, true));
        assert_eq!(cell.policy.reconnect_every, Some(10));
    }
    assert!(Scenario::from_toml("[[work.mix]]\nweight = 0\npath = '/'").is_err());
    assert!(Scenario::from_toml("[[work.mix]]\nweight = 1\npath = 'x'").is_err());
}

#[test]
fn a_value_given_twice_is_measured_once_unless_it_is_a_protocol() {
    // Files with such values are refused; runs of earlier versions are read.
    let text = "repetitions = 1\n[matrix]\nprotocols = ['h2c', 'h2c']\nconnections = [4, 4]";
    let plan = Scenario::of_a_run(text).unwrap().plan();
    assert_eq!(labels(&plan), ["h2c × 4", "h2c#2 × 4"]);
}

#[test]
fn a_url_given_twice_is_an_a_a_run() {
    let live = "[[matrix.live]]\nurl = 'http://a/'\npath = '/'\nprotocols = 'h1'\n";
    let plan = scenario(&format!("repetitions = 1\n{live}{live}")).plan();
    assert_eq!(labels(&plan), ["h1", "h1#2"]);
    assert_ne!(plan[0].seed, plan[1].seed);
}

#[test]
fn live_servers_meet_different_draws_and_servers_behind_the_link_the_same() {
    let live = |url: &str| format!("[[matrix.live]]\nurl = '{url}'\npath = '/'\nprotocols = 'h1'\n");
    let plan = scenario(&format!("repetitions = 1\n{}{}", live("http://a/"), live("http://b/"))).plan();
    assert_ne!(plan[0].seed, plan[1].seed);
    let plan = scenario("repetitions = 1\n[matrix]\norigin = ['origin', 'nginx']\nprotocols = 'h1'").plan();
    assert_eq!(plan[0].seed, plan[1].seed);
}

#[test]
fn the_seeds_of_recorded_runs_still_hold() {
    // As in results/2026-11-21-2-cpus/compare.json: changing the key of a variant makes recorded runs unrepeatable.
    let plan = scenario("[link]\nloss = ['0%', '3%']\n[matrix]\nconnections = [1, 4, 16]").plan();
    let firsts: Vec<u64> = plan[..8].iter().map(|cell| cell.seed).collect();
    let recorded = [8_336_220_696_473_279_392, 5_591_468_111_343_175_681];
    assert_eq!((&firsts[..2], &firsts[4..6]), (&recorded[..], &recorded[..]));
    assert_eq!(plan[8].seed, 12_354_959_734_631_810_893, "the second repetition of h2c × 16");
}

proptest! {
    #[test]
    fn cells_of_a_group_have_distinct_labels_and_distinct_seeds(scenario in scenarios()) {
        let plan = scenario.plan();
        let labels = crate::scenario::labels(&plan);
        let named: BTreeSet<(u32, &str)> = plan.iter().map(|cell| (cell.group, labels[&cell.index].as_str())).collect();
        let seeds: BTreeSet<(u32, u64)> = plan.iter().map(|cell| (cell.group, cell.seed)).collect();
        prop_assert_eq!((named.len(), seeds.len()), (plan.len(), plan.len()));
    }
}

const ARMS: &str = "repetitions = 1\n[link]\nloss = ['0%', '3%']\n[matrix]\nconnections = [1, 4]\n\
                    [[matrix.arms]]\nprotocols = ['h1', 'h2c']\n\
                    [[matrix.arms]]\ntopology = 'two-sidecars'\nsidecar = 'envoy'\nprotocols = ['h1', 'h2c']\n\
                    [[matrix.arms]]\ntopology = 'two-sidecars'\nsidecar = 'envoy'\nprotocols = 'h2'\nconnections = 1";

#[test]
fn arms_are_matrices_beside_each_other_and_their_cells_of_a_condition_stand_together() {
    let plan = scenario(ARMS).plan();
    let rendered: Vec<(u32, String, String)> =
        plan.iter().map(|cell| (cell.group, cell.parties(), cell.label())).collect();
    let (direct, envoys) = (["h1", "h2c × 1", "h2c × 4"], ["h1", "h2c × 1", "h2c × 4", "h2 × 1"]);
    let group = |number, parties: &str, labels: &[&str]| -> Vec<(u32, String, String)> {
        labels.iter().map(|label| (number, parties.to_owned(), (*label).to_owned())).collect()
    };
    let condition =
        |first| [group(first, "origin", &direct), group(first + 1, "two envoy sidecars", &envoys)].concat();
    assert_eq!(rendered, [condition(0), condition(2)].concat());
    let losses: Vec<f64> = plan.iter().map(Cell::loss).collect();
    assert_eq!(losses, [vec![0.0; 7], vec![0.03; 7]].concat());
}

#[test]
fn a_scenario_with_arms_survives_its_own_file_and_knows_its_seeds() {
    let scenario = scenario(&ARMS.replace("repetitions = 1", "repetitions = 1\nseed = [3, 4]\nstudy = true"));
    assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario);
    assert_eq!(
        [0, 3, 4, 7, 8].map(|group| scenario.seed_of(group)),
        [Some(3), Some(3), Some(4), Some(4), None]
    );
}

#[test]
fn an_arm_is_refused_for_what_a_matrix_would_be() {
    for arm in
        ["{ topology = 'sidecar' }", "{ sidecar = 'envoy' }", "{ connections = 20001 }", "{ shape = 'bare' }"]
    {
        assert!(Scenario::from_toml(&format!("[matrix]\narms = [{arm}]")).is_err(), "{arm}");
    }
}
