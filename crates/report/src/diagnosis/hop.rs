//! At which hop a difference, and the time of a request, arises where a proxy stands in front of the server.

use h2lab_analysis::stats::Conclusion;

use super::Diagnosis;
use crate::format::millis_unit;
use crate::sentences;

impl Diagnosis<'_> {
    /// Where the difference arises, if the server itself was measured too.
    pub(super) fn hop(&self) -> Vec<String> {
        if !self.is_via || self.report.run.interrupted && self.experiment.hop.is_none() {
            return Vec::new();
        }
        self.difference_at_hops().into_iter().chain([self.time_at_hops()]).collect()
    }

    /// At which hop the difference between the protocols arises.
    fn difference_at_hops(&self) -> Option<String> {
        let via = self.experiment.verdict.as_ref()?;
        let Some(direct) = self.experiment.direct.as_ref() else {
            let [alone, _] = self.experiment.hop.as_ref()?.protocols;
            let arises = if via.is_slower() { ", and its difference arises there or before it" } else { "" };
            let ends = if alone.is_multiplexed() { "HTTP/1.1" } else { "HTTP/2" };
            return Some(format!(
                "The server itself speaks {alone} alone: {ends} ends at the proxy{arises}."
            ));
        };
        let carries = direct.conclusion != Conclusion::BothUnstable;
        let place = match (via.is_slower(), direct.is_slower()) {
            _ if via.conclusion == Conclusion::BothUnstable && carries => {
                "the proxy, or what is between it and the client, does not carry this load in either protocol"
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

    /// Whether most of the time of a request over HTTP/2 arises behind the server itself.
    fn is_proxy_slower(&self) -> bool {
        self.experiment.hop.as_ref().is_some_and(|hop| {
            let is_h2 = hop.protocols.iter().all(|protocol| protocol.is_multiplexed());
            is_h2 && hop.medians.as_ref().is_ok_and(|[direct, via]| *via > *direct * 2)
        })
    }

    /// At which hop the time of a request arises.
    fn time_at_hops(&self) -> String {
        let Some(hop) = self.experiment.hop.as_ref() else {
            return "At which hop the time arises is not known: the server itself and the proxy have no protocol in common."
                .to_owned();
        };
        let [direct, via] = match &hop.medians {
            Ok(medians) => *medians,
            Err(why) => return format!("At which hop the time arises is not known: {why}."),
        };
        let [own, proxied] = hop.protocols;
        let share = direct.as_secs_f64() / via.as_secs_f64().max(f64::MIN_POSITIVE);
        let place = if share >= 1.0 {
            "the proxy adds nothing to it".to_owned()
        } else if share >= 0.5 {
            format!("{:.0} % of it arises at the server itself", share * 100.0)
        } else {
            format!("{:.0} % of it arises at the proxy, or between it and the client", (1.0 - share) * 100.0)
        };
        let (direct, via) = (millis_unit(direct), millis_unit(via));
        format!(
            "The median request takes {direct} at the server itself ({own}) and {via} through the proxy ({proxied}): {place}."
        )
    }
}
