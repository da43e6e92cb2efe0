//! Threads that poll a port (threaded NAPI), pinned to the CPU that a campaign names.
//!
//! Without them, a veth pair processes a frame in the loop of its sender, so generator, system and
//! sink share one CPU.

use std::io;
use std::os::fd::AsRawFd as _;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use nix::unistd::Pid;

use sidestep_testkit::{Error, Namespace};

/// Enables threaded NAPI on a port. The threads start when the port gets NAPI; a veth port has it
/// while an XDP program is attached.
///
/// # Errors
/// The driver has no NAPI.
pub fn thread(namespace: &Namespace, ifname: &str) -> Result<(), Error> {
    let file = format!("/sys/class/net/{ifname}/threaded");
    let write = format!("echo 1 > {file}");
    namespace.exec(&["sh", "-c", &write]).map(drop)
}

/// Returns true if a port's polling threads can be found. The kernel reports them (Linux 6.8) by
/// their IDs in the initial PID namespace.
pub fn can_pin() -> bool {
    let namespace = std::fs::read_link("/proc/self/ns/pid");
    // PROC_PID_INIT_INO of <linux/proc_ns.h>; the loopback interface has no NAPI.
    let first = namespace.is_ok_and(|link| link.as_os_str() == "pid:[4026531836]");
    first && threads(LOOPBACK).is_ok()
}

/// Moves the threads that poll a port to a CPU.
///
/// # Errors
/// The port has no polling threads, the kernel does not report them (before Linux 6.8), a PID
/// namespace hides them, or the CPU does not exist.
pub fn pin(namespace: &Namespace, ifname: &str, cpu: usize) -> Result<(), Error> {
    let place = format!("{ifname} of {}", namespace.name());
    let ifindex = namespace.ifindex(ifname)?;
    let threads = namespace
        .run(|| threads(ifindex))?
        .map_err(|source| Error::os(format!("read the NAPI threads of {place}"), source))?;
    if threads.is_empty() {
        return Err(Error::Usage(format!(
            "no thread polls {place}: put generator, system and sink on one CPU"
        )));
    }
    // The kernel reports thread IDs of the initial PID namespace. In another namespace the same IDs
    // belong to other threads, or to none.
    let seen = |pid: &Pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("napi/"))
    };
    if !threads.iter().all(seen) {
        return Err(Error::Usage(format!(
            "the threads that poll {place} cannot be seen from this PID namespace: put generator, system and sink on one CPU, \
             or measure outside the container"
        )));
    }
    let mut set = CpuSet::new();
    let pinned = set.set(cpu).and_then(|()| {
        threads
            .iter()
            .try_for_each(|pid| sched_setaffinity(*pid, &set))
    });
    pinned.map_err(|source| Error::os(format!("poll {place} on CPU {cpu}"), source))?;
    for pid in threads {
        // CPU time of other threads reduces the rate, as for the generator. SAFETY: a system call
        // without pointers. If it is refused, measure without it.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, pid.as_raw() as libc::id_t, NICE) };
    }
    Ok(())
}

/// Returns the threads that poll an interface of the calling thread's namespace. Sends `napi-get`
/// of the generic netlink family `netdev`.
fn threads(ifindex: u32) -> io::Result<Vec<Pid>> {
    let family = ask(
        GENL_ID_CTRL,
        libc::NLM_F_REQUEST,
        CTRL_CMD_GETFAMILY,
        (CTRL_ATTR_FAMILY_NAME, b"netdev\0"),
    )?;
    let number = |bytes: &[u8]| bytes.first_chunk().map(|it| u16::from_ne_bytes(*it));
    let family = family
        .iter()
        .flat_map(|body| attributes(body))
        .find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID);
    let family = family.and_then(|(_, value)| number(value));
    let family = family.ok_or(io::ErrorKind::Unsupported)?;
    let all = ask(
        family,
        libc::NLM_F_REQUEST | libc::NLM_F_DUMP,
        NETDEV_CMD_NAPI_GET,
        (NETDEV_A_NAPI_IFINDEX, &ifindex.to_ne_bytes()),
    )?;
    let number = |bytes: &[u8]| bytes.first_chunk().map(|it| u32::from_ne_bytes(*it));
    Ok(all
        .iter()
        .flat_map(|body| attributes(body))
        .filter(|(kind, _)| *kind == NETDEV_A_NAPI_PID)
        .filter_map(|(_, value)| number(value))
        .map(|pid| Pid::from_raw(pid as i32))
        .collect())
}

/// Sends a request with one attribute, and returns the attributes of each reply.
fn ask(
    family: u16,
    flags: libc::c_int,
    command: u8,
    (kind, value): (u16, &[u8]),
) -> io::Result<Vec<Vec<u8>>> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkGeneric,
    )?;
    let padded = value.len().next_multiple_of(4);
    let length = (HEADERS + ATTRIBUTE + padded) as u32;
    let mut request = length.to_ne_bytes().to_vec();
    request.extend(family.to_ne_bytes());
    request.extend((flags as u16).to_ne_bytes());
    // Sequence number and port can be 0, because only one request is outstanding.
    request.extend([0; 8]);
    request.extend([command, 1, 0, 0]);
    request.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(value);
    request.resize(length as usize, 0);
    let kernel = NetlinkAddr::new(0, 0);
    sendto(socket.as_raw_fd(), &request, &kernel, MsgFlags::empty())?;
    let mut answers = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let received = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = &buffer[..received];
        while let Some(message) = message(rest) {
            let kind = u16::from_ne_bytes([message[4], message[5]]);
            match libc::c_int::from(kind) {
                libc::NLMSG_DONE => return Ok(answers),
                libc::NLMSG_ERROR => {
                    let code = message.get(16..20).and_then(|code| code.first_chunk());
                    let code = code.map_or(libc::EPROTO, |code| -i32::from_ne_bytes(*code));
                    return Err(io::Error::from_raw_os_error(code));
                }
                _ => answers.push(message.get(HEADERS..).unwrap_or_default().to_vec()),
            }
            rest = rest
                .get(message.len().next_multiple_of(4)..)
                .unwrap_or_default();
        }
        if flags & libc::NLM_F_DUMP != libc::NLM_F_DUMP {
            return Ok(answers);
        }
    }
}

/// Returns the first message of a datagram.
fn message(bytes: &[u8]) -> Option<&[u8]> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    bytes.get(..length).filter(|it| it.len() >= 16)
}

/// Returns type and value of each attribute.
fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let [a, b, c, d, ..] = *bytes {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let Some(value) = bytes.get(ATTRIBUTE..length) else {
            break;
        };
        found.push((u16::from_ne_bytes([c, d]), value));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

const LOOPBACK: u32 = 1;
/// Highest priority of a thread without real-time scheduling.
const NICE: libc::c_int = -20;
/// Size of `struct nlmsghdr` and `struct genlmsghdr`.
const HEADERS: usize = 20;
/// Size of `struct nlattr`.
const ATTRIBUTE: usize = 4;
// <linux/genetlink.h>
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
// <linux/netdev.h>
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_PID: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_testkit::Napi;
    use sidestep_testkit::{Lab, root_or_skip};

    #[test]
    fn attributes_are_parsed_and_truncated_ones_are_ignored() {
        let mut bytes = [&6u16.to_ne_bytes()[..], &1u16.to_ne_bytes(), &[7, 8, 0, 0]].concat();
        bytes.extend([&8u16.to_ne_bytes()[..], &4u16.to_ne_bytes(), &[1, 2, 3, 4]].concat());
        let all = attributes(&bytes);
        assert_eq!(all, [(1, &[7, 8][..]), (4, &[1, 2, 3, 4][..])]);
        assert_eq!(attributes(&bytes[..15]), all[..1]);
    }

    #[test]
    fn a_port_is_polled_on_the_given_cpu() {
        if !root_or_skip() {
            return;
        }
        let mut lab = Lab::new("napi").expect("lab");
        lab.node("a")
            .and_then(|lab| lab.node("b"))
            .and_then(|lab| lab.link("a", "eth0", "b", "eth0"))
            .expect("two nodes");
        let far = lab.namespace("b").expect("b");
        assert!(pin(far, "eth0", 0).is_err(), "no thread yet");
        let _napi = Napi::attach(far, "eth0").expect("NAPI");
        thread(far, "eth0").expect("threaded");
        let cpu = nix::sched::sched_getcpu().expect("a CPU");
        let pinned = pin(far, "eth0", cpu);
        assert_eq!(pinned.is_ok(), can_pin(), "{pinned:?}");
        if let Err(error) = pinned {
            sidestep_testkit::capability::skip(&error.to_string());
            return;
        }
        let ifindex = far.ifindex("eth0").expect("index");
        let pids = far.run(|| threads(ifindex)).expect("enter").expect("asked");
        assert!(!pids.is_empty());
        for pid in pids {
            let set = nix::sched::sched_getaffinity(pid).expect("affinity");
            let on: Vec<usize> = (0..CpuSet::count())
                .filter(|it| set.is_set(*it) == Ok(true))
                .collect();
            assert_eq!(on, [cpu]);
        }
    }
}
