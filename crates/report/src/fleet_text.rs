//! The summary of a fleet's transfers for a terminal: what all carried together over wall-clock time first, then how evenly, then
//! each pair, and what each server spent. What failed or was lost is counted with the rest, with the reason. Which way the bytes
//! went is in the first line, in the arrows between clients and servers, and in what servers count.

use super::answer;
use super::format::{bytes, count, number, plural};
use super::limit;
use super::notes;
use super::page::{Page, listed, some};
use super::style::{Paint, TextStyle, paragraph};
use super::table::{Column, name, number as numeric};
use h2lab_base::units::{format_bytes, format_duration, measured_time};
use h2lab_model::bulk::rate::bits_text;
use h2lab_model::bulk::{
    Binding, BindingKind, TIME_WAS_OVER, TransferDirection, TransferOutcome, TransferTally,
};
use h2lab_model::fleet::FleetSummary;
use h2lab_model::fleet::{AgentRecord, FleetJob, FleetRecord, Pair, PairEnd, PairRecord, PairState};

/// The summary of a fleet's transfers.
pub fn fleet_text(record: &FleetRecord, style: TextStyle) -> String {
    let summary = FleetSummary::of(record);
    let mut page = Page::new(style);
    carried(&mut page, record, &summary);
    start(&mut page, record, &summary);
    frames(&mut page, record, &summary);
    pairs(&mut page, record, &summary);
    servers(&mut page, record);
    limits(&mut page, record);
    troubles(&mut page, record);
    page.doubts(&record.warnings);
    page.blank();
    answer::lines(&mut page.out, &[answered(record, &summary)], style);
    style.printable(page.out)
}

/// `4 pairs, 1 complete, 2 failed, 1 LOST`.
fn pairs_in_words(summary: &FleetSummary) -> String {
    let tally = summary.pairs;
    listed([
        Some(plural(tally.all(), "pair")),
        some(tally.complete, "complete"),
        some(tally.partial, "partial"),
        some(tally.failed, "failed"),
        some(tally.lost, "LOST"),
        some(tally.invalid, "invalid"),
    ])
}

/// What all pairs carried together, and what became of them: the answer of a drive.
fn answered(record: &FleetRecord, summary: &FleetSummary) -> String {
    let pairs = pairs_in_words(summary);
    let rate = summary.aggregate.map_or_else(|| "No data was transferred".to_owned(), bits_text);
    let uploaded = match record.asked.direction {
        TransferDirection::Put if summary.aggregate.is_some() => " uploaded",
        TransferDirection::Put | TransferDirection::Get => "",
    };
    format!("{rate}{uploaded} over {}: {pairs}.", record.protocol)
}

/// A table: its columns, and its rows.
pub(super) type Table = (Vec<(&'static str, &'static str)>, Vec<Vec<String>>);

/// The parts of the summary, for other forms.
pub(super) struct FleetParts {
    /// The answer in a sentence.
    pub answer: String,
    /// Its lines, each with its name.
    pub lines: Vec<(String, String)>,
    /// A row for each pair, and their sum.
    pub pairs: Table,
    /// A row for each server that reported.
    pub servers: Table,
    /// What limited pairs, and what lifts it, in sentences.
    pub limits: Vec<(String, Vec<String>)>,
    /// What is not complete, with the reason.
    pub troubles: Vec<String>,
}

/// The parts of the summary, for other forms.
pub(super) fn parts(record: &FleetRecord) -> FleetParts {
    let summary = FleetSummary::of(record);
    let mut page = Page::new(TextStyle::default());
    carried(&mut page, record, &summary);
    start(&mut page, record, &summary);
    frames(&mut page, record, &summary);
    let titles = |columns: &[Column]| columns.iter().map(|column| (column.title, column.unit)).collect();
    FleetParts {
        answer: answered(record, &summary),
        lines: page.lines,
        pairs: (titles(&PAIRS), pair_rows(record, &summary)),
        servers: (titles(&server_columns(record.asked.direction)), server_rows(record)),
        limits: limits_of(record),
        troubles: troubles_of(record),
    }
}

/// The plan of a fleet, before it runs.
pub fn fleet_plan_text(job: &FleetJob, style: TextStyle) -> String {
    const COLUMNS: [Column; 4] =
        [name("client"), name("server"), numeric("conns", ""), numeric("streams", "each")];
    let rows: Vec<Vec<String>> = (job.plan.pairs.iter())
        .map(|pair| {
            let called = |names: Option<&String>| names.cloned().unwrap_or_default();
            let server = job.servers.get(pair.server as usize).map(|server| &server.name);
            let client = job.clients.get(pair.client as usize);
            vec![called(client), called(server), pair.connections.to_string(), pair.streams.to_string()]
        })
        .collect();
    let mut page = Page::new(style);
    let files = match job.direction {
        TransferDirection::Get => "files",
        TransferDirection::Put => "uploads",
    };
    let what = format!(
        "{} over {}, {files} of {}, for {}",
        plural(rows.len() as u64, "pair"),
        job.protocol,
        job.sizes,
        format_duration(job.duration)
    );
    page.line("Plan", &what);
    page.line("Seed", &job.seed.to_string());
    page.blank();
    page.table(Paint::Dim, &COLUMNS, &rows);
    style.printable(page.out)
}

fn carried(page: &mut Page, record: &FleetRecord, summary: &FleetSummary) {
    let rate = summary.aggregate.map_or_else(|| "nothing".to_owned(), bits_text);
    let all = bytes(summary.bytes as f64);
    let title = match record.asked.direction {
        TransferDirection::Get => "Received",
        TransferDirection::Put => "Uploaded",
    };
    page.line(
        title,
        &format!("{all} in {}: {rate} over {}", measured_time(summary.elapsed), record.protocol),
    );
    let lost = (summary.lost_bytes > 0)
        .then(|| format!("{} by lost pairs, last reported", bytes(summary.lost_bytes as f64)));
    page.line("  of these", &lost.unwrap_or_default());
    let tally = summary.pairs;
    page.line("Pairs", &pairs_in_words(summary));
    let each = summary.per_pair.filter(|spread| spread.n > 1).map(|spread| {
        let [min, median, max] = [spread.min, spread.median, spread.max].map(bits_text);
        format!("min {min}, median {median}, max {max}, over its own time")
    });
    page.line("  each", &each.unwrap_or_default());
    let TransferTally { complete, partial, failed } = summary.files;
    let files = listed([
        Some(plural(complete + partial + failed, "file")),
        some(complete, "complete"),
        some(partial, "partial"),
        some(failed, "failed"),
        (tally.lost > 0).then(|| format!("{} with no report", plural(tally.lost, "pair"))),
    ]);
    page.line("Files", &files);
}

/// How precisely the common start was kept.
fn start(page: &mut Page, record: &FleetRecord, summary: &FleetSummary) {
    if !record.start_at.happened() {
        return page.line("Start", "never started");
    }
    let late =
        summary.latest_start.map(|late| format!("all started within {} of each other", measured_time(late)));
    let uncertainty =
        summary.clock_uncertainty.map(|most| format!("clock uncertainty ±{}", measured_time(most)));
    page.line("Start", &listed([late, uncertainty]));
}

/// The frames that came, beside what was allowed.
fn frames(page: &mut Page, record: &FleetRecord, summary: &FleetSummary) {
    if !record.protocol.is_multiplexed() {
        return;
    }
    let rendered = || {
        record.pairs.iter().filter_map(|pair| match &pair.end {
            PairEnd::Reported(figures) => Some(figures),
            PairEnd::Failed { .. } | PairEnd::Lost { .. } => None,
        })
    };
    let frames = &summary.frames;
    let size = |bytes: f64| format_bytes(bytes.round() as u64);
    if let Some(mean) = frames.mean_data() {
        let most = rendered().filter_map(|figures| figures.max_frame_size).max();
        page.line(
            "Frames",
            &listed([
                Some(format!("{} DATA, mean {}", count(frames.data), size(mean))),
                Some(format!("{} at most", format_bytes(frames.largest_data))),
                most.map(|most| format!("up to {} accepted", format_bytes(most.into()))),
            ]),
        );
    }
    if let Some(mean) = frames.mean_update() {
        let asked = rendered().filter_map(|figures| figures.update_bytes).max();
        page.line(
            "  credit",
            &listed([
                Some(format!("{}, mean {}", plural(frames.updates, "WINDOW_UPDATE"), size(mean))),
                asked.map(|bytes| format!("configured: every {}", format_bytes(bytes.into()))),
            ]),
        );
    }
}

const PAIRS: [Column; 10] = [
    name("client"),
    name("server").rank(1),
    name("state").rank(1),
    numeric("conns", "").rank(7),
    numeric("streams", "each").rank(8),
    numeric("GB", "").rank(3),
    numeric("Gbit/s", "own time").rank(1),
    numeric("share", "%").rank(4),
    numeric("CPU s/GB", "client").rank(6),
    numeric("files", "ok/cut/failed").rank(5),
];

fn pairs(page: &mut Page, record: &FleetRecord, summary: &FleetSummary) {
    page.heading("Each pair");
    page.table(Paint::Dim, &PAIRS, &pair_rows(record, summary));
}

/// A row for each pair, and one for their sum.
fn pair_rows(record: &FleetRecord, summary: &FleetSummary) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = record.pairs.iter().map(|pair| row(record, summary, pair)).collect();
    let TransferTally { complete, partial, failed } = summary.files;
    rows.push(vec![
        "sum".to_owned(),
        String::new(),
        String::new(),
        record.pairs.iter().map(|pair| pair.pair.connections).sum::<u32>().to_string(),
        String::new(),
        number(summary.bytes as f64 / 1e9),
        summary.aggregate.map_or_else(|| "-".to_owned(), |rate| number(rate / 1e9)),
        if summary.bytes > 0 { "100".to_owned() } else { "-".to_owned() },
        known(summary.cpu_per_gb),
        format!("{complete}/{partial}/{failed}"),
    ]);
    rows
}

fn row(record: &FleetRecord, summary: &FleetSummary, pair: &PairRecord) -> Vec<String> {
    let state = pair.state();
    let TransferTally { complete, partial, failed } = pair.files();
    let share = pair.bytes() as f64 / summary.bytes.max(1) as f64;
    vec![
        called(&record.clients, pair.pair.client),
        called(&record.servers, pair.pair.server),
        if state == PairState::Lost { "LOST".to_owned() } else { state.name().to_owned() },
        pair.pair.connections.to_string(),
        pair.pair.streams.to_string(),
        number(pair.bytes() as f64 / 1e9),
        number(pair.rate() / 1e9),
        number((share * 1000.0).round() / 10.0),
        known(pair.cpu_per_gb()),
        if state == PairState::Lost { "?".to_owned() } else { format!("{complete}/{partial}/{failed}") },
    ]
}

/// A number that may be unknown.
fn known(figure: Option<f64>) -> String {
    figure.map_or_else(|| "?".to_owned(), number)
}

/// The columns of servers: what those count depends on which way the bytes went.
const fn server_columns(direction: TransferDirection) -> [Column; 7] {
    let (moved, of_moved) = match direction {
        TransferDirection::Get => ("sent", "of sent"),
        TransferDirection::Put => ("received", "of received"),
    };
    [
        name("server"),
        numeric("conns", ""),
        numeric("GB", moved),
        numeric("CPU s", ""),
        numeric("CPU s/GB", of_moved),
        numeric("retransmits", "segments"),
        name("congestion control"),
    ]
}

/// What serving took, by the agents' own figures; a server that ran already has no agent to report them.
fn servers(page: &mut Page, record: &FleetRecord) {
    let rows = server_rows(record);
    if !rows.is_empty() {
        page.heading("Each server, as it reported");
        page.table(Paint::Dim, &server_columns(record.asked.direction), &rows);
    }
}

fn server_rows(record: &FleetRecord) -> Vec<Vec<String>> {
    let row = |server: &AgentRecord| {
        let figures = server.served.as_ref()?;
        let moved = match record.asked.direction {
            TransferDirection::Get => figures.sent,
            TransferDirection::Put => figures.received,
        };
        Some(vec![
            server.name.clone(),
            figures.connections.to_string(),
            number(moved as f64 / 1e9),
            number(figures.cpu.as_secs_f64()),
            known(figures.cpu_per_gb()),
            figures.retransmits.map_or_else(|| "?".to_owned(), count),
            figures.congestion.clone().unwrap_or_else(|| "?".to_owned()),
        ])
    };
    record.servers.iter().filter_map(row).collect()
}

fn called(agents: &[AgentRecord], place: u32) -> String {
    agents.get(place as usize).map(|agent| agent.name.clone()).unwrap_or_default()
}

/// `client ← server`, or `client → server` of uploads.
pub(super) fn pair_name(record: &FleetRecord, pair: &PairRecord) -> String {
    let (client, server) =
        (called(&record.clients, pair.pair.client), called(&record.servers, pair.pair.server));
    match record.asked.direction {
        TransferDirection::Get => format!("{client} ← {server}"),
        TransferDirection::Put => format!("{client} → {server}"),
    }
}

fn limits(page: &mut Page, record: &FleetRecord) {
    let limits = limits_of(record);
    if limits.is_empty() {
        return;
    }
    page.heading("What limited them");
    for (limit, fixes) in limits {
        paragraph(&mut page.out, page.style, "- ", &limit);
        for fix in fixes {
            paragraph(&mut page.out, page.style, "  ", &format!("fix: {fix}"));
        }
    }
}

/// `local#2 reports 1.23 s of CPU time and 12 retransmitted segments (cubic)`, if it reported. What a server retransmits limits no
/// upload to it.
fn spent(server: &AgentRecord, direction: TransferDirection) -> Option<String> {
    let figures = server.served.as_ref()?;
    let cpu = number(figures.cpu.as_secs_f64());
    if direction == TransferDirection::Put {
        return Some(format!("{} reports {cpu} s of CPU time", server.name));
    }
    let again = figures.retransmits.map(|n| format!(" and {}", plural(n, "retransmitted segment")));
    let congestion = figures.congestion.as_ref().map(|name| format!(" ({name})"));
    let rest = [again, congestion].into_iter().flatten().collect::<String>();
    Some(format!("{} reports {cpu} s of CPU time{rest}", server.name))
}

/// What limited pairs, each limit once with all of its pairs, and what lifts it.
fn limits_of(record: &FleetRecord) -> Vec<(String, Vec<String>)> {
    let mut rendered: Vec<(&Binding, String, Vec<String>)> = Vec::new();
    for pair in &record.pairs {
        let PairEnd::Reported(figures) = &pair.end else { continue };
        let Some(limit) = &figures.limit else { continue };
        match rendered.iter_mut().find(|(known, ..)| limit::is_same(known, limit)) {
            Some((.., pairs)) => pairs.push(pair_name(record, pair)),
            None => {
                let served_by = record.servers.get(pair.pair.server as usize);
                let spent = served_by.and_then(|server| spent(server, record.asked.direction));
                let unseen = spent.filter(|_| limit.kind == BindingKind::Unknown);
                let sentence = unseen.map(|what| format!("{}; {what}", limit.sentence));
                let sentence = sentence.unwrap_or_else(|| limit.sentence.clone());
                rendered.push((limit, sentence, vec![pair_name(record, pair)]));
            }
        }
    }
    let one = |(limit, sentence, pairs): (&Binding, String, Vec<String>)| {
        let more = pairs.len() - 1;
        let whom = if more == 0 { pairs[0].clone() } else { format!("{} and {more} more", pairs[0]) };
        (format!("{} ({whom}): {sentence}", limit::named(limit)), limit::fixes(limit))
    };
    rendered.into_iter().map(one).collect()
}

/// Every pair that is not complete, every reason for which files were cut or failed, and every agent that was lost, with the
/// reason.
fn troubles(page: &mut Page, record: &FleetRecord) {
    page.list("Not complete", &troubles_of(record));
}

fn troubles_of(record: &FleetRecord) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for pair in &record.pairs {
        let who = pair_name(record, pair);
        match &pair.end {
            PairEnd::Lost { why } => lines.push(format!("{who}: LOST: {why}")),
            PairEnd::Failed { why } => lines.push(format!("{who}: failed: {why}")),
            PairEnd::Reported(figures) => lines.extend(figures.endings.iter().filter_map(|ending| {
                let what = format!("{} with {}", plural(ending.files, "file"), bytes(ending.bytes as f64));
                match &ending.outcome {
                    TransferOutcome::Complete => None,
                    // A job that has a time ends so.
                    TransferOutcome::Partial { why } if why == TIME_WAS_OVER => None,
                    TransferOutcome::Partial { why } => Some(format!("{who}: {what} partial: {why}")),
                    TransferOutcome::Failed { why, fault } => {
                        let fault = notes::fault(*fault);
                        Some(format!("{who}: {what} failed: {why} ({fault})"))
                    }
                }
            })),
        }
    }
    // An agent whose loss ended pairs is reported with these; a server that dies in the middle ends none of its pairs.
    let lost = record.pairs.iter().filter(|pair| !matches!(pair.end, PairEnd::Reported(_)));
    let pairs: Vec<Pair> = lost.map(|pair| pair.pair).collect();
    let is_lost = |client: u32| record.clients.get(client as usize).is_some_and(|one| one.lost.is_some());
    let rendered =
        |agent: &AgentRecord| agent.lost.as_ref().map(|why| format!("{}: LOST: {why}", agent.name));
    for (place, client) in (0..).zip(&record.clients) {
        lines.extend(rendered(client).filter(|_| !pairs.iter().any(|pair| pair.client == place)));
    }
    for (place, server) in (0..).zip(&record.servers) {
        // A pair whose client was lost is reported for the client.
        let is_its = |pair: &&Pair| pair.server == place && !is_lost(pair.client);
        lines.extend(rendered(server).filter(|_| !pairs.iter().any(|pair| is_its(&pair))));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::style::AnswerPlace;
    use super::*;
    use h2lab_base::units::Time;
    use h2lab_model::Confidence;
    use h2lab_model::fleet::testing;

    const STYLE: TextStyle =
        TextStyle { colour: false, width: 110, unicode: true, verdicts: false, answer: AnswerPlace::First };

    #[test]
    fn a_fleet_as_people_read_it() {
        insta::assert_snapshot!("fleet", fleet_text(&testing::record(), STYLE));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [40, 60, 80] {
            let style = TextStyle { width, ..STYLE };
            let (text, plan) =
                (fleet_text(&testing::record(), style), fleet_plan_text(&testing::job(2, 2), style));
            for line in text.lines().chain(plan.lines()) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn a_plan_as_people_read_it() {
        insta::assert_snapshot!("fleet_plan", fleet_plan_text(&testing::job(2, 2), STYLE));
    }

    #[test]
    fn uploads_are_named_so_and_have_what_servers_received() {
        let mut record = testing::record();
        record.asked.direction = TransferDirection::Put;
        for served in record.servers.iter_mut().filter_map(|server| server.served.as_mut()) {
            (served.sent, served.received) = (1, 4_000_000_000);
        }
        let text = fleet_text(&record, STYLE);
        assert!(text.starts_with("Uploaded      1.44 GB in 10 s: 1.15 Gbit/s over h2c"), "{text}");
        assert!(text.contains("Answer: 1.15 Gbit/s uploaded over h2c: 4 pairs"), "{text}");
        assert!(text.contains("ssh:kek-2 → ssh:lyon-1: LOST") && !text.contains('←'), "{text}");
        let row = text.lines().find(|line| line.starts_with("ssh:lyon-1 ")).expect("it has reported");
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells, ["ssh:lyon-1", "2", "4", "1", "0.250", "12", "cubic"]);
        let job = FleetJob { direction: TransferDirection::Put, ..testing::job(1, 1) };
        assert!(fleet_plan_text(&job, STYLE).contains("1 pair over h1, uploads of 1G, for 10s"));
    }

    #[test]
    fn an_agent_is_not_named_by_the_pair_of_another_whose_name_begins_alike() {
        let mut record = testing::record();
        let lost = record.pairs.iter().position(|pair| matches!(pair.end, PairEnd::Lost { .. })).unwrap();
        let Pair { client, server, .. } = record.pairs[lost].pair;
        record.clients[client as usize].name = "ssh:kek-10".to_owned();
        record.clients[client as usize].lost = Some("it fell silent".to_owned());
        record.pairs[lost].end = PairEnd::Lost { why: "ssh:kek-10: it fell silent".to_owned() };
        for (name, place) in [("ssh:kek-1", server), ("ssh:kek-10", server)] {
            record.servers[place as usize].name = name.to_owned();
            record.servers[place as usize].lost = Some("its disk burnt".to_owned());
            let text = fleet_text(&record, STYLE);
            assert!(text.contains(&format!("{name}: LOST: its disk burnt")), "{text}");
            assert!(!text.contains("- ssh:kek-10: LOST: it fell silent"), "its pair has it: {text}");
        }
    }

    #[test]
    fn the_aggregate_comes_first_and_pairs_second() {
        let text = fleet_text(&testing::record(), STYLE);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("Received      1.44 GB in 10 s: 1.15 Gbit/s over h2c"), "{text}");
        let each = lines.iter().position(|line| line.starts_with("  each")).unwrap();
        assert!(each > 0 && text.find("Each pair").unwrap() > text.find("  each").unwrap());
    }

    #[test]
    fn servers_that_reported_have_a_row_with_what_they_spent_and_what_is_not_known_is_no_zero() {
        let mut record = testing::record();
        if let Some(figures) = &mut record.servers[1].served {
            (figures.sent, figures.retransmits, figures.congestion) = (0, None, None);
        }
        let rows = |record: &FleetRecord| -> Vec<Vec<String>> {
            let text = fleet_text(record, STYLE);
            let table = text.lines().skip_while(|line| !line.starts_with("Each server")).skip(3);
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
            table.take_while(|line| !line.is_empty()).map(words).collect()
        };
        assert_eq!(
            rows(&record),
            [
                ["ssh:lyon-1", "2", "2", "1", "0.500", "12", "cubic"],
                ["ssh:lyon-2", "2", "0", "1", "?", "?", "?"]
            ]
        );
        record.servers[1].served = None;
        assert_eq!(rows(&record).len(), 1);
        record.servers[0].served = None;
        assert!(!fleet_text(&record, STYLE).contains("Each server"));
    }

    #[test]
    fn where_no_limit_was_found_the_servers_own_figures_are_there() {
        let mut record = testing::record();
        let figures = record.pairs.iter_mut().find_map(|pair| match &mut pair.end {
            PairEnd::Reported(figures) if pair.pair.server == 0 => Some(figures),
            _ => None,
        });
        figures.unwrap().limit = Some(Binding {
            kind: BindingKind::Unknown,
            cause: None,
            confidence: None,
            sentence: "the sender's end cannot be seen from here".to_owned(),
            fixes: Vec::new(),
        });
        let flat =
            |record: &FleetRecord| fleet_text(record, STYLE).split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = "; ssh:lyon-1 reports 1 s of CPU time and 12 retransmitted segments (cubic)";
        assert!(flat(&record).contains(expected), "{}", flat(&record));
        record.asked.direction = TransferDirection::Put;
        assert!(flat(&record).contains("; ssh:lyon-1 reports 1 s of CPU time "), "{}", flat(&record));
        assert!(!flat(&record).contains("retransmitted segments"), "those are of what it sent");
        record.servers[0].served = None;
        assert!(!flat(&record).contains(" reports "));
    }

    #[test]
    fn a_guess_of_one_pair_is_not_told_with_what_another_has_seen() {
        let mut record = testing::record();
        let sure = [Confidence::Observed, Confidence::Guessed];
        for (pair, confidence) in record.pairs.iter_mut().zip(sure) {
            let PairEnd::Reported(figures) = &mut pair.end else { continue };
            figures.limit = Some(limit::testing(BindingKind::StreamWindow, Some(confidence)));
        }
        let told = limits_of(&record);
        let [seen, guessed] = &told[..] else { panic!("two pairs have reported: {told:?}") };
        assert!(seen.0.starts_with("the stream window (ssh:"), "{told:?}");
        assert!(guessed.0.starts_with("the stream window, guessed (ssh:"), "{told:?}");
        assert_eq!(told[0].1, ["client: -w 16777216 - a stream window of 16 MiB here"]);
    }

    #[test]
    fn whatever_is_not_complete_is_reported_with_its_reason() {
        let text = fleet_text(&testing::record(), STYLE);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for rendered in [
            "4 pairs, 1 complete, 2 failed, 1 LOST",
            "ssh:kek-2 ← ssh:lyon-1: LOST: ssh:kek-2: its agent ended: killed by signal 9",
            "ssh:kek-2 ← ssh:lyon-2: failed: 10.0.0.2:8080: connection refused",
            "failed: the server is gone: connection refused (server error)",
            "62.5 MB by lost pairs",
        ] {
            assert!(flat.contains(rendered), "{rendered}\n{text}");
        }
        assert!(!flat.contains("partial: the time was over"), "a pair of that is complete: {text}");
    }

    #[test]
    fn a_fleet_that_never_began_says_so() {
        let mut record = testing::record();
        record.start_at = Time::NEVER;
        record.pairs.iter_mut().for_each(|pair| pair.end = PairEnd::Lost { why: "no ssh".to_owned() });
        record.pairs.iter_mut().for_each(|pair| pair.meter = h2lab_model::bulk::ByteMeter::new(Time::ZERO));
        let text = fleet_text(&record, STYLE);
        assert!(
            text.contains("never started") && text.starts_with("Received      0 B in 0 ms: nothing"),
            "{text}"
        );
    }
}
