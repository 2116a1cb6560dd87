//! How long a connection may be idle before the server ends it.

use std::time::Duration;

use h2lab_core::probe::{Bound, Check, Verdict, id};
use h2lab_core::units::{Time, format_duration, millis_f64};

use super::super::{Found, decided};
use crate::probe::line::Line;
use crate::probe::talk::{Opening, Talk};
use crate::probe::{ProbeError, Prober};

/// How long one of the connections is listened to before it is the other's turn: what the interval is exact to.
const TURN: Duration = Duration::from_millis(20);

/// An idle connection.
struct Idle {
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

/// Watches one idle connection of each version, both at a time, for `budget` at most.
pub fn look(prober: &mut Prober, budget: Duration, found: &mut Found) -> Result<(), ProbeError> {
    let mut h2 = None;
    if let Some(protocol) = found.h2 {
        match Talk::open(prober, protocol, &Opening::default()) {
            Ok(mut talk) => match talk.get(prober) {
                Ok(_) => h2 = Some((talk, Idle::new(prober.now()))),
                Err(error) => found.add(decided(id::LIMT105, Err(error))?.of(protocol.to_string())),
            },
            Err(error) => found.add(decided(id::LIMT105, Err(error))?.of(protocol.to_string())),
        }
    }
    let mut h1 = None;
    if let Some(protocol) = found.h1 {
        match ask(prober, protocol) {
            Ok(line) => h1 = Some((line, Idle::new(prober.now()))),
            Err(error) => found.add(decided(id::LIMT105, Err(error))?.of(protocol.to_string())),
        }
    }
    let until = (prober.now() + budget).min(prober.budget().ends_at());
    loop {
        let mut open = false;
        let turn = (prober.now() + TURN).min(until);
        if let Some((talk, idle)) = h2.as_mut().filter(|(_, idle)| idle.ended_at.is_none()) {
            talk.until(prober, turn, |talk| talk.ended().is_some())?;
            idle.note(prober.now(), talk.ended().is_some());
            open |= idle.ended_at.is_none();
        }
        let turn = (prober.now() + TURN).min(until);
        if let Some((line, idle)) = h1.as_mut().filter(|(_, idle)| idle.ended_at.is_none()) {
            line.listen(prober, turn)?;
            line.incoming.clear();
            idle.note(prober.now(), line.over().is_some());
            open |= idle.ended_at.is_none();
        }
        if !open || prober.now() >= until {
            break;
        }
    }
    if let (Some((talk, idle)), Some(protocol)) = (h2, found.h2) {
        let how = talk.ended().unwrap_or_else(|| format!("open after {}", format_duration(budget)));
        found.limits.idle_ms = Some(idle.bound(&how));
        let no_goodbye = idle.ended_at.is_some() && talk.goaways.is_empty();
        let verdict = if no_goodbye { Verdict::Fail } else { Verdict::Pass };
        let check = Check::new(id::LIMT105, verdict, format!("{}: {how}", idle.words()));
        found.add(check.of(protocol.to_string()).with("an idle connection", talk.ending(6)));
    }
    if let (Some((line, idle)), Some(protocol)) = (h1, found.h1) {
        let how = if idle.ended_at.is_some() { "it closed the connection" } else { "still open" };
        found.limits.h1_idle_ms = Some(idle.bound(how));
        let check = Check::new(id::LIMT105, Verdict::Pass, format!("{}: {how}", idle.words()));
        found.add(check.of(protocol.to_string()).with("an idle connection", line.tape.last(4, |_| true)));
    }
    Ok(())
}

/// A connection of HTTP/1.1 on which one request was answered.
fn ask(prober: &mut Prober, protocol: h2lab_core::workload::Protocol) -> Result<Line, ProbeError> {
    prober.take_request()?;
    let mut line = Line::dial(prober, protocol)?;
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", prober.host.path, prober.host.authority);
    let until = prober.soon();
    line.send(prober, request.as_bytes(), until)?;
    super::quota::response(&mut line, prober)?;
    Ok(line)
}
