//! The program's objects in the kernel and the file system: finds leftovers, and removes
//! intentional ones.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sidestep_control::api;
use sidestep_datapath::kernel::{Kernel, PIN_ROOT};
use sidestep_testkit::Namespace;

/// Objects of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traces {
    /// Interfaces with an XDP program, and its id.
    pub xdp: Vec<(String, u32)>,
    /// Interfaces with a program at TC ingress, and its ID. Attached by tcx, or by a filter before
    /// Linux 6.6.
    pub tc: Vec<(String, u32)>,
    /// Filters of a clsact qdisc, as `tc` shows them.
    pub filters: Vec<String>,
    /// Names in the folder of pins; the folder itself as `.`.
    pub pins: Vec<String>,
    /// Names in the folder of the control socket; the folder itself as `.`.
    pub files: Vec<String>,
}

impl Traces {
    /// Returns whether there are no objects.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the program's objects on these interfaces of a namespace.
pub fn traces(namespace: &Namespace, interfaces: &[&str]) -> Traces {
    let mut traces = Traces {
        pins: names(&pin_folder(namespace)),
        files: names(&run_folder(namespace)),
        ..Traces::default()
    };
    for name in interfaces {
        let ifindex = namespace.ifindex(name).expect("an interface");
        let (xdp, tc) = namespace
            .run(|| (xdp_program(ifindex), tcx_programs(ifindex)))
            .expect("the namespace can be entered");
        traces.xdp.extend(xdp.map(|id| ((*name).to_owned(), id)));
        traces
            .tc
            .extend(tc.into_iter().map(|id| ((*name).to_owned(), id)));
        let words = ["tc", "filter", "show", "dev", name, "ingress"];
        let filters = namespace.exec(&words).expect("tc");
        let ours = filters
            .lines()
            .find(|line| line.contains("sidestep_tc:[") && line.contains("direct-action"));
        match ours.filter(|_| !has_tcx()) {
            Some(line) => {
                let id = line
                    .split(" id ")
                    .nth(1)
                    .and_then(|rest| rest.split(' ').next());
                let id = id.and_then(|id| id.parse().ok()).expect("a program id");
                traces.tc.push(((*name).to_owned(), id));
            }
            None => traces.filters.extend(filters.lines().map(str::to_owned)),
        }
    }
    traces
}

/// Removes the leftovers of a killed instance.
pub fn remove(namespace: &Namespace) {
    // It does not exist, or a process of another test owns it, and that test reports it.
    let _ = namespace.run(|| Kernel::remove(Path::new(PIN_ROOT)));
    let _ = fs::remove_dir_all(run_folder(namespace));
}

/// Returns the folder of the program's control socket.
pub fn run_folder(namespace: &Namespace) -> PathBuf {
    namespace
        .run(api::run_directory)
        .expect("the namespace can be entered")
}

pub fn pin_folder(namespace: &Namespace) -> PathBuf {
    let inode = namespace
        .run(|| fs::metadata("/proc/thread-self/ns/net").map(|data| data.ino()))
        .expect("the namespace can be entered")
        .expect("its inode");
    Path::new(PIN_ROOT).join(format!("net-{inode}"))
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.chain([".".to_owned()]).collect();
    names.sort();
    names
}

fn xdp_program(ifindex: u32) -> Option<u32> {
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    // SAFETY: options that live for the call.
    let result = unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &raw mut options) };
    assert_eq!(result, 0, "what XDP program interface {ifindex} has");
    [options.drv_prog_id, options.skb_prog_id, options.hw_prog_id]
        .into_iter()
        .find(|id| *id != 0)
}

/// Whether TC programs are attached by links.
pub fn has_tcx() -> bool {
    // The loopback device is there in every namespace.
    query_tcx(1).is_some()
}

fn tcx_programs(ifindex: u32) -> Vec<u32> {
    query_tcx(ifindex).unwrap_or_default()
}

/// Returns `None` if the kernel has no tcx (before Linux 6.6).
fn query_tcx(ifindex: u32) -> Option<Vec<u32>> {
    let mut ids = vec![0u32; 64];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = ids.len() as u32;
    // SAFETY: a buffer of `count` ids, and options that live for the call.
    let result = unsafe {
        libbpf_sys::bpf_prog_query_opts(
            ifindex as i32,
            libbpf_sys::BPF_TCX_INGRESS,
            &raw mut options,
        )
    };
    if result != 0 {
        return None;
    }
    // SAFETY: the kernel has written the count.
    ids.truncate(unsafe { options.__bindgen_anon_1.count } as usize);
    Some(ids)
}
