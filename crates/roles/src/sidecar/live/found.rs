//! What a registry says of a service, and how it is applied: a name of an instance that does not resolve is no reason
//! to lose other instances.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use h2lab_base::counts::plural;
use h2lab_proxy::config::{Config as File, Member, Registry, Service};

use super::{Live, Resolved, State, distinct, without_address};
use crate::sidecar::config::SidecarConfig;
use crate::sidecar::names::{self, Unresolved};

/// An answer of a registry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The instances that have addresses.
    pub set: Vec<Resolved>,
    /// Those whose names have none now.
    pub unresolved: Vec<Unresolved>,
}

impl Found {
    /// These instances, with the addresses that their names have now. Waits for `timeout` at most.
    pub fn resolve(members: Vec<Member>, timeout: Duration) -> Self {
        let results = names::resolve(members.clone(), timeout);
        let mut found = Self::default();
        for (member, result) in members.into_iter().zip(results) {
            match result {
                Ok(at) => found.set.push(at),
                Err(why) => found.unresolved.push(Unresolved { member, why }),
            }
        }
        found
    }

    /// No instance, since this one's name does not resolve.
    pub fn without(member: Member, why: String) -> Self {
        Self { set: Vec::new(), unresolved: vec![Unresolved { member, why }] }
    }

    /// Whether no name resolves.
    pub fn is_failure(&self) -> bool {
        self.set.is_empty() && !self.unresolved.is_empty()
    }
}

/// Whether the sidecar looks up names of this service's instances again by itself: a registry that is DNS does so at its own times.
fn looks_up(file: &File, service: &str) -> bool {
    let registry = file.service.get(service).map(Service::registry);
    registry.is_some_and(|registry| !matches!(registry, Some(Registry::Dns { .. } | Registry::DnsSrv { .. })))
}

impl State {
    /// Instances without an address whose names are to be looked up again.
    pub(super) fn to_look_up(&self) -> impl Iterator<Item = (&String, &Unresolved)> {
        let all = self.unresolved.iter().filter(|(service, _)| looks_up(&self.config.file, service));
        all.flat_map(|(service, all)| all.iter().map(move |one| (service, one)))
    }
}

impl Live {
    /// A registry has named the instances of a service. One whose name does not resolve now keeps the address that it
    /// had. If no name has an address, the instances before stay until one does: otherwise a name server that is away
    /// for a moment would remove all of them. Returns messages about the names.
    pub fn found(&self, service: &str, found: Found) -> Vec<String> {
        let mut state = self.lock();
        let known: Arc<[Resolved]> = state.sets.get(service).cloned().unwrap_or_default();
        let in_order = |at: Resolved| {
            let before = known.iter().find(|before| {
                before.member.url == at.member.url && at.addresses().any(|address| address == before.address)
            });
            match before {
                Some(before) => at.in_the_order_of(before),
                None => at,
            }
        };
        let mut set: Vec<Resolved> = found.set.into_iter().map(in_order).collect();
        let (mut unresolved, mut told) = (Vec::new(), Vec::new());
        for one in found.unresolved {
            let about = without_address(service, &one.member, &one.why);
            if let Some(at) = known.iter().find(|at| at.member.url == one.member.url) {
                told.push(format!("{about}; still using {}", at.address.ip()));
                set.push(Resolved { member: one.member, ..at.clone() });
            } else {
                told.push(format!("{about}; retrying until it resolves"));
                unresolved.push(one);
            }
        }
        let set: Arc<[Resolved]> = if set.is_empty() && !unresolved.is_empty() && !known.is_empty() {
            told.push(format!("service {service}: keeping {}", plural(known.len() as u64, "instance")));
            if looks_up(&state.config.file, service) {
                state.kept.insert(service.to_owned());
            } else {
                unresolved.clear(); // it is the name of those that are kept
            }
            known
        } else {
            state.kept.remove(service);
            distinct(set).into()
        };
        let is_known = state.sets.get(service).is_some_and(|before| *before == set);
        if is_known && state.unresolved.get(service).map_or(&[][..], |all| all) == unresolved {
            return told;
        }
        state.sets.insert(service.to_owned(), set);
        if unresolved.is_empty() {
            state.unresolved.remove(service);
        } else {
            state.unresolved.insert(service.to_owned(), unresolved);
        }
        self.version.fetch_add(1, Ordering::Release);
        told
    }

    /// The configuration of which names are to be looked up again, if there are some and nobody does so yet.
    pub fn begin_to_look_up(&self) -> Option<Arc<SidecarConfig>> {
        let mut state = self.lock();
        if state.is_looked_up || state.to_look_up().next().is_none() {
            return None;
        }
        state.is_looked_up = true;
        Some(Arc::clone(&state.config))
    }

    /// Nobody looks names up any more.
    pub fn end_to_look_up(&self) {
        self.lock().is_looked_up = false;
    }

    /// Instances whose names are to be looked up again; none once another configuration than this one is in effect. A
    /// caller that gets none must end.
    pub fn to_look_up(&self, config: &Arc<SidecarConfig>) -> Vec<(String, Unresolved)> {
        let mut state = self.lock();
        if !Arc::ptr_eq(&state.config, config) {
            return Vec::new();
        }
        let all: Vec<_> = state.to_look_up().map(|(service, one)| (service.clone(), one.clone())).collect();
        state.is_looked_up = !all.is_empty();
        all
    }
}

#[cfg(test)]
mod tests {
    use h2lab_proxy::config::Instance;

    use super::*;
    use crate::sidecar::SidecarError;

    fn live(service: &str) -> Live {
        let listen = "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\n";
        let file = File::parse(&format!("{listen}{service}")).expect("it is right");
        let read = |_: &str| -> Result<Vec<u8>, SidecarError> { Ok(b"instances = []".to_vec()) };
        Live::new(SidecarConfig::new(file, 1, &read).expect("it is right"), |_| {})
    }

    fn member(url: &str) -> Member {
        url.parse::<Instance>().expect(url).into()
    }

    fn at(url: &str) -> Resolved {
        Resolved::one(&member(url)).expect("an address")
    }

    fn without(url: &str) -> Unresolved {
        Unresolved { member: member(url), why: "name not known".to_owned() }
    }

    /// The URLs of a service's instances, and the hosts that have no address.
    fn known(live: &Live) -> (Vec<String>, Vec<String>) {
        let state = live.state().1;
        let set = state.sets.get("a").map_or(&[][..], |set| set);
        let unresolved = state.unresolved.get("a").map_or(&[][..], |all| all);
        let urls = set.iter().map(|at| at.member.url.to_string()).collect();
        (urls, unresolved.iter().map(|one| one.member.url.host.clone()).collect())
    }

    const ONE: &str = "http://127.0.0.1:1";
    const TWO: &str = "http://127.0.0.1:2";
    const BAD: &str = "http://nope.invalid:1";

    #[test]
    fn one_name_that_does_not_resolve_takes_no_other_instance_out() {
        let live = live("file = 'a'");
        let config = Arc::clone(&live.state().1.config);
        let told = live.found("a", Found { set: vec![at(ONE)], unresolved: vec![without(BAD)] });
        assert_eq!(known(&live), (vec![ONE.to_owned()], vec!["nope.invalid".to_owned()]));
        assert!(
            told.len() == 1 && told[0].ends_with("name not known; retrying until it resolves"),
            "{told:?}"
        );
        // An instance that has left is removed, although a name does not resolve.
        live.found("a", Found { set: vec![at(TWO)], unresolved: vec![without(BAD)] });
        assert_eq!(known(&live).0, [TWO]);
        assert_eq!(live.to_look_up(&config).len(), 1);
        let found = Resolved { member: member(BAD), ..at(ONE) };
        live.take_name(&config, "a", &member(BAD), Ok(found));
        assert_eq!(known(&live), (vec![TWO.to_owned(), BAD.to_owned()], Vec::new()));
        // The address is known now: if the name no longer resolves, the instance keeps that address.
        let told = live.found("a", Found { set: vec![at(TWO)], unresolved: vec![without(BAD)] });
        assert_eq!(known(&live), (vec![TWO.to_owned(), BAD.to_owned()], Vec::new()));
        assert!(told.len() == 1 && told[0].ends_with("; still using 127.0.0.1"), "{told:?}");
    }

    #[test]
    fn where_no_name_resolves_those_before_stay_until_one_does() {
        let live = live("file = 'a'");
        let config = Arc::clone(&live.state().1.config);
        live.found("a", Found { set: vec![at(ONE)], unresolved: Vec::new() });
        let told = live.found("a", Found::without(member(BAD), "name not known".to_owned()));
        assert_eq!(known(&live), (vec![ONE.to_owned()], vec!["nope.invalid".to_owned()]));
        assert_eq!(told.last().map(String::as_str), Some("service a: keeping 1 instance"));
        live.take_name(&config, "a", &member(BAD), Ok(Resolved { member: member(BAD), ..at(TWO) }));
        assert_eq!(
            known(&live),
            (vec![BAD.to_owned()], Vec::new()),
            "the one before was in no list any more"
        );
    }

    #[test]
    fn names_that_a_registry_of_dns_looks_up_itself_are_told_and_left_to_it() {
        let live = live("dns = 'http://nope.invalid:1'");
        let config = Arc::clone(&live.state().1.config);
        live.found("a", Found::without(member(BAD), "name not known".to_owned()));
        assert_eq!(known(&live), (Vec::new(), vec!["nope.invalid".to_owned()]));
        assert_eq!(live.to_look_up(&config), []);
        assert!(live.begin_to_look_up().is_none());
        live.found("a", Found { set: vec![at(ONE)], unresolved: Vec::new() });
        live.found("a", Found::without(member(BAD), "name not known".to_owned()));
        assert_eq!(known(&live), (vec![ONE.to_owned()], Vec::new()));
    }

    #[test]
    fn one_at_a_time_looks_names_up() {
        let live = live("file = 'a'");
        assert!(live.begin_to_look_up().is_none(), "there are none");
        live.found("a", Found::without(member(BAD), "name not known".to_owned()));
        let config = live.begin_to_look_up().expect("one is to be looked up");
        assert!(live.begin_to_look_up().is_none());
        live.found("a", Found { set: vec![at(ONE)], unresolved: Vec::new() });
        assert_eq!(live.to_look_up(&config), []);
        live.found("a", Found { set: vec![at(ONE)], unresolved: vec![without(BAD)] });
        assert!(live.begin_to_look_up().is_some(), "who looked has ended");
    }
}
