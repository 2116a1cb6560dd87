//! The first sign that a server bounds an attack.

use h2lab_wire::ErrorCode;

/// The server's reaction on one stream of an attack.
#[derive(Debug, Clone, Copy)]
pub struct Reaction {
    /// Its number.
    pub stream: u32,
    /// The code with which the server reset it.
    pub reset: Option<ErrorCode>,
    /// The final status.
    pub status: Option<u16>,
}

/// The first refusal in `reactions`. `any_reset`: every reset counts as one, as the attack does not aim at resets. `ordinary` is
/// the path's normal status, which is no refusal.
pub fn sign(
    reactions: impl IntoIterator<Item = Reaction>,
    any_reset: bool,
    ordinary: Option<u16>,
) -> Option<String> {
    // NO_ERROR asks the client to stop sending a body that is not needed (RFC 9113 §8.1).
    let is_refused = |code: &ErrorCode| match *code {
        ErrorCode::NO_ERROR => false,
        ErrorCode::REFUSED_STREAM | ErrorCode::ENHANCE_YOUR_CALM | ErrorCode::INTERNAL_ERROR => true,
        _ => any_reset,
    };
    let is_refusal =
        |status: &u16| matches!(*status, 400 | 413 | 429 | 431 | 503) && Some(*status) != ordinary;
    reactions.into_iter().find_map(|Reaction { stream, reset, status }| {
        let reset = reset.filter(is_refused).map(|code| format!("RST_STREAM[{stream}] {code}"));
        reset.or_else(|| status.filter(is_refusal).map(|status| format!("{status} on stream {stream}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_path_answers_to_everybody_is_no_sign() {
        let status = |status, ordinary| {
            let reaction = Reaction { stream: 5, reset: None, status: Some(status) };
            sign([reaction], false, Some(ordinary)).is_some()
        };
        assert!(status(503, 200) && status(431, 200) && status(400, 503));
        assert!(!status(503, 503) && !status(404, 200) && !status(200, 503));
    }

    #[test]
    fn a_reset_is_a_sign_by_its_code() {
        let reset = |code, any| {
            let reaction = Reaction { stream: 5, reset: Some(code), status: Some(200) };
            sign([reaction], any, Some(200)).is_some()
        };
        assert!(reset(ErrorCode::ENHANCE_YOUR_CALM, false) && reset(ErrorCode::REFUSED_STREAM, false));
        assert!(!reset(ErrorCode::PROTOCOL_ERROR, false) && reset(ErrorCode::PROTOCOL_ERROR, true));
        assert!(!reset(ErrorCode::NO_ERROR, false) && !reset(ErrorCode::NO_ERROR, true));
        assert_eq!(sign([], true, None), None);
    }
}
