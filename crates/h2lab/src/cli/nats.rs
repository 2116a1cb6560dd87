//! Flags of the commands that work with agents over NATS: where the server is, and how h2lab logs in there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_model::fleet::Trust;
use h2lab_nats::{Nats, NatsError, ServerOptions};

use super::exit::{Exit, MissingRequirement, Usage};
use super::tls;
use crate::run::messages::{Failure, FailureKind, kind_of_nats};
use h2lab_net::tls::Identity;

/// How long the first connection to a server may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The name of every driver at the NATS server: its answers come to subjects below `_INBOX_driver.`.
pub const DRIVER: &str = "driver";

/// The name of who only looks: its answers come to subjects of its own, so that it needs no right to read a driver's.
pub const OBSERVER: &str = "observer";

/// The variable that has the password: no other user of this machine can read it, as they can read the command line.
const PASSWORD: &str = "H2LAB_NATS_PASSWORD";

/// Where the NATS server is, and who we are there.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "NATS")]
pub struct NatsArgs {
    /// NATS server: <nats://HOST>[:PORT], or <tls://HOST>[:PORT]; several of one cluster as a comma list
    #[arg(
        long,
        value_name = "URL,…",
        env = "H2LAB_NATS",
        hide_env_values = true,
        value_delimiter = ',',
        value_parser = server
    )]
    nats: Vec<String>,
    /// Log in with this file of credentials, as `nsc generate creds` writes it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nats_user", "nats_password_file"])]
    creds: Option<PathBuf>,
    /// Log in as this user; the password is in the variable `H2LAB_NATS_PASSWORD`, or in --nats-password-file
    #[arg(long, value_name = "NAME")]
    nats_user: Option<String>,
    /// Read the password from the first line of this file; without --nats-user it is the server's token
    #[arg(long, value_name = "FILE")]
    nats_password_file: Option<PathBuf>,
    /// Trust these CAs (PEM) for the NATS server instead of the system's
    #[arg(long, value_name = "FILE")]
    nats_ca: Option<PathBuf>,
    /// Certificate (PEM) to show to the NATS server
    #[arg(long, value_name = "FILE")]
    nats_cert: Option<PathBuf>,
    /// Its private key (PEM, unencrypted) [default: in the file of --nats-cert]
    #[arg(long, value_name = "FILE", requires = "nats_cert")]
    nats_key: Option<PathBuf>,
}

impl NatsArgs {
    /// Whether a server is named, by the flag or by `H2LAB_NATS`.
    pub const fn is_given(&self) -> bool {
        match self.nats.as_slice() {
            [] => false,
            // A variable that is set to nothing.
            [one] => !one.is_empty(),
            _ => true,
        }
    }

    /// Refuses to send a private key to agents where others could read it on its way to one of the servers.
    pub fn check_key(&self, trust: &Trust) -> Result<(), Usage> {
        match self.nats.iter().find(|server| !server.starts_with("tls://")) {
            Some(server) if trust.identity.is_some() => Err(Usage(format!(
                "--cert, --key: the agents need the private key, and the way to NATS at {server} is not encrypted: give \
                 --nats tls://HOST for each server"
            ))),
            _ => Ok(()),
        }
    }

    /// The command line with the servers, where only `H2LAB_NATS` named them: who repeats it may not have the variable.
    pub fn added_to(&self, mut command_line: Vec<String>) -> Vec<String> {
        let is_there = command_line.iter().any(|word| word.split('=').next() == Some("--nats"));
        if self.is_given() && !is_there {
            command_line.extend(["--nats".to_owned(), self.nats.join(",")]);
        }
        command_line
    }

    /// The servers, as they are shown.
    pub fn servers(&self) -> String {
        self.nats.join(", ")
    }

    /// What a connection needs, once the files that the flags name are known to hold what they should. `name` is that of
    /// this client at the server: an agent's, or [`DRIVER`].
    pub fn options(&self, name: &str) -> Result<ServerOptions, Usage> {
        if !self.is_given() {
            let words = "give the NATS server: --nats nats://HOST:4222, or the variable H2LAB_NATS";
            return Err(Usage(words.to_owned()));
        }
        if let Some(path) = &self.creds {
            fs::File::open(path)
                .map_err(|error| Usage(format!("--creds {}: cannot read it: {error}", path.display())))?;
        }
        if let Some(path) = &self.nats_ca {
            tls::authorities("--nats-ca", path)?;
        }
        let password = if self.creds.is_some() { None } else { self.password()? };
        let (user, token) = match (&self.nats_user, password) {
            (Some(user), Some(password)) => (Some((user.clone(), password)), None),
            (Some(user), None) => {
                return Err(Usage(format!(
                    "--nats-user {user}: there is no password; set {PASSWORD}, or give --nats-password-file FILE"
                )));
            }
            (None, token) => (None, token),
        };
        Ok(ServerOptions {
            servers: self.nats.clone(),
            credentials: self.creds.clone(),
            user,
            token,
            ca: self.nats_ca.clone(),
            identity: self.identity()?,
            name: name.to_owned(),
            timeout: TIMEOUT,
        })
    }

    /// Connects, or says what to do next.
    pub fn connect(&self, name: &str) -> Result<Nats> {
        Nats::connect(&self.options(name)?).map_err(|error| explained(error, &self.servers()))
    }

    /// That of the file, else that of the variable.
    fn password(&self) -> Result<Option<String>, Usage> {
        let Some(path) = &self.nats_password_file else {
            return Ok(std::env::var(PASSWORD).ok().filter(|password| !password.is_empty()));
        };
        let flag = format!("--nats-password-file {}", path.display());
        let text =
            fs::read_to_string(path).map_err(|error| Usage(format!("{flag}: cannot read it: {error}")))?;
        let password = text.lines().next().unwrap_or_default().trim();
        if password.is_empty() {
            return Err(Usage(format!("{flag}: its first line is empty; it must be the password")));
        }
        Ok(Some(password.to_owned()))
    }

    /// The files of the certificate and of its key, once they are known to belong together.
    fn identity(&self) -> Result<Option<(PathBuf, PathBuf)>, Usage> {
        let Some(cert) = &self.nats_cert else { return Ok(None) };
        let key = self.nats_key.as_ref().unwrap_or(cert);
        let identity =
            Identity { certificates_pem: text("--nats-cert", cert)?, key_pem: text("--nats-key", key)? };
        identity.check().map_err(|error| {
            Usage(format!("--nats-cert {}, --nats-key {}: {error}", cert.display(), key.display()))
        })?;
        Ok(Some((cert.clone(), key.clone())))
    }
}

/// The text of a PEM file.
fn text(flag: &str, path: &Path) -> Result<String, Usage> {
    fs::read_to_string(path)
        .map_err(|error| Usage(format!("{flag} {}: cannot read it: {error}", path.display())))
}

/// A server, with its scheme. Nothing stays nothing: a variable that is empty counts as unset.
fn server(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("nats", text));
    if !matches!(scheme, "nats" | "tls") {
        return Err(format!(
            "`{scheme}://` is not a scheme of NATS: nats://HOST[:PORT] or tls://HOST[:PORT]"
        ));
    }
    if rest.contains('@') {
        let words = "a URL must have no password, since others can read the command line: use --creds FILE, or \
                     --nats-user NAME and the variable H2LAB_NATS_PASSWORD";
        return Err(words.to_owned());
    }
    let place = rest.strip_suffix('/').unwrap_or(rest);
    let is_one = |c: char| c.is_ascii_alphanumeric() || "-._:[]%".contains(c);
    if place.is_empty() || !place.chars().all(is_one) {
        return Err("not a server: nats://HOST[:PORT] or tls://HOST[:PORT]".to_owned());
    }
    Ok(format!("{scheme}://{place}"))
}

/// An error of NATS at these servers, with its exit code. Its words say already what to do next.
pub fn explained(error: NatsError, servers: &str) -> anyhow::Error {
    let words = error.to_string();
    let words = if words.contains(servers) { words } else { format!("NATS at {servers}: {words}") };
    match exit_of(&error) {
        // A file of this machine: what the system says of it decides the code.
        None => error.into(),
        Some(Exit::Environment) => MissingRequirement(words).into(),
        Some(Exit::Usage) => Usage(words).into(),
        Some(Exit::Invalid) => failure(FailureKind::Invalid, words),
        Some(_) => failure(FailureKind::Unreachable, words),
    }
}

/// The exit code of an error of NATS that nobody has explained; `None`: its cause, a file's error, decides.
fn exit_of(error: &NatsError) -> Option<Exit> {
    kind_of_nats(error).map(Exit::from)
}

/// The same of an error that may have come from NATS.
pub fn explained_cause(error: anyhow::Error, servers: &str) -> anyhow::Error {
    error.downcast::<NatsError>().map_or_else(|other| other, |error| explained(error, servers))
}

fn failure(kind: FailureKind, message: String) -> anyhow::Error {
    Failure { kind, message }.into()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use h2lab_model::fleet::ClientIdentity;

    use super::super::exit::exit_of as exit_of_all;
    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        nats: NatsArgs,
    }

    fn line(words: &[&str]) -> Result<NatsArgs, String> {
        let words = ["x"].iter().chain(words);
        Line::try_parse_from(words).map(|line| line.nats).map_err(|error| error.to_string())
    }

    fn refusal(words: &[&str]) -> String {
        match line(words) {
            Ok(args) => args.options("a").map(|_| ()).unwrap_err().to_string(),
            Err(error) => error,
        }
    }

    #[test]
    fn a_private_key_goes_to_agents_over_tls_only() {
        let identity = ClientIdentity { certificates_pem: "CERT".to_owned(), key_pem: "KEY".to_owned() };
        let with_key = Trust { identity: Some(identity), ..Trust::default() };
        for (servers, is_encrypted) in [
            ("tls://a", true),
            ("tls://a,tls://b:4222", true),
            ("tls://a,nats://b", false),
            ("nats://a,tls://b", false),
            ("a", false),
        ] {
            let nats = line(&["--nats", servers]).unwrap();
            let checked = nats.check_key(&with_key).map_err(|error| error.to_string());
            assert_eq!(checked.is_ok(), is_encrypted, "{servers}");
            assert!(checked.is_ok() || checked.unwrap_err().contains("--nats tls://HOST"));
            assert!(nats.check_key(&Trust::default()).is_ok(), "{servers}");
        }
    }

    #[test]
    fn a_server_is_named_with_or_without_its_scheme_and_there_may_be_several() {
        let options =
            line(&["--nats", "a,tls://b:4443/,nats://[::1]:4222"]).unwrap().options("kek-1").unwrap();
        assert_eq!(options.servers, ["nats://a", "tls://b:4443", "nats://[::1]:4222"]);
        assert_eq!(options.name, "kek-1");
    }

    #[test]
    fn an_empty_server_is_none() {
        assert!(!line(&["--nats="]).unwrap().is_given() && !line(&[]).unwrap().is_given());
        assert!(line(&["--nats=a"]).unwrap().is_given());
        assert!(refusal(&["--nats="]).contains("--nats nats://HOST:4222"));
    }

    #[test]
    fn what_is_no_server_is_refused_and_a_password_in_a_url_too() {
        for bad in ["http://a", "nats://", "nats://a/b", "nats://a b", "tls://?a"] {
            assert!(refusal(&["--nats", bad]).contains("nats://HOST"), "{bad}");
        }
        for bad in ["nats://me:secret@a", "secret@a"] {
            assert!(refusal(&["--nats", bad]).contains("--creds"), "{bad}");
        }
        assert!(refusal(&["--nats-ca", "no-such.pem"]).contains("--nats nats://HOST:4222"));
    }

    #[test]
    fn a_password_comes_from_a_file_and_is_a_token_without_a_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        fs::write(&path, "secret\nrest\n").unwrap();
        let file = format!("--nats-password-file={}", path.display());
        let user = line(&["--nats=a", "--nats-user=me", &file]).unwrap().options("a").unwrap();
        assert_eq!(user.user, Some(("me".to_owned(), "secret".to_owned())));
        assert_eq!(user.token, None);
        let token = line(&["--nats=a", &file]).unwrap().options("a").unwrap();
        assert_eq!((token.user, token.token.as_deref()), (None, Some("secret")));
        fs::write(&path, "\n").unwrap();
        assert!(refusal(&["--nats=a", &file]).contains("first line is empty"));
    }

    #[test]
    fn files_that_are_not_there_are_refused_by_their_flag() {
        for flag in ["--creds", "--nats-password-file", "--nats-ca", "--nats-cert"] {
            let words = refusal(&["--nats=a", flag, "no-such-file"]);
            assert!(words.starts_with(&format!("{flag} no-such-file: cannot read it")), "{words}");
        }
        assert!(refusal(&["--nats=a", "--nats-key=x"]).contains("--nats-cert"));
        assert!(refusal(&["--nats=a", "--creds=x", "--nats-user=me"]).contains("cannot be used with"));
    }

    #[test]
    fn an_error_has_the_same_exit_code_before_and_after_it_is_explained() {
        let errors: [fn() -> NatsError; 7] = [
            || NatsError::NoJetStream,
            || NatsError::Full,
            || NatsError::Gone,
            || NatsError::Absent { what: "a".into() },
            || NatsError::Quota { what: "a".into(), reason: "b".into() },
            || NatsError::TooLarge { what: "a".into(), bytes: 2, most: 1 },
            || NatsError::Invalid { what: "a".into(), reason: "b" },
        ];
        for error in errors {
            let explained = explained(error(), "nats://a");
            assert_eq!(exit_of(&error()), Some(exit_of_all(&explained)), "{explained}");
        }
    }

    #[test]
    fn what_the_server_refuses_is_a_matter_of_rights_and_its_absence_is_not() {
        let code = |error| exit_of_all(&explained(error, "nats://a"));
        assert_eq!(code(NatsError::NoJetStream), Exit::Environment);
        assert_eq!(code(NatsError::Denied { subject: "h2lab.who".into() }), Exit::Environment);
        assert_eq!(code(NatsError::Gone), Exit::Unreachable);
        assert_eq!(code(NatsError::Invalid { what: "a b".into(), reason: "no blanks" }), Exit::Usage);
        assert_eq!(code(NatsError::Corrupt { what: "a".into(), reason: "b".into() }), Exit::Invalid);
        let file =
            |kind: std::io::ErrorKind| NatsError::Io { path: "agent.creds".into(), source: kind.into() };
        assert_eq!(code(file(std::io::ErrorKind::PermissionDenied)), Exit::Environment);
        assert_eq!(code(file(std::io::ErrorKind::NotFound)), Exit::Usage);
    }
}
