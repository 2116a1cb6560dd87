//! The time without a request after which an instance closes a connection, so that ours are closed before.
//!
//! A request that is sent while the close is under way has no answer, and nobody can tell whether it was processed.
//! HTTP/1.1 has only one remedy: not to send on a connection that is about to be closed (RFC 9112 §9.5). Instances say
//! when (`Keep-Alive: timeout=5`), or show it: two connections that were closed after the same time make a timeout. An
//! instance that is restarted closes all at once, which counts as one.

use std::time::Duration;

use h2lab_base::units::Time;

/// How long before the instance's timeout a connection is closed; half of the timeout, if that is less.
const MARGIN: Duration = Duration::from_secs(1);
/// No server has a timeout below this: what is closed sooner is closed for another reason.
const LEAST: Duration = Duration::from_millis(500);
/// Times that differ by less than one part in this many are the same.
const ALIKE: u32 = 10;
/// How long a timeout that was seen is used: the instance may have been configured anew.
const HOLDS: Duration = Duration::from_secs(600);

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Idle {
    /// The timeout that the instance last announced.
    told: Option<Duration>,
    /// When it last closed a connection, and how long that had been idle.
    last: Option<(Time, Duration)>,
    /// When it closed a second one after the same time, and which.
    seen: Option<(Time, Duration)>,
}

impl Idle {
    /// A response had this `Keep-Alive` field (RFC 2068 §19.7.1.1); other members of it, and malformed ones, are
    /// ignored.
    pub fn told(&mut self, field: &[u8]) {
        let member = |member: &[u8]| {
            let (name, value) = str::from_utf8(member).ok()?.split_once('=')?;
            let value = value.trim().trim_matches('"');
            name.trim().eq_ignore_ascii_case("timeout").then(|| value.parse::<u32>().ok()).flatten()
        };
        if let Some(seconds) = field.split(|byte| *byte == b',').find_map(member) {
            self.told = Some(Duration::from_secs(seconds.into()));
        }
    }

    /// The instance has closed a connection that had carried nothing for `idle`.
    pub fn closed_after(&mut self, now: Time, idle: Duration) {
        if idle < LEAST {
            return;
        }
        let Some((at, before)) = self.last.replace((now, idle)) else { return };
        let alike = before.max(idle) / ALIKE;
        if before.abs_diff(idle) > alike {
            return;
        }
        if now.since(at) > alike {
            self.seen = Some((now, before.min(idle)));
        }
    }

    /// How long a connection may be idle and still be used, where the user's limit is `most`.
    pub fn limit(&self, now: Time, most: Duration) -> Duration {
        let seen = self.seen.filter(|(at, _)| now.since(*at) < HOLDS).map(|(_, idle)| idle);
        let least = [self.told, seen].into_iter().flatten().min();
        least.map_or(most, |closes| most.min(closes.saturating_sub(MARGIN.min(closes / 2))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(60);
    const START: Time = Time::from_millis(1_000);

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn what_an_instance_says_holds_with_a_margin() {
        for (field, limit) in [
            (&b"timeout=5"[..], 4.0),
            (b"max=100, Timeout = \"15\"", 14.0),
            (b"timeout=1", 0.5),
            (b"timeout=0", 0.0),
            (b"timeout=600", 60.0),
            (b"timeout=-1", 60.0),
            (b"max=5", 60.0),
            (b"\xff=\xff,timeout", 60.0),
            (b"timeout=99999999999999", 60.0),
        ] {
            let mut idle = Idle::default();
            idle.told(field);
            assert_eq!(idle.limit(START, MOST), seconds(limit), "{}", String::from_utf8_lossy(field));
        }
    }

    #[test]
    fn two_that_are_closed_after_the_same_time_show_it_and_those_of_a_restart_do_not() {
        let mut idle = Idle::default();
        let limit = |idle: &Idle, now| idle.limit(now, MOST);
        for n in 0..20 {
            idle.closed_after(START, seconds(30.0 + f64::from(n) / 10.0));
        }
        assert_eq!(limit(&idle, START), MOST, "all at once");
        idle.closed_after(START + seconds(8.0), seconds(5.0));
        assert_eq!(limit(&idle, START), MOST, "after other times");
        idle.closed_after(START + seconds(16.0), seconds(5.02));
        let now = START + seconds(16.0);
        assert_eq!(limit(&idle, now), seconds(4.0));
        assert_eq!(limit(&idle, now + seconds(601.0)), MOST, "it may have changed since");
        let mut killed = Idle::default();
        for n in 1..9 {
            killed.closed_after(START + seconds(f64::from(n)), seconds(0.1));
        }
        assert_eq!(limit(&killed, now), MOST, "no server is so impatient");
    }
}
