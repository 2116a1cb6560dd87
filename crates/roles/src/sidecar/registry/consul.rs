//! A service of a Consul agent, by blocking queries: the agent answers when something has changed.

use std::time::Duration;

use h2lab_proxy::config::Consul;
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
    /// Of the last answer.
    index: u64,
}

impl Agent {
    pub const fn new(consul: Consul) -> Self {
        Self { consul, index: 0 }
    }
}

impl Source for Agent {
    fn look(&mut self) -> Result<Option<Vec<Resolved>>, String> {
        let Consul { address, wait, token, .. } = &self.consul;
        let patience = *wait + *wait / 16 + SLACK;
        let token = token.as_ref().map(|token| Field::new("x-consul-token", token.secret()));
        let path = consul::path(&self.consul, self.index);
        let fields: Vec<Field<'_>> = token.into_iter().collect();
        let answered = http::get(address, &path, &fields, b"x-consul-index", patience);
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
