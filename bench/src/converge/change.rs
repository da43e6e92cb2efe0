//! The changes of a path.

/// A change of the path of all service routes.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// Name on the command line.
    pub name: &'static str,
    /// What changes.
    pub about: &'static str,
    /// Arguments of `ip` that prepare the router.
    pub prepare: &'static [&'static str],
    /// Words after the prefix of each service route.
    pub route: &'static str,
    /// Node on which the command runs.
    pub node: &'static str,
    /// Arguments of `ip`.
    pub command: &'static str,
    /// Whether the command moves packets to host `c`.
    pub moves: bool,
}

/// First segment of the lists by `b`.
const TO_B: &str = "route add fc00:2::/32 via fc00:b::2 dev eth1";
/// First segment of the lists by `c`.
const TO_C: &str = "route add fc00:3::/32 via fc00:c::2 dev eth2";
const BY_B: &str = "nexthop add id 1 encap seg6 mode encap segs fc00:2::e via fc00:b::2 dev eth1";
const BY_C: &str = "nexthop add id 2 encap seg6 mode encap segs fc00:3::e via fc00:c::2 dev eth2";
/// All service routes onto one segment list.
const SERVICE: &str =
    "nexthop add id 9 encap seg6 mode encap segs fc00:2::e via fc00:a::2 dev eth0";
const GROUP: &str = "nexthop add id 3 group 1/2";

impl Change {
    /// All changes.
    pub const ALL: [Self; 8] = [
        Self {
            name: "underlay-route",
            about: "The route to the first segment is replaced",
            prepare: &[TO_B, SERVICE],
            route: "nhid 9",
            node: "r",
            command: "route replace fc00:2::/32 via fc00:c::2 dev eth2",
            moves: true,
        },
        Self {
            name: "underlay-object",
            about: "The nexthop object of the route to the first segment is replaced",
            prepare: &[
                "nexthop add id 1 via fc00:b::2 dev eth1",
                "route add fc00:2::/32 nhid 1",
                SERVICE,
            ],
            route: "nhid 9",
            node: "r",
            command: "nexthop replace id 1 via fc00:c::2 dev eth2",
            moves: true,
        },
        Self {
            name: "underlay-member",
            about: "The route to the first segment loses a member of its group",
            prepare: &[
                "nexthop add id 1 via fc00:b::2 dev eth1",
                "nexthop add id 2 via fc00:c::2 dev eth2",
                GROUP,
                "route add fc00:2::/32 nhid 3",
                SERVICE,
            ],
            route: "nhid 9",
            node: "r",
            command: "nexthop del id 1",
            moves: true,
        },
        Self {
            name: "service-object",
            about: "The nexthop object of all service routes is replaced",
            prepare: &[TO_B, TO_C, BY_B],
            route: "nhid 1",
            node: "r",
            command: "nexthop replace id 1 encap seg6 mode encap segs fc00:3::e via fc00:c::2 dev eth2",
            moves: true,
        },
        Self {
            name: "service-member",
            about: "The group of all service routes loses a member",
            prepare: &[TO_B, TO_C, BY_B, BY_C, GROUP],
            route: "nhid 3",
            node: "r",
            command: "nexthop del id 1",
            moves: true,
        },
        Self {
            name: "link",
            about: "The link of a member of the group of all service routes goes down",
            prepare: &[TO_B, TO_C, BY_B, BY_C, GROUP],
            route: "nhid 3",
            node: "r",
            command: "link set eth1 down",
            moves: true,
        },
        Self {
            name: "carrier",
            about: "The far end of the link of a member goes down",
            prepare: &[TO_B, TO_C, BY_B, BY_C, GROUP],
            route: "nhid 3",
            node: "b",
            command: "link set eth0 down",
            moves: true,
        },
        Self {
            name: "neighbor",
            about: "The neighbor on the path is lost and found again",
            prepare: &[TO_B, BY_B],
            route: "nhid 1",
            node: "r",
            command: "neighbor del fc00:b::2 dev eth1",
            moves: false,
        },
    ];

    /// Returns the change of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        const ALL: &[Change] = &Change::ALL;
        ALL.iter().find(|change| change.name == name)
    }
}
