//! What is reported of instances.

use h2lab_model::sidecar::InstanceStatus;

use super::{Pool, Pools, is_lasting};
use crate::sidecar::Slot;

impl Pools {
    /// What this instance is called.
    pub fn name(&self, instance: u32) -> &str {
        &self.all[instance as usize].name
    }

    /// Whether this instance was removed.
    pub fn is_leaving(&self, instance: u32) -> bool {
        self.all[instance as usize].part.is_leaving
    }

    /// The number of an instance's service.
    pub fn service_of(&self, instance: u32) -> Option<usize> {
        self.services.iter().position(|numbers| numbers.contains(&instance))
    }

    /// What this instance's state is.
    pub fn status(&self, instance: u32, slots: &[Slot]) -> InstanceStatus {
        let pool = &self.all[instance as usize];
        let is_open = |slot: &&u32| matches!(slots[**slot as usize], Slot::Open(_));
        let has_some = pool.connections.iter().any(|slot| is_lasting(slots, *slot, pool));
        InstanceStatus {
            name: pool.name.clone(),
            policy: pool.policy.to_string(),
            protocol: pool.targets[pool.known].protocol.to_string(),
            is_down: pool.standing.is_unreachable() && !has_some,
            connections: pool.connections.iter().filter(is_open).count() as u64,
            dialling: pool.dialling.into(),
            waiting: pool.waiting.into(),
            open: pool.load.open.into(),
            quota: pool.quota.known(),
            ..InstanceStatus::default()
        }
    }
}

impl Pool {
    /// What it is known to speak.
    pub fn protocol(&self) -> h2lab_model::workload::Protocol {
        self.targets[self.known].protocol
    }
}
