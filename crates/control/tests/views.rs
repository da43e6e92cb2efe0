//! More tables than there are views: what finds none is the kernel's, with a reason, and finds one when there is room.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use sidestep_control::compile::{Compiled, Compiler, NeedsFullCompile};
use sidestep_datapath::{Limits, Native, VIEWS, Verdict};
use sidestep_model::config::File;
use sidestep_model::grammar::{Context, route};
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::{Owner, RouteKey};
use sidestep_wire::{Ipv6, Protocol};

/// More than there are views.
const TABLES: u32 = VIEWS + 50;

/// Interface 3 has no rules of its own unless `rules` say so.
fn node(rules: &str) -> Node {
    let text = format!(
        r#"
ports:
  eth0: {{mac: "02:00:00:00:00:01", addresses: ["fc00:a::1/64"], seg6_enabled: true}}
  eth1: {{mac: "02:00:00:00:00:02", addresses: ["fc00:b::1/64"]}}
  eth2: {{mac: "02:00:00:00:00:03", addresses: ["fc00:c::1/64"]}}
neighbors: ["fc00:b::2 lladdr 02:00:00:00:00:11 dev eth1"]
rules: [{rules}]
"#
    );
    let file = File::parse(&text).expect("a good node file");
    let mut node = file.node().expect("a good node");
    add(&mut node, "fd00::/8 via fc00:b::2 dev eth1");
    for table in 0..TABLES {
        let table_id = 1000 + table;
        add(
            &mut node,
            &format!("fd00::/8 via fc00:b::2 dev eth1 table {table_id}"),
        );
        let sid = sid(table);
        add(
            &mut node,
            &format!("{sid}/128 encap seg6local action End.DT6 table {table_id} dev eth0"),
        );
    }
    node
}

fn add(node: &mut Node, words: &str) -> RouteKey {
    let context = Context {
        names: &*node,
        family: None,
        owner: Owner::Kernel,
    };
    let route = route::parse_line(words, &context).expect("a good route");
    let key = route.key;
    node.routes.insert(key, route);
    key
}

/// The SID that looks up in a table.
fn sid(table: u32) -> Ipv6Addr {
    Ipv6Addr::from(0xfc00_5000 << 96 | u128::from(table))
}

fn remove_sid(node: &mut Node, table: u32) -> RouteKey {
    let all = node.routes.keys();
    let mut keys = all.filter(|key| key.prefix.addr() == std::net::IpAddr::V6(sid(table)));
    let key = *keys.next().expect("it is there");
    node.routes.remove(&key);
    key
}

/// The compiler and the published part of its tables.
struct Tables {
    compiler: Compiler,
    compiled: Compiled,
}

impl Tables {
    fn of(node: &Node) -> Self {
        let mut tables = Self {
            compiler: Compiler::new(Limits::default()),
            compiled: Compiled::default(),
        };
        tables.compile(node);
        tables
    }

    /// As the daemon does it: once more if something did not fit and indices come free. Then there is nothing to wait for.
    fn compile(&mut self, node: &Node) {
        self.attempt(node);
        if self.compiled.index.is_full() && self.compiler.has_pending() {
            self.compiler.reclaim();
            self.attempt(node);
            assert!(!self.compiled.index.is_full() || !self.compiler.has_pending());
        }
        self.compiler.reclaim();
    }

    fn attempt(&mut self, node: &Node) {
        let ports: BTreeSet<IfIndex> = node.links.keys().copied().collect();
        let compiled = self.compiler.attempt(node, &ports, &BTreeMap::new());
        self.compiled = compiled.expect("it compiles");
        self.compiler.accept();
    }

    /// Compiles the change of a route alone.
    fn update(&mut self, node: &Node, route: RouteKey) -> Result<(), NeedsFullCompile> {
        let compiled = &mut self.compiled;
        self.compiler.update(node, &[route], &[], &[], compiled)?;
        self.compiler.accept();
        Ok(())
    }

    /// The change of a route cannot be compiled alone as long as rules wait for room.
    fn change(&mut self, node: &Node, route: RouteKey) {
        assert_eq!(self.update(node, route), Err(NeedsFullCompile::Full));
        self.compile(node);
    }

    /// Results for encapsulated packets to SIDs of tables.
    fn at_sids<'a>(&self, tables: impl IntoIterator<Item = &'a u32>) -> BTreeSet<&'static str> {
        let inner = ipv6(59, "fd00::1".parse().expect("an address"), &[]);
        let packets = tables
            .into_iter()
            .map(|table| ipv6(41, sid(*table), &inner));
        self.verdicts(1, packets)
    }

    /// Results for packets at a port: forwarded, or the reason.
    fn verdicts(
        &self,
        port: u32,
        packets: impl Iterator<Item = Vec<u8>>,
    ) -> BTreeSet<&'static str> {
        let mac = self.compiled.image.ports[&port].mac;
        let mut native = Native::new(&self.compiled.image);
        let verdicts = packets.map(|packet| {
            let frame = [&mac[..], &[2, 0, 0, 0, 0, 0x99, 0x86, 0xdd], &packet].concat();
            match native.run(port, &frame) {
                Verdict::Forward { .. } => "forward",
                Verdict::Punt(reason) | Verdict::Drop(reason) => reason.name,
            }
        });
        verdicts.collect()
    }

    fn words(&self, key: &RouteKey) -> Option<&str> {
        let words = self.compiled.index.unsupported.get(key);
        words.map(String::as_str)
    }
}

/// RFC 8200 3; from `fc00:a::2`.
fn ipv6(next_header: u8, to: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let from: Ipv6Addr = "fc00:a::2".parse().expect("an address");
    Ipv6::new(from, to, Protocol(next_header)).emit(payload)
}

const FULL: &str = "the table of views is full: it holds 4095 (see `sidestep show limits`)";

#[test]
fn a_sid_without_a_view_is_punted_until_another_goes() {
    let mut node = node("");
    let mut tables = Tables::of(&node);
    let left = tables.compiled.index.full.clone();
    assert!(left.len() >= 50 && left.values().all(|table| *table == "views"));
    assert_eq!(tables.compiled.index.views.len() + 1, VIEWS as usize);
    for key in left.keys() {
        assert_eq!(tables.words(key), Some(FULL));
    }
    let (served, out): (Vec<u32>, Vec<u32>) =
        (0..TABLES).partition(|table| !left.keys().any(|key| key.prefix.addr() == sid(*table)));
    assert_eq!(out.len(), left.len());
    assert_eq!(tables.at_sids(&served), BTreeSet::from(["forward"]));
    assert_eq!(tables.at_sids(&out), BTreeSet::from(["table_full"]));

    // One more changes nothing for those that are served.
    let more = add(
        &mut node,
        "fc00:4fff::1/128 encap seg6local action End.DT6 table 9999 dev eth0",
    );
    assert_eq!(tables.update(&node, more), Ok(()));
    assert_eq!(tables.words(&more), Some(FULL));
    assert_eq!(tables.compiled.index.full.len(), out.len() + 1);
    assert_eq!(tables.at_sids(&served), BTreeSet::from(["forward"]));
    assert_eq!(tables.at_sids(&out), BTreeSet::from(["table_full"]));

    // Room for all but one of them, then for all.
    for table in &served[..out.len()] {
        let key = remove_sid(&mut node, *table);
        if table == &served[0] {
            assert_eq!(tables.update(&node, key), Ok(()));
            assert_eq!(tables.compiled.index.full.len(), out.len() + 1);
            tables.compiler.reclaim();
            tables.compile(&node);
            assert_eq!(tables.compiled.index.full.len(), out.len());
        }
    }
    tables.compile(&node);
    assert_eq!(tables.compiled.index.full.len(), 1);
    node.routes.remove(&more);
    assert_eq!(tables.update(&node, more), Ok(()));
    tables.compiler.reclaim();
    tables.compile(&node);
    assert!(!tables.compiled.index.is_full());
    assert!(tables.compiled.index.unsupported.is_empty());
    let rest = served[out.len()..].iter().chain(&out);
    assert_eq!(tables.at_sids(rest), BTreeSet::from(["forward"]));
}

#[test]
fn a_port_without_a_view_is_punted_until_a_sid_goes() {
    let mut node = node("");
    let mut tables = Tables::of(&node);
    // The rules come when every view is taken.
    node.rules = self::node("iif eth2 priority 100 lookup 100").rules;
    add(&mut node, "fd00::/16 via fc00:b::2 dev eth1 table 100");
    tables.compile(&node);
    let packet = ipv6(59, "fd00::1".parse().expect("an address"), &[]);
    let left = &tables.compiled.index.punt_reasons;
    assert_eq!(
        left.values().collect::<BTreeSet<_>>(),
        BTreeSet::from([&FULL.to_owned()])
    );
    let at = |tables: &Tables, port| tables.verdicts(port, std::iter::once(packet.clone()));
    assert_eq!(at(&tables, 3), BTreeSet::from(["rule"]));
    assert_eq!(at(&tables, 1), BTreeSet::from(["forward"]));
    assert!(tables.compiled.index.full_tables().contains("views"));

    // It is first when there is room; and there is room for all of it in the end.
    for table in 0..100 {
        let key = remove_sid(&mut node, table);
        if table == 2 {
            tables.change(&node, key);
            assert_eq!(at(&tables, 3), BTreeSet::from(["forward"]));
        }
    }
    tables.compile(&node);
    assert!(tables.compiled.index.punt_reasons.is_empty());
    assert!(!tables.compiled.index.is_full());
}

#[test]
fn a_return_path_route_takes_no_packet_of_its_table() {
    let mut node = node("iif eth2 priority 100 lookup 100");
    let words = "default encap seg6local action End.AD chain fromVNF iif eth2 dev eth2 table 100";
    let mut tables = Tables::of(&node);
    let packet = || std::iter::once(ipv6(59, "fd00::1".parse().expect("an address"), &[]));
    let key = add(&mut node, words);
    assert_eq!(tables.update(&node, key), Ok(()));
    assert_eq!(tables.verdicts(3, packet()), BTreeSet::from(["forward"]));
    tables.compile(&node);
    assert_eq!(tables.verdicts(3, packet()), BTreeSet::from(["forward"]));
}
