//! The flags for recording and evaluating the link's packets.

use super::values::whole;
use clap::Args;
use h2lab_model::scenario::CaptureOptions;

/// What is kept of packets, and what is computed from them.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Packets")]
pub struct CaptureArgs {
    /// Write each repetition's packets for Wireshark, with TLS secrets embedded: RUN-FOLDER/pcap/*.pcapng
    ///
    /// Each packet is recorded when it enters the link and when it leaves it (interfaces `uplink in`, `uplink out`,
    /// `downlink in`, `downlink out`); the reason for a drop is in the packet's comment. `frame.interface_id in {0,3}`
    /// shows what the client saw, `{1,2}` what the server saw. Anyone with the file can read what was sent.
    #[arg(long)]
    pub pcap: bool,
    #[command(flatten)]
    pub snaplen: SnaplenArgs,
    /// Report what each slow request waited for: its own lost segment or another stream's, a window, the server …
    ///
    /// Slow requests are those above the 95th percentile of their repetition. The causes are found from the link's
    /// packets after a repetition. Each request carries its number in a field `x-h2lab-id` (some 15 bytes), so that it
    /// can be found behind a proxy.
    #[arg(long)]
    pub causes: bool,
}

/// How much of a packet is written.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct SnaplenArgs {
    /// Maximum bytes of each packet that --pcap writes, from the IP header on; truncated packets cannot be decrypted
    #[arg(long, value_name = "BYTES", requires = "pcap", value_parser = whole::<u32>(1..))]
    pub snaplen: Option<u32>,
}

impl CaptureArgs {
    /// Overrides the scenario's values with the flags.
    pub fn apply(&self, capture: &mut CaptureOptions) {
        capture.pcap |= self.pcap;
        capture.causes |= self.causes;
        if self.snaplen.snaplen.is_some() {
            capture.snaplen = self.snaplen.snaplen;
        }
    }
}

#[cfg(test)]
mod tests {
    use h2lab_model::scenario::Scenario;

    use super::*;

    #[test]
    fn every_flag_has_its_key_in_a_scenario_file() {
        let flags = CaptureArgs { pcap: true, snaplen: SnaplenArgs { snaplen: Some(96) }, causes: true };
        let mut scenario = Scenario::default();
        flags.apply(&mut scenario.capture);
        assert_eq!(
            scenario,
            Scenario::from_toml("[capture]\npcap = true\nsnaplen = 96\ncauses = true").unwrap()
        );
        scenario.validate().unwrap();
        assert!(Scenario::from_toml("[capture]\nsnaplen = 96").is_err(), "nothing is captured");
        assert!(!Scenario::default().to_toml().contains("[capture]"), "as runs before there was one");
    }
}
