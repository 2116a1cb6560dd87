//! The one place for scales, ticks and axes of every plot.

use super::svg::{Anchor, Svg};
use crate::format;

/// Maps values to places along an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// Equal differences are equal lengths.
    Linear {
        /// The value at the beginning.
        from: f64,
        /// The value at the end.
        to: f64,
    },
    /// Equal ratios are equal lengths; both ends are above 0.
    Log {
        /// The value at the beginning.
        from: f64,
        /// The value at the end.
        to: f64,
    },
    /// Shares from 0.5 to `to` (below 1), such that 90 %, 99 % and 99.9 % are equally far apart.
    Percentile {
        /// The share at the end.
        to: f64,
    },
}

/// A mark on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub value: f64,
    /// Empty for a minor tick.
    pub label: String,
}

impl Scale {
    /// A linear scale from 0 that shows `largest`, ending at a round value.
    pub fn linear(largest: f64) -> Self {
        let step = round_step(largest / 5.0);
        Self::Linear { from: 0.0, to: (largest / step).ceil().max(1.0) * step }
    }

    /// A logarithmic scale that shows both values, ending at small multiples of powers of ten.
    pub fn log(smallest: f64, largest: f64) -> Self {
        let from = round_down(smallest.max(1e-6));
        let to = round_up(largest.max(from * 1.01), &ENDS);
        Self::Log { from, to }
    }

    /// Linear if the values lie within a factor of 20, else logarithmic.
    pub fn fitting(smallest: f64, largest: f64) -> Self {
        if smallest > 0.0 && largest / smallest > 20.0 {
            Self::log(smallest, largest)
        } else {
            Self::linear(largest)
        }
    }

    /// The position of `value`: 0 at the beginning, 1 at the end; values outside are clamped.
    pub fn position(self, value: f64) -> f64 {
        let position = match self {
            Self::Linear { from, to } => (value - from) / (to - from),
            Self::Log { from, to } => (value.max(f64::MIN_POSITIVE) / from).ln() / (to / from).ln(),
            Self::Percentile { to } => ((1.0 - value).ln() - 0.5_f64.ln()) / ((1.0 - to).ln() - 0.5_f64.ln()),
        };
        if position.is_nan() { 0.0 } else { position.clamp(0.0, 1.0) }
    }

    /// Round values on the scale. The labels carry no unit: the axis' title does.
    pub fn ticks(self) -> Vec<Tick> {
        match self {
            Self::Linear { from, to } => {
                let step = round_step((to - from) / 7.0);
                let n = ((to - from) / step + 1e-9).floor() as u32;
                let values = (0..=n).map(|i| from + f64::from(i) * step);
                let digits = digits(step);
                values.map(|value| Tick { value, label: label(value, digits) }).collect()
            }
            Self::Log { from, to } => log_ticks(from, to),
            Self::Percentile { to } => [0.5, 0.9, 0.95, 0.99, 0.995, 0.999]
                .into_iter()
                .filter(|&share| share <= to + 1e-9)
                .map(|value| Tick { value, label: format!("{}%", (value * 1000.0).round() / 10.0) })
                .collect(),
        }
    }

    /// Whether it is logarithmic, which the axis' title states.
    pub const fn is_log(self) -> bool {
        matches!(self, Self::Log { .. })
    }
}

/// Where a logarithmic scale may end, times a power of ten.
const ENDS: [f64; 7] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0];
/// Steps of a linear scale, times a power of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// Round multiples of powers of ten, more of them for fewer decades.
fn log_ticks(from: f64, to: f64) -> Vec<Tick> {
    let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
    let (factors, labelled): (&[f64], &[f64]) = match to / from {
        ratio if ratio <= 5.0 => (&[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], &[]),
        ratio if ratio <= 2e3 => (&[1.0, 2.0, 5.0], &[]),
        _ => (&[1.0, 2.0, 5.0], &[1.0]),
    };
    let mut ticks = Vec::new();
    for exponent in first..=last {
        for factor in factors {
            let value = factor * 10_f64.powi(exponent);
            if value >= from * 0.999 && value <= to * 1.001 {
                let named = labelled.is_empty() || labelled.contains(factor);
                let label = if named { label(value, digits(value)) } else { String::new() };
                ticks.push(Tick { value, label });
            }
        }
    }
    ticks
}

/// The decimals that a round value needs.
fn digits(value: f64) -> usize {
    const MOST: i32 = 12;
    let is_whole = |digits: &i32| {
        let scaled = (value * 10_f64.powi(*digits)).abs();
        let whole = scaled.round();
        whole >= 1.0 && (scaled - whole).abs() < 1e-6 * whole
    };
    (0..MOST).find(is_whole).unwrap_or(MOST) as usize
}

/// A value with `digits` decimals.
fn label(value: f64, digits: usize) -> String {
    match digits {
        0 => format::count(value.round() as u64),
        _ if value == 0.0 => "0".to_owned(),
        _ => format!("{value:.digits$}"),
    }
}

/// A unit for an axis, and for all labels beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Unit {
    /// Its name: `ms`.
    pub name: &'static str,
    /// How many milliseconds, or bits per second, it is.
    size: f64,
}

impl Unit {
    /// The unit of times up to this, in milliseconds.
    pub fn of_time(largest_ms: f64) -> Self {
        let of = |name, size| Self { name, size };
        match largest_ms {
            ms if ms >= 20_000.0 => of("s", 1e3),
            ms if ms < 1.0 => of("µs", 1e-3),
            _ => of("ms", 1.0),
        }
    }

    /// The unit of rates up to this, in bits per second.
    pub fn of_rate(largest_bps: f64) -> Self {
        let of = |name, size| Self { name, size };
        match largest_bps {
            bps if bps >= 2e9 => of("Gbit/s", 1e9),
            bps if bps < 2e6 => of("kbit/s", 1e3),
            _ => of("Mbit/s", 1e6),
        }
    }

    /// A value in this unit.
    pub fn scaled(self, value: f64) -> f64 {
        value / self.size
    }

    /// A value with this unit: `231 ms`.
    pub fn text(self, value: f64) -> String {
        format!("{} {}", format::number(self.scaled(value)), self.name)
    }
}

/// The largest end at or below `value`.
fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf((value * 1.000_001).log10().floor());
    ENDS.into_iter().rev().map(|f| f * power).find(|&v| v <= value * 1.000_001).unwrap_or(power)
}

/// The smallest of these multiples of a power of ten at or above `value`.
fn round_up(value: f64, factors: &[f64]) -> f64 {
    let power = 10_f64.powf((value * 0.999_999).log10().floor());
    factors.iter().map(|f| f * power).find(|&v| v >= value * 0.999_999).unwrap_or(10.0 * power)
}

/// A round step of about this size.
fn round_step(size: f64) -> f64 {
    if size > 0.0 { round_up(size, &STEPS) } else { 1.0 }
}

/// The plotting area of a picture and its two scales.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlotArea {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    pub x: Scale,
    pub y: Scale,
}

impl PlotArea {
    /// The distance of `value` from the left edge of the picture.
    pub fn at_x(&self, value: f64) -> f64 {
        self.left + self.x.position(value) * self.width
    }

    /// The distance of `value` from the top edge of the picture.
    pub fn at_y(&self, value: f64) -> f64 {
        self.top + (1.0 - self.y.position(value)) * self.height
    }

    /// The bottom edge of the area.
    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// The right edge of the area.
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    /// Grid, ticks and title of the horizontal axis, `below` units under the area. A label that would touch the one before is
    /// left out.
    pub fn draw_x(&self, svg: &mut Svg, title: &str, below: f64) {
        const CHARACTER: f64 = 7.4;
        let mut free = f64::NEG_INFINITY;
        for tick in self.x.ticks() {
            let x = self.at_x(tick.value);
            let half = CHARACTER * tick.label.chars().count() as f64 / 2.0;
            let has_room = !tick.label.is_empty() && x - half >= free;
            svg.line(if has_room { "grid" } else { "grid minor" }, (x, self.top), (x, self.bottom()));
            if has_room {
                svg.text("tick", (x, self.bottom() + below + 15.0), Anchor::Middle, &tick.label);
                free = x + half + CHARACTER;
            }
        }
        svg.line("axis", (self.left, self.bottom()), (self.right(), self.bottom()));
        let middle = self.left + self.width / 2.0;
        svg.text("title", (middle, self.bottom() + below + 33.0), Anchor::Middle, title);
    }

    /// Grid, ticks and title of the vertical axis; the title is above it.
    pub fn draw_y(&self, svg: &mut Svg, title: &str) {
        for tick in self.y.ticks() {
            let y = self.at_y(tick.value);
            let class = if tick.label.is_empty() { "grid minor" } else { "grid" };
            svg.line(class, (self.left, y), (self.right(), y));
            svg.text("tick", (self.left - 6.0, y + 4.0), Anchor::End, &tick.label);
        }
        svg.line("axis", (self.left, self.top), (self.left, self.bottom()));
        svg.text("title", (4.0, self.top - 11.0), Anchor::Start, title);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|tick| tick.label).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn scales_end_at_round_values() {
        assert_eq!(Scale::linear(263.0), Scale::Linear { from: 0.0, to: 300.0 });
        assert_eq!(Scale::log(25.1, 797.0), Scale::Log { from: 20.0, to: 1000.0 });
        assert_eq!(Scale::log(25.1, 25.8), Scale::Log { from: 20.0, to: 30.0 });
        assert_eq!(Scale::fitting(25.0, 300.0), Scale::linear(300.0));
        assert_eq!(Scale::fitting(25.0, 3000.0), Scale::log(25.0, 3000.0));
    }

    #[test]
    fn ticks_are_round_and_within_the_scale() {
        assert_eq!(labels(Scale::linear(263.0)), ["0", "50", "100", "150", "200", "250", "300"]);
        assert_eq!(labels(Scale::log(25.1, 797.0)), ["20", "50", "100", "200", "500", "1,000"]);
        assert_eq!(labels(Scale::log(25.1, 25.8)), ["20", "25", "30"]);
        assert_eq!(labels(Scale::log(0.1, 9_000.0)), ["0.1", "1", "10", "100", "1,000", "10,000"]);
        assert_eq!(labels(Scale::Percentile { to: 0.99 }), ["50%", "90%", "95%", "99%"]);
    }

    #[test]
    fn the_labels_of_an_axis_are_distinct_and_have_the_same_decimals() {
        assert_eq!(labels(Scale::linear(0.000_7)), ["0", "0.0002", "0.0004", "0.0006", "0.0008"]);
        assert_eq!(labels(Scale::linear(2.1)), ["0", "0.5", "1.0", "1.5", "2.0", "2.5"]);
        for exponent in -9..9 {
            for factor in [1.0, 1.3, 2.0, 2.6, 3.7, 5.0, 8.1] {
                let largest = factor * 10_f64.powi(exponent);
                for scale in [
                    Scale::linear(largest),
                    Scale::log(largest / 3.0, largest),
                    Scale::log(largest / 4e4, largest),
                ] {
                    let labels = labels(scale);
                    let distinct: std::collections::BTreeSet<&String> = labels.iter().collect();
                    assert!(labels.len() > 1 && distinct.len() == labels.len(), "{largest}: {labels:?}");
                }
            }
        }
    }

    #[test]
    fn a_unit_suits_the_largest_value_and_all_values_have_it() {
        let names = [0.2, 1.0, 300.0, 19_000.0, 20_000.0].map(|ms| Unit::of_time(ms).name);
        assert_eq!(names, ["µs", "ms", "ms", "ms", "s"]);
        assert_eq!(Unit::of_time(0.2).text(0.05), "50 µs");
        let names = [1e6, 2e6, 1.5e9, 4e9].map(|bps| Unit::of_rate(bps).name);
        assert_eq!(names, ["kbit/s", "Mbit/s", "Mbit/s", "Gbit/s"]);
        assert_eq!(Unit::of_rate(4e9).text(250e6), "0.250 Gbit/s");
    }

    #[test]
    fn positions_run_from_0_to_1_and_never_leave() {
        let log = Scale::Log { from: 10.0, to: 1000.0 };
        assert_eq!(
            [1.0, 10.0, 100.0, 1e6].map(|v| (log.position(v) * 100.0).round() as u32),
            [0, 0, 50, 100]
        );
        let shares = Scale::Percentile { to: 0.999 };
        let step = |a: f64, b: f64| shares.position(b) - shares.position(a);
        assert!((step(0.9, 0.99) - step(0.99, 0.999)).abs() < 1e-9);
        assert!(Scale::Linear { from: 0.0, to: 0.0 }.position(0.0).abs() < 1e-9);
    }
}
