//! What findings leave of a difference.

use super::place;
use crate::Report;

/// Where findings explain this part of a difference or more, nothing is said to be left.
const WHOLE: f64 = 0.99;

/// The part of each difference that its findings leave unexplained, 0 to 1, with the index of the cell that they are
/// about, in the order of the findings. A difference that they do not divide is left out.
pub(crate) fn unexplained(report: &Report<'_>) -> Vec<(u32, f64)> {
    let mut explained: Vec<(u32, f64)> = Vec::new();
    for finding in report.findings {
        let Some(part) = finding.explains.filter(|part| *part > 0.0) else { continue };
        match explained.iter_mut().find(|(cell, _)| *cell == finding.cell) {
            Some((_, sum)) => *sum += part,
            None => explained.push((finding.cell, part)),
        }
    }
    explained.retain(|(_, sum)| *sum < WHOLE);
    explained.into_iter().map(|(cell, sum)| (cell, 1.0 - sum)).collect()
}

/// The same in words: `unexplained: 41 % of the difference of h2c × 1 at 3% loss`.
pub(crate) fn unexplained_lines(report: &Report<'_>) -> Vec<String> {
    let line = |(cell, part): (u32, f64)| {
        let finding = report.findings.iter().find(|finding| finding.cell == cell)?;
        Some(format!("unexplained: {:.0} % of the difference of {}", part * 100.0, place(report, finding)))
    };
    unexplained(report).into_iter().filter_map(line).collect()
}
