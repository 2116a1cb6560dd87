//! What `h2lab_link` writes as pcapng, as tshark reads it.

use std::fs;
use std::process::Command;

use h2lab_link::pcapng;
use h2lab_link::pcapng::EnhancedPacket;

use crate::support::{folder, need};

/// TCP from 10.9.0.1:40000 to 10.9.0.2:80 with 4 bytes of payload.
const PACKET: [u8; 44] = [
    0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2, // IPv4
    0x9c, 0x40, 0, 80, 0, 0, 0, 7, 0, 0, 0, 1, 0x50, 0x18, 0, 0xff, 0, 0, 0, 0, // TCP
    b'a', b'b', b'c', b'd',
];

#[test]
fn tshark_reads_packets_interfaces_comments_and_secrets() {
    let Some(tshark) = need("tshark") else { return };
    let folder = folder();
    let file = folder.path().join("link.pcapng");
    let mut bytes = Vec::new();
    pcapng::begin(&mut bytes, &[("uplink in", "before"), ("uplink out", "behind")]);
    let secret = "ab".repeat(32);
    pcapng::secrets(&mut bytes, format!("CLIENT_RANDOM {secret} {}\n", "cd".repeat(48)).as_bytes());
    let lost = EnhancedPacket {
        interface: 0,
        at_nanos: 1_000_000_000_000_000_001,
        bytes: &PACKET,
        length: 44,
        comment: Some("dropped: lost"),
    };
    pcapng::packet(&mut bytes, &lost);
    let cut = EnhancedPacket {
        interface: 1,
        at_nanos: lost.at_nanos + 1,
        bytes: &PACKET[..40],
        comment: None,
        ..lost
    };
    pcapng::packet(&mut bytes, &cut);
    fs::write(&file, bytes).unwrap();
    let fields = [
        "frame.interface_name",
        "frame.interface_description",
        "frame.time_epoch",
        "frame.cap_len",
        "tcp.seq_raw",
        "tcp.len",
        "frame.comment",
    ];
    let mut command = Command::new(tshark);
    command.arg("-n").arg("-r").arg(&file).args(["-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = "uplink in\tbefore\t1000000000.000000001\t44\t7\t4\tdropped: lost\n\
                    uplink out\tbehind\t1000000000.000000002\t40\t7\t4\t\n";
    assert_eq!(text, expected, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
}
