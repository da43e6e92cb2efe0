//! Compares the grammar with `ip`: `ip` accepts what the printer writes, and the parser accepts
//! what `ip` prints.
//!
//! Needs root and `ip`; the test is skipped without them. It runs in a network namespace of its
//! own.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use sidestep_model::behavior::check::linux_can_express;
use sidestep_model::config::File;
use sidestep_model::grammar::{Context, Style, neighbor, route, rule};
use sidestep_model::node::Node;
use sidestep_model::route::{Family, NextHops, Owner, Route};

const NODE: &str = r#"
ports:
  eth0: {addresses: ["fc00::2/64", "10.0.0.1/24", "10.0.0.2/24"]}
  eth1: {addresses: ["fc01::2/128", "fc02::2/127", "10.0.1.1/32", "10.0.2.0/31", "10.0.3.9/30"]}
"#;

/// Lines that Linux accepts. The test compares the output of `ip` with the printer's.
const ROUTES: &[&str] = &[
    "fd00::/64 via fc00::1 dev eth0",
    "fd00:1::/64 encap seg6local action End.X nh6 fc00::1 dev eth0",
    "fd00:2::/64 encap seg6local action End.DT6 table 100 dev eth0",
    "fd00:3::/64 encap seg6local action End count dev eth0 metric 7",
    "fd00:4::/64 encap seg6local action End flavors psp dev eth0",
    "fd00:5::/64 encap seg6 mode encap segs fc00::9,fc00::8 dev eth0 metric 0",
    "fd00:6::/64 encap seg6 mode encap.red segs fc00::9,fc00::8 hmac 42 dev eth0 mtu 1400",
    "fd00:7::/64 encap seg6 mode l2encap.red segs fc00::9 dev eth0",
    "fd00:8::/64 encap seg6 mode inline segs fc00::9,fc00::8 dev eth0",
    "fd00:9::/64 encap seg6local action End.T table main dev eth1 table 100",
    "fd00:a::/64 encap seg6local action End.B6 srh segs fc00::7,fc00::8 dev eth0",
    "fd00:b::1 encap seg6local action End.B6.Encaps srh segs fc00::7,fc00::8 dev eth0",
    "fd00:d::/64 encap seg6local action End.DX2 oif eth1 dev eth0",
    "fd00:e::/64 from fc00:7::/32 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth0",
    "fd00:f::/64 encap seg6local action End.DX6 nh6 :: dev eth0 proto static src fc00::2",
    "fd00:10::/64 nexthop via fc00::7 dev eth0 weight 3 nexthop encap seg6 mode encap segs fc00::9 via fc02::3 dev eth1",
    "blackhole fd00:11::/64",
    "unreachable fd00:12::/64 metric 5 table 9",
    "throw fd00:13::/64 proto 200",
    "prohibit fd00:14::/64 proto bgp",
    "local fd00:15::/64 dev eth0",
    "::/0 dev eth0 metric 9",
    "default via fe80::1 dev eth0",
    "default via 10.0.0.9",
    "0.0.0.0/0 dev eth0 metric 9",
    "10.9.0.0/16 encap seg6 mode l2encap segs fc00::9,fc00::8 dev eth0",
    "10.10.0.0/16 via inet6 fc00::9 dev eth0",
    "10.11.0.0/16 nexthop via 10.0.0.7 dev eth0 weight 3 nexthop encap seg6 mode encap segs fc00::9 dev eth1",
    "10.12.0.0/16 tos 0x10 via 172.16.0.7 dev eth0 onlink",
    "throw 10.13.0.0/16",
    "local 10.14.0.0/16 dev eth1",
    "10.15.0.0/16 dev eth1 src 10.0.3.9 mtu 1300 table 77",
];

const RULES: &[&str] = &[
    "from ::/0 iif eth0 lookup 100",
    "not from fd00::/8 to fd01::1 iif eth0 fwmark 0x1/0x2 lookup 100 pref 7",
    "from ::/0 blackhole",
    "from 0.0.0.0/0 l3mdev pref 1000",
    "to 10.0.0.0/8 oif eth9 lookup main",
];

/// Keywords of the priority, which `ip` abbreviates.
const PRIORITIES: &[&str] = &[
    "from fd00::/8 prio 8 lookup 100",
    "from fd00::/8 preference 9 lookup 100",
    "from fd00::/8 ord 10 lookup 100",
    "from fd00::/8 p 11 lookup 100",
];

/// A network namespace with eth0 and eth1, removed when dropped.
struct Namespace(String);

impl Namespace {
    fn new(topic: &str) -> Option<Self> {
        let name = format!("ss-model-{topic}-{}", std::process::id());
        match Command::new("ip").args(["netns", "add", &name]).output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                println!(
                    "SKIPPED: no network namespace: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                return None;
            }
            Err(error) => {
                println!("SKIPPED: no `ip`: {error}");
                return None;
            }
        }
        let this = Self(name);
        this.exec("sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0");
        // IPv6 is disabled on the peers, since `ip` would print their routes, too.
        this.exec("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        for number in ["0", "1"] {
            this.ip(&format!(
                "link add eth{number} type veth peer name peer{number}"
            ));
            this.exec(&format!(
                "sysctl -qw net.ipv6.conf.eth{number}.disable_ipv6=0"
            ));
            this.ip(&format!("link set eth{number} up"));
            this.ip(&format!("link set peer{number} up"));
        }
        Some(this)
    }

    fn exec(&self, words: &str) -> String {
        let output = self.output(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn output(&self, words: &str) -> Output {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.0])
            .args(words.split_whitespace());
        command.output().expect("`ip` ran before")
    }

    fn ip(&self, words: &str) -> String {
        self.exec(&format!("ip {words}"))
    }

    /// Returns the routes of both families, one per element, without trailing blanks.
    fn routes(&self) -> BTreeSet<String> {
        let mut routes: Vec<String> = vec![];
        for family in ["-4", "-6"] {
            for line in self.ip(&format!("{family} route show table all")).lines() {
                let line = line.trim_end();
                match routes.last_mut().filter(|_| line.starts_with('\t')) {
                    Some(last) => *last = format!("{last}\n{line}"),
                    None => routes.push(line.to_owned()),
                }
            }
        }
        routes.into_iter().collect()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

fn node() -> Node {
    File::parse(NODE)
        .and_then(|file| file.node())
        .expect("legal")
}

fn add_addresses(namespace: &Namespace) {
    for line in NODE.lines().filter(|line| line.contains("addresses")) {
        let (dev, rest) = line.trim().split_once(':').expect("a port");
        for address in rest.split('"').skip(1).step_by(2) {
            namespace.ip(&format!("addr add {address} dev {dev}"));
        }
    }
}

fn context(node: &Node) -> Context<'_> {
    Context {
        names: node,
        family: None,
        owner: Owner::Kernel,
    }
}

fn flag(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}

/// Returns an IPv6 multipath route as the kernel prints it: one route per next hop.
fn apart(route: &Route) -> Vec<Route> {
    let hops = route
        .next_hops
        .iter()
        .map(|hop| NextHops::from(vec![hop.clone()]));
    let alone = |next_hops| Route {
        next_hops,
        ..route.clone()
    };
    hops.map(alone).collect()
}

#[test]
fn the_kernel_creates_the_implied_routes() {
    let Some(namespace) = Namespace::new("implied") else {
        return;
    };
    add_addresses(&namespace);
    let node = node();
    let ours: BTreeSet<_> = node
        .routes
        .values()
        .flat_map(apart)
        .map(|route| route::print(&route, &node, Style::Show))
        .collect();
    // Skip the link-local addresses that the kernel derives from MACs: the node model lacks them.
    let theirs: BTreeSet<_> = namespace
        .routes()
        .into_iter()
        .filter(|line| !line.starts_with("local fe80::"))
        .collect();
    assert_eq!(ours, theirs);
}

#[test]
fn ip_accepts_and_prints_the_same_routes() {
    let Some(namespace) = Namespace::new("routes") else {
        return;
    };
    add_addresses(&namespace);
    let node = node();
    for line in ROUTES {
        let route = route::parse_line(line, &context(&node))
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(linux_can_express(&route), "{line}");
        let before = namespace.routes();
        let words = route::print(&route, &node, Style::Add);
        namespace.ip(&format!("route add {words}"));
        let after = namespace.routes();
        let new: Vec<_> = after.difference(&before).collect();
        let mut shown = route.clone();
        if let [hop] = shown.next_hops.make_mut() {
            // The kernel resolved the interface.
            hop.dev = hop
                .dev
                .or(node.link_by_name("eth0").map(|link| link.ifindex));
        }
        assert_eq!(new, [&route::print(&shown, &node, Style::Show)], "{words}");
        // The printed route parses to the route that was added.
        let ctx = Context {
            family: Some(route.family()),
            ..context(&node)
        };
        let mut again =
            route::parse_line(new[0], &ctx).unwrap_or_else(|error| panic!("{}: {error}", new[0]));
        if line.contains("count") {
            again.next_hops.clone_from(&shown.next_hops);
        }
        assert_eq!(again, shown, "{line}");
    }
}

#[test]
fn linux_refuses_what_the_table_calls_inexpressible() {
    let Some(namespace) = Namespace::new("refused") else {
        return;
    };
    add_addresses(&namespace);
    let node = node();
    for line in [
        "fd00::/64 encap seg6local action End.DT46 table 100 dev eth0",
        "fd00::/64 encap seg6local action End.DT4 table 100 dev eth0",
        "fd00::/64 encap seg6local action End flavors usd dev eth0",
        "fd00::/64 encap seg6local action End.X nh6 fc00::1 flavors psp dev eth0",
        "fd00::/64 nexthop via fc00::7 dev eth0 nexthop encap seg6 mode encap segs fc00::9 dev eth1",
    ] {
        let route = route::parse_line(line, &context(&node))
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(!linux_can_express(&route), "{line}");
        assert!(
            !namespace
                .output(&format!("ip route add {line}"))
                .status
                .success(),
            "{line}"
        );
    }
}

#[test]
fn ip_accepts_and_prints_the_same_rules_and_neighbors() {
    let Some(namespace) = Namespace::new("rules") else {
        return;
    };
    add_addresses(&namespace);
    let mut node = node();
    for line in RULES.iter().chain(PRIORITIES) {
        let rules = rule::parse_line(line, &context(&node), &node.rules);
        for rule in rules.unwrap_or_else(|error| panic!("{line}: {error}")) {
            // Omit the priority: the kernel has to choose the one that the parser assigned.
            let words = rule::print(&rule, &node, Style::Add);
            let words = if PRIORITIES.contains(line) {
                line
            } else if line.contains("pref") {
                words.as_str()
            } else {
                words.split(" priority").next().unwrap_or_default()
            };
            namespace.ip(&format!("{} rule add {words}", flag(rule.family)));
            node.rules
                .entry((rule.family, rule.priority))
                .or_default()
                .push(rule);
        }
    }
    for family in [Family::V4, Family::V6] {
        let rules = node.rules.range((family, 0)..=(family, u32::MAX));
        let ours: Vec<_> = rules
            .flat_map(|(_, rules)| rules)
            .map(|rule| rule::print(rule, &node, Style::Show))
            .collect();
        let theirs = namespace.ip(&format!("{} rule show", flag(family)));
        let theirs: Vec<_> = theirs
            .lines()
            .map(|line| line.replace(" [detached]", "").trim_end().to_owned())
            .collect();
        assert_eq!(ours, theirs);
    }
    let line = "fc00::1 lladdr 02:00:00:00:00:11 dev eth0";
    let (key, entry) = neighbor::parse_line(line, &context(&node)).expect("legal");
    namespace.ip(&format!(
        "neigh add {}",
        neighbor::print(&key, &entry, &node, Style::Add)
    ));
    let shown = namespace.ip("-6 neigh show nud permanent");
    assert_eq!(
        shown.trim_end(),
        neighbor::print(&key, &entry, &node, Style::Show)
    );
}
