//! A service of a Consul agent, by blocking queries: the agent answers when something has changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use h2lab_net::tls::{ClientTls, TlsError, TlsOptions};

use h2lab_proxy::config::{Consul, Speaks};
use h2lab_proxy::registry::consul;
use h2lab_wire::Field;

use super::super::live::Found;
use super::{FIRST_LIST_TIMEOUT, Source, http};

/// The agent adds up to a sixteenth of `wait`, and it needs time itself.
const SLACK: Duration = Duration::from_secs(5);
/// The pause between two queries, however fast the agent answers.
const PAUSE: Duration = Duration::from_millis(100);

/// An agent.
pub struct Agent {
    consul: Consul,
    /// The file of authorities that are trusted.
    ca: Option<PathBuf>,
    /// Of the last answer.
    index: u64,
}

impl Agent {
    pub fn new(consul: Consul, folder: &Path) -> Self {
        let ca = consul.ca.as_ref().map(|name| folder.join(name));
        Self { consul, ca, index: 0 }
    }

    /// What an agent is asked with over `https://`. The file is read each time: it may have been replaced.
    fn tls(&self) -> Result<Option<ClientTls>, String> {
        if self.consul.address.speaks != Speaks::Tls {
            return Ok(None);
        }
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        let ca_pem = self.ca.as_ref().map(read).transpose()?;
        let options = TlsOptions { ca_pem, ..TlsOptions::default() };
        let tls = ClientTls::new(&self.consul.address.host, "http/1.1", &options);
        tls.map(Some)
            .map_err(|error| format!("cannot query Consul at {}: {}", self.consul.address, in_keys(&error)))
    }
}

impl Source for Agent {
    fn look(&mut self) -> Result<Option<Found>, String> {
        let tls = self.tls()?;
        let Consul { address, wait, token, .. } = &self.consul;
        let timeout = *wait + *wait / 16 + SLACK;
        let token = token.as_ref().map(|token| Field::new("x-consul-token", token.secret()));
        let path = consul::path(&self.consul, self.index);
        let fields: Vec<Field<'_>> = token.into_iter().collect();
        let answered = http::get((address, tls.as_ref()), &path, &fields, b"x-consul-index", timeout);
        let before = std::mem::take(&mut self.index); // after a failure it starts from the beginning
        let answered = answered.map_err(|error| {
            let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
            format!("cannot query Consul at {address}: {}", tls.map_or_else(|| error.to_string(), in_keys))
        })?;
        if answered.status != 200 {
            let said = String::from_utf8_lossy(&answered.body);
            let said: String = said.trim().chars().filter(|c| !c.is_control()).take(200).collect();
            return Err(format!("Consul at {address} answered {}: {said}", answered.status));
        }
        let index = answered.field.and_then(|value| value.trim().parse().ok());
        self.index = consul::next_index(before, index);
        let members = consul::instances(&answered.body)
            .map_err(|why| format!("invalid response from Consul at {address}: {why}"))?;
        if members.is_empty() {
            // Instances that failed their checks are a better guess than none.
            return Err(format!("Consul at {address} has no healthy instance of {}", self.consul.service));
        }
        let mut found = Found::resolve(members, FIRST_LIST_TIMEOUT);
        found.set.sort_by_cached_key(|at| at.member.url.to_string());
        Ok(Some(found))
    }

    fn pause(&self) -> Duration {
        PAUSE
    }
}

/// The message of a TLS error with an agent, with the keys of the file: the words of [`TlsError`] name flags that other
/// commands have.
fn in_keys(error: &TlsError) -> String {
    match error {
        TlsError::Certificate(why) => {
            let reason = why.split("; ").next().unwrap_or_default();
            let advice = if why.contains("expired") || why.contains("not valid") {
                ""
            } else {
                "; set ca = \"FILE\" (its issuer) in the consul table"
            };
            format!("its certificate is not trusted: {reason}{advice}")
        }
        TlsError::NoRoots => "this system has no root certificates (Debian: ca-certificates); set ca = \"FILE\" in the consul table".to_owned(),
        TlsError::NotTls => "it does not speak TLS on this port; use http://".to_owned(),
        TlsError::ClientCertificateRequired | TlsError::ClientCertificateRefused(_) => {
            "it requires a client certificate, which is not supported for Consul".to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_told_in_the_keys_of_the_file() {
        let certificate = |why: &str| TlsError::Certificate(why.to_owned());
        for (error, words) in [
            (certificate("its issuer is not trusted; trust it by --cacert FILE, or -k"), "set ca = "),
            (certificate("it has expired; renew it, or skip verification by -k"), "it has expired"),
            (TlsError::NoRoots, "set ca = "),
            (TlsError::NotTls, "use http://"),
            (TlsError::ClientCertificateRequired, "client certificate"),
        ] {
            let told = in_keys(&error);
            assert!(told.contains(words) && !told.contains("--") && !told.contains("-k"), "{told}");
        }
    }
}
