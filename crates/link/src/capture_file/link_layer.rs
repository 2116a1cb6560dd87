//! From a frame of a link layer to the IP packet in it (<https://www.tcpdump.org/linktypes.html>).

/// Where the IP packet begins in a frame; `None` if the frame has none, or the link layer is not known here.
pub(super) fn network(link_type: u16, frame: &[u8]) -> Option<usize> {
    let is_ip = |ether_type: u16| matches!(ether_type, 0x0800 | 0x86dd);
    let be16 = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let start = match link_type {
        // BSD loopback; the family before the packet is in either byte order.
        0 | 108 => 4,
        // Ethernet, with tags of VLANs before the type.
        1 => {
            let mut at = 12;
            while matches!(be16(at)?, 0x8100 | 0x88a8 | 0x9100) {
                at += 4;
            }
            if !is_ip(be16(at)?) {
                return None;
            }
            at + 2
        }
        // Raw IP.
        12 | 14 | 101 | 228 | 229 => 0,
        // Linux "any", both versions.
        113 => is_ip(be16(14)?).then_some(16)?,
        276 => is_ip(be16(0)?).then_some(20)?,
        _ => return None,
    };
    (start < frame.len()).then_some(start)
}
