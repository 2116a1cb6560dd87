//! How many connections a multiplexed protocol needs by the PFTK model: the meaning of `auto`, and the prediction in reports
//! beside what was measured.

use crate::workload::Work;
use h2lab_link::LinkSpec;
use h2lab_link::pftk::Sender;

/// Bytes around the body of a message: frame headers, and indexed fields. Our client's `mesh` requests have 38, our
/// origin's responses 22.
const AROUND: f64 = 38.0;
/// Bytes with which every server of the lab answers a request for `/`.
const INDEX: f64 = 1024.0;

/// Whether the path is that of all servers' index, so that the length of a response is known. Other paths
/// (`/bytes/64k`, `/drip`) exist only on our origin, and other servers answer differently.
pub(super) fn is_index(path: &str) -> bool {
    path.split_once('?').map_or(path, |(path, _)| path) == "/"
}

/// Whether the response to such a request has the body of its path (RFC 9110 §9.3.2).
pub(super) fn has_body(method: &str) -> bool {
    method != "HEAD"
}

/// The model's input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need<'a> {
    /// The emulated link.
    pub link: Option<&'a LinkSpec>,
    /// Congestion control of both ends; `None` is the system's, assumed to be one that reduces its window on a loss.
    pub congestion: Option<&'a str>,
}

impl Need<'_> {
    /// Connections that together carry this work over the link. `None` if the model does not cover the link or the congestion
    /// control, for a closed loop, whose rate adapts, and if the length of responses is unknown.
    pub(super) fn connections(self, work: &Work) -> Option<u32> {
        let is_modelled = self.congestion.is_none_or(Sender::is_modelled);
        let link = self.link.filter(|_| is_modelled)?;
        let is_known = work.mix.is_empty() && has_body(&work.method) && is_index(&work.path);
        let rate = work.arrival.rate().filter(|_| is_known)?;
        let request = work.body_length() as f64 + AROUND;
        Some(Sender::LINUX.connections_for(link, rate, request, INDEX + AROUND))
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    fn connections(link: &str) -> Vec<u32> {
        let text = format!(
            "repetitions = 1\n[link]\n{link}\n[matrix]\nprotocols = 'h2c'\nconnections = ['auto', 4]"
        );
        Scenario::from_toml(&text).unwrap().plan().iter().map(|cell| cell.connections).collect()
    }

    #[test]
    fn automatic_connections_follow_from_the_link_and_are_no_cell_of_their_own_if_they_are_there() {
        assert_eq!(connections("delay = '12.5ms'\nloss = '0%'"), [1, 4]);
        assert_eq!(connections("delay = '12.5ms'\nloss = '3%'"), [5, 4]);
        assert_eq!(connections("delay = '5ms'\nloss = '3%'"), [3, 4]);
        assert_eq!(connections("delay = '8ms'\nloss = '3%'"), [4], "once");
        assert_eq!(connections("delay = '12.5ms'\nloss = '3%'\ncongestion = 'bbr'"), [1, 4]);
    }

    #[test]
    fn the_model_says_nothing_of_responses_whose_length_nobody_knows() {
        let predicted = |work: &str| {
            let text = format!("[work]\n{work}\n[link]\ndelay = '12.5ms'\nloss = '3%'");
            Scenario::from_toml(&text).unwrap().plan()[0].connections_predicted()
        };
        assert_eq!([predicted(""), predicted("path = '/?x=1'")], [Some(5), Some(5)]);
        let unknown = ["path = '/bytes/64k'", "method = 'HEAD'", "mix = [{ weight = 1, path = '/' }]"];
        assert_eq!(unknown.map(predicted), [None; 3]);
    }
}
