//! Who may do what at the NATS server, with TLS and the permissions that docs/agents.md has: tried, refused, logged.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::doing;
use super::fleet::{DEADLINE, Fleet, INVALID, Launch, ORIGIN, THREE, json};
use super::network::HUB;
use super::raw::{Stranger, publish, subscribe};
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::{Ended, Ending, Started};

/// The page with the configuration that users copy.
const PAGE: &str = "docs/agents.md";
/// Users of that configuration that are needed here.
const DRIVER: &str = "driver";
const OBSERVER: &str = "observer";
/// A session that no driver has.
const SESSION: &str = "0123456789abcdef0123456789abcdef";
/// Packets of a session as a driver begins it, and as an agent would answer.
const PACKET: &str = r#"{"agent":9,"message":{"from":1,"ack":0,"held":0}}"#;
/// What nats-server logs of a subject that it does not permit.
const VIOLATION: &str = " Violation - ";
/// Exit code of a command that lacks a right.
const ENVIRONMENT: i32 = 4;

/// A stranger, one who guesses, and another agent.
pub fn strangers(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let page = fs::read_to_string(process::workspace().join(PAGE)).context(PAGE)?;
    let block = authorization(&page).with_context(|| format!("{PAGE} has no `authorization {{ … }}`"))?;
    let block = with_another(block, THREE[0], THREE[1])
        .with_context(|| format!("{PAGE}: `authorization` has no user {}", THREE[0]))?;
    let users = users(&block);
    let mut fleet = Fleet::new(h2lab, &[THREE[0], THREE[1], "elsewhere", ORIGIN])?;
    certificate(&fleet)?;
    let tls = "tls {\n  cert_file: \"cert.pem\"\n  key_file: \"key.pem\"\n}";
    let variables: Vec<(String, String)> =
        users.iter().filter_map(|user| Some((user.variable.clone()?, user.password.clone()))).collect();
    fleet.start_nats_with("", &format!("{tls}\n{block}"), &variables)?;
    fleet.start_origin()?;
    let url = Fleet::nats_url("tls");
    for &name in &THREE[..2] {
        let own = secret(&users, name)?;
        let (allow, variables) = (fleet.url("")?, [("H2LAB_NATS_PASSWORD", own)]);
        let flags = ["--nats", &url, "--nats-ca", "cert.pem", "--nats-user", name, "--allow", &allow];
        fleet.start_agents(&[name], Launch { before: &[], flags: &flags, variables: &variables })?;
    }
    doing("a load by a driver, and a look by an observer");
    honest(&mut outcome, &fleet, &url, secret(&users, DRIVER)?)?;
    observed(&mut outcome, &fleet, &url, secret(&users, OBSERVER)?)?;
    let log = fleet.nats_log();
    let lacks = log.lines().find(|line| line.contains(VIOLATION));
    let text =
        format!("what the page permits is enough for them: {}", lacks.unwrap_or("nothing was refused"));
    outcome.check(lacks.is_none(), text);
    doing("strangers, with h2lab and with the protocol by hand");
    let by_h2lab = by_h2lab(&mut outcome, &fleet, &url)?;
    let by_hand = by_protocol(&mut outcome, &fleet, &users)?;
    let log = fleet.nats_log();
    for (words, tried, what) in [
        ("authentication error", by_h2lab + by_hand.logins, "refused logins"),
        (VIOLATION, by_hand.subjects, "subjects that were refused"),
    ] {
        let count = log.lines().filter(|line| line.contains(words)).count();
        outcome.check(count >= tried, format!("nats-server has logged {count} {what}, {tried} were tried"));
    }
    let own = fleet.agent(THREE[0])?.stderr();
    let drivers =
        own.lines().filter(|line| line.contains(" works for ") && !line.contains("no longer")).count();
    outcome.check(drivers == 1, format!("{} has worked for {drivers} driver", THREE[0]));
    Ok(outcome)
}

/// A client with the driver's password can do all of it.
fn honest(outcome: &mut ItemOutcome, fleet: &Fleet<'_>, url: &str, password: &str) -> Result<()> {
    let (names, target) = (THREE[..2].join(","), fleet.url("/")?);
    let words = [
        "load",
        "--json",
        "--quiet",
        "--no-store",
        "-q200",
        "-c20",
        "-z3s",
        "--agents",
        &names,
        "--nats",
        url,
        "--nats-ca",
        "cert.pem",
        "--nats-user",
        DRIVER,
        &target,
    ];
    let ended = run(fleet, &words, password)?;
    // On a busy machine the figures are not trusted, but they are there.
    let is_made = matches!(ended.ending, Ending::Code(0 | INVALID))
        && json(&ended).is_ok_and(|document| document["agents"]["lost"] == 0);
    outcome.check(is_made, format!("the driver: {}: {}", ended.ending, ended.last_words()));
    Ok(())
}

fn run(fleet: &Fleet<'_>, words: &[&str], password: &str) -> Result<Ended> {
    let mut command = fleet.command(words);
    command.env("H2LAB_NATS_PASSWORD", password);
    Started::begin(&mut command, fleet.folder(), &fleet.file_name("driver"))?.end(DEADLINE)
}

/// An observer sees who is there.
fn observed(outcome: &mut ItemOutcome, fleet: &Fleet<'_>, url: &str, password: &str) -> Result<()> {
    let words = ["agents", "--json", "--nats", url, "--nats-ca", "cert.pem", "--nats-user", OBSERVER];
    let ended = run(fleet, &words, password)?;
    let sees = THREE[..2].iter().all(|name| ended.stdout.contains(name));
    // One says which open runs it may not see.
    let warnings = json(&ended).map(|document| document["warnings"].clone()).unwrap_or_default();
    let sees_runs = warnings.as_array().is_some_and(Vec::is_empty);
    let text = format!(
        "an observer sees the agents: {}, warnings {warnings}; {}",
        ended.ending,
        ended.stderr.trim()
    );
    outcome.check(ended.ending == Ending::Code(0) && sees && sees_runs, text);
    Ok(())
}

/// h2lab itself without credentials, with wrong ones, and with a server that nobody it trusts has signed. How often the server had to
/// refuse a login.
fn by_h2lab(outcome: &mut ItemOutcome, fleet: &Fleet<'_>, url: &str) -> Result<usize> {
    let plain = Fleet::nats_url("nats");
    let trusted = ["--nats-ca", "cert.pem"];
    let attempts: [(&str, &str, &[&str], &str); 4] = [
        ("without credentials", url, &trusted, ""),
        ("with a wrong password", url, &["--nats-ca", "cert.pem", "--nats-user", DRIVER], "guessed"),
        ("as an unknown user", url, &["--nats-ca", "cert.pem", "--nats-user", "stranger"], "guessed"),
        ("without knowing the authority", &plain, &[], ""),
    ];
    for (how, server, flags, password) in attempts {
        let words: Vec<&str> = ["agents", "--json", "--nats", server].iter().chain(flags).copied().collect();
        let ended = run(fleet, &words, password)?;
        let text = format!("{how}: {}: {}", ended.ending, ended.last_words());
        outcome.check(ended.ending == Ending::Code(ENVIRONMENT) && !ended.stdout.contains(THREE[0]), text);
    }
    // The last one did not come to that.
    Ok(attempts.len() - 1)
}

/// How often something was tried that the server had to refuse.
#[derive(Debug, Default)]
struct Tried {
    logins: usize,
    subjects: usize,
}

/// The protocol by hand: commands to an agent, its reports forged, results read; as nobody, as another agent, and what an
/// observer must not do.
fn by_protocol(outcome: &mut ItemOutcome, fleet: &Fleet<'_>, users: &[User]) -> Result<Tried> {
    let victim = THREE[0];
    let question = format!(r#"{{"agent":9,"message":{{"session":"{SESSION}"}}}}"#);
    // The first ones are not for observers either.
    let not_for_observers = 9;
    let mut tried = Tried::default();
    let attempts = [
        ("orders to an agent", publish(&format!("h2lab.agent.{victim}.to.{SESSION}"), PACKET)),
        ("its reports forged", publish(&format!("h2lab.agent.{victim}.from.{SESSION}"), PACKET)),
        ("its reports of units forged", publish(&format!("h2lab.reports.{SESSION}.0.{victim}"), "{}")),
        ("its orders read", subscribe(&format!("h2lab.agent.{victim}.to.>"))),
        ("units put into the queue", publish(&format!("h2lab.cells.{SESSION}.0.0"), "{}")),
        ("a driver's answers read", subscribe("_INBOX_driver.>")),
        ("parts deleted", publish("$JS.API.STREAM.PURGE.OBJ_H2LAB_PARTS", "{}")),
        ("the store of parts deleted", publish("$JS.API.STREAM.DELETE.OBJ_H2LAB_PARTS", "")),
        ("parts read", publish("$JS.API.DIRECT.GET.OBJ_H2LAB_PARTS", "{}")),
        ("its reports read", subscribe(&format!("h2lab.agent.{victim}.from.>"))),
        ("an observer's answers read", subscribe("_INBOX_observer.>")),
        ("all agents asked", publish("h2lab.who", &question)),
    ];
    for (place, (what, lines)) in attempts.iter().enumerate() {
        let others = [THREE[1], OBSERVER];
        let count = if place < not_for_observers { 2 } else { 1 };
        for user in [""].into_iter().chain(others.into_iter().take(count)) {
            let (password, refusal_of, count) = match user {
                "" => ("", "-ERR 'Authorization Violation'", &mut tried.logins),
                user => (secret(users, user)?, "-ERR 'Permissions Violation", &mut tried.subjects),
            };
            *count += 1;
            let stranger = Stranger { user, password, seconds: 1, ..Stranger::default() };
            let said = stranger.says(fleet, "elsewhere", lines)?;
            let who = if user.is_empty() { "nobody" } else { user };
            outcome.check(said.contains(refusal_of), format!("{what}, as {who}: {}", refusal(&said)));
        }
    }
    Ok(tried)
}

/// The error in what the server said.
fn refusal(said: &str) -> &str {
    said.lines().find(|line| line.starts_with("-ERR")).unwrap_or("it was not refused")
}

/// A certificate for the hub, which is its own authority.
fn certificate(fleet: &Fleet<'_>) -> Result<()> {
    let text = format!(
        "[req]\ndistinguished_name = dn\nprompt = no\nx509_extensions = own\n[dn]\nCN = nats.test\n\
         [own]\nbasicConstraints = critical, CA:FALSE\nsubjectAltName = IP:{HUB}\n"
    );
    fs::write(fleet.folder().join("openssl.cnf"), text)?;
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-config",
        "openssl.cnf",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
    ]);
    command
        .args(["-nodes", "-days", "2", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(fleet.folder());
    process::said(&mut command).map(drop)
}

/// A user of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
struct User {
    name: String,
    password: String,
    /// The variable in which the configuration looks for the password.
    variable: Option<String>,
}

fn secret<'a>(users: &'a [User], name: &str) -> Result<&'a str> {
    let user = users.iter().find(|user| user.name == name);
    user.map(|user| user.password.as_str()).with_context(|| format!("there is no user {name}"))
}

/// The block `authorization { … }` of a page's code.
fn authorization(page: &str) -> Option<&str> {
    let mut lines = page.lines().scan(0, |at, line| {
        let start = *at;
        *at += line.len() + 1;
        Some((start, line))
    });
    let is_begin = |(_, line): &(usize, &str)| {
        let rest = line.trim_start().strip_prefix("authorization");
        rest.is_some_and(|rest| rest.trim_start_matches([':', ' ']).starts_with('{'))
    };
    let (start, _) = lines.find(is_begin)?;
    let mut depth = 0;
    for (at, c) in page[start..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(&page[start..=start + at]),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The block with one more user, as the page says: that of `name` with another one's name and password.
fn with_another(block: &str, name: &str, other: &str) -> Option<String> {
    let named = block.find(&format!("user: \"{name}\""))?;
    let start = block[..named].rfind('{')?;
    let mut depth = 0;
    let end = block[start..].char_indices().find_map(|(at, c)| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(start + at)
    })?;
    let variable = |name: &str| name.to_uppercase().replace('-', "_");
    let own = &block[start..=end];
    let added = own.replace(name, other).replace(&variable(name), &variable(other));
    Some(format!("{}{added}\n{}", &block[..start], &block[start..]))
}

/// The users with their passwords: those that are written there, and others for variables.
fn users(block: &str) -> Vec<User> {
    let value = |text: &str, key: &str| {
        let rest = text.split_once(key)?.1.trim_start_matches([':', '=', ' ']);
        let end = rest.find([',', '\n', '}', ' ']).unwrap_or(rest.len());
        Some(rest[..end].trim_matches('"').to_owned())
    };
    // Each begins with its name; `users` begins with the same letters.
    let parts = block.match_indices("user").filter(|(at, _)| {
        let (before, after) = (&block[..*at], &block[at + 4..]);
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_') && after.starts_with([':', '=', ' '])
    });
    let starts: Vec<usize> = parts.map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([block.len()]);
    let user = |(start, end): (&usize, usize)| {
        let text = &block[*start..end];
        let (name, password) =
            (value(text, "user")?, value(text, "password").or_else(|| value(text, "pass"))?);
        let variable = password.strip_prefix('$').filter(|name| !name.contains('$')).map(str::to_owned);
        let password = if variable.is_some() { format!("secret-of-{name}") } else { password };
        Some(User { name, password, variable })
    };
    starts.iter().zip(ends).filter_map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "text about authorization {\n```\nlisten: 1\nauthorization {\n  users = [\n    { user: driver, \
                        password: \"d\", permissions: { publish: [\">\"] } },\n    { user: \"kek-1\", password: $KEK_1,\n \
                        permissions: { publish: { allow: [\"a\"] } } }\n  ]\n}\nafter\n```\n";

    #[test]
    fn the_block_is_found_with_all_its_braces() {
        let block = authorization(TEXT).unwrap();
        assert!(block.starts_with("authorization {\n  users") && block.ends_with("]\n}"), "{block}");
        assert_eq!(authorization("authorization {\n users"), None);
        assert_eq!(authorization("nothing of it"), None);
    }

    #[test]
    fn users_have_the_passwords_that_are_written_and_others_for_variables() {
        let user = |name: &str, password: &str, variable: Option<&str>| User {
            name: name.to_owned(),
            password: password.to_owned(),
            variable: variable.map(str::to_owned),
        };
        let expected = [user("driver", "d", None), user("kek-1", "secret-of-kek-1", Some("KEK_1"))];
        assert_eq!(users(authorization(TEXT).unwrap()), expected);
        assert_eq!(secret(&expected, "driver").unwrap(), "d");
        assert!(secret(&expected, "kek-2").is_err());
    }

    #[test]
    fn another_agent_has_the_same_permissions_for_its_own_name() {
        let block = with_another(authorization(TEXT).unwrap(), "kek-1", "kek-2").unwrap();
        let names: Vec<String> = users(&block).into_iter().map(|user| user.name).collect();
        assert_eq!(names, ["driver", "kek-2", "kek-1"]);
        assert!(block.contains(
            "password: $KEK_2,\n permissions: { publish: { allow: [\"a\"] } } }\n{ user: \"kek-1\""
        ));
        assert_eq!(with_another(&block, "kek-3", "kek-4"), None);
    }

    #[test]
    fn a_refusal_is_the_servers_own_words() {
        assert_eq!(refusal("INFO {}\n-ERR 'Authorization Violation'\n"), "-ERR 'Authorization Violation'");
        assert_eq!(refusal("INFO {}\nPONG\n"), "it was not refused");
    }
}
