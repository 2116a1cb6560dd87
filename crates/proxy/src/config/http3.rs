//! `h3` of a listener and of a service.

use super::{ConfigError, Listen, Service, Speaks};

/// Congestion control of QUIC: it is not the system's.
const CONGESTION: [&str; 3] = ["reno", "cubic", "bbr"];

impl Listen {
    /// Checks that HTTP/3 is set only where it is possible.
    pub(super) fn check_http3(&self) -> Result<(), ConfigError> {
        let wrong = |why| Err(ConfigError::Value { place: format!("the listener on {}", self.address), why });
        if !self.h3 {
            let is_told = self.alt_svc != super::listen::ALT_SVC;
            return if is_told { wrong("alt-svc requires h3 = true") } else { Ok(()) };
        }
        if !self.tls {
            return wrong("h3 = true requires tls = true");
        }
        if self.proxy_protocol {
            return wrong(
                "h3 = true and proxy-protocol = true exclude each other (the PROXY protocol is for TCP): use two listeners",
            );
        }
        Ok(())
    }

    /// The `Alt-Svc` that clients of its TCP port get about HTTP/3, if they get one (RFC 7838 §3). `port`: the one that
    /// it has.
    pub fn alt_svc_field(&self, port: u16) -> Option<String> {
        let is_told = self.h3 && !self.alt_svc.is_zero();
        is_told.then(|| format!("h3=\":{port}\"; ma={}", self.alt_svc.as_secs().max(1)))
    }
}

impl Service {
    /// Checks that its instances can be used over HTTP/3 as configured.
    pub(super) fn check_http3(&self, name: &str) -> Result<(), ConfigError> {
        let wrong = |why| Err(ConfigError::Value { place: format!("service \"{name}\""), why });
        let sources = [
            self.dns.as_ref().map(|url| url.speaks),
            self.dns_srv.as_ref().map(|name| name.speaks),
            (!self.instances.is_empty()).then(|| {
                let is_tls = self.instances.iter().any(|member| member.url.speaks == Speaks::Tls);
                if is_tls { Speaks::Tls } else { self.instances[0].url.speaks }
            }),
        ];
        if self.h3 && sources.into_iter().flatten().any(|speaks| speaks != Speaks::Tls) {
            return wrong(
                "h3 = true requires https:// URLs; for HTTP/3 without fallback write h3:// instead",
            );
        }
        let is_asked = self.h3
            || self.dns.as_ref().is_some_and(|url| url.speaks == Speaks::H3)
            || self.instances.iter().any(|member| member.url.speaks == Speaks::H3);
        if is_asked && self.congestion.as_ref().is_some_and(|name| !CONGESTION.contains(&name.as_str())) {
            return wrong("congestion must be reno, cubic or bbr for HTTP/3");
        }
        Ok(())
    }

    /// Whether any connection to its instances may use TCP, whose congestion control is the kernel's.
    pub fn uses_tcp(&self) -> bool {
        let urls = self.instances.iter().map(|member| &member.url).chain(&self.dns);
        let others = self.dns_srv.is_some() || self.file.is_some() || self.consul.is_some();
        let speaks: Vec<Speaks> = urls.map(|url| url.speaks).collect();
        others || speaks.is_empty() || speaks.iter().any(|speaks| *speaks != Speaks::H3)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn wrong(service: &str) -> Option<String> {
        let text = format!("[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n[service.a]\n{service}");
        Config::parse(&text).err().map(|error| error.to_string())
    }

    #[test]
    fn a_listener_has_http3_beside_tls_and_tells_so() {
        let listen = |more: &str| {
            let text = format!(
                "[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n{more}\n[service.a]\ninstances = ['http://b']"
            );
            Config::parse(&text)
                .map(|config| config.listen[0].alt_svc_field(443))
                .map_err(|error| error.to_string())
        };
        assert_eq!(listen("tls = true\nh3 = true"), Ok(Some("h3=\":443\"; ma=86400".to_owned())));
        assert_eq!(listen("tls = true\nh3 = true\nalt-svc = '0'"), Ok(None));
        assert_eq!(listen("tls = true"), Ok(None));
        for (text, words) in [
            ("h3 = true", "the listener on 127.0.0.1:0: h3 = true requires tls"),
            ("tls = true\nh3 = true\nproxy-protocol = true", "use two listeners"),
            ("tls = true\nalt-svc = '1h'", "requires h3 = true"),
        ] {
            assert!(listen(text).is_err_and(|why| why.contains(words)), "{text}");
        }
    }

    #[test]
    fn only_a_service_of_http3_alone_uses_no_tcp() {
        for (service, uses_tcp) in [
            ("instances = ['h3://a', 'h3://b']", false),
            ("dns = 'h3://a'", false),
            ("instances = ['h3://a', 'h2://b']", true),
            ("instances = ['https://a']\nh3 = true", true),
            ("dns = 'https://a'\nh3 = true", true),
            ("file = 'listed.json'", true),
            ("consul = { service = 'a' }", true),
        ] {
            let text =
                format!("[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n[service.a]\n{service}");
            let config = Config::parse(&text).expect(service);
            assert_eq!(config.service["a"].uses_tcp(), uses_tcp, "{service}");
        }
        assert!(super::Service::default().uses_tcp(), "that of destinations");
    }

    #[test]
    fn http3_is_for_instances_with_tls_and_has_its_own_congestion_control() {
        for right in [
            "instances = ['h3://a']\ncongestion = 'bbr'",
            "instances = ['https://a', 'http://b']\nh3 = true",
            "dns = 'https://a'\nh3 = true",
            "consul = { service = 'a' }\nh3 = true",
        ] {
            assert_eq!(wrong(right), None, "{right}");
        }
        for (text, words) in [
            ("instances = ['http://a']\nh3 = true", "service \"a\": h3 = true requires https://"),
            ("dns = 'h2c://a'\nh3 = true", "h3 = true requires https://"),
            ("dns-srv = '_http._tcp.a.test'\nh3 = true", "h3 = true requires https://"),
            ("instances = ['h3://a']\ncongestion = 'dctcp'", "reno, cubic"),
            ("dns = 'h3://a'\ncongestion = 'dctcp'", "reno, cubic"),
            ("instances = ['https://a']\nh3 = true\ncongestion = 'vegas'", "reno, cubic"),
        ] {
            assert!(wrong(text).is_some_and(|why| why.contains(words)), "{text}");
        }
    }
}
