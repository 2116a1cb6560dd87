//! Counters of what protects a service.

use serde::{Deserialize, Serialize};

/// Since the sidecar began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProtectionStatus {
    /// Attempts that failed at an instance: no connection, a reset, no response in time, 502, 503, 504.
    pub failures: u64,
    /// Requests that were sent again after such a failure.
    pub retries: u64,
    /// Requests that were not sent again, since the budget was used up.
    pub over_budget: u64,
    /// Requests that were refused because `limits.open` were under way.
    pub over_open: u64,
    /// Requests that were refused because `limits.waiting` waited.
    pub over_waiting: u64,
    /// Requests that came faster than `rate` of the service or its listener.
    pub rate_limited: u64,
    /// Requests that took too long.
    pub timeouts: u64,
    /// How often an instance was left out because it failed.
    pub ejections: u64,
    /// Health checks that failed.
    pub failed_checks: u64,
    /// Requests that were refused because memory was short.
    pub shed: u64,
}

impl ProtectionStatus {
    /// Adds another thread of the same sidecar.
    pub fn add(&mut self, other: &Self) {
        self.failures += other.failures;
        self.retries += other.retries;
        self.over_budget += other.over_budget;
        self.over_open += other.over_open;
        self.over_waiting += other.over_waiting;
        self.rate_limited += other.rate_limited;
        self.timeouts += other.timeouts;
        self.ejections += other.ejections;
        self.failed_checks += other.failed_checks;
        self.shed += other.shed;
    }
}
