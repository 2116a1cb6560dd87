//! Apache Tomcat as a plain server, with a servlet beside this file, which `javac` compiles before it starts.
//!
//! Its script for services starts the program in the background; here `java` runs Tomcat's own main class in the foreground, as
//! `catalina.sh run` does.

use std::net::SocketAddr;

use h2lab_model::workload::Protocol;
use rustix::process::Signal;

use super::error::SutError;
use super::kind::{
    About, BODY_BYTES, Endpoints, Launch, MAX_CONCURRENT_STREAMS, Program, Ready, SCRATCH, Site,
    StartOptions, Sut, VersionQuery, files,
};
use super::package::Package;

/// See the [module](self).
#[derive(Debug)]
pub struct Tomcat;

/// The servlet's text. Its name does not end in `.java`, so that no tool treats it as a source file.
const SERVLET: &str = include_str!("tomcat_servlet.java.txt");

/// The configuration's file.
const CONFIG: &str = "server.xml";

/// Tomcat's folder in Debian.
const HOME: &str = "/usr/share/tomcat10";

/// The class that prints the version, and its library.
const LIBRARY: &str = "/usr/share/tomcat10/lib/catalina.jar";

/// The library that servlets are compiled against.
const SERVLET_LIBRARY: &str = "/usr/share/tomcat10/lib/servlet-api.jar";

/// The folder of the web application, below the server's.
const APPLICATION: &str = "application";

impl Sut for Tomcat {
    fn about(&self) -> About {
        About {
            name: "tomcat",
            program: Program::Interpreted {
                by: "java",
                file: LIBRARY,
                // The second has the compiler.
                package: Package::Debian("tomcat10-common default-jdk-headless"),
            },
            // `Server version: Apache Tomcat/10.1.60 (Debian)`.
            version: VersionQuery {
                arguments: &["-cp", LIBRARY, "org.apache.catalina.util.ServerInfo"],
                read: |line| line.split_once("Apache Tomcat/")?.1.split(' ').next(),
            },
            is_proxy: false,
            has_hints_switch: false,
            ready: Ready::Line(|line| line.contains("Server startup in [")),
            built: None,
            drain_signal: Signal::TERM,
        }
    }

    /// `maxKeepAliveRequests` does not apply to HTTP/2, so a limit would not treat both protocols alike.
    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        options.unlimited(self.name())?;
        let endpoints = site.two_ports(options.ip);
        let servlet = format!("{SCRATCH}/TomcatServlet.java");
        let mut files = files(self.name(), options.ip, CONFIG, configuration(&endpoints))?;
        files.push((servlet.clone(), SERVLET.to_owned()));
        files.push((format!("{SCRATCH}/{APPLICATION}/WEB-INF/web.xml"), application()));
        let classes = format!("{SCRATCH}/{APPLICATION}/WEB-INF/classes");
        let compile =
            ["-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", SERVLET_LIBRARY, "-d", &classes, &servlet];
        Ok(Launch { files, check: compile.map(str::to_owned).to_vec(), arguments: arguments(), endpoints })
    }
}

/// The arguments of `java`: one processor, as other servers here have one process.
fn arguments() -> Vec<String> {
    [
        "-Xmx256m",
        "-XX:ActiveProcessorCount=1",
        // This option would write a file outside of the folder.
        "-XX:-UsePerfData",
        "-cp",
        &format!("{HOME}/bin/bootstrap.jar:{HOME}/bin/tomcat-juli.jar"),
        &format!("-Dcatalina.home={HOME}"),
        "-Dcatalina.base=.",
        &format!("-Djava.io.tmpdir={SCRATCH}"),
        // Without it, Tomcat continues without a port that it cannot get.
        "-Dorg.apache.catalina.startup.EXIT_ON_INIT_FAILURE=true",
        "org.apache.catalina.startup.Bootstrap",
        "-config",
        CONFIG,
        "start",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The configuration.
fn configuration(endpoints: &Endpoints) -> String {
    let connector = |address: SocketAddr, tls: &str, certificate: &str| {
        format!(
            "    <Connector address=\"{}\" port=\"{}\"{tls} keepAliveTimeout=\"3600000\" maxKeepAliveRequests=\"-1\">
      <UpgradeProtocol className=\"org.apache.coyote.http2.Http2Protocol\"
        maxConcurrentStreams=\"{MAX_CONCURRENT_STREAMS}\" keepAliveTimeout=\"3600000\"/>
{certificate}    </Connector>
",
            address.ip(),
            address.port(),
        )
    };
    let clear = connector(endpoints[&Protocol::H1], "", "");
    let certificate = format!(
        "      <SSLHostConfig>
        <Certificate certificateFile=\"{SCRATCH}/certificate.pem\" certificateKeyFile=\"{SCRATCH}/key.pem\"/>
      </SSLHostConfig>
"
    );
    let tls = connector(endpoints[&Protocol::H1s], " SSLEnabled=\"true\"", &certificate);
    format!(
        "\
<Server port=\"-1\">
  <Service name=\"Catalina\">
{clear}{tls}    <Engine name=\"Catalina\" defaultHost=\"server\">
      <Host name=\"server\" appBase=\"{SCRATCH}\" autoDeploy=\"false\" deployOnStartup=\"false\" createDirs=\"false\">
        <Context path=\"\" docBase=\"{APPLICATION}\" workDir=\"{SCRATCH}/work\"/>
      </Host>
    </Engine>
  </Service>
</Server>
"
    )
}

/// The description of the web application: the servlet is at every path.
fn application() -> String {
    format!(
        "\
<web-app xmlns=\"https://jakarta.ee/xml/ns/jakartaee\" version=\"6.0\" metadata-complete=\"true\">
  <servlet>
    <servlet-name>all</servlet-name>
    <servlet-class>TomcatServlet</servlet-class>
    <init-param><param-name>body-bytes</param-name><param-value>{BODY_BYTES}</param-value></init-param>
    <load-on-startup>1</load-on-startup>
  </servlet>
  <servlet-mapping><servlet-name>all</servlet-name><url-pattern>/</url-pattern></servlet-mapping>
</web-app>
"
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::{launched, launched_with};
    use super::*;

    #[test]
    fn both_connectors_speak_http2_and_only_one_has_tls() {
        let launch = launched(&Tomcat, Protocol::H1).unwrap();
        let config = &launch.files[0].1;
        assert_eq!(config.matches("maxConcurrentStreams=\"100000\"").count(), 2, "{config}");
        let (clear, tls) = config.split_once("</Connector>").unwrap();
        assert!(clear.contains("port=\"8080\"") && !clear.contains("SSL"), "{config}");
        assert!(
            tls.contains("port=\"8443\" SSLEnabled=\"true\"") && tls.contains("<Certificate "),
            "{config}"
        );
    }

    #[test]
    fn the_compiled_servlet_is_where_the_application_looks_for_it() {
        let launch = launched(&Tomcat, Protocol::H1).unwrap();
        let has = |file: &str| launch.files.iter().any(|(path, _)| path == file);
        assert!(has("scratch/TomcatServlet.java") && has("scratch/application/WEB-INF/web.xml"));
        let classes = launch.check.iter().position(|word| word == "-d").unwrap() + 1;
        assert_eq!(launch.check[classes], "scratch/application/WEB-INF/classes");
        assert!(SERVLET.contains("public class TomcatServlet ") && application().contains(">1024<"));
    }

    #[test]
    fn a_limit_that_http2_would_not_have_is_refused() {
        assert!(launched_with(&Tomcat, Protocol::H2, 1, Some(100)).is_err());
    }

    #[test]
    fn the_version_is_read_from_what_it_prints() {
        let read = Tomcat.about().version.read;
        assert_eq!(read("Server version: Apache Tomcat/10.1.60 (Debian)"), Some("10.1.60"));
        assert_eq!(read("Server number:  10.1.60.0"), None);
    }
}
