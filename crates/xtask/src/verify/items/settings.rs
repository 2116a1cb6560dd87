//! The entries of the table of settings that say so are accepted by the program's own test of a configuration, with the least,
//! a usual and the most value that they state; and the same line with another name is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Item, item};
use crate::process;
use crate::verify::nginx::make_certificate;
use crate::verify::outcome::ItemOutcome;

/// Where the table is.
const FOLDER: &str = "crates/model/src/settings/products";
/// What an entry says that this item repeats.
const CONFIG_TEST: &str = "config test of ";
/// A name that no program knows.
const NO_NAME: &str = "x_no_such";

/// A file of the table, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Product {
    setting: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    name: Option<String>,
    place: Option<String>,
    write: Option<String>,
    unit: Option<String>,
    range: Option<(u64, u64)>,
    #[serde(default)]
    checked: Vec<String>,
}

/// What the line has in which a program says why it refuses a configuration.
const REASONS: [&str; 7] = ["[emerg]", "[ALERT]", NOT_SET, "rror", "nknown", "nvalid", "nrecognized"];

/// What Tomcat warns of a name that it does not know, and goes on.
const NOT_SET: &str = "failed to set property";

/// Where Debian has Tomcat.
const TOMCAT: &str = "/usr/share/tomcat10";

/// A line in its place.
struct Line<'a> {
    place: &'a str,
    text: &'a str,
}

/// The program that tests a product's configuration.
struct Tester {
    /// The name of the file of the table.
    product: &'static str,
    program: &'static str,
    /// What prints its version.
    version: &'static [&'static str],
    /// The files of a minimal configuration with this line, and the arguments that test them.
    configure: fn(&Path, &Line<'_>) -> Result<Vec<String>>,
}

const TESTERS: [Tester; 10] = [
    Tester { product: "nginx", program: "nginx", version: &["-v"], configure: nginx },
    Tester { product: "haproxy", program: "haproxy", version: &["-v"], configure: haproxy },
    Tester { product: "envoy", program: "envoy", version: &["--version"], configure: envoy },
    Tester { product: "apache", program: "apache2", version: &["-v"], configure: apache },
    Tester { product: "caddy", program: "caddy", version: &["version"], configure: caddy },
    Tester {
        product: "tomcat",
        program: "java",
        version: &["-cp", "/usr/share/tomcat10/lib/catalina.jar", "org.apache.catalina.util.ServerInfo"],
        configure: tomcat,
    },
    Tester { product: "h2o", program: "h2o", version: &["-v"], configure: h2o },
    Tester {
        product: "nghttpx",
        program: "nghttpx",
        version: &["--version"],
        configure: options_before_version,
    },
    Tester {
        product: "nghttpd",
        program: "nghttpd",
        version: &["--version"],
        configure: options_before_version,
    },
    Tester { product: "curl", program: "curl", version: &["-V"], configure: options_before_version },
];

/// One item for each program.
pub fn items() -> Vec<Item> {
    let claim = "each entry of the table that says so is accepted by the program, with least, usual and most value, and \
                 the same line with another name is refused";
    TESTERS.iter().map(|tester| item(tester.product, claim, move |_| tester.show())).collect()
}

impl Tester {
    fn show(&self) -> Result<ItemOutcome> {
        let mut outcome = ItemOutcome::default();
        let program =
            process::find(self.program).with_context(|| format!("{} is not installed", self.program))?;
        let printed = self.printed_version(&program)?;
        let version = printed.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
        // Envoy prints where it is installed.
        outcome.note(version.replace(&program.display().to_string(), self.program));
        let folder = tempfile::Builder::new().prefix("h2lab-settings-").tempdir()?;
        make_certificate(folder.path())?;
        for entry in entries(self.product)? {
            let Some(version) = entry.checked.iter().find_map(|check| check.strip_prefix(CONFIG_TEST)) else {
                continue;
            };
            outcome.check(printed.contains(version), format!("{}: of {version}", entry.template()?));
            for text in entry.lines()? {
                let refusal = self.refusal(&program, folder.path(), &entry, &text)?;
                let words = refusal.as_deref().map_or(String::new(), |why| format!(": {why}"));
                outcome.check(refusal.is_none(), format!("{text}{words}"));
            }
            let wrong = entry.misnamed()?;
            let refusal = self.refusal(&program, folder.path(), &entry, &wrong)?;
            outcome.check(refusal.is_some(), format!("{wrong} is refused"));
        }
        Ok(outcome)
    }

    fn printed_version(&self, program: &Path) -> Result<String> {
        let output = Command::new(program).args(self.version).stdin(Stdio::null()).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    }

    /// What the program says against a line; `None` if it accepts it.
    fn refusal(&self, program: &Path, folder: &Path, entry: &Entry, text: &str) -> Result<Option<String>> {
        let place = entry.place.as_deref().context("an entry without a place")?;
        let arguments = (self.configure)(folder, &Line { place, text })?;
        let output = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .env("XDG_CONFIG_HOME", folder)
            .env("XDG_DATA_HOME", folder)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", self.program))?;
        let said =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        if output.status.success() && !said.contains(NOT_SET) {
            return Ok(None);
        }
        let is_reason = |line: &&str| REASONS.iter().any(|word| line.contains(word));
        let line = said.lines().find(is_reason).or(said.lines().next()).unwrap_or("refused");
        Ok(Some(line.replace(&folder.display().to_string(), ".").chars().take(160).collect()))
    }
}

impl Entry {
    fn template(&self) -> Result<&str> {
        self.write.as_deref().context("an entry is marked as tested and has no `write`")
    }

    /// The line with the least, a usual and the most value; once if it has none.
    fn lines(&self) -> Result<Vec<String>> {
        let template = self.template()?;
        let usual: u64 = match self.unit.as_deref() {
            None => return Ok(vec![template.to_owned()]),
            Some("bytes") => 131_072,
            Some("KiB") => 128,
            Some("bits") => 20,
            Some(_) => 60,
        };
        let (least, most) = self.range.unwrap_or((usual, usual));
        let mut values = vec![least, usual.clamp(least, most), most];
        values.dedup();
        Ok(values.iter().map(|value| template.replace("{value}", &value.to_string())).collect())
    }

    /// The usual line, with the last word of its name replaced.
    fn misnamed(&self) -> Result<String> {
        let name = self.name.as_deref().and_then(|name| name.rsplit(' ').next()).context("no name")?;
        let bare = name.trim_start_matches('-');
        let lines = self.lines()?;
        let usual = lines.get(lines.len() / 2).context("no line")?;
        if !usual.contains(bare) {
            bail!("`{usual}` does not contain its name `{bare}`");
        }
        Ok(usual.replacen(bare, NO_NAME, 1))
    }
}

fn entries(product: &str) -> Result<Vec<Entry>> {
    let path: PathBuf = process::workspace().join(FOLDER).join(format!("{product}.toml"));
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(toml::from_str::<Product>(&text)?.setting)
}

/// `text` if the place begins with one of `names`.
fn at<'a>(line: &Line<'a>, names: &[&str]) -> &'a str {
    if names.iter().any(|name| line.place == *name || line.place.starts_with(&format!("{name},"))) {
        line.text
    } else {
        ""
    }
}

fn nginx(folder: &Path, line: &Line<'_>) -> Result<Vec<String>> {
    let here = folder.display();
    let scratch: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {here}/{kind};\n"))
        .concat();
    let configuration = format!(
        "daemon off;\npid {here}/nginx.pid;\nerror_log {here}/error.log;\n{}\nevents {{}}\nhttp {{\n  access_log off;\n\
         {scratch}  {}\n  upstream up {{ server 127.0.0.1:9; {} }}\n  server {{\n    listen 127.0.0.1:8099 ssl {};\n    \
         ssl_certificate cert.pem;\n    ssl_certificate_key key.pem;\n    location / {{ proxy_pass http://up; }}\n  }}\n}}\n",
        at(line, &["main"]),
        at(line, &["http"]),
        at(line, &["upstream"]),
        at(line, &["listen"]),
    );
    fs::write(folder.join("nginx.conf"), configuration)?;
    let arguments = ["-t", "-p", ".", "-e", "error.log", "-c"].map(str::to_owned);
    Ok(arguments.into_iter().chain([folder.join("nginx.conf").display().to_string()]).collect())
}

fn haproxy(folder: &Path, line: &Line<'_>) -> Result<Vec<String>> {
    let both = fs::read_to_string(folder.join("cert.pem"))? + &fs::read_to_string(folder.join("key.pem"))?;
    fs::write(folder.join("both.pem"), both)?;
    let bind = at(line, &["bind"]);
    let tls = if bind.starts_with("alpn") { "ssl crt both.pem " } else { "" };
    let configuration = format!(
        "global\n  {}\ndefaults\n  mode http\n  timeout client 30s\n  timeout server 30s\n  timeout connect 5s\n  {}\n\
         frontend f\n  bind 127.0.0.1:8097 {tls}{bind}\n  {}\n  default_backend b\nbackend b\n  server s 127.0.0.1:9 {}\n",
        at(line, &["global"]),
        at(line, &["defaults"]),
        at(line, &["frontend"]),
        at(line, &["server"]),
    );
    fs::write(folder.join("haproxy.cfg"), configuration)?;
    Ok(["-c", "-f", "haproxy.cfg"].map(str::to_owned).into())
}

fn envoy(folder: &Path, line: &Line<'_>) -> Result<Vec<String>> {
    // A message in which the line stands gets another field, since it may not be empty.
    let field = |place: &str, indent: usize| format!("{}{}\n", " ".repeat(indent), at(line, &[place]));
    let is_protocol = line.place == "HttpProtocolOptions of the cluster";
    let upstream = if is_protocol {
        field("HttpProtocolOptions of the cluster", 8)
    } else {
        format!(
            "        explicit_http_config:\n          http2_protocol_options:\n            allow_metadata: false\n{}",
            field("http2_protocol_options of the cluster", 12)
        )
    };
    let configuration = format!(
        r#"static_resources:
  listeners:
  - name: l
{listener}    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
{manager}          http2_protocol_options:
            allow_metadata: false
{http2}          common_http_protocol_options:
            headers_with_underscores_action: ALLOW
{common}          http_filters:
{filters}          - name: envoy.filters.http.router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
          route_config:
            virtual_hosts: [{{ name: v, domains: ["*"], routes: [{{ match: {{ prefix: / }}, route: {{ cluster: c }} }}] }}]
  clusters:
  - name: c
    connect_timeout: 5s
{cluster}    load_assignment: {{ cluster_name: c }}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        common_http_protocol_options:
          headers_with_underscores_action: ALLOW
{upstream_common}{upstream}"#,
        listener = field("listener", 4),
        manager = field("HTTP connection manager", 10),
        http2 = field("http2_protocol_options of the HTTP connection manager", 12),
        filters = field("http_filters of the HTTP connection manager", 10),
        common = field("common_http_protocol_options of the HTTP connection manager", 12),
        cluster = field("cluster", 4),
        upstream_common = field("common_http_protocol_options of the cluster", 10),
    );
    fs::write(folder.join("envoy.yaml"), configuration)?;
    Ok(["--mode", "validate", "-l", "error", "-c", "envoy.yaml"].map(str::to_owned).into())
}

fn apache(folder: &Path, line: &Line<'_>) -> Result<Vec<String>> {
    let here = folder.display();
    let modules = "/usr/lib/apache2/modules";
    let load: String =
        ["mpm_event", "authz_core", "http2", "ssl", "socache_shmcb", "proxy", "proxy_http", "proxy_http2"]
            .map(|name| format!("LoadModule {name}_module {modules}/mod_{name}.so\n"))
            .concat();
    let configuration = format!(
        "ServerRoot {here}\nServerName localhost\nPidFile {here}/apache.pid\nErrorLog {here}/apache.log\n\
         Listen 127.0.0.1:8096\n{load}{}\n<VirtualHost 127.0.0.1:8096>\n{}\n</VirtualHost>\n",
        at(line, &["server"]),
        at(line, &["virtual host"]),
    );
    fs::write(folder.join("apache.conf"), configuration)?;
    Ok(vec!["-t".to_owned(), "-f".to_owned(), folder.join("apache.conf").display().to_string()])
}

fn caddy(folder: &Path, line: &Line<'_>) -> Result<Vec<String>> {
    // A block of Caddy takes several lines.
    let text = line.text.replace("{ ", "{\n").replace(" }", "\n}");
    let at = |place: &str| if line.place == place { text.as_str() } else { "" };
    let configuration = format!(
        "{{\nadmin off\nservers {{\n{}\n}}\n}}\n:8095 {{\n{}\nreverse_proxy 127.0.0.1:9 {{\n{}\ntransport http {{\n{}\n}}\n}}\n}}\n",
        at("servers"),
        at("site"),
        at("reverse_proxy"),
        at("transport http"),
    );
    fs::write(folder.join("Caddyfile"), configuration)?;
    Ok(["adapt", "--validate", "--adapter", "caddyfile", "--config", "Caddyfile"].map(str::to_owned).into())
}

fn tomcat(folder: &Path, line: &Line<'_>) -> Result<Vec<String>> {
    let configuration = format!(
        "<Server port=\"-1\"><Service name=\"s\"><Connector address=\"127.0.0.1\" port=\"0\" {}>\n<UpgradeProtocol \
         className=\"org.apache.coyote.http2.Http2Protocol\" {}/>\n</Connector><Engine name=\"s\" defaultHost=\"h\"/>\
         </Service></Server>\n",
        at(line, &["Connector"]),
        at(line, &["UpgradeProtocol"]),
    );
    fs::write(folder.join("server.xml"), configuration)?;
    let arguments = format!(
        "-cp {TOMCAT}/bin/bootstrap.jar:{TOMCAT}/bin/tomcat-juli.jar -Dcatalina.home={TOMCAT} -Dcatalina.base=. \
         -Djava.io.tmpdir=. org.apache.catalina.startup.Bootstrap -config server.xml configtest"
    );
    Ok(arguments.split(' ').map(str::to_owned).collect())
}

fn h2o(folder: &Path, line: &Line<'_>) -> Result<Vec<String>> {
    let configuration = format!(
        "listen: {{ port: 8094, host: 127.0.0.1 }}\nhosts: {{ default: {{ paths: {{ /: {{ file.dir: . }} }} }} }}\n{}\n",
        at(line, &["global"])
    );
    fs::write(folder.join("h2o.conf"), configuration)?;
    Ok(["-t", "-c", "h2o.conf"].map(str::to_owned).into())
}

/// Programs without a test of their configuration look at all options before they print their version. Only names are tested
/// so, no values.
#[expect(clippy::unnecessary_wraps, reason = "the form of the others, which write files")]
fn options_before_version(_: &Path, line: &Line<'_>) -> Result<Vec<String>> {
    Ok(line.text.split(' ').chain(["--version"]).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_that_the_table_names_for_a_test_has_a_tester() {
        for file in fs::read_dir(process::workspace().join(FOLDER)).unwrap() {
            let path = file.unwrap().path();
            let product = path.file_stem().unwrap().to_str().unwrap();
            let is_tested = |entry: &Entry| entry.checked.iter().any(|check| check.starts_with(CONFIG_TEST));
            let entries = entries(product).unwrap();
            let has_tester = TESTERS.iter().any(|tester| tester.product == product);
            assert_eq!(entries.iter().any(is_tested), has_tester, "{product}");
            for entry in entries.iter().filter(|entry| is_tested(entry)) {
                assert!(entry.misnamed().unwrap().contains(NO_NAME));
            }
        }
    }

    #[test]
    fn least_usual_and_most_value_are_written_once_each() {
        let entry = |range| Entry {
            name: Some("a b-c".to_owned()),
            place: None,
            write: Some("b-c {value}k;".to_owned()),
            unit: Some("KiB".to_owned()),
            range,
            checked: Vec::new(),
        };
        assert_eq!(entry(Some((1, 16))).lines().unwrap(), ["b-c 1k;", "b-c 16k;"]);
        assert_eq!(entry(Some((1, 256))).lines().unwrap(), ["b-c 1k;", "b-c 128k;", "b-c 256k;"]);
        assert_eq!(entry(None).lines().unwrap(), ["b-c 128k;"]);
        assert_eq!(entry(None).misnamed().unwrap(), "x_no_such 128k;");
    }

    #[test]
    fn a_line_stands_in_the_first_of_its_places() {
        let line = Line { place: "server, virtual host", text: "x" };
        assert_eq!((at(&line, &["server"]), at(&line, &["virtual host"])), ("x", ""));
    }
}
