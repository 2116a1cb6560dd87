//! An agent as another program's driver would use it: lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::bulk::TransferDirection;
use h2lab_model::fleet::messages::{AGENT_VERSION, decode, encode};
use h2lab_model::fleet::{FetchTask, FromAgent, Reach, ServeTask, ServerFigures, ToAgent, Trust};
use h2lab_model::workload::{EngineSettings, Protocol};

use super::TIMEOUT;
use crate::support::binary;

/// A running `h2lab agent --stdio`, killed with the value.
struct Agent {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Agent {
    fn start() -> Self {
        let mut command = Command::new(binary());
        command.args(["agent", "--stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut agent = Self { child, output };
        let FromAgent::Ready { version, machine, .. } = agent.receive() else {
            panic!("it says that it is there")
        };
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        assert!(machine.starts_with("Linux "), "{machine}");
        agent
    }

    fn send(&mut self, message: &ToAgent) {
        self.say(&encode(message).unwrap());
    }

    fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("it was not closed");
        writeln!(input, "{line}").unwrap();
    }

    /// Its next message other than progress.
    #[track_caller]
    fn receive(&mut self) -> FromAgent {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it says no more");
            match decode(line.trim_end()).unwrap() {
                FromAgent::Progress { .. } => {}
                message => return message,
            }
        }
    }

    /// Fails unless it sends nothing more, and ends by itself.
    #[track_caller]
    fn ends(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        while self.output.read_line(&mut rest).unwrap() > 0 {}
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }

    fn now(&mut self) -> Time {
        self.send(&ToAgent::Ping { number: 7 });
        match self.receive() {
            FromAgent::Pong { number: 7, at } => at,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve() -> ToAgent {
    ToAgent::Serve(ServeTask {
        listen: "127.0.0.1:0".parse().unwrap(),
        protocol: Protocol::H2c,
        settings: EngineSettings::default(),
        congestion: None,
    })
}

fn fetch(pair: u32, url: String) -> FetchTask {
    FetchTask {
        direction: TransferDirection::Get,
        pair,
        urls: vec![url],
        protocol: Protocol::H2c,
        upgrade: false,
        connections: 1,
        streams: 3,
        duration: Duration::from_secs(3),
        timeout: TIMEOUT,
        settings: EngineSettings::default(),
        fields: Vec::new(),
        congestion: None,
        trust: Trust::default(),
        reach: Reach::default(),
    }
}

#[test]
fn one_agent_serves_and_fetches_what_another_one_serves() {
    let (mut one, mut other) = (Agent::start(), Agent::start());
    let mut addresses = Vec::new();
    for agent in [&mut one, &mut other] {
        agent.send(&serve());
        let FromAgent::Serving { address } = agent.receive() else { panic!("it serves") };
        addresses.push(address);
    }
    assert!(addresses.iter().all(|address| address.port() != 0));
    one.send(&ToAgent::FleetPlan(vec![fetch(4, format!("http://{}/bytes/100k", addresses[1]))]));
    other.send(&ToAgent::FleetPlan(vec![fetch(5, format!("http://{}/bytes/100k", addresses[0]))]));
    for (pair, agent) in [(4, &mut one), (5, &mut other)] {
        assert_eq!(agent.receive(), FromAgent::Planned);
        let at = agent.now();
        agent.send(&ToAgent::StartAt { at });
        let FromAgent::Result { pair: reported, began, figures } = agent.receive() else {
            panic!("it is over")
        };
        assert!(reported == pair && began >= at, "{began}");
        let figures = figures.unwrap();
        assert!(figures.bytes() > 0 && figures.meter.began() >= began && !figures.is_failed(), "{figures:?}");
    }
    for agent in [&mut one, &mut other] {
        agent.send(&ToAgent::Stop);
        let FromAgent::Served(figures) = agent.receive() else { panic!("it tells what it spent") };
        assert!(figures.cpu > Duration::ZERO && figures.sent > 0, "{figures:?}");
        assert_eq!((figures.connections, figures.retransmits.is_some()), (1, true), "{figures:?}");
    }
    one.ends();
    other.ends();
}

#[test]
fn a_server_to_which_nobody_came_has_sent_nothing() {
    let mut server = Agent::start();
    server.send(&serve());
    assert!(matches!(server.receive(), FromAgent::Serving { .. }));
    server.send(&ToAgent::Stop);
    let FromAgent::Served(figures) = server.receive() else { panic!("it tells what it spent") };
    let nothing = ServerFigures { cpu: figures.cpu, ..ServerFigures::default() };
    assert_eq!(figures, nothing);
    server.ends();
}

#[test]
fn the_end_of_its_input_ends_an_agent_whatever_it_is_doing() {
    let mut server = Agent::start();
    server.send(&serve());
    let FromAgent::Serving { address } = server.receive() else { panic!("it serves") };
    let mut client = Agent::start();
    let long = FetchTask {
        duration: Duration::from_secs(3600),
        ..fetch(0, format!("http://{address}/bytes/1000G"))
    };
    client.send(&ToAgent::FleetPlan(vec![long]));
    assert_eq!(client.receive(), FromAgent::Planned);
    let at = client.now();
    client.send(&ToAgent::StartAt { at });
    client.ends();
    server.ends();
    Agent::start().ends();
}

#[test]
fn stopping_says_what_there_is() {
    let mut server = Agent::start();
    server.send(&serve());
    let FromAgent::Serving { address } = server.receive() else { panic!("it serves") };
    let mut client = Agent::start();
    let long = |pair| FetchTask {
        duration: Duration::from_secs(3600),
        ..fetch(pair, format!("http://{address}/bytes/1000G"))
    };
    client.send(&ToAgent::FleetPlan(vec![long(0), long(1)]));
    assert_eq!(client.receive(), FromAgent::Planned);
    let at = client.now();
    client.send(&ToAgent::StartAt { at });
    client.send(&ToAgent::Stop);
    let mut over: Vec<u32> = (0..2)
        .map(|_| match client.receive() {
            FromAgent::Result { pair, .. } => pair,
            other => panic!("{other:?}"),
        })
        .collect();
    over.sort_unstable();
    assert_eq!(over, [0, 1]);
    server.send(&ToAgent::Stop);
    let FromAgent::Served(figures) = server.receive() else { panic!("it tells what it spent") };
    assert!(figures.is_sound() && figures.connections <= 2, "{figures:?}");
    client.ends();
    server.ends();
}

#[test]
fn another_version_and_nonsense_are_refused_with_a_word_and_end_the_agent() {
    let other_version = format!("{{\"agent\":{},\"message\":\"stop\"}}", AGENT_VERSION + 1);
    for (line, word) in [(other_version.as_str(), "install the same h2lab"), ("hello", "`hello`")] {
        let mut agent = Agent::start();
        agent.say(line);
        match agent.receive() {
            FromAgent::Refused { why } => assert!(why.contains(word), "{why}"),
            other => panic!("{other:?}"),
        }
        agent.ends();
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    let mut agent = Agent::start();
    let nowhere = ServeTask {
        listen: "192.0.2.1:0".parse().unwrap(),
        protocol: Protocol::H1,
        settings: EngineSettings::default(),
        congestion: None,
    };
    agent.send(&ToAgent::Serve(nowhere));
    match agent.receive() {
        FromAgent::Refused { why } => assert!(why.contains("192.0.2.1"), "{why}"),
        other => panic!("{other:?}"),
    }
    agent.send(&ToAgent::FleetPlan(vec![fetch(0, "gopher://x".to_owned())]));
    match agent.receive() {
        FromAgent::Refused { why } => assert!(why.contains("gopher://x"), "{why}"),
        other => panic!("{other:?}"),
    }
}
