//! Latencies for `HdrHistogram` tools: a percentile distribution (`.hgrm`, for its plotter) and an interval log (`.hlog`, whose
//! histograms can be added up across runs and machines).

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::Report;
use h2lab_analysis::stats::{CellSummary, Latency};
use h2lab_model::record::Histogram;

/// Significant digits, as in [`Histogram`].
const DIGITS: u8 = 3;

/// Lines of a distribution for each halving of the remaining share, the tools' default.
const TICKS: u32 = 5;

/// The same counts in the tools' histogram; values in nanoseconds.
fn hdr(histogram: &Histogram) -> Hdr<u64> {
    let mut hdr = Hdr::new(DIGITS).expect("three digits are supported");
    let (min, max) = histogram.extremes().unwrap_or_default();
    let (first, last) = (0, histogram.buckets().len().saturating_sub(1));
    for (place, &(lowest, count)) in histogram.buckets().iter().enumerate() {
        // The exact extremes lie in the first and the last bucket: so the result has them too.
        let ns = match place {
            _ if place == last => h2lab_base::units::nanos(max),
            _ if place == first => h2lab_base::units::nanos(min),
            _ => lowest,
        };
        hdr.record_n(ns, count).expect("it resizes itself");
    }
    hdr
}

/// The percentile distribution of `latency` in milliseconds, in the text form of `HdrHistogram`.
pub fn percentiles(latency: &Latency) -> String {
    let hdr = hdr(&latency.histogram());
    let millis = |ns: f64| ns / 1e6;
    let mut out =
        format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut total = 0;
    for step in hdr.iter_quantiles(TICKS) {
        total += step.count_since_last_iteration();
        let share = step.quantile_iterated_to();
        let value = millis(step.value_iterated_to() as f64);
        // Infallible: it writes to memory.
        let _ = if share < 1.0 {
            writeln!(out, "{value:12.3} {share:14.12} {total:10} {:14.2}", 1.0 / (1.0 - share))
        } else {
            writeln!(out, "{value:12.3} {share:14.12} {total:10}")
        };
    }
    let (mean, deviation) = (millis(hdr.mean()), millis(hdr.stdev()));
    let (max, n) = (millis(hdr.max() as f64), hdr.len());
    let _ = writeln!(out, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]");
    let _ = writeln!(out, "#[Max     = {max:12.3}, Total count    = {n:12}]");
    let _ = writeln!(out, "#[Buckets = {:12}, SubBuckets     = {:12}]", hdr.buckets(), 2048);
    out
}

/// The interval log of all cells of a report: for each a line with its response, service and TTFB histograms over the
/// measured time, in nanoseconds, tagged `h2c.response` and so on.
pub fn log(report: &Report<'_>) -> String {
    let cells = report.analysis.cells.iter();
    let lines = cells.flat_map(|cell| {
        let tag = tag(cell);
        let kinds = [("response", &cell.response), ("service", &cell.service), ("ttfb", &cell.ttfb)];
        kinds.map(|(kind, latency)| (format!("{tag}.{kind}"), cell.measured, latency.histogram()))
    });
    write_log(&format!("h2lab {}, {}: latencies in nanoseconds", report.run.version, report.name()), lines)
}

/// A cell's name without the column separators of a log.
fn tag(cell: &CellSummary) -> String {
    cell.label.chars().map(|c| if c == ',' || c.is_whitespace() { '_' } else { c }).collect()
}

fn write_log(comment: &str, lines: impl Iterator<Item = (String, Duration, Histogram)>) -> String {
    let (mut out, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment(comment);
    // The divisor that makes the column of largest values one of milliseconds, the tools' convention.
    builder.with_max_value_divisor(1e6);
    {
        let mut log = builder.begin_log_with(&mut out, &mut serializer).expect("memory takes all");
        for (tag, measured, histogram) in lines.filter(|(_, _, histogram)| !histogram.is_empty()) {
            log.write_histogram(&hdr(&histogram), Duration::ZERO, measured, Tag::new(&tag))
                .expect("memory takes all");
        }
    }
    String::from_utf8(out).expect("a log is text")
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use h2lab_base::random::Counter;

    /// Response times from 100 µs to 1 s, determined by the seed.
    fn durations(seed: u64) -> Vec<Duration> {
        let mut random = Counter::new(seed, "hdr");
        let mut draw = || {
            let bits = 10 + random.below(20);
            Duration::from_nanos(100_000 + random.below(1 << bits))
        };
        (0..20_000).map(|_| draw()).collect()
    }

    /// The histograms of a log, as another program decodes them.
    fn read(log: &str) -> Vec<Hdr<u64>> {
        let entries = IntervalLogIterator::new(log.as_bytes()).map(Result::unwrap);
        entries
            .filter_map(|entry| match entry {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .map(|interval| {
                let bytes = from_base64(interval.encoded_histogram());
                Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap()
            })
            .collect()
    }

    /// RFC 4648 §4.
    fn from_base64(text: &str) -> Vec<u8> {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut bytes = Vec::new();
        let (mut bits, mut held) = (0_u32, 0);
        for c in text.bytes().filter(|c| *c != b'=') {
            bits = bits << 6 | ALPHABET.iter().position(|a| *a == c).unwrap() as u32;
            held += 6;
            if held >= 8 {
                held -= 8;
                bytes.push((bits >> held) as u8);
                bits &= (1 << held) - 1;
            }
        }
        bytes
    }

    #[test]
    fn the_histograms_of_two_runs_merged_by_others_equal_the_histogram_of_all() {
        let (first, second) = (durations(1), durations(2));
        let line = |values: &[Duration]| {
            ("h2c.response".to_owned(), Duration::from_secs(1), Histogram::of(values.iter().copied()))
        };
        let logs = [&first, &second].map(|values| write_log("a run", std::iter::once(line(values))));
        let mut merged = read(&logs[0]).remove(0);
        merged.add(read(&logs[1]).remove(0)).unwrap();
        let mut all = Hdr::<u64>::new(DIGITS).unwrap();
        first.iter().chain(&second).for_each(|d| all.record(d.as_nanos() as u64).unwrap());
        assert_eq!(merged, all);
        assert_eq!((merged.len(), merged.max()), (40_000, all.max()));
    }

    #[test]
    fn our_buckets_are_those_of_the_original() {
        let values = durations(3);
        let ours = Histogram::of(values.iter().copied());
        let mut theirs = Hdr::<u64>::new(DIGITS).unwrap();
        for duration in &values {
            theirs.record(duration.as_nanos() as u64).unwrap();
        }
        assert_eq!(hdr(&ours), theirs);
        let (_, max) = ours.extremes().unwrap();
        for rank in [10_000_u32, 19_800, 20_000] {
            let read = Duration::from_nanos(theirs.value_at_quantile(f64::from(rank) / 20_000.0));
            assert_eq!(ours.at_rank(u64::from(rank)), read.min(max), "rank {rank}");
        }
    }

    #[test]
    fn a_distribution_ends_with_all_requests_and_the_largest_value() {
        let text = percentiles(&Latency::new((1..=1_000).map(Duration::from_millis)));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split_whitespace().next(), Some("Value"));
        let last = lines.iter().rfind(|line| !line.starts_with('#')).unwrap();
        let columns: Vec<&str> = last.split_whitespace().collect();
        assert_eq!(columns[1..], ["1.000000000000", "1000"]);
        assert!((columns[0].parse::<f64>().unwrap() - 1_000.0).abs() < 1.0, "{last}");
        assert!(text.contains("Total count    =         1000]"), "{text}");
        let median = lines.iter().find(|line| line.contains(" 0.500000000000 ")).unwrap();
        assert!((median.split_whitespace().next().unwrap().parse::<f64>().unwrap() - 500.0).abs() < 0.5);
    }
}
