/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reasons of punts and drops: number, name, source, sentence. Numbers and names are stable: they
 * are counter slots and part of the API. Numbers are never reused; a new reason goes to the end of
 * its block.
 *
 * X(NUMBER, NAME, SOURCE, SENTENCE)
 */
#ifndef SIDESTEP_REASON_H
#define SIDESTEP_REASON_H

/* Drops. */
#define SIDESTEP_DROP_REASONS(X)                                                                   \
	X(1, ipv6_header, "RFC 8200 3", "truncated IPv6 header, or version is not 6")              \
	X(2, ipv6_length, "RFC 8200 3", "IPv6 Payload Length exceeds the frame")                   \
	X(3, ipv4_header, "RFC 791 3.1",                                                           \
	  "truncated IPv4 header, version is not 4, or invalid IHL or Total Length")               \
	X(4, ipv4_checksum, "RFC 1812 5.2.2", "wrong IPv4 header checksum")                        \
	X(5, ext_header, "RFC 8200 4",                                                             \
	  "truncated extension header, or too many of them at a local address")                    \
	X(6, srh_length, "RFC 8754 2", "truncated SRH, or Hdr Ext Len too small for Last Entry")   \
	X(7, srh_segments_left, "RFC 8754 4.3.1.1", "Segments Left exceeds Last Entry plus one")   \
	X(8, srh_tlv, "RFC 8754 2.1", "TLV exceeds the end of the SRH")                            \
	X(9, no_srh, "RFC 8986 4.1.1", "no SRH, but the behavior of the SID requires one")         \
	X(10, segments_left_zero, "RFC 8986 4.1",                                                  \
	  "Segments Left is 0 at a SID that cannot be the last")                                   \
	X(11, segments_left_not_zero, "RFC 8986 4.4",                                              \
	  "Segments Left is not 0 at a decapsulating SID")                                         \
	X(12, upper_layer, "RFC 8986 4.1.1", "the SID does not accept this upper-layer header")    \
	X(13, inner_header, "RFC 8986 4.4", "truncated inner packet, or invalid inner header")     \
	X(14, ecn, "RFC 6040 4.2", "outer ECN is CE, but the inner packet is Not-ECT")             \
	X(15, blackhole, "ip-route(8)", "blackhole route or rule")                                 \
	X(16, sid_loop, "RFC 8754 4.3.1", "too many local SIDs for one packet at this node")       \
	X(17, hop_limit, "RFC 8986 4.1",                                                           \
	  "hop limit or TTL exceeded at a SID, a headend or a Sidestep-only route")                \
	X(18, too_big, "RFC 8200 5",                                                               \
	  "packet exceeds the MTU behind a headend or Sidestep-only route")                        \
	X(19, no_route, "RFC 8986 4", "no route behind a headend or Sidestep-only route")          \
	X(20, no_neighbor, "RFC 4861 7.2", "unresolved next hop behind a Sidestep-only route")     \
	X(21, no_headroom, "-", "no headroom for the headers that a behavior adds")                \
	X(22, rewrite, "-", "the kernel refused to resize the packet")                             \
	X(23, kernel_only, "-", "needs the kernel, which does not have the matched route")         \
	X(24, vlan_miss, "RFC 8986 4.10",                                                          \
	  "no entry for the frame's VLANs in the SID's VLAN table")                                \
	X(25, learned_length, "service-programming 6.2",                                           \
	  "outer headers too long for a dynamic proxy to learn")                                   \
	X(26, not_learned, "service-programming 6.2",                                              \
	  "returned by a service before its proxy learned headers")                                \
	X(27, service_down, "-", "the service of an SR proxy does not respond")                    \
	X(28, segmentation, "-", "frame needs segmentation, which Linux cannot do within IPv6")    \
	X(29, hmac_wrong, "RFC 8754 2.1.2.1", "SRH HMAC verification failed")                      \
	X(30, hmac_key, "RFC 8754 2.1.2.1", "no key with the HMAC Key ID of the SRH")              \
	X(31, hmac_missing, "RFC 8754 2.1.2.1",                                                    \
	  "no HMAC, but the port (seg6_require_hmac) or the SID requires one")                     \
	X(32, hmac_segments, "RFC 8754 2.1.2.1", "SRH with an HMAC and more than 14 segments")     \
	X(33, sid_block, "RFC 8754 5.1",                                                           \
	  "packet from outside the SR domain with a SID as source or destination")                 \
	X(34, policy_invalid, "RFC 9256 8.2",                                                      \
	  "SR policy without a valid segment list, with drop-upon-invalid")                        \
	X(35, no_egress, "-", "the egress device of a Sidestep-only route cannot send the frame")  \
	X(36, bad_address, "RFC 4291 2.5",                                                         \
	  "source or inner destination that is never forwarded: unspecified, link-local, ...")     \
	X(37, segment_address, "RFC 4291 2.7",                                                     \
	  "the next segment is a multicast, link-local, loopback or unspecified address")          \
	X(38, hop_by_hop_order, "RFC 8200 4",                                                      \
	  "Next Header 0 (Hop-by-Hop Options) in another header than the IPv6 header")             \
	X(39, unknown_option, "RFC 8200 4.2",                                                      \
	  "unknown option whose type requires that the packet is discarded")                       \
	X(40, not_a_sid, "RFC 8754 4.3.2",                                                         \
	  "Segments Left is not 0 at a local address that is not a SID")                           \
	X(41, reassembly, "RFC 8200 4.5", "fragment for a SID, where nothing is reassembled")      \
	X(42, security_association, "RFC 4302 3.4.2",                                              \
	  "AH or ESP for a SID, which has no security association")                                \
	X(43, not_fragmented, "RFC 2473 7",                                                        \
	  "packet needs fragmentation, which its rate limit or the missing daemon prevents")       \
	X(44, too_many_headers, "RFC 8883 3.4", "more extension headers than a SID follows")       \
	X(45, too_many_options, "RFC 8883 3.5", "more options in a header than are checked")       \
	X(46, chain_too_long, "RFC 8883 3.3",                                                      \
	  "extension headers longer than a SID or headend reads")                                  \
	X(47, link_control, "IEEE 802.3 31B.3.2", "pause frame at an ether device")                \
	X(48, not_attached, "-",                                                                   \
	  "frame of the node itself at a wire, or without the tag that the wire changes")          \
	X(49, bfd, "RFC 7880 7.2.2",                                                               \
	  "invalid S-BFD packet for a reflector or session of this node")                          \
	X(50, probe_answer, "RFC 7880 7.3", "answer to a probe of this node, which ends here")

/*
 * Punts. The kernel gets the packet unmodified, except with the reason rewritten. With the reason
 * fragmented the daemon gets it.
 */
#define SIDESTEP_PUNT_REASONS(X)                                                                   \
	X(64, not_ip, "-", "neither IPv6 nor IPv4 (ARP, LLDP, ...)")                               \
	X(65, other_host, "-", "destination MAC address is not that of the port")                  \
	X(66, vlan, "-", "VLAN tag without a port for that VLAN")                                  \
	X(67, multicast, "RFC 8200", "multicast or broadcast destination")                         \
	X(68, link_local, "RFC 4291 2.5.6", "link-local source or destination")                    \
	X(69, bad_source, "RFC 4291 2.5",                                                          \
	  "source or destination that is never forwarded: unspecified, loopback, ...")             \
	X(70, local, "RFC 8754 4.3.2", "destination is an address of this node")                   \
	X(71, hop_limit_exceeded, "RFC 8200 3", "hop limit or TTL exceeded")                       \
	X(72, packet_too_big, "RFC 8200 5", "packet exceeds the egress MTU")                       \
	X(73, route_miss, "-", "no route")                                                         \
	X(74, route_type, "ip-route(8)",                                                           \
	  "unreachable, prohibit or another route type that only the kernel handles")              \
	X(75, neighbor, "RFC 4861", "unresolved next hop, which the kernel resolves")              \
	X(76, hop_by_hop, "RFC 8200 4.3",                                                          \
	  "Hop-by-Hop options other than padding (Router Alert, ...)")                             \
	X(77, ipv4_options, "RFC 791 3.1", "IPv4 options")                                         \
	X(78, fragment, "RFC 8200 4.5", "fragment that needs reassembly")                          \
	X(79, ext_chain, "-", "more extension headers or options than the fast path follows")      \
	X(80, routing_header, "RFC 8200 4.4", "routing header other than an SRH, for this node")   \
	X(81, hmac, "RFC 8754 2.1.2", "HMAC that the fast path cannot verify or sign")             \
	X(82, seg6_disabled, "RFC 8754 4.3.1", "SID on a port with seg6_enabled 0")                \
	X(83, forwarding_off, "-", "forwarding is off on this port")                               \
	X(84, reverse_path, "RFC 3704", "the source fails the reverse path filter")                \
	X(85, rule, "ip-rule(8)", "a rule that the fast path cannot express")                      \
	X(86, unsupported, "-", "a route or encapsulation that the fast path cannot express")      \
	X(87, egress, "-", "the egress device cannot send frames from this program")               \
	X(88, headroom, "-", "no headroom, for a route that the kernel has, too")                  \
	X(90, rewritten, "RFC 8986 4.6",                                                           \
	  "the kernel delivers or forwards the packet that the behaviors made of it")              \
	X(91, port_unknown, "-", "the ingress interface is not a port of this instance")           \
	X(92, jumbogram, "RFC 2675", "Payload Length 0 with a payload")                            \
	X(93, table_full, "-", "route that does not fit into a table of the fast path")            \
	X(94, frame_segments, "-", "inner or outer Ethernet frame that needs segmentation")        \
	X(95, fragmented, "RFC 2473 7",                                                            \
	  "packet exceeds the egress MTU (the daemon sends it in fragments)")                      \
	X(96, bridge, "IEEE 802.1Q 8.6", "frame that only the bridge of the port can forward")

/* LIMIT: counter slots of reasons. */
#define SIDESTEP_REASONS 128

/* clang-format off */
enum sidestep_reason {
	REASON_NONE = 0,
#define X(number, name, source, sentence) DROP_##name = (number),
	SIDESTEP_DROP_REASONS(X)
#undef X
#define X(number, name, source, sentence) PUNT_##name = (number),
	SIDESTEP_PUNT_REASONS(X)
#undef X
};
/* clang-format on */

#endif
