//! `sidestep replay` and `sidestep check`, run as programs.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::common::{
    Expect, Folder, group, named_group, pcapng, program, read_pcapng, sidestep, stderr, stdout,
    vectors,
};
use serde_json::Value;

/// The packets of a group of golden cases, a millisecond apart.
fn packets(cases: &[crate::common::Case]) -> Vec<(&str, u64, Vec<u8>)> {
    let at = |index: usize| 1_700_000_000_000_000_007 + index as u64 * 1_000_000;
    let frames = cases
        .iter()
        .flat_map(|case| case.earlier.iter().chain([&case.input]));
    frames
        .enumerate()
        .map(|(index, frame)| (frame.port.as_str(), at(index), frame.bytes()))
        .collect()
}

/// The case of each packet; `None` for earlier packets.
fn cases_of_packets(cases: &[crate::common::Case]) -> Vec<Option<&crate::common::Case>> {
    let mut of = Vec::new();
    for case in cases {
        of.resize(of.len() + case.earlier.len(), None);
        of.push(Some(case));
    }
    of
}

/// Offset of the first packet in a capture of one interface, after a section header of 28 bytes and
/// an interface description of 52.
const FIRST_PACKET: usize = 28 + 52;

/// A node with three ports and the capture of two packets that it forwards.
fn two_packets(folder: &Folder) -> (String, String) {
    let (cases, node) = named_group("end");
    (
        folder.write("node.yaml", node),
        folder.write("in.pcapng", pcapng(&packets(&cases)[..2])),
    )
}

#[test]
fn every_golden_case_comes_out_as_expected() {
    let mut cases_run = 0;
    for entry in fs::read_dir(vectors()).expect("vectors/") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let (cases, node) = group(&path);
        let folder = Folder::new();
        let (config, out) = (folder.write("node.yaml", node), folder.path("out.pcapng"));
        let packets = packets(&cases);
        let input = folder.write("in.pcapng", pcapng(&packets));
        let run = sidestep(&[
            "replay",
            "--config",
            &config,
            "--in",
            &input,
            "--out",
            &out,
            "--explain",
            "-j",
        ]);
        assert!(run.status.success(), "{}: {}", path.display(), stderr(&run));

        let lines: Vec<Value> = stdout(&run)
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(
            lines.len(),
            packets.len() + 1,
            "a line for each packet and the report"
        );
        let mut written = read_pcapng(&fs::read(&out).expect("written")).into_iter();
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        for ((case, (_, time, _)), line) in cases_of_packets(&cases)
            .into_iter()
            .zip(&packets)
            .zip(&lines)
        {
            let verdict = &line["verdict"];
            let Some(case) = case else {
                // Earlier packets of a case are for learning.
                if let Some(reason) = verdict["drop"]["reason"].as_str() {
                    *reasons.entry(reason).or_default() += 1;
                } else {
                    assert!(verdict["forward"].is_object(), "{line}");
                    written.next();
                }
                continue;
            };
            cases_run += 1;
            match &case.expect {
                Expect::Forward(at) => {
                    assert_eq!(
                        verdict["forward"]["port"],
                        at.port.as_str(),
                        "{}: {line}",
                        case.name
                    );
                    assert_eq!(
                        written.next(),
                        Some((at.port.clone(), *time, at.bytes())),
                        "{}",
                        case.name
                    );
                    assert!(line["after"].is_array(), "{}", case.name);
                }
                Expect::Drop(reason) => {
                    assert_eq!(
                        verdict["drop"]["reason"],
                        reason.as_str(),
                        "{}: {line}",
                        case.name
                    );
                    *reasons.entry(reason).or_default() += 1;
                }
                Expect::Kernel(reason) => {
                    assert_eq!(
                        verdict["punt"]["reason"],
                        reason.as_str(),
                        "{}: {line}",
                        case.name
                    );
                    *reasons.entry(reason).or_default() += 1;
                }
            }
        }
        assert_eq!(written.next(), None);

        report_says(&lines[packets.len()], packets.len(), &reasons);
    }
    assert!(cases_run >= 60, "{cases_run}");
}

/// Checks that every packet is counted once, and unforwarded packets with their reason.
fn report_says(report: &Value, packets: usize, reasons: &BTreeMap<&str, u64>) {
    let counted = |key: &str| report[key].as_u64().expect("a number");
    assert_eq!(counted("packets"), packets as u64);
    assert_eq!(
        counted("packets"),
        counted("forwarded") + counted("punted") + counted("dropped")
    );
    let given: BTreeMap<&str, u64> = report["reasons"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|reason| {
            (
                reason["name"].as_str().expect("a name"),
                reason["packets"].as_u64().expect("a number"),
            )
        })
        .collect();
    assert_eq!(&given, reasons);
}

#[test]
fn the_way_of_a_packet_is_told_with_tables_behaviors_and_rfc_sections() {
    let folder = Folder::new();
    let (config, input) = two_packets(&folder);
    let run = sidestep(&["replay", "--config", &config, "--in", &input, "--explain"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let text = stdout(&run);
    let first = text.split("\n\n").next().expect("a packet");
    let expected = "\
packet 1 (byte 80 of the capture, time 1700000000.000000007)
  port         eth0, frame of 110 bytes
  parsed       IPv6 at byte 14, destination fc0f::1  [RFC 8200 3]
  lookup       fc0f::1 in local, main
               matches fc0f::1/128 in main: fc0f::1 encap seg6local action End dev eth0 metric 1024
  End          forward to the next segment  [RFC 8986 4.1]
  advance      segments left 1 -> 0, destination fc0f::1 -> fc0a::1  [RFC 8986 4.1 S13-S14]
  lookup       fc0a::1 in local, main
               matches fc0a::/16 in main: fc0a::/16 via fc01::1 dev eth1 metric 1024
  next hop     eth1 via fc01::1, 96 bytes of layer 3
      Ethernet   source        02:00:00:00:00:11 -> 02:00:00:00:00:02
                 destination   02:00:00:00:00:01 -> 02:00:00:00:00:12
                 type 0x86dd IPv6
      IPv6       source        fc00:aaaa::1
                 destination   fc0f::1 -> fc0a::1
                 next header 43 Routing, hop limit 64 -> 63, payload length 56, traffic class 0x00
                 flow label 0x00000
      SRH        segment [1]   fc0f::1
                 segment [0]   fc0a::1  (active)
                 next header 17 UDP, segments left 1 -> 0, last entry 1, flags 0x00
                 tag 0
      UDP        source port 4096, destination port 53
      payload    bytes 8
  forwarded    by eth1";
    assert_eq!(first, expected);
    assert!(!text.contains('\x1b'), "no terminal, no colors");
    assert!(
        text.contains("2 packets: 2 forwarded, 0 punted to the kernel, 0 dropped\n"),
        "{text}"
    );
    assert!(
        text.contains("forwarded packets were not written (no --out)\n"),
        "{text}"
    );
}

#[test]
fn compressed_sids_vlan_tables_and_proxies_are_told_of() {
    for (group, case, expected) in [
        (
            "csid",
            "csid_32_16_container_of_2",
            "C-SID        NEXT-C-SID: destination fcbb:bb00:11:b1:: -> fcbb:bb00:b1::  [RFC 9800 4.1.1 S05-S06]",
        ),
        (
            "replace_csid",
            "replace_csid_48_32_at_index_3_of_entry_1",
            "C-SID        REPLACE-C-SID: segments left 1, index 2, destination fcbb:bb00:1:0:11::3 -> fcbb:bb00:1:0:a1::2  \
             [RFC 9800 4.2.1 R20]",
        ),
        (
            "end_dx2v",
            "end_dx2v_of_qinq_by_both_vlans",
            "VLAN         vid 200 inner 1 in VLAN table 10  [RFC 8986 4.10]",
        ),
        (
            "end_ad",
            "end_ad_back_of_ipv6",
            "  restore      learned headers of 96 bytes, destination fc0a::1  \
             [draft-ietf-spring-srv6-service-programming-00 6.2]",
        ),
        (
            "end_am",
            "end_am_shows_the_service_the_last_segment",
            "masquerade   segments left 1, destination fc0a::1 -> 2001:db8:b::9  \
             [draft-ietf-spring-srv6-service-programming-00 6.4.1]",
        ),
        (
            "end_am",
            "end_am_back_restores_the_active_segment",
            "  return path  returned by a service to the proxy of this port  \
             [draft-ietf-spring-srv6-service-programming-00 6]\n  \
             masquerade   segments left 1, destination 2001:db8:b::9 -> fc0a::1",
        ),
    ] {
        let folder = Folder::new();
        let (mut cases, node) = named_group(group);
        cases.retain(|found| found.name == case);
        let config = folder.write("node.yaml", node);
        let input = folder.write("in.pcapng", pcapng(&packets(&cases)));
        let run = sidestep(&["replay", "--config", &config, "--in", &input, "--explain"]);
        assert!(run.status.success(), "{}", stderr(&run));
        assert!(stdout(&run).contains(expected), "{}", stdout(&run));
    }
}

#[test]
fn of_several_next_hops_the_behavior_of_the_chosen_one_is_told() {
    let folder = Folder::new();
    let (mut cases, node) = named_group("end");
    cases.truncate(1);
    let sid = "fc0f::1/128 encap seg6local action End dev eth0";
    let several = "fc0f::1/128 nexthop encap seg6local action End dev eth0 weight 1 \
                   nexthop encap seg6local action End.T table 254 dev eth0 weight 255";
    assert!(node.contains(sid), "{node}");
    let config = folder.write("node.yaml", node.replace(sid, several));
    let input = folder.write("in.pcapng", pcapng(&packets(&cases)));
    let run = sidestep(&["replay", "--config", &config, "--in", &input, "--explain"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let text = stdout(&run);
    for printed in ["255 of 256", "\n  End.T        "] {
        assert!(text.contains(printed), "{printed}: {text}");
    }
}

#[test]
fn a_port_that_is_not_there_is_an_error_that_names_the_ports_there_are() {
    let folder = Folder::new();
    let (config, _) = two_packets(&folder);
    let (cases, _) = named_group("end");
    let frame = cases[0].input.bytes();
    let other = folder.write(
        "other.pcapng",
        pcapng(&[("eth0", 0, frame.clone()), ("wan\u{1b}", 1, frame.clone())]),
    );
    let run = sidestep(&["replay", "--config", &config, "--in", &other, "-j"]);
    assert_eq!(run.status.code(), Some(1));
    let message = "packet 2 (byte 276): its interface \"wan\\u{1b}\" is not a port of the node; use --port NAME; the ports of the node \
                   are eth0, eth1, eth2\n";
    assert!(stderr(&run).ends_with(message), "{}", stderr(&run));
    let report: Value = serde_json::from_str(&stdout(&run)).expect("JSON");
    assert_eq!(
        (&report["packets"], &report["forwarded"]),
        (&1.into(), &1.into()),
        "what came before is counted"
    );
    assert!(
        report["error"]
            .as_str()
            .expect("an error")
            .contains("is not a port of the node")
    );

    let run = sidestep(&[
        "replay", "--config", &config, "--in", &other, "--port", "eth7",
    ]);
    assert_eq!(run.status.code(), Some(1));
    assert_eq!(
        stderr(&run),
        "sidestep: --port eth7: no such port; the ports of the node are eth0, eth1, eth2\n"
    );

    // pcap has no interface names.
    let mut pcap = vec![
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0,
    ];
    let length = (frame.len() as u32).to_le_bytes();
    pcap.extend([[1, 0, 0, 0], [2, 0, 0, 0], length, length].concat());
    pcap.extend(&frame);
    let (pcap, out) = (folder.write("in.pcap", pcap), folder.path("out.pcapng"));
    let run = sidestep(&["replay", "--config", &config, "--in", &pcap]);
    assert!(
        stderr(&run).contains("packet 1 (byte 24): the capture has no name for interface 0"),
        "{}",
        stderr(&run)
    );
    let run = sidestep(&[
        "replay", "--config", &config, "--in", &pcap, "--port", "eth0", "--out", &out,
    ]);
    assert!(run.status.success(), "{}", stderr(&run));
    let written = read_pcapng(&fs::read(&out).expect("written"));
    assert_eq!((written.len(), written[0].1), (1, 1_000_002_000));
}

#[test]
fn the_good_part_of_a_damaged_capture_is_replayed_and_the_damage_is_named_by_its_byte() {
    let folder = Folder::new();
    let (config, input) = two_packets(&folder);
    let whole = fs::read(&input).expect("written");
    let cut = folder.write("cut.pcapng", &whole[..whole.len() - 10]);
    let out = folder.path("out.pcapng");
    let run = sidestep(&[
        "replay", "--config", &config, "--in", &cut, "--out", &out, "-j",
    ]);
    assert_eq!(run.status.code(), Some(1));
    let second = FIRST_PACKET + 144;
    let message = format!(
        "sidestep: {cut}: damaged at byte {second}: Enhanced Packet Block of 160 bytes begins here, but the file ends \
         at byte {}\n",
        whole.len() - 10
    );
    assert_eq!(stderr(&run), message);
    let report: Value = serde_json::from_str(&stdout(&run)).expect("JSON");
    assert_eq!(report["packets"], 1);
    assert_eq!(
        format!(
            "sidestep: {}\n",
            report["error"].as_str().expect("an error")
        ),
        message
    );
    assert_eq!(read_pcapng(&fs::read(&out).expect("written")).len(), 1);
}

#[test]
fn a_packet_that_was_captured_in_part_is_not_replayed_but_counted() {
    let folder = Folder::new();
    let (config, input) = two_packets(&folder);
    let mut file = fs::read(&input).expect("written");
    // Original Packet Length of the first packet.
    file[FIRST_PACKET + 24] += 1;
    let input = folder.write("snapped.pcapng", file);
    let run = sidestep(&[
        "replay",
        "--config",
        &config,
        "--in",
        &input,
        "-j",
        "--explain",
    ]);
    assert!(run.status.success(), "{}", stderr(&run));
    let lines: Vec<Value> = stdout(&run)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines[0]["not_replayed"], "truncated_capture");
    let report = &lines[2];
    assert_eq!(
        (&report["packets"], &report["forwarded"]),
        (&2.into(), &1.into())
    );
    let reason = &report["not_replayed"][0];
    assert_eq!(
        (&reason["reason"], &reason["packets"]),
        (&"truncated_capture".into(), &1.into())
    );
    let run = sidestep(&["replay", "--config", &config, "--in", &input]);
    let expected = "2 packets: 1 forwarded, 0 punted to the kernel, 0 dropped, 1 not replayed\n\
                    not replayed: 1 truncated_capture: the capture has only a part of the packet\n";
    assert!(stdout(&run).starts_with(expected), "{}", stdout(&run));
}

#[test]
fn files_that_cannot_be_used_are_errors_of_one_line_and_nothing_is_overwritten() {
    let folder = Folder::new();
    let (config, input) = two_packets(&folder);
    let before = fs::read(&input).expect("written");
    let run = sidestep(&[
        "replay", "--config", &config, "--in", &input, "--out", &input,
    ]);
    assert_eq!(run.status.code(), Some(1));
    assert_eq!(
        stderr(&run),
        format!("sidestep: {input}: the same file for --in and --out\n")
    );
    assert_eq!(fs::read(&input).expect("still there"), before);

    let (absent, out) = (folder.path("absent"), folder.path("out.pcapng"));
    for (config, input, words) in [
        (&config, &absent, "No such file"),
        (&absent, &input, "No such file"),
        (&config, &config, "not a pcap or"),
    ] {
        let run = sidestep(&["replay", "--config", config, "--in", input, "--out", &out]);
        assert_eq!(run.status.code(), Some(1));
        assert!(
            stderr(&run).contains(words) && stderr(&run).lines().count() == 1,
            "{}",
            stderr(&run)
        );
        assert!(
            !fs::exists(&out).expect("readable"),
            "no output of an input that cannot be read"
        );
    }
    assert_eq!(
        sidestep(&["replay", "--config", &config]).status.code(),
        Some(2)
    );
}

#[test]
fn check_says_what_is_wrong_with_line_and_column() {
    let folder = Folder::new();
    let (config, _) = two_packets(&folder);
    let run = sidestep(&["check", "--replay", &config]);
    assert!(run.status.success(), "{}", stderr(&run));
    assert!(
        stdout(&run).starts_with(&format!("{config}: valid: 3 ports")),
        "{}",
        stdout(&run)
    );

    let wrong = folder.write(
        "wrong.yaml",
        "ports:\n  eth0: {}\nroutes:\n- fc00::/16 encap seg6local action End.DT5 dev eth0\n",
    );
    let run = sidestep(&["check", "--replay", &wrong]);
    assert_eq!((run.status.code(), stdout(&run).as_str()), (Some(1), ""));
    let message = stderr(&run);
    assert!(
        message.starts_with(&format!("sidestep: {wrong}: line 4, column 36: ")),
        "{message}"
    );
    assert!(
        message.contains("End.DT5") && message.lines().count() == 1,
        "{message}"
    );

    let left = folder.write(
        "left.yaml",
        "ports:\n  eth0: {}\nroutes: ['fc00::/16 encap seg6 mode encap segs fc01::1 hmac 1 dev eth0']\n",
    );
    let run = sidestep(&["check", "--replay", &left]);
    assert!(
        stdout(&run).contains("punted to the kernel: fc00::/16"),
        "{}",
        stdout(&run)
    );
}

#[test]
fn the_owner_of_a_route_decides_between_a_punt_and_a_drop() {
    let folder = Folder::new();
    let (cases, node) = named_group("mtu");
    let input = folder.write("in.pcapng", pcapng(&packets(&cases)));
    let too_big = |config: &str| {
        let run = sidestep(&["replay", "--config", config, "--in", &input, "-j"]);
        let report: Value = serde_json::from_str(&stdout(&run)).expect("JSON");
        let reasons = report["reasons"].as_array().expect("a list").clone();
        let counted = |name: &str| {
            let reason = reasons.iter().find(|reason| reason["name"] == name);
            reason.map_or(0, |reason| reason["packets"].as_u64().expect("a number"))
        };
        ["packet_too_big", "too_big", "fragmented"].map(counted)
    };
    let [punted, told, fragmented] = too_big(&folder.write("kernel.yaml", &node));
    // A headend of the kernel sends the error itself, too.
    assert_eq!((punted, told), (9, 4));
    let (before, routes) = node.split_once("routes:\n").expect("routes");
    let (routes, after) = routes.split_once("tunsrc").expect("tunsrc");
    let own = routes.replace("\"\n", " owner sidestep\"\n");
    let own = folder.write("own.yaml", format!("{before}routes:\n{own}tunsrc{after}"));
    // Linux would fragment plain IPv4 without DF.
    let [left, dropped, own_fragmented] = too_big(&own);
    assert_eq!(
        (left, dropped + own_fragmented),
        (0, punted + told + fragmented)
    );
    assert!(dropped > 0, "{own_fragmented} in fragments");
    let run = sidestep(&["check", "--replay", &own]);
    let number = routes.lines().filter(|line| line.contains("- ")).count();
    let counted = format!("({number} Sidestep-only)");
    assert!(
        stdout(&run).contains(&counted),
        "{counted}: {}",
        stdout(&run)
    );
}

/// Returns an interface of this link type as a block of pcapng, and a packet of interface `number`.
fn interface_block(link_type: u16) -> Vec<u8> {
    let mut block = [1u32.to_le_bytes(), 20u32.to_le_bytes()].concat();
    block.extend(link_type.to_le_bytes());
    block.extend([0; 6]);
    block.extend(20u32.to_le_bytes());
    block
}

fn packet_block(number: u32, packet: &[u8]) -> Vec<u8> {
    let padded = packet.len().next_multiple_of(4);
    let length = (32 + padded) as u32;
    let mut block = [6, length, number, 0, 0].map(u32::to_le_bytes).concat();
    block.extend((packet.len() as u32).to_le_bytes());
    block.extend((packet.len() as u32).to_le_bytes());
    block.extend(packet);
    block.resize(28 + padded, 0);
    block.extend(length.to_le_bytes());
    block
}

#[test]
fn packets_of_other_link_types_are_counted_and_cooked_ones_replayed() {
    let folder = Folder::new();
    let (cases, node) = named_group("forward_ipv6");
    let config = folder.write("node.yaml", &node);
    let mut forwarded = cases
        .iter()
        .filter(|case| matches!(case.expect, Expect::Forward(_)));
    let case = forwarded.next().expect("a forwarded packet");
    let (port, frame) = (case.input.port.clone(), case.input.bytes());
    // Packet type 0: to the interface.
    let sll = [&[0, 0, 0, 1, 0, 6], &frame[6..12], &[0, 0], &frame[12..]].concat();
    let sll2 = [
        &frame[12..14],
        &[0, 0, 0, 0, 0, 2, 0, 1, 0, 6],
        &frame[6..12],
        &[0, 0],
        &frame[14..],
    ]
    .concat();
    let section = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28];
    let mut file = section.map(u32::to_le_bytes).concat();
    for link_type in [1, 113, 276, 101] {
        file.extend(interface_block(link_type));
    }
    let raw = &frame[14..];
    for (number, packet) in [(0, &frame[..]), (1, &sll), (2, &sll2), (3, raw), (3, raw)] {
        file.extend(packet_block(number, packet));
    }
    let input = folder.write("in.pcapng", file);
    let words = ["replay", "--config", &config, "--port", &port, "-j", "--in"];
    let run = sidestep(&[&words[..], &[&input]].concat());
    assert!(run.status.success(), "{}", stderr(&run));
    // The same from standard input.
    let piped = Command::new(program())
        .args(words)
        .arg("-")
        .stdin(fs::File::open(&input).expect("the capture"))
        .output()
        .expect("the program");
    assert_eq!(stdout(&piped), stdout(&run));
    let report: Value = serde_json::from_str(&stdout(&run)).expect("JSON");
    assert_eq!(report["packets"], 5);
    assert_eq!(report["forwarded"], 3, "{report}");
    let not_replayed = &report["not_replayed"][0];
    assert_eq!(not_replayed["reason"], "other_link_type");
    assert_eq!(not_replayed["packets"], 2);
}
