//! Facts that the checks examine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use sidestep_datapath::kernel::{self, Features, Kernel, Target};
use sidestep_mirror::MirrorError;
use sidestep_mirror::survey::Survey;
use sidestep_model::behavior::Seg6Local;
use sidestep_model::node::{IfIndex, Link, Node};
use sidestep_model::route::{Encap, NextHop, Route, RouteKey};

use crate::api::run_directory;
use crate::compile::Compiled;
use crate::daemon::Mode;
use crate::report;

/// A snapshot of a node with its instance of Sidestep, if one runs.
pub struct Facts<'a> {
    /// The node with the overlay.
    pub node: &'a Node,
    /// The kernel's own configuration.
    pub kernel: &'a Node,
    /// Result of the compilation.
    pub compiled: &'a Compiled,
    /// SIDs that went with their interface, each with that interface.
    pub lost_sids: &'a BTreeMap<RouteKey, IfIndex>,
    /// SIDs of the node.
    pub sids: Vec<(&'a Route, &'a Seg6Local)>,
    /// The requested ports.
    pub ports: Vec<Port>,
    /// Parts of the configuration that the node does not have.
    pub survey: Survey,
    /// The file system, and what dead instances left.
    pub host: Host,
    /// State of the running daemon.
    pub daemon: Option<Daemon>,
    /// Whether each finding is a problem of its own, however many there are.
    pub separate: bool,
}

/// A requested port.
#[derive(Clone, Debug, Default)]
pub struct Port {
    /// Interface name.
    pub name: String,
    /// Where it is attached, or would be.
    pub target: Option<Target>,
    /// Why it cannot be attached.
    pub refused: Option<String>,
}

/// State of the host.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Directory of the pins.
    pub pin_root: PathBuf,
    /// Its mount point.
    pub mount_point: PathBuf,
    /// Whether it is on a BPF file system.
    pub on_bpffs: bool,
    /// Whether that file system is read-only.
    pub read_only: bool,
    /// A process of the host, if the host does not have that file system there.
    pub private: Option<u32>,
    /// Missing capabilities of the caller, or why the kernel is too old.
    pub refused: Option<String>,
    /// Optional features that this kernel lacks.
    pub lacks: Vec<&'static str>,
    /// Directory of the pins that a dead instance left in this namespace.
    pub left: Option<PathBuf>,
    /// The command that started that instance.
    pub left_start: Option<String>,
    /// Whether an instance runs in this namespace.
    pub is_alive: bool,
}

/// State of the running daemon.
#[derive(Clone, Debug, Default)]
pub struct Daemon {
    /// Why the last change could not be applied.
    pub failed: Option<String>,
    /// Why the node file could not be applied.
    pub reload: Option<String>,
    /// Whether the configuration waits for its confirmation.
    pub unconfirmed: bool,
    /// Why ICMP messages are not sent.
    pub icmp: Option<String>,
    /// Why fragments are not sent.
    pub fragments: Option<String>,
    /// Why services are not probed.
    pub liveness: Option<String>,
    /// Address of the HTTP endpoint for metrics, if it is on.
    pub metrics: Option<SocketAddr>,
    /// State of FPM, if it is on.
    pub fpm: Option<report::Fpm>,
    /// Names of the full tables, each with a sentence.
    pub full: Vec<(String, String)>,
    /// Limits with their use.
    pub limits: report::Limits,
    /// Whether the program file was replaced after the start.
    pub replaced: bool,
    /// Its version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Its arguments without ports and `--mode`.
    pub arguments: Vec<String>,
    /// Requested target of the ports.
    pub mode: Mode,
}

static NONE_LOST: BTreeMap<RouteKey, IfIndex> = BTreeMap::new();

impl<'a> Facts<'a> {
    /// Returns the facts of a node, without ports and without a survey.
    pub fn new(node: &'a Node, kernel: &'a Node, compiled: &'a Compiled) -> Self {
        let hops = node
            .routes
            .values()
            .flat_map(|route| route.next_hops.iter().map(move |hop| (route, hop)));
        let sid = |(route, hop): (&'a Route, &'a NextHop)| match &hop.encap {
            Some(Encap::Seg6Local(local)) => Some((route, local)),
            _ => None,
        };
        Self {
            node,
            kernel,
            compiled,
            lost_sids: &NONE_LOST,
            sids: hops.filter_map(sid).collect(),
            ports: Vec::new(),
            survey: Survey::default(),
            host: Host::default(),
            daemon: None,
            separate: false,
        }
    }

    /// The ports that exist, each with its link.
    pub(super) fn links(&self) -> impl Iterator<Item = (&Port, &Link)> {
        let link = |port| Some((port, self.node.link_by_name(Port::name(port))?));
        self.ports.iter().filter_map(link)
    }

    /// The ports that exist and route: those of bridges do not.
    pub(super) fn routed(&self) -> impl Iterator<Item = (&Port, &Link)> {
        let of_bridges = &self.node.bridge_ports;
        self.links()
            .filter(|(_, link)| !of_bridges.contains_key(&link.ifindex))
    }

    /// Whether any port runs XDP.
    pub(super) fn has_xdp(&self) -> bool {
        self.ports.iter().any(Port::is_xdp)
    }

    /// Whether this interface is an attached port.
    pub(super) fn is_port(&self, ifindex: IfIndex) -> bool {
        self.links()
            .any(|(port, link)| link.ifindex == ifindex && port.target.is_some())
    }

    /// Interfaces that packets leave by, other than loopback.
    pub(super) fn egresses(&self) -> impl Iterator<Item = &Link> {
        let all: BTreeSet<_> = self
            .compiled
            .index
            .adjacencies
            .values()
            .map(|adjacency| adjacency.ifindex)
            .collect();
        all.into_iter()
            .filter_map(|ifindex| self.node.links.get(&ifindex))
    }

    /// The commands that start the daemon again with other arguments.
    pub(super) fn restart(&self, options: &str) -> String {
        format!("{}{}", self.stop(), self.start(options, None))
    }

    /// The command that ends the daemon before another start; empty without a daemon.
    pub(super) fn stop(&self) -> &'static str {
        match self.daemon {
            Some(_) => "sidestep stop --keep && ",
            None => "",
        }
    }

    /// The command that makes an interface a port.
    pub(super) fn add_port(&self, name: &str) -> String {
        match &self.daemon {
            Some(_) => format!("sidestep port add {name}"),
            None => self.start("", Some(name)),
        }
    }

    /// The command that starts the daemon, with a further port.
    pub(crate) fn start(&self, options: &str, further: Option<&str>) -> String {
        let mode = self.daemon.as_ref().map(|it| it.mode.to_string());
        let mode = mode.unwrap_or_default();
        let mut words = vec!["sidestep run --detach"];
        if let Some(daemon) = &self.daemon {
            words.extend(without(&daemon.arguments, options));
            if !options.starts_with("--mode ") && daemon.mode != Mode::Auto {
                words.push("--mode");
                words.push(&mode);
            }
        }
        words.extend(options.split_whitespace());
        words.extend(self.ports.iter().map(|port| port.name.as_str()));
        words.extend(further);
        words.join(" ")
    }
}

/// Arguments without the size of the table that `options`, such as `--limit routes=9`, sets.
fn without<'a>(arguments: &'a [String], options: &str) -> Vec<&'a str> {
    let size = |words: &str| {
        let size = words.strip_prefix("--limit")?.get(1..)?;
        Some(size.split_once('=')?.0.to_owned())
    };
    let (set, mut kept) = (size(options), Vec::new());
    let mut rest = arguments.iter().map(String::as_str).peekable();
    while let Some(word) = rest.next() {
        let value = rest.next_if(|_| word == "--limit");
        let both = value.map_or(word.to_owned(), |value| format!("{word} {value}"));
        if set.is_none() || size(&both) != set {
            kept.push(word);
            kept.extend(value);
        }
    }
    kept
}

impl Port {
    fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is attached, or would be attached, in XDP.
    pub(super) fn is_xdp(&self) -> bool {
        self.target == Some(Target::Xdp)
    }
}

impl Host {
    /// Looks at the file system and the pins of this namespace. `private` is
    /// [`kernel::private_bpffs`], which the daemon knows from its start only.
    pub fn read(
        pin_root: &Path,
        private: Option<u32>,
        refused: Option<String>,
        lacks: Vec<&'static str>,
    ) -> Self {
        // This makes the pins of the host visible.
        let pinned = Kernel::pinned(pin_root);
        let existing = pin_root.ancestors().find(|path| path.exists());
        let existing = existing.unwrap_or(pin_root);
        let on_bpffs = kernel::on_bpffs(pin_root);
        let read_only = statvfs(existing).is_ok_and(|it| it.flags().contains(FsFlags::ST_RDONLY));
        let device = |path: &Path| fs::metadata(path).ok().map(|it| it.dev());
        let here = device(existing);
        let mount_point = existing
            .ancestors()
            .take_while(|path| device(path) == here)
            .last();
        let is_alive = pinned.as_ref().is_some_and(|pinned| !pinned.is_dead);
        let left_start = pinned.as_ref().filter(|pinned| pinned.is_dead);
        let left_start = left_start.and_then(|_| fs::read_to_string(start_file()).ok());
        Self {
            pin_root: pin_root.to_owned(),
            mount_point: mount_point.unwrap_or(existing).to_owned(),
            on_bpffs,
            read_only: on_bpffs && read_only,
            private,
            refused,
            lacks,
            left: pinned
                .filter(|pinned| pinned.is_dead)
                .map(|pinned| pinned.folder),
            left_start,
            is_alive,
        }
    }
}

/// File with the command that starts the daemon of this namespace again.
pub(crate) fn start_file() -> PathBuf {
    run_directory().join("start")
}

/// Optional features that the kernel lacks.
pub fn lacks(features: Features, xdp_features: bool) -> Vec<&'static str> {
    let optional = [
        (
            features.tcx,
            "this kernel has no tcx (Linux 6.6): TC programs attach as clsact filters",
        ),
        (
            features.decap_l3,
            "this kernel cannot remove an IPv6 header from an IPv4 packet at once (Linux 6.3): TC \
             takes \
             two steps",
        ),
        (
            xdp_features,
            "this kernel does not report XDP features (Linux 6.3): TC sends packets of XDP ports \
             that leave by veth, tap or stacked devices",
        ),
    ];
    let lacking = optional.into_iter().filter(|(has, _)| !has);
    lacking.map(|(_, sentence)| sentence).collect()
}

/// Surveys the namespace of the calling thread for these ports.
///
/// # Errors
/// If the kernel refuses the list of links.
pub fn survey(node: &Node, ports: &[Port]) -> Result<Survey, MirrorError> {
    let known = |port: &Port| Some(node.link_by_name(&port.name)?.ifindex);
    let known: Vec<_> = ports.iter().filter_map(known).collect();
    Survey::read(&known, kernel::FILTER_PRIORITY)
}
