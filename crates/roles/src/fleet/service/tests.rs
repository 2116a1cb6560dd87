//! Whole drives between threads, over packets that are lost, doubled and come late.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use h2lab_base::random::Counter;
use h2lab_model::bulk::{BulkRecord, TransferDirection, TransferOutcome};
use h2lab_model::fleet::messages::LONGEST_LINE;
use h2lab_model::fleet::{
    Ending, FetchTask, FleetJob, FleetRecord, FleetTimeouts, LoadTask, PairEnd, PairFigures, ServeTask,
    ServerPlace, Stage, testing,
};
use h2lab_model::workload::{EngineSettings, Protocol};
use h2lab_net::lock::lock;

use super::super::agent::SILENCE_TIMEOUT;
use super::super::agent_transport::TransportKind;
use super::super::drive;
use super::super::session_transport::{PacketSender, Sessions};
use super::super::shares::{Share, ShareEvents, Shares};
use super::waiting::{MOST_BYTES, MOST_ORDERS};
use super::*;

/// For what must happen.
const DEADLINE: Duration = Duration::from_secs(60);

/// How long a packet is waited for before it is looked whether one has to be sent again.
const PACE: Duration = Duration::from_millis(50);

/// The bytes of a record; nothing else of it is tested here.
fn figures(record: &BulkRecord) -> PairFigures {
    let listed: u64 = record.transfers.iter().map(|transfer| transfer.bytes).sum();
    let bytes = listed + record.overflow.bytes;
    let endings = vec![Ending { outcome: TransferOutcome::Complete, files: 1, bytes }];
    PairFigures { endings, meter: record.meter.clone(), ..testing::figures(0, 0, 1) }
}

/// A path that loses a fifth of all packets and doubles a fifth.
#[derive(Debug)]
struct Path {
    random: Counter,
    packets: AtomicU64,
    /// Everything is lost.
    is_cut: AtomicBool,
}

impl Path {
    fn new(seed: u64) -> Arc<Self> {
        let random = Counter::new(seed, "packets");
        Arc::new(Self { random, packets: AtomicU64::new(0), is_cut: AtomicBool::new(false) })
    }

    /// How often the next packet arrives.
    fn copies(&self) -> usize {
        let share = self.random.f64_at(self.packets.fetch_add(1, Ordering::Relaxed));
        if share < 0.2 || self.is_cut.load(Ordering::Relaxed) {
            0
        } else if share < 0.4 {
            2
        } else {
            1
        }
    }
}

fn setup() -> AgentSetup {
    AgentSetup::of_driver(figures, SILENCE_TIMEOUT)
}

/// A service whose packets go to `sender`.
fn service(sender: PacketSender, path: Arc<Path>) -> Service {
    let send = move |_: RandomId, packet: Vec<u8>| {
        for _ in 0..path.copies() {
            sender.put(packet.clone());
        }
    };
    Service::start(setup(), ServiceIo { send: Box::new(send), log: Box::new(|_| ()) }).unwrap()
}

/// An agent, and the way to it: `session` is the number of its driver's session.
fn agent(sessions: &Sessions, session: u128) -> (Service, TransportKind) {
    let line = sessions.line();
    let (to, from) = (Path::new(2 * session as u64), Path::new(2 * session as u64 + 1));
    let service = service(line.sender(), from);
    let sender = service.sender();
    let datagrams = move |packet: Vec<u8>| {
        for _ in 0..to.copies() {
            sender.put(RandomId::new(session), &packet);
        }
        Ok(())
    };
    (service, line.to(Box::new(datagrams)))
}

/// A client and a server on this machine.
fn job(direction: TransferDirection) -> FleetJob {
    let mut job = testing::job(1, 1);
    let listen = "127.0.0.1:0".parse().unwrap();
    job.servers[0].place = ServerPlace::Agent { listen, host: "127.0.0.1".to_owned() };
    let waits = FleetTimeouts { setup: Duration::from_secs(60), grace: Duration::from_secs(60) };
    FleetJob { direction, protocol: Protocol::H2c, duration: Duration::from_secs(1), waits, ..job }
}

fn drive_once(direction: TransferDirection, kinds: Vec<TransportKind>) -> FleetRecord {
    drive(job(direction), kinds, &AtomicBool::new(false), &mut |_, _| ()).unwrap()
}

/// A server that answers, beside the client that is tested.
fn lost_client(sessions: &Sessions, client: TransportKind) -> String {
    let (_server, to_server) = agent(sessions, 99);
    let record = drive_once(TransferDirection::Get, vec![client, to_server]);
    record.clients[0].lost.clone().unwrap_or_else(|| panic!("it is lost: {record:#?}"))
}

#[test]
fn a_drive_is_whole_in_both_directions_although_packets_are_lost_and_doubled() {
    let sessions = Sessions::start("the test".to_owned()).unwrap();
    for (number, direction) in [(1, TransferDirection::Get), (3, TransferDirection::Put)] {
        let (client, to_client) = agent(&sessions, number);
        let (server, to_server) = agent(&sessions, number + 1);
        let record = drive_once(direction, vec![to_client, to_server]);
        let pair = &record.pairs[0];
        assert!(matches!(pair.end, PairEnd::Reported(_)) && pair.bytes() > 0, "{record:#?}");
        let figures = record.servers[0].served.as_ref().expect("it reports what it took");
        let (moved, other) = match direction {
            TransferDirection::Get => (figures.sent, figures.received),
            TransferDirection::Put => (figures.received, figures.sent),
        };
        assert!(moved > 0 && other < moved, "{figures:?}");
        assert!(record.clients[0].lost.is_none() && record.servers[0].lost.is_none(), "{record:#?}");
        for service in [client, server] {
            // The end of a session may be lost, too: then its silence ends it.
            assert!(service.wait_until_free(SILENCE_TIMEOUT + Duration::from_secs(30)));
        }
    }
}

#[test]
fn an_agent_that_is_busy_says_with_whom_and_one_that_drains_takes_nobody() {
    let sessions = Sessions::start("the test".to_owned()).unwrap();
    let (client, to_client) = agent(&sessions, 10);
    let reservation = client.reserve("run 7".to_owned()).unwrap();
    let why = lost_client(&sessions, to_client);
    assert!(why.contains("busy with run 7, "), "{why}");
    drop(reservation);
    let (client, to_client) = agent(&sessions, 11);
    client.drain();
    let why = lost_client(&sessions, to_client);
    assert!(why.contains("shutting down"), "{why}");
}

#[test]
fn a_task_that_is_too_long_for_a_message_is_not_sent_and_its_agent_is_lost_in_words() {
    let sessions = Sessions::start("the test".to_owned()).unwrap();
    let (_client, to_client) = agent(&sessions, 30);
    let (_server, to_server) = agent(&sessions, 31);
    let fields = vec![("x".to_owned(), "a".repeat(LONGEST_LINE))];
    let job = FleetJob { fields, ..job(TransferDirection::Get) };
    let record = drive(job, vec![to_client, to_server], &AtomicBool::new(false), &mut |_, _| ()).unwrap();
    let why = record.clients[0].lost.as_deref().expect("it is lost");
    assert!(why.contains("agents read 4 MiB at most"), "{why}");
}

#[test]
fn an_agent_of_another_version_is_refused_by_its_number() {
    let sessions = Sessions::start("the test".to_owned()).unwrap();
    let line = sessions.line();
    let sender = line.sender();
    let datagrams = move |_: Vec<u8>| {
        sender.put(br#"{"agent":6,"message":{}}"#.to_vec());
        Ok(())
    };
    let why = lost_client(&sessions, line.to(Box::new(datagrams)));
    assert!(why.contains("version 6 "), "{why}");
}

#[test]
fn an_agent_that_was_started_again_is_lost_with_that_reason() {
    let sessions = Sessions::start("the test".to_owned()).unwrap();
    let line = sessions.line();
    let (sender, path) = (line.sender(), Path::new(20));
    let first = service(sender.clone(), Arc::clone(&path));
    let current = Arc::new(Mutex::new(first.sender()));
    let way = Arc::clone(&current);
    let datagrams = move |packet: Vec<u8>| {
        lock(&way).put(RandomId::new(20), &packet);
        Ok(())
    };
    let (_server, to_server) = agent(&sessions, 21);
    let mut second = None;
    let job = FleetJob { duration: Duration::from_secs(60), ..job(TransferDirection::Get) };
    let kinds = vec![line.to(Box::new(datagrams)), to_server];
    let record = drive(job, kinds, &AtomicBool::new(false), &mut |coordinator, _| {
        if second.is_none() && matches!(coordinator.stage(), Stage::Running { .. }) {
            path.is_cut.store(true, Ordering::Relaxed);
            let started = service(sender.clone(), Path::new(22));
            *lock(&current) = started.sender();
            second = Some(started);
        }
    });
    let record = record.unwrap();
    let why = record.clients[0].lost.as_deref().expect("it is lost");
    assert!(why.contains("restarted"), "{why}");
    assert!(matches!(record.pairs[0].end, PairEnd::Lost { .. }), "{record:#?}");
    assert!(second.is_some_and(|second| second.busy().is_none()), "it works for nobody");
}

/// Packets of a service: of which session, and what.
type Said = Receiver<(RandomId, Vec<u8>)>;

/// A service whose packets a test reads itself.
fn speaking(setup: AgentSetup) -> (Service, Said) {
    let (says, said) = channel();
    let send = move |session: RandomId, packet: Vec<u8>| says.send((session, packet)).unwrap_or(());
    let io = ServiceIo { send: Box::new(send), log: Box::new(|_| ()) };
    (Service::start(setup, io).unwrap(), said)
}

/// A driver that says whatever it is told to.
struct Driver<'a> {
    service: &'a Service,
    said: &'a Said,
    id: RandomId,
    session: Session,
    clock: Clock,
    heard: VecDeque<FromAgent>,
}

impl<'a> Driver<'a> {
    /// Opens the session of this number.
    fn open(service: &'a Service, said: &'a Said, number: u64) -> Self {
        let clock = Clock::start();
        let session = Session::new(clock.now(), number);
        let id = RandomId::new(number.into());
        let mut driver = Self { service, said, id, session, clock, heard: VecDeque::new() };
        driver.say(&ToAgent::Open { driver: format!("driver {number}") });
        driver
    }

    fn say(&mut self, message: &ToAgent) {
        self.session.send(self.clock.now(), encode(message).unwrap());
    }

    /// Sends what is due, and takes a packet if one comes.
    fn pump(&mut self) {
        while let Some(packet) = self.session.poll_packet(self.clock.now()) {
            self.service.sender().put(self.id, &packet);
        }
        match self.said.recv_timeout(PACE) {
            Ok((id, packet)) if id == self.id => {
                let lines = self.session.handle(self.clock.now(), &packet).unwrap();
                self.heard.extend(lines.iter().map(|line| decode::<FromAgent>(line).unwrap()));
            }
            _ => {}
        }
    }

    /// Waits until all that it said has arrived.
    fn deliver(&mut self) {
        let until = Instant::now() + DEADLINE;
        while !self.session.is_delivered() {
            assert!(Instant::now() < until, "the service is silent");
            self.pump();
        }
    }

    /// The next message to it.
    #[track_caller]
    fn hear(&mut self) -> FromAgent {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(message) = self.heard.pop_front() {
                return message;
            }
            assert!(Instant::now() < until, "the agent is silent");
            self.pump();
        }
    }
}

#[test]
fn a_second_driver_learns_who_has_the_agent() {
    let (service, said) = speaking(setup());
    let first = Driver::open(&service, &said, 0).hear();
    assert!(matches!(first, FromAgent::Ready { .. }), "{first:?}");
    let second = Driver::open(&service, &said, 1).hear();
    assert!(matches!(&second, FromAgent::Busy { with } if with.starts_with("driver 0, ")), "{second:?}");
    assert!(service.busy().is_some_and(|with| with.starts_with("driver 0")));
}

#[test]
fn a_driver_keeps_the_name_with_which_it_opened_its_session() {
    let ((says, said), (logs, logged)) = (channel(), channel());
    let send = move |session: RandomId, packet: Vec<u8>| says.send((session, packet)).unwrap_or(());
    let log = move |words: &str| logs.send(words.to_owned()).unwrap_or(());
    let io = ServiceIo { send: Box::new(send), log: Box::new(log) };
    let service = Service::start(setup(), io).unwrap();
    let mut driver = Driver::open(&service, &said, 1);
    assert!(matches!(driver.hear(), FromAgent::Ready { .. }));
    driver.say(&ToAgent::Open { driver: "another one".to_owned() });
    driver.say(&ToAgent::Bye);
    driver.deliver();
    let words = [(); 2].map(|()| logged.recv_timeout(DEADLINE).unwrap());
    assert_eq!(words, ["works for driver 1", "no longer works for driver 1"]);
}

/// Shares of which each reports that it has begun, and lets go a moment after the sessions of its service are over.
#[derive(Debug)]
struct Lasting {
    begun: Mutex<Sender<()>>,
    /// Ends with the sessions.
    sessions: Arc<Mutex<Receiver<()>>>,
    has_let_go: Arc<AtomicBool>,
}

/// One of [`Lasting`].
#[derive(Debug)]
struct LastingShare {
    sessions: Arc<Mutex<Receiver<()>>>,
    has_let_go: Arc<AtomicBool>,
}

impl Shares for Lasting {
    fn start(&self, _: LoadTask, _: ShareEvents) -> Result<Box<dyn Share>, String> {
        lock(&self.begun).send(()).unwrap_or(());
        let (sessions, has_let_go) = (Arc::clone(&self.sessions), Arc::clone(&self.has_let_go));
        Ok(Box::new(LastingShare { sessions, has_let_go }))
    }
}

impl Share for LastingShare {
    fn begin(&self, _: Time) {}

    fn stop(&self) {}
}

impl Drop for LastingShare {
    fn drop(&mut self) {
        // Nothing is ever sent.
        let _ = lock(&self.sessions).recv_timeout(DEADLINE);
        // Whoever does not wait for the share is through by then.
        thread::sleep(PACE);
        self.has_let_go.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_end_of_a_service_waits_until_its_share_has_let_go_and_not_only_for_its_sessions() {
    let (begun, begins) = channel();
    let (open, sessions) = channel();
    let has_let_go = Arc::new(AtomicBool::new(false));
    let shares = Lasting {
        begun: Mutex::new(begun),
        sessions: Arc::new(Mutex::new(sessions)),
        has_let_go: Arc::clone(&has_let_go),
    };
    let (says, said) = channel();
    let send = move |session: RandomId, packet: Vec<u8>| {
        // Dropped with the thread that has the sessions.
        let _open = &open;
        says.send((session, packet)).unwrap_or(());
    };
    let io = ServiceIo { send: Box::new(send), log: Box::new(|_| ()) };
    let setup = AgentSetup { shares: Some(Arc::new(shares)), ..setup() };
    let service = Service::start(setup, io).unwrap();
    let mut driver = Driver::open(&service, &said, 1);
    assert!(matches!(driver.hear(), FromAgent::Ready { .. }));
    driver.say(&ToAgent::Load(Box::new(testing::load_task())));
    driver.deliver();
    begins.recv_timeout(DEADLINE).expect("its share begins");
    assert!(!has_let_go.load(Ordering::Relaxed));
    drop(service);
    assert!(has_let_go.load(Ordering::Relaxed));
}

/// Permits that call `F` when a server is asked for, and then refuse it.
struct OnServe<F>(F);

impl<F> fmt::Debug for OnServe<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnServe")
    }
}

impl<F: Fn() + Send + Sync> Permits for OnServe<F> {
    fn load(&self, _: &LoadTask) -> Result<(), String> {
        Ok(())
    }

    fn fetch(&self, _: &[FetchTask]) -> Result<(), String> {
        Ok(())
    }

    fn serve(&self, _: &ServeTask) -> Result<(), String> {
        (self.0)();
        Err("not here".to_owned())
    }

    fn bytes(&self) -> Option<u64> {
        None
    }

    fn time(&self) -> Option<Duration> {
        None
    }
}

fn asking(on_serve: impl Fn() + Send + Sync + 'static) -> AgentSetup {
    AgentSetup { permits: Some(Arc::new(OnServe(on_serve))), ..setup() }
}

fn serve() -> ToAgent {
    let listen = "127.0.0.1:0".parse().unwrap();
    let settings = EngineSettings::default();
    ToAgent::Serve(ServeTask { listen, protocol: Protocol::H1, settings, congestion: None })
}

#[test]
fn an_agent_that_panics_is_given_up_in_words_and_is_free_for_the_next_driver() {
    fn panics() {
        panic!("as the test wants");
    }
    let (service, said) = speaking(asking(panics));
    let mut driver = Driver::open(&service, &said, 1);
    assert!(matches!(driver.hear(), FromAgent::Ready { .. }));
    driver.say(&serve());
    let last = driver.hear();
    assert!(matches!(&last, FromAgent::Refused { why } if why.contains("its agent panicked")), "{last:?}");
    assert!(service.busy().is_none(), "it is free before its driver knows");
    let next = Driver::open(&service, &said, 2).hear();
    assert!(matches!(next, FromAgent::Ready { .. }), "{next:?}");
}

#[test]
fn a_driver_with_more_orders_than_wait_is_given_up_in_words() {
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    let (service, said) = speaking(asking(move || {
        // The end of the sender.
        let _ = lock(&held).recv();
    }));
    let mut driver = Driver::open(&service, &said, 1);
    assert!(matches!(driver.hear(), FromAgent::Ready { .. }));
    driver.say(&serve());
    for number in 0..MOST_ORDERS as u32 + 10 {
        driver.say(&ToAgent::Ping { number });
    }
    driver.deliver();
    drop(release);
    let mut answers = 0;
    let why = loop {
        match driver.hear() {
            FromAgent::Refused { why } if why != "not here" => break why,
            _ => answers += 1,
        }
    };
    assert!(why.contains("at most 1024 wait"), "{why}");
    assert!(answers <= MOST_ORDERS + 1, "what waited is followed, and nothing after that: {answers}");
    assert!(service.wait_until_free(DEADLINE));
}

#[test]
fn packets_wait_up_to_a_number_of_bytes_whatever_their_sessions() {
    let (orders, taken) = channel();
    let sender = ServiceSender { orders, room: Room::of_packets() };
    let packet = vec![0; MOST_BYTES / 4];
    let put = || (0..5).for_each(|number| sender.put(RandomId::new(number), &packet));
    put();
    assert_eq!(taken.try_iter().count(), 4);
    put();
    assert_eq!(taken.try_iter().count(), 4, "those before have left their places");
}
