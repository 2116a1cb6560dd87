//! The summary of a bulk transfer for a terminal: what was carried over wall-clock time first, then how evenly, then what limited
//! it. Files that are not complete are always listed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::answer;
use super::bulk_cells::rates;
use super::format::{bytes, count, number, plural};
use super::limit;
use super::notes;
use super::page::{Page, counted, listed, some};
use super::style::{TextStyle, paragraph};
use h2lab_analysis::bulk::BulkSummary;
use h2lab_analysis::bulk::summary::AT_SPEED;
use h2lab_base::units::{format_bytes, measured_time};
use h2lab_model::bulk::rate::bits_text;
use h2lab_model::bulk::{
    BulkRecord, ByteMeter, DigestVerdict, TransferDirection, TransferOutcome, TransferRecord,
};

/// Files that are complete and listed; further ones are counted.
const LISTED: usize = 8;
/// Lines of the picture of the rate over time.
const BARS: usize = 10;
/// The longest frame that every end accepts (RFC 9113 §4.2), in bytes.
const LEAST_MAX_FRAME: u64 = 16_384;
/// Most characters of a bar.
const LONGEST_BAR: usize = 50;

/// The summary of a bulk transfer.
pub fn bulk_text(record: &BulkRecord, style: TextStyle) -> String {
    let summary = BulkSummary::of(record);
    let mut page = Page::new(style);
    carried(&mut page, record, &summary);
    limited(&mut page, &summary);
    over_time(&mut page, &record.meter);
    page.blank();
    mechanics(&mut page, record, &summary);
    files(&mut page, record);
    page.doubts(&record.warnings);
    page.blank();
    answer::lines(&mut page.out, &answered(record, &summary), style);
    style.printable(page.out)
}

/// What was carried, what was not, and what limited it: the answer of a transfer.
fn answered(record: &BulkRecord, summary: &BulkSummary) -> Vec<String> {
    let tally = summary.tally;
    let files = match (tally.complete, tally.failed) {
        (complete, 0) if complete == tally.all() => "all complete".to_owned(),
        (complete, 0) if record.interrupted => {
            format!("{} complete, the others until it was interrupted", count(complete))
        }
        (complete, 0) => format!("{} complete, the others until the time was over", count(complete)),
        (complete, failed) => format!("{} complete, {} failed", count(complete), count(failed)),
    };
    if record.is_void() {
        return vec![format!(
            "Not a valid measurement: h2lab did not run for {:.1?} of {:.1?}. {}, {files}.",
            record.paused,
            record.elapsed(),
            plural(tally.all(), "file")
        )];
    }
    if tally.failed > 0 && tally.complete + tally.partial == 0 {
        let why = record.transfers.iter().find_map(|transfer| match &transfer.outcome {
            TransferOutcome::Failed { why, .. } => Some(format!(": {why}")),
            _ => None,
        });
        let what = match record.direction {
            TransferDirection::Get => "received",
            TransferDirection::Put => "sent",
        };
        return vec![format!("Failed: no file was {what}{}.", why.unwrap_or_default())];
    }
    let rate = summary.aggregate.map_or_else(|| "No data was transferred".to_owned(), bits_text);
    let mut sentences =
        vec![format!("{rate} over {}: {}, {files}.", record.protocol, plural(tally.all(), "file"))];
    let held = summary.binding().map(|bound| &bound.binding);
    let known = held.filter(|binding| limit::is_known(binding));
    sentences.extend(known.map(|held| format!("{}.{}", limit::concluded(held), limit::change(held))));
    sentences
}

/// The parts of the summary, for other forms.
pub(super) struct BulkParts {
    /// The answer in a few sentences.
    pub answer: Vec<String>,
    /// Its lines, each with its name.
    pub lines: Vec<(String, String)>,
    /// A line for each listed file.
    pub files: Vec<String>,
}

/// The parts of the summary, for other forms.
pub(super) fn parts(record: &BulkRecord) -> BulkParts {
    let summary = BulkSummary::of(record);
    let mut page = Page::new(TextStyle::default());
    carried(&mut page, record, &summary);
    limited(&mut page, &summary);
    mechanics(&mut page, record, &summary);
    BulkParts {
        answer: answered(record, &summary),
        lines: page.lines,
        files: each_file(record).iter().map(Listed::line).collect(),
    }
}

fn carried(page: &mut Page, record: &BulkRecord, summary: &BulkSummary) {
    let what = match record.direction {
        TransferDirection::Get => "Received",
        TransferDirection::Put => "Sent",
    };
    let rate = summary.aggregate.map_or_else(|| "nothing".to_owned(), bits_text);
    let time = measured_time(Duration::from_millis(summary.elapsed.as_millis() as u64));
    page.line(what, &format!("{} in {time}: {rate} over {}", bytes(summary.bytes as f64), record.protocol));
    let at_speed =
        summary.at_speed.map(|rate| format!("{} in the last {}", bits_text(rate), measured_time(AT_SPEED)));
    page.line("  at speed", &at_speed.unwrap_or_default());
    page.line("  resumed", &some(summary.held, from_before(record.direction)).unwrap_or_default());
    let tally = summary.tally;
    let counts = listed([
        Some(plural(tally.all(), "file")),
        some(tally.complete, "complete"),
        some(tally.partial, "partial"),
        some(tally.failed, "failed"),
    ]);
    page.line("Files", &counts);
    let overflow = &record.overflow;
    let n = overflow.streams + record.transfers.iter().map(TransferRecord::streams).sum::<u64>();
    let parts = record.transfers.iter().flat_map(|transfer| &transfer.parts);
    let listed_ones = parts.map(|part| part.connection);
    let connections: BTreeSet<u32> = listed_ones.chain(overflow.connections.keys().copied()).collect();
    let over = match connections.len() {
        0 => count(n),
        carried => format!("{} over {}", count(n), plural(carried as u64, "connection")),
    };
    page.line("Streams", &listed([Some(over), some(summary.broken_streams, "broken")]));
    let each = summary.per_stream.filter(|spread| spread.n > 1).map(|spread| {
        let [min, median, max] = [spread.min, spread.median, spread.max].map(bits_text);
        format!("min {min}, median {median}, max {max}, over its own time")
    });
    page.line("  each", &each.unwrap_or_default());
}

/// The note on bytes that did not have to be transferred.
const fn from_before(direction: TransferDirection) -> &'static str {
    match direction {
        TransferDirection::Get => "bytes already here",
        TransferDirection::Put => "bytes already there",
    }
}

/// What limited the transfer, and which setting lifts that.
fn limited(page: &mut Page, summary: &BulkSummary) {
    let Some(bound) = summary.binding() else { return };
    let binding = &bound.binding;
    page.line("Limit", &format!("{}: {}", limit::named(binding), binding.sentence));
    for fix in limit::fixes(binding) {
        page.line("  fix", &fix);
    }
    let kinds = summary.kinds();
    if kinds.len() > 1 {
        let rendered =
            kinds.iter().map(|(kind, n)| format!("{} of {}", kind.words(), plural(*n, "connection")));
        page.line("  of each", &rendered.collect::<Vec<_>>().join(", "));
    }
}

/// The rate over time, as bars; the longest fills the width.
fn over_time(page: &mut Page, meter: &ByteMeter) {
    let (span, rates) = rates(meter, BARS);
    let most = rates.iter().copied().fold(0.0, f64::max);
    if rates.len() < 2 || most <= 0.0 {
        return;
    }
    page.heading("Rate over time");
    let lines: Vec<(String, String)> = (rates.iter().enumerate())
        .map(|(n, rate)| (measured_time(span * n as u32), bits_text(*rate)))
        .collect();
    let widest = |texts: &mut dyn Iterator<Item = &String>| texts.map(String::len).max().unwrap_or(0);
    let (times, figures) =
        (widest(&mut lines.iter().map(|(time, _)| time)), widest(&mut lines.iter().map(|(_, rate)| rate)));
    let room = page.style.limit().saturating_sub(times + figures + 12).min(LONGEST_BAR) as f64;
    for ((time, text), rate) in lines.iter().zip(&rates) {
        let bar = "■".repeat((rate / most * room).ceil() as usize);
        page.out.push_str(format!("  from {time:>times$}  {text:>figures$} {bar}").trim_end());
        page.out.push('\n');
    }
}

fn mechanics(page: &mut Page, record: &BulkRecord, summary: &BulkSummary) {
    if record.protocol.is_multiplexed() {
        page.line("Frames", &frames(record));
        page.line("  credit", &credit(record));
    }
    page.line("Waited for", &waits(summary));
    // Of a server without an agent only our own congestion control is known, which governs only our requests.
    let is_seen = record.figures.iter().any(|figures| figures.sender.congestion_control.is_some());
    let whose = if is_seen || record.direction == TransferDirection::Put { "" } else { " at this end" };
    let tcp = listed([
        (!summary.congestion.is_empty()).then(|| format!("{}{whose}", summary.congestion.join(" and "))),
        summary.retransmits.map(|n| plural(n, "retransmit")),
    ]);
    page.line(if record.protocol.is_quic() { "QUIC" } else { "TCP" }, &tcp);
    let per_gb = |cpu: Option<f64>, whose: &str| cpu.map(|cpu| format!("{} s per GB {whose}", number(cpu)));
    page.line(
        "CPU",
        &listed([per_gb(summary.cpu_per_gb, "here"), per_gb(summary.peer_cpu_per_gb, "at the other end")]),
    );
    let io = &record.io;
    page.line(
        "Operations",
        &listed([
            io.socket_reads.and_then(|n| counted(n, "socket read")),
            io.socket_writes.and_then(|n| counted(n, "socket write")),
            counted(io.file_reads, "file read"),
            counted(io.file_writes, "file write"),
            (io.largest_buffer > 0).then(|| format!("largest buffer {}", format_bytes(io.largest_buffer))),
        ]),
    );
}

/// The frames that came, beside what was allowed: a sender need not use its maximum.
fn frames(record: &BulkRecord) -> String {
    let frames = &record.frames;
    let Some(mean) = frames.mean_data() else { return String::new() };
    let asked = record.asked.max_frame_size.map(|most| {
        // For a response that fits into one frame the sender's limit is unknown.
        let mut parts = record.transfers.iter().flat_map(|transfer| &transfer.parts);
        let has_more = parts.any(|part| part.bytes > frames.largest_data);
        let unused = match frames.largest_data {
            largest if largest >= u64::from(most) || !has_more => "",
            largest if largest <= LEAST_MAX_FRAME => ", not used by the sender",
            _ => ", not fully used by the sender",
        };
        format!("up to {} accepted{unused}", format_bytes(most.into()))
    });
    listed([
        Some(format!("{} DATA, mean {}", count(frames.data), format_bytes(mean.round() as u64))),
        Some(format!("{} at most", format_bytes(frames.largest_data))),
        asked,
    ])
}

fn credit(record: &BulkRecord) -> String {
    let frames = &record.frames;
    let Some(mean) = frames.mean_update() else { return String::new() };
    let asked =
        record.asked.update_bytes.map(|bytes| format!("configured: every {}", format_bytes(bytes.into())));
    listed([
        Some(format!(
            "{}, mean {}",
            plural(frames.updates, "WINDOW_UPDATE"),
            format_bytes(mean.round() as u64)
        )),
        asked,
    ])
}

fn waits(summary: &BulkSummary) -> String {
    let stalls = &summary.stalls;
    let rendered = [
        ("stream windows", stalls.stream_window),
        ("the connection window", stalls.connection_window),
        ("the congestion window", stalls.congestion_window),
        ("the send buffer", stalls.send_buffer),
        ("the receive buffer", stalls.receive_buffer),
        ("a disk", stalls.disk),
    ];
    listed(rendered.map(|(what, time)| {
        let time = Duration::from_millis(time?.as_millis() as u64);
        (!time.is_zero()).then(|| format!("{what} {}", measured_time(time)))
    }))
}

/// Whether a file arrived as it was sent.
fn is_fine(transfer: &TransferRecord) -> bool {
    transfer.outcome == TransferOutcome::Complete && transfer.digest.verdict != DigestVerdict::Differs
}

/// All listed files, those that are not complete first.
fn in_order(record: &BulkRecord) -> impl Iterator<Item = &TransferRecord> {
    let transfers = || record.transfers.iter();
    transfers().filter(|one| !is_fine(one)).chain(transfers().filter(|one| is_fine(one)))
}

/// Transfers of a file that came to the same: one is fetched over and over for a time (`-z`).
struct Listed {
    words: String,
    times: u64,
    is_fine: bool,
}

impl Listed {
    fn line(&self) -> String {
        let again = if self.times > 1 { format!(", {} times", count(self.times)) } else { String::new() };
        format!("{}{again}", self.words)
    }
}

/// What is listed of the files, those that are not complete first.
fn each_file(record: &BulkRecord) -> Vec<Listed> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut files: Vec<Listed> = Vec::new();
    for transfer in in_order(record) {
        let words = file(transfer);
        let place = *places.entry(words.clone()).or_insert(files.len());
        match files.get_mut(place) {
            Some(known) => known.times += 1,
            None => files.push(Listed { words, times: 1, is_fine: is_fine(transfer) }),
        }
    }
    files
}

/// Each file with its checksum; those that are not complete first, and all of them.
fn files(page: &mut Page, record: &BulkRecord) {
    page.heading("Each file");
    let files = each_file(record);
    let others = files.iter().filter(|one| !one.is_fine).count();
    let (listed, left) = files.split_at((others + LISTED).min(files.len()));
    for one in listed {
        paragraph(&mut page.out, page.style, "- ", &one.line());
    }
    let more = left.iter().map(|one| one.times).sum::<u64>() + record.overflow.files;
    if more > 0 {
        paragraph(&mut page.out, page.style, "- ", &format!("and {} more complete", count(more)));
    }
}

fn file(transfer: &TransferRecord) -> String {
    let of = match transfer.total {
        Some(total) if total != transfer.bytes => format!(" of {}", bytes(total as f64)),
        _ => String::new(),
    };
    let held = some(transfer.held, from_before(transfer.direction));
    let outcome = match &transfer.outcome {
        TransferOutcome::Complete => "complete".to_owned(),
        TransferOutcome::Partial { why } => format!("partial: {why}"),
        TransferOutcome::Failed { why, fault } => {
            format!("failed: {why} ({})", notes::fault(*fault))
        }
    };
    let what = listed([Some(format!("{}{of}", bytes(transfer.bytes as f64))), held, checksum(transfer)]);
    format!("{} {outcome}, {what}", transfer.url)
}

fn checksum(transfer: &TransferRecord) -> Option<String> {
    let digest = &transfer.digest;
    let computed = digest.computed.as_ref()?;
    Some(match (digest.verdict, &digest.declared) {
        (DigestVerdict::Matches, _) => format!("{computed} as declared"),
        (DigestVerdict::Differs, Some(rendered)) => {
            format!("CHECKSUM MISMATCH: {computed} here, {} declared", rendered.hex())
        }
        _ => format!("{computed}; server sent no checksum"),
    })
}

#[cfg(test)]
mod tests;
