// Command evpn joins the bridges of several nodes to one LAN: BGP EVPN over SRv6 (RFC 7432, RFC 9252) by GoBGP. It
// announces the stations behind its bridge (route type 2), and where to send flooded frames (type 3). The SIDs of other
// nodes become ether devices of Sidestep: for known addresses (End.DT2U), and for flooded frames (End.DT2M). Addresses
// become FDB entries of the kernel. With -wires, it also connects interfaces without a bridge (VPWS, RFC 8214, type 1).
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"log"
	"net/netip"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/config"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Functions of SIDs, followed by the number of the LAN or wire: fc00:1::d2:64 is End.DT2U of LAN 100. The label of routes
// is Implicit NULL in the upper 20 of 24 bits, because the SID is not transposed into it (RFC 9252 4).
const dx2, dt2u, dt2m, noLabel = 0xd1, 0xd2, 0xdb, 3 << 4

// A route to a station, with its MAC mobility sequence number (RFC 7432 7.7).
type route struct {
	sequence uint32
	node     netip.Addr
	device   string // empty for a station of this node
}

var (
	file     = flag.String("config", "gobgpd.toml", "configuration of GoBGP: this node and its neighbors")
	bridge   = flag.String("bridge", "br0", "bridge of this node")
	lan      = flag.Uint("lan", 100, "number of the LAN, 1 to 65535")
	locator  = flag.String("locator", "", "prefix of the SIDs of this node, such as fc00:1::/48")
	wires    = flag.String("wires", "", "DEV:LOCAL:REMOTE,...: interfaces, with the numbers of both ends of the wire")
	speaker  = server.NewBgpServer()
	as       uint32
	self     netip.Addr // of this node in BGP
	rd       bgp.RouteDistinguisherInterface
	segment  = bgp.EthernetSegmentIdentifier{Value: make([]byte, 9)} // none
	ours     = map[int]bool{}                                        // ifindexes of the ports toward other nodes
	users    = map[string]map[string]bool{}                          // routes by device
	stations = map[string]map[string]route{}                         // by MAC address and key; "" is ours
	entries  = map[string]string{}                                   // devices in the FDB by MAC address
	farEnds  = map[uint32]string{}                                   // interfaces by the far number of their wire
)

// run executes a command, and reports a failure.
func run(command string) bool {
	words := strings.Fields(command)
	output, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		log.Printf("%s: %v: %s", command, err, output)
	}
	return err == nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// find returns the first item of a type, or nil.
func find[T, I any](items []I) (none T) {
	for _, item := range items {
		if found, is := any(item).(T); is {
			return found
		}
	}
	return none
}

// sid returns a SID of this node.
func sid(function, number uint32) netip.Addr {
	bytes := netip.MustParsePrefix(*locator).Addr().As16()
	binary.BigEndian.PutUint32(bytes[12:], function<<16|number)
	return netip.AddrFrom16(bytes)
}

// announce sends or withdraws a route with the SID of an L2 service (RFC 9252 6).
func announce(nlri bgp.NLRI, sid netip.Addr, behavior bgp.SRBehavior, withdraw bool, sequence uint32) {
	service := bgp.NewSRv6InformationSubTLV(sid, behavior, bgp.NewSRv6SIDStructureSubSubTLV(32, 16, 80, 0, 0, 0))
	target := bgp.NewTwoOctetAsSpecificExtended(bgp.EC_SUBTYPE_ROUTE_TARGET, uint16(as), uint32(*lan), true)
	communities := []bgp.ExtendedCommunityInterface{target, bgp.NewMacMobilityExtended(sequence, false)}
	attributes := []bgp.PathAttributeInterface{
		bgp.NewPathAttributeOrigin(0),
		must(bgp.NewPathAttributeMpReachNLRI(bgp.RF_EVPN, []bgp.PathNLRI{{NLRI: nlri}}, self)),
		bgp.NewPathAttributePrefixSID(bgp.NewSRv6ServiceTLV(bgp.TLVTypeSRv6L2Service, service)),
		bgp.NewPathAttributeExtendedCommunities(communities),
		bgp.NewPathAttributePmsiTunnel(bgp.PMSI_TUNNEL_TYPE_INGRESS_REPL, false, noLabel, must(bgp.NewIngressReplTunnelID(self))),
	}
	paths := []*apiutil.Path{{Family: bgp.RF_EVPN, Nlri: nlri, Attrs: attributes}}
	if withdraw {
		must(0, speaker.DeletePath(apiutil.DeletePathRequest{Paths: paths}))
		return
	}
	must(speaker.AddPath(apiutil.AddPathRequest{Paths: paths}))
}

// announceStation does so with the route to a station.
func announceStation(mac string, withdraw bool, sequence uint32) {
	nlri := must(bgp.NewEVPNMacIPAdvertisementRoute(rd, segment, 0, mac, netip.Addr{}, []uint32{noLabel}))
	announce(nlri, sid(dt2u, uint32(*lan)), bgp.END_DT2U, withdraw, sequence)
}

// port adds a port toward other nodes to the bridge.
func port(name, flood string) {
	run("ip link set " + name + " master " + *bridge)
	run(strings.ReplaceAll("bridge link set dev "+name+" isolated on learning off flood F mcast_flood F bcast_flood F", "F", flood))
	run("ip link set " + name + " up")
	ours[must(netlink.LinkByName(name)).Attrs().Index] = true
}

// use returns the device of a SID of another node, and creates it for the first route.
func use(key, kind, sid string) string {
	name := fmt.Sprintf("evpn-%s%06x", kind, crc32.ChecksumIEEE([]byte(sid))&0xffffff)
	if users[name] == nil {
		run("sidestep ether add " + name + " segs " + sid)
		port(name, map[string]string{"m": "on", "u": "off"}[kind])
		users[name] = map[string]bool{}
	}
	users[name][key] = true
	return name
}

// release removes the devices that no route uses any more: this one has ended, or uses the device `kept`.
func release(key, kept string) {
	for name, keys := range users {
		if name != kept {
			delete(keys, key)
		}
		if len(keys) == 0 && run("sidestep ether del "+name) {
			delete(users, name)
		}
	}
}

// received processes a route of another node, or its end.
func received(path *apiutil.Path) {
	nlri, service, sequence := path.Nlri.(*bgp.EVPNNLRI), "", uint32(0)
	if !path.PeerAddress.IsValid() {
		return // a route of this node
	} else if sids := find[*bgp.PathAttributePrefixSID](path.Attrs); sids != nil {
		if l2 := find[*bgp.SRv6ServiceTLV](sids.TLVs); l2 != nil && l2.Type == bgp.TLVTypeSRv6L2Service {
			if information := find[*bgp.SRv6InformationSubTLV](l2.SubTLVs); information != nil {
				service = netip.AddrFrom16([16]byte(information.SID)).String()
			}
		}
	}
	if communities := find[*bgp.PathAttributeExtendedCommunities](path.Attrs); communities != nil {
		if mobility := find[*bgp.MacMobilityExtended](communities.Value); mobility != nil {
			sequence = mobility.Sequence
		}
	}
	key, kept, ends := nlri.String(), "", path.Withdrawal || service == ""
	switch data := nlri.RouteTypeData.(type) {
	case *bgp.EVPNMulticastEthernetTagRoute:
		if !ends {
			kept = use(key, "m", service)
		}
	case *bgp.EVPNMacIPAdvertisementRoute:
		mac := data.MacAddress.String()
		if ends {
			delete(stations[mac], key)
		} else {
			kept = use(key, "u", service)
			station(mac)[key] = route{sequence, path.PeerAddress, kept}
		}
		choose(mac)
	case *bgp.EVPNEthernetAutoDiscoveryRoute:
		name := fmt.Sprintf("evpn-w%d", data.ETag)
		_ = exec.Command("ip", "link", "del", name).Run() // of an earlier route
		if dev := farEnds[data.ETag]; dev != "" && !ends {
			run("sidestep ether add " + name + " segs " + service + " attach " + dev)
		}
	}
	release(key, kept)
}

func station(mac string) map[string]route {
	if stations[mac] == nil {
		stations[mac] = map[string]route{}
	}
	return stations[mac]
}

// choose writes the best route to a station to the FDB: that with the highest sequence number, or else of the lowest
// node (RFC 7432 15.1). If it is better than that of this node, the station has left.
func choose(mac string) {
	var best route
	for _, to := range stations[mac] {
		if !best.node.IsValid() || to.sequence > best.sequence || to.sequence == best.sequence && to.node.Less(best.node) {
			best = to
		}
	}
	if here, is := stations[mac][""]; is && best != here {
		announceStation(mac, true, here.sequence)
		delete(stations[mac], "")
	}
	if best.device != "" {
		run("bridge fdb replace " + mac + " dev " + best.device + " master dynamic extern_learn")
	} else if entries[mac] != "" && !best.node.IsValid() {
		run("bridge fdb del " + mac + " dev " + entries[mac] + " master")
	}
	entries[mac] = best.device
}

// learned processes an entry of the FDB for a port of this node, or its end.
func learned(entry netlink.Neigh, ends bool) {
	mac, sequence := entry.HardwareAddr.String(), uint32(0)
	here, is := stations[mac][""]
	if !ends && !is {
		for _, to := range stations[mac] {
			sequence = max(sequence, to.sequence+1)
		}
		station(mac)[""] = route{sequence, self, ""}
		entries[mac] = ""
		announceStation(mac, false, sequence)
	} else if ends && is {
		delete(stations[mac], "")
		announceStation(mac, true, here.sequence)
		choose(mac)
	}
}

// local adds a SID of this node that sends frames out of an interface. Linux has only End.DX2 for this.
func local(sid netip.Addr, dev string) netip.Addr {
	run(fmt.Sprintf("ip -6 route replace %s encap seg6local action End.DX2 oif %s dev %s proto bgp", sid, dev, dev))
	return sid
}

// cleanup removes everything that this program creates.
func cleanup() {
	run("ip -6 route flush root " + *locator + " proto bgp")
	for _, link := range must(netlink.LinkList()) {
		if name := link.Attrs().Name; strings.HasPrefix(name, "evpn-") && name != "evpn-rx" {
			run("ip link del " + name)
		}
	}
}

func main() {
	flag.Parse()
	settings := must(config.ReadConfigFile(*file, "toml"))
	as, self = settings.Global.Config.As, settings.Global.Config.LocalAddressList[0]
	rd = must(bgp.NewRouteDistinguisherIPAddressAS(settings.Global.Config.RouterId, uint16(*lan)))
	master := must(netlink.LinkByName(*bridge)).Attrs().Index
	cleanup() // after an earlier run that was killed
	defer cleanup()
	// The frames of all nodes enter the bridge by a port of their own, because they share the SIDs.
	run("ip link add evpn-rx mtu 65535 up type veth peer name evpn-in mtu 65535")
	port("evpn-in", "off")
	local(sid(dt2u, uint32(*lan)), "evpn-rx")

	go speaker.Serve()
	stopped, _ := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	must(config.InitialConfig(stopped, speaker, settings, false))
	announce(must(bgp.NewEVPNMulticastEthernetTagRoute(rd, 0, self)), local(sid(dt2m, uint32(*lan)), "evpn-rx"),
		bgp.END_DT2M, false, 0)
	for _, wire := range strings.FieldsFunc(*wires, func(r rune) bool { return r == ',' }) {
		var dev string
		var near, far uint32
		must(fmt.Sscanf(strings.ReplaceAll(wire, ":", " "), "%s %d %d", &dev, &near, &far))
		farEnds[far] = dev
		nlri := bgp.NewEVPNEthernetAutoDiscoveryRoute(rd, segment, near, noLabel)
		announce(nlri, local(sid(dx2, near), dev), bgp.END_DX2, false, 0)
	}
	batches, entries := make(chan []*apiutil.Path, 1024), make(chan netlink.NeighUpdate, 1024)
	deliver := func(paths []*apiutil.Path, _ time.Time) { batches <- paths }
	must(0, speaker.WatchEvent(stopped, server.WatchEventMessageCallbacks{OnBestPath: deliver}, server.WatchBestPath(true)))
	must(0, netlink.NeighSubscribeWithOptions(entries, stopped.Done(), netlink.NeighSubscribeOptions{ListExisting: true}))
	for {
		select {
		case paths := <-batches:
			for _, path := range paths {
				received(path)
			}
		case entry, open := <-entries:
			if !open && stopped.Err() == nil {
				log.Fatal("notifications of the kernel are lost") // The next start reads all entries.
			} else if entry.MasterIndex == master && entry.State&netlink.NUD_PERMANENT == 0 && !ours[entry.LinkIndex] {
				learned(entry.Neigh, entry.Type == unix.RTM_DELNEIGH)
			}
		case <-stopped.Done():
			speaker.Stop()
			return
		}
	}
}
