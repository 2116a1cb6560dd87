//! How long a connection may be idle before the server ends it.

use std::time::Duration;

use h2lab_base::units::{Time, measured_time, millis_f64};
use h2lab_model::probe::{Bound, Check, Verdict, id};
use h2lab_model::workload::Protocol;

use crate::probe::h1::{H1Outcome, Sequence};
use crate::probe::raw_h2_client::{Opening, RawH2Client};
use crate::probe::url::results::{UrlResults, decided};
use crate::probe::{ProbeError, Prober, Result};

/// What is being done.
pub(super) const STEP: &str = "how long a connection may be idle";

/// How long we listen to one connection before the other's turn: the precision of the interval.
const TURN: Duration = Duration::from_millis(20);

/// An idle connection.
pub(super) struct Idle {
    since: Time,
    /// When it was last seen open, and, if it has ended, when that was seen.
    open_at: Time,
    ended_at: Option<Time>,
}

impl Idle {
    const fn new(now: Time) -> Self {
        Self { since: now, open_at: now, ended_at: None }
    }

    fn note(&mut self, now: Time, has_ended: bool) {
        if has_ended {
            self.ended_at.get_or_insert(now);
        } else {
            self.open_at = now;
        }
    }

    fn bound(&self, how: &str) -> Bound {
        let ms = |at: Time| at.since(self.since).as_millis() as u64;
        Bound::between(Some(ms(self.open_at)), self.ended_at.map(ms), "ms", how)
    }

    /// `60.0 s to 60.1 s`
    fn words(&self) -> String {
        let seconds = |at: Time| format!("{:.2} s", millis_f64(at.since(self.since)) / 1e3);
        match self.ended_at {
            Some(ended) => format!("{} to {}", seconds(self.open_at), seconds(ended)),
            None => format!("more than {}", seconds(self.open_at)),
        }
    }
}

/// A connection that is watched.
pub(super) enum Watched {
    H1(Box<Sequence>),
    H2(Box<RawH2Client>),
}

impl Watched {
    /// One on which a request was answered.
    fn open(prober: &mut Prober, protocol: Protocol, method: &str) -> Result<Self> {
        if protocol.is_multiplexed() {
            let mut client = RawH2Client::open(prober, protocol, &Opening::default())?;
            client.ask(prober, method)?;
            return Ok(Self::H2(Box::new(client)));
        }
        let mut sequence = Sequence::open(prober, protocol)?;
        match sequence.ask(prober, method)? {
            H1Outcome::Answered => Ok(Self::H1(Box::new(sequence))),
            H1Outcome::Last(how) => Err(closed(how)),
            H1Outcome::Closed => Err(closed("it closes the connection")),
            H1Outcome::Failed(why) => Err(closed(&why)),
        }
    }

    /// Listens until `turn`; whether the connection has ended.
    fn listen(&mut self, prober: &mut Prober, turn: Time) -> Result<bool> {
        match self {
            Self::H2(client) => client.until(turn, prober, |client| client.ended().is_some()),
            Self::H1(sequence) => {
                sequence.line.listen(turn, prober)?;
                sequence.line.incoming.clear();
                Ok(sequence.line.over.is_some())
            }
        }
    }

    /// The verdict, what happened to the connection, and what shows it.
    fn rendered(&self, protocol: Protocol, idle: &Idle, over: Option<&str>) -> (Bound, Check) {
        let open = || {
            let watched =
                measured_time(Duration::from_millis(idle.open_at.since(idle.since).as_millis() as u64));
            let why = over.unwrap_or("--idle watches longer");
            format!("still open after {watched}; {why}")
        };
        let (how, is_rude, items) = match self {
            Self::H2(client) => {
                (client.ended().unwrap_or_else(open), client.goaways.is_empty(), client.ending(6))
            }
            Self::H1(sequence) => {
                let how =
                    if idle.ended_at.is_some() { "it closed the connection".to_owned() } else { open() };
                (how, false, sequence.line.transcript.last(4, |_| true))
            }
        };
        let verdict = match (idle.ended_at, is_rude) {
            (None, _) => Verdict::Undecided,
            (Some(_), true) => Verdict::Fail,
            (Some(_), false) => Verdict::Pass,
        };
        let check = Check::new(id::LIMT105, verdict, format!("{}: {how}", idle.words()));
        (idle.bound(&how), check.of(protocol.to_string()).with("an idle connection", items))
    }
}

/// A connection that is watched, its version, and what happened to it.
pub(super) type Seen = (Protocol, Watched, Idle);

fn closed(how: &str) -> ProbeError {
    crate::client::ConnectError::Closed(format!("no connection becomes idle: {how}")).into()
}

/// Watches one idle connection of each version, both at a time, for `longest` at most.
pub fn look(
    prober: &mut Prober,
    longest: Duration,
    found: &mut UrlResults,
    notify: &mut dyn FnMut(&str),
) -> Result<()> {
    let all = open(prober, found)?;
    watch(prober, all, longest, found, notify)
}

/// The connections that become idle.
pub(super) fn open(prober: &mut Prober, found: &mut UrlResults) -> Result<Vec<Seen>> {
    let mut all = Vec::new();
    for protocol in found.h2.into_iter().chain(found.h1) {
        match Watched::open(prober, protocol, found.method()) {
            Ok(watched) => all.push((protocol, watched, Idle::new(prober.now()))),
            Err(error) => found.add(decided(id::LIMT105, Err(error))?.of(protocol.to_string())),
        }
    }
    Ok(all)
}

/// Watches them until all have ended, for `longest` at most.
pub(super) fn watch(
    prober: &mut Prober,
    mut all: Vec<Seen>,
    longest: Duration,
    found: &mut UrlResults,
    notify: &mut dyn FnMut(&str),
) -> Result<()> {
    let ends_at = prober.budget.ends_at();
    let wanted = prober.now() + longest;
    let until = wanted.min(ends_at);
    let mut over = (ends_at < wanted).then(|| format!("its time is over; {}", prober.budget.remedy()));
    let mut shown = u64::MAX;
    'watch: loop {
        let mut open = false;
        let left = until.since(prober.now()).as_secs();
        if std::mem::replace(&mut shown, left) != left {
            notify(&format!("{STEP}: {left} s left"));
        }
        for (_, watched, idle) in &mut all {
            if idle.ended_at.is_some() {
                continue;
            }
            let turn = (prober.now() + TURN).min(until);
            match watched.listen(prober, turn) {
                Ok(has_ended) => idle.note(prober.now(), has_ended),
                Err(ProbeError::Exhausted(why)) => {
                    over = Some(why.to_string());
                    break 'watch;
                }
                Err(error) => return Err(error),
            }
            open |= idle.ended_at.is_none();
        }
        if !open || prober.now() >= until {
            break;
        }
    }
    for (protocol, watched, idle) in all {
        let (bound, check) = watched.rendered(protocol, &idle, over.as_deref());
        let limits = &mut found.limits;
        let its = if protocol.is_multiplexed() { &mut limits.idle_ms } else { &mut limits.h1_idle_ms };
        *its = Some(bound);
        found.add(check);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ended_between_the_last_turn_that_saw_it_open_and_the_first_that_saw_it_ended() {
        let mut idle = Idle::new(Time::from_millis(100));
        assert_eq!(idle.words(), "more than 0.00 s");
        for (ms, has_ended) in [(120, false), (260, false), (280, true), (300, true)] {
            idle.note(Time::from_millis(ms), has_ended);
        }
        let bound = idle.bound("so");
        assert_eq!((bound.at_least, bound.at_most), (Some(160), Some(180)));
        assert_eq!(idle.words(), "0.16 s to 0.18 s");
    }
}
