//! Whether the peer of a connection is still there.
//!
//! TCP alone takes many minutes to find out that nobody answers (RFC 9293 §3.8.3), and does not find out at all where the host answers
//! and the process does not. Over HTTP/2 a PING asks the process itself (RFC 9113 §6.7).

use std::time::Duration;

use h2lab_base::units::Time;

/// After a PING, the next one is sent only after a silence of this length, until the peer has sent anything but answers
/// to PINGs: servers of gRPC allow one PING in five minutes, and end a connection that gets more (gRFC A8).
const NEXT: Duration = Duration::from_secs(300);
/// The answer to a PING takes at most so many round trips, losses included; the user's limit counts if it is longer.
const ROUND_TRIPS: u32 = 20;

/// What is to be done with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Send a PING.
    Ask,
    /// Give it up.
    Dead,
}

/// What is known of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    /// When the last byte came.
    heard_at: Time,
    /// Since when something is waited for without a pause.
    waits_since: Option<Time>,
    /// When it was asked; `None` after its answer.
    asked_at: Option<Time>,
    /// It was asked, and has sent nothing of a response since.
    was_asked: bool,
}

impl Liveness {
    /// Of a connection that is established at `now`.
    pub const fn new(now: Time) -> Self {
        Self { heard_at: now, waits_since: None, asked_at: None, was_asked: false }
    }

    /// Bytes have come.
    pub const fn heard(&mut self, now: Time) {
        self.heard_at = now;
        self.asked_at = None;
    }

    /// A PING is being sent.
    pub fn ask(&mut self, now: Time) {
        self.asked_at.get_or_insert(now);
        self.was_asked = true;
    }

    /// A part of a response has come.
    pub const fn progressed(&mut self) {
        self.was_asked = false;
    }

    /// When the last byte came.
    pub const fn heard_at(&self) -> Time {
        self.heard_at
    }

    /// Whether it was asked and has not answered yet: requests go elsewhere if they can.
    pub const fn is_doubted(&self) -> bool {
        self.asked_at.is_some()
    }

    /// What is to be done. `waits`: requests wait for it. `after`: the silence after which it is asked, and in which it has to answer.
    pub fn look(&mut self, now: Time, waits: bool, after: Duration, rtt: Duration) -> Verdict {
        if !waits {
            (self.waits_since, self.asked_at) = (None, None);
            return Verdict::Fine;
        }
        let since = *self.waits_since.get_or_insert(now);
        if let Some(asked_at) = self.asked_at {
            let is_late = now.since(asked_at) >= after.max(rtt * ROUND_TRIPS);
            return if is_late { Verdict::Dead } else { Verdict::Fine };
        }
        let pause = if self.was_asked { after.max(NEXT) } else { after };
        if now.since(since.max(self.heard_at)) < pause {
            return Verdict::Fine;
        }
        self.ask(now);
        Verdict::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(5);
    const RTT: Duration = Duration::from_millis(25);

    /// What is to be done at each second, where a request waits all the time.
    fn verdicts(liveness: &mut Liveness, from: u64, to: u64, answers: bool) -> Vec<(u64, Verdict)> {
        let mut verdicts = Vec::new();
        for second in from..to {
            let now = Time::from_millis(second * 1_000);
            let verdict = liveness.look(now, true, AFTER, RTT);
            if verdict != Verdict::Fine {
                verdicts.push((second, verdict));
            }
            if verdict == Verdict::Ask && answers {
                liveness.heard(now);
            }
        }
        verdicts
    }

    #[test]
    fn who_does_not_answer_is_given_up() {
        let mut liveness = Liveness::new(Time::ZERO);
        assert_eq!(verdicts(&mut liveness, 3, 14, false), [(8, Verdict::Ask), (13, Verdict::Dead)]);
    }

    #[test]
    fn who_answers_is_not_asked_again_soon() {
        let mut liveness = Liveness::new(Time::ZERO);
        assert_eq!(verdicts(&mut liveness, 0, 400, true), [(5, Verdict::Ask), (305, Verdict::Ask)]);
        liveness.progressed();
        liveness.heard(Time::from_millis(400_000));
        assert_eq!(
            verdicts(&mut liveness, 401, 410, true),
            [(405, Verdict::Ask)],
            "after a part of a response"
        );
    }

    #[test]
    fn nobody_is_asked_while_nothing_is_waited_for() {
        let mut liveness = Liveness::new(Time::ZERO);
        let at = Time::from_millis;
        assert_eq!(liveness.look(at(60_000), false, AFTER, RTT), Verdict::Fine);
        assert_eq!(liveness.look(at(60_100), true, AFTER, RTT), Verdict::Fine, "it was idle until now");
        assert_eq!(liveness.look(at(65_100), true, AFTER, RTT), Verdict::Ask);
        assert!(liveness.is_doubted());
        assert_eq!(liveness.look(at(65_200), false, AFTER, RTT), Verdict::Fine);
        assert!(!liveness.is_doubted());
    }

    #[test]
    fn a_long_path_has_more_time() {
        let mut liveness = Liveness::new(Time::ZERO);
        let look = |liveness: &mut Liveness, second: u64| {
            liveness.look(Time::from_millis(second * 1_000), true, AFTER, Duration::from_secs(1))
        };
        assert_eq!([0, 5, 10, 24, 25].map(|second| look(&mut liveness, second)), {
            use Verdict::{Ask, Dead, Fine};
            [Fine, Ask, Fine, Fine, Dead]
        });
    }
}
