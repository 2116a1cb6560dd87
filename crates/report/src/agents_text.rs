//! The agents at a NATS server for a terminal, one line each, and the runs that are open there. On a terminal that is narrower than
//! tables are, each has a block of lines.

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
    name("permits").rank(2),
    numeric("clock", "ms ahead").rank(1),
];

const RUNS: [Column; 6] = [
    name("run"),
    numeric("units", "").rank(1),
    numeric("reported", "").rank(0),
    numeric("left", "").rank(2),
    name("started").rank(3),
    name("driver").rank(4),
];

/// Characters of the identity of a run or of a server: enough to tell those of one place apart.
const IDENTITY: usize = 8;

/// Characters of a NATS server's public key, which is its name if it was given none: base32, the first one is N.
const KEY: usize = 56;

/// In the place of a figure that is not known.
const UNKNOWN: &str = "?";

/// The agents and the open runs.
pub fn agents_text(document: &AgentsDocument, style: TextStyle) -> String {
    let mut page = Page::new(style);
    let server = &document.server;
    let round_trip = server
        .round_trip_ms
        .map(|ms| format!("round trip {}", measured_time(Duration::from_secs_f64(ms.max(0.0) / 1e3))));
    let name = Some(server_name(&server.name).to_owned());
    let facts = [name, Some(format!("nats-server {}", server.version)), round_trip];
    page.line("Server", &listed(facts));
    page.line("Agents", &agents_in_words(document));
    if !document.agents.is_empty() {
        page.blank();
        agents(&mut page, &document.agents);
    }
    if !document.runs.is_empty() {
        page.heading("Open runs");
        let rows: Vec<Vec<String>> = document.runs.iter().map(run_row).collect();
        page.table(Paint::Bold, &RUNS, &rows);
    }
    page.doubts(&document.warnings);
    style.printable(page.out)
}

/// The name that a server was given, else the beginning of its key.
fn server_name(name: &str) -> &str {
    let is_key = name.len() == KEY
        && name.starts_with('N')
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    if is_key { &name[..IDENTITY] } else { name }
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

/// A line for each agent. If that leaves no room for whom agents are busy with, it is said below.
fn agents(page: &mut Page, agents: &[AgentCardDocument]) {
    let rows = |state: fn(&AgentCardDocument) -> String| -> Vec<Vec<String>> {
        agents.iter().map(|agent| agent_row(agent, state(agent))).collect()
    };
    let whole = rows(whole_state);
    if page.style.is_narrow() || table::left_out(&AGENTS, &whole, page.style.limit()).is_none() {
        return page.table(Paint::Bold, &AGENTS, &whole);
    }
    page.table(Paint::Bold, &AGENTS, &rows(state));
    for (agent, busy) in agents.iter().filter_map(|agent| Some((agent, agent.busy.as_ref()?))) {
        paragraph(&mut page.out, page.style, "  ", &format!("{}: busy with {busy}", agent.name));
    }
}

fn agent_row(agent: &AgentCardDocument, state: String) -> Vec<String> {
    vec![
        agent.name.clone(),
        state,
        agent.version.clone(),
        agent.cpus.to_string(),
        number(agent.memory_bytes as f64 / f64::from(1 << 30)),
        agent.isolation_level.clone().unwrap_or_else(|| "-".to_owned()),
        permits(&agent.allow),
        clock(agent),
    ]
}

fn state(agent: &AgentCardDocument) -> String {
    let word = if agent.busy.is_some() { "busy" } else { "free" };
    word.to_owned()
}

fn whole_state(agent: &AgentCardDocument) -> String {
    agent.busy.as_ref().map_or_else(|| state(agent), |busy| format!("busy with {busy}"))
}

/// `URLs, lab, serve`: the values of `--allow`, of which patterns of URLs are one.
fn permits(allow: &[String]) -> String {
    let is_url = |text: &String| text.contains("://");
    let urls = allow.iter().any(is_url).then(|| "URLs".to_owned());
    let words = allow.iter().filter(|text| !is_url(text)).cloned().map(Some);
    listed(std::iter::once(urls).chain(words))
}

/// `+1.23 ± 0.04`: by how much its clock is ahead.
fn clock(agent: &AgentCardDocument) -> String {
    let Some(clock) = agent.clock else { return UNKNOWN.to_owned() };
    let sign = if clock.offset_ms < 0.0 { '−' } else { '+' };
    format!("{sign}{} ± {}", number(clock.offset_ms.abs()), number(clock.uncertainty_ms))
}

fn run_row(run: &OpenRunDocument) -> Vec<String> {
    let known = |n: Option<u32>| n.map_or_else(|| UNKNOWN.to_owned(), |n| count(n.into()));
    vec![
        run.run.chars().take(IDENTITY).collect(),
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
            host: String::new(),
            cpus: 4,
            memory_bytes: 8 << 30,
            isolation_level: Some("user-namespace".to_owned()),
            realtime: true,
            programs: Vec::new(),
            congestion_controls: vec!["cubic".to_owned()],
            allow: ["http://10.0.0.0/8:*", "https://*:*", "lab"].map(str::to_owned).to_vec(),
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

    fn open_run() -> OpenRunDocument {
        OpenRunDocument {
            run: "0123456789abcdef0123456789abcdef".to_owned(),
            driver: "me@desk".to_owned(),
            started: "2026-11-29T10:00:00Z".to_owned(),
            agents: vec!["kek-1".to_owned()],
            units: 1200,
            waiting: Some(1000),
            reported: None,
        }
    }

    /// As a terminal of so many columns shows it; no line is wider.
    fn shown_at(document: &AgentsDocument, width: usize) -> String {
        let text = agents_text(document, TextStyle { width, ..TextStyle::default() });
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        text
    }

    fn shown(document: &AgentsDocument) -> String {
        shown_at(document, 80)
    }

    fn flat(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_agent_has_a_line_with_its_state_what_it_permits_and_its_clock() {
        let document = document(vec![agent("kek-1", None), agent("kek-2", Some("me at desk, 12 s"))]);
        let line = |text: &str, name: &str| {
            text.lines().find(|line| line.starts_with(name)).map(flat).expect("it has a line")
        };
        let text = shown_at(&document, 110);
        assert!(text.contains("2 agents, 1 free, 1 busy"), "{text}");
        let rest = "0.1.0 4 8 user-namespace URLs, lab −1.50 ± 0.040";
        assert_eq!(line(&text, "kek-1 "), format!("kek-1 free {rest}"));
        assert_eq!(line(&text, "kek-2 "), format!("kek-2 busy with me at desk, 12 s {rest}"));
        assert_eq!(line(&shown(&document), "kek-2 "), format!("kek-2 busy {rest}"));
    }

    #[test]
    fn whom_an_agent_is_busy_with_is_told_below_where_its_line_has_no_room() {
        let with = "a driver with a name that is far longer than any column, since yesterday";
        let document = document(vec![agent("kek-1", Some(with))]);
        let words = format!("kek-1: busy with {with}");
        for width in [60, 80, 110] {
            let text = shown_at(&document, width);
            assert!(text.contains("± 0.04") && flat(&text).contains(&words), "{text}");
        }
        let text = shown_at(&document, 160);
        assert!(text.contains(&format!("busy with {with} ")) && !text.contains(&words), "{text}");
    }

    #[test]
    fn on_a_narrow_terminal_each_agent_and_each_run_has_a_block() {
        let mut document = document(vec![agent("kek-1", Some("me at a machine with a long name, 1200 s"))]);
        document.agents.push(AgentCardDocument { clock: None, ..agent("kek-2", None) });
        document.runs.push(open_run());
        let text = shown_at(&document, 40);
        let first = "\nkek-1\n  state: busy with me at a machine with\n  a long name, 1200 s\n  version: 0.1.0\n  \
                     CPUs: 4\n  memory: 8 GiB\n  isolation: user-namespace\n  permits: URLs, lab\n  \
                     clock: −1.50 ± 0.040 ms ahead\nkek-2\n  state: free\n";
        assert!(text.contains(first) && text.contains("\n  clock: ?\n"), "{text}");
        assert!(text.contains("\n01234567\n  units: 1,200\n  reported: ?\n  left: 1,000\n"), "{text}");
        assert!(!shown_at(&document, 60).contains("state: "), "a table has room");
    }

    #[test]
    fn a_server_without_a_name_is_named_by_the_beginning_of_its_key() {
        let key = format!("NDHPWK3A{}", "B2".repeat(24));
        let server = |name: &str| {
            let mut document = document(Vec::new());
            name.clone_into(&mut document.server.name);
            flat(&shown(&document))
        };
        assert!(server(&key).starts_with("Server NDHPWK3A, nats-server 2.9.10, round trip 0.250 ms Agents "));
        for given in ["hub-1", &key.to_lowercase(), &key[..55]] {
            assert!(server(given).starts_with(&format!("Server {given}, nats-server ")), "{given}");
        }
    }

    #[test]
    fn without_an_agent_the_text_says_how_to_start_one() {
        let text = shown(&document(Vec::new()));
        assert!(text.contains("none answered within 1s; start one: h2lab agent --nats"), "{text}");
    }

    #[test]
    fn an_open_run_shows_what_is_done_and_what_is_left() {
        let mut document = document(vec![agent("kek-1", None)]);
        document.runs.push(open_run());
        let text = shown(&document);
        let line = text.lines().find(|line| line.starts_with("01234567 ")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words, ["01234567", "1,200", "?", "1,000", "2026-11-29T10:00:00Z", "me@desk"]);
        assert!(text.contains("driver\n01234567 "), "no line of units: {text}");
    }
}
