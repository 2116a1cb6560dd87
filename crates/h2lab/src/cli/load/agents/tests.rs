use clap::Parser;
use h2lab_base::units::Time;
use h2lab_model::fleet::testing::agent_card;
use h2lab_model::fleet::{AgentCard, AgentRecord};

use super::super::super::exit::{Exit, exit_of};
use super::*;
use crate::run::agent::who::Seen;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    load: LoadArgs,
}

fn parsed(line: &str) -> Result<LoadArgs, String> {
    let words = ["load"].into_iter().chain(line.split(' '));
    Line::try_parse_from(words).map(|line| line.load).map_err(|error| error.to_string())
}

/// What agents are asked to do, or why nothing is asked of them.
fn asked(line: &str) -> Result<(LoadJob, LoadPlan), String> {
    let args = parsed(line)?;
    let job = || -> Result<(LoadJob, LoadPlan)> {
        check(&args)?;
        let requests = requests::read(&args.urls, None, false)?;
        let protocols = plan::protocols(&args, requests.url.is_tls())?;
        let plan = plan::plan(&args, &requests, protocols[0])?;
        check_shares(args.agents.count(), &plan)?;
        Ok((job(&args, &requests, &plan)?, plan))
    };
    job().map_err(|error| error.to_string())
}

#[test]
fn agents_are_asked_for_the_whole_load_of_which_each_makes_a_share() {
    let (job, plan) = asked("--agents kek-1,kek-2,kek-3 -q 6000 -z 2s --frames http://a/x?y=z").unwrap();
    assert_eq!(job.agents, ["kek-1", "kek-2", "kek-3"]);
    assert_eq!(job.task.cell().unwrap(), plan.cell, "an agent plans the same cell");
    assert_eq!(job.task.url, "http://a/x?y=z");
    assert!(job.task.frames);
    assert_eq!(job.duration, Duration::from_secs(2) + plan.cell.work.phases.drain);
    let (_, timed) = asked("--agents a -n 10 http://a/").unwrap();
    assert_eq!(timed.requests, Some(10));
}

#[test]
fn a_body_that_makes_the_load_too_long_for_a_message_is_refused_before_anything_is_sent() {
    let args = parsed("--agents a http://a/").unwrap();
    let requests = requests::read(&args.urls, None, false).unwrap();
    let mut plan = plan::plan(&args, &requests, Protocol::H1).unwrap();
    // A list in JSON: four bytes for each.
    let mut of_bytes = |bytes: usize| {
        plan.scenario.work.body = Some(vec![255_u8; bytes].into());
        job(&args, &requests, &plan).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(of_bytes(1_000_000), Ok(()));
    let error = of_bytes(1_100_000).unwrap_err();
    assert!(error.contains("agents read 4 MiB at most") && error.contains("--body-bytes"), "{error}");
}

#[test]
fn each_agent_has_a_connection_at_least() {
    let connections = |line: &str| asked(line).unwrap().1.cell.connections;
    assert_eq!(connections("--agents a,b,c https://a/"), 3);
    assert_eq!(connections("--agents a,b,c http://a/"), 50);
    assert_eq!(connections("--agents a,b,c -c 3 http://a/"), 3);
    for line in ["--agents a,b,c -c 2 http://a/", "--agents a,b,c -n 2 http://a/"] {
        let error = asked(line).unwrap_err();
        assert!(error.contains("3 agents need a connection each, and the load has 2"), "{error}");
    }
}

#[test]
fn what_agents_cannot_do_is_refused_by_name() {
    for (line, words) in [
        ("--agents a --dump x.csv http://a/", "-o requests.parquet"),
        ("--agents a --prometheus 9100 http://a/", "--prometheus"),
        ("--agents a,b,a http://a/", "a is named twice"),
        ("--agents a.b http://a/", "the name of an agent"),
        ("--setup-timeout 5s http://a/", "--agents"),
        ("--agents a --setup-timeout 0s http://a/", "more than 0"),
        ("--agents a --grace 0 http://a/", "more than 0"),
    ] {
        let error = asked(line).unwrap_err();
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn a_nats_server_without_agents_has_no_effect_and_is_refused() {
    let named = |line: &str| parsed(line).unwrap().agents.are_named();
    assert!(named("--agents a --nats hub http://a/").unwrap());
    assert!(!named("http://a/").unwrap());
    let error = named("--nats hub http://a/").unwrap_err().to_string();
    assert!(error.starts_with("--nats ") && error.contains("--agents NAME"), "{error}");
}

#[test]
fn all_agents_record_as_much_as_one_generator_would_have_in_the_end() {
    for (line, level) in [
        ("-q 50000 -z 8s", Level::Full),
        ("-q 50000 -z 8001ms", Level::Tail),
        ("-q 50001 -z 3s", Level::Tail),
        ("-q 1000000 -z 100ms", Level::Full),
        ("--ramp 100..60000/5s -z 5s", Level::Tail),
        ("-n 131072", Level::Full),
        ("-n 131073", Level::Tail),
        ("-z 1s", Level::Tail),
        ("-z 1s --record full", Level::Full),
        ("-q 10 -z 1s --record hist", Level::Hist),
    ] {
        let (job, _) = asked(&format!("--agents a,b {line} http://a/")).unwrap();
        assert_eq!(job.task.level, level, "{line}");
    }
}

#[test]
fn where_no_share_is_there_the_reasons_are_and_what_to_try() {
    let lost = ["a: it was refused".to_owned(), "b: it was silent".to_owned()];
    let only = nothing(&lost, &[Protocol::H1], false);
    assert_eq!(only.to_string(), "no agent has made its share: a: it was refused; b: it was silent");
    let protocols = [Protocol::H2, Protocol::H1s];
    assert_eq!(nothing(&lost, &protocols, false).to_string(), only.to_string(), "another would not help");
    let unspoken = ["a: the server does not speak `h2` over TLS (ALPN): it chose http/1.1".to_owned()];
    let hint = nothing(&unspoken, &protocols, false);
    assert!(hint.to_string().ends_with("agents try h2 only: --proto h1s has them speak that"), "{hint}");
    assert_eq!(exit_of(&hint.into()), Exit::Unreachable);
    assert_eq!(exit_of(&nothing(&lost, &[Protocol::H1], true).into()), Exit::Interrupted);
}

/// A share of an agent of this name.
fn share(name: &str, end: ShareEnd, lost: Option<&str>) -> ShareRecord {
    let agent = AgentRecord {
        name: name.to_owned(),
        url: None,
        machine: None,
        version: None,
        offset: None,
        served: None,
        lost: lost.map(str::to_owned),
    };
    ShareRecord { agent, share: Share::default(), end, late: None }
}

#[test]
fn a_load_that_an_agent_refuses_is_not_begun_and_only_the_reasons_are_told() {
    let lost = |why: &str| ShareEnd::Lost { why: why.to_owned(), progress: None };
    let ended = || share("a", lost("the load was not begun"), None);
    let refused = share("b", ShareEnd::Failed { why: "it is busy\x1b".to_owned() }, Some("it is busy\x1b"));
    let dead = || share("c", lost("it was silent"), Some("it was silent"));
    let of = |shares| LoadOutcome { start_at: Time::NEVER, interrupted: false, shares };
    let failure = not_begun(&of(vec![ended(), refused, dead()]), &[Protocol::H1]).unwrap();
    let words = failure.to_string();
    assert!(words.starts_with("the load was not begun: b: it is busy"), "{words}");
    assert!(words.ends_with("; c: it was silent") && !words.contains('\x1b'), "{words}");
    assert_eq!(exit_of(&failure.into()), Exit::Unreachable);
    // Without a refusal the others begin.
    assert!(not_begun(&of(vec![dead()]), &[Protocol::H1]).is_none());
}

fn seen(name: &str, cpus: u32) -> Seen {
    let card = AgentCard { cpus, ..agent_card(name) };
    Seen { card, clock: None }
}

#[test]
fn all_agents_have_as_many_threads_as_the_smallest() {
    let agents = vec![seen("a", 8), seen("b", 4), seen("c", 2)];
    let present = Present { agents, doubts: Vec::new() };
    let least = |names: &[&str]| {
        let names: Vec<AgentName> = names.iter().map(|name| name.parse().unwrap()).collect();
        least_cpus(&names, &present)
    };
    assert_eq!((least(&["a", "b"]), least(&["a", "b", "c"])), (4, 2));
}

#[test]
fn more_threads_than_the_smallest_agent_takes_are_refused() {
    let of = |asked, is_open| threads(asked, 4, is_open).map_err(|error| error.to_string());
    assert_eq!((of(None, true), of(None, false), of(Some(3), true)), (Ok(3), Ok(4), Ok(3)));
    let error = of(Some(4), true).unwrap_err();
    assert_eq!(
        error,
        "-t/--threads 4: the smallest of the agents has 4 CPUs, so that each may have at most 3 threads"
    );
}

#[test]
fn of_many_agents_the_first_are_named() {
    let agents: Vec<AgentName> = (0..7).map(|n| format!("a{n}").parse().unwrap()).collect();
    assert_eq!(names(&agents[..2]), "2 agents (a0, a1)");
    assert_eq!(names(&agents), "7 agents (a0, a1, a2, a3, a4, a5, …)");
}
