//! A value given twice. Each value is measured once, so that a second mention would be dropped; only a protocol (or a URL) named
//! twice means something: an A/A run.

use crate::scenario::axis::{Axis, AxisValue};
use crate::scenario::error::ScenarioError;
use crate::scenario::file::{MatrixAxes, Scenario};
use crate::scenario::link::LinkAxes;

/// The verdict on one axis.
type Checked = Result<(), ScenarioError>;

/// Refuses values that are given twice on one axis.
pub(super) fn values(scenario: &Scenario, matrices: &[MatrixAxes]) -> Checked {
    once("seed", &scenario.seed)?;
    once("shape", &scenario.work.shape)?;
    once("rate", &scenario.work.rate)?;
    once("measure", &scenario.work.measure)?;
    link(&scenario.link)?;
    let sysctl = &scenario.sysctl;
    maybe("tcp-buffer", sysctl.tcp_buffer.as_ref())?;
    for (field, side) in [("sysctl.client", &sysctl.client), ("sysctl.server", &sysctl.server)] {
        side.values().try_for_each(|values| once(field, values))?;
    }
    std::iter::once(&scenario.matrix).chain(matrices).try_for_each(matrix)
}

/// The pattern names every field, so that a new one is not forgotten.
fn link(axes: &LinkAxes) -> Checked {
    let LinkAxes {
        delay,
        jitter,
        jitter_order,
        loss,
        loss_model,
        loss_per,
        bandwidth,
        queue,
        queue_discipline,
        reorder,
        duplicate,
        corrupt,
        congestion,
        loopback: _,
        blackout: _,
        steps: _,
        uplink: _,
        downlink: _,
    } = axes;
    once("delay", delay)?;
    once("jitter", jitter)?;
    once("jitter-order", jitter_order)?;
    once("loss", loss)?;
    once("loss-model", loss_model)?;
    once("loss-per", loss_per)?;
    once("bandwidth", bandwidth)?;
    once("queue", queue)?;
    once("queue-discipline", queue_discipline)?;
    once("reorder", reorder)?;
    once("duplicate", duplicate)?;
    once("corrupt", corrupt)?;
    once("congestion", congestion)
}

fn matrix(axes: &MatrixAxes) -> Checked {
    once("origin", &axes.origin)?;
    once("topology", &axes.topology)?;
    maybe("sidecar", axes.sidecar.as_ref())?;
    once("connections", &axes.connections)?;
    once("streams", &axes.streams)?;
    once("max-requests-per-connection", &axes.max_requests_per_connection)?;
    maybe("limited", axes.limited.as_ref())?;
    once("dial-policy", &axes.dial_policy)
}

fn maybe<T: AxisValue + PartialEq>(field: &'static str, axis: Option<&Axis<T>>) -> Checked {
    axis.map_or(Ok(()), |axis| once(field, axis))
}

fn once<T: AxisValue + PartialEq>(field: &'static str, axis: &Axis<T>) -> Checked {
    let values = axis.values();
    let is_known = |(place, value): &(usize, &T)| values[..*place].contains(value);
    let Some((_, again)) = values.iter().enumerate().find(is_known) else { return Ok(()) };
    Err(ScenarioError::Repeated { field, value: axis.to_string(), again: again.print() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Option<String> {
        Scenario::from_toml(text).err().map(|error| error.to_string())
    }

    #[test]
    fn a_value_given_twice_is_refused_on_every_axis_and_distinct_ones_are_not() {
        let link = [
            ("delay", "1ms,2ms"),
            ("jitter", "0ms,1ms"),
            ("jitter-order", "kept,free"),
            ("loss", "1%,2%"),
            ("loss-model", "bernoulli,burst"),
            ("loss-per", "link,connection"),
            ("bandwidth", "1mbit,2mbit"),
            ("queue-discipline", "drop-tail,codel"),
            ("reorder", "0%,1%:2ms"),
            ("duplicate", "0%,1%"),
            ("corrupt", "0%,1%"),
            ("congestion", "cubic,bbr"),
        ]
        .map(|row| ("[link]\nloss = '1%'\nbandwidth = '1mbit'\ndelay = '1ms'\njitter = '1ms'\n", row));
        let queue = ("[link]\nbandwidth = '1mbit'\n", ("queue", "10k,20k"));
        let work =
            [("shape", "bare,mesh"), ("rate", "10,20"), ("measure", "1s,2s")].map(|row| ("[work]\n", row));
        let matrix = [
            ("origin", "origin,nginx"),
            ("topology", "direct,sidecar"),
            ("sidecar", "envoy,haproxy"),
            ("connections", "1,4"),
            ("streams", "1,10"),
            ("max-requests-per-connection", "10,unlimited"),
            ("limited", "origin,nginx"),
            ("dial-policy", "single-flight,stampede"),
        ]
        .map(|row| ("[matrix]\norigin = 'origin,nginx'\ntopology = 'sidecar'\nsidecar = 'envoy'\n", row));
        let others = [
            ("", ("seed", "1,2")),
            ("[sysctl]\n", ("tcp-buffer", "8k,16k")),
            ("[sysctl.client]\n", ("'net.ipv4.tcp_rto_min_us'", "20000,200000")),
            ("[sysctl.server]\n", ("'net.ipv4.tcp_rto_min_us'", "20000,200000")),
        ];
        for (table, (key, values)) in link.into_iter().chain([queue]).chain(work).chain(matrix).chain(others)
        {
            let begins = format!("{key} = ");
            let table: String = table
                .lines()
                .filter(|line| !line.starts_with(&begins))
                .fold(String::new(), |all, line| all + line + "\n");
            let of = |values: &str| refusal(&format!("{table}{key} = '{values}'"));
            assert_eq!(of(values), None, "{key}");
            let (first, second) = values.split_once(',').unwrap();
            let error = of(&format!("{first},{second},{first}")).unwrap_or_default();
            assert!(error.contains("twice") && error.contains("A/A"), "{key}: {error}");
        }
    }

    #[test]
    fn one_value_in_two_forms_is_the_same_and_a_protocol_may_be_named_twice() {
        for twice in ["loss = ['3%', 0.03]", "delay = ['1s', '1000ms']", "bandwidth = '1mbit,1000kbit'"] {
            assert!(refusal(&format!("[link]\n{twice}")).is_some(), "{twice}");
        }
        let error = refusal("[matrix]\nconnections = [4, 1, 4]").unwrap();
        assert!(error.starts_with("`connections` = 4,1,4 has 4 twice: "), "{error}");
        assert_eq!(refusal("[matrix]\nprotocols = 'h1,h1,h2c'"), None);
        let arm = "[[matrix.arms]]\nprotocols = 'h2c'\nconnections = '2,2'";
        assert!(refusal(arm).is_some());
    }
}
