//! The VPNs by FRR: BGP exchanges their routes, allocates their SIDs, and zebra installs both in the
//! kernel. This is FRR's topology test `bgp_srv6l3vpn_to_bgp_vrf` with IPv4, and with both kinds of
//! SIDs: one for each address family (VPN red) and one for both (VPN blue).

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sidestep_testkit::Namespace;
use sidestep_testkit::capability::skip;
use sidestep_testkit::lab::mac_text;

use super::{AT_LINUX, HOP_LIMIT, VPNS, Vpns, packet};
use crate::support::ip::Ip;
use crate::support::{begin, counters, eventually, eventually_within};

/// Environment variable that names the folder of an unpacked FRR (`tests/frr.sh`).
const FOLDER: &str = "SIDESTEP_FRR";
/// User and group of the daemons in that folder.
const ACCOUNT: u32 = 100;
const DAEMONS: [&str; 4] = ["mgmtd", "zebra", "staticd", "bgpd"];
/// Time until BGP has exchanged its routes, on an emulated processor.
const CONVERGENCE: Duration = Duration::from_secs(120);

/// FRR on a node. Its processes end with the namespace.
struct Frr<'node> {
    node: &'node Namespace,
    root: PathBuf,
    /// Name of its instance: several run in one folder.
    instance: String,
}

impl<'node> Frr<'node> {
    /// Starts the daemons with a configuration.
    fn start(node: &'node Namespace, root: &Path, configuration: &str) -> Self {
        let frr = Self {
            node,
            root: root.to_owned(),
            instance: node.name().replace('.', "-"),
        };
        for folder in ["run/frr", "etc/frr", "var/lib/frr"] {
            let folder = root.join(folder).join(&frr.instance);
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).expect("a folder");
            chown(&folder, Some(ACCOUNT), Some(ACCOUNT)).expect("root");
        }
        let own = Path::new("/etc/frr").join(&frr.instance);
        let file = own.join("test.conf");
        let outside = |path: &Path| root.join(path.strip_prefix("/").expect("absolute"));
        fs::write(outside(&own.join("vtysh.conf")), "").expect("a file");
        fs::write(outside(&file), configuration).expect("a file");
        for daemon in DAEMONS {
            frr.succeed(&[&format!("/usr/lib/frr/{daemon}"), "-d"]);
        }
        frr.succeed(&["/usr/bin/vtysh", "-f", file.to_str().expect("UTF-8")]);
        frr
    }

    /// Runs a program of FRR. Returns whether it succeeds, and its output. A daemon keeps its output
    /// open, so that is a file.
    fn run(&self, words: &[&str]) -> (bool, String) {
        let inside = r#"mount -t proc proc "$0/proc" && exec chroot "$0" "$@""#;
        let (program, arguments) = words.split_first().expect("a program");
        let path = self
            .root
            .join("run/frr")
            .join(&self.instance)
            .join("output");
        let file = File::create(&path).expect("a file");
        let mut command = self.node.command("sh");
        command.args(["-c", inside]).arg(&self.root);
        command.arg(program).args(["-N", &self.instance]);
        command.args(arguments).stdin(Stdio::null());
        command
            .stderr(file.try_clone().expect("a descriptor"))
            .stdout(file);
        let status = command.status().expect("sh is installed");
        let text = fs::read_to_string(&path).expect("UTF-8");
        (status.success(), text)
    }

    fn succeed(&self, words: &[&str]) {
        let (success, text) = self.run(words);
        assert!(success, "{words:?}: {text}");
    }

    fn configure(&self, lines: &str) {
        self.succeed(&["/usr/bin/vtysh", "-c", &format!("configure\n{lines}")]);
    }
}

impl Drop for Frr<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for words in [
                "show bgp summary",
                "show bgp vpn all",
                "show ip route vrf all",
            ] {
                eprintln!("{}", self.run(&["/usr/bin/vtysh", "-c", words]).1);
            }
        }
    }
}

/// Returns the folder of FRR, or reports the test as skipped.
fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from);
    if folder.is_none() {
        skip(&format!(
            "{FOLDER} names no folder of FRR (`./dev test-kernel` sets it)"
        ));
    }
    folder
}

/// Returns the configuration of a provider edge.
fn configuration(site: u8) -> String {
    let other = 3 - site;
    let core = format!(
        "segment-routing
 srv6
  encapsulation
   source-address fcbb:{site}::1
  exit
  locators
   locator MAIN
    prefix fcbb:{site}::/32 block-len 16 node-len 16 func-bits 16
   exit
  exit
 exit
exit
ipv6 route fcbb:{other}::/32 fd00::{other} core
router bgp 6500{site}
 bgp router-id 10.255.0.{site}
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
 neighbor fd00::{other} remote-as 6500{other}
 neighbor fd00::{other} timers connect 1
 neighbor fd00::{other} capability extended-nexthop
 segment-routing srv6
  locator MAIN
 exit
 address-family ipv4 vpn
  neighbor fd00::{other} activate
 exit-address-family
 address-family ipv6 vpn
  neighbor fd00::{other} activate
 exit-address-family
exit
"
    );
    let vpns = VPNS.iter().map(|(vpn, table, _)| {
        // One SID for each address family, or one for both.
        let (both, each) = match *vpn {
            "red" => ("", "  sid vpn export auto\n"),
            _ => (" sid vpn per-vrf export auto\n", ""),
        };
        let families = ["ipv4", "ipv6"].map(|family| {
            format!(
                " address-family {family} unicast
{each}  rd vpn export {site}:{table}
  rt vpn both 65000:{table}
  export vpn
  import vpn
  redistribute connected
 exit-address-family
"
            )
        });
        format!(
            "router bgp 6500{site} vrf vrf-{vpn}
 bgp router-id 10.255.0.{site}
 no bgp default ipv4-unicast
{both}{}exit
",
            families.concat()
        )
    });
    std::iter::once(core).chain(vpns).collect()
}

impl Vpns {
    /// Waits until a route is in the table of a VRF, or until it is not.
    fn await_route(&self, site: u8, table: u32, prefix: &str, there: bool) {
        let family = if prefix.contains(':') { "-6" } else { "-4" };
        let table = table.to_string();
        let words = ["ip", family, "route", "show", prefix, "table", &table];
        eventually_within(CONVERGENCE, &format!("{words:?} of pe{site}"), || {
            let routes = self.edge(site).exec(&words).unwrap_or_default();
            (routes.contains(" encap seg6 ") == there).then_some(())
        });
    }
}

#[test]
fn vpns_by_frr_are_forwarded_as_by_linux() {
    let Some(_turn) = begin() else { return };
    let Some(root) = folder() else { return };
    let Some(vpns) = Vpns::without_routes("livel3vpnfrr") else {
        return;
    };
    for site in [1, 2] {
        // BGP needs a link-local address at the interface of an IPv6 neighbor.
        Ip::new(vpns.edge(site)).run(&format!("address add fe80::{site}/64 dev core"));
    }
    let edges = [1, 2].map(|site| Frr::start(vpns.edge(site), &root, &configuration(site)));
    for (site, other) in [(1, 2), (2, 1)] {
        for (_, table, _) in VPNS {
            for prefix in [
                format!("10.0.{other}.0/24"),
                format!("2001:db8:{other}::/64"),
            ] {
                vpns.await_route(site, table, &prefix, true);
            }
        }
    }
    let linux = vpns.all_across(AT_LINUX);
    let _daemons = vpns.run(&[]);
    assert_eq!(vpns.all_across(HOP_LIMIT), linux);
    vpns.assert_forwarded(linux.len() as u64);

    // A prefix that BGP adds and withdraws.
    let (red, prefix) = (VPNS[0].1, "10.9.2.0/24");
    let mut ip = Ip::new(vpns.edge(2));
    ip.run("address add 10.9.2.1/24 dev red");
    let mac = mac_text(vpns.mac("red2", "eth0"));
    ip.run(&format!(
        "neighbor add 10.9.2.2 lladdr {mac} dev red nud permanent"
    ));
    vpns.await_route(1, red, prefix, true);
    let added = packet(["10.0.1.2", "10.9.2.2"], HOP_LIMIT);
    let before = counters(vpns.edge(1), "red").forwarded;
    eventually("Sidestep follows the new route", || {
        vpns.across("red", "red2", &added);
        (counters(vpns.edge(1), "red").forwarded > before).then_some(())
    });
    edges[1]
        .configure("router bgp 65002 vrf vrf-red\n address-family ipv4 unicast\n  no export vpn");
    vpns.await_route(1, red, prefix, false);
    let sent = vpns.frame("red", 1, &added);
    let (from, to) = (vpns.socket("red1"), vpns.socket("red2"));
    eventually("no packet follows the withdrawn route", || {
        from.send(&sent).expect("send");
        let arrived = to.receive(Duration::from_millis(100)).expect("receive");
        arrived.is_none().then_some(())
    });
    assert_eq!(
        vpns.across(
            "blue",
            "blue2",
            &packet(["10.0.1.2", "10.0.2.2"], HOP_LIMIT)
        ),
        linux[2]
    );
}
