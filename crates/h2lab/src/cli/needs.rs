//! Which flags have an effect in which protocols: a run that has none of these would ignore them, and is refused.

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

const NEEDS: [Need; 3] = [
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
        Some(need) => Err(Usage(format!(
            "{flag} has no effect: it needs {}, and this is {}; add {}",
            need.what,
            listed(protocols),
            need.add
        ))),
        None => Ok(()),
    })
}

/// The flags that have no effect in `protocol`, in a sentence, if there are any: of a run that fell back to it.
pub fn without_effect<T, R>(flags: &Flags<T, R>, protocol: Protocol) -> Option<String> {
    let given = flags.given().iter().filter(|(id, _)| unmet(id, &[protocol]).is_some());
    let names: Vec<&str> = given.map(|(_, flag)| flag.as_str()).collect();
    let verb = if names.len() == 1 { "has" } else { "have" };
    (!names.is_empty()).then(|| format!("{} {verb} no effect in {protocol}", names.join(", ")))
}

/// The protocols that our client speaks in a scenario: to a sidecar its own.
pub fn protocols(scenario: &Scenario) -> Vec<Protocol> {
    let of = |cell: &Cell| cell.as_generated().protocol;
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
        let told = without_effect(&given::<EngineArgs>("-w 1M --push"), H1s).unwrap();
        assert_eq!(told, "-w/--stream-window, --push have no effect in h1s");
        assert_eq!(without_effect(&given::<EngineArgs>("-w 1M"), H2), None);
    }

    #[test]
    fn every_flag_of_the_table_is_one_of_ours_and_every_flag_of_the_engine_is_in_it() {
        let ids = |command: Command| {
            command.get_arguments().map(|arg| arg.get_id().to_string()).collect::<Vec<_>>()
        };
        let engine = ids(EngineArgs::augment_args(Command::new("x")));
        let ours = [engine.clone(), ids(PolicyArgs::augment_args(Command::new("x")))].concat();
        let table: Vec<&str> = NEEDS.iter().flat_map(|need| need.flags).copied().collect();
        assert!(table.iter().all(|flag| ours.iter().any(|id| id == flag)), "{table:?}");
        assert!(engine.iter().all(|id| table.contains(&id.as_str())), "{engine:?}");
    }
}
