//! An agent: does what its driver orders, and reports the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::fleet::{FetchTask, FromAgent, ServeTask, ToAgent};

use super::event::{AgentEvent, Summarize};
use super::fetch::Fetcher;
use super::serve;
use h2lab_net::clock::{Clock, thread_cpu_ns};
use h2lab_net::machine::machine;

/// How often an agent reports its progress.
const PERIOD: Duration = Duration::from_millis(250);

/// An agent in another process that receives nothing for so long gives up: the path to its driver may have broken without a word.
/// A driver sends something every few seconds.
pub const DESERTED: Duration = Duration::from_secs(60);

/// A pair in transfer.
#[derive(Debug)]
struct UnderWay {
    pair: u32,
    bytes: Arc<AtomicU64>,
    is_over: bool,
}

/// Works for the sender to `events` until an [`AgentEvent::End`]; `own` is another sender to the same. Everything that the agent
/// started ends with it, within a moment. `say` is called with what it has to report, and returns whether that could be sent: an
/// agent without a reader ends, too, and so does one that received nothing for `timeout`.
pub fn work(
    events: &Receiver<AgentEvent>,
    own: Sender<AgentEvent>,
    timeout: Duration,
    summarize: Summarize,
    say: &mut dyn FnMut(FromAgent) -> bool,
) {
    let mut agent = Agent {
        clock: Clock::start(),
        own,
        summarize,
        stop: Arc::default(),
        fetchers: Vec::new(),
        under_way: Vec::new(),
        is_serving: false,
    };
    let ready = FromAgent::Ready { version: env!("CARGO_PKG_VERSION").to_owned(), machine: machine() };
    let mut is_connected = say(ready);
    let mut reported_at = agent.clock.now();
    let mut received_at = reported_at;
    while is_connected {
        let event = match events.recv_timeout(PERIOD) {
            Ok(AgentEvent::End(None)) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(AgentEvent::End(Some(why))) => {
                say(FromAgent::Refused { why });
                break;
            }
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
        };
        if let Some(AgentEvent::Message(_)) = event {
            received_at = agent.clock.now();
        }
        if let Some(answer) = event.and_then(|event| agent.handle(event)) {
            is_connected = say(answer);
        }
        let now = agent.clock.now();
        if now.since(received_at) >= timeout {
            let timeout = h2lab_base::units::format_duration(timeout);
            say(FromAgent::Refused { why: format!("no message from the driver for {timeout}") });
            break;
        }
        if is_connected && now.since(reported_at) >= PERIOD {
            reported_at = now;
            is_connected = agent.progress(now).is_none_or(&mut *say);
        }
    }
    agent.stop.store(true, Ordering::Relaxed);
}

#[derive(Debug)]
struct Agent {
    clock: Clock,
    own: Sender<AgentEvent>,
    summarize: Summarize,
    /// Ends everything that was begun.
    stop: Arc<AtomicBool>,
    /// What was planned and not begun.
    fetchers: Vec<Fetcher>,
    under_way: Vec<UnderWay>,
    is_serving: bool,
}

impl Agent {
    /// Handles an event; returns the answer, if there is one.
    fn handle(&mut self, event: AgentEvent) -> Option<FromAgent> {
        match event {
            AgentEvent::Message(ToAgent::Ping { number }) => {
                Some(FromAgent::Pong { number, at: self.clock.now() })
            }
            AgentEvent::Message(ToAgent::Serve(task)) => self.serve(&task),
            AgentEvent::Message(ToAgent::FleetPlan(tasks)) => Some(self.plan(tasks)),
            AgentEvent::Message(ToAgent::StartAt { at }) => self.start(at),
            AgentEvent::Message(ToAgent::Stop) => {
                self.stop.store(true, Ordering::Relaxed);
                None
            }
            AgentEvent::Serving(Ok(address)) => Some(FromAgent::Serving { address }),
            AgentEvent::Serving(Err(why)) => Some(FromAgent::Refused { why }),
            AgentEvent::Served(figures) => Some(FromAgent::Served(figures)),
            AgentEvent::Over { pair, began, figures } => {
                self.under_way.iter_mut().filter(|under_way| under_way.pair == pair).for_each(|under_way| {
                    under_way.is_over = true;
                });
                Some(FromAgent::Result { pair, began, figures })
            }
            AgentEvent::End(_) => None,
        }
    }

    fn serve(&mut self, task: &ServeTask) -> Option<FromAgent> {
        if std::mem::replace(&mut self.is_serving, true) {
            return Some(FromAgent::Refused { why: "it is already serving".to_owned() });
        }
        let started = serve::start(task, self.own.clone(), Arc::clone(&self.stop), thread_cpu_ns);
        started.err().map(|why| FromAgent::Refused { why })
    }

    /// Prepares what is to be fetched: names are resolved before the start, so that no resolver delays it.
    fn plan(&mut self, tasks: Vec<FetchTask>) -> FromAgent {
        match tasks.into_iter().map(Fetcher::new).collect() {
            Ok(fetchers) => {
                self.fetchers = fetchers;
                FromAgent::Planned
            }
            Err(why) => FromAgent::Refused { why },
        }
    }

    /// Begins what was planned, each pair in a thread of its own, at `at`.
    fn start(&mut self, at: Time) -> Option<FromAgent> {
        for fetcher in std::mem::take(&mut self.fetchers) {
            let (pair, bytes) = (fetcher.pair(), Arc::<AtomicU64>::default());
            self.under_way.push(UnderWay { pair, bytes: Arc::clone(&bytes), is_over: false });
            let (clock, own, stop, summarize) =
                (self.clock, self.own.clone(), Arc::clone(&self.stop), self.summarize);
            let fetch = move || {
                let (began, figures) = fetcher.fetch(clock, at, &stop, &bytes, summarize);
                // Fails only if the agent has ended.
                let _ = own.send(AgentEvent::Over { pair, began, figures });
            };
            if let Err(error) = std::thread::Builder::new().name(format!("pair-{pair}")).spawn(fetch) {
                return Some(FromAgent::Refused { why: format!("cannot start a thread: {error}") });
            }
        }
        None
    }

    /// Its progress, as long as a transfer runs.
    fn progress(&self, now: Time) -> Option<FromAgent> {
        let open = self.under_way.iter().filter(|under_way| !under_way.is_over);
        let bytes: Vec<(u32, u64)> =
            open.map(|under_way| (under_way.pair, under_way.bytes.load(Ordering::Relaxed))).collect();
        (!bytes.is_empty()).then_some(FromAgent::Progress { at: now, bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn an_agent_that_receives_nothing_any_more_ends_by_itself() {
        let (sender, events) = channel();
        let own = sender.clone();
        for number in 0..3 {
            sender.send(AgentEvent::Message(ToAgent::Ping { number })).unwrap();
        }
        let mut said = Vec::new();
        // Its input stays open, as that of a child of an sshd that has not noticed.
        let never = |_: &h2lab_model::bulk::BulkRecord| unreachable!("it fetches nothing");
        work(&events, own, Duration::from_secs(3), never, &mut |message| {
            said.push(message);
            true
        });
        drop(sender);
        assert_eq!(said.len(), 5, "{said:?}");
        assert!(
            matches!(&said[4], FromAgent::Refused { why } if why.contains("no message from the driver")),
            "{said:?}"
        );
    }
}
