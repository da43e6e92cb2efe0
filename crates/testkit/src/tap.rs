//! Interfaces like those of a virtual machine: taps, whose other ends are files of this process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::lab::mac_text;
use crate::{Error, Namespace};

/// A tap device that is up, and the file at its other end. Drop removes it.
#[derive(Debug)]
pub struct Tap {
    file: File,
    mac: [u8; 6],
    offloads: bool,
}

impl Tap {
    /// Creates a device with this Ethernet address in a namespace. With `offloads`, each frame has
    /// a `virtio_net_hdr`, so that either side may leave checksums and TCP segmentation to the
    /// other, as virtual machines do (`IFF_VNET_HDR`). Without, frames are complete.
    ///
    /// # Errors
    /// `/dev/net/tun` or the name is unavailable, or the kernel refuses the address or the MTU
    /// (bytes of layer 3).
    pub fn create(
        namespace: &Namespace,
        ifname: &str,
        mac: [u8; 6],
        mtu: u32,
        offloads: bool,
    ) -> Result<Self, Error> {
        let what = || format!("tap {ifname} in {}", namespace.name());
        let opened = namespace.run(|| open(ifname, offloads))?;
        let file = opened.map_err(|source| Error::os(what(), source))?;
        let (address, mtu) = (mac_text(mac), mtu.to_string());
        let link = ["ip", "link", "set", ifname];
        namespace.exec(&[&link[..], &["address", &address, "mtu", &mtu, "up"]].concat())?;
        Ok(Self {
            file,
            mac,
            offloads,
        })
    }

    fn header(&self) -> usize {
        if self.offloads { VIRTIO_NET_HDR } else { 0 }
    }
}

/// A machine between two taps. It forwards each frame to its own MAC address from one tap to the
/// other, with a broadcast destination, and sends no replies. Drop stops it.
#[derive(Debug)]
pub struct Machine {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Machine {
    /// Starts a machine with this Ethernet address at both taps. Either both have offloads or
    /// neither.
    ///
    /// # Errors
    /// Only one tap has offloads, or no thread can be started.
    pub fn start(taps: [Tap; 2], mac: [u8; 6]) -> Result<Self, Error> {
        if taps[0].offloads != taps[1].offloads {
            return Err(Error::Usage("one tap with offloads, one without".into()));
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let thread = thread::Builder::new()
            .name("machine".into())
            .spawn(move || forward(&taps, mac, &stop));
        let thread = thread.map_err(|source| Error::os("start a machine's thread", source))?;
        Ok(Self {
            stopping,
            thread: Some(thread),
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Frames that the other device does not accept are lost, as on a link.
fn forward(taps: &[Tap; 2], mac: [u8; 6], stop: &AtomicBool) {
    let mut frame = vec![0; FRAME_MAX];
    while !stop.load(Ordering::Acquire) {
        let mut ready = taps
            .each_ref()
            .map(|tap| PollFd::new(tap.file.as_fd(), PollFlags::POLLIN));
        if poll(&mut ready, PollTimeout::from(LOOK)).is_err() {
            return;
        }
        for (from, to) in [(&taps[0], &taps[1]), (&taps[1], &taps[0])] {
            let at = from.header();
            while let Ok(length) = (&from.file).read(&mut frame) {
                let frame = &mut frame[..length];
                if length < at + ETHERNET || frame[at..at + 6] != mac {
                    continue;
                }
                frame[at..at + 6].copy_from_slice(&to.mac);
                frame[at + 6..at + 12].copy_from_slice(&mac);
                let _ = (&to.file).write(frame);
            }
        }
    }
}

fn open(ifname: &str, offloads: bool) -> io::Result<File> {
    let name = ifname.as_bytes();
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // SAFETY: ifreq is plain data, and all zeros is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let vnet_hdr = if offloads { libc::IFF_VNET_HDR } else { 0 };
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | vnet_hdr) as libc::c_short;
    // SAFETY: an open descriptor, and a request that lives until the call has returned.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw const request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let left: libc::c_uint = if offloads {
        libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6
    } else {
        0
    };
    // SAFETY: as above; the argument is a number.
    if unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::TUNSETOFFLOAD as _,
            libc::c_ulong::from(left),
        )
    } < 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// `struct virtio_net_hdr` of `<linux/virtio_net.h>`.
const VIRTIO_NET_HDR: usize = 10;
/// The longest packet before segmentation, with its headers.
const FRAME_MAX: usize = 1 << 17;
const ETHERNET: usize = 14;
/// Time limit of one poll for frames, in milliseconds.
const LOOK: u8 = 20;
