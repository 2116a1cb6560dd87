//! What is looked at beyond what the file says by itself: names that do not resolve, and where a successor is to ask.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use anyhow::Result;
use h2lab_base::counts::plural;
use h2lab_proxy::config::{Config, Instance, instance_line};
use h2lab_roles::sidecar::unresolved;
use rustix::fs::{Access, access};

use super::super::exit::{MissingRequirement, Usage};
use super::folder_of;

/// Names that are resolved at the same time.
const AT_ONCE: usize = 32;
/// The longest path of a socket (unix(7): `sun_path` with its zero).
const LONGEST_PATH: usize = 107;

/// `2 listeners, 3 services, 5 instances`, as they are in the file.
pub(super) fn summary(config: &Config) -> String {
    let services: Vec<_> = config.written_services().map(|(_, service)| service).collect();
    let instances: usize = services.iter().map(|service| service.instances.len()).sum();
    let registries = services.iter().filter(|service| service.registry().is_some()).count() as u64;
    let registries = match registries {
        0 => String::new(),
        1 => ", 1 registry".to_owned(),
        n => format!(", {n} registries"),
    };
    format!(
        "{}, {}, {}{registries}",
        plural(config.listen.len() as u64, "listener"),
        plural(services.len() as u64, "service"),
        plural(instances as u64, "instance")
    )
}

/// Names of instances that have no address now, each with its line.
pub(super) fn unresolved_names(path: &Path, config: &Config) -> Vec<String> {
    let instances = config.service.iter().flat_map(|(name, service)| {
        let agent = service.consul.as_ref().map(|consul| &consul.address);
        let all = service.instances.iter().map(|member| &member.url).chain(&service.dns).chain(agent);
        all.map(move |url| (name.as_str(), url))
    });
    let named: Vec<(&str, &Instance)> =
        instances.filter(|(_, url)| url.host.parse::<IpAddr>().is_err()).collect();
    let mut hosts: Vec<&str> = named.iter().map(|(_, url)| url.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let mut wrong: BTreeMap<&str, String> = BTreeMap::new();
    for some in hosts.chunks(AT_ONCE) {
        let asked = std::thread::scope(|scope| {
            let ask = |host: &&'_ str| {
                let host = (*host).to_owned();
                scope.spawn(move || {
                    (host.as_str(), 0_u16).to_socket_addrs().err().map(|error| unresolved(&error))
                })
            };
            let threads: Vec<_> = some.iter().map(ask).collect();
            threads.into_iter().map(|thread| thread.join().ok().flatten()).collect::<Vec<_>>()
        });
        wrong.extend(some.iter().zip(asked).filter_map(|(host, why)| Some((*host, why?))));
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let told = named.iter().filter_map(|(service, url)| {
        let why = wrong.get(url.host.as_str())?;
        let error = format!("cannot resolve {} (service \"{service}\"): {why}", url.host);
        Some(with_line(path, instance_line(&text, service, url), &error))
    });
    told.collect()
}

fn with_line(path: &Path, line: Option<usize>, error: &str) -> String {
    match line {
        Some(line) => format!("{}: line {line}: {error}", path.display()),
        None if path.as_os_str().is_empty() => error.to_owned(),
        None => format!("{}: {error}", path.display()),
    }
}

/// Whether a socket can be made where the next process is to ask for the sockets of this one.
pub(super) fn take_over_path(path: &Path) -> Result<()> {
    let wrong = |why: String| Usage(format!("--take-over {}: {why}", path.display()));
    let folder = folder_of(path);
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
    if path.as_os_str().as_bytes().len() > LONGEST_PATH {
        return Err(wrong(format!("the path of a socket has at most {LONGEST_PATH} bytes")).into());
    }
    match std::fs::metadata(folder) {
        Ok(there) if there.is_dir() => {}
        Ok(_) => return Err(wrong(format!("{} is not a directory", folder.display())).into()),
        Err(_) => {
            return Err(
                wrong(format!("the directory {} does not exist: create it first", folder.display())).into()
            );
        }
    }
    if std::fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
        return Err(wrong("this file exists and is not a socket: choose another path".to_owned()).into());
    }
    if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let why = format!(
            "no permission to create a socket in {}: choose another path, or change its owner",
            folder.display()
        );
        return Err(MissingRequirement(wrong(why).to_string()).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_at_which_no_socket_can_be_is_refused() {
        let folder = std::env::temp_dir();
        let told = |path: &Path| take_over_path(path).err().map(|error| error.to_string());
        assert_eq!(told(&folder.join("h2lab-none.sock")), None);
        assert!(
            told(&folder.join("h2lab-none/a.sock"))
                .is_some_and(|why| why.contains("does not exist: create it"))
        );
        assert!(told(&folder.join("x".repeat(200))).is_some_and(|why| why.contains("at most 107")));
        let file = folder.join(format!("h2lab-no-socket-{}", std::process::id()));
        std::fs::write(&file, "").expect("it is written");
        let [at, below] = [told(&file), told(&file.join("a.sock"))];
        std::fs::remove_file(&file).expect("it is there");
        assert!(at.is_some_and(|why| why.contains("is not a socket")));
        assert!(below.is_some_and(|why| why.contains("is not a directory")));
    }

    #[test]
    fn a_name_without_address_is_told_with_its_line() {
        let text = "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n[service.a]\ninstances = ['http://localhost', 'http://a.invalid']\n";
        let config = Config::parse(text).expect("it is right");
        let told = unresolved_names(Path::new(""), &config);
        assert!(
            told.len() == 1 && told[0].starts_with("cannot resolve a.invalid (service \"a\"): "),
            "{told:?}"
        );
        assert_eq!(with_line(Path::new("a.toml"), Some(5), "x"), "a.toml: line 5: x");
        assert_eq!(summary(&config), "1 listener, 1 service, 2 instances");
    }
}
