//! Warnings about a file that is valid: what has no effect in it, or an effect that its author hardly wants.

use super::{Config, Instance, Listen, Policy, Retry, Service, Speaks, Timeouts};

impl Config {
    /// Warnings about what is valid and has no effect.
    pub fn warnings(&self) -> Vec<String> {
        let unused = self.service.keys().filter(|name| !self.is_used(name) && !self.is_transparent());
        let mut warnings: Vec<String> =
            unused.map(|name| format!("service \"{name}\" is unused: no listener refers to it")).collect();
        let has_tls = self.listen.iter().any(|listen| listen.tls);
        match (&self.identity, has_tls) {
            (None, true) => warnings.push(
                "a listener has tls = true but [identity] is missing: a self-signed certificate is generated at each start".to_owned(),
            ),
            (Some(_), false) => {
                warnings.push("[identity] is unused: no listener has tls = true".to_owned());
            }
            _ => {}
        }
        let unused = self.listen.iter().filter(|listen| listen.tls && !listen.upgrade_h2c);
        warnings.extend(unused.map(|listen| {
            format!("upgrade-h2c of the listener on {} is unused: with TLS, ALPN decides", listen.address)
        }));
        let members = || self.service.values().flat_map(|service| &service.instances);
        if members().any(|member| member.zone.is_some()) && self.zone.is_none() {
            warnings.push(
                "instances have a zone but the sidecar has none: no zone is preferred; set zone".to_owned(),
            );
        }
        if self.is_transparent() && self.mark.is_none() && self.user.is_none() {
            warnings.push(
                "a listener is transparent but neither mark nor user is set: unless your netfilter rules exempt the sidecar's own \
                 connections, these are redirected back to it"
                    .to_owned(),
            );
        }
        warnings.extend(self.listen.iter().flat_map(Listen::warnings));
        warnings.extend(self.retry.warning("[retry]"));
        if self.timeouts.response != Timeouts::default().response {
            warnings.extend(self.timeouts.unused_response("[timeouts]"));
        }
        for (name, service) in &self.service {
            let timeouts = self.timeouts.of(&service.timeouts);
            warnings.extend(timeouts.warning(name));
            if service.timeouts.response.is_some() {
                warnings.extend(timeouts.unused_response(&format!("service \"{name}\"")));
            }
            warnings.extend(service.warnings(name));
        }
        warnings
    }

    fn is_used(&self, name: &String) -> bool {
        self.listen.iter().any(|listen| {
            listen.service.as_ref() == Some(name)
                || listen.connect_service.as_ref() == Some(name)
                || listen.connect.iter().any(|target| target.service_name() == *name)
                || listen.route.iter().any(|route| route.service == *name)
        })
    }

    /// The services that the file defines: not those that the sidecar adds for targets of CONNECT and redirected connections.
    pub fn written_services(&self) -> impl Iterator<Item = (&String, &Service)> {
        let is_target = |name: &str| {
            self.listen.iter().flat_map(|listen| &listen.connect).any(|target| target.service_name() == name)
        };
        self.service.iter().filter(move |(name, _)| !self.is_original(name) && !is_target(name))
    }
}

impl Listen {
    /// Routes that are valid and probably a mistake.
    fn warnings(&self) -> Vec<String> {
        let about = |route: &super::Route| {
            let what = match &route.path {
                None if route.host.is_none() => {
                    "has neither host nor path: it takes every request that no other route takes, before service of the listener; \
                     set that instead"
                        .to_owned()
                }
                Some(path) if path.contains('?') => {
                    format!("has a query in its path \"{path}\": it takes only requests whose query begins so")
                }
                _ => return None,
            };
            Some(format!(
                "a route of the listener on {} to service \"{}\" {what}",
                self.address, route.service
            ))
        };
        self.route.iter().filter_map(about).collect()
    }
}

impl Retry {
    /// Conditions that are never used.
    fn warning(&self, place: &str) -> Option<String> {
        let is_unused = self.attempts == 0 && self.on != Self::default().on;
        is_unused.then(|| format!("on of {place} has no effect: attempts is 0"))
    }
}

impl Service {
    fn warnings(&self, name: &str) -> Vec<String> {
        let mut warnings = self.unused_bounds(name);
        warnings
            .extend(self.retry.as_ref().and_then(|retry| retry.warning(&format!("[service.{name}.retry]"))));
        if !self.instances.is_empty() && self.instances.iter().all(|member| member.weight == 0) {
            warnings.push(format!(
                "all instances of service \"{name}\" have weight 0: its requests are answered 503"
            ));
        }
        let urls = self.instances.iter().map(|member| &member.url).chain(&self.dns);
        // Instances that a registry names later may have TLS.
        let is_known = !self.instances.is_empty() || self.dns.is_some();
        let is_clear = |url: &Instance| matches!(url.speaks, Speaks::H1 | Speaks::H2c);
        if is_known && urls.into_iter().all(is_clear) {
            let of_tls = [
                ("ca", self.ca.is_some()),
                ("server-name", self.server_name.is_some()),
                ("insecure", self.insecure),
                ("identity", self.identity.is_some()),
            ];
            let unused = of_tls.into_iter().filter(|(_, is_set)| *is_set);
            warnings.extend(unused.map(|(key, _)| {
                format!("{key} of service \"{name}\" is unused: none of its instances uses TLS (https://)")
            }));
        } else if self.insecure && self.ca.is_some() {
            warnings.push(format!(
                "ca of service \"{name}\" is unused: with insecure = true certificates are not checked"
            ));
        }
        warnings
    }

    /// Bounds that cannot be reached because of another one.
    fn unused_bounds(&self, name: &str) -> Vec<String> {
        let limits = &self.limits;
        let mut warnings = Vec::new();
        if let (Policy::Fixed(n), Some(most)) = (self.policy, limits.connections)
            && most < n
        {
            warnings.push(format!(
                "policy = \"fixed:{n}\" of service \"{name}\" gets no more than limits.connections allows: {most}"
            ));
        }
        if let (Some(open), Some(waiting)) = (limits.open, limits.waiting)
            && waiting >= open
        {
            warnings.push(format!(
                "limits.waiting ({waiting}) of service \"{name}\" has no effect: it must be below limits.open ({open})"
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(text: &str) -> Vec<String> {
        Config::parse(text).expect("it is right").warnings()
    }

    #[test]
    fn what_is_of_no_use_is_a_warning() {
        let told = warnings(
            r#"
            listen = [{ address = "127.0.0.1:1", tls = true, service = "a" }]
            [service.a]
            instances = [{ url = "http://a", zone = "x", weight = 0 }]
            [service.b]
            file = "b.json"
            "#,
        );
        let words = ["service \"b\" is unused", "self-signed", "no zone is preferred", "weight 0"];
        assert_eq!(told.len(), words.len(), "{told:?}");
        assert!(told.iter().zip(words).all(|(line, words)| line.contains(words)), "{told:?}");
        let identity = "[identity]\ncert = 'a'\nkey = 'b'";
        let told = warnings(&format!(
            "listen = [{{ address = '[::1]:1', service = 'a' }}]\nservice.a.dns = 'h2c://a'\n{identity}"
        ));
        assert_eq!(told, ["[identity] is unused: no listener has tls = true"]);
        let off = |tls: bool| {
            let listen = format!(
                "listen = [{{ address = '[::1]:1', service = 'a', tls = {tls}, upgrade-h2c = false }}]"
            );
            warnings(&format!("{listen}\nservice.a.dns = 'h2c://a'"))
        };
        assert!(off(false).is_empty(), "{:?}", off(false));
        assert!(off(true).iter().any(|line| line.starts_with("upgrade-h2c of")), "{:?}", off(true));
    }

    #[test]
    fn keys_of_tls_are_of_no_use_where_no_instance_has_it() {
        let of = |keys: &str| {
            warnings(&format!("listen = [{{ address = '[::1]:1', service = 'a' }}]\n[service.a]\n{keys}"))
        };
        let told = of(
            "instances = ['http://a', 'h2c://b']\nca = 'a.pem'\nserver-name = 'x'\ninsecure = true\nidentity = { cert = 'a', key = 'b' }",
        );
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].starts_with("ca of service \"a\" is unused"), "{told:?}");
        assert!(of("instances = ['http://a', 'https://b']\nca = 'a.pem'").is_empty());
        assert!(
            of("dns-srv = '_https._tcp.a'\nca = 'a.pem'").is_empty()
                && of("file = 'a'\nca = 'a.pem'").is_empty()
        );
    }

    #[test]
    fn bounds_that_another_one_keeps_from_being_reached_are_told() {
        let of = |top: &str, keys: &str| {
            warnings(&format!(
                "{top}\n[[listen]]\naddress = '[::1]:1'\nservice = 'a'\n[service.a]\ninstances = ['https://a']\n{keys}"
            ))
        };
        for (top, keys, words) in [
            ("", "insecure = true\nca = 'a.pem'", "ca of service \"a\" is unused: with insecure"),
            (
                "",
                "policy = 'fixed:8'\nlimits = { connections = 2 }",
                "gets no more than limits.connections allows: 2",
            ),
            ("", "limits = { open = 5, waiting = 5 }", "limits.waiting (5) of service \"a\" has no effect"),
            ("", "retry = { attempts = 0, on = ['503'] }", "on of [service.a.retry] has no effect"),
            ("retry = { attempts = 0, on = ['503'] }", "", "on of [retry] has no effect"),
            (
                "timeouts = { request = '1s', response = '5s' }",
                "",
                "response (5s) of [timeouts] has no effect: request (1s)",
            ),
            (
                "timeouts = { request = '1s' }",
                "timeouts = { response = '5s' }",
                "response (5s) of service \"a\" has no effect",
            ),
        ] {
            let told = of(top, keys);
            assert!(told.len() == 1 && told[0].contains(words), "{words}: {told:?}");
        }
        for (top, keys) in [
            ("", "insecure = true\nserver-name = 'x'"), // sent as SNI
            ("", "policy = 'fixed:8'\nlimits = { connections = 8, open = 5, waiting = 4 }"),
            ("retry = { attempts = 0 }", "retry = { attempts = 1, on = ['503'] }"),
            ("timeouts = { request = '1s' }", ""), // shorter than the default of `response`
            ("timeouts = { request = '5s', response = '5s' }", "timeouts = { response = '0s' }"),
        ] {
            assert_eq!(of(top, keys), [""; 0], "{top} {keys}");
        }
    }

    #[test]
    fn routes_that_take_all_or_one_query_are_told() {
        let of = |route: &str| {
            warnings(&format!(
                "listen = [{{ address = '[::1]:1', service = 'a', route = [{{ {route} service = 'a' }}] }}]\nservice.a.dns = 'h2c://a'"
            ))
        };
        assert!(of("").iter().any(|line| line.contains("neither host nor path")), "{:?}", of(""));
        assert!(of("path = '/x?y',").iter().any(|line| line.contains("a query in its path")));
        assert!(of("path = '/x',").is_empty() && of("host = 'x',").is_empty());
    }

    #[test]
    fn a_transparent_listener_may_redirect_to_itself() {
        let listen = "[[listen]]\naddress = '127.0.0.1:1'\ntransparent = 'redirect'\n";
        assert!(warnings(listen).iter().any(|line| line.contains("neither mark nor user")));
        assert!(warnings(&format!("mark = 1\n{listen}")).is_empty());
        assert!(warnings(&format!("user = 'nobody'\n{listen}")).is_empty());
    }

    #[test]
    fn services_that_the_sidecar_adds_are_not_counted() {
        let text = "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\nconnect = ['b:1']\ntransparent = 'redirect'\n\
                    [service.a]\ninstances = ['http://a']\n";
        let mut config = Config::parse(text).expect("it is right");
        config.add_tunnels();
        config.add_original();
        assert_eq!(config.service.len(), 3);
        assert_eq!(config.written_services().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a"]);
    }
}
