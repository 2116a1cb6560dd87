//! The result of an upload, as an answer.

use h2lab_base::units::Time;
use h2lab_transfer::upload;

use super::finish::UploadEnd;
use super::plan::ResponsePlan;
use super::receipt::{End, Receipt};
use super::refusal::Refusal;
use h2lab_net::lock::lock;
use h2lab_net::storage::Body;

impl Refusal {
    /// As an answer, which does not wait for the rest of the request.
    pub fn plan(self, now: Time) -> ResponsePlan {
        let plan = ResponsePlan::text(now, self.status, self.words + "\n");
        let plan = match self.found {
            Some(found) => plan.with("repr-digest", found.to_field()),
            None => plan,
        };
        ResponsePlan { is_final: true, ..plan }
    }
}

impl UploadEnd {
    /// As an answer.
    pub fn plan(self, now: Time) -> ResponsePlan {
        match self {
            Self::Refused(refusal) => refusal.plan(now),
            Self::Stored { is_new, sum, etag, .. } => {
                let status = if is_new { 201 } else { 204 };
                let plan = ResponsePlan::at_once(now, status, "text/plain", Body::filler(0));
                let plan = plan.with(upload::COMPLETE_FIELD, "?1");
                let sum = sum.map(|sum| ("repr-digest", sum.to_field()));
                let fields = sum.into_iter().chain(etag.map(|etag| ("etag", etag)));
                fields.fold(plan, |plan, (name, value)| plan.with(name, value))
            }
        }
    }
}

impl Receipt {
    /// The answer, if there is one by now. It is returned only once.
    pub fn answer(&mut self, now: Time) -> Option<ResponsePlan> {
        let plan = match self.end.take()? {
            End::Refused(refusal) => refusal.plan(now),
            End::Part => {
                let held = upload::to_fields(&lock(&self.upload).journal.extents);
                let plan = ResponsePlan::at_once(now, 204, "text/plain", Body::filler(0));
                held.into_iter().fold(plan, |plan, (name, value)| plan.with(name, value))
            }
            End::Whole(awaited, declared) => {
                let Some(verdict) = awaited.get().cloned() else {
                    self.end = Some(End::Whole(awaited, declared));
                    return None;
                };
                match declared.and_then(|declared| verdict.contradicts(&declared)) {
                    Some(refusal) => refusal.plan(now),
                    None => verdict.plan(now),
                }
            }
        };
        self.status = plan.status;
        Some(plan)
    }
}
