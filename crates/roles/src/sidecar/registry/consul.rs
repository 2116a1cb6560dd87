//! A service of a Consul agent, by blocking queries: the agent answers when something has changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use h2lab_net::tls::{ClientTls, TlsOptions};

use h2lab_proxy::config::{Consul, Speaks};
use h2lab_proxy::registry::consul;
use h2lab_wire::Field;

use super::super::live::Resolved;
use super::{Source, http};

/// The agent adds up to a sixteenth of `wait`, and it needs time itself.
const SLACK: Duration = Duration::from_secs(5);
/// Between two questions, however fast the agent answers.
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
        tls.map(Some).map_err(|error| format!("cannot ask Consul at {}: {error}", self.consul.address))
    }
}

impl Source for Agent {
    fn look(&mut self) -> Result<Option<Vec<Resolved>>, String> {
        let tls = self.tls()?;
        let Consul { address, wait, token, .. } = &self.consul;
        let patience = *wait + *wait / 16 + SLACK;
        let token = token.as_ref().map(|token| Field::new("x-consul-token", token.secret()));
        let path = consul::path(&self.consul, self.index);
        let fields: Vec<Field<'_>> = token.into_iter().collect();
        let answered = http::get((address, tls.as_ref()), &path, &fields, b"x-consul-index", patience);
        let before = std::mem::take(&mut self.index); // after a failure it begins anew
        let answered = answered.map_err(|error| format!("cannot ask Consul at {address}: {error}"))?;
        if answered.status != 200 {
            let said = String::from_utf8_lossy(&answered.body);
            let said: String = said.trim().chars().filter(|c| !c.is_control()).take(200).collect();
            return Err(format!("Consul at {address} answers {}: {said}", answered.status));
        }
        let index = answered.field.and_then(|value| value.trim().parse().ok());
        self.index = consul::next_index(before, index);
        let members = consul::instances(&answered.body)
            .map_err(|why| format!("Consul at {address} answers what is no list of instances: {why}"))?;
        let mut set = Vec::new();
        for member in &members {
            let all =
                Resolved::all(member).map_err(|why| format!("no address for {}: {why}", member.url.host))?;
            set.extend(all.into_iter().next());
        }
        if set.is_empty() {
            // Those that failed their checks are a better guess than none.
            return Err(format!("Consul at {address} knows no healthy instance of {}", self.consul.service));
        }
        set.sort_by_key(|at| at.address);
        Ok(Some(set))
    }

    fn pause(&self) -> Duration {
        PAUSE
    }
}
