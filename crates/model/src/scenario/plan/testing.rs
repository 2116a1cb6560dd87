//! Random small scenarios for property tests.

use std::time::Duration;

use proptest::prelude::*;

use crate::scenario::{
    Axis, AxisValue, Capacity, ConnectionCount, LinkAxes, LiveTarget, QueueSize, RequestLimit, Scenario,
    Topology,
};
use crate::workload::{DialPolicy, Protocol, RequestShape};
use h2lab_base::units::Ratio;
use h2lab_link::LossShape;

/// One to three values of a small pool, some of them twice.
fn some<T: Clone + std::fmt::Debug + 'static>(pool: &[T]) -> impl Strategy<Value = Vec<T>> + use<T> {
    proptest::collection::vec(proptest::sample::select(pool.to_vec()), 1..4)
}

/// Scenarios in which any axis may have several values, some of them twice or without effect.
pub fn scenarios() -> impl Strategy<Value = Scenario> {
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    let parsed = |values: &[&str]| -> Vec<LossShape> { values.iter().map(|v| v.parse().unwrap()).collect() };
    let millis = |values: &[u64]| values.iter().map(|&ms| Duration::from_millis(ms)).collect::<Vec<_>>();
    let shares: Vec<Ratio> = ["0%", "1%", "3%"].map(|share| share.parse().unwrap()).to_vec();
    let capacities = [Capacity(None), Capacity("10mbit".parse().ok()), Capacity("1gbit".parse().ok())];
    let link = (
        (some(&millis(&[0, 5, 12])), some(&millis(&[0, 2])), some(&shares)),
        some(&parsed(&["bernoulli", "gilbert-elliott", "gilbert-elliott:5", "burst:20ms"])),
        (some(&capacities), some(&[QueueSize(None), QueueSize(Some(1_500_000)), QueueSize(Some(65_536))])),
        (some(&owned(&["cubic", "bbr"])), proptest::option::of(some(&owned(&["20000", "200000"])))),
        (proptest::option::of(proptest::sample::select(shares.clone())), any::<bool>()),
        // Only one of these varies: more groups would take a test too long.
        (0_usize..5, some(&[0_usize, 1])),
    );
    let work = (
        some(&[RequestShape::Bare, RequestShape::Mesh]),
        some(&[50.0, 1000.0]),
        proptest::option::of(1_u32..3),
        some(&millis(&[1000, 3000])),
    );
    let live = proptest::collection::vec(
        (proptest::sample::select(vec!["http://a/", "http://b/x"]), some(&Protocol::ALL)),
        0..4,
    );
    let matrix = (
        (some(&owned(&["origin", "nginx"])), some(&Topology::ALL), some(&owned(&["envoy", "haproxy"]))),
        some(&Protocol::ALL),
        (some(&[1_u32, 4]), some(&[1_u32, 10, 100])),
        live,
        (some(&[None, Some(137), Some(1000)].map(RequestLimit)), some(&DialPolicy::ALL)),
    );
    (some(&[1_u64, 2]), link, work, matrix).prop_map(|(seed, link, work, matrix)| {
        let mut scenario = Scenario { seed: Axis::new(seed).unwrap(), repetitions: 1, ..Scenario::default() };
        let (
            (delay, jitter, loss),
            model,
            (bandwidth, queue),
            (congestion, rto),
            (up_loss, of_both),
            (which, values),
        ) = link;
        if let Some(rto) = rto {
            let name = "net.ipv4.tcp_rto_min_us".to_owned();
            scenario.sysctl.server.insert(name, Axis::new(rto).unwrap());
        }
        scenario.link.delay = Axis::new(delay).unwrap();
        scenario.link.jitter = Axis::new(jitter).unwrap();
        scenario.link.loss = Axis::new(loss).unwrap();
        scenario.link.loss_model = Axis::new(model).unwrap();
        scenario.link.bandwidth = Axis::new(bandwidth).unwrap();
        scenario.link.queue = Axis::new(queue).unwrap();
        scenario.link.congestion = Axis::new(congestion).unwrap();
        vary(&mut scenario.link, which, &values);
        scenario.link.uplink.loss = up_loss;
        scenario.link.downlink.loss = up_loss.filter(|_| of_both);
        scenario.work.shape = Axis::new(work.0).unwrap();
        scenario.work.rate = Axis::new(work.1).unwrap();
        scenario.work.concurrency = work.2;
        scenario.work.measure = Axis::new(work.3).unwrap();
        let ((origin, topology, sidecar), protocols, (connections, streams), live, (limits, dials)) = matrix;
        scenario.matrix.max_requests_per_connection = Axis::new(limits).unwrap();
        scenario.matrix.dial_policy = Axis::new(dials).unwrap();
        scenario.matrix.origin = Axis::new(origin).unwrap();
        if live.is_empty() && topology.iter().any(|topology| *topology != Topology::Direct) {
            scenario.matrix.topology = Axis::new(topology).unwrap();
            scenario.matrix.sidecar = Axis::new(sidecar);
        }
        scenario.matrix.protocols = Axis::new(protocols).unwrap();
        let counts = connections.into_iter().map(ConnectionCount::from).collect();
        scenario.matrix.connections = Axis::new(counts).unwrap();
        scenario.matrix.streams = Axis::new(streams).unwrap();
        let target = |(url, protocols): (&str, _)| LiveTarget {
            url: url.to_owned(),
            path: "/".to_owned(),
            protocols: Axis::new(protocols).unwrap(),
        };
        scenario.matrix.live = live.into_iter().map(target).collect();
        scenario
    })
}

/// Gives one of the axes that most scenarios leave at their default the values with these places in its pool of two.
fn vary(link: &mut LinkAxes, which: usize, values: &[usize]) {
    fn pick<T: AxisValue>(pool: [&str; 2], values: &[usize]) -> Axis<T> {
        Axis::new(values.iter().map(|&k| T::parse(pool[k]).unwrap()).collect()).unwrap()
    }
    match which {
        0 => link.reorder = pick(["0%", "1%:2ms"], values),
        1 => link.duplicate = pick(["0%", "1%"], values),
        2 => link.corrupt = pick(["0%", "1%"], values),
        3 => link.queue_discipline = pick(["drop-tail", "codel"], values),
        _ => link.jitter_order = pick(["kept", "free"], values),
    }
}
