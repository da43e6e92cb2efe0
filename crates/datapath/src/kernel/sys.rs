//! The calls of bpf(2) and of libbpf that libbpf-rs does not have, each with a safe surface. Errors
//! are the kernel's.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use libbpf_sys as ffi;
use nix::errno::Errno;

/// Properties of a link.
pub(super) struct LinkInfo {
    /// Interface index; 0 once the device is gone or the link was detached.
    pub(super) ifindex: u32,
}

/// The XDP program on an interface.
pub(super) struct XdpProgram {
    pub(super) id: u32,
    /// `native`, `generic` or `offload`.
    pub(super) mode: &'static str,
}

/// libbpf returns a negative errno.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result))
    } else {
        Ok(result)
    }
}

fn descriptor(result: i32) -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor that no other value owns.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The size that libbpf's option structs begin with.
macro_rules! options {
    ($name:ident) => {
        ffi::$name {
            sz: size_of::<ffi::$name>() as _,
            ..Default::default()
        }
    };
}

pub(super) fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: an open descriptor and a terminated path.
    check(unsafe { ffi::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) }).map(drop)
}

pub(super) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: a terminated path.
    descriptor(unsafe { ffi::bpf_obj_get(path.as_ptr()) })
}

/// Returns a detached copy of a mount: `open_tree(2)` with `OPEN_TREE_CLONE`.
pub(super) fn clone_mount(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: a terminated path.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    // SAFETY: a new descriptor that no other value owns.
    Ok(unsafe { OwnedFd::from_raw_fd(Errno::result(fd)? as i32) })
}

/// Attaches a detached mount at a path: `move_mount(2)`.
pub(super) fn move_mount(mount: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: an open descriptor, and terminated paths.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    Ok(Errno::result(result).map(drop)?)
}

/// `attach_type` is `BPF_XDP` (with `XDP_FLAGS_*`) or `BPF_TCX_INGRESS`.
pub(super) fn link_create(
    program: BorrowedFd<'_>,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut options = options!(bpf_link_create_opts);
    options.flags = flags;
    // SAFETY: an open descriptor and options that live for the call.
    descriptor(unsafe {
        ffi::bpf_link_create(
            program.as_raw_fd(),
            ifindex as i32,
            attach_type,
            &raw const options,
        )
    })
}

pub(super) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: open descriptors; no options.
    check(unsafe { ffi::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) })
        .map(drop)
}

pub(super) fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an open descriptor.
    check(unsafe { ffi::bpf_link_detach(link.as_raw_fd()) }).map(drop)
}

pub(super) fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    let mut info = ffi::bpf_link_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: an open descriptor, and a buffer of the size given.
    check(unsafe { ffi::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut size) })?;
    let ifindex = match info.type_ {
        // SAFETY: the kernel has written the member of that type.
        ffi::BPF_LINK_TYPE_XDP => unsafe { info.__bindgen_anon_1.xdp.ifindex },
        // SAFETY: as above.
        ffi::BPF_LINK_TYPE_TCX => unsafe { info.__bindgen_anon_1.tcx.ifindex },
        _ => 0,
    };
    Ok(LinkInfo { ifindex })
}

pub(super) fn xdp_program(ifindex: u32) -> io::Result<Option<XdpProgram>> {
    let mut options = options!(bpf_xdp_query_opts);
    // SAFETY: options that live for the call.
    check(unsafe { ffi::bpf_xdp_query(ifindex as i32, 0, &raw mut options) })?;
    let places = [
        (options.drv_prog_id, "native"),
        (options.skb_prog_id, "generic"),
        (options.hw_prog_id, "offload"),
    ];
    Ok(places
        .into_iter()
        .find(|(id, _)| *id != 0)
        .map(|(id, mode)| XdpProgram { id, mode }))
}

/// Ids of the programs at a TCX hook (`BPF_TCX_INGRESS` or `BPF_TCX_EGRESS`), in order. At most 64
/// are looked at.
pub(super) fn tcx_programs(ifindex: u32, hook: u32) -> io::Result<Vec<u32>> {
    let mut ids = vec![0; 64];
    let mut options = options!(bpf_prog_query_opts);
    options.prog_ids = ids.as_mut_ptr();
    options.__bindgen_anon_1.count = ids.len() as u32;
    // SAFETY: a buffer of `count` ids, and options that live for the call.
    check(unsafe { ffi::bpf_prog_query_opts(ifindex as i32, hook, &raw mut options) })?;
    // SAFETY: the kernel has written the count.
    ids.truncate(unsafe { options.__bindgen_anon_1.count } as usize);
    Ok(ids)
}

/// Whether XDP programs may call that helper (`BPF_FUNC_*`); true where that cannot be found out.
pub(super) fn xdp_has_helper(helper: u32) -> bool {
    // SAFETY: the call passes no pointers except the options, which are absent.
    let answer =
        unsafe { ffi::libbpf_probe_bpf_helper(ffi::BPF_PROG_TYPE_XDP, helper, std::ptr::null()) };
    answer != 0
}

pub(super) fn program_name(id: u32) -> io::Result<String> {
    // SAFETY: no pointers.
    let program = descriptor(unsafe { ffi::bpf_prog_get_fd_by_id(id) })?;
    let mut info = ffi::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: an open descriptor, and a buffer of the size given.
    check(unsafe {
        ffi::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size)
    })?;
    // SAFETY: the kernel terminates the name (BPF_OBJ_NAME_LEN counts the terminator).
    Ok(unsafe { CStr::from_ptr(info.name.as_ptr()) }
        .to_string_lossy()
        .into_owned())
}

/// Priority of our `cls_bpf` filter: fixed, so that a later process finds it again.
pub const FILTER_PRIORITY: u32 = 0x5353;
/// Its priority and handle.
const FILTER: (u32, u32) = (FILTER_PRIORITY, 1);

fn tc_hook(ifindex: u32) -> ffi::bpf_tc_hook {
    let mut hook = options!(bpf_tc_hook);
    hook.ifindex = ifindex as i32;
    hook.attach_point = ffi::BPF_TC_INGRESS;
    hook
}

/// A clsact filter in direct-action mode, for kernels without tcx (before 6.6). Makes the clsact
/// qdisc where it is not.
pub(super) fn filter_attach(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    let mut hook = tc_hook(ifindex);
    // SAFETY: a hook that lives for the call.
    match check(unsafe { ffi::bpf_tc_hook_create(&raw mut hook) }) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut options = options!(bpf_tc_opts);
    options.prog_fd = program.as_raw_fd();
    (options.priority, options.handle) = FILTER;
    options.flags = ffi::BPF_TC_F_REPLACE;
    // SAFETY: hook and options live for the call, and the descriptor is open.
    check(unsafe { ffi::bpf_tc_attach(&raw const hook, &raw mut options) }).map(drop)
}

/// Whether our filter is there. An interface that is gone, or has no clsact qdisc, has none.
pub(super) fn filter_exists(ifindex: u32) -> bool {
    let hook = tc_hook(ifindex);
    let mut options = options!(bpf_tc_opts);
    (options.priority, options.handle) = FILTER;
    // SAFETY: hook and options live for the call.
    check(unsafe { ffi::bpf_tc_query(&raw const hook, &raw mut options) }).is_ok()
}

/// Removes our filter. The qdisc stays: others may have put filters there.
pub(super) fn filter_detach(ifindex: u32) -> io::Result<()> {
    let hook = tc_hook(ifindex);
    let mut options = options!(bpf_tc_opts);
    (options.priority, options.handle) = FILTER;
    // SAFETY: hook and options live for the call.
    check(unsafe { ffi::bpf_tc_detach(&raw const hook, &raw const options) }).map(drop)
}

/// Result of a test run; the frame as it is afterwards is in the first `length` bytes of the
/// buffer.
pub(super) struct TestRunResult {
    pub(super) action: u32,
    pub(super) length: usize,
    /// Nanoseconds of one run.
    pub(super) nanoseconds: u32,
}

pub(super) fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    out: &mut [u8],
    repeat: u32,
) -> io::Result<TestRunResult> {
    let mut options = options!(bpf_test_run_opts);
    options.data_in = frame.as_ptr().cast();
    options.data_size_in = frame.len() as u32;
    options.data_out = out.as_mut_ptr().cast();
    options.data_size_out = out.len() as u32;
    options.repeat = repeat.try_into().unwrap_or(i32::MAX);
    // SAFETY: buffers of the lengths given, options that live for the call, an open descriptor.
    check(unsafe { ffi::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    Ok(TestRunResult {
        action: options.retval,
        length: (options.data_size_out as usize).min(out.len()),
        nanoseconds: options.duration,
    })
}

/// Reads the values of neighboring keys of an array, from `first` on: as many as fit, of `bytes`
/// each. Returns their number, which is smaller at the end of the array.
pub(super) fn lookup_batch(
    map: BorrowedFd<'_>,
    first: u32,
    bytes: usize,
    values: &mut [u8],
) -> io::Result<u32> {
    let count = (values.len() / bytes) as u32;
    let options = options!(bpf_map_batch_opts);
    // The kernel continues after the given key; without one it begins at key 0.
    let mut before = first.checked_sub(1);
    let before = before.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let mut keys = vec![0u32; count as usize];
    let (mut last, mut found) = (0u32, count);
    // SAFETY: buffers for `count` keys and values, options that live for the call, an open
    // descriptor.
    let result = check(unsafe {
        ffi::bpf_map_lookup_batch(
            map.as_raw_fd(),
            before.cast(),
            (&raw mut last).cast(),
            keys.as_mut_ptr().cast(),
            values.as_mut_ptr().cast(),
            &raw mut found,
            &raw const options,
        )
    });
    match result {
        // The kernel reports the end of the array with ENOENT, and the values before it are read.
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        // After a key beyond the end, the kernel begins at key 0 again.
        _ if found == 0 || keys[0] != first => Err(io::ErrorKind::NotFound.into()),
        _ => Ok(found),
    }
}
