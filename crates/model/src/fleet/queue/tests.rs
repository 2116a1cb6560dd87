//! Units of small plans, and who can measure them. That all cells of each verdict are in one unit is tested in `analysis`.

use std::time::Duration;

use super::*;
use crate::fleet::messages::{decode, decode_printable, encode};
use crate::fleet::{AGENT_VERSION, AgentLimits, MessageError};
use crate::scenario::Axis;

fn plan(text: &str) -> Vec<Cell> {
    Scenario::from_toml(text).unwrap().plan()
}

/// Two links, each with HTTP/1.1 and HTTP/2 to two servers under two congestion controls; two repetitions.
const STUDY: &str = "repetitions = 2\n[link]\ndelay = ['5ms', '20ms']\ncongestion = ['cubic', 'bbr']\n\
                     [matrix]\norigin = ['origin', 'nginx']\nprotocols = ['h1', 'h2c']";

fn card(name: &str) -> AgentCard {
    AgentCard {
        name: name.parse().unwrap(),
        version: "0.1.0".to_owned(),
        agent: 7,
        machine: "Linux".to_owned(),
        host: HostId::default(),
        kernel: "Linux 6.12".to_owned(),
        cpu_model: "EPYC".to_owned(),
        cpus: 8,
        memory: 1 << 34,
        isolation: Some("full".to_owned()),
        realtime: true,
        programs: vec![("nginx".to_owned(), "1.26".to_owned())],
        congestion: vec!["cubic".to_owned(), "bbr".to_owned()],
        limits: AgentLimits::default(),
        allow: vec!["lab".to_owned()],
        busy: None,
        serves_s: 5,
    }
}

#[test]
fn cells_under_one_link_are_a_unit_with_all_their_repetitions_in_the_order_of_the_plan() {
    let plan = plan(STUDY);
    let units = units(&plan);
    assert_eq!(units.iter().map(|unit| unit.number).collect::<Vec<_>>(), [0, 1]);
    for unit in &units {
        // 2 servers × 2 congestion controls × 2 protocols, forwards and then backwards.
        assert_eq!(unit.cells.len(), 16);
        let (first, second) = unit.cells.split_at(8);
        assert!(first.iter().all(|(_, repetition)| *repetition == 0));
        let indices = |(index, _): &(u32, u32)| *index;
        assert!(second.iter().rev().map(indices).eq(first.iter().map(indices)));
    }
    let mut all: Vec<(u32, u32)> = units.iter().flat_map(|unit| unit.cells.clone()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), plan.len(), "each repetition is in one unit, once");
}

#[test]
fn other_work_and_another_seed_are_other_units() {
    let count = |text: &str| units(&plan(text)).len();
    assert_eq!(count("[work]\nrate = [100, 200]\n[link]\ndelay = '5ms'"), 2);
    assert_eq!(count("seed = [1, 2]\n[link]\ndelay = '5ms'"), 2);
    let one_at_a_time = "[link]\ndelay = '5ms'\n[[vary]]\nclient.stream-window = [65535, 1048576]\n\
                         matrix.protocols = 'h2c'";
    assert_eq!(count(one_at_a_time), 1, "settings of an engine are compared with the baseline");
    let bulk = "[work]\nbulk = true\nmethod = 'GET'\nbody-bytes = 0\npath = '/bytes/1G'\nconcurrency = 1\n\
                drain = '0s'\n[link]\nloopback = true\n[matrix]\nprotocols = 'h2c'\n[[vary]]\nwork.concurrency = 10";
    assert_eq!(count(bulk), 1, "in bulk work they are set side by side");
}

#[test]
fn live_servers_that_are_asked_for_different_paths_are_compared() {
    let live = "[matrix]\nprotocols = 'h1'\n\
                [[matrix.live]]\nurl = 'http://a/x'\npath = '/x'\nprotocols = 'h1'\n\
                [[matrix.live]]\nurl = 'http://b/y'\npath = '/y'\nprotocols = 'h1'";
    let units = units(&plan(live));
    assert_eq!(units.len(), 1);
    assert_eq!(units[0].needs, Needs::default(), "no lab, no program");
}

#[test]
fn an_agent_needs_the_programs_the_congestion_controls_and_the_right_to_a_lab() {
    let units_of_study = units(&plan(STUDY));
    let needs = &units_of_study[0].needs;
    assert_eq!(needs.programs.iter().collect::<Vec<_>>(), ["nginx"]);
    assert_eq!(needs.congestion.iter().collect::<Vec<_>>(), ["bbr", "cubic"]);
    assert_eq!(needs.met_by(&card("a")), Ok(()));
    for (lacks, agent) in [
        ("nginx is not installed", AgentCard { programs: Vec::new(), ..card("a") }),
        ("no congestion control bbr", AgentCard { congestion: vec!["cubic".to_owned()], ..card("a") }),
        ("cannot make network namespaces", AgentCard { isolation: None, ..card("a") }),
        ("--allow has no `lab`", AgentCard { allow: vec!["serve".to_owned()], ..card("a") }),
    ] {
        let why = needs.met_by(&agent).unwrap_err();
        assert!(why.contains(lacks), "{why}");
    }
    let sidecar =
        "[link]\ndelay = '5ms'\n[matrix]\norigin = 'origin'\ntopology = 'sidecar'\nsidecar = 'envoy'";
    assert_eq!(units(&plan(sidecar))[0].needs.programs.iter().collect::<Vec<_>>(), ["envoy"]);
}

#[test]
fn a_machine_does_without_as_few_programs_as_can_be() {
    let programs = BTreeSet::from(["envoy", "nginx"].map(str::to_owned));
    let needs = Needs { programs, lab: true, ..Needs::default() };
    let with = |name: &str, programs: &[&str]| AgentCard {
        programs: programs.iter().map(|&program| (program.to_owned(), "1".to_owned())).collect(),
        ..card(name)
    };
    let missing =
        |agents: &[AgentCard]| needs.missing_programs(agents).into_iter().collect::<Vec<String>>().join(",");
    let all = with("c", &["nginx", "envoy"]);
    assert_eq!(missing(&[with("a", &[]), all.clone()]), "");
    assert_eq!(missing(&[with("a", &[])]), "envoy,nginx");
    assert_eq!(missing(&[with("a", &[]), with("b", &["nginx"])]), "envoy");
    assert_eq!(missing(&[with("a", &["envoy"]), with("b", &["nginx"])]), "nginx", "of equals the first");
    let without_lab = AgentCard { allow: Vec::new(), ..all };
    assert_eq!(missing(&[without_lab.clone(), with("b", &["nginx"])]), "envoy", "it cannot measure");
    assert_eq!(missing(&[without_lab]), "", "programs are not what is in the way");
}

#[test]
fn an_agent_whose_time_is_shorter_than_a_cell_cannot_measure_it() {
    let units = units(&plan(STUDY));
    let needs = &units[0].needs;
    let time = needs.demand.expect("it is behind the link").time;
    assert!(time > Duration::ZERO);
    assert_eq!(needs.met_by(&bounded(AgentLimits { time: Some(time), ..AgentLimits::default() })), Ok(()));
    let shorter = Some(time.saturating_sub(Duration::from_nanos(1)));
    let why = needs.met_by(&bounded(AgentLimits { time: shorter, ..AgentLimits::default() })).unwrap_err();
    assert!(why.contains("its --max-time is"), "{why}");
}

/// An agent with these bounds.
fn bounded(limits: AgentLimits) -> AgentCard {
    AgentCard { limits, ..card("a") }
}

#[test]
fn an_agent_that_bounds_rate_or_connections_measures_what_is_within() {
    let needs = |work: &str| {
        let text = format!(
            "repetitions = 1\n[work]\n{work}\n[link]\ndelay = '5ms'\n\
             [matrix]\nprotocols = 'h1'\nmax-connections = 100\nwarm-pool = 3"
        );
        units(&plan(&text))[0].needs.clone()
    };
    let open = needs("rate = 300");
    let of_rate = |rate| bounded(AgentLimits { rate: Some(rate), ..AgentLimits::default() });
    let of_connections = |most| bounded(AgentLimits { connections: Some(most), ..AgentLimits::default() });
    for agent in [card("a"), of_rate(300.0), of_connections(100)] {
        assert_eq!(open.met_by(&agent), Ok(()));
    }
    for (agent, why) in [
        (of_rate(299.5), "its --max-rate is 299.5/s, and a cell sends 300/s"),
        (of_connections(99), "its --max-connections is 99, and a cell may have 100"),
    ] {
        assert_eq!(open.met_by(&agent), Err(why.to_owned()));
    }
    let closed = needs("concurrency = 5");
    assert_eq!(closed.met_by(&of_connections(100)), Ok(()));
    let why = closed.met_by(&of_rate(1e9)).unwrap_err();
    assert_eq!(why, "its --max-rate is 1000000000/s, and a cell has no rate (a closed loop)");
    // What an agent would refuse is not given to it.
    let no_number = Demand { rate: Some(f64::NAN), ..open.demand.unwrap() };
    let no_number = Needs { demand: Some(no_number), ..open };
    let why = no_number.met_by(&of_rate(300.0)).unwrap_err();
    assert_eq!(why, "its --max-rate is 300/s, and a cell sends NaN/s");
}

#[test]
fn a_unit_asks_for_the_most_of_each_of_its_cells() {
    let demand =
        |rate, connections, seconds| Demand { rate, connections, time: Duration::from_secs(seconds) };
    assert_eq!(most(std::iter::empty()), None);
    let two = [demand(Some(10.0), 5, 7), demand(Some(20.0), 4, 6)];
    assert_eq!(most(two.into_iter()), Some(demand(Some(20.0), 5, 7)));
    let closed = [demand(None, 1, 1), demand(Some(20.0), 1, 1)];
    assert_eq!(most(closed.into_iter()).and_then(|most| most.rate), None, "it has a cell without a rate");
}

#[test]
fn a_unit_above_the_bound_of_one_agent_is_for_another_and_is_refused_where_there_is_none() {
    let units = units(&plan(
        "repetitions = 1\n[work]\nrate = [100, 200]\n[link]\ndelay = '5ms'\n[matrix]\nprotocols = 'h1'",
    ));
    let slow = bounded(AgentLimits { rate: Some(100.0), ..AgentLimits::default() });
    let (found, of_unit) = classes(&units, &[slow.clone(), card("b")]).unwrap();
    let agents = of_unit.iter().map(|class| found[*class as usize].agents.join(","));
    assert_eq!(agents.collect::<Vec<_>>(), ["a,b", "b"]);
    let unmet = classes(&units, &[slow]).unwrap_err().to_string();
    assert_eq!(unmet, "no agent can measure unit 1: a: its --max-rate is 100/s, and a cell sends 200/s");
}

#[test]
fn people_are_told_the_beginning_of_a_runs_number() {
    assert_eq!(run_title("0a1b2c3d4e5f60718293a4b5c6d7e8f9"), "run 0a1b2c3d");
    assert_eq!(run_title("é"), "run é");
}

#[test]
fn units_are_classed_by_who_can_measure_them() {
    let units = units(&plan(
        "repetitions = 1\n[work]\nrate = [100, 200, 300]\n[link]\ndelay = '5ms'\n[matrix]\norigin = 'nginx'",
    ));
    let both = [card("a"), card("b")];
    let (same, of_unit) = classes(&units, &both).unwrap();
    let names = |class: &Class| class.agents.clone();
    assert_eq!(same.iter().map(names).collect::<Vec<_>>(), [["a", "b"]]);
    assert_eq!(of_unit, [0, 0, 0]);
    let mut mixed = units.clone();
    mixed[1].needs.programs.clear();
    let bare = AgentCard { programs: Vec::new(), ..card("b") };
    let (found, of_unit) = classes(&mixed, &[card("a"), bare.clone()]).unwrap();
    assert_eq!(found.iter().map(names).collect::<Vec<_>>(), [vec!["a"], vec!["a", "b"]]);
    assert_eq!((found[1].number, of_unit), (1, vec![0, 1, 0]));
    let unmet = classes(&mixed, &[bare]).unwrap_err();
    assert_eq!(unmet.to_string(), "no agent can measure unit 0: b: nginx is not installed");
}

#[test]
fn an_agent_plans_the_same_cells_or_refuses_the_run() {
    let scenario = Scenario::from_toml(STUDY).unwrap();
    let plan = scenario.plan();
    let info = RunInfo {
        run: "0".repeat(32),
        driver: "ann at desk".to_owned(),
        started: "2026-01-31T12:00:00Z".to_owned(),
        plan_digest: plan_digest(&plan),
        scenario,
        agents: vec!["a".to_owned()],
        classes: vec![Class { number: 0, agents: vec!["a".to_owned()] }],
        units: 2,
    };
    let read: RunInfo = decode(&encode(&info).unwrap()).unwrap();
    assert_eq!(read, info);
    assert_eq!(read.plan().unwrap(), plan);
    let other = RunInfo { plan_digest: plan_digest(&plan[1..]), ..info.clone() };
    assert!(matches!(other.plan(), Err(QueueError::OtherPlan)));
    let invalid = RunInfo { scenario: Scenario { repetitions: 0, ..info.scenario.clone() }, ..info.clone() };
    assert!(matches!(invalid.plan(), Err(QueueError::Scenario(_))));
    let mut touching = info.clone();
    touching.scenario.sysctl.server.insert("kernel.core_pattern".to_owned(), Axis::one("|/x".to_owned()));
    let refused = touching.plan().unwrap_err();
    let is_named = refused.to_string().contains("kernel.core_pattern");
    assert!(matches!(refused, QueueError::Scenario(_)) && is_named, "what no file can set");
    let ours = format!("\"agent\":{AGENT_VERSION},");
    let old = encode(&invalid).unwrap().replacen(&ours, "\"agent\":6,", 1);
    assert!(matches!(decode::<RunInfo>(&old), Err(MessageError::OtherVersion { theirs: 6 })));
    // A file may have so many cells, and a message may not.
    let rates: Vec<String> = (1..=10_001).map(|rate| rate.to_string()).collect();
    let large = format!("repetitions = 1\n[work]\nrate = [{}]\n[matrix]\nprotocols = 'h1'", rates.join(","));
    let scenario = Scenario::from_toml(&large).unwrap();
    let large = RunInfo { plan_digest: plan_digest(&scenario.plan()), scenario, ..info };
    assert!(matches!(large.plan(), Err(QueueError::Scenario(_))));
}

#[test]
fn a_unit_is_cells_of_the_plan_or_none() {
    let plan = plan(STUDY);
    let unit = &units(&plan)[1];
    let task = UnitTask { run: "0".repeat(32), unit: 1, cells: unit.cells.clone() };
    let read: UnitTask = decode(&encode(&task).unwrap()).unwrap();
    let cells = read.cells_of(&plan).unwrap();
    assert_eq!(cells.iter().map(|cell| (cell.index, cell.repetition)).collect::<Vec<_>>(), unit.cells);
    let unknown = UnitTask { cells: vec![(0, 0), (0, 2)], ..task.clone() };
    let error = unknown.cells_of(&plan).unwrap_err();
    assert!(matches!(error, QueueError::NoSuchCell { index: 0, repetition: 2 }), "{error}");
    // A repetition of another number is another one; the same one a million times would take as many copies of its cell.
    let both = UnitTask { cells: vec![(0, 0), (0, 1)], ..task.clone() };
    assert_eq!(both.cells_of(&plan).unwrap().len(), 2);
    let double = UnitTask { cells: vec![(0, 1); 1_000_000], ..task };
    let error = double.cells_of(&plan).unwrap_err();
    assert!(matches!(error, QueueError::Twice { index: 0, repetition: 1 }), "{error}");
}

#[test]
fn a_report_of_a_unit_names_a_part_of_its_own_agent() {
    let part = UnitPart { object: "00.1.ff.kek-1".to_owned(), bytes: 5, digest: "SHA-256=abc".to_owned() };
    let report = UnitReport {
        run: "00".to_owned(),
        unit: 1,
        agent: "kek-1".to_owned(),
        machine: "Linux".to_owned(),
        likeness: "alike".to_owned(),
        host: HostId::new("x"),
        outcome: Ok(part),
        delivered: 2,
    };
    assert!(report.is_sound());
    assert_eq!(decode_printable::<UnitReport>(&encode(&report).unwrap()).unwrap(), report);
    assert!(!UnitReport { agent: "kek-2".to_owned(), ..report.clone() }.is_sound());
    let failed = UnitReport { outcome: Err("nginx\u{1b} does not start".to_owned()), ..report };
    assert!(failed.is_sound());
    let read: UnitReport = decode_printable(&encode(&failed).unwrap()).unwrap();
    assert_eq!(read.outcome.unwrap_err(), "nginx\\u{1b} does not start");
}
