use std::sync::Mutex;
use std::sync::mpsc::channel;

use h2lab_model::bulk::BulkRecord;
use h2lab_model::fleet::{PairFigures, Reach, Trust, testing};
use h2lab_model::workload::{EngineSettings, Protocol};
use h2lab_net::lock::lock;

use super::*;

fn never(_: &BulkRecord) -> PairFigures {
    unreachable!("it transfers nothing")
}

/// What a share was told, in order.
type Told = Arc<Mutex<Vec<String>>>;

/// Shares that do nothing, and report what is to be reported at once.
#[derive(Debug, Default)]
struct FakeShares {
    told: Told,
}

#[derive(Debug)]
struct FakeShare {
    events: ShareEvents,
    told: Told,
}

impl Shares for FakeShares {
    fn start(&self, task: LoadTask, events: ShareEvents) -> Result<Box<dyn Share>, String> {
        lock(&self.told).push(format!("start {}", task.url));
        events.planned();
        Ok(Box::new(FakeShare { events, told: Arc::clone(&self.told) }))
    }
}

impl Share for FakeShare {
    fn begin(&self, at: Time) {
        lock(&self.told).push(format!("begin {}", at.as_nanos()));
        for seconds in 1..=2 {
            self.events.progress(testing::share_progress(seconds));
        }
    }

    fn stop(&self) {
        lock(&self.told).push("stop".to_owned());
        self.events.stored(testing::part_report("kek-1"));
    }
}

impl Drop for FakeShare {
    fn drop(&mut self) {
        lock(&self.told).push("drop".to_owned());
    }
}

/// An owner who permits nothing.
#[derive(Debug)]
struct Nothing;

impl Permits for Nothing {
    fn load(&self, _: &LoadTask) -> Result<(), String> {
        Err("--allow: no load".to_owned())
    }

    fn fetch(&self, _: &[FetchTask]) -> Result<(), String> {
        Err("--allow: no transfer".to_owned())
    }

    fn serve(&self, _: &ServeTask) -> Result<(), String> {
        Err("--allow: no server".to_owned())
    }

    fn bytes(&self) -> Option<u64> {
        Some(0)
    }

    fn time(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

/// An owner who permits everything, and notes what was asked for.
#[derive(Debug, Default)]
struct Asked(Told);

impl Asked {
    fn note(&self, what: &str) {
        lock(&self.0).push(what.to_owned());
    }
}

impl Permits for Asked {
    fn load(&self, _: &LoadTask) -> Result<(), String> {
        self.note("load");
        Ok(())
    }

    fn fetch(&self, _: &[FetchTask]) -> Result<(), String> {
        self.note("transfers");
        Ok(())
    }

    fn serve(&self, _: &ServeTask) -> Result<(), String> {
        self.note("server");
        Ok(())
    }

    fn bytes(&self) -> Option<u64> {
        None
    }

    fn time(&self) -> Option<Duration> {
        None
    }
}

/// An agent in a thread: its orders go in, and what it says comes out.
struct Running {
    orders: Sender<AgentEvent>,
    said: Receiver<FromAgent>,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(setup: AgentSetup) -> Self {
        let ((orders, events), (says, said)) = (channel(), channel());
        let own = orders.clone();
        let thread = std::thread::spawn(move || {
            work(&events, own, &setup, &mut |message| says.send(message).is_ok());
        });
        let running = Self { orders, said, thread };
        assert!(matches!(running.next(), FromAgent::Ready { .. }));
        running
    }

    fn order(&self, message: ToAgent) {
        self.orders.send(AgentEvent::Message(message)).unwrap();
    }

    fn next(&self) -> FromAgent {
        self.said.recv_timeout(Duration::from_secs(60)).expect("it says something")
    }

    #[track_caller]
    fn assert_refused(&self, order: ToAgent, word: &str) {
        self.order(order);
        let said = self.next();
        assert!(matches!(&said, FromAgent::Refused { why } if why.contains(word)), "{said:?}");
    }

    fn end(self) {
        self.order(ToAgent::Bye);
        self.thread.join().unwrap();
    }
}

fn of_shares(told: &Told) -> AgentSetup {
    let shares: Arc<dyn Shares> = Arc::new(FakeShares { told: Arc::clone(told) });
    AgentSetup { shares: Some(shares), ..AgentSetup::of_driver(never, SILENCE_TIMEOUT) }
}

fn load() -> ToAgent {
    ToAgent::Load(Box::new(testing::load_task()))
}

fn serve() -> ToAgent {
    ToAgent::Serve(ServeTask {
        listen: "127.0.0.1:0".parse().unwrap(),
        protocol: Protocol::H2c,
        settings: EngineSettings::default(),
        congestion: None,
    })
}

#[test]
fn an_agent_that_receives_nothing_any_more_ends_by_itself() {
    let (sender, events) = channel();
    let own = sender.clone();
    for number in 0..3 {
        sender.send(AgentEvent::Message(ToAgent::Ping { number })).unwrap();
    }
    let mut said = Vec::new();
    // Its input stays open, as that of a child of an sshd that has not noticed.
    let setup = AgentSetup::of_driver(never, Duration::from_secs(3));
    work(&events, own, &setup, &mut |message| {
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

#[test]
fn an_agent_that_was_stopped_does_not_call_its_driver_silent() {
    let begin = Time::from_millis(1_000);
    assert_eq!(Pause::in_wait(begin, begin + PAUSE.saturating_sub(Duration::from_nanos(1))), None);
    let until = begin + Duration::from_secs(75);
    let pause = Pause::in_wait(begin, until);
    assert_eq!(pause, Some(Pause { time: Duration::from_secs(75), until }));
    let said = |received_at| silence(SILENCE_TIMEOUT, received_at, pause);
    let stopped = "this agent did not run for 75s (stopped or suspended): no message from the driver for 60s";
    assert_eq!(said(begin), stopped);
    let soon = until + PAUSE.saturating_sub(Duration::from_nanos(1));
    assert_eq!(said(soon), stopped, "what it has read was sent before");
    assert_eq!(said(until + PAUSE), "no message from the driver for 60s", "it was there again");
    assert_eq!(silence(SILENCE_TIMEOUT, begin, None), "no message from the driver for 60s");
}

#[test]
fn a_share_is_planned_begun_at_the_instant_stopped_and_reported() {
    let told = Told::default();
    let agent = Running::start(of_shares(&told));
    agent.order(load());
    assert_eq!(agent.next(), FromAgent::Planned);
    agent.order(ToAgent::StartAt { at: Time::from_nanos(7) });
    let (newest, mut response_times) = (testing::share_progress(2), 0);
    loop {
        let FromAgent::Loading(progress) = agent.next() else { panic!("it reports how far it is") };
        response_times += progress.recent.n();
        if progress.due == newest.due {
            break;
        }
    }
    assert_eq!(response_times, 2 * newest.recent.n(), "each is sent once");
    agent.order(ToAgent::Stop);
    assert_eq!(agent.next(), FromAgent::Part(testing::part_report("kek-1")));
    agent.end();
    let url = testing::load_task().url;
    assert_eq!(
        *lock(&told),
        [format!("start {url}"), "begin 7".to_owned(), "stop".to_owned(), "drop".to_owned()]
    );
}

#[test]
fn a_share_ends_with_its_agent() {
    let told = Told::default();
    let agent = Running::start(of_shares(&told));
    agent.order(load());
    assert_eq!(agent.next(), FromAgent::Planned);
    agent.end();
    assert_eq!(lock(&told).last().map(String::as_str), Some("drop"));
}

#[test]
fn an_agent_has_one_task_at_a_time_and_none_that_it_cannot_do() {
    let agent = Running::start(of_shares(&Told::default()));
    agent.order(load());
    assert_eq!(agent.next(), FromAgent::Planned);
    agent.assert_refused(load(), "another task");
    agent.assert_refused(ToAgent::FleetPlan(Vec::new()), "another task");
    agent.end();
    let agent = Running::start(AgentSetup::of_driver(never, SILENCE_TIMEOUT));
    agent.assert_refused(load(), "agent --nats");
    agent.end();
}

#[test]
fn an_owner_is_asked_only_for_what_begins_if_it_is_permitted() {
    let asked = Told::default();
    let permits = || -> Option<Arc<dyn Permits>> { Some(Arc::new(Asked(Arc::clone(&asked)))) };
    let agent = Running::start(AgentSetup { permits: permits(), ..of_shares(&Told::default()) });
    agent.order(load());
    assert_eq!(agent.next(), FromAgent::Planned);
    agent.assert_refused(load(), "another task");
    agent.assert_refused(ToAgent::FleetPlan(Vec::new()), "another task");
    agent.end();
    let agent =
        Running::start(AgentSetup { permits: permits(), ..AgentSetup::of_driver(never, SILENCE_TIMEOUT) });
    agent.assert_refused(load(), "agent --nats");
    agent.order(serve());
    assert!(matches!(agent.next(), FromAgent::Serving { .. }));
    agent.assert_refused(serve(), "already serving");
    agent.end();
    assert_eq!(*lock(&asked), ["load", "server"]);
}

#[test]
fn the_time_that_an_order_takes_is_no_silence_of_the_driver() {
    let (sender, events) = channel();
    let own = sender.clone();
    for message in [load(), ToAgent::Bye] {
        sender.send(AgentEvent::Message(message)).unwrap();
    }
    // Any order takes longer.
    let timeout = Duration::from_nanos(1);
    let setup = AgentSetup { timeout, ..of_shares(&Told::default()) };
    let mut said = Vec::new();
    work(&events, own, &setup, &mut |message| {
        said.push(message);
        true
    });
    assert!(matches!(&said[..], [FromAgent::Ready { .. }]), "{said:?}");
}

#[test]
fn what_its_owner_does_not_permit_is_refused_and_not_begun() {
    let told = Told::default();
    let permits: Arc<dyn Permits> = Arc::new(Nothing);
    let agent = Running::start(AgentSetup { permits: Some(permits), ..of_shares(&told) });
    agent.assert_refused(load(), "no load");
    agent.assert_refused(ToAgent::FleetPlan(vec![testing::fetch_task(0)]), "no transfer");
    agent.assert_refused(serve(), "no server");
    agent.end();
    assert!(lock(&told).is_empty());
}

#[test]
fn a_start_that_is_too_far_ahead_is_refused() {
    let now = Time::from_millis(5);
    assert_eq!(check_start(now + LONGEST_WAIT, now), Ok(()));
    assert_eq!(check_start(Time::ZERO, now), Ok(()), "it is late already");
    let refusal = check_start(now + LONGEST_WAIT + Duration::from_nanos(1), now).unwrap_err();
    assert!(refusal.contains("at most 600s"), "{refusal}");
    let told = Told::default();
    let agent = Running::start(of_shares(&told));
    agent.order(load());
    assert_eq!(agent.next(), FromAgent::Planned);
    agent.assert_refused(ToAgent::StartAt { at: Time::NEVER }, "ahead");
    agent.end();
    assert!(!lock(&told).iter().any(|told| told.starts_with("begin")), "it is not begun");
    // Transfers wait for it in the same way.
    let agent = Running::start(AgentSetup::of_driver(never, SILENCE_TIMEOUT));
    agent.order(ToAgent::FleetPlan(vec![task_from("127.0.0.1:1".parse().unwrap())]));
    assert_eq!(agent.next(), FromAgent::Planned);
    agent.assert_refused(ToAgent::StartAt { at: Time::NEVER }, "ahead");
    agent.end();
}

/// Transfers from this server until they are stopped.
fn task_from(server: std::net::SocketAddr) -> FetchTask {
    FetchTask {
        urls: vec![format!("http://{server}/bytes/1000")],
        upgrade: false,
        duration: Duration::from_secs(600),
        trust: Trust::default(),
        reach: Reach::default(),
        ..testing::fetch_task(0)
    }
}

#[test]
fn a_transfer_that_panics_is_over_and_its_driver_is_told() {
    let agent = Running::start(AgentSetup::of_driver(never, SILENCE_TIMEOUT));
    agent.order(serve());
    let FromAgent::Serving { address } = agent.next() else { panic!("it serves") };
    agent.order(ToAgent::FleetPlan(vec![task_from(address)]));
    assert_eq!(agent.next(), FromAgent::Planned);
    agent.order(ToAgent::StartAt { at: Time::ZERO });
    // What makes the figures panics here.
    let why = loop {
        match agent.next() {
            FromAgent::Progress { bytes, .. } if bytes.iter().any(|(_, bytes)| *bytes > 0) => {
                agent.order(ToAgent::Stop);
            }
            FromAgent::Progress { .. } | FromAgent::Served(_) => {}
            FromAgent::Result { pair: 0, figures: Err(why), .. } => break why,
            other => panic!("{other:?}"),
        }
    };
    assert!(why.contains("it transfers nothing"), "{why}");
    agent.end();
}
