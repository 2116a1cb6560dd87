//! What other ports of the host speak: those that the command line names.

use h2lab_model::probe::{Check, EvidenceItem, Verdict, id};
use h2lab_model::workload::Protocol;

use super::results::UrlResults;
use super::speaks;
use crate::client::ConnectError;
use crate::probe::dial::reach;
use crate::probe::{ProbeError, Prober, Result};
use h2lab_net::tcp::Endpoint;

/// What was found on one port.
#[derive(Debug)]
struct Port {
    number: u16,
    /// What the TCP port speaks in clear and over TLS, or why there is no connection.
    tcp: Result<[UrlResults; 2], ConnectError>,
    /// HTTP/3, which is on a port of UDP.
    udp: UrlResults,
}

impl Port {
    fn all(&self) -> impl Iterator<Item = &UrlResults> {
        self.tcp.iter().flatten().chain([&self.udp])
    }

    /// The names of what is spoken there.
    fn spoken(&self) -> Vec<String> {
        self.all().flat_map(UrlResults::spoken).collect()
    }

    /// It did not answer, which does not mean that nothing listens.
    fn is_undecided(&self) -> bool {
        let is_open =
            |found: &UrlResults| found.checks.iter().any(|check| check.verdict == Verdict::Undecided);
        let is_silent = matches!(&self.tcp, Err(error) if !matches!(error, ConnectError::Refused));
        self.spoken().is_empty() && (is_silent || self.all().any(is_open))
    }

    fn outcome(&self) -> String {
        let spoken = self.spoken();
        let outcome = match &self.tcp {
            _ if !spoken.is_empty() => spoken.join(", "),
            Err(ConnectError::Refused) => "nothing listens there".to_owned(),
            Err(error) => error.to_string(),
            Ok(_) if self.is_undecided() => "no answer in time".to_owned(),
            Ok(_) => "none of these protocols".to_owned(),
        };
        format!("{}: {outcome}", self.number)
    }

    fn items(self) -> Vec<EvidenceItem> {
        let found = self.tcp.into_iter().flatten().chain([self.udp]);
        let evidence = found.flat_map(|found| found.checks).flat_map(|check| check.evidence);
        evidence.flat_map(|evidence| evidence.items).collect()
    }
}

/// Asks each of `ports` for the protocols that are to be asked for, in clear and over TLS. Ports checked before an
/// interruption or the end of the budget are reported.
pub fn look(prober: &mut Prober, ports: &[u16], found: &mut UrlResults) -> Result<()> {
    let home = prober.host.clone();
    // Another port's certificate does not matter: only its protocols do.
    prober.host.tls.insecure = true;
    let mut asked = Vec::new();
    let all = ports.iter().try_for_each(|port| {
        asked.push(ask(prober, *port)?);
        Ok(())
    });
    prober.host = home;
    if !asked.is_empty() {
        found.add(check(asked));
    }
    all
}

fn ask(prober: &mut Prober, number: u16) -> Result<Port> {
    if let Endpoint::Tcp(address) = &mut prober.host.endpoint {
        address.set_port(number);
    }
    let name = &prober.host.server_name;
    let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
    prober.host.authority = format!("{name}:{number}");
    let tcp = match reach(prober) {
        Ok(()) => Ok([side(prober, false)?, side(prober, true)?]),
        Err(ProbeError::Connect(error)) => Err(error),
        Err(error) => return Err(error),
    };
    let mut udp = UrlResults::default();
    if prober.host.asks(Protocol::H3) {
        udp.decide(id::PROT106, |found| speaks::http3(prober, found))?;
    }
    Ok(Port { number, tcp, udp })
}

/// What a TCP port speaks on one side of TLS.
fn side(prober: &mut Prober, tls: bool) -> Result<UrlResults> {
    let mut found = UrlResults::default();
    let (h1, h2) = if tls { (Protocol::H1s, Protocol::H2) } else { (Protocol::H1, Protocol::H2c) };
    if prober.host.asks(h1) {
        found.decide(id::PROT101, |found| speaks::http1(prober, h1, found))?;
    }
    if prober.host.asks(h2) {
        found
            .decide(if tls { id::PROT103 } else { id::PROT104 }, |found| speaks::http2(prober, h2, found))?;
    }
    if !tls && prober.host.asks(h2) {
        found.decide(id::PROT105, |found| speaks::upgrade(prober, h1, found))?;
    }
    Ok(found)
}

fn check(ports: Vec<Port>) -> Check {
    let verdict = if ports.iter().all(|port| !port.spoken().is_empty()) {
        Verdict::Pass
    } else if ports.iter().any(Port::is_undecided) {
        Verdict::Undecided
    } else {
        Verdict::Unsupported
    };
    let summary: Vec<String> = ports.iter().map(Port::outcome).collect();
    let check = Check::new(id::PROT113, verdict, summary.join("; "));
    ports.into_iter().fold(check, |check, port| {
        let what = format!("attempts on port {}", port.number);
        check.with(what, port.items())
    })
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Arc;

    use h2lab_model::probe::Allowance;

    use super::*;
    use crate::probe::prober::ByClock;
    use crate::probe::testing::{Server, h1, h2, prober, prober_within, response};

    const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

    fn asked(home: Server, others: &[SocketAddr]) -> Check {
        let ports: Vec<u16> = others.iter().map(SocketAddr::port).collect();
        let (mut prober, mut found) = (prober(home), UrlResults::default());
        prober.waits = Arc::new(ByClock); // what the others do is not known
        let (endpoint, authority) = (prober.host.endpoint.clone(), prober.host.authority.clone());
        look(&mut prober, &ports, &mut found).unwrap();
        assert_eq!((&prober.host.endpoint, &prober.host.authority), (&endpoint, &authority));
        assert!(!prober.host.tls.insecure, "what is trusted is as it was");
        found.checks.pop().unwrap()
    }

    /// A port on which nothing listens any more.
    fn silent() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    #[test]
    fn each_port_has_what_it_speaks_or_why_it_speaks_nothing() {
        let both = h2(|peer, request| peer.send(&response(request.stream, 200, &[], b"x")))
            .and_h1(|peer, _| peer.send(FINE.as_bytes()))
            .start();
        let one = h1(|peer, _| peer.send(FINE.as_bytes())).start();
        let home = || h1(|peer, _| peer.close());
        let found = asked(home(), &[both, one]);
        assert_eq!(found.verdict, Verdict::Pass, "{}", found.summary);
        assert_eq!(found.summary, format!("{}: h1, h2c; {}: h1", both.port(), one.port()));
        assert!(found.evidence.iter().all(|port| !port.items.is_empty()));
        let gone = silent();
        let found = asked(home(), &[one, gone]);
        assert_eq!(found.verdict, Verdict::Unsupported);
        assert!(found.summary.ends_with(&format!("{}: nothing listens there", gone.port())));
    }

    #[test]
    fn what_was_asked_before_the_budget_ended_is_reported() {
        let one = h1(|peer, _| peer.send(FINE.as_bytes())).start();
        let requests = 8; // what one port takes, and some of the next
        let mut prober = prober_within(
            h1(|peer, _| peer.close()),
            Allowance { requests, rate: 100_000.0, ..Allowance::OWNED },
        );
        let mut found = UrlResults::default();
        let error = look(&mut prober, &[one.port(), one.port(), one.port()], &mut found).err();
        let rendered: Vec<&str> = found.checks.iter().map(|check| check.summary.as_str()).collect();
        assert!(
            rendered.len() == 1 && rendered[0].starts_with(&format!("{}: h1", one.port())),
            "{rendered:?} {error:?}"
        );
    }

    #[test]
    fn a_port_that_says_nothing_is_undecided() {
        let found = asked(h1(|peer, _| peer.close()).silent(), &[h1(|_, _| {}).start()]);
        assert_eq!(found.verdict, Verdict::Undecided, "{}", found.summary);
    }
}
