//! The outcome of a repetition as a record.

use h2lab_base::counters::TcpSummary;
use h2lab_base::units::{Time, nanos};
use h2lab_model::record::{CellRecord, ConnectionRecord, Environment, GeneratorSummary, LinkSummary, Sample};
use h2lab_model::scenario::Cell;
use h2lab_wire::Counters;
use h2lab_wire::trace::FrameEvent;

use super::network::Network;
use super::setup::Setup;
use h2lab_link::tcp::{Congestion, EndFigures};

/// The result of a repetition.
pub struct ModelOutcome {
    /// When the first request was due.
    pub started_at: Time,
    /// When it was cut, or everything had ended.
    pub ended_at: Time,
    /// Requests that still waited for a connection at that time.
    pub backlog: u64,
    /// In the order in which they were due.
    pub samples: Vec<Sample>,
    /// In the order in which they crossed.
    pub frames: Vec<FrameEvent>,
    /// By index.
    pub connections: Vec<ConnectionRecord>,
}

/// The records of all connections, with both ends of their TCP, and the counters of the servers' engines.
pub fn connections(
    ends: impl Iterator<Item = (ConnectionRecord, [EndFigures; 2], Counters)>,
    setup: &Setup<'_>,
) -> (Vec<ConnectionRecord>, Vec<Counters>) {
    ends.map(|(record, [client, server], counters)| {
        let record = ConnectionRecord {
            tcp_client: Some(tcp(client, setup.client_tcp.congestion)),
            tcp_server: Some(tcp(server, setup.server_tcp.congestion)),
            quic_client: None,
            ..record
        };
        (record, counters)
    })
    .unzip()
}

fn tcp(figures: EndFigures, congestion: Congestion) -> TcpSummary {
    TcpSummary {
        retransmits: figures.retransmits,
        rtt_us: figures.rtt.as_micros() as u32,
        min_rtt_us: figures.min_rtt.as_micros() as u32,
        cwnd: figures.cwnd,
        segments_out: figures.segments_out,
        segments_in: figures.segments_in,
        congestion_control: congestion.name().to_owned(),
        ..TcpSummary::default()
    }
}

/// The record of a repetition. Its warnings state that it is simulated: it must not be mistaken for a measurement.
pub fn of(cell: &Cell, setup: &Setup<'_>, outcome: ModelOutcome, network: Network) -> CellRecord {
    let wall_ns = nanos(outcome.ended_at.since(outcome.started_at));
    let (up, down, packets) = network.into_parts();
    CellRecord {
        cell: cell.clone(),
        unsupported: None,
        machine: None,
        sidecar: None,
        bulk: None,
        agents: Vec::new(),
        attempt: 0,
        started_at: outcome.started_at,
        samples: outcome.samples.into_iter().collect(),
        tallies: Vec::new(),
        connections: outcome.connections,
        frames: outcome.frames,
        tcp: Vec::new(), // the packet log has more than a sample of TCP every 10 ms could show
        packets,
        link: Some(LinkSummary {
            up,
            down,
            wall_ns,
            mechanism: "model".to_owned(),
            ..LinkSummary::default()
        }),
        generator: GeneratorSummary {
            wall_ns,
            threads: 1,
            backlog_at_cut: outcome.backlog,
            ..GeneratorSummary::default()
        },
        server: None,
        environment: Environment {
            congestion_client: setup.client_tcp.congestion.name().to_owned(),
            congestion_server: setup.server_tcp.congestion.name().to_owned(),
            ..Environment::default()
        },
        warnings: vec!["simulated: TCP is a model, and nothing here was measured".to_owned()],
    }
}
