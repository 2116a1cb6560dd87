//! An agent: does what its driver orders, and reports the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use h2lab_base::units::{Time, format_duration};
use h2lab_model::fleet::{FetchTask, FromAgent, LoadTask, ServeTask, ShareProgress, ToAgent};

use super::event::{AgentEvent, Summarize};
use super::fetch::{ByteBudget, Fetcher};
use super::permits::Permits;
use super::serve;
use super::shares::{Share, ShareEvent, ShareEvents, Shares, caught};
use h2lab_net::clock::{Clock, thread_cpu_ns};
use h2lab_net::machine::machine;

/// How often an agent reports its progress.
const PERIOD: Duration = Duration::from_millis(250);

/// An agent in another process that receives nothing for so long gives up: the path to its driver may have broken without a word.
/// A driver sends something every few seconds.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// An agent waits for [`PERIOD`] at most. When a wait has taken this long, its process was stopped, or its machine suspended.
const PAUSE: Duration = Duration::from_secs(5);

/// How long before its start a task is at most: what is ready meanwhile, such as connections, is kept for it. A driver sets the start
/// seconds ahead.
pub const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// What an agent can do and may do.
#[derive(Debug, Clone)]
pub struct AgentSetup {
    /// Makes the figures of what it has transferred.
    pub summarize: Summarize,
    /// Makes shares of loads; `None` refuses them.
    pub shares: Option<Arc<dyn Shares>>,
    /// What it may do; `None` is everything: whoever started it has all rights of this user anyway.
    pub permits: Option<Arc<dyn Permits>>,
    /// It ends if it receives nothing for so long.
    pub timeout: Duration,
}

impl AgentSetup {
    /// That of an agent which its own driver starts, for transfers only.
    pub fn of_driver(summarize: Summarize, timeout: Duration) -> Self {
        Self { summarize, shares: None, permits: None, timeout }
    }
}

/// A pair in transfer.
#[derive(Debug)]
struct UnderWay {
    pair: u32,
    bytes: Arc<AtomicU64>,
    is_over: bool,
}

/// Works for the sender to `events` until an [`AgentEvent::End`] or a [`ToAgent::Bye`]; `own` is another sender to the same.
/// Everything that the agent started has ended when it returns, a moment after that. `say` is called with what it has to report,
/// and returns whether that could be sent: an agent without a reader ends, too, and so does one that received nothing for
/// [`AgentSetup::timeout`].
pub fn work(
    events: &Receiver<AgentEvent>,
    own: Sender<AgentEvent>,
    setup: &AgentSetup,
    say: &mut dyn FnMut(FromAgent) -> bool,
) {
    let mut agent = Agent::new(own, setup);
    let mut is_connected =
        say(FromAgent::Ready { version: env!("CARGO_PKG_VERSION").to_owned(), machine: machine() });
    let mut reported_at = agent.clock.now();
    let mut received_at = reported_at;
    let mut pause = None;
    while is_connected {
        let waits_since = agent.clock.now();
        let event = match events.recv_timeout(PERIOD) {
            Ok(AgentEvent::End(None) | AgentEvent::Message(ToAgent::Bye))
            | Err(RecvTimeoutError::Disconnected) => break,
            Ok(AgentEvent::End(Some(why))) => {
                say(FromAgent::Refused { why });
                break;
            }
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
        };
        pause = Pause::in_wait(waits_since, agent.clock.now()).or(pause);
        let is_message = matches!(event, Some(AgentEvent::Message(_)));
        if let Some(answer) = event.and_then(|event| agent.handle(event)) {
            is_connected = say(answer);
        }
        let now = agent.clock.now();
        if is_message {
            // What an order takes, above all to resolve names, is not a silence of the driver.
            received_at = now;
        }
        if now.since(received_at) >= setup.timeout {
            say(FromAgent::Refused { why: silence(setup.timeout, received_at, pause) });
            break;
        }
        if is_connected && now.since(reported_at) >= PERIOD {
            reported_at = now;
            agent.end_serving(now);
            is_connected = agent.progress(now).is_none_or(&mut *say);
        }
    }
}

/// A time in which this agent did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    time: Duration,
    until: Time,
}

impl Pause {
    /// That in a wait for an event, if there was one.
    fn in_wait(since: Time, now: Time) -> Option<Self> {
        let time = now.since(since);
        (time >= PAUSE).then_some(Self { time, until: now })
    }
}

/// What is said of a driver that has sent nothing for `timeout`, and last at `received_at`. After a `pause` it is the agent that was not
/// there, unless the driver has sent something since: what is read in its first moments may have been sent before.
fn silence(timeout: Duration, received_at: Time, pause: Option<Pause>) -> String {
    let silent = format!("no message from the driver for {}", format_duration(timeout));
    match pause.filter(|pause| received_at.since(pause.until) < PAUSE) {
        None => silent,
        Some(Pause { time, .. }) => {
            let whole = format_duration(Duration::from_secs(time.as_secs()));
            format!("this agent did not run for {whole} (stopped or suspended): {silent}")
        }
    }
}

#[derive(Debug)]
struct Agent<'a> {
    setup: &'a AgentSetup,
    clock: Clock,
    own: Sender<AgentEvent>,
    /// Ends everything that was begun.
    stop: Arc<AtomicBool>,
    /// What was planned and not begun.
    fetchers: Vec<Fetcher>,
    under_way: Vec<UnderWay>,
    budget: Arc<ByteBudget>,
    /// When it must stop serving; `None` before it serves.
    serves_until: Option<Time>,
    share: Option<Box<dyn Share>>,
    /// What the share has reported since that was last sent.
    loading: Option<Box<ShareProgress>>,
    /// Of what was begun.
    threads: Vec<JoinHandle<()>>,
}

impl<'a> Agent<'a> {
    fn new(own: Sender<AgentEvent>, setup: &'a AgentSetup) -> Self {
        let most = setup.permits.as_ref().and_then(|permits| permits.bytes());
        Self {
            setup,
            clock: Clock::start(),
            own,
            stop: Arc::default(),
            fetchers: Vec::new(),
            under_way: Vec::new(),
            budget: Arc::new(ByteBudget::new(most)),
            serves_until: None,
            share: None,
            loading: None,
            threads: Vec::new(),
        }
    }

    /// Handles an event; returns the answer, if there is one.
    fn handle(&mut self, event: AgentEvent) -> Option<FromAgent> {
        match event {
            AgentEvent::Message(message) => self.obey(message),
            AgentEvent::Serving(Ok(address)) => Some(FromAgent::Serving { address }),
            AgentEvent::Serving(Err(why)) => Some(FromAgent::Refused { why }),
            AgentEvent::Served(figures) => Some(FromAgent::Served(figures)),
            AgentEvent::Over { pair, began, figures } => {
                self.under_way.iter_mut().filter(|under_way| under_way.pair == pair).for_each(|under_way| {
                    under_way.is_over = true;
                });
                Some(FromAgent::Result { pair, began, figures })
            }
            AgentEvent::Share(event) => self.note_share(event),
            AgentEvent::End(_) => None,
        }
    }

    /// Does what the driver orders. An order that is not permitted, or cannot be followed, is refused.
    fn obey(&mut self, message: ToAgent) -> Option<FromAgent> {
        let answer = match message {
            ToAgent::Ping { number } => Ok(Some(FromAgent::Pong { number, at: self.clock.now() })),
            ToAgent::Serve(task) => self.serve(&task).map(|()| None),
            ToAgent::FleetPlan(tasks) => self.plan(tasks).map(|()| Some(FromAgent::Planned)),
            ToAgent::Load(task) => self.load(*task).map(|()| None),
            ToAgent::StartAt { at } => self.start(at).map(|()| None),
            ToAgent::Stop => {
                self.stop.store(true, Ordering::Relaxed);
                if let Some(share) = &self.share {
                    share.stop();
                }
                Ok(None)
            }
            // What a session begins and ends with is handled by what carries the messages.
            ToAgent::Open { .. } | ToAgent::Bye => Ok(None),
        };
        answer.unwrap_or_else(|why| Some(FromAgent::Refused { why }))
    }

    /// Whether the owner of this machine permits a task. It is asked last: what is permitted begins, as the log says.
    fn permit(&self, check: impl FnOnce(&dyn Permits) -> Result<(), String>) -> Result<(), String> {
        self.setup.permits.as_deref().map_or(Ok(()), check)
    }

    fn serve(&mut self, task: &ServeTask) -> Result<(), String> {
        if self.serves_until.is_some() {
            return Err("it is already serving".to_owned());
        }
        self.permit(|permits| permits.serve(task))?;
        let time = self.setup.permits.as_ref().and_then(|permits| permits.time());
        self.serves_until = Some(time.map_or(Time::NEVER, |time| self.clock.now() + time));
        let thread = serve::start(task, self.own.clone(), Arc::clone(&self.stop), thread_cpu_ns)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Stops a server that has served for as long as it may.
    fn end_serving(&self, now: Time) {
        if self.serves_until.is_some_and(|until| now >= until) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Prepares what is to be transferred: names are resolved before the start, so that no resolver delays it.
    fn plan(&mut self, tasks: Vec<FetchTask>) -> Result<(), String> {
        if self.share.is_some() || !self.under_way.is_empty() {
            return Err("it has another task already".to_owned());
        }
        self.permit(|permits| permits.fetch(&tasks))?;
        let fetcher = |task| Fetcher::new(task, Arc::clone(&self.budget));
        self.fetchers = tasks.into_iter().map(fetcher).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Begins to dial for a share of a load; it is planned when its connections are up.
    fn load(&mut self, task: LoadTask) -> Result<(), String> {
        if self.share.is_some() || !self.fetchers.is_empty() || !self.under_way.is_empty() {
            return Err("it has another task already".to_owned());
        }
        let none = "it makes no shares of loads: start it with `h2lab agent --nats`";
        let shares = self.setup.shares.as_ref().ok_or(none)?;
        self.permit(|permits| permits.load(&task))?;
        self.share = Some(shares.start(task, ShareEvents::new(self.own.clone(), self.clock))?);
        Ok(())
    }

    /// Begins what was planned, each pair in a thread of its own, at `at`.
    fn start(&mut self, at: Time) -> Result<(), String> {
        check_start(at, self.clock.now())?;
        if let Some(share) = &self.share {
            share.begin(at);
        }
        for fetcher in std::mem::take(&mut self.fetchers) {
            let (pair, bytes) = (fetcher.pair(), Arc::<AtomicU64>::default());
            self.under_way.push(UnderWay { pair, bytes: Arc::clone(&bytes), is_over: false });
            let (clock, own, stop, summarize) =
                (self.clock, self.own.clone(), Arc::clone(&self.stop), self.setup.summarize);
            let fetch = move || {
                let fetched = caught(|| fetcher.fetch(clock, at, &stop, &bytes, summarize));
                let (began, figures) = fetched.unwrap_or_else(|why| (Time::NEVER, Err(why)));
                // Fails only if the agent has ended.
                let _ = own.send(AgentEvent::Over { pair, began, figures });
            };
            let thread = std::thread::Builder::new().name(format!("pair-{pair}")).spawn(fetch);
            self.threads.push(thread.map_err(|error| format!("cannot start a thread: {error}"))?);
        }
        Ok(())
    }

    /// What the share reports; the answer, if there is one.
    fn note_share(&mut self, event: ShareEvent) -> Option<FromAgent> {
        match event {
            ShareEvent::Planned => Some(FromAgent::Planned),
            ShareEvent::Progress(mut newest) => {
                if let Some(unsent) = self.loading.take() {
                    newest.recent.merge(&unsent.recent);
                }
                self.loading = Some(newest);
                None
            }
            ShareEvent::Stored(report) => {
                (self.share, self.loading) = (None, None);
                Some(FromAgent::Part(*report))
            }
            ShareEvent::Failed(why) => {
                (self.share, self.loading) = (None, None);
                Some(FromAgent::Refused { why })
            }
        }
    }

    /// Its progress, as long as a share or a transfer runs.
    fn progress(&mut self, now: Time) -> Option<FromAgent> {
        if let Some(loading) = self.loading.take() {
            return Some(FromAgent::Loading(loading));
        }
        let open = self.under_way.iter().filter(|under_way| !under_way.is_over);
        let bytes: Vec<(u32, u64)> =
            open.map(|under_way| (under_way.pair, under_way.bytes.load(Ordering::Relaxed))).collect();
        (!bytes.is_empty()).then_some(FromAgent::Progress { at: now, bytes })
    }
}

impl Drop for Agent<'_> {
    /// Ends everything that was begun, and waits for it: what runs on would disturb the next task. After a panic, too.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.share.take());
        for thread in self.threads.drain(..) {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// Refuses a start that is too far ahead: until then the agent would keep what is ready, and wait, whatever bounds it has.
fn check_start(at: Time, now: Time) -> Result<(), String> {
    let ahead = at.since(now);
    if ahead > LONGEST_WAIT {
        let (ahead, most) = (format_duration(ahead), format_duration(LONGEST_WAIT));
        return Err(format!("the start is {ahead} ahead, and an agent waits at most {most}: start later"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
