//! At which hop a difference, and the time of a request, arises where a proxy stands in front of the server.

use std::time::Duration;

use h2lab_analysis::experiment::Hop;
use h2lab_analysis::stats::{CellVerdict, Conclusion, RatioInterval};

use super::Diagnosis;
use crate::format::{bound, millis_unit};
use crate::sentences;

impl Diagnosis<'_> {
    /// Where the difference arises, if the server itself was measured too, and how much longer a request takes through
    /// the proxy, over each protocol.
    pub(super) fn hop(&self) -> Vec<String> {
        let hops = &self.experiment.hops;
        if !self.is_via || self.report.run.interrupted && hops.is_empty() {
            return Vec::new();
        }
        let verdicts = [&self.experiment.verdict, &self.experiment.direct].into_iter().flatten();
        let floor = verdicts.map(|verdict| verdict.floor).max().unwrap_or_default();
        let mut said: Vec<String> = self.difference_at_hops().into_iter().chain(self.share(floor)).collect();
        said.extend(hops.iter().map(|hop| time_at_hops(hop, floor)));
        if hops.is_empty() {
            let why = "the server itself and the proxy have no protocol in common";
            said.push(format!("How much longer a request takes through the proxy is not known: {why}."));
        }
        said
    }

    /// At which hop the difference between the protocols arises.
    fn difference_at_hops(&self) -> Option<String> {
        let via = self.experiment.verdict.as_ref()?;
        let Some(direct) = self.experiment.direct.as_ref() else {
            let [alone, _] = self.experiment.hops.first()?.protocols;
            let arises = if is_slower(via) { ", and its difference arises there or before it" } else { "" };
            let ends = if alone.is_multiplexed() { "HTTP/1.1" } else { "HTTP/2" };
            return Some(format!(
                "The server itself speaks {alone} alone: {ends} ends at the proxy{arises}."
            ));
        };
        let carries = direct.conclusion != Conclusion::BothUnstable;
        let place = match (is_slower(via), is_slower_as(via, direct)) {
            _ if via.conclusion == Conclusion::BothUnstable && carries => {
                "the proxy, or what is between it and the client, does not carry this load in either protocol"
            }
            (true, false) if is_carried_only_directly(via, direct) => {
                "this load is carried there, so the difference arises at the proxy, or between it and the client"
            }
            (true, true) if is_carried_only_directly(via, direct) => {
                "this load is carried there: what keeps it from being carried through the proxy is at the proxy, \
                 or between it and the client"
            }
            (true, false) if direct.is_no_slower() => {
                "the difference arises at the proxy, or between it and the client"
            }
            (true, true) => "it is so without the proxy as well, which is not the only cause",
            (false, true) if via.is_no_slower() => {
                "clients of the proxy do not notice, since it is the proxy that speaks to the server"
            }
            (true, false) if self.is_proxy_slower() => {
                "whether it is so there is not known, but most of the time arises at the proxy, \
                 or between it and the client"
            }
            _ => "nothing is known of where a difference arises",
        };
        Some(format!("At the server itself: {}; {place}.", sentences::headline(&self.report, direct)))
    }

    /// The median response times at the server itself and through the proxy, over HTTP/2 or what else multiplexes.
    fn multiplexed(&self) -> Option<[Duration; 2]> {
        let is_its = |hop: &&Hop| hop.protocols.iter().all(|protocol| protocol.is_multiplexed());
        self.experiment.hops.iter().find(is_its)?.medians.as_ref().ok().copied()
    }

    /// Whether most of the time of a request over HTTP/2 arises behind the server itself.
    fn is_proxy_slower(&self) -> bool {
        self.multiplexed().is_some_and(|[direct, via]| via > direct * 2)
    }

    /// Which part arises at the server itself: of the difference between the protocols where HTTP/2 is slower through the
    /// proxy, else of its own response time.
    fn share(&self, floor: Duration) -> Option<String> {
        let slower = self.experiment.verdict.as_ref().filter(|via| is_slower(via));
        slower.map_or_else(|| self.share_of_time(floor), |via| self.share_of_difference(via))
    }

    /// Which part of the difference between the protocols the server itself has; nothing if it is not known to have one.
    fn share_of_difference(&self, via: &CellVerdict) -> Option<String> {
        let direct = self.experiment.direct.as_ref().filter(|direct| is_slower_as(via, direct))?;
        let [at_server, at_proxy] = [compared(via, direct)?, compared(via, via)?];
        // A p95 and a p99 are not parts of each other.
        if at_server.share.to_bits() != at_proxy.share.to_bits() {
            return None;
        }
        let more = |of: RatioInterval| of.candidate.saturating_sub(of.baseline);
        let [server, proxy] = [more(at_server), more(at_proxy)];
        if proxy.is_zero() {
            return None;
        }
        let figure = if via.is_slower() { via.tail.name() } else { "p50" };
        let part = 100.0 * (server.as_secs_f64() / proxy.as_secs_f64()).min(1.0);
        let (server, proxy) = (millis_unit(server), millis_unit(proxy));
        let cell = |index: u32| self.report.analysis.cell(index);
        let (name, base) = (sentences::name(cell(via.cell)?), sentences::name(cell(via.baseline)?));
        Some(format!(
            "Through the proxy the {figure} of {name} is {proxy} above that of {base}, and at the server itself {server}: \
             {part:.0} % of the difference arises at the server itself{}.",
            the_rest(part)
        ))
    }

    /// Which part of the response time of HTTP/2 through the proxy it has at the server itself as well; nothing if the proxy
    /// adds less than `floor`.
    fn share_of_time(&self, floor: Duration) -> Option<String> {
        let is_claimed =
            |[direct, via]: &[Duration; 2]| !via.is_zero() && via.saturating_sub(*direct) >= floor;
        let [direct, via] = self.multiplexed().filter(is_claimed)?;
        let name = sentences::name(self.report.analysis.cell(self.subject)?);
        let part = 100.0 * (direct.as_secs_f64() / via.as_secs_f64()).min(1.0);
        Some(format!(
            "Of the median response time of {name} through the proxy {part:.0} % arises at the server itself{}.",
            the_rest(part)
        ))
    }

    /// Why no change was tried where the protocol that is examined is no slower through the proxy.
    pub(super) fn why_untried(&self) -> Option<String> {
        let at_server = self.experiment.direct.as_ref().is_some_and(is_slower);
        let what = if at_server {
            "through the proxy, where changes are made, HTTP/2 is no slower; `h2lab diagnose URL` without --via examines \
             the server itself"
        } else {
            "through the proxy HTTP/2 is no slower, so there is nothing that a change could close"
        };
        self.is_via.then(|| format!("No change was tried: {what}."))
    }
}

/// What is said of the part that does not arise at the server itself.
fn the_rest(percent: f64) -> &'static str {
    if percent > 99.5 { "" } else { ", the rest at the proxy, or between it and the client" }
}

/// Whether it is known to be slower, in its tail or in its median.
fn is_slower(verdict: &CellVerdict) -> bool {
    verdict.is_slower() || verdict.is_slower_in_median_only()
}

/// Whether the server itself carries the load, and through the proxy the same protocol does not though the other one does.
const fn is_carried_only_directly(via: &CellVerdict, direct: &CellVerdict) -> bool {
    let is_carried = matches!(
        direct.conclusion,
        Conclusion::Faster
            | Conclusion::Slower
            | Conclusion::NoDifference
            | Conclusion::BaselineUnstable { .. }
    );
    is_carried && matches!(via.conclusion, Conclusion::Unstable { .. })
}

/// Whether the server itself is slower in the figure in which it is through the proxy: the median, if only that is. What does
/// not carry its load is slower in any.
fn is_slower_as(via: &CellVerdict, direct: &CellVerdict) -> bool {
    if via.is_slower_in_median_only() {
        let is_stuck = matches!(direct.conclusion, Conclusion::Unstable { .. });
        is_stuck || direct.median_conclusion == Some(Conclusion::Slower)
    } else {
        direct.is_slower()
    }
}

/// Of a verdict, the ratio of the figure in which the one through the proxy is slower.
fn compared(via: &CellVerdict, of: &CellVerdict) -> Option<RatioInterval> {
    if via.is_slower() { of.tail_ratio } else { of.median_ratio }
}

/// How much longer a request takes through the proxy, over one protocol; less than `floor` is not claimed.
fn time_at_hops(hop: &Hop, floor: Duration) -> String {
    let [own, proxied] = hop.protocols;
    match &hop.medians {
        Err(why) => format!(
            "How much longer a request takes through the proxy ({proxied}) than at the server itself ({own}) is not \
             known: {why}."
        ),
        Ok([direct, via]) => {
            let more = via.saturating_sub(*direct);
            let more = if more.is_zero() {
                "the proxy adds nothing to it".to_owned()
            } else if more < floor {
                format!("a difference below {} is not claimed", bound(floor))
            } else {
                format!("{} longer", millis_unit(more))
            };
            format!(
                "The median request takes {} at the server itself ({own}) and {} through the proxy ({proxied}): \
                 {more}.",
                millis_unit(*direct),
                millis_unit(*via)
            )
        }
    }
}
