//! What slow requests, those above the p95 of their repetition, waited for, by cell: the words and rows that all forms of the
//! report share.

use std::fmt::Write;
use std::time::Duration;

use super::format::{count, millis, millis_unit, plural};
use super::style::{Paint, TextStyle, painted, paragraph};
use super::table::{Column, name, number};
use super::{Report, condition, fold};
use h2lab_analysis::diagnose::of_wait;
use h2lab_analysis::diagnose::waits::{Cause, CauseKind, Doubt, LatencyBreakdown, Split, Waits};
use h2lab_analysis::stats::CellSummary;

/// What the slow requests of a repetition waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The cell's index in the matrix.
    pub cell: u32,
    /// Which repetition of it, from 0.
    pub repetition: u32,
    /// What was found.
    pub waits: Waits,
}

/// The slow requests of all repetitions of a cell.
#[derive(Debug)]
pub(super) struct Tail<'a> {
    /// The repetitions, in their order.
    pub repetitions: Vec<&'a Explained>,
    /// The time of all of them, by cause.
    pub split: Split,
    /// It speaks HTTP/3, where no segment blocks what came behind it.
    is_quic: bool,
}

/// Causes that took this share of the time of slow requests are explained.
const EXPLAINED: f64 = 0.1;

impl<'a> Tail<'a> {
    /// The slow requests of a cell; `None` if their causes were not asked for.
    pub fn of(report: &Report<'a>, cell: u32) -> Option<Self> {
        let mut repetitions: Vec<&Explained> =
            report.causes.iter().filter(|measured| measured.cell == cell).collect();
        repetitions.sort_by_key(|measured| measured.repetition);
        let mut split = Split::default();
        for measured in &repetitions {
            split.merge(&measured.waits.split);
        }
        let cells = &report.analysis.cells;
        let own = cells.iter().find(|summary| summary.cell.index == cell);
        let is_quic = own.is_some_and(|summary| summary.cell.protocol.is_quic());
        (!repetitions.is_empty()).then_some(Self { repetitions, split, is_quic })
    }

    /// Every latency breakdown with the repetition that it is of, the slowest first.
    pub fn slowest(&self) -> Vec<(u32, &'a LatencyBreakdown)> {
        let of_repetition = |measured: &&'a Explained| {
            let repetition = measured.repetition;
            measured.waits.breakdowns.iter().map(move |breakdown| (repetition, breakdown)).collect::<Vec<_>>()
        };
        let mut breakdowns: Vec<(u32, &LatencyBreakdown)> =
            self.repetitions.iter().flat_map(of_repetition).collect();
        breakdowns.sort_by_key(|(_, breakdown)| {
            std::cmp::Reverse(breakdown.completed_at.since(breakdown.scheduled_at))
        });
        breakdowns
    }

    /// The notes beside the figures: how slow is slow, how losses were repaired, and what is unknown.
    pub fn notes(&self) -> Vec<String> {
        let split = &self.split;
        let bounds = self.repetitions.iter().map(|measured| measured.waits.slower_than());
        let slow = match (bounds.clone().min(), bounds.max()) {
            (Some(least), Some(most)) if least != most => {
                format!("{} to {}", millis(least), millis_unit(most))
            }
            (Some(bound), _) => millis_unit(bound),
            _ => return Vec::new(),
        };
        let mut notes = Vec::new();
        if self.unsupported().is_none() {
            notes.push(format!("{} took longer than {slow}", plural(split.requests, "request")));
        }
        let breakdowns = self.repetitions.iter().flat_map(|measured| &measured.waits.breakdowns);
        let kept = breakdowns.filter(|breakdown| breakdown.never_went()).count();
        if kept > 0 {
            notes.push(format!("{} of them did not enter the link", count(kept as u64)));
        }
        let lost: u64 = split.repairs_ns.values().sum();
        if lost > 0 {
            let repairs = split.repairs_ns.iter();
            let repairs: Vec<String> = repairs
                .map(|(repair, time)| format!("{} {}", repair.name(), percent(*time as f64 / lost as f64)))
                .collect();
            notes.push(format!("waits for lost segments were ended by: {}", repairs.join(", ")));
        }
        notes.extend(self.cut_by_losses());
        let explained = split.parts.keys().filter(|kind| split.share(**kind) >= EXPLAINED);
        let explained =
            explained.filter_map(|kind| Some(format!("{} ({})", of_wait(*kind)?.id, kind.name())));
        let explained = explained.collect::<Vec<_>>().join(", ");
        if !explained.is_empty() {
            notes.push(format!("more: h2lab explain {explained}"));
        }
        notes.extend(self.doubts().iter().map(Doubt::to_string));
        notes
    }

    /// How much of the waiting for the congestion window follows on a loss: LOSS101 counts the rest of what losses cost.
    fn cut_by_losses(&self) -> Option<String> {
        let intervals = self
            .repetitions
            .iter()
            .flat_map(|measured| &measured.waits.breakdowns)
            .flat_map(|breakdown| &breakdown.intervals);
        let (mut all, mut after_loss) = (Duration::ZERO, Duration::ZERO);
        for interval in intervals {
            if let Cause::CongestionWindow { after } = interval.cause {
                all += interval.length();
                after_loss += if after.is_some() { interval.length() } else { Duration::ZERO };
            }
        }
        if self.split.share(CauseKind::CongestionWindow) < EXPLAINED || after_loss.is_zero() {
            return None;
        }
        let share = percent(after_loss.as_secs_f64() / all.as_secs_f64());
        let rule = if self.is_quic {
            ""
        } else {
            "; LOSS101 counts apart from that, and of all requests, what waited behind a missing segment"
        };
        Some(format!(
            "{share} of the waiting for the congestion window followed on a loss that had cut it{rule}"
        ))
    }

    /// Why the cell has no causes, if there can be none: then no time of it is `unknown` either.
    pub fn unsupported(&self) -> Option<String> {
        let doubts = self.doubts();
        doubts.iter().find(|doubt| matches!(doubt, Doubt::Quic { .. })).map(Doubt::to_string)
    }

    /// The doubts of all repetitions, those of one kind added up.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut sums: Vec<Doubt> = Vec::new();
        for doubt in self.repetitions.iter().flat_map(|measured| &measured.waits.doubts) {
            let same =
                sums.iter_mut().find(|sum| std::mem::discriminant(*sum) == std::mem::discriminant(doubt));
            match same {
                Some(sum) => add(sum, doubt),
                None => sums.push(doubt.clone()),
            }
        }
        sums
    }
}

/// Adds the count of a doubt to another one of its kind.
fn add(sum: &mut Doubt, more: &Doubt) {
    match (sum, more) {
        (Doubt::NoKeys { connections: n }, Doubt::NoKeys { connections: m })
        | (Doubt::BeganMidFlow { connections: n }, Doubt::BeganMidFlow { connections: m })
        | (Doubt::BytesMissing { connections: n }, Doubt::BytesMissing { connections: m })
        | (Doubt::NotHttp { connections: n }, Doubt::NotHttp { connections: m })
        | (Doubt::NotFound { requests: n }, Doubt::NotFound { requests: m }) => *n += m,
        (
            Doubt::Quic { requests, beside_drops },
            Doubt::Quic { requests: more, beside_drops: more_beside },
        ) => {
            *requests += more;
            *beside_drops += more_beside;
        }
        _ => {}
    }
}

/// A share in whole per cent, at least 1.
pub(super) fn percent(share: f64) -> String {
    match share {
        0.0 => "-".to_owned(),
        share if share < 0.01 => "<1%".to_owned(),
        share => format!("{:.0}%", share * 100.0),
    }
}

/// The title of a cause's column, in two lines.
const fn title(kind: CauseKind) -> (&'static str, &'static str) {
    match kind {
        CauseKind::OwnLoss => ("own", "loss"),
        CauseKind::HeadOfLine => ("other's", "loss"),
        CauseKind::UnnamedLoss => ("some", "loss"),
        CauseKind::HandshakeLoss => ("handsh.", "loss"),
        CauseKind::Handshake => ("hand-", "shake"),
        CauseKind::CongestionWindow => ("congest.", "window"),
        CauseKind::FlowWindow => ("flow", "window"),
        CauseKind::StreamSlot => ("stream", "slot"),
        CauseKind::Server => ("server", ""),
        CauseKind::Client => ("client", ""),
        CauseKind::Queue => ("link", "queue"),
        CauseKind::Propagation => ("link", "delay"),
        CauseKind::Unknown => ("un-", "known"),
    }
}

/// A table of the cells of a group.
#[derive(Debug)]
pub(super) struct Table<'a> {
    /// The first is the cell's name.
    pub columns: Vec<Column>,
    /// Each cell, its figures under the columns, and its notes.
    pub rows: Vec<(&'a CellSummary, Vec<String>, Vec<String>)>,
}

/// The line beneath the table's heading.
pub(super) const LEGEND: &str = "share of the time of slow requests (above their repetition's p95), and number of \
     requests with this main cause";

/// What the slow requests of a group's cells waited for; `None` if no cell was analysed.
pub(super) fn table<'a>(report: &Report<'_>, group: &[&'a CellSummary]) -> Option<Table<'a>> {
    let tails = group.iter().filter_map(|summary| Some((*summary, Tail::of(report, summary.cell.index)?)));
    let tails: Vec<(&CellSummary, Tail<'_>)> = tails.collect();
    if tails.is_empty() {
        return None;
    }
    let occurs = |kind: &CauseKind| tails.iter().any(|(_, tail)| tail.split.parts.contains_key(kind));
    // A column of zeros for the unknown is informative.
    let kinds: Vec<CauseKind> =
        CauseKind::ALL.iter().copied().filter(|kind| *kind == CauseKind::Unknown || occurs(kind)).collect();
    let columns = kinds.iter().map(|kind| number(title(*kind).0, title(*kind).1).goes_on());
    let row = |(summary, tail): (&'a CellSummary, Tail<'_>)| {
        let is_reported = tail.unsupported().is_none();
        let figures = kinds.iter().map(|kind| {
            if !is_reported {
                return String::new();
            }
            let requests = tail.split.parts.get(kind).map_or(0, |part| part.requests);
            let rendered = if requests > 0 { format!(" {}", count(requests)) } else { String::new() };
            percent(tail.split.share(*kind)) + &rendered
        });
        (summary, std::iter::once(summary.label.clone()).chain(figures).collect(), tail.notes())
    };
    Some(Table {
        columns: std::iter::once(name("cell")).chain(columns).collect(),
        rows: tails.into_iter().map(row).collect(),
    })
}

/// Writes the tables of all groups that have one.
pub(super) fn text(out: &mut String, report: &Report<'_>, style: TextStyle) {
    let groups = report.analysis.groups();
    let tables: Vec<_> = groups.iter().filter_map(|group| Some((group, table(report, group)?))).collect();
    if tables.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", style.paint(Paint::Bold, "Where the time of slow requests went"));
    paragraph(out, style, "", LEGEND);
    for (group, table) in &tables {
        painted(out, style, Paint::Bold, "", &condition::heading(report, group));
        let rows: Vec<Vec<String>> = table.rows.iter().map(|(_, row, _)| row.clone()).collect();
        let folded = fold::fold(&table.columns, &rows, style);
        for line in &folded.header {
            let _ = writeln!(out, "{}", style.paint(Paint::Dim, line));
        }
        for (line, (_, _, notes)) in folded.rows.iter().zip(&table.rows) {
            let _ = writeln!(out, "{line}");
            paragraph(out, style, "  ", &notes.join("; "));
        }
        if let Some(note) = &folded.note {
            painted(out, style, Paint::Dim, "", note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::*;
    use h2lab_analysis::diagnose::waits::Drop;
    use h2lab_base::units::Time;
    use h2lab_wire::trace::Direction;

    #[test]
    fn the_table_says_where_the_time_went_and_what_it_rests_on() {
        let fixture = Fixture::explained();
        let mut out = String::new();
        text(&mut out, &fixture.report(), TextStyle::default());
        insta::assert_snapshot!(out);
    }

    #[test]
    fn without_causes_nothing_is_said() {
        let mut out = String::new();
        text(&mut out, &Fixture::new().report(), TextStyle::default());
        assert_eq!(out, "");
    }

    #[test]
    fn shares_are_never_rounded_to_nothing() {
        assert_eq!([0.0, 0.004, 0.01, 0.996, 1.0].map(percent), ["-", "<1%", "1%", "100%", "100%"]);
    }

    #[test]
    fn doubts_of_several_repetitions_are_one_sentence() {
        let fixture = Fixture::explained();
        let tail = Tail::of(&fixture.report(), 5).unwrap();
        assert_eq!(tail.repetitions.len(), 2);
        assert_eq!(tail.doubts(), [Doubt::NotFound { requests: 4 }]);
    }

    #[test]
    fn requests_that_never_entered_the_link_are_counted() {
        let mut fixture = Fixture::explained();
        let rendered = |fixture: &Fixture| Tail::of(&fixture.report(), 5).unwrap().notes()[1].clone();
        assert!(!rendered(&fixture).contains("did not enter"));
        let breakdown = &mut fixture.causes[0].waits.breakdowns[0];
        breakdown.place = None;
        for interval in &mut breakdown.intervals {
            interval.cause = Cause::CongestionWindow { after: None };
        }
        assert_eq!(rendered(&fixture), "1 of them did not enter the link");
        fixture.causes[0].waits.breakdowns[0].intervals[0].cause = Cause::Unknown;
        assert!(!rendered(&fixture).contains("did not enter"), "that is not known then");
    }

    #[test]
    fn waits_for_a_window_that_a_loss_had_cut_are_told_apart_from_those_behind_the_segment() {
        let mut fixture = Fixture::explained();
        let told = |fixture: &Fixture| {
            let notes = Tail::of(&fixture.report(), 5).unwrap().notes();
            notes.into_iter().find(|note| note.contains("LOSS101"))
        };
        let drop = Drop { direction: Direction::Down, index: 7, at: Time::ZERO };
        let set = |fixture: &mut Fixture, after: Option<Drop>| {
            for measured in &mut fixture.causes {
                for breakdown in &mut measured.waits.breakdowns {
                    breakdown.intervals.iter_mut().for_each(|interval| {
                        interval.cause = Cause::CongestionWindow { after };
                    });
                }
                measured.waits.split = measured.waits.breakdowns.iter().collect();
            }
        };
        set(&mut fixture, None);
        assert_eq!(told(&fixture), None, "no loss had cut it");
        set(&mut fixture, Some(drop));
        let note = told(&fixture).unwrap();
        assert!(
            note.starts_with("100% of the waiting for the congestion window followed on a loss"),
            "{note}"
        );
        let cell = fixture.analysis.cells.iter_mut().find(|summary| summary.cell.index == 5).unwrap();
        cell.cell.protocol = h2lab_model::workload::Protocol::H3;
        assert_eq!(told(&fixture), None, "LOSS101 is TCP's");
    }

    #[test]
    fn of_http3_without_secrets_it_is_said_why_there_is_no_breakdown_and_nothing_is_unknown() {
        let fixture = Fixture::unsupported();
        let report = fixture.report();
        let tail = Tail::of(&report, 5).unwrap();
        let why = "unsupported: no TLS secrets open QUIC's packets, so that what 10 slow requests waited for is \
                   not known; while 6 of them lasted, a datagram of their connection was lost";
        assert_eq!(tail.notes(), [why]);
        let summary = report.analysis.cells.iter().find(|summary| summary.cell.index == 5).unwrap();
        let table = table(&report, &[summary]).unwrap();
        assert_eq!(table.rows[0].1[1..], [""]);
    }
}
