//! nghttpx, h2o, Tomcat and Caddy, in configurations like those that the lab writes.

use super::tests::change;
use crate::settings::Knob;

#[test]
fn an_option_of_nghttpx_is_a_line_without_dashes() {
    let of = |knob, text: &str| change("nghttpx", "1.52.0", knob, 128, text);
    let option = "frontend-http2-max-concurrent-streams";
    let text =
        |limit: u32| format!("frontend=127.0.0.1,80;no-tls\n# {option}=5\n{option}={limit}\nworkers=1\n");
    assert_eq!(of(Knob::MaxConcurrentStreams, &text(127)).unwrap(), text(128));
    assert!(of(Knob::MaxConcurrentStreams, &text(128)).unwrap_err().contains("as large already"));
    let added = of(Knob::MaxConcurrentStreams, "workers=1").unwrap();
    assert_eq!(added, format!("workers=1\n{option}=128\n"));
    assert_eq!(of(Knob::Push, "no-server-push=no\n").unwrap(), "no-server-push=yes\n");
    assert_eq!(of(Knob::Push, "").unwrap(), "no-server-push=yes\n");
    assert!(of(Knob::Push, "no-server-push=yes\n").is_err());
}

#[test]
fn a_field_of_h2o_is_one_of_all_hosts() {
    let of = |knob, text: &str| change("h2o", "2.2.5", knob, 60_000, text);
    let hosts = "hosts:\n  default:\n    http2-idle-timeout: 1\n";
    let text = |seconds: u32| format!("num-threads: 1\nhttp2-idle-timeout: {seconds} # idle\n{hosts}");
    assert_eq!(of(Knob::H2IdleTimeout, &text(59)).unwrap(), text(60));
    assert!(of(Knob::H2IdleTimeout, &text(60)).unwrap_err().contains("as large already"));
    assert_eq!(of(Knob::H2IdleTimeout, hosts).unwrap(), format!("{hosts}http2-idle-timeout: 60\n"));
    assert_eq!(of(Knob::Push, "http2-push-preload: ON\n").unwrap(), "http2-push-preload: OFF\n");
    assert!(of(Knob::Push, "http2-push-preload: OFF\n").is_err());
    let below = of(Knob::SessionResumption, "ssl-session-resumption:\n  mode: ticket\n");
    assert!(below.is_err(), "its lines would be left without their head: {below:?}");
    let braces = of(Knob::SessionResumption, "ssl-session-resumption: { mode: off }\n");
    assert!(braces.is_err(), "it is not written a second time: {braces:?}");
}

#[test]
fn an_attribute_of_tomcat_goes_into_every_element_that_may_have_it() {
    let of = |knob, value, text: &str| change("tomcat", "10.1.60", knob, value, text);
    let text = |first: &str, second: &str| {
        format!(
            "<Server port=\"-1\">
  <!-- <Connector port=\"1\"><UpgradeProtocol className=\"x\"/> -->
  <Connector port=\"8009\" protocol=\"AJP/1.3\"/>
  <Connector port=\"8010\" protocol=\"org.apache.coyote.ajp.AjpNioProtocol\"/>
  <Connector port='80' note=\"a>b\" maxKeepAliveRequests=\"-1\">
    <UpgradeProtocol{first} className=\"Http2Protocol\"
      keepAliveTimeout=\"9\"/>
  </Connector>
  <Connector port=\"443\">
    <UpgradeProtocol{second} className=\"Http2Protocol\"/>
  </Connector>
</Server>
"
        )
    };
    let limit = |streams: u32| format!(" maxConcurrentStreams=\"{streams}\"");
    let whole = text(&limit(128), &limit(128));
    let knob = Knob::MaxConcurrentStreams;
    assert_eq!(of(knob, 128, &text(&limit(127), "")).unwrap(), whole);
    assert_eq!(of(knob, 128, &text(&limit(127).replace('"', "'"), &limit(128))).unwrap(), whole);
    assert!(of(knob, 128, &whole).unwrap_err().contains("as large already"));
    let requests = of(Knob::H1Requests, 1_000, &whole).unwrap();
    let (port, added) = ("<Connector port=\"443\"", "<Connector maxKeepAliveRequests=\"1000\" port=\"443\"");
    assert_eq!(requests, whole.replace(port, added), "-1 has no limit, and AJP is not HTTP");
    assert!(of(knob, 128, "<Server/>").unwrap_err().contains("only attributes of a Connector"));
    assert!(of(Knob::EnableH2, 1, &whole).unwrap_err().contains("no place"));
    for broken in ["<Connector", "<Connector a=", "<Connector a=\"", "<", "<!--", "<Connector ü=\"ü\" =>"] {
        let _ = of(Knob::H1Requests, 9, broken);
    }
}

#[test]
fn an_option_of_caddy_goes_into_servers_of_a_caddyfile() {
    let of = |knob, value, text: &str| change("caddy", "2.6.2", knob, value, text);
    let idle = Knob::H2IdleTimeout;
    let text = |inside: &str| {
        format!(
            "# mine\n{{\n\tadmin off\n\tservers :443 {{ # all\n\t\ttimeouts {{\n{inside}\t\t}}\n\t}}\n}}\n\
             :80 {{\n\tidle 1s\n}}\n"
        )
    };
    let long = |seconds: u32| text(&format!("\t\t\tidle {seconds}s # long\n"));
    assert_eq!(of(idle, 60_000, &long(59)).unwrap(), long(60));
    assert!(of(idle, 60_000, &long(60)).unwrap_err().contains("as large already"));
    let longer = text("\t\t\tidle 1m30s\n");
    assert!(of(idle, 90_000, &longer).is_err() && of(idle, 91_000, &longer).is_ok());
    let sized = |size: &str| format!("{{\n\tservers {{\n\t\tmax_header_size {size}\n\t}}\n}}\n");
    assert!(of(Knob::HeaderSize, 5_000_000, &sized("5MB")).is_err(), "it is not lowered");
    assert_eq!(of(Knob::HeaderSize, 5_000_001, &sized("5MB")).unwrap(), sized("5000001"));
    assert_eq!(of(idle, 60_000, &text("")).unwrap(), text("\t\t\tidle 60s\n"));
    let size = of(Knob::HeaderSize, 4_096, &long(60)).unwrap();
    assert_eq!(size, long(60).replace("# all\n", "# all\n\t\tmax_header_size 4096\n"));
    let none = of(idle, 60_000, ":80 {\n}\n").unwrap();
    assert_eq!(none, "{\n\tservers {\n\t\ttimeouts {\n\t\t\tidle 60s\n\t\t}\n\t}\n}\n:80 {\n}\n");
    let protocols = |list: &str| format!("{{\n\tservers {{\n\t\tprotocols {list}\n\t}}\n}}\n");
    assert_eq!(of(Knob::PriorKnowledge, 1, &protocols("h1 h2")).unwrap(), protocols("h1 h2 h2c h3"));
    assert!(of(Knob::PriorKnowledge, 1, &protocols("h1 h2 h2c h3")).is_err());
    assert!(of(Knob::BodySize, 9, &text("")).unwrap_err().contains("only options of `servers`"));
}

#[test]
fn an_option_of_caddy_is_a_field_of_each_server_in_json() {
    let of = |knob, value, text: &str| change("caddy", "2.6.2", knob, value, text);
    let json = serde_json::json!({ "admin": { "listen": "127.0.0.1:1" }, "apps": { "http": { "servers": {
        "clear": { "idle_timeout": "30s", "listen": ["127.0.0.1:80"], "routes": [{ "handle": [] }] },
        "tls": { "listen": ["127.0.0.1:443"], "routes": [{ "idle_timeout": 1 }] },
    } } } });
    let edited: serde_json::Value =
        serde_json::from_str(&of(Knob::H2IdleTimeout, 60_000, &format!("{json:#}")).unwrap()).unwrap();
    let spaced = format!("{json:#}").replace("\"30s\",\n", "\"30s\",\n\n");
    let spaced = of(Knob::H2IdleTimeout, 60_000, &spaced).unwrap();
    assert_eq!(spaced.matches("idle_timeout").count(), 3, "no field stands twice: {spaced}");
    let mut expected = json;
    for server in ["clear", "tls"] {
        expected["apps"]["http"]["servers"][server]["idle_timeout"] = "60s".into();
    }
    assert_eq!(edited, expected);
    let again = of(Knob::H2IdleTimeout, 60_000, &format!("{expected:#}"));
    assert!(again.unwrap_err().contains("as large already"));
    assert!(of(Knob::PriorKnowledge, 1, &format!("{expected:#}")).unwrap_err().contains("in JSON"));
}
