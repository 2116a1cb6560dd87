//! The flags of the emulated link, and how the two directions can differ.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use h2lab_base::units::Ratio;
use h2lab_link::{BlackOut, JitterOrder, LossPer, LossShape, QueueDiscipline, Reorder};
use h2lab_model::scenario::{Axis, AxisValue, Capacity, LinkOverride, LinkStep, QueueSize, Scenario};

use super::values::{axis, replace, value};

/// What the link does.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Emulated link (several values: comma list)")]
pub struct LinkArgs {
    /// One-way delay, both directions (the RTT is twice that)
    #[arg(long, value_name = "LIST", value_parser = axis::<Duration>)]
    pub delay: Option<Axis<Duration>>,
    /// Jitter: the delay varies uniformly by up to this, both ways
    #[arg(long, value_name = "LIST", value_parser = axis::<Duration>)]
    pub jitter: Option<Axis<Duration>>,
    /// Packet loss, each direction (such as 3%)
    #[arg(long, value_name = "LIST", value_parser = axis::<Ratio>)]
    pub loss: Option<Axis<Ratio>>,
    /// Loss model: bernoulli, gilbert-elliott[:MEAN-BURST], burst[:BURST]; a burst of 5 packets or 50ms
    #[arg(long, value_name = "LIST", value_parser = axis::<LossShape>)]
    pub loss_model: Option<Axis<LossShape>>,
    /// Bandwidth, each direction (such as 100mbit), or unlimited
    #[arg(long, value_name = "LIST", value_parser = axis::<Capacity>)]
    pub bandwidth: Option<Axis<Capacity>>,
    /// Queue limit in bytes; packets beyond it are dropped [default: 150 ms of the bandwidth, or a round trip]
    ///
    /// The default is what passes in a round trip, or in 150 ms if that is more, but 10 to 1000 packets of 1500 bytes.
    #[arg(long, value_name = "LIST", value_parser = axis::<QueueSize>)]
    pub queue: Option<Axis<QueueSize>>,
    /// Congestion control of both ends: cubic, bbr, reno … (h3: those three)
    #[arg(long, value_name = "LIST", value_parser = axis::<String>)]
    pub congestion: Option<Axis<String>>,
    /// A sysctl of the client's network namespace, as in sysctl(8); repeatable
    ///
    /// Several values are compared with each other: `net.ipv4.tcp_rto_min_us=200000,20000`. The value is read back; the run
    /// ends if the kernel did not accept it.
    #[arg(long, value_name = "KEY=VALUE[,VALUE]", value_parser = sysctl)]
    pub sysctl_client: Vec<(String, Axis<String>)>,
    /// A sysctl of the server's network namespace, as --sysctl-client
    #[arg(long, value_name = "KEY=VALUE[,VALUE]", value_parser = sysctl)]
    pub sysctl_server: Vec<(String, Axis<String>)>,
    /// Whether jitter lets packets overtake each other: kept, free (as netem)
    #[arg(long, value_name = "LIST", value_parser = axis::<JitterOrder>)]
    pub jitter_order: Option<Axis<JitterOrder>>,
    /// Scope of the loss model's state: link (all packets share it), connection (each has its own)
    #[arg(long, value_name = "LIST", value_parser = axis::<LossPer>)]
    pub loss_per: Option<Axis<LossPer>>,
    /// Queue discipline: drop-tail, codel[:TARGET/INTERVAL] (RFC 8289)
    #[arg(long, value_name = "LIST", value_parser = axis::<QueueDiscipline>)]
    pub queue_discipline: Option<Axis<QueueDiscipline>>,
    /// Packet reordering: share sent without delay, or held back: 1%, 1%:2ms; of every 5th: 50%:gap5
    #[arg(long, value_name = "LIST", value_parser = axis::<Reorder>)]
    pub reorder: Option<Axis<Reorder>>,
    /// Packet duplication
    #[arg(long, value_name = "LIST", value_parser = axis::<Ratio>)]
    pub duplicate: Option<Axis<Ratio>>,
    /// Packet corruption: share with a flipped payload bit; the receiver drops them (checksum)
    #[arg(long, value_name = "LIST", value_parser = axis::<Ratio>)]
    pub corrupt: Option<Axis<Ratio>>,
    /// Blackouts: intervals without any packet, from the start of the link: 2s..2.5s; repeatable, all apply to every cell
    #[arg(long, value_name = "FROM..TO", value_parser = value::<BlackOut>)]
    pub blackout: Vec<BlackOut>,
    /// Change the link during a repetition: 10s:loss=3%,delay=20ms; repeatable, all apply to every cell
    #[arg(long = "at", value_name = "TIME:KEY=VALUE,…", value_parser = value::<LinkStep>)]
    pub steps: Vec<LinkStep>,
    /// Values for the direction from client to server: delay=5ms,loss=0%,script=data 3 of flow 2
    #[arg(long = "up", value_name = "KEY=VALUE,…", value_parser = link_override)]
    pub uplink: Option<LinkOverride>,
    /// Values for the direction from server to client
    #[arg(long = "down", value_name = "KEY=VALUE,…", value_parser = link_override)]
    pub downlink: Option<LinkOverride>,
}

impl LinkArgs {
    /// Overrides the scenario's values with the flags.
    pub fn apply(&self, scenario: &mut Scenario) {
        let link = &mut scenario.link;
        replace(&mut link.delay, self.delay.as_ref());
        replace(&mut link.jitter, self.jitter.as_ref());
        replace(&mut link.loss, self.loss.as_ref());
        replace(&mut link.loss_model, self.loss_model.as_ref());
        replace(&mut link.bandwidth, self.bandwidth.as_ref());
        replace(&mut link.queue, self.queue.as_ref());
        replace(&mut link.congestion, self.congestion.as_ref());
        replace(&mut link.uplink, self.uplink.as_ref());
        replace(&mut link.downlink, self.downlink.as_ref());
        replace(&mut link.jitter_order, self.jitter_order.as_ref());
        replace(&mut link.loss_per, self.loss_per.as_ref());
        replace(&mut link.queue_discipline, self.queue_discipline.as_ref());
        replace(&mut link.reorder, self.reorder.as_ref());
        replace(&mut link.duplicate, self.duplicate.as_ref());
        replace(&mut link.corrupt, self.corrupt.as_ref());
        if !self.blackout.is_empty() {
            link.blackout.clone_from(&self.blackout);
        }
        if !self.steps.is_empty() {
            link.steps.clone_from(&self.steps);
        }
        scenario.sysctl.client.extend(self.sysctl_client.iter().cloned());
        scenario.sysctl.server.extend(self.sysctl_server.iter().cloned());
    }
}

/// `net.ipv4.tcp_rto_min_us=200000,20000`.
fn sysctl(text: &str) -> Result<(String, Axis<String>), String> {
    let (key, values) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
    Ok((key.trim().to_owned(), axis(values)?))
}

/// `delay=5ms,loss=0%,script=syn 1 of flow 1`: what one direction does differently.
fn link_override(text: &str) -> Result<LinkOverride, String> {
    parse_override(text).map_err(|error| format!("{error:#}"))
}

fn parse_override(text: &str) -> Result<LinkOverride> {
    let mut link = LinkOverride::default();
    for item in text.split(',') {
        let (key, value) = item.split_once('=').with_context(|| format!("`{item}` is not KEY=VALUE"))?;
        match key.trim() {
            "delay" => link.delay = Some(AxisValue::parse(value)?),
            "jitter" => link.jitter = Some(AxisValue::parse(value)?),
            "loss" => link.loss = Some(AxisValue::parse(value)?),
            "bandwidth" => link.bandwidth = Some(AxisValue::parse(value)?),
            "queue" => link.queue = Some(AxisValue::parse(value)?),
            "queue-discipline" => link.queue_discipline = Some(value.parse()?),
            "reorder" => link.reorder = Some(value.parse()?),
            "duplicate" => link.duplicate = Some(value.parse()?),
            "corrupt" => link.corrupt = Some(value.parse()?),
            "blackout" => link.blackout.get_or_insert_default().push(BlackOut::from_str(value)?),
            "script" => link.script.push(value.parse()?),
            other => bail!(
                "`{other}` is not one of delay, jitter, loss, bandwidth, queue, queue-discipline, reorder, duplicate, \
                 corrupt, blackout, script"
            ),
        }
    }
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_direction_is_overridden_by_key_and_value() {
        let link = parse_override("delay=5ms,loss=0%").unwrap();
        assert_eq!(link.delay, Some(Duration::from_millis(5)));
        assert_eq!(link.loss, Some(Ratio::ZERO));
        assert_eq!(link.bandwidth, None);
        assert!(parse_override("speed=1").unwrap_err().to_string().contains("not one of"));
        assert!(parse_override("loss").is_err());
        assert!(parse_override("loss=300%").is_err());
    }

    #[test]
    fn scripts_and_blackouts_of_a_direction_add_up() {
        let text =
            "script=syn 1 of flow 1,script=data 3 of flow 2,blackout=1s..2s,blackout=3s..4s,reorder=1%:2ms";
        let link = parse_override(text).unwrap();
        assert_eq!((link.script.len(), link.blackout.as_ref().unwrap().len()), (2, 2));
        let file = "[link.uplink]\nscript = ['syn 1 of flow 1', 'data 3 of flow 2']\n\
                    blackout = ['1s..2s', '3s..4s']\nreorder = '1%:2ms'";
        assert_eq!(Scenario::from_toml(file).unwrap().link.uplink, link);
    }

    #[test]
    fn every_flag_has_its_key_in_a_scenario_file() {
        let flags = LinkArgs {
            jitter_order: "kept,free".parse().ok(),
            loss_per: "connection".parse().ok(),
            queue_discipline: "drop-tail,codel:1ms/20ms".parse().ok(),
            reorder: "0%,1%:2ms".parse().ok(),
            duplicate: "0%,1%".parse().ok(),
            corrupt: "2%".parse().ok(),
            blackout: vec!["1s..2s".parse().unwrap()],
            steps: vec!["2s:loss=3%".parse().unwrap()],
            ..LinkArgs::default()
        };
        let base = "[link]\ndelay = '5ms'\njitter = '1ms'\nloss = '1%'\nbandwidth = '10mbit'\n";
        let mut scenario = Scenario::from_toml(base).unwrap();
        flags.apply(&mut scenario);
        let file = "jitter-order = ['kept', 'free']\nloss-per = 'connection'\n\
                    queue-discipline = ['drop-tail', 'codel:1ms/20ms']\nreorder = ['0%', '1%:2ms']\n\
                    duplicate = [0, 0.01]\ncorrupt = '2%'\nblackout = ['1s..2s']\n\
                    steps = [{ at = '2s', loss = '3%' }]";
        assert_eq!(scenario, Scenario::from_toml(&format!("{base}{file}")).unwrap());
        scenario.validate().unwrap();
    }

    #[test]
    fn a_sysctl_on_the_command_line_replaces_that_of_the_file_and_leaves_the_others() {
        let file = "[sysctl.client]\n'net.core.somaxconn' = 1\n'net.ipv4.tcp_rmem' = '1 2 3'";
        let mut scenario = Scenario::from_toml(file).unwrap();
        let flags = LinkArgs {
            sysctl_client: vec![sysctl("net.core.somaxconn=2,3").unwrap()],
            sysctl_server: vec![sysctl("net.ipv4.tcp_rto_min_us = 20000").unwrap()],
            ..LinkArgs::default()
        };
        flags.apply(&mut scenario);
        let expected = "[sysctl.client]\n'net.core.somaxconn' = [2, 3]\n'net.ipv4.tcp_rmem' = '1 2 3'\n\
                        [sysctl.server]\n'net.ipv4.tcp_rto_min_us' = 20000";
        assert_eq!(scenario, Scenario::from_toml(expected).unwrap());
        assert!(sysctl("net.core.somaxconn").is_err());
    }
}
