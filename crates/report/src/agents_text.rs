//! The agents at a NATS server for a terminal, one line each, and the runs that are open there.

use std::time::Duration;

use super::document::{AgentCardDocument, AgentsDocument, OpenRunDocument};
use super::format::{count, number, plural};
use super::page::{Page, listed, some};
use super::style::{Paint, TextStyle, paragraph};
use super::table::{self, Column, name, number as numeric};
use h2lab_base::units::{format_duration, measured_time};

const AGENTS: [Column; 8] = [
    name("agent"),
    name("state").rank(0),
    name("version").rank(3),
    numeric("CPUs", "").rank(4),
    numeric("memory", "GiB").rank(5),
    name("isolation").rank(6),
    numeric("clock", "ms").rank(1),
    numeric("programs", "").rank(7),
];

const RUNS: [Column; 6] = [
    name("run"),
    numeric("units", "").rank(1),
    numeric("reported", "").rank(0),
    numeric("waiting", "").rank(2),
    name("started").rank(3),
    name("driver").rank(4),
];

/// Characters of a state, at most, in its column; a longer one is told in full below.
const STATE: usize = 32;

/// Characters of a run's identity: enough to tell the runs of one server apart.
const RUN: usize = 8;

/// The agents and the open runs.
pub fn agents_text(document: &AgentsDocument, style: TextStyle) -> String {
    let mut page = Page::new(style);
    let server = &document.server;
    let round_trip = server
        .round_trip_ms
        .map(|ms| format!("round trip {}", measured_time(Duration::from_secs_f64(ms.max(0.0) / 1e3))));
    let facts = [Some(server.name.clone()), Some(format!("nats-server {}", server.version)), round_trip];
    page.line("Server", &listed(facts));
    page.line("Agents", &agents_in_words(document));
    if !document.agents.is_empty() {
        page.blank();
        let rows: Vec<Vec<String>> = document.agents.iter().map(agent_row).collect();
        lay_out(&mut page, &AGENTS, &rows);
        for (agent, busy) in document.agents.iter().filter_map(|agent| Some((agent, agent.busy.as_ref()?))) {
            if state(agent).chars().count() > STATE {
                paragraph(&mut page.out, style, "  ", &format!("{}: busy with {busy}", agent.name));
            }
        }
    }
    if !document.runs.is_empty() {
        page.heading("Open runs");
        let rows: Vec<Vec<String>> = document.runs.iter().map(run_row).collect();
        lay_out(&mut page, &RUNS, &rows);
    }
    page.doubts(&document.warnings);
    style.printable(page.out)
}

fn agents_in_words(document: &AgentsDocument) -> String {
    if document.agents.is_empty() {
        let wait = format_duration(Duration::from_secs_f64(document.wait_s.max(0.0)));
        return format!(
            "none answered within {wait}; start one: h2lab agent --nats URL --name NAME --allow URL"
        );
    }
    let busy = document.agents.iter().filter(|agent| agent.busy.is_some()).count() as u64;
    let all = document.agents.len() as u64;
    listed([Some(plural(all, "agent")), some(all - busy, "free"), some(busy, "busy")])
}

fn lay_out(page: &mut Page, columns: &[Column], rows: &[Vec<String>]) {
    let style = page.style;
    for (place, line) in table::lay_out(columns, rows, style.limit()).into_iter().enumerate() {
        let line = if place < 2 { style.paint(Paint::Bold, &line) } else { line };
        page.out.push_str(&line);
        page.out.push('\n');
    }
    if let Some(note) = table::left_out(columns, rows, style.limit()) {
        paragraph(&mut page.out, style, "", &note);
    }
}

fn agent_row(agent: &AgentCardDocument) -> Vec<String> {
    let state = state(agent);
    let cut = || state.chars().take(STATE - 1).chain(['…']).collect();
    vec![
        agent.name.clone(),
        if state.chars().count() > STATE { cut() } else { state.clone() },
        agent.version.clone(),
        agent.cpus.to_string(),
        number(agent.memory_bytes as f64 / f64::from(1 << 30)),
        agent.isolation_level.clone().unwrap_or_else(|| "-".to_owned()),
        clock(agent),
        agent.programs.len().to_string(),
    ]
}

fn state(agent: &AgentCardDocument) -> String {
    agent.busy.as_ref().map_or_else(|| "free".to_owned(), |busy| format!("busy with {busy}"))
}

/// `+1.23 ± 0.04`: by how much its clock is ahead.
fn clock(agent: &AgentCardDocument) -> String {
    let Some(clock) = agent.clock else { return "?".to_owned() };
    let sign = if clock.offset_ms < 0.0 { '−' } else { '+' };
    format!("{sign}{} ± {}", number(clock.offset_ms.abs()), number(clock.uncertainty_ms))
}

fn run_row(run: &OpenRunDocument) -> Vec<String> {
    let known = |n: Option<u32>| n.map_or_else(|| "?".to_owned(), |n| count(n.into()));
    vec![
        run.run.chars().take(RUN).collect(),
        count(run.units.into()),
        known(run.reported),
        known(run.waiting),
        run.started.clone(),
        run.driver.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::document::{AgentClockDocument, AgentLimitsDocument, NatsServerDocument};
    use super::*;

    fn agent(name: &str, busy: Option<&str>) -> AgentCardDocument {
        AgentCardDocument {
            name: name.to_owned(),
            busy: busy.map(str::to_owned),
            version: "0.1.0".to_owned(),
            agent_protocol: 7,
            machine: "Linux".to_owned(),
            cpus: 4,
            memory_bytes: 8 << 30,
            isolation_level: Some("user-namespace".to_owned()),
            realtime: true,
            programs: Vec::new(),
            congestion_controls: vec!["cubic".to_owned()],
            allow: vec!["lab".to_owned()],
            limits: AgentLimitsDocument { rate_rps: None, connections: None, bytes: None, time_s: None },
            likeness: "alike".to_owned(),
            clock: Some(AgentClockDocument { offset_ms: -1.5, uncertainty_ms: 0.04 }),
        }
    }

    fn document(agents: Vec<AgentCardDocument>) -> AgentsDocument {
        AgentsDocument {
            version: "0.1.0".to_owned(),
            server: NatsServerDocument {
                name: "n1".to_owned(),
                version: "2.9.10".to_owned(),
                round_trip_ms: Some(0.25),
                max_payload: 1 << 20,
            },
            wait_s: 1.0,
            agents,
            runs: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// As a terminal of 80 columns shows it.
    fn shown(document: &AgentsDocument) -> String {
        agents_text(document, TextStyle { width: 80, ..TextStyle::default() })
    }

    #[test]
    fn each_agent_has_a_line_with_its_state_and_its_clock() {
        let text = shown(&document(vec![agent("kek-1", None), agent("kek-2", Some("me@desk since 10:00"))]));
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(text.contains("2 agents, 1 free, 1 busy"), "{text}");
        assert!(line("kek-1").contains("free") && line("kek-1").contains("−1.50 ± 0.04"), "{text}");
        assert!(line("kek-2").contains("busy with me@desk since 10:00"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_long_state_leaves_room_for_the_clock_and_is_told_below() {
        let with = "a driver with a name that is far longer than any column, since yesterday";
        let text = shown(&document(vec![agent("kek-1", Some(with))]));
        assert!(text.contains("± 0.04"), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("kek-1: busy with {with}")), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn without_an_agent_the_text_says_how_to_start_one() {
        let text = shown(&document(Vec::new()));
        assert!(text.contains("none answered within 1s; start one: h2lab agent --nats"), "{text}");
    }

    #[test]
    fn an_open_run_shows_what_is_done_and_what_is_left() {
        let mut document = document(vec![agent("kek-1", None)]);
        document.runs.push(OpenRunDocument {
            run: "0123456789abcdef0123456789abcdef".to_owned(),
            driver: "me@desk".to_owned(),
            started: "2026-11-29T10:00:00Z".to_owned(),
            agents: vec!["kek-1".to_owned()],
            units: 1200,
            waiting: Some(1000),
            reported: None,
        });
        let text = shown(&document);
        let line = text.lines().find(|line| line.starts_with("01234567 ")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words, ["01234567", "1,200", "?", "1,000", "2026-11-29T10:00:00Z", "me@desk"]);
    }
}
