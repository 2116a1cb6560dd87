//! Which flags have an effect in which protocols. A run with none of these protocols would ignore the flag, and is
//! refused.

use std::collections::BTreeMap;

use h2lab_model::scenario::{Cell, Scenario};
use h2lab_model::workload::Protocol;

use super::exit::Usage;
use super::flags::Flags;

/// Protocols of which a run must have one.
struct Need {
    /// Clap's names of the flags.
    flags: &'static [&'static str],
    /// What they need, in words.
    what: &'static str,
    /// What to add to the command line.
    add: &'static str,
    is_met: fn(Protocol) -> bool,
}

const NEEDS: [Need; 4] = [
    Need {
        flags: &["connections", "streams"],
        what: "HTTP/2 or HTTP/3",
        add: "--proto h2c, or h2 or h3; connections of HTTP/1.1 are opened while requests wait, up to --max-connections",
        is_met: Protocol::is_multiplexed,
    },
    Need {
        flags: &["stream_window", "connection_window", "keep_alive"],
        what: "HTTP/2 or HTTP/3",
        add: "--proto h2c, or h2 or h3",
        is_met: Protocol::is_multiplexed,
    },
    Need {
        flags: &[
            "auto_window",
            "window_budget",
            "window_update_threshold",
            "window_update_bytes",
            "max_frame_size",
            "no_coalesce",
            "push",
            "encoder_header_table_size",
            "no_huffman",
            "await_settings",
        ],
        what: "HTTP/2",
        add: "--proto h2c, or h2",
        is_met: is_http2,
    },
    Need {
        flags: &["max_connections"],
        what: "HTTP/1.1",
        add: "--proto h1, or h1s; the others have as many as -c says",
        is_met: |protocol| matches!(protocol, Protocol::H1 | Protocol::H1s),
    },
];

fn is_http2(protocol: Protocol) -> bool {
    protocol.is_multiplexed() && !protocol.is_quic()
}

/// Refuses flags that have no effect in any of `protocols`.
pub fn check<T, R>(flags: &Flags<T, R>, protocols: &[Protocol]) -> Result<(), Usage> {
    flags.given().iter().try_for_each(|(id, flag)| match unmet(id, protocols) {
        Some(need) => Err(refusal(flag, need, protocols)),
        None => Ok(()),
    })
}

/// Refuses keys of a scenario's `[client]` and `[server]` tables that have no effect in any protocol of the cells that have them.
pub fn check_tables(scenario: &Scenario) -> Result<(), Usage> {
    let mut protocols: BTreeMap<(&str, String), Vec<Protocol>> = BTreeMap::new();
    for cell in scenario.plan() {
        let clients = cell.as_generated().protocol;
        for (table, settings, protocol) in
            [("client", &cell.client, clients), ("server", &cell.server, cell.protocol)]
        {
            for key in settings.keys() {
                let its = protocols.entry((table, key)).or_default();
                if !its.contains(&protocol) {
                    its.push(protocol);
                }
            }
        }
    }
    protocols.iter().try_for_each(|((table, key), protocols)| {
        match unmet(&key.replace('-', "_"), protocols) {
            Some(need) => Err(refusal(&format!("[{table}] {key}"), need, protocols)),
            None => Ok(()),
        }
    })
}

/// The error that `what`, a flag or a key, has no effect in `protocols`.
fn refusal(what: &str, need: &Need, protocols: &[Protocol]) -> Usage {
    let (needed, add) = (need.what, need.add);
    Usage(format!("{what} has no effect: it needs {needed}, and this is {}; add {add}", listed(protocols)))
}

/// The flags that have no effect in `protocol`, in a sentence, if any: for a run that fell back to it.
pub fn without_effect<T, R>(flags: &Flags<T, R>, protocol: Protocol) -> Option<String> {
    let given = flags.given().iter().filter(|(id, _)| unmet(id, &[protocol]).is_some());
    let names: Vec<&str> = given.map(|(_, flag)| flag.as_str()).collect();
    let verb = if names.len() == 1 { "has" } else { "have" };
    (!names.is_empty()).then(|| format!("{} {verb} no effect in {protocol}", names.join(", ")))
}

/// The protocols that our client speaks in a scenario; to a sidecar, those that the sidecar accepts.
pub fn protocols(scenario: &Scenario) -> Vec<Protocol> {
    of_cells(scenario, |cell| cell.as_generated().protocol)
}

/// The protocols of a scenario's cells, which are those over the link, whoever speaks them.
pub fn cell_protocols(scenario: &Scenario) -> Vec<Protocol> {
    of_cells(scenario, |cell| cell.protocol)
}

fn of_cells(scenario: &Scenario, of: impl Fn(&Cell) -> Protocol) -> Vec<Protocol> {
    let mut protocols: Vec<Protocol> = scenario.plan().iter().map(of).collect();
    protocols.sort_unstable();
    protocols.dedup();
    protocols
}

fn unmet(id: &str, protocols: &[Protocol]) -> Option<&'static Need> {
    let its = NEEDS.iter().find(|need| need.flags.contains(&id))?;
    (!protocols.iter().any(|protocol| (its.is_met)(*protocol))).then_some(its)
}

fn listed(protocols: &[Protocol]) -> String {
    protocols.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches as _};

    use super::super::engine::EngineArgs;
    use super::super::policy::PolicyArgs;
    use super::super::work::WorkArgs;
    use super::*;

    fn given<T: Args>(words: &str) -> Flags<T> {
        let command = Flags::<T>::augment_args(Command::new("x"));
        let matches = command.try_get_matches_from(["x"].into_iter().chain(words.split(' '))).unwrap();
        Flags::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn a_flag_without_effect_in_any_protocol_of_the_run_is_refused_with_what_it_needs() {
        use Protocol::{H1, H1s, H2, H2c, H3};
        for (words, refused, taken) in [
            ("-w 1M", &[H1, H1s][..], &[H1, H3][..]),
            ("-W 1M", &[H1], &[H2c]),
            ("-f 32k", &[H1, H3], &[H1, H2]),
            ("--push", &[H3], &[H1, H2c]),
            ("--auto-window", &[H1s], &[H2]),
        ] {
            let flags = given::<EngineArgs>(words);
            let why = check(&flags, refused).unwrap_err().to_string();
            let flag = words.split(' ').next().unwrap();
            assert!(why.starts_with(flag) && why.contains("it needs HTTP/2"), "{words}: {why}");
            check(&flags, taken).unwrap();
        }
        let most = given::<PolicyArgs>("--max-connections 5");
        assert!(check(&most, &[H2c]).unwrap_err().to_string().contains("it needs HTTP/1.1"));
        check(&most, &[H2c, H1]).unwrap();
        let connections = given::<WorkArgs>("-c 4");
        let why = check(&connections, &[H1, H1s]).unwrap_err().to_string();
        assert!(
            why.starts_with("-c/--connections has no effect") && why.contains("--max-connections"),
            "{why}"
        );
        check(&connections, &[H1, H2c]).unwrap();
        let told = without_effect(&given::<EngineArgs>("-w 1M --push"), H1s).unwrap();
        assert_eq!(told, "-w/--stream-window, --push have no effect in h1s");
        assert_eq!(without_effect(&given::<EngineArgs>("-w 1M"), H2), None);
    }

    #[test]
    fn a_key_of_a_table_without_effect_in_any_cell_that_has_it_is_refused_as_its_flag_is() {
        let of = |protocols: &str, table: &str| {
            let text = format!("[matrix]\nprotocols = [{protocols}]\n{table}");
            check_tables(&Scenario::from_toml(&text).unwrap())
        };
        for (protocols, table, key) in [
            ("'h1'", "[client]\nstream-window = 1000000", "[client] stream-window"),
            ("'h1', 'h3'", "[client]\nmax-frame-size = 32768", "[client] max-frame-size"),
            ("'h1'", "[client]\nno-coalesce = true", "[client] no-coalesce"),
            ("'h1s'", "[server]\nconnection-window = 1000000", "[server] connection-window"),
        ] {
            let why = of(protocols, table).unwrap_err().to_string();
            assert!(why.starts_with(&format!("{key} has no effect: it needs HTTP/2")), "{why}");
            of("'h1', 'h2c'", table).unwrap();
        }
        of("'h1'", "[client]\nreconnect-every = 3").unwrap();
    }

    #[test]
    fn every_flag_of_the_table_is_one_of_ours_and_every_flag_of_the_engine_is_in_it() {
        let ids = |command: Command| {
            command.get_arguments().map(|arg| arg.get_id().to_string()).collect::<Vec<_>>()
        };
        let engine = ids(EngineArgs::augment_args(Command::new("x")));
        let others = [PolicyArgs::augment_args(Command::new("x")), WorkArgs::augment_args(Command::new("x"))];
        let ours = others.into_iter().flat_map(ids).chain(engine.iter().cloned()).collect::<Vec<_>>();
        let table: Vec<&str> = NEEDS.iter().flat_map(|need| need.flags).copied().collect();
        assert!(table.iter().all(|flag| ours.iter().any(|id| id == flag)), "{table:?}");
        assert!(engine.iter().all(|id| table.contains(&id.as_str())), "{engine:?}");
    }
}
