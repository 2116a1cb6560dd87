//! What instances answer: by class of the status, what gRPC calls a failure, and what is malformed.

use h2lab_base::units::Time;
use h2lab_model::sidecar::Responses;

use super::Watch;

/// What is counted of an instance.
#[derive(Debug, Default)]
pub struct OfInstance {
    pub all: Responses,
    /// Of the last half minute to a minute.
    pub recent: [Responses; 2],
    pub malformed: u64,
}

impl OfInstance {
    /// Half a minute is over.
    pub fn turn(&mut self) {
        self.recent = [Responses::default(), std::mem::take(&mut self.recent[0])];
    }

    /// Of the last half minute to a minute.
    pub fn lately(&self) -> Responses {
        let mut both = self.recent[0];
        both.add(&self.recent[1]);
        both
    }
}

impl Watch {
    /// An instance has answered with this status, and perhaps with a failure of gRPC's in the same head.
    pub fn responded(&mut self, instance: u32, status: u16, grpc_failed: bool) {
        if self.is_on {
            let counts = &mut self.at(instance).responses;
            counts.all.record(status);
            counts.recent[0].record(status);
            self.grpc_failed(instance, grpc_failed);
        }
    }

    /// gRPC's status of an instance's response has come: a failure or not.
    pub fn grpc_failed(&mut self, instance: u32, failed: bool) {
        if self.is_on && failed {
            let counts = &mut self.at(instance).responses;
            counts.all.grpc_failed += 1;
            counts.recent[0].grpc_failed += 1;
        }
    }

    /// What an instance has sent was refused.
    pub fn malformed(&mut self, instance: u32, why: &str, now: Time) {
        if self.is_on {
            self.at(instance).responses.malformed += 1;
            self.wrong(None, 0, why, now);
        }
    }
}
