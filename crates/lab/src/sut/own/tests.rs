use super::*;

/// The adapted form of a configuration in the folder `/etc/x`.
fn adapted(server: &str, text: &str) -> (String, Vec<(Protocol, u16)>, Vec<String>) {
    let (_, adapt) = reader(server).unwrap();
    let mut adapted = adapt(text, Path::new("/etc/x"));
    adapted.edits.sort_by_key(|(range, _)| range.start);
    (spliced(text, &adapted.edits), adapted.ports, adapted.notes.into_iter().collect())
}

#[test]
fn nginx_keeps_all_but_addresses_the_process_and_upstreams() {
    let text = "user nginx;\nworker_processes 4;\nhttp {\n  access_log /var/log/a main;\n  upstream app { server a:3000 weight=2; }\n  \
                server {\n    listen 10.0.0.5:443 ssl http2;\n    listen [::]:443 ssl http2;\n    ssl_certificate cert.pem;\n    \
                root html;\n    location / { proxy_pass http://app/x; }\n    location /b { proxy_pass https://b.c:1/y; }\n    \
                location /c { fastcgi_pass unix:/run/php; }\n  }\n  server { listen 80; return 301 https://$host/; }\n}\n";
    let (after, ports, notes) = adapted("nginx", text);
    assert_eq!(ports, [(Protocol::H1s, 443), (Protocol::H2, 443), (Protocol::H1, 80)]);
    for line in [
        "access_log scratch/access.log main;",
        "server 127.0.0.1:@h2lab-origin@ weight=2;",
        "listen 443 ssl http2;",
        "ssl_certificate \"/etc/x/cert.pem\";",
        "root \"/etc/x/html\";",
        "proxy_pass http://app/x;",
        "proxy_pass https://127.0.0.1:@h2lab-origin-tls@/y;",
        "location /c { proxy_pass http://127.0.0.1:@h2lab-origin@;",
        "return 301 https://$host/;",
        "master_process off;",
    ] {
        assert!(after.contains(line), "{line} in {after}");
    }
    for gone in ["nginx;\n", "worker_processes 4", "10.0.0.5", "a:3000", "[::"] {
        assert!(!after.contains(gone), "{gone} in {after}");
    }
    assert_eq!(after.lines().count(), text.lines().count(), "messages name the user's lines");
    assert!(notes.iter().any(|note| note.starts_with("upstream a:3000")), "{notes:?}");
}

#[test]
fn nginx_logs_in_the_run_folder_also_where_its_configuration_does_not_say_where() {
    let logs = |text: &str| adapted("nginx", text).0.matches("access_log scratch/access.log").count();
    assert_eq!(logs("http { server { listen 80; } }"), 1);
    assert_eq!(logs("http { access_log /var/log/a; server { listen 80; } }"), 1);
    assert_eq!(
        logs("http { server { listen 80; access_log /var/log/a; } }"),
        2,
        "that of the server, and the default"
    );
    assert_eq!(logs("http { access_log off; server { listen 80; } }"), 0);
}

#[test]
fn what_nginx_speaks_follows_from_its_addresses() {
    let ports = |text: &str| adapted("nginx", text).1;
    assert_eq!(ports("http { server { listen 8080; } }"), [(Protocol::H1, 8080)]);
    assert_eq!(ports("http { server { listen 127.0.0.1:81 http2; } }"), [(Protocol::H2c, 81)]);
    let modern = "http { server { listen 8443 ssl; http2 on; } server { listen 9443 ssl; } }";
    assert_eq!(ports(modern), [(Protocol::H1s, 8443), (Protocol::H2, 8443)]);
    let late = "http { server { listen 9443 ssl; } server { listen 8443 ssl http2; } }";
    assert_eq!(ports(late), [(Protocol::H1s, 8443), (Protocol::H2, 8443)], "that with HTTP/2 counts");
}

#[test]
fn an_upstream_within_the_configuration_is_reached_as_before() {
    let text = "http { server { listen 80; location / { proxy_pass http://127.0.0.1:81; } } server { listen 127.0.0.1:81; } }";
    let (after, ..) = adapted("nginx", text);
    assert!(
        after.contains("proxy_pass http://127.0.0.1:81;") && after.contains("listen 127.0.0.1:81;"),
        "{after}"
    );
}

#[test]
fn haproxy_keeps_all_but_addresses_the_process_and_servers() {
    let text = "global\n  daemon\n  log /dev/log local0\n  tune.h2.max-concurrent-streams 4\ndefaults\n  mode http\nfrontend a\n  bind \
                10.0.0.5:443,[::]:443 ssl crt a.pem alpn h2,http/1.1\n  bind :80\nbackend b\n  server one b.c:1 check ssl verify required \
                ca-file x weight 3\nfrontend t\n  mode tcp\n  bind :5432\n";
    let (after, ports, _) = adapted("haproxy", text);
    assert_eq!(ports, [(Protocol::H1s, 443), (Protocol::H2, 443), (Protocol::H1, 80), (Protocol::H2c, 80)]);
    assert!(after.contains("bind 0.0.0.0:443 ssl crt /etc/x/a.pem alpn h2,http/1.1\n"), "{after}");
    assert!(after.contains("server one 127.0.0.1:@h2lab-origin-tls@ ssl weight 3 verify none\n"), "{after}");
    assert!(
        after.contains("tune.h2.max-concurrent-streams 4")
            && !after.contains("daemon")
            && !after.contains("/dev/log")
    );
    let line = |text: &str| text.lines().position(|line| line.contains("5432"));
    assert_eq!(line(&after), line(text), "messages name the user's lines");
}

#[test]
fn of_several_frontends_the_first_with_http_2_is_measured_at_one_port_and_that_is_said() {
    let text = "frontend a\n  bind :80\nfrontend b\n  bind :443 ssl crt a\nfrontend c\n  bind :8443 ssl crt a alpn h2,http/1.1\nfrontend \
                d\n  bind :9443 ssl crt a alpn h2\n";
    let (_, ports, notes) = adapted("haproxy", text);
    assert_eq!(ports, [(Protocol::H1s, 8443), (Protocol::H2, 8443), (Protocol::H1, 80), (Protocol::H2c, 80)]);
    assert!(notes.contains(&"h2 at ports 8443, 9443: the first is measured".to_owned()), "{notes:?}");
}

#[test]
fn apache_keeps_all_but_addresses_the_process_and_upstreams() {
    let text = "PidFile ${APACHE_PID_FILE}\nListen 10.0.0.5:80\nListen [::]:80\nListen 443\nProtocols h2 h2c http/1.1\n<VirtualHost *:80>\n\
                ProxyPass / http://b.c:1/z keepalive=On\n</VirtualHost>\n<VirtualHost 10.0.0.5:443>\nSSLEngine on\nCustomLog \
                /var/log/a \"%h x\"\n</VirtualHost>\nThreadsPerChild 25\nMaxRequestWorkers 150\n";
    let (after, ports, _) = adapted("apache", text);
    let expected = [(Protocol::H1s, 443), (Protocol::H2, 443), (Protocol::H1, 80), (Protocol::H2c, 80)];
    assert_eq!(ports, expected);
    for line in [
        "ServerRoot \"/etc/x\"",
        "Define APACHE_PID_FILE \"@h2lab-folder@/scratch/apache.pid\"",
        "\nListen 0.0.0.0:80\n\n",
        "<VirtualHost *:443>",
        "ProxyPass / http://127.0.0.1:@h2lab-origin@/z keepalive=On",
        "CustomLog @h2lab-folder@/scratch/access.log \"%h x\"",
        "\nThreadsPerChild 150\nMaxRequestWorkers 150\n",
    ] {
        assert!(after.contains(line), "{line} in {after}");
    }
    assert!(!after.contains("ThreadsPerChild 25"), "the one process has the threads of all: {after}");
}

#[test]
fn envoy_in_yaml_and_in_json_listens_in_the_lab_and_asks_our_origin() {
    let json = serde_json::json!({ "static_resources": {
        "listeners": [{
            "address": { "socket_address": { "address": "10.0.0.5", "port_value": 443 } },
            "filter_chains": [{
                "filters": [{ "typed_config": { "@type": "x.HttpConnectionManager" } }],
                "transport_socket": { "typed_config": {
                    "@type": "x.DownstreamTlsContext",
                    "common_tls_context": { "alpn_protocols": ["h2"], "private_key": { "filename": "key.pem" } },
                } },
            }],
        }],
        "clusters": [{ "name": "b", "endpoint": { "address": { "socket_address": { "address": "b.c", "port_value": 1 } } } }],
    } });
    let (after, ports, _) = adapted("envoy", &format!("{json:#}"));
    assert_eq!(ports, [(Protocol::H1s, 443), (Protocol::H2, 443)]);
    assert!(
        after.contains("\"address\": \"0.0.0.0\"") && after.contains("\"filename\": \"/etc/x/key.pem\""),
        "{after}"
    );
    assert!(
        after.contains("\"address\": \"127.0.0.1\"") && after.contains("\"port_value\": @h2lab-origin@"),
        "{after}"
    );
    let yaml = "static_resources:\n  listeners:\n  - address:\n      socket_address: { address: 10.0.0.5, port_value: 80 }\n    a: \
                HttpConnectionManager\n  clusters:\n  - name: b\n    x:\n      - endpoint:\n          address:\n            \
                socket_address:\n              address: b.c\n              port_value: 1\n";
    let (after, ports, _) = adapted("envoy", yaml);
    assert_eq!(ports, [(Protocol::H1, 80), (Protocol::H2c, 80)]);
    let expected = yaml
        .replace("10.0.0.5", "0.0.0.0")
        .replace("b.c", "127.0.0.1")
        .replace("port_value: 1\n", "port_value: @h2lab-origin@\n");
    assert_eq!(after, expected);
}

#[test]
fn fields_of_envoy_in_one_line_are_seen_one_by_one() {
    let yaml = "static_resources:\n  listeners:\n  - address: { socket_address: { address: 10.0.0.5, port_value: 443 } }\n    a: \
                HttpConnectionManager\n    b: DownstreamTlsContext\n    alpn_protocols: [h2]\n    c: { filename: key.pem }\n    \
                typed_config:\n      \"@type\": x.FileAccessLog\n      path: /var/log/a\n    match: { path: /health }\n  clusters:\n  - \
                name: b\n    x: [{ address: { address: b.c, port_value: 1 } }, { address: { address: \"d.e\", port_value: 2 } }]\n";
    let (after, ports, _) = adapted("envoy", yaml);
    assert_eq!(ports, [(Protocol::H1s, 443), (Protocol::H2, 443)]);
    let mut expected = yaml.replace("10.0.0.5", "0.0.0.0").replace("key.pem", "/etc/x/key.pem");
    expected = expected.replace("/var/log/a", "scratch/access.log").replace("b.c", "127.0.0.1");
    expected = expected.replace("\"d.e\"", "\"127.0.0.1\"");
    for port in ["port_value: 1 ", "port_value: 2 "] {
        expected = expected.replace(port, "port_value: @h2lab-origin@ ");
    }
    assert_eq!(after, expected);
}

#[test]
fn envoy_does_not_check_the_certificate_of_our_origin() {
    let cluster = |context: &str| {
        let tls = "      '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext\n";
        let text = format!("static_resources:\n  clusters:\n  - name: up\n    x:\n{tls}{context}    z: 1\n");
        let (after, _, notes) = adapted("envoy", &text);
        assert!(
            notes.iter().any(|note| note.starts_with("certificates of upstreams: not checked")),
            "{notes:?}"
        );
        after.split_inclusive('\n').skip(5).collect::<String>()
    };
    let block = "      common_tls_context:\n        validation_context:\n          trusted_ca: {filename: ca.pem}\n          \
                 match_typed_subject_alt_names:\n          - san_type: DNS\n";
    assert_eq!(cluster(block), "      common_tls_context:\n        validation_context: {}\n    z: 1\n");
    let line = "      common: {validation_context: {trusted_ca: {filename: 'a}b'}}, alpn_protocols: [h2]}\n";
    assert_eq!(cluster(line), "      common: {validation_context: {}, alpn_protocols: [h2]}\n    z: 1\n");
    let json =
        "      \"validation_context\": {\n        \"trusted_ca\": {\"filename\": \"ca.pem\"}\n      },\n";
    assert_eq!(cluster(json), "      \"validation_context\": {},\n    z: 1\n");
}

#[test]
fn a_file_that_is_included_twice_is_one_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nginx.conf");
    fs::write(folder.path().join("part.conf"), "listen 80 http2;").unwrap();
    fs::write(&path, "http { server { include part.conf; } server { include part.conf; } }").unwrap();
    let own = OwnConfig::read("nginx", &path).unwrap();
    assert_eq!((own.files.len(), own.files[1].within.as_deref()), (2, Some("server")));
    assert_eq!(own.text.matches("listen 80").count(), 2);
}

#[test]
fn included_files_stand_in_their_place_and_a_missing_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("parts")).unwrap();
    write("parts/b.conf", "server { listen 81; }");
    write("parts/a.conf", "server { listen 80; }");
    write("parts/.hidden.conf", "x");
    write("nginx.conf", "events {}\nhttp { include parts/*.conf; include none/*.conf; }\n");
    let path = folder.path().join("nginx.conf");
    let own = OwnConfig::read("nginx", &path).unwrap();
    assert!(
        own.text.contains("http {")
            && own.text.find("listen 80").unwrap() < own.text.find("listen 81").unwrap()
    );
    let within: Vec<Option<&str>> = own.files.iter().map(|file| file.within.as_deref()).collect();
    assert_eq!(within, [None, Some("http"), Some("http")]);
    assert_eq!(own.protocols(), None, "HTTP/1.1 alone");
    let error = |text: &str| {
        write("nginx.conf", text);
        OwnConfig::read("nginx", &path).unwrap_err().to_string()
    };
    assert!(error("http { include gone.conf; }").contains("gone.conf, which does not exist"));
    assert!(error("http { include nginx.conf; }").contains("include itself"));
    assert!(error("").contains("no address"));
    assert!(OwnConfig::read("nginx", Path::new("/none")).unwrap_err().to_string().contains("/none"));
    assert!(OwnConfig::read("caddy", &path).unwrap_err().to_string().contains("cannot be read"));
}

#[test]
fn relative_paths_of_apache_are_from_its_server_root_or_else_from_the_folder_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    for name in ["conf", "conf/parts", "parts"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    write("parts/a.conf", "Include b.conf\n");
    write("b.conf", "# of the root\n");
    write("conf/parts/a.conf", "# of the folder\n");
    let path = folder.path().join("conf/httpd.conf");
    let read = |text: &str| {
        write("conf/httpd.conf", &format!("{text}\nListen 80\n"));
        OwnConfig::read("apache", &path).unwrap()
    };
    let parts = "Include parts/*.conf";
    let set = format!("ServerRoot \"{root}\"");
    let own = read(&format!("{set}\n{parts}"));
    assert!(own.text.contains("# of the root") && !own.text.contains("# of the folder"), "{}", own.text);
    for text in [
        parts.to_owned(),
        format!("{parts}\n{set}"),
        format!("#{set}\n{parts}"),
        format!("<IfDefine X>\n{set}\n</IfDefine>\n{parts}"),
        format!("ServerRoot ${{ROOT}}\n{parts}"),
    ] {
        let own = read(&text);
        assert!(own.text.contains("# of the folder") && !own.text.contains("# of the root"), "{}", own.text);
        let head = format!("ServerRoot \"{root}/conf\"\n");
        assert!(own.text.starts_with(&head), "for paths before or without one: {}", own.text);
    }
    let own = read(&format!("<IfDefine X>\n</IfDefine>\n{set}\n{parts}"));
    assert!(own.text.contains("# of the root"), "behind a block it is at top level: {}", own.text);
    let own = read("ServerRoot parts");
    assert!(own.text.contains(&format!("\nServerRoot \"{root}/conf/parts\"\n")), "{}", own.text);
}

#[test]
fn a_pattern_without_a_file_is_noted_where_the_program_would_refuse_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("one.part"), "# one\n").unwrap();
    let noted = |server: &'static str, text: &str| {
        let path = folder.path().join("config");
        fs::write(&path, text).unwrap();
        let notes = OwnConfig::read(server, &path).unwrap().notes;
        notes.iter().any(|note| note.contains("none*.part: no file matches"))
    };
    assert!(noted("apache", "Include none*.part\nListen 80\n"));
    assert!(!noted("apache", "IncludeOptional none*.part\nInclude one*.part\nListen 80\n"));
    assert!(!noted("nginx", "http { include none*.part; server { listen 80; } }"));
}

#[test]
fn changes_are_made_in_files_and_in_flags_alike() {
    use crate::sut::find;
    use h2lab_model::settings::Knob;
    let changes = [Change { knob: Knob::MaxConcurrentStreams, value: Some(200_000) }];
    let text = |name: &str, version: &str| {
        let sut = find(name).unwrap();
        let file = ours(sut, None).unwrap().remove(0);
        let files = if name == "origin" { Vec::new() } else { vec![(file.path, file.text.clone())] };
        let words = file.text.split_whitespace().map(str::to_owned);
        let arguments = std::iter::once("origin".to_owned()).chain(words).collect();
        let mut launch = Launch { files, check: Vec::new(), arguments, endpoints: Endpoints::new() };
        change(&mut launch, sut.name(), version, &changes).unwrap();
        launch.files.first().map_or_else(|| launch.arguments.join(" "), |(_, text)| text.clone())
    };
    assert!(text("nginx", "1.22.1").contains("http2_max_concurrent_streams 200000;"));
    assert!(text("haproxy", "2.6.12").contains("tune.h2.max-concurrent-streams 200000\n"));
    assert!(text("apache", "2.4.71").contains("H2MaxSessionStreams 200000\n"));
    assert_eq!(text("envoy", "1.40.0").matches("\"max_concurrent_streams\": 200000").count(), 2);
    assert!(text("nghttpx", "1.52.0").contains("\nfrontend-http2-max-concurrent-streams=200000\n"));
    assert_eq!(text("tomcat", "10.1.60").matches("maxConcurrentStreams=\"200000\"").count(), 2);
    let flags = text("origin", "0.1.0");
    assert!(flags.starts_with("origin ") && flags.contains("--max-concurrent-streams 200000"), "{flags}");
    assert!(!flags.contains("100000 ") && flags.contains("--listen="), "{flags}");
}

#[test]
fn envoy_is_given_yaml_under_a_name_that_says_so() {
    let own = |text: &str| OwnConfig {
        path: PathBuf::from("x"),
        text: text.to_owned(),
        ports: vec![(Protocol::H2c, 80)],
        notes: Vec::new(),
        files: Vec::new(),
    };
    let filled = |text: &str| {
        let word = "envoy.json".to_owned();
        let (files, check) = (vec![(word.clone(), String::new())], vec![word.clone()]);
        let mut launch = Launch { files, check, arguments: vec![word], endpoints: Endpoints::new() };
        own(text).fill(&mut launch, [10, 9, 0, 2].into(), Path::new("/f"), None);
        assert_eq!(launch.endpoints[&Protocol::H2c], "10.9.0.2:80".parse().unwrap());
        [launch.files.remove(0).0, launch.check.remove(0), launch.arguments.remove(0)]
    };
    assert_eq!(filled(" { \"a\": 1 }"), ["envoy.json"; 3]);
    assert_eq!(filled("a: 1"), ["envoy.yaml"; 3]);
}

#[test]
fn sockets_of_nginx_in_the_file_system_become_ports_of_the_lab() {
    let text = "http { upstream a { server unix:/run/a.sock weight=2; } upstream b { server unix:/run/b.sock; }\n\
                server { listen 8080 http2; listen unix:/run/a.sock backlog=9; listen unix:/run/c.sock;\n\
                location /a { proxy_pass http://unix:/run/a.sock:/x; } location /c { grpc_pass grpc://unix:/run/c.sock; }\n\
                location /d { proxy_pass http://unix:/run/d.sock:/y; } } }";
    let (after, ports, notes) = adapted("nginx", text);
    assert_eq!(ports, [(Protocol::H2c, 8080)]);
    assert!(!after.contains("unix:"), "none of the host is made or asked: {after}");
    for line in [
        "listen 127.0.0.1:61000 backlog=9;",
        "listen 127.0.0.1:61001;",
        "server 127.0.0.1:61000 weight=2;",
        "server 127.0.0.1:@h2lab-origin@;",
        "proxy_pass http://127.0.0.1:61000/x;",
        "grpc_pass grpc://127.0.0.1:61001;",
        "proxy_pass http://127.0.0.1:@h2lab-origin@/y;",
    ] {
        assert!(after.contains(line), "{line} in {after}");
    }
    assert!(
        notes.contains(&"listen unix:/run/a.sock: at 127.0.0.1:61000 of the lab".to_owned()),
        "{notes:?}"
    );
    let (after, ..) = adapted("nginx", "http { server { listen 61000; listen unix:/a; } }");
    assert!(after.contains("listen 127.0.0.1:61001;"), "another port than those of the text: {after}");
}

#[test]
fn sockets_of_haproxy_in_the_file_system_are_left_out_and_its_ports_remain() {
    let text = "frontend f\n  bind 127.0.0.1:8088\n  bind /run/hap.sock mode 660\n  bind \"127.0.0.1:8089,unix@/run/u.sock\"\n";
    let (after, ports, notes) = adapted("haproxy", text);
    assert_eq!(ports, [(Protocol::H1, 8088), (Protocol::H2c, 8088)], "a socket makes no address public");
    assert!(!after.contains("/run/"), "{after}");
    assert!(after.contains("bind 0.0.0.0:8088\n") && after.contains("bind 0.0.0.0:8089\n"), "{after}");
    assert_eq!(notes.iter().filter(|note| note.contains("left out")).count(), 2, "{notes:?}");
}

#[test]
fn envoy_keeps_its_sockets_in_the_run_folder() {
    let text = "admin:\n  address:\n    pipe:\n      path: /run/admin.sock\nstatic_resources:\n  listeners:\n  - address: { pipe: { path: \
                \"/run/l.sock\", mode: 7 } }\n    match: { path: /run/route }\n  - address: { pipe: { path: \"@name\" } }\n";
    let (after, _, notes) = adapted("envoy", text);
    let expected = text
        .replace("/run/admin.sock", "\"scratch/run-admin.sock\"")
        .replace("\"/run/l.sock\"", "\"scratch/run-l.sock\"");
    assert_eq!(after, expected, "routes and abstract sockets stay");
    assert_eq!(notes.iter().filter(|note| note.contains("in the run folder")).count(), 2, "{notes:?}");
}

#[test]
fn an_address_that_cannot_be_read_is_named_with_its_line_and_the_reason() {
    let why = |server: &'static str, text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, text).unwrap();
        OwnConfig::read(server, &path).map(|own| own.text).map_err(|error| error.to_string())
    };
    let haproxy =
        why("haproxy", "frontend f\n  bind \"${BIND:-*:8088}\"\n  bind \":$PORT\" ssl\n").unwrap_err();
    assert!(haproxy.ends_with("line 2: `bind \"${BIND:-*:8088}\"` has a variable; write the address itself"));
    let kept = why("haproxy", "frontend f\n  bind \":$PORT\"\n  bind :80\n").unwrap();
    assert!(kept.contains("bind \":$PORT\"\n"), "beside an address that is known, it stays: {kept}");
    assert!(why("apache", "\nListen ${PORT}\n").unwrap_err().contains("line 2: `Listen ${PORT}` has"));
    let listener =
        "{address: {socket_address: {address: 0.0.0.0, port_value: 80}}, a: HttpConnectionManager}";
    for flow in [
        format!("a: 1\nstatic_resources: {{listeners: [{listener}]}}\n"),
        format!("static_resources:\n  listeners: [{listener}]\n"),
    ] {
        let why = why("envoy", &flow).unwrap_err();
        assert!(why.contains("line 2: its listeners are in one line; write YAML in blocks"), "{why}");
    }
    assert!(why("envoy", &format!("static_resources:\n  listeners:\n  - {listener}\n")).is_ok());
    assert!(
        why("envoy", "static_resources:\n  clusters: []\n").unwrap_err().contains("no address was found")
    );
    assert!(why("nginx", "http { server { listen unix:/a; } }").unwrap_err().contains("only at sockets"));
}
