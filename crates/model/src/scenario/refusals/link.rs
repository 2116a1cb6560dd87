//! Checks of a link beyond the range of each value.

use std::time::Duration;

use super::super::axis::{Axis, AxisValue, Capacity, QueueSize};
use super::super::error::ScenarioError;
use super::super::file::Scenario;
use super::super::link::{LinkAxes, LinkOverride};
use h2lab_base::units::{Ratio, format_duration};
use h2lab_link::{Impairment, JitterOrder, LossPer, QueueDiscipline, Reorder};

/// Refuses values that conflict.
pub(super) fn combinations(scenario: &Scenario) -> Result<(), ScenarioError> {
    let link = &scenario.link;
    loopback(link)?;
    for direction in Direction::both(link) {
        direction.jitter()?;
    }
    queue(link)?;
    without_effect(link)?;
    steps(scenario)?;
    too_late(scenario)
}

/// Refuses impairments where there is no link.
fn loopback(link: &LinkAxes) -> Result<(), ScenarioError> {
    let bare = LinkAxes { loopback: true, congestion: link.congestion.clone(), ..LinkAxes::default() };
    if !link.loopback || *link == bare {
        return Ok(());
    }
    conflict("loopback", "true".to_owned(), "link", "the loopback device has no delay, loss or bandwidth")
}

fn conflict(
    field: &'static str,
    value: String,
    with: &'static str,
    why: impl Into<String>,
) -> Result<(), ScenarioError> {
    Err(ScenarioError::Conflict { field, value, with, why: why.into() })
}

/// The values of one direction of the link.
struct Direction<'a> {
    axes: &'a LinkAxes,
    over: &'a LinkOverride,
    /// The keys of `over`: those of its delay and of its jitter.
    keys: [&'static str; 2],
}

impl<'a> Direction<'a> {
    fn both(axes: &'a LinkAxes) -> [Self; 2] {
        [
            Self { axes, over: &axes.uplink, keys: ["uplink.delay", "uplink.jitter"] },
            Self { axes, over: &axes.downlink, keys: ["downlink.delay", "downlink.jitter"] },
        ]
    }

    /// Refuses a jitter that would make a packet arrive before it was sent: half the variation lies before the delay.
    fn jitter(&self) -> Result<(), ScenarioError> {
        let one = |over: Option<Duration>, axis: &Axis<Duration>, own, key| match over {
            Some(value) => (vec![value], own),
            None => (axis.values().to_vec(), key),
        };
        let (delays, delay_key) = one(self.over.delay, &self.axes.delay, self.keys[0], "delay");
        let (jitters, jitter_key) = one(self.over.jitter, &self.axes.jitter, self.keys[1], "jitter");
        let (Some(delay), Some(jitter)) = (delays.iter().min(), jitters.iter().max()) else { return Ok(()) };
        if jitter <= delay {
            return Ok(());
        }
        Err(ScenarioError::Conflict {
            field: jitter_key,
            value: jitter.print(),
            with: delay_key,
            why: format!(
                "it varies the delay both ways, so it can be at most the delay, {}",
                h2lab_base::units::format_duration(*delay)
            ),
        })
    }

    /// Whether this direction has a bandwidth in any cell.
    fn is_limited(&self) -> bool {
        match self.over.bandwidth {
            Some(capacity) => capacity.0.is_some(),
            None => self.axes.bandwidth.values().iter().any(|Capacity(bandwidth)| bandwidth.is_some()),
        }
    }
}

/// Refuses a queue without a bandwidth: packets queue only for that.
fn queue(link: &LinkAxes) -> Result<(), ScenarioError> {
    let [up, down] = Direction::both(link).map(|direction| direction.is_limited());
    let of_both = link.queue.values().iter().copied().find(|QueueSize(bytes)| bytes.is_some());
    for (field, queue, with, is_limited) in [
        ("queue", of_both, "bandwidth", up || down),
        ("uplink.queue", link.uplink.queue, "uplink.bandwidth", up),
        ("downlink.queue", link.downlink.queue, "downlink.bandwidth", down),
    ] {
        if let Some(queue @ QueueSize(Some(_))) = queue
            && !is_limited
        {
            return Err(ScenarioError::Conflict {
                field,
                value: queue.print(),
                with,
                why: "without a bandwidth there is no queue; give one (such as 100mbit)".to_owned(),
            });
        }
    }
    Ok(())
}

/// Refuses values that do nothing in any cell.
fn without_effect(link: &LinkAxes) -> Result<(), ScenarioError> {
    let specs = link.specs();
    let impairments = || specs.iter().flat_map(|spec| [&spec.uplink, &spec.downlink]);
    let is_limited = |impairment: &Impairment| {
        impairment.bandwidth.is_some() || impairment.steps.iter().any(|step| step.bandwidth.is_some())
    };
    let varies = |impairment: &Impairment| {
        !impairment.jitter.is_zero()
            || impairment.steps.iter().any(|step| step.delay.or(step.jitter).is_some())
    };
    let codel = |impairment: &Impairment| impairment.queue_discipline != QueueDiscipline::DropTail;
    if impairments().any(codel)
        && !impairments().any(|impairment| codel(impairment) && is_limited(impairment))
    {
        let why = "without a bandwidth there is no queue; give one (such as 100mbit)";
        return conflict("queue-discipline", link.queue_discipline.to_string(), "bandwidth", why);
    }
    let free = |impairment: &Impairment| impairment.jitter_order == JitterOrder::Free;
    if impairments().any(free) && !impairments().any(|impairment| free(impairment) && varies(impairment)) {
        let why = "all packets have the same delay, so none can overtake; give a jitter";
        return conflict("jitter-order", link.jitter_order.to_string(), "jitter", why);
    }
    let own = |impairment: &Impairment| impairment.loss_per == LossPer::Connection;
    if impairments().any(own)
        && !impairments().any(|impairment| own(impairment) && impairment.worst_loss() > Ratio::ZERO)
    {
        return conflict("loss-per", link.loss_per.to_string(), "loss", "there is no loss; give a share");
    }
    Ok(())
}

/// Refuses empty steps, jitter that would make packets arrive before they were sent, and packets that are to
/// skip a zero delay.
fn steps(scenario: &Scenario) -> Result<(), ScenarioError> {
    let link = &scenario.link;
    let own = [&link.uplink, &link.downlink]
        .into_iter()
        .filter_map(|impairment| impairment.steps.as_ref())
        .flatten();
    if let Some(step) = link.steps.iter().chain(own).find(|step| !step.says_something()) {
        return Err(ScenarioError::Range {
            field: "steps",
            value: step.to_string(),
            expected: "a value that changes then (such as loss = '3%')",
        });
    }
    for spec in link.specs() {
        for impairment in [&spec.uplink, &spec.downlink] {
            one_way(impairment)?;
        }
    }
    Ok(())
}

/// Follows a direction through its steps.
fn one_way(impairment: &Impairment) -> Result<(), ScenarioError> {
    let mut steps = impairment.steps.clone();
    steps.sort_by_key(|step| step.at);
    let (mut delay, mut jitter, mut reorder) = (impairment.delay, impairment.jitter, impairment.reorder);
    skips_nothing(reorder, delay)?;
    for step in steps {
        delay = step.delay.unwrap_or(delay);
        jitter = step.jitter.unwrap_or(jitter);
        reorder = step.reorder.unwrap_or(reorder);
        if jitter > delay {
            let why = format!("the jitter is {} then, and can be at most the delay", format_duration(jitter));
            return conflict("steps", step.to_string(), "jitter", why);
        }
        skips_nothing(reorder, delay)?;
    }
    Ok(())
}

fn skips_nothing(reorder: Reorder, delay: Duration) -> Result<(), ScenarioError> {
    if !reorder.skips() || !delay.is_zero() {
        return Ok(());
    }
    let why =
        "reordered packets skip the delay, but there is none; give one, or an extra delay (such as 1%:2ms)";
    conflict("reorder", reorder.to_string(), "delay", why)
}

/// Refuses changes after the end of the longest repetition.
fn too_late(scenario: &Scenario) -> Result<(), ScenarioError> {
    let work = &scenario.work;
    let longest = work.measure.values().iter().max().copied().unwrap_or_default();
    let end = work.warmup + longest + work.drain;
    let over = || format!("the repetition is over after {}", format_duration(end));
    for spec in scenario.link.specs() {
        for impairment in [&spec.uplink, &spec.downlink] {
            if let Some(blackout) = impairment.blackouts.iter().find(|blackout| blackout.from >= end) {
                return conflict("blackout", blackout.to_string(), "measure", over());
            }
            if let Some(step) = impairment.steps.iter().find(|step| step.at >= end) {
                return conflict("steps", step.to_string(), "measure", over());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two keys of a conflict.
    fn conflict(text: &str) -> Option<(&'static str, &'static str)> {
        match Scenario::from_toml(text).err()? {
            ScenarioError::Conflict { field, with, .. } => Some((field, with)),
            other => panic!("{text}: {other}"),
        }
    }

    #[test]
    fn a_packet_cannot_arrive_before_it_was_sent() {
        assert_eq!(conflict("[link]\ndelay = '10ms'\njitter = '10ms'"), None);
        assert_eq!(conflict("[link]\ndelay = '10ms'\njitter = '10.1ms'"), Some(("jitter", "delay")));
        assert_eq!(conflict("[link]\ndelay = '10ms,20ms'\njitter = '0ms,15ms'"), Some(("jitter", "delay")));
    }

    #[test]
    fn each_direction_is_judged_by_what_holds_there() {
        let up = |over: &str| format!("[link]\ndelay = '10ms'\njitter = '5ms'\n[link.uplink]\n{over}");
        assert_eq!(conflict(&up("delay = '5ms'")), None);
        assert_eq!(conflict(&up("delay = '4ms'")), Some(("jitter", "uplink.delay")));
        assert_eq!(conflict(&up("jitter = '11ms'")), Some(("uplink.jitter", "delay")));
        let down = "[link]\n[link.downlink]\njitter = '1ms'";
        assert_eq!(conflict(down), Some(("downlink.jitter", "delay")));
    }

    #[test]
    fn a_queue_needs_a_bandwidth_that_it_can_wait_for() {
        assert_eq!(conflict("[link]\nqueue = '64k'"), Some(("queue", "bandwidth")));
        assert_eq!(conflict("[link]\nqueue = 'default'"), None);
        assert_eq!(conflict("[link]\nqueue = '64k'\nbandwidth = 'unlimited,10mbit'"), None);
        assert_eq!(conflict("[link]\nqueue = '64k'\n[link.downlink]\nbandwidth = '10mbit'"), None);
        let one = "[link.downlink]\nbandwidth = '10mbit'\n[link.uplink]\nqueue = '64k'";
        assert_eq!(conflict(one), Some(("uplink.queue", "uplink.bandwidth")));
    }

    fn link(keys: &str) -> Option<(&'static str, &'static str)> {
        conflict(&format!("[link]\n{keys}"))
    }

    #[test]
    fn codel_needs_a_queue_that_can_stand() {
        assert_eq!(link("queue-discipline = 'codel'"), Some(("queue-discipline", "bandwidth")));
        assert_eq!(link("queue-discipline = 'drop-tail'"), None);
        assert_eq!(link("queue-discipline = 'codel'\nbandwidth = '10mbit'"), None);
        assert_eq!(link("queue-discipline = 'codel'\nsteps = [{ at = '1s', bandwidth = '1mbit' }]"), None);
        let other = "[link.uplink]\nqueue-discipline = 'codel'\n[link.downlink]\nbandwidth = '10mbit'";
        assert_eq!(conflict(other), Some(("queue-discipline", "bandwidth")));
    }

    #[test]
    fn an_order_that_nothing_disturbs_cannot_be_free() {
        assert_eq!(link("jitter-order = 'free'"), Some(("jitter-order", "jitter")));
        assert_eq!(link("jitter-order = 'free'\ndelay = '5ms'\njitter = '1ms'"), None);
        assert_eq!(link("jitter-order = 'free'\nsteps = [{ at = '1s', delay = '1ms' }]"), None);
    }

    #[test]
    fn losses_per_connection_need_losses() {
        assert_eq!(link("loss-per = 'connection'"), Some(("loss-per", "loss")));
        assert_eq!(link("loss-per = 'connection'\nloss = '0%,1%'"), None);
        assert_eq!(link("loss-per = 'connection'\nsteps = [{ at = '1s', loss = '1%' }]"), None);
    }

    #[test]
    fn packets_that_skip_the_delay_need_one() {
        assert_eq!(link("reorder = '1%'"), Some(("reorder", "delay")));
        assert_eq!(link("reorder = '1%:2ms'"), None);
        assert_eq!(link("reorder = '1%'\ndelay = '1ms'"), None);
        assert_eq!(link("reorder = '1%'\ndelay = '0ms,1ms'"), Some(("reorder", "delay")));
        let step = "reorder = '1%'\ndelay = '1ms'\nsteps = [{ at = '1s', delay = '0ms' }]";
        assert_eq!(link(step), Some(("reorder", "delay")));
    }

    #[test]
    fn a_step_changes_something_and_keeps_jitter_within_the_delay() {
        let text = "[link]\nsteps = [{ at = '1s' }]";
        assert!(matches!(Scenario::from_toml(text), Err(ScenarioError::Range { field: "steps", .. })));
        assert_eq!(link("delay = '5ms'\nsteps = [{ at = '1s', jitter = '5ms' }]"), None);
        assert_eq!(link("delay = '5ms'\nsteps = [{ at = '1s', jitter = '6ms' }]"), Some(("steps", "jitter")));
        let two = |later: &str| {
            link(&format!(
                "delay = '5ms'\nsteps = [{{ at = '2s', jitter = '6ms' }}, {{ at = '{later}', delay = '6ms' }}]"
            ))
        };
        assert_eq!((two("1s"), two("2.1s")), (None, Some(("steps", "jitter"))));
    }

    #[test]
    fn nothing_can_begin_when_the_repetition_is_over() {
        let with = |keys: &str| {
            conflict(&format!("[work]\nwarmup = '1s'\nmeasure = '2s,3s'\ndrain = '1s'\n[link]\n{keys}"))
        };
        assert_eq!(with("blackout = ['4999ms..9s']"), None);
        assert_eq!(with("blackout = ['5s..9s']"), Some(("blackout", "measure")));
        assert_eq!(with("steps = [{ at = '4999ms', loss = '1%' }]"), None);
        assert_eq!(with("steps = [{ at = '5s', loss = '1%' }]"), Some(("steps", "measure")));
    }
}
