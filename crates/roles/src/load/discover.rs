//! Which protocols a live server speaks: one connection and one request for each candidate.

use std::fmt;

use h2lab_model::workload::Protocol;

use super::{LoadError, LoadSpec, SingleAnswer, preflight};

/// What each candidate met.
#[derive(Debug)]
pub struct Discovery {
    attempts: Vec<(Protocol, Result<SingleAnswer, LoadError>)>,
    /// The port turned out to speak TLS although the URL says `http://`.
    speaks_tls: bool,
}

impl Discovery {
    /// Whether the server answered in this protocol; or reset the request in it, and answered in another: a request that it takes
    /// amiss, such as one whose fields are too long, is measured as it is.
    pub fn speaks(&self, protocol: Protocol) -> bool {
        let speaks = |answer: &Result<SingleAnswer, LoadError>| match answer {
            Ok(_) => true,
            Err(LoadError::Unreachable { why, .. }) => why.is_answer() && self.answers().next().is_some(),
            Err(_) => false,
        };
        !self.speaks_tls && self.attempts.iter().any(|(tried, answer)| *tried == protocol && speaks(answer))
    }

    /// What the server answered in each protocol that it speaks.
    pub fn answers(&self) -> impl Iterator<Item = (Protocol, &SingleAnswer)> {
        self.attempts.iter().filter_map(|(protocol, answer)| Some((*protocol, answer.as_ref().ok()?)))
    }

    /// What the server did instead of answering in this protocol; `None` if it speaks it or was not asked.
    pub fn refusal(&self, protocol: Protocol) -> Option<String> {
        if self.speaks(protocol) {
            return None;
        }
        let (_, answer) = self.attempts.iter().find(|(tried, _)| *tried == protocol)?;
        answer.as_ref().err().map(why)
    }
}

/// Why an attempt failed, without the address, which its reader knows.
fn why(error: &LoadError) -> String {
    match error {
        LoadError::Unreachable { why, .. } => why.to_string(),
        error => error.to_string(),
    }
}

impl fmt::Display for Discovery {
    /// `h1 yes (200, nginx/1.22.1); h2c no: the server closes the connection …`; `h1s and h2: its certificate …` if that is the
    /// same of all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.speaks_tls {
            return f.write_str("the port speaks TLS, but the URL begins with http://; try https://");
        }
        // One reason for all is said once: a certificate is refused whatever the protocol.
        if let [(_, Err(first)), rest @ ..] = self.attempts.as_slice()
            && rest.iter().all(|(_, answer)| answer.as_ref().is_err_and(|error| why(error) == why(first)))
        {
            let names: Vec<&str> = self.attempts.iter().map(|(protocol, _)| protocol.name()).collect();
            return write!(f, "{}: {}", names.join(" and "), why(first));
        }
        for (k, (protocol, answer)) in self.attempts.iter().enumerate() {
            let comma = if k == 0 { "" } else { "; " };
            match answer {
                Ok(answer) => {
                    write!(f, "{comma}{protocol} yes ({}", answer.status)?;
                    match &answer.server {
                        Some(server) => write!(f, ", {server})")?,
                        None => f.write_str(")")?,
                    }
                }
                Err(error) if self.speaks(*protocol) => {
                    write!(f, "{comma}{protocol} yes, but {}", why(error))?;
                }
                Err(error) => write!(f, "{comma}{protocol} no: {}", why(error))?,
            }
        }
        Ok(())
    }
}

/// Tries each of `protocols`, which the scheme allows, with the work of `spec`, whose protocol is replaced. No other is tried: the
/// request may change something at the server.
///
/// Some servers answer clear text on a TLS port with a proper 400 in clear text. It must not pass for a service that speaks
/// HTTP/1.1, so a 400 is followed by a check whether the port speaks TLS.
pub fn discover(spec: &LoadSpec<'_>, tls: bool, protocols: &[Protocol]) -> Discovery {
    let attempts: Vec<_> = protocols.iter().map(|protocol| (*protocol, attempt(spec, *protocol))).collect();
    let is_bad_request =
        |answer: &Result<SingleAnswer, LoadError>| matches!(answer, Ok(SingleAnswer { status: 400, .. }));
    let speaks_tls = !tls
        && attempts.iter().any(|(_, answer)| is_bad_request(answer))
        && attempt(&any_certificate(spec), Protocol::H1s).is_ok();
    Discovery { attempts, speaks_tls }
}

fn attempt(spec: &LoadSpec<'_>, protocol: Protocol) -> Result<SingleAnswer, LoadError> {
    let mut spec = spec.clone();
    spec.cell.protocol = protocol;
    preflight(&spec)
}

/// Whether a port speaks TLS does not depend on its certificate.
fn any_certificate<'a>(spec: &LoadSpec<'a>) -> LoadSpec<'a> {
    let mut spec = spec.clone();
    spec.tls.insecure = true;
    spec
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use h2lab_net::tcp::Endpoint;
    use h2lab_wire::ErrorCode;

    use super::*;
    use crate::client::ConnectError;

    fn of(attempts: [Result<(), ErrorCode>; 2]) -> Discovery {
        let answer = |answer: Result<(), ErrorCode>| {
            let address = Endpoint::Unix(std::path::Path::new("/x").into());
            let answered = SingleAnswer {
                status: 400,
                server: None,
                time_to_first_byte: Duration::ZERO,
                time_to_last_byte: Duration::ZERO,
                body_bytes: 0,
            };
            answer
                .map(|()| answered)
                .map_err(|code| LoadError::Unreachable { address, why: ConnectError::Reset(code) })
        };
        let [h1, h2c] = attempts.map(answer);
        Discovery { attempts: vec![(Protocol::H1, h1), (Protocol::H2c, h2c)], speaks_tls: false }
    }

    #[test]
    fn a_reset_is_an_answer_where_another_protocol_has_one() {
        let calm = of([Ok(()), Err(ErrorCode::ENHANCE_YOUR_CALM)]);
        assert!(calm.speaks(Protocol::H2c) && calm.refusal(Protocol::H2c).is_none());
        assert_eq!(
            calm.to_string(),
            "h1 yes (400); h2c yes, but the server reset the stream of the request (ENHANCE_YOUR_CALM)"
        );
        let wants_h1 = of([Ok(()), Err(ErrorCode::HTTP_1_1_REQUIRED)]);
        assert!(!wants_h1.speaks(Protocol::H2c) && wants_h1.refusal(Protocol::H2c).is_some());
        let neither = of([Err(ErrorCode::CANCEL), Err(ErrorCode::CANCEL)]);
        assert!(!neither.speaks(Protocol::H1) && !neither.speaks(Protocol::H2c));
    }
}
