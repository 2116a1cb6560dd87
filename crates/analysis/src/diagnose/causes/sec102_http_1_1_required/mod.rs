//! SEC102: the server demands HTTP/1.1.

#[cfg(test)]
mod tests;

use super::sec::SEC102 as META;
use super::views::failed::{Failed, ended_by_server};
use crate::diagnose::{Case, Finding, Rule};
use h2lab_model::Fix;
use h2lab_wire::ErrorCode;

/// The rule.
#[derive(Debug)]
pub(super) struct Http11Required;

impl Rule for Http11Required {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let repetitions = case.repetitions.iter();
        let ended = repetitions.flat_map(|one| ended_by_server(one, ErrorCode::HTTP_1_1_REQUIRED));
        let Some(ended) = Failed::of(case, ended) else { return Vec::new() };
        vec![Finding {
            symptom: format!(
                "the server ended {}{} with HTTP_1_1_REQUIRED: it answers them over HTTP/1.1 only",
                ended.of_all(),
                ended.paths(case)
            ),
            evidence: vec![ended.evidence("requests ended with HTTP_1_1_REQUIRED")],
            cost: ended.of_all() + " failed; a client that knows the code sends each again, over HTTP/1.1",
            fixes: vec![
                Fix::new(
                    "server",
                    "ask for the client's certificate in the handshake, on a host of its own",
                    "HTTP/2 has neither renegotiation nor authentication after the handshake (RFC 9113 §9.2.1, §9.2.3)",
                ),
                Fix::new(
                    "server",
                    "offer http/1.1 alone in ALPN on the host of these paths",
                    "where the connection itself is authenticated, as with NTLM: no request fails first",
                ),
            ],
            confirm: case.compare("").trim_end().to_owned()
                + ": over HTTP/1.1, or with the certificate in the handshake (--cert), the same requests are answered",
            of_failures: true,
            ..case.finding_of_share(&META, ended.share())
        }]
    }
}
