//! The messages between a driver and its agents: plain values, the same over every transport, as one line of JSON where
//! they have to be bytes.

mod load;

use std::net::SocketAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(in crate::fleet) use load::is_part_of;
pub use load::{LoadTask, LoadTaskError, PartReport, ShareProgress};

use super::{PairFigures, Reach, ServerFigures, Trust};
use crate::bulk::TransferDirection;
use crate::foreign;
use crate::workload::{EngineSettings, Protocol};
use h2lab_base::text::{PeerText, made_printable};
use h2lab_base::units::{Time, format_bytes};

/// Version of the messages. It stands in each of them, since a transport need not have sessions; another one is refused.
pub const AGENT_VERSION: u32 = 9;

/// The longest line that is read as a message, in bytes: four times a result whose transfer was metered for an hour.
pub const LONGEST_LINE: usize = 4 << 20;

/// A message to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToAgent {
    /// You have a driver from now on: the first message where an agent serves one driver after another. It answers
    /// [`FromAgent::Ready`], or [`FromAgent::Busy`].
    Open {
        /// Who the driver is: its user and machine.
        driver: String,
    },
    /// Read your clock. It answers [`FromAgent::Pong`] at once.
    Ping {
        /// Comes back.
        number: u32,
    },
    /// Serve bytes from memory from now on. It answers [`FromAgent::Serving`].
    Serve(ServeTask),
    /// The transfers to make. It answers [`FromAgent::Planned`], and starts nothing.
    FleetPlan(Vec<FetchTask>),
    /// A share of a load. It dials, answers [`FromAgent::Planned`] when its connections are up, and sends no request before it is
    /// told to start.
    Load(Box<LoadTask>),
    /// Begin all of it at this moment of your own clock, or at once if that has passed.
    StartAt {
        /// The moment.
        at: Time,
    },
    /// Abort what is under way, stop serving, and report the results: [`FromAgent::Result`] of each pair, [`FromAgent::Served`]
    /// of a server, [`FromAgent::Part`] of a share of a load, whose records are stored all the same.
    Stop,
    /// Your driver leaves: end what it started, report nothing more, and wait for another driver.
    Bye,
}

/// A message from an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromAgent {
    /// It is ready: its first message.
    Ready {
        /// Version of h2lab.
        version: String,
        /// Kernel and machine.
        machine: String,
    },
    /// It serves another driver; it sends nothing more.
    Busy {
        /// Which one, and since when.
        with: String,
    },
    /// The answer to [`ToAgent::Ping`].
    Pong {
        /// The number of the ping.
        number: u32,
        /// The time of its clock.
        at: Time,
    },
    /// It is serving.
    Serving {
        /// Where it listens, with the actual port.
        address: SocketAddr,
    },
    /// It has received its tasks, and the connections of a load are up.
    Planned,
    /// It cannot do its task; it sends nothing more.
    Refused {
        /// Why.
        why: String,
    },
    /// The progress of its pairs, a few times per second.
    Progress {
        /// The time of its clock.
        at: Time,
        /// The bytes of each pair so far, by the pair's place in the plan.
        bytes: Vec<(u32, u64)>,
    },
    /// A pair is over.
    Result {
        /// Its place in the plan.
        pair: u32,
        /// When it actually began, by the agent's clock.
        began: Time,
        /// Its figures; times are the agent's. An error in words if nothing could be fetched at all.
        figures: Result<Box<PairFigures>, String>,
    },
    /// It has stopped serving; what that took.
    Served(ServerFigures),
    /// The progress of its share of a load, a few times per second.
    Loading(Box<ShareProgress>),
    /// Its share of a load is over, and stored.
    Part(PartReport),
}

/// What an agent serves: any number of bytes at `/bytes/N`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServeTask {
    /// Where it listens; port 0 picks a free one.
    pub listen: SocketAddr,
    /// What clients will speak: in clear, over TLS, or over QUIC.
    pub protocol: Protocol,
    /// Settings of its engine that were set explicitly.
    pub settings: EngineSettings,
    /// Congestion control of what it sends; `None` leaves the system's.
    pub congestion: Option<String>,
}

/// What an agent fetches from one server, or sends to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchTask {
    /// The pair's place in the plan.
    pub pair: u32,
    /// Which way the bytes go.
    #[serde(default)]
    pub direction: TransferDirection,
    /// What is fetched and discarded, or sent from memory, one after the other, over and over; all of one server.
    pub urls: Vec<String>,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether `h2c` begins with an upgrade; else with prior knowledge.
    #[serde(default)]
    pub upgrade: bool,
    /// Connections.
    pub connections: u32,
    /// Requests at a time on each.
    pub streams: u32,
    /// For how long; then what is under way is aborted, and counted.
    pub duration: Duration,
    /// After so long without a byte the server is treated as gone.
    pub timeout: Duration,
    /// Settings of the engine that were set explicitly.
    pub settings: EngineSettings,
    /// Further header fields of each request, with names in lower case.
    pub fields: Vec<(String, String)>,
    /// Congestion control of its sockets; it governs what it sends.
    pub congestion: Option<String>,
    /// What to trust and to present in TLS.
    pub trust: Trust,
    /// Where the server is looked for.
    #[serde(default)]
    pub reach: Reach,
}

/// Why a line is not a valid message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// It is of another version.
    #[error(
        "the other end uses version {theirs} of the agent protocol, this h2lab version {AGENT_VERSION}: install the \
         same h2lab at both ends"
    )]
    OtherVersion {
        /// Its version.
        theirs: u32,
    },
    /// Not a message.
    #[error("not a message of h2lab ({why}): `{line}`")]
    NoMessage {
        /// Its beginning.
        line: PeerText,
        /// What is wrong with it.
        why: String,
    },
}

/// The version field of any message.
#[derive(Deserialize)]
struct Version {
    agent: u32,
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    agent: u32,
    message: T,
}

/// The line of a message, without its end of line.
pub fn encode(message: &impl Serialize) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Envelope { agent: AGENT_VERSION, message })
}

/// Why there is no line of a message that an agent could read.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// It cannot be written.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Its line is longer than [`LONGEST_LINE`].
    #[error(
        "the message with the task has {}, and agents read {} at most",
        format_bytes(*.bytes),
        format_bytes(LONGEST_LINE as u64)
    )]
    TooLong {
        /// Its length.
        bytes: u64,
    },
}

/// The line of a message to an agent, without its end of line. With that it is shorter than [`LONGEST_LINE`], so that the agent
/// reads it over every transport.
pub fn encode_order(message: &ToAgent) -> Result<String, OrderError> {
    let line = encode(message)?;
    if line.len() + 1 < LONGEST_LINE {
        Ok(line)
    } else {
        Err(OrderError::TooLong { bytes: line.len() as u64 })
    }
}

/// The message of a line, with its texts as they are.
pub fn decode<T: DeserializeOwned>(line: &str) -> Result<T, MessageError> {
    decode_with(line, |line| serde_json::from_str(line))
}

/// The message of an agent's line, printable.
pub fn decode_printable<T: DeserializeOwned>(line: &str) -> Result<T, MessageError> {
    decode_with(line, |line| foreign::read(line, &[]))
}

fn decode_with<T>(
    line: &str,
    read: impl Fn(&str) -> serde_json::Result<Envelope<T>>,
) -> Result<T, MessageError> {
    // The rest of the message may be of another format.
    let no_message = |error: serde_json::Error| MessageError::NoMessage {
        line: PeerText::from(line.chars().take(200).collect::<String>().as_str()),
        // It quotes what it did not expect.
        why: made_printable(&error.to_string()).into_owned(),
    };
    let Version { agent } = serde_json::from_str(line).map_err(no_message)?;
    if agent != AGENT_VERSION {
        return Err(MessageError::OtherVersion { theirs: agent });
    }
    Ok(read(line).map_err(no_message)?.message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fleet::testing;

    #[test]
    fn what_is_reported_reads_back_as_it_was() {
        let task = testing::fetch_task(3);
        let serve = ServeTask {
            listen: "[::1]:0".parse().unwrap(),
            protocol: Protocol::H3,
            settings: EngineSettings { max_frame_size: Some(1 << 20), ..EngineSettings::default() },
            congestion: Some("bbr".to_owned()),
        };
        for message in [
            ToAgent::Open { driver: "ann at desk".to_owned() },
            ToAgent::Load(Box::new(testing::load_task())),
            ToAgent::Bye,
            ToAgent::Ping { number: 7 },
            ToAgent::Serve(serve),
            ToAgent::FleetPlan(vec![task.clone(), task]),
            ToAgent::StartAt { at: Time::from_nanos(u64::MAX - 1) },
            ToAgent::Stop,
        ] {
            let line = encode(&message).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(decode::<ToAgent>(&line).unwrap(), message);
        }
    }

    #[test]
    fn what_an_agent_reports_reads_back_as_it_was() {
        let result = |figures| FromAgent::Result { pair: 1, began: Time::from_millis(5), figures };
        for message in [
            FromAgent::Ready { version: "0.1.0".to_owned(), machine: "Linux".to_owned() },
            FromAgent::Busy { with: "ann at desk".to_owned() },
            FromAgent::Loading(Box::new(testing::share_progress(3))),
            FromAgent::Part(testing::part_report("kek-1")),
            FromAgent::Pong { number: 0, at: Time::ZERO },
            FromAgent::Serving { address: "10.0.0.1:8080".parse().unwrap() },
            FromAgent::Planned,
            FromAgent::Refused { why: "a \"reason\"\nin two lines".to_owned() },
            FromAgent::Progress { at: Time::from_millis(1), bytes: vec![(0, 1), (7, u64::MAX)] },
            result(Ok(Box::new(testing::figures(0, 1000, 5)))),
            result(Err("cannot connect".to_owned())),
            FromAgent::Served(testing::server_figures()),
            FromAgent::Served(ServerFigures::default()),
        ] {
            let line = encode(&message).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(decode::<FromAgent>(&line).unwrap(), message);
        }
    }

    #[test]
    fn what_an_older_field_list_lacks_has_its_value_from_before() {
        let mut task = serde_json::to_value(testing::fetch_task(3)).unwrap();
        task.as_object_mut().unwrap().remove("direction");
        let task: FetchTask = serde_json::from_value(task).unwrap();
        assert_eq!(task.direction, TransferDirection::Get);
    }

    #[test]
    fn a_message_that_an_agent_would_not_read_to_its_end_is_not_written() {
        let with = |bytes: usize| {
            let fields = vec![("x".to_owned(), "a".repeat(bytes))];
            encode_order(&ToAgent::FleetPlan(vec![FetchTask { fields, ..testing::fetch_task(0) }]))
        };
        let room = LONGEST_LINE - 2 - with(0).unwrap().len();
        assert_eq!(with(room).unwrap().len(), LONGEST_LINE - 2);
        let error = with(room + 1).unwrap_err();
        assert!(matches!(error, OrderError::TooLong { .. }), "{error}");
        assert!(error.to_string().contains("and agents read 4"), "{error}");
    }

    #[test]
    fn another_version_is_refused_by_its_number_whatever_it_says() {
        for line in [r#"{"agent":1,"message":{"dance":{}}}"#, r#"{"agent":1}"#, r#"{"what":[],"agent":1}"#] {
            let error = decode::<ToAgent>(line).unwrap_err();
            assert!(matches!(error, MessageError::OtherVersion { theirs: 1 }), "{error}");
            let (theirs, ours) = ("version 1 ", format!("version {AGENT_VERSION}:"));
            assert!(error.to_string().contains(theirs) && error.to_string().contains(&ours), "{error}");
        }
    }

    #[test]
    fn a_line_that_is_none_is_reported_with_its_beginning() {
        let unknown = format!(r#"{{"agent":{AGENT_VERSION},"message":"dance"}}"#);
        let list = format!("[{AGENT_VERSION}]");
        for line in ["bash: h2lab: command not found", "", "{}", &unknown, &list] {
            let error = decode::<ToAgent>(line).unwrap_err();
            assert!(matches!(error, MessageError::NoMessage { .. }), "{error}");
            assert!(error.to_string().contains(line), "{error}");
        }
        let long = decode::<ToAgent>(&"x".repeat(10_000)).unwrap_err().to_string();
        assert!(long.len() < 500, "{long}");
    }

    proptest! {
        #[test]
        fn no_line_is_more_than_an_error(line in ".*") {
            let _ = decode::<ToAgent>(&line);
            let _ = decode::<FromAgent>(&format!(r#"{{"agent":{AGENT_VERSION},"message":{line}}}"#));
        }
    }
}
