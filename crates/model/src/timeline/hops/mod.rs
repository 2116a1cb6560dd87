//! What each server of a chain does with interim responses, promises and trailers that come from upstream.

mod early_hints;
mod leg;
mod passage;
mod push;
mod verdict;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::waterfall::WaterfallStream;
use early_hints::early_hints;
pub use leg::Leg;
use push::push;
pub use verdict::{HopVerdict, Ruling};

/// What a server did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hop {
    /// Its name.
    pub server: String,
    /// With interim responses.
    pub early_hints: Ruling,
    /// With promises.
    pub push: Ruling,
    /// With trailers.
    pub trailers: Ruling,
}

/// What the server between `front` and `back` did in the exchange about `path`.
pub fn judge(front: &Leg, back: &Leg, path: &str) -> Hop {
    let hop = |early_hints, push, trailers| Hop { server: front.server.clone(), early_hints, push, trailers };
    let (Some(before), Some(behind)) = (front.main(path), back.main(path)) else {
        let unasked = Ruling::new(HopVerdict::None, "the server behind it received no request");
        return hop(unasked, Ruling::none(), Ruling::none());
    };
    hop(
        early_hints(front, before, back, behind),
        push(front, &before.stream, back, &behind.stream),
        trailers(&before.stream, &behind.stream),
    )
}

fn trailers(before: &WaterfallStream, behind: &WaterfallStream) -> Ruling {
    match (before.trailers_ms, behind.trailers_ms) {
        (Some(_), Some(_)) => Ruling::new(HopVerdict::Forwarded, "forwarded"),
        // The response that they precede did not come through.
        (None, Some(_)) if before.end_ms.is_none() => Ruling::none(),
        (None, Some(at)) => Ruling::new(
            HopVerdict::Swallowed,
            format!("received from upstream at {at:.1} ms, none forwarded"),
        ),
        (Some(_), None) => Ruling::new(HopVerdict::Added, "it adds some"),
        (None, None) => Ruling::none(),
    }
}

#[cfg(test)]
mod tests;
