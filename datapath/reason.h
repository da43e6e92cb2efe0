/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Why a packet was dropped, or left to the kernel. One table: number, name, source, sentence. The numbers are
 * stable: they are counter slots, API and metric labels. Never reuse one; append at the end of its block.
 *
 * X(NUMBER, NAME, SOURCE, SENTENCE)
 */
#ifndef SIDESTEP_REASON_H
#define SIDESTEP_REASON_H

/* DropReason: the packet ends here. */
#define SIDESTEP_DROP_REASONS(X)                                                                                       \
	X(1, ipv6_header, "RFC 8200 3", "IPv6 header cut short, or its version is not 6")                              \
	X(2, ipv6_length, "RFC 8200 3", "IPv6 Payload Length is larger than the frame")                                \
	X(3, ipv4_header, "RFC 791 3.1", "IPv4 header cut short, version not 4, or IHL or Total Length impossible")    \
	X(4, ipv4_checksum, "RFC 1812 5.2.2", "IPv4 header checksum is wrong")                                         \
	X(5, ext_header, "RFC 8200 4", "extension header cut short")                                                   \
	X(6, srh_length, "RFC 8754 2", "SRH cut short, or Hdr Ext Len too small for Last Entry")                       \
	X(7, srh_segments_left, "RFC 8754 4.3.1.1", "Segments Left is larger than Last Entry plus one")                \
	X(8, srh_tlv, "RFC 8754 2.1", "a TLV runs past the end of the SRH")                                            \
	X(9, no_srh, "RFC 8986 4.1.1", "no SRH, and the SID's behavior needs one")                                     \
	X(10, segments_left_zero, "RFC 8986 4.1", "Segments Left is 0 at a SID that is not the last")                  \
	X(11, segments_left_not_zero, "RFC 8986 4.4", "Segments Left is not 0 at a SID that decapsulates")             \
	X(12, upper_layer, "RFC 8986 4.1.1", "the upper-layer header is not one that this SID decapsulates")           \
	X(13, inner_header, "RFC 8986 4.4", "the inner packet is cut short or its header is impossible")               \
	X(14, ecn, "RFC 6040 4.2", "outer ECN is CE and the inner packet is Not-ECT")                                  \
	X(15, blackhole, "ip-route(8)", "blackhole route or rule")                                                     \
	X(16, sid_loop, "RFC 8754 4.3.1", "too many local SIDs in one packet at this node")                            \
	X(17, hop_limit, "RFC 8200 3", "hop limit or TTL ended at a route that the kernel does not know")              \
	X(18, too_big, "RFC 8200 5", "larger than the MTU at a route that the kernel does not know")                   \
	X(19, no_route, "RFC 8986 4", "no route after a behavior that the kernel does not know")                       \
	X(20, no_neighbor, "RFC 4861 7.2", "next hop unresolved after a behavior that the kernel does not know")       \
	X(21, no_headroom, "-", "no room in front of the packet for what a behavior adds")                             \
	X(22, rewrite, "-", "the kernel refused to resize the packet")                                                 \
	X(23, kernel_only, "-", "only the kernel could go on with it, and it lacks the route that was applied")        \
	X(24, vlan_miss, "RFC 8986 4.10", "the SID's VLAN table has no entry for the frame's VLANs")                   \
	X(25, learned_length, "service-programming 6.2", "outer headers longer than a dynamic proxy can learn")        \
	X(26, not_learned, "service-programming 6.2", "a service sent it back before its proxy learned headers")       \
	X(27, service_down, "-", "the service behind an SR proxy does not answer")                                     \
	X(28, segmentation, "-", "a frame that is still to be cut into segments, which Linux cannot do within IPv6")   \
	X(29, hmac_wrong, "RFC 8754 2.1.2.1", "the HMAC of the SRH is not what its key makes it")                      \
	X(30, hmac_key, "RFC 8754 2.1.2.1", "no key has the HMAC Key ID of the SRH")                                   \
	X(31, hmac_missing, "RFC 8754 2.1.2.1", "no HMAC, and the port (seg6_require_hmac) or the SID requires one")   \
	X(32, hmac_segments, "RFC 8754 2.1.2.1", "an SRH with HMAC and more than 14 segments")                         \
	X(33, sid_block, "RFC 8754 5.1", "from outside the SR domain, to one of its SIDs or as if from one")           \
	X(34, policy_invalid, "RFC 9256 8.2", "steered into an SR policy that has no valid segment list and drops")    \
	X(35, no_egress, "-", "the egress device cannot take it, at a route that the kernel does not know")

/* Punt: the kernel gets the packet, unchanged unless the reason says otherwise. */
#define SIDESTEP_PUNT_REASONS(X)                                                                                       \
	X(64, not_ip, "-", "neither IPv6 nor IPv4 (ARP, LLDP, ...)")                                                   \
	X(65, other_host, "-", "destination MAC is not the port's")                                                    \
	X(66, vlan, "-", "tagged, and no port for that VLAN")                                                          \
	X(67, multicast, "RFC 8200", "multicast or broadcast destination")                                             \
	X(68, link_local, "RFC 4291 2.5.6", "link-local source or destination")                                        \
	X(69, bad_source, "RFC 4291 2.5", "source or destination that is never forwarded: unspecified, loopback, ...") \
	X(70, local, "RFC 8754 4.3.2", "an address of this node")                                                      \
	X(71, hop_limit_exceeded, "RFC 8200 3", "hop limit or TTL ends here; the kernel answers")                      \
	X(72, packet_too_big, "RFC 8200 5", "larger than the egress MTU; the kernel answers")                          \
	X(73, route_miss, "-", "no route; the kernel answers")                                                         \
	X(74, route_type, "ip-route(8)", "unreachable, prohibit or another route type that the kernel answers")        \
	X(75, neighbor, "RFC 4861", "next hop not resolved yet; the kernel resolves it")                               \
	X(76, hop_by_hop, "RFC 8200 4.3", "Hop-by-Hop options other than padding (Router Alert, ...)")                 \
	X(77, ipv4_options, "RFC 791 3.1", "IPv4 options")                                                             \
	X(78, fragment, "RFC 8200 4.5", "a fragment that would have to be reassembled")                                \
	X(79, ext_chain, "-", "more extension headers than the fast path follows")                                     \
	X(80, routing_header, "RFC 8200 4.4", "a routing header that is not an SRH, for this node")                    \
	X(81, hmac, "RFC 8754 2.1.2", "HMAC to verify or to sign that the fast path cannot")                           \
	X(82, seg6_disabled, "RFC 8754 4.3.1", "a SID on a port whose seg6_enabled is 0")                              \
	X(83, forwarding_off, "-", "forwarding is off on this port")                                                   \
	X(84, reverse_path, "RFC 3704", "the source fails the reverse path filter; the kernel decides")                \
	X(85, rule, "ip-rule(8)", "a policy rule that the fast path cannot express")                                   \
	X(86, unsupported, "-", "a route or encapsulation that the fast path cannot express")                          \
	X(87, egress, "-", "the egress device cannot take the frame from this program")                                \
	X(88, headroom, "-", "no room in front of the packet; the kernel does the same route")                         \
	X(89, local_segment, "RFC 8754 4.3.1", "the headend's own first segment is local")                             \
	X(90, decapsulated, "RFC 8986 4.6", "the decapsulated packet is for this node (handed up changed)")            \
	X(91, port_unknown, "-", "the ingress interface is not a port of this instance")                               \
	X(92, jumbogram, "RFC 2675", "Payload Length 0 with a payload")                                                \
	X(93, table_full, "-", "a route that a table of the fast path has no room for")                                \
	X(94, frame_segments, "-", "a frame, around a packet or within one, that is still to be cut into segments")

/* LIMIT: counter slots for reasons. */
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
