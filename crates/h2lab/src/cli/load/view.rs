//! Shows how a load goes, on stderr: a view that is drawn again and again on a terminal, a line now and then elsewhere.
//!
//! It has a thread of its own: a terminal that is slow to take text must not make a request late.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::super::progress::bar;
use super::plan::{self, LoadPlan};
use crate::terminal::Terminal;
use h2lab_base::counts::{count, plural};
use h2lab_model::record::Histogram;
use h2lab_roles::load::LoadProgress;

/// Between two drawings, and between two lines where nothing can be drawn over.
const DRAWN_EVERY: Duration = Duration::from_millis(250);
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// How much of the past the sparkline shows: one column each.
const COLUMN: Duration = Duration::from_millis(500);
const COLUMNS: usize = 60;

/// What is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Nothing at all.
    Nothing,
    /// A plain line about every second.
    Lines,
    /// A view of several lines, drawn in place.
    View,
}

impl Show {
    /// The view for a terminal that can move its cursor, lines for all else.
    pub fn of_terminal() -> Self {
        if Terminal::stderr().takes_escapes { Self::View } else { Self::Lines }
    }
}

/// The messages to the thread.
enum News {
    Announcement(String),
    Progress(LoadProgress),
}

/// The view of a running load; dropping it removes what was drawn.
#[derive(Debug)]
pub struct LoadView {
    news: Option<SyncSender<News>>,
    thread: Option<JoinHandle<()>>,
}

impl LoadView {
    /// Begins to show `plan`.
    pub fn start(show: Show, plan: &LoadPlan) -> Self {
        // Room for what comes while the terminal is written to; more than that is old and may be lost.
        let (news, incoming) = sync_channel(64);
        let mut screen = Screen::new(show, plan);
        let follow = move || follow(&incoming, &mut screen);
        // If the thread cannot be started the load runs without a view.
        let thread = std::thread::Builder::new().name("view".to_owned()).spawn(follow).ok();
        Self { news: Some(news), thread }
    }

    /// Shows the current step.
    pub fn announce(&self, text: &str) {
        self.write_out(News::Announcement(text.to_owned()));
    }

    /// Says how it goes. Never waits.
    pub fn show(&self, progress: &LoadProgress) {
        self.write_out(News::Progress(progress.clone()));
    }

    fn write_out(&self, news: News) {
        if let Some(sender) = &self.news {
            // A full channel means that the terminal does not keep up: the next news says more.
            let _ = sender.try_send(news);
        }
    }
}

impl Drop for LoadView {
    fn drop(&mut self) {
        drop(self.news.take());
        if let Some(thread) = self.thread.take() {
            // A view that panicked has shown it; the load's result matters more.
            let _ = thread.join();
        }
    }
}

fn follow(incoming: &Receiver<News>, screen: &mut Screen) {
    while let Ok(news) = incoming.recv() {
        let text = match news {
            News::Announcement(text) => screen.announcement(&text),
            News::Progress(progress) => screen.progress(&progress),
        };
        // First: what is seen on the terminal can be removed by a signal at once.
        crate::stderr::drew_above(screen.drawn);
        put(&text);
    }
    put(&screen.cleared());
    crate::stderr::drew_above(0);
}

/// One write, so that no partial frame is seen. Errors do not matter.
fn put(text: &str) {
    if !text.is_empty() {
        crate::stderr::write(format_args!("{text}"));
    }
}

/// What is on the screen, as text to write; no terminal is touched here.
struct Screen {
    show: Show,
    /// What a plain line may take.
    columns: usize,
    colour: bool,
    /// With -n: how many.
    requests: Option<u64>,
    is_timed: bool,
    /// Lines drawn last time.
    drawn: usize,
    drawn_at: Duration,
    /// The beginning of the running second, for the rate.
    mark: Mark,
    rate: f64,
    column: Mark,
    rates: VecDeque<f64>,
    tails: VecDeque<f64>,
    /// Response times of the last second that is over, as `rate` is, and of the running one.
    times: Histogram,
    recent: Histogram,
    /// Response times since `column`.
    column_times: Histogram,
}

/// Successes at a time.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    at: Duration,
    succeeded: u64,
}

impl Mark {
    /// Successes per second since then.
    fn rate(self, progress: &LoadProgress) -> f64 {
        let seconds = progress.elapsed.saturating_sub(self.at).as_secs_f64();
        (progress.succeeded - self.succeeded) as f64 / seconds.max(1e-3)
    }

    const fn of(progress: &LoadProgress) -> Self {
        Self { at: progress.elapsed, succeeded: progress.succeeded }
    }
}

impl Screen {
    fn new(show: Show, plan: &LoadPlan) -> Self {
        Self {
            colour: Terminal::stderr().colour,
            columns: if Terminal::stderr().is_watched { Terminal::stderr().drawable() } else { usize::MAX },
            ..Self::blank(show, plan.requests, plan.cell.work.phases.measure < plan::ENDLESS)
        }
    }

    /// Nothing was drawn yet, and nothing will be in colour.
    fn blank(show: Show, requests: Option<u64>, is_timed: bool) -> Self {
        Self {
            show,
            columns: usize::MAX,
            colour: false,
            requests,
            is_timed,
            drawn: 0,
            drawn_at: Duration::ZERO,
            mark: Mark::default(),
            rate: 0.0,
            column: Mark::default(),
            rates: VecDeque::new(),
            tails: VecDeque::new(),
            times: Histogram::default(),
            recent: Histogram::default(),
            column_times: Histogram::default(),
        }
    }

    fn announcement(&self, text: &str) -> String {
        if self.show == Show::Nothing {
            String::new()
        } else {
            format!("{}\n", Terminal::stderr().wrapped(text))
        }
    }

    /// Takes the news in; what to write now, if anything.
    fn progress(&mut self, now: &LoadProgress) -> String {
        self.recent.merge(&now.recent);
        self.column_times.merge(&now.recent);
        if now.elapsed.saturating_sub(self.column.at) >= COLUMN {
            remember(&mut self.rates, self.column.rate(now));
            remember(&mut self.tails, percentile(&self.column_times, 0.99).as_secs_f64());
            self.column_times = Histogram::default();
            self.column = Mark::of(now);
        }
        let every = if self.show == Show::View { DRAWN_EVERY } else { REPORT_EVERY };
        if now.elapsed.saturating_sub(self.drawn_at) < every {
            return String::new();
        }
        self.drawn_at = now.elapsed;
        // Of the first second all that has passed counts; from then on, each second.
        let is_over = now.elapsed.saturating_sub(self.mark.at) >= Duration::from_millis(900);
        if is_over || self.mark.at.is_zero() {
            self.rate = self.mark.rate(now);
        }
        if is_over {
            self.mark = Mark::of(now);
            self.times = std::mem::take(&mut self.recent);
        }
        match self.show {
            Show::Nothing => String::new(),
            Show::Lines => fit(&self.line(now), self.columns) + "\n",
            Show::View => self.draw(now),
        }
    }

    /// How far it is, of 1.
    fn share(&self, now: &LoadProgress) -> f64 {
        let of_time = if self.is_timed { now.elapsed.as_secs_f64() / now.total.as_secs_f64() } else { 0.0 };
        let ended = (now.succeeded + now.failed) as f64;
        let of_requests = self.requests.map_or(0.0, |n| ended / n as f64);
        of_time.max(of_requests).clamp(0.0, 1.0)
    }

    /// `12.0 s: 120,000 answered, 12,345/s, p50 1.20 ms, p99 3.40 ms in the last second, 3 failed, 50 in flight, 0 waiting, 50 connections`.
    fn line(&self, now: &LoadProgress) -> String {
        format!(
            "{:.1} s: {} answered, {}/s{}, {} failed, {} in flight, {} waiting, {}",
            now.elapsed.as_secs_f64(),
            count(now.succeeded),
            count(self.rate.round() as u64),
            self.latencies(),
            count(now.failed),
            count(in_flight(now)),
            count(now.waiting),
            plural(now.connections.into(), "connection"),
        )
    }

    /// `, p50 1.2 ms, p99 3.4 ms in the last second`; nothing if nothing was answered in it.
    fn latencies(&self) -> String {
        let millis = |time: Duration| {
            let millis = time.as_secs_f64() * 1e3;
            if millis < 10.0 { format!("{millis:.2} ms") } else { format!("{millis:.0} ms") }
        };
        if self.times.is_empty() {
            return String::new();
        }
        let [p50, p99] = [0.5, 0.99].map(|share| millis(percentile(&self.times, share)));
        format!(", p50 {p50}, p99 {p99} in the last second")
    }

    /// The view, drawn over the last one. The cursor is never hidden and rests below: even a killed program leaves the terminal
    /// usable.
    fn draw(&mut self, now: &LoadProgress) -> String {
        let lines = self.lines(now, Terminal::stderr().drawable().clamp(10, 100));
        let mut text = self.back();
        for line in &lines {
            let _ = writeln!(text, "{line}\x1b[K");
        }
        self.drawn = lines.len();
        text
    }

    /// To the beginning of what was drawn.
    fn back(&self) -> String {
        if self.drawn == 0 { String::new() } else { format!("\x1b[{}F", self.drawn) }
    }

    /// Removes what was drawn.
    fn cleared(&self) -> String {
        if self.drawn == 0 { String::new() } else { format!("{}\x1b[J", self.back()) }
    }

    /// The lines of the view, none wider than `width`.
    fn lines(&self, now: &LoadProgress, width: usize) -> Vec<String> {
        let elapsed = now.elapsed.as_secs_f64();
        let head = match self.requests {
            Some(n) => format!("{elapsed:.1} s  {} of {}", count(now.succeeded + now.failed), count(n)),
            None => format!("{elapsed:.1} of {:.1} s", now.total.as_secs_f64()),
        };
        let room = width.saturating_sub(head.chars().count() + 2).min(50);
        let failed = format!("{} failed", count(now.failed));
        let failed = if now.failed > 0 { self.red(&failed) } else { failed };
        let mut lines = vec![
            fit(&format!("{head}  {}", bar(self.share(now), room)), width),
            fit(
                &format!(
                    "{}/s{}, {} answered, {failed}",
                    count(self.rate.round() as u64),
                    self.latencies(),
                    count(now.succeeded)
                ),
                width,
            ),
            fit(
                &format!(
                    "{}, {} in flight, {} waiting",
                    plural(now.connections.into(), "connection"),
                    in_flight(now),
                    now.waiting
                ),
                width,
            ),
        ];
        if let Some(spark) = sparkline(&self.rates, width.saturating_sub(6)) {
            lines.push(format!("rate  {spark}"));
        }
        if let Some(spark) = sparkline(&self.tails, width.saturating_sub(6)) {
            lines.push(format!("p99   {spark}"));
        }
        lines
    }

    fn red(&self, text: &str) -> String {
        if self.colour { format!("\x1b[31m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// By nearest rank.
fn percentile(times: &Histogram, share: f64) -> Duration {
    times.at_rank((times.n() as f64 * share).ceil() as u64)
}

/// Requests that were sent and have not ended.
const fn in_flight(now: &LoadProgress) -> u64 {
    now.due.saturating_sub(now.succeeded + now.failed + now.waiting)
}

fn remember(past: &mut VecDeque<f64>, value: f64) {
    if past.len() == COLUMNS {
        past.pop_front();
    }
    past.push_back(value);
}

/// The last values as blocks, the highest of them full; `None` if there is none.
fn sparkline(values: &VecDeque<f64>, width: usize) -> Option<String> {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = || values.iter().skip(values.len().saturating_sub(width));
    let highest = shown().copied().reduce(f64::max)?;
    let block =
        |value: &f64| BLOCKS[((value / highest.max(f64::MIN_POSITIVE) * 7.0).round() as usize).min(7)];
    Some(shown().map(block).collect())
}

/// Cuts `text` to `width` columns; escape sequences take none.
fn fit(text: &str, width: usize) -> String {
    let (mut out, mut column, mut in_escape) = (String::new(), 0, false);
    for c in text.chars() {
        in_escape |= c == '\x1b';
        if in_escape || column < width {
            out.push(c);
        }
        column += usize::from(!in_escape);
        in_escape &= c != 'm';
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(show: Show) -> Screen {
        Screen::blank(show, None, true)
    }

    fn at(millis: u64, succeeded: u64) -> LoadProgress {
        let (elapsed, total) = (Duration::from_millis(millis), Duration::from_secs(10));
        LoadProgress {
            elapsed,
            total,
            due: succeeded + 7,
            succeeded,
            failed: 2,
            waiting: 1,
            ..LoadProgress::default()
        }
    }

    #[test]
    fn a_line_comes_about_once_a_second() {
        let mut screen = screen(Show::Lines);
        let lines: Vec<String> =
            (1..=30).map(|k| screen.progress(&at(k * 100, k * 50))).filter(|text| !text.is_empty()).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines[1].starts_with("2.0 s: 1,000 answered, 500/s, 2 failed, 4 in flight, 1 waiting"),
            "{}",
            lines[1]
        );
        assert!(lines.iter().all(|line| !line.contains('\x1b')));
    }

    #[test]
    fn the_rate_of_the_first_second_follows_what_has_been_answered() {
        let mut screen = screen(Show::View);
        // Connections are made for 300 ms; then 1,000 requests per second succeed.
        let rates = [300, 600, 850, 1_100].map(|millis| {
            screen.progress(&at(millis, millis.saturating_sub(300)));
            screen.rate.round() as u64
        });
        assert_eq!(rates, [0, 500, 647, 727]);
        screen.progress(&at(2_100, 1_800));
        assert_eq!(screen.rate.round() as u64, 1_000, "of the last second");
    }

    #[test]
    fn percentiles_are_of_all_response_times_of_the_last_second_and_of_no_earlier_one() {
        let mut screen = screen(Show::Lines);
        // Ten reports a second, of a hundred requests each; in one report of each second, three are slow.
        let reported = |k: u64| {
            let slow = if k % 10 == 5 { 3 } else { 0 };
            let times = (0..100).map(|n| Duration::from_millis(if n < slow { 50 } else { k.div_ceil(10) }));
            LoadProgress { recent: Histogram::of(times), ..at(k * 100, k * 100) }
        };
        let lines: Vec<String> =
            (1..=20).map(|k| screen.progress(&reported(k))).filter(|text| !text.is_empty()).collect();
        assert!(lines[1].contains(", p50 2.00 ms, p99 2.00 ms in the last second, "), "{}", lines[1]);
    }

    #[test]
    fn nothing_of_the_view_is_wider_than_the_terminal() {
        for width in [20, 40, 80] {
            let mut screen = screen(Show::View);
            for k in 1..200 {
                screen.progress(&at(k * 500, k * k));
            }
            for line in screen.lines(&at(5_000, 123_456_789), width) {
                assert!(line.chars().count() <= width.max(20), "{width}: {line}");
            }
        }
    }

    #[test]
    fn what_was_drawn_is_removed_and_without_drawing_nothing_is() {
        let mut screen = screen(Show::View);
        assert_eq!(screen.cleared(), "");
        screen.drawn = 4;
        assert_eq!(screen.cleared(), "\x1b[4F\x1b[J");
    }

    #[test]
    fn a_sparkline_shows_the_last_values_against_their_highest() {
        let values = VecDeque::from([9.0, 0.0, 3.5, 7.0]);
        assert_eq!(sparkline(&values, 3).as_deref(), Some("▁▅█"));
        assert_eq!(sparkline(&VecDeque::new(), 3), None);
    }

    #[test]
    fn escape_sequences_take_no_room() {
        assert_eq!(fit("a\x1b[31mbc\x1b[0md", 2), "a\x1b[31mb\x1b[0m");
    }
}
