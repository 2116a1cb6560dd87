//! The flags of our own HTTP/2 engine, the same in every role.

use std::time::Duration;

use clap::Args;
use h2lab_base::units::parse_bytes;
use h2lab_model::workload::EngineSettings;

use super::values::{duration, whole};

/// `--auto-window` without a value: what gRPC stops at.
const AUTO_LIMIT: &str = "16M";

/// How our HTTP/2 engine behaves. It applies to both roles that have these flags: client and origin.
#[derive(Debug, Clone, Copy, Default, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(next_help_heading = "HTTP/2 engine")]
pub struct EngineArgs {
    /// Stream window: bytes (64k), or bits up to 31 (16)
    #[arg(short = 'w', long, value_name = "SIZE", value_parser = stream_window)]
    pub stream_window: Option<u32>,
    /// Connection window: bytes, or bits up to 31
    #[arg(short = 'W', long, value_name = "SIZE", value_parser = connection_window)]
    pub connection_window: Option<u32>,
    /// Grow windows with the measured bandwidth-delay product, up to LIMIT (16M if not given)
    ///
    /// They start at 65,535 bytes, or at -w and -W. They do not grow for a slow reader.
    #[arg(long, value_name = "LIMIT", num_args = 0..=1, require_equals = true, default_missing_value = AUTO_LIMIT, value_parser = window)]
    pub auto_window: Option<u32>,
    /// Limit of all connections' windows together, shared equally [default: 1G]
    ///
    /// With more connections, windows shrink as they are used; with fewer, they grow again.
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| parse_bytes(text).map_err(|e| e.to_string()))]
    pub window_budget: Option<u64>,
    /// Share of a window after which a WINDOW_UPDATE is sent, in percent (with --auto-window at most 25)
    #[arg(long, value_name = "PERCENT", value_parser = whole::<u8>(0..=100))]
    pub window_update_threshold: Option<u8>,
    /// Bytes after which a WINDOW_UPDATE is sent, instead of a share of the window
    #[arg(long, visible_alias = "win-update-interval", value_name = "SIZE", value_parser = update_bytes, conflicts_with = "window_update_threshold")]
    pub window_update_bytes: Option<u32>,
    /// Largest frame to accept: 16k to 16M - 1
    #[arg(short = 'f', long, value_name = "SIZE", value_parser = frame_size)]
    pub max_frame_size: Option<u32>,
    /// Write each frame with its own system call, as servers without batching do
    #[arg(long)]
    pub no_coalesce: bool,
    /// Send a PING to a peer that sent nothing for this long; off by default
    ///
    /// The peer has 10 s to answer. The origin sends PINGs only while a request is open: it closes idle connections anyway.
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub keep_alive: Option<Duration>,
    /// Client: accept and count pushed responses; by default they are refused
    #[arg(long)]
    pub push: bool,
    /// Largest header table to encode with, whatever the peer allows; 0 sends all fields in full [default: 64k]
    #[arg(long, value_name = "SIZE", value_parser = table_size)]
    pub encoder_header_table_size: Option<u32>,
    /// Send header fields without the Huffman code
    #[arg(long)]
    pub no_huffman: bool,
    /// Client: begin no request before the server's SETTINGS have arrived; by default up to 100
    #[arg(long)]
    pub await_settings: bool,
}

impl EngineArgs {
    /// Overrides `settings` with the flags.
    pub fn apply(&self, settings: &mut EngineSettings) {
        settings.stream_window = self.stream_window.or(settings.stream_window);
        settings.connection_window = self.connection_window.or(settings.connection_window);
        settings.auto_window = self.auto_window.or(settings.auto_window);
        settings.window_update_threshold = self.window_update_threshold.or(settings.window_update_threshold);
        settings.window_update_bytes = self.window_update_bytes.or(settings.window_update_bytes);
        settings.max_frame_size = self.max_frame_size.or(settings.max_frame_size);
        settings.window_budget = self.window_budget.or(settings.window_budget);
        settings.no_coalesce |= self.no_coalesce;
        settings.keep_alive = self.keep_alive.or(settings.keep_alive);
        settings.push |= self.push;
        settings.encoder_header_table_size =
            self.encoder_header_table_size.or(settings.encoder_header_table_size);
        settings.no_huffman |= self.no_huffman;
        settings.await_settings |= self.await_settings;
    }
}

fn stream_window(text: &str) -> Result<u32, String> {
    window(text).map_err(|error| several("stream-window", text).unwrap_or(error))
}

fn connection_window(text: &str) -> Result<u32, String> {
    window(text).map_err(|error| several("connection-window", text).unwrap_or(error))
}

/// What to write to compare several windows; `None` if that is not what was asked for.
fn several(key: &str, text: &str) -> Option<String> {
    let sizes: Option<Vec<u32>> = text.split(',').map(|size| window(size).ok()).collect();
    let sizes = sizes.filter(|sizes| sizes.len() > 1)?;
    Some(format!(
        "one window is a flag; several are an axis of a scenario. Write to a copy of scenarios/compare.toml, at its end, \
         the two lines below, and give it to `h2lab run`:\n[[vary]]\nclient.{key} = {sizes:?}"
    ))
}

/// Bits up to 31 or a size, as h2load's users write both.
fn window(text: &str) -> Result<u32, String> {
    const EXPECTED: &str =
        "a window: bits from 16 to 31, or a size from 65535 to 2147483647 (such as 16, 64k, 16M)";
    let size = match text.parse::<u32>() {
        Ok(bits @ 0..=31) => (1_u64 << bits) - 1,
        _ => parse_bytes(text).map_err(|_| format!("`{text}` is not {EXPECTED}"))?,
    };
    u32::try_from(size)
        .ok()
        .filter(|size| (65_535..1 << 31).contains(size))
        .ok_or(format!("`{text}` is not {EXPECTED}"))
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time < Duration::from_millis(1) { Err(format!("`{text}` is below 1ms")) } else { Ok(time) }
}

fn update_bytes(text: &str) -> Result<u32, String> {
    let size = parse_bytes(text).map_err(|error| error.to_string())?;
    let expected = || format!("`{text}` is not a number of bytes from 1 to 2147483647");
    u32::try_from(size).ok().filter(|size| (1..1 << 31).contains(size)).ok_or_else(expected)
}

fn table_size(text: &str) -> Result<u32, String> {
    let size = parse_bytes(text).map_err(|error| error.to_string())?;
    u32::try_from(size).map_err(|_| format!("`{text}` is not a number of bytes from 0 to 4294967295"))
}

fn frame_size(text: &str) -> Result<u32, String> {
    let size = parse_bytes(text).map_err(|error| error.to_string())?;
    u32::try_from(size)
        .ok()
        .filter(|size| (1 << 14..1 << 24).contains(size))
        .ok_or_else(|| format!("`{text}` is not a frame size from 16384 to 16777215"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use h2lab_model::scenario::Scenario;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        engine: EngineArgs,
    }

    fn settings(arguments: &[&str]) -> EngineSettings {
        let line = Line::try_parse_from([&["h2lab"], arguments].concat()).unwrap();
        let mut settings = EngineSettings::default();
        line.engine.apply(&mut settings);
        settings
    }

    #[test]
    fn windows_are_bits_or_bytes() {
        assert_eq!(window("16"), Ok(65_535));
        assert_eq!(window("31"), Ok(2_147_483_647));
        assert_eq!(window("64k"), Ok(65_536));
        for bad in ["15", "2G", "x", "1k"] {
            assert!(window(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn several_windows_are_told_as_lines_of_a_scenario() {
        let refused = stream_window("64k,1m,16M").unwrap_err();
        let lines = "\n[[vary]]\nclient.stream-window = [65536, 1048576, 16777216]";
        assert!(refused.ends_with(lines), "{refused}");
        let refused = connection_window("16,1M").unwrap_err();
        assert!(refused.ends_with("\nclient.connection-window = [65535, 1048576]"), "{refused}");
        for bad in ["64k", "64k,x", "64k,", "1k,2k"] {
            assert_eq!(several("stream-window", bad), None, "{bad}");
        }
        let shipped = include_str!("../../../../scenarios/compare.toml");
        let plan = |end: &str| Scenario::from_toml(&format!("{shipped}\n{end}")).unwrap().plan().len();
        let lines = "[[vary]]\nclient.stream-window = [65536, 1048576]\n";
        assert!(plan(lines) > plan(""), "the lines are what a scenario takes");
    }

    #[test]
    fn frame_sizes_stay_in_the_range_of_rfc_9113() {
        assert_eq!(frame_size("16k"), Ok(16_384));
        assert_eq!(frame_size("16777215"), Ok(16_777_215));
        assert!(frame_size("16383").is_err());
        assert!(frame_size("16M").is_err());
    }

    #[test]
    fn tuning_takes_a_limit_or_has_one() {
        assert_eq!(settings(&["--auto-window"]).auto_window, Some(16 << 20));
        assert_eq!(settings(&["--auto-window=4M"]).auto_window, Some(4 << 20));
        assert_eq!(settings(&[]).auto_window, None);
    }

    #[test]
    fn every_flag_has_its_key_in_a_scenario_file() {
        let line = [
            "-w16",
            "-W20",
            "--auto-window=1M",
            "--window-update-threshold=20",
            "-f32k",
            "--window-budget=64M",
            "--no-coalesce",
            "--keep-alive=2s",
            "--push",
            "--encoder-header-table-size=1k",
            "--no-huffman",
            "--await-settings",
        ];
        let file = "[client]\nstream-window = 65535\nconnection-window = 1048575\nauto-window = 1048576\n\
                    window-update-threshold = 20\nmax-frame-size = 32768\nwindow-budget = 67108864\n\
                    no-coalesce = true\nkeep-alive = '2s'\npush = true\nencoder-header-table-size = 1024\n\
                    no-huffman = true\nawait-settings = true";
        assert_eq!(Scenario::from_toml(file).unwrap().client.engine, settings(&line));
        assert!(Scenario::from_toml("[client]\nstream-window = 1000").is_err());
        let bytes = settings(&["--win-update-interval=1M"]);
        let file = "[client]\nwindow-update-bytes = 1048576";
        assert_eq!(Scenario::from_toml(file).unwrap().client.engine, bytes);
        assert!(Line::try_parse_from(["h2lab", "--win-update-interval=0"]).is_err());
    }
}
