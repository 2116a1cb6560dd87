//! docs/agents.md and what ships for agents: the first load by three of them, the permissions at a NATS server, the unit of systemd, the
//! manifest of Kubernetes and the compose file.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use h2lab_net::process::Child;
use tempfile::TempDir;

use crate::documented::certify;
use crate::origin::Origin;
use crate::support::{
    DEADLINE, DRAIN, Finished, binary, folder, free_ports, h2lab, is_root, need, run_program, workspace,
};

/// A file of the workspace.
fn text(path: &str) -> String {
    let path = workspace().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The first block of code in this language behind this heading of the page.
fn block(heading: &str, language: &str) -> String {
    let page = text("docs/agents.md");
    let (_, section) = page.split_once(&format!("## {heading}\n")).expect("the heading");
    let (_, block) = section.split_once(&format!("```{language}\n")).expect("the block");
    block.split_once("```").expect("its end").0.to_owned()
}

#[test]
fn the_five_commands_of_the_page_make_the_first_load_by_three_agents() {
    let programs = ["ip", "nats-server"];
    let Some(programs) = programs.iter().map(|name| need(name)).collect::<Option<Vec<_>>>() else { return };
    let folder = folder();
    // Its own folder, in which it leaves files; all else as it is written.
    let own = format!("{}/", folder.path().display());
    let block = block("First load by three agents", "sh").replace("/tmp/", &own);
    let commands: Vec<&str> = block.lines().collect();
    assert_eq!(commands.len(), 5, "{block}");
    std::os::unix::fs::symlink(binary(), folder.path().join("h2lab")).expect("a temporary folder");
    // Who types them is slower than agents; a script waits for them.
    let there = "$(h2lab agents --nats 127.0.0.1:4223 --json | grep -c '\"name\": \"kek-')";
    let wait = format!("until [ \"{there}\" = 3 ]; do :; done");
    let [first, last] = [&commands[..3], &commands[3..]].map(|commands| commands.join("\n"));
    let script = format!("set -e\nip link set lo up\n{first}\n{wait}\n{last}\n");
    let places = programs
        .iter()
        .filter_map(|program| program.parent())
        .fold(folder.path().display().to_string(), |path, place| format!("{path}:{}", place.display()));
    let path = format!("PATH={places}:{}", std::env::var("PATH").unwrap_or_default());
    let mut words = vec![path.as_str(), "unshare"];
    words.extend((!is_root()).then_some("--map-root-user"));
    words.extend(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    words.extend(["bash", "-c", &script]);
    let finished = run_program(Path::new("env"), folder.path(), &words);
    finished.assert_measured();
    for name in ["kek-1", "kek-2", "kek-3"] {
        assert!(finished.stdout.matches(name).count() >= 2, "{}", finished.transcript());
    }
}

/// A NATS server with the configuration of the page, with a certificate of its own.
struct Hub {
    server: Child,
    port: u16,
    folder: TempDir,
}

impl Hub {
    /// `None` if there is no server, and that is permitted.
    fn start() -> Option<Self> {
        let program = need("nats-server")?;
        let (folder, port) = (folder(), free_ports(1));
        certify(folder.path(), &["127.0.0.1"]);
        let own = format!("{}/", folder.path().display());
        let config = block("Security", "conf")
            .replace("0.0.0.0:4222", &format!("127.0.0.1:{port}"))
            .replace("/var/lib/nats", &format!("{own}nats"))
            .replace("/etc/nats/", &own);
        let path = folder.path().join("nats-server.conf");
        fs::write(&path, config).expect("a temporary folder");
        let mut command = Command::new(program);
        command.arg("-c").arg(path);
        for (user, variable) in
            [("kek-1", "KEK_1_PASSWORD"), ("driver", "DRIVER_PASSWORD"), ("observer", "OBSERVER_PASSWORD")]
        {
            command.env(variable, secret(user));
        }
        let server = Child::spawn(command, None).expect("the server starts");
        server
            .wait_for_line(DEADLINE, |line| line.contains("Server is ready").then_some(()))
            .unwrap_or_else(|error| panic!("{error}: {}", server.log()));
        Some(Self { server, port, folder })
    }

    /// The flags with which this user gets there.
    fn login(&self, user: &str) -> Vec<String> {
        let ca = self.folder.path().join("ca.pem").display().to_string();
        let server = format!("tls://127.0.0.1:{}", self.port);
        ["--nats", &server, "--nats-ca", &ca, "--nats-user", user].map(str::to_owned).to_vec()
    }

    /// Runs h2lab as this user.
    fn h2lab(&self, user: &str, arguments: &[&str]) -> Finished {
        let mut words = vec![password(user), binary().display().to_string()];
        words.extend(arguments.iter().map(|&argument| argument.to_owned()));
        words.extend(self.login(user));
        run_program(Path::new("env"), self.folder.path(), &words)
    }

    /// Starts the agent kek-1, and waits until it is there.
    fn agent(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(binary());
        command.args(["agent", "--name", "kek-1"]).args(arguments).args(self.login("kek-1"));
        command.env("H2LAB_NATS_PASSWORD", secret("kek-1"));
        let agent = Child::spawn(command, None).expect("the binary starts");
        let until = Instant::now() + DEADLINE;
        loop {
            // 3: nobody has answered.
            let asked = self.h2lab("observer", &["agents"]);
            if asked.code == Some(0) {
                return agent;
            }
            let may_come = asked.code == Some(3) && Instant::now() < until;
            assert!(may_come, "{}\n{}\n{}", asked.transcript(), agent.log(), self.server.log());
        }
    }
}

fn secret(user: &str) -> String {
    format!("secret-of-{user}")
}

/// The variable with it, for env(1).
fn password(user: &str) -> String {
    format!("H2LAB_NATS_PASSWORD={}", secret(user))
}

#[test]
fn the_permissions_of_the_page_are_enough_for_a_load_and_for_a_run() {
    let Some(hub) = Hub::start() else { return };
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    let agent = hub.agent(&["--allow", "http://127.0.0.1:*", "--allow", "lab"]);
    let load = ["load", "--agents", "kek-1", "-q", "50", "-z", "1s", DRAIN, &url];
    hub.h2lab("driver", &load).assert_measured();
    let cells = ["--proto=h1,h2c", "-c=1", "--loss=0%", "-q=100", "-z=2s", "--repetitions=1", DRAIN];
    let run = ["run", "compare", "--agents", "kek-1"].into_iter().chain(cells).collect::<Vec<_>>();
    hub.h2lab("driver", &run).assert_measured();
    let log = hub.server.log();
    assert!(!log.contains("Violation"), "{log}\n{}", agent.log());
}

#[test]
fn nobody_but_a_driver_can_give_orders_and_no_agent_can_be_another_one() {
    let Some(hub) = Hub::start() else { return };
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    let agent = hub.agent(&["--allow", "http://127.0.0.1:*"]);
    let load = ["load", "--agents", "kek-1", "-n", "10", &url];
    for (user, words) in [
        ("observer", "does not permit"),
        ("kek-1", "does not permit"),
        ("stranger", "refuses the credentials"),
    ] {
        let refused = hub.h2lab(user, &load);
        let is_told = refused.code == Some(4) && refused.stderr.contains(words);
        assert!(is_told, "{user}: {}", refused.transcript());
    }
    let other = hub.h2lab("kek-1", &["agent", "--name", "kek-2", "--allow", "serve"]);
    let is_told = other.code == Some(4) && other.stderr.contains("does not permit");
    assert!(is_told, "{}", other.transcript());
    assert!(!agent.log().contains("works for"), "no order has reached it: {}", agent.log());
}

#[test]
fn the_unit_of_systemd_and_its_settings_are_right() {
    let Some(program) = need("systemd-analyze") else { return };
    let folder = folder();
    let unit = text("packaging/systemd/h2lab-agent.service");
    // It need not be installed.
    let unit = unit.replace("/usr/bin/h2lab", &binary().display().to_string());
    fs::write(folder.path().join("h2lab-agent.service"), unit).expect("a file");
    let arguments = ["verify", "--man=no", "./h2lab-agent.service"];
    let verify = |what: &str| {
        let finished = run_program(&program, folder.path(), &arguments);
        // It warns of lines that it does not know, and goes on.
        let is_silent = !format!("{}{}", finished.stdout, finished.stderr).contains("h2lab-agent.service");
        assert!(finished.code == Some(0) && is_silent, "{what}: {}", finished.transcript());
    };
    verify("alone");
    let more = folder.path().join("h2lab-agent.service.d");
    fs::create_dir(&more).expect("a folder");
    let lab = text("packaging/systemd/h2lab-agent.service.d/lab.conf");
    fs::write(more.join("lab.conf"), lab).expect("a file");
    verify("with lab.conf");
    for line in text("packaging/systemd/h2lab-agent.env").lines() {
        if let Some(flags) = line.trim_start_matches('#').strip_prefix("H2LAB_AGENT_FLAGS=") {
            assert_known(["agent", "--name", "kek-1"].into_iter().chain(flags.split_whitespace()));
        }
    }
}

/// Fails unless h2lab knows these arguments: with --help behind them it does nothing else.
#[track_caller]
fn assert_known<'a>(arguments: impl Iterator<Item = &'a str>) {
    let arguments: Vec<&str> = arguments.chain(["--help"]).collect();
    let finished = h2lab(&arguments);
    assert_eq!(finished.code, Some(0), "{arguments:?}: {}", finished.transcript());
}

/// The lists of arguments behind `key` in a file of YAML, each in a line.
fn arguments(yaml: &str, key: &str) -> Vec<Vec<String>> {
    let lists = yaml.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
    lists.map(|list| serde_json::from_str(list).unwrap_or_else(|error| panic!("{list}: {error}"))).collect()
}

#[test]
fn the_manifest_of_kubernetes_is_as_its_schemas_say() {
    let Some(program) = need("kubernetes-validate") else { return };
    let path = workspace().join("packaging/kubernetes/agents.yaml");
    let finished = run_program(&program, folder().path(), &["--strict", &path.display().to_string()]);
    let said = format!("{}{}", finished.stdout, finished.stderr);
    assert!(finished.code == Some(0) && said.matches(" passed ").count() == 2, "{}", finished.transcript());
}

#[test]
fn the_compose_file_is_as_the_schema_of_compose_says() {
    let Some(program) = need("check-jsonschema") else { return };
    let path = workspace().join("packaging/compose/agents.yaml").display().to_string();
    let finished =
        run_program(&program, folder().path(), &["--builtin-schema", "vendor.compose-spec", &path]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
}

#[test]
fn h2lab_knows_the_commands_of_the_manifest_and_of_the_compose_file() {
    let manifest = arguments(&text("packaging/kubernetes/agents.yaml"), "args");
    let compose = arguments(&text("packaging/compose/agents.yaml"), "command");
    let ours = compose.into_iter().filter(|words| !words[0].starts_with('-'));
    let ours: Vec<Vec<String>> = manifest.into_iter().chain(ours).collect();
    assert_eq!(ours.len(), 6);
    for words in &ours {
        // Kubernetes puts the name of the pod there.
        let words =
            words.iter().map(|word| if word == "$(POD_NAME)" { "h2lab-agent-x" } else { word.as_str() });
        assert_known(words);
    }
}

#[test]
fn the_values_for_the_chart_permit_what_the_page_says() {
    let (page, values) = (block("Security", "conf"), text("packaging/kubernetes/nats-values.yaml"));
    let user = |name: &str| {
        let (_, user) = page.split_once(&format!("user: \"{name}\"")).expect("the user");
        user.split_once("} }").expect("its end").0.to_owned()
    };
    for (on_page, in_values) in [("kek-1", "agents"), ("driver", "driver")] {
        let (_, permitted) = values.split_once(&format!("- user: {in_values}\n")).expect("the user");
        let permitted = permitted.split("- user: ").next().unwrap_or_default();
        let permitted: Vec<&str> = permitted.lines().map(str::trim).collect();
        // Strings are between quotes: every second piece.
        let block = user(on_page);
        let subjects = block.split('"').skip(1).step_by(2);
        // An inbox is one word: there is no pattern for those of all agents.
        for subject in subjects.filter(|subject| !subject.starts_with("_INBOX_kek-1")) {
            let line = format!("- {}", subject.replace("kek-1", "*"));
            assert!(permitted.contains(&line.as_str()), "{in_values} lacks `{subject}`");
        }
    }
}
