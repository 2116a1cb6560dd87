//! User settings of our own HTTP/2 engine; the same in every role.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use h2lab_base::units::{format_bytes, format_duration, optional_duration_text};
use h2lab_wire::budget::DEFAULT_WINDOW_BUDGET;
use h2lab_wire::{Config, WindowBudget};

/// What a user sets of an HTTP/2 engine. What is not set keeps the role's default; HTTP/1.1 ignores all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own, as in `Config`")]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EngineSettings {
    /// Stream window in bytes (`-w`): 65,535 to 2^31 − 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_window: Option<u32>,
    /// Connection window in bytes (`-W`): 65,535 to 2^31 − 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_window: Option<u32>,
    /// Auto-tuning: windows begin as given, or with 65,535 bytes, and grow up to this many. See
    /// [`FlowControl::auto_limit`](h2lab_wire::FlowControl::auto_limit).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_window: Option<u32>,
    /// The share of a window, in percent from 0 to 100, after which credit is returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_update_threshold: Option<u8>,
    /// Bytes after which credit is returned, at least 1: in place of the share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_update_bytes: Option<u32>,
    /// The largest frame that we accept (`-f`): 16,384 to 16,777,215 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_frame_size: Option<u32>,
    /// Memory for the receive windows of all connections together, in bytes, shared out equally: see
    /// [`WindowBudget`](h2lab_wire::WindowBudget).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_budget: Option<u64>,
    /// Each frame is a write of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_coalesce: bool,
    /// A PING checks whether a peer that is silent for this long is still there, 1 ms or more. See
    /// [`Config::keep_alive`].
    #[serde(with = "optional_duration_text", skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Duration>,
    /// Client: pushed responses are accepted and counted, instead of being forbidden by `SETTINGS_ENABLE_PUSH` 0 (RFC 9113
    /// §8.4).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub push: bool,
    /// The largest table of our header encoder, in bytes, whatever the peer allows; 0 sends all fields in full. See
    /// [`Config::encoder_table_size`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_header_table_size: Option<u32>,
    /// Our header encoder does not use the Huffman code.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_huffman: bool,
    /// Client: no request begins before the server's SETTINGS say how many it accepts at once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub await_settings: bool,
}

/// The smallest window to ask for: that of RFC 9113 §6.9.2.
pub const LEAST_WINDOW: u32 = 65_535;

impl EngineSettings {
    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The names of what is set, as in a scenario.
    pub fn keys(&self) -> Vec<String> {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(set)) => set.into_iter().map(|(key, _)| key).collect(),
            _ => Vec::new(),
        }
    }

    /// The settings as in reports: `stream window 64 KiB`, `credit at 0 %`.
    pub fn rendered(&self) -> Vec<String> {
        let size = |name: &'static str, bytes: Option<u64>| {
            bytes.map(|bytes| match bytes {
                // Well-known values are written in their usual form.
                65_535 | 16_777_215 | 2_147_483_647 => format!("{name} {} - 1", format_bytes(bytes + 1)),
                bytes => format!("{name} {}", format_bytes(bytes)),
            })
        };
        let rendered = [
            size("stream window", self.stream_window.map(u64::from)),
            size("connection window", self.connection_window.map(u64::from)),
            size("windows that grow to", self.auto_window.map(u64::from)),
            self.window_update_threshold.map(|percent| format!("credit at {percent} %")),
            size("credit every", self.window_update_bytes.map(u64::from)),
            size("frames up to", self.max_frame_size.map(u64::from)),
            size("window budget", self.window_budget),
            self.no_coalesce.then(|| "each frame a write".to_owned()),
            self.keep_alive.map(|time| format!("keep-alive {}", format_duration(time))),
            self.push.then(|| "push".to_owned()),
            size("an encoder's header table of", self.encoder_header_table_size.map(u64::from)),
            self.no_huffman.then(|| "no Huffman code".to_owned()),
            self.await_settings.then(|| "no request before SETTINGS".to_owned()),
        ];
        rendered.into_iter().flatten().collect()
    }

    /// The first value that is out of its range: its key, the value, and what is expected.
    pub fn out_of_range(&self) -> Option<(&'static str, u32, &'static str)> {
        let windows = [
            ("stream-window", self.stream_window),
            ("connection-window", self.connection_window),
            ("auto-window", self.auto_window),
        ];
        let window = windows.into_iter().find_map(|(key, size)| {
            let size = size.filter(|size| !(LEAST_WINDOW..1 << 31).contains(size))?;
            Some((key, size, "65535 to 2147483647 bytes"))
        });
        let keep_alive = self.keep_alive.filter(|time| *time < Duration::from_millis(1));
        let threshold = self.window_update_threshold.filter(|percent| *percent > 100);
        let interval = self.window_update_bytes.filter(|bytes| *bytes == 0);
        let frame = self.max_frame_size.filter(|size| !(1 << 14..1 << 24).contains(size));
        window
            .or(threshold.map(|percent| ("window-update-threshold", percent.into(), "0 to 100 percent")))
            .or(interval.map(|bytes| ("window-update-bytes", bytes, "1 byte or more")))
            .or(frame.map(|size| ("max-frame-size", size, "16384 to 16777215 bytes")))
            .or(keep_alive.map(|_| ("keep-alive", 0, "1ms or more")))
    }

    /// The budget for the windows of a process.
    pub fn window_budget(&self) -> WindowBudget {
        WindowBudget::new(self.window_budget.unwrap_or(DEFAULT_WINDOW_BUDGET))
    }

    /// Overrides a role's defaults with these settings.
    pub fn apply(&self, engine: &mut Config) {
        let flow = &mut engine.flow;
        if self.auto_window.is_some() {
            // A role's default may be too large to leave room for tuning.
            (flow.stream_window, flow.connection_window) = (LEAST_WINDOW, LEAST_WINDOW);
            flow.auto_limit = self.auto_window;
        }
        flow.stream_window = self.stream_window.unwrap_or(flow.stream_window);
        flow.connection_window = self.connection_window.unwrap_or(flow.connection_window);
        flow.update_threshold_percent = self.window_update_threshold.unwrap_or(flow.update_threshold_percent);
        flow.update_bytes = self.window_update_bytes.or(flow.update_bytes);
        engine.max_frame_size = self.max_frame_size.unwrap_or(engine.max_frame_size);
        engine.coalesce &= !self.no_coalesce;
        engine.keep_alive = self.keep_alive.or(engine.keep_alive);
        engine.enable_push |= self.push;
        engine.encoder_table_size = self.encoder_header_table_size.unwrap_or(engine.encoder_table_size);
        engine.huffman &= !self.no_huffman;
        engine.await_settings |= self.await_settings;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_wire::Role;

    #[test]
    fn nothing_set_changes_nothing() {
        let mut engine = Config::new(Role::Client);
        engine.flow.stream_window = 4 << 20;
        let before = engine;
        EngineSettings::default().apply(&mut engine);
        assert_eq!(engine, before);
    }

    #[test]
    fn what_is_set_is_reported_as_people_say_it() {
        let settings = EngineSettings {
            stream_window: Some(65_535),
            auto_window: Some(1 << 30),
            window_update_threshold: Some(0),
            window_update_bytes: Some(1 << 20),
            max_frame_size: Some((1 << 24) - 1),
            no_coalesce: true,
            ..EngineSettings::default()
        };
        let rendered = [
            "stream window 64 KiB - 1",
            "windows that grow to 1 GiB",
            "credit at 0 %",
            "credit every 1 MiB",
            "frames up to 16 MiB - 1",
            "each frame a write",
        ];
        assert_eq!(settings.rendered(), rendered);
        assert!(EngineSettings::default().rendered().is_empty());
    }

    #[test]
    fn pushes_are_let_in_only_if_that_is_said() {
        for push in [false, true] {
            let mut engine = Config::new(Role::Client);
            EngineSettings { push, ..EngineSettings::default() }.apply(&mut engine);
            assert_eq!(engine.enable_push, push);
        }
    }

    #[test]
    fn header_compression_and_the_wait_for_settings_are_passed_on() {
        let mut engine = Config::new(Role::Client);
        let settings = EngineSettings {
            encoder_header_table_size: Some(0),
            no_huffman: true,
            await_settings: true,
            ..EngineSettings::default()
        };
        settings.apply(&mut engine);
        assert_eq!((engine.encoder_table_size, engine.huffman, engine.await_settings), (0, false, true));
        let rendered = ["an encoder's header table of 0 B", "no Huffman code", "no request before SETTINGS"];
        assert_eq!(settings.rendered(), rendered);
    }

    #[test]
    fn tuned_windows_begin_small_unless_they_were_given() {
        let mut engine = Config::new(Role::Client);
        (engine.flow.stream_window, engine.flow.connection_window) = (4 << 20, 1 << 30);
        let settings = EngineSettings {
            auto_window: Some(1 << 24),
            connection_window: Some(100_000),
            ..EngineSettings::default()
        };
        settings.apply(&mut engine);
        let flow = engine.flow;
        assert_eq!(
            (flow.stream_window, flow.connection_window, flow.auto_limit),
            (65_535, 100_000, Some(1 << 24))
        );
    }

    #[test]
    fn every_range_has_both_its_ends() {
        let of = |settings: EngineSettings| settings.out_of_range().map(|(key, ..)| key);
        let none = EngineSettings::default();
        for size in [65_535, 0x7fff_ffff] {
            assert_eq!(of(EngineSettings { stream_window: Some(size), ..none }), None);
            assert_eq!(of(EngineSettings { auto_window: Some(size), ..none }), None);
        }
        for size in [65_534, 0x8000_0000] {
            assert_eq!(of(EngineSettings { stream_window: Some(size), ..none }), Some("stream-window"));
            assert_eq!(
                of(EngineSettings { connection_window: Some(size), ..none }),
                Some("connection-window")
            );
            assert_eq!(of(EngineSettings { auto_window: Some(size), ..none }), Some("auto-window"));
        }
        let frame = |size| of(EngineSettings { max_frame_size: Some(size), ..none });
        assert_eq!([16_384, 16_777_215].map(frame), [None; 2]);
        assert_eq!([16_383, 16_777_216].map(frame), [Some("max-frame-size"); 2]);
        let threshold = |percent| of(EngineSettings { window_update_threshold: Some(percent), ..none });
        assert_eq!([0, 100, 101].map(threshold), [None, None, Some("window-update-threshold")]);
        let interval = |bytes| of(EngineSettings { window_update_bytes: Some(bytes), ..none });
        assert_eq!([0, 1].map(interval), [Some("window-update-bytes"), None]);
        let keep_alive = |us| {
            of(EngineSettings { keep_alive: Some(Duration::from_micros(us)), ..EngineSettings::default() })
        };
        assert_eq!([999, 1000].map(keep_alive), [Some("keep-alive"), None]);
    }
}
