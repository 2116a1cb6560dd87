//! What no driver of ours sends: packets that are none, orders that nobody permits, runs that would change the machine.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use h2lab_model::fleet::messages::{decode_printable, encode};
use h2lab_model::fleet::{
    AGENT_VERSION, AgentName, Class, FetchTask, FromAgent, LoadTask, RandomId, Reach, RunInfo, ServeTask,
    Session, ToAgent, UnitTask, subjects, testing,
};
use h2lab_model::scenario::{Axis, LiveTarget, Scenario, SysctlAxes};
use h2lab_model::workload::{EngineSettings, Protocol};
use h2lab_nats::{Nats, Subscription};
use h2lab_net::clock::Clock;

use super::refused::Untouched;
use super::{ANY, Hub, assert_adds_up, await_line, origin};
use crate::support::DEADLINE;

/// A file that would be written to, were its name taken for that of a sysctl.
const FILE: &str = "net/../kernel/core_pattern";

/// What is refused of it.
const CANNOT: &str = "cannot set `net/../kernel/core_pattern`";

/// How long a packet is waited for before it is looked whether one has to be sent again.
const PACE: Duration = Duration::from_millis(50);

/// A session number.
fn id(number: u128) -> RandomId {
    RandomId::new(number)
}

fn kek_1() -> AgentName {
    "kek-1".parse().expect("a name")
}

/// What comes at a subject.
fn packets(nats: &Nats, subject: &str) -> (Subscription, Receiver<Vec<u8>>) {
    let (sender, packets) = channel();
    let subscription = nats.subscribe(subject, move |_, packet| {
        // Fails only after the test.
        let _ = sender.send(packet.to_vec());
    });
    (subscription.expect("it is permitted"), packets)
}

/// A driver that says whatever it is told to.
struct Driver {
    nats: Nats,
    to: String,
    session: Session,
    clock: Clock,
    packets: Receiver<Vec<u8>>,
    lines: VecDeque<String>,
    _subscription: Subscription,
}

impl Driver {
    /// Opens a session with kek-1.
    fn open(hub: &Hub, number: u128) -> Self {
        let (nats, clock, agent) = (hub.server.connect(), Clock::start(), kek_1());
        let (subscription, packets) = packets(&nats, &subjects::from_agent(&agent, id(number)));
        let mut driver = Self {
            nats,
            to: subjects::to_agent(&agent, id(number)),
            session: Session::new(clock.now(), 1),
            clock,
            packets,
            lines: VecDeque::new(),
            _subscription: subscription,
        };
        driver.say(&ToAgent::Open { driver: "eve\u{1b}[2J".to_owned() });
        driver
    }

    fn say(&mut self, message: &ToAgent) {
        self.session.send(self.clock.now(), encode(message).expect("plain data"));
    }

    /// Sends what is due, and takes a packet if one comes.
    fn pump(&mut self) {
        while let Some(packet) = self.session.poll_packet(self.clock.now()) {
            self.nats.publish(&self.to, packet).expect("there is a connection");
        }
        if let Ok(packet) = self.packets.recv_timeout(PACE) {
            self.lines.extend(self.session.handle(self.clock.now(), &packet).expect("a packet of an agent"));
        }
    }

    /// The next message of the agent.
    #[track_caller]
    fn hear(&mut self) -> FromAgent {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(line) = self.lines.pop_front() {
                return decode_printable(&line).expect("a message of an agent");
            }
            assert!(Instant::now() < until, "the agent is silent");
            self.pump();
        }
    }

    /// Says something that is refused; the reason.
    #[track_caller]
    fn refusal(&mut self, message: &ToAgent) -> String {
        self.say(message);
        match self.hear() {
            FromAgent::Refused { why } => why,
            other => panic!("{message:?} is answered with {other:?}"),
        }
    }

    /// Leaves, and waits until the agent knows.
    fn leave(mut self) {
        self.say(&ToAgent::Bye);
        let until = Instant::now() + DEADLINE;
        while !self.session.is_delivered() {
            assert!(Instant::now() < until, "the agent is silent");
            self.pump();
        }
    }
}

/// Packets that are none.
fn nonsense() -> Vec<Vec<u8>> {
    let of_ours = |message: &str| format!(r#"{{"agent":{AGENT_VERSION},"message":{message}}}"#).into_bytes();
    let carries = |carried: &str| of_ours(&format!(r#"{{"from":1,"ack":0,"held":0,"carries":{carried}}}"#));
    vec![
        Vec::new(),
        b"{".to_vec(),
        b"\xff\xfe\x00".to_vec(),
        b"\x1b[2J".to_vec(),
        b"[".repeat(100_000),
        b"x".repeat(300_000),
        of_ours("null"),
        of_ours(r#"{"from":-1,"ack":0,"held":0}"#),
        of_ours(r#"{"from":1,"to":2,"ack":0,"held":0}"#),
        of_ours(r#"{"from":1,"ack":9,"held":18446744073709551615}"#),
        carries(r#"{"fragment":{"number":0,"text":"no message","last":true}}"#),
        carries(r#"{"fragment":{"number":18446744073709551615,"text":"","last":true}}"#),
        carries(r#"{"once":{"number":1,"after":0,"text":"{}"}}"#),
    ]
}

#[test]
fn packets_that_are_none_leave_an_agent_at_work_and_another_version_is_told_why() {
    let Some(hub) = Hub::start() else { return };
    let agent = hub.agent("kek-1", &["--allow", "serve"]);
    let nats = hub.server.connect();
    let (_subscription, answers) = packets(&nats, &subjects::from_agent(&kek_1(), id(1000)));
    let send = |subject: &str, packet: Vec<u8>| nats.publish(subject, packet).unwrap();
    for (number, packet) in (0..).zip(nonsense()) {
        send(&subjects::to_agent(&kek_1(), id(number)), packet.clone());
        send("h2lab.agent.kek-1.to.x", packet.clone());
        send("h2lab.agent.kek-1.who", packet.clone());
        send("h2lab.who", packet);
    }
    // More sessions than an agent keeps, of drivers that say nothing more.
    let empty = format!(r#"{{"agent":{AGENT_VERSION},"message":{{"from":1,"ack":0,"held":0}}}}"#);
    for number in 100..400 {
        send(&subjects::to_agent(&kek_1(), id(number)), empty.clone().into_bytes());
    }
    send(&subjects::to_agent(&kek_1(), id(1000)), br#"{"agent":1,"message":{}}"#.to_vec());
    let answer = answers.recv_timeout(DEADLINE).expect("a driver of another version is answered");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("version 1 of the agent protocol"), "{answer}");
    await_line(&agent, "refuses an unknown driver: the other end uses version 1 of the agent protocol");

    let mut driver = Driver::open(&hub, 2000);
    let ready = driver.hear();
    assert!(matches!(&ready, FromAgent::Ready { .. }), "{ready:?}");
    driver.say(&ToAgent::Ping { number: 7 });
    let pong = driver.hear();
    assert!(matches!(pong, FromAgent::Pong { number: 7, .. }), "{pong:?}");
    driver.leave();
    let log = agent.log();
    assert!(log.contains("works for eve\\u{1b}[2J") && !log.contains('\u{1b}'), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

/// A small load of a server.
fn load_task(url: &str) -> LoadTask {
    let mut task = testing::load_task();
    let live = LiveTarget { url: url.to_owned(), path: "/".to_owned(), protocols: Axis::one(Protocol::H1) };
    let matrix = &mut task.scenario.matrix;
    (matrix.live, matrix.protocols) = (vec![live], Axis::one(Protocol::H1));
    (matrix.streams, matrix.warm_pool, matrix.max_connections) = (Axis::one(1), 1, 1);
    task.scenario.work.rate = Axis::one(10.0);
    LoadTask { congestion: None, url: url.to_owned(), protocol: Protocol::H1, ..task }
}

fn load(task: LoadTask) -> ToAgent {
    ToAgent::Load(Box::new(task))
}

/// Sysctls of the client of which one is a file.
fn sysctls() -> SysctlAxes {
    let client = BTreeMap::from([(FILE.to_owned(), Axis::one("x".to_owned()))]);
    SysctlAxes { client, ..SysctlAxes::default() }
}

#[test]
fn orders_that_no_driver_of_ours_gives_are_refused_and_the_agent_works_on() {
    let Some(hub) = Hub::start() else { return };
    let target = Untouched::start();
    let (_origin, url) = origin();
    let agent = hub.agent("kek-1", &[&ANY[..], &["--max-time", "20s"]].concat());
    let mut driver = Driver::open(&hub, 1);
    assert!(matches!(driver.hear(), FromAgent::Ready { .. }));
    let changed = |change: &dyn Fn(&mut LoadTask)| {
        let mut task = load_task(&target.url);
        change(&mut task);
        load(task)
    };
    let serve = ServeTask {
        listen: "127.0.0.1:0".parse().unwrap(),
        protocol: Protocol::H1,
        settings: EngineSettings::default(),
        congestion: None,
    };
    let fetch = FetchTask { urls: vec!["http://192.0.2.1:1/bytes/1".to_owned()], ..testing::fetch_task(0) };
    let socket = || Reach { unix_socket: Some("/run/docker.sock".into()), ..Reach::default() };
    for (message, told) in [
        (changed(&|task| task.scenario.sysctl = sysctls()), CANNOT),
        (changed(&|task| task.reach = socket()), "a Unix socket of an agent's machine is never permitted"),
        (
            changed(&|task| task.congestion = Some("../../evil".to_owned())),
            "is not the name of a congestion control",
        ),
        (changed(&|task| task.url = "http://192.0.2.1/".to_owned()), "is not permitted here"),
        (
            changed(&|task| task.url = "http://127.0.0.1:1@192.0.2.1/".to_owned()),
            "a URL that is not requested",
        ),
        (changed(&|task| task.protocol = Protocol::H2), "both must be the same"),
        (changed(&|task| task.scenario.repetitions = 2), "the driver's scenario is no load"),
        (changed(&|task| task.scenario.work.drain = Duration::from_secs(60)), "(--max-time 20s)"),
        (ToAgent::FleetPlan(vec![fetch]), "is not permitted here"),
        (
            ToAgent::Serve(serve),
            "a server of bytes is not permitted here: start the agent with --allow serve",
        ),
    ] {
        let why = driver.refusal(&message);
        assert!(why.contains(told), "{told}: {why}");
    }
    target.assert_untouched();
    // What it permits it does, in the same session.
    driver.say(&load(load_task(&url)));
    let answer = loop {
        match driver.hear() {
            FromAgent::Loading(_) => {}
            other => break other,
        }
    };
    assert!(matches!(answer, FromAgent::Planned), "{answer:?}");
    driver.leave();
    let next = hub.drive(&["load", "--json", "--no-store", "--agents", "kek-1", "-q10", "-z1s", "-c1", &url]);
    next.assert_measured();
    assert!(assert_adds_up(&next.json()).abs_diff(10) <= 1, "{}", next.transcript());
    assert!(!agent.log().contains('\u{1b}'), "{}", agent.log());
}

#[test]
fn a_run_that_would_write_to_a_file_is_not_measured_and_garbage_in_the_queue_is_given_back() {
    let Some(hub) = Hub::start() else { return };
    let agent = hub.agent("kek-1", &["--allow", "lab"]);
    let before = fs::read("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let (nats, run) = (hub.server.connect(), id(1).to_string());
    nats.setup().unwrap();
    nats.runs().put("garbage", b"\xff\x1b[2J".to_vec()).unwrap();
    let info = RunInfo {
        run: run.clone(),
        driver: "eve\u{1b}[2J".to_owned(),
        started: "2026-11-29T10:00:00Z".to_owned(),
        scenario: Scenario { sysctl: sysctls(), ..Scenario::default() },
        plan_digest: String::new(),
        agents: vec!["kek-1".to_owned()],
        classes: vec![Class { number: 0, agents: vec!["kek-1".to_owned()] }],
        units: 2,
    };
    let unit = UnitTask { run: run.clone(), unit: 0, cells: vec![(0, 0)] };
    nats.cells().open_class(&run, 0, DEADLINE).unwrap();
    nats.cells().add(&run, 0, 0, encode(&unit).unwrap().into_bytes()).unwrap();
    nats.cells().add(&run, 0, 1, b"\x1b[2J".to_vec()).unwrap();
    nats.runs().put(&run, encode(&info).unwrap().into_bytes()).unwrap();
    await_line(&agent, CANNOT);
    await_line(&agent, "has not measured a unit (run 00000000 of eve\\u{1b}[2J): not a message of h2lab");
    let log = agent.log();
    assert!(log.contains("has not measured unit 0 (run 00000000 of eve\\u{1b}[2J): "), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
    assert_eq!(
        nats.cells().waiting(&run).unwrap(),
        [(0, 1)],
        "unit 0 is reported, and what is no unit stays"
    );
    assert_eq!(nats.reports().read(&run, 0, Duration::ZERO).unwrap().len(), 1);
    assert_eq!(fs::read("/proc/sys/kernel/core_pattern").unwrap_or_default(), before);
    nats.runs().delete(&run).unwrap();
    hub.listed(&["kek-1"]);
}
