//! The socket of AF_XDP, for sending only: memory for the packets, and the two rings by which they go out and come back.
//! Linux, `Documentation/networking/af_xdp.rst`; plain system calls, since sending needs four of them and two rings.

use std::io;
use std::mem;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::Mode;

/// A socket that is bound to a queue.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    packets: Mapping,
    sending: Ring,
    done: Ring,
    /// Chunks that the kernel does not have.
    free: Vec<u32>,
    /// Which template each chunk holds a packet of.
    holds: Vec<Option<usize>>,
    completed: u64,
    zero_copy: bool,
}

impl Socket {
    /// Opens one in the namespace of the calling thread.
    pub fn open(ifindex: u32, queue: u32, mode: Mode) -> io::Result<Self> {
        // SAFETY: a system call without pointers; the descriptor is new and nobody else knows it.
        let fd = unsafe {
            let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let packets = Mapping::anonymous((CHUNKS * CHUNK) as usize)?;
        // SAFETY: plain data, all zeros is a value of it.
        let mut memory: libc::xdp_umem_reg = unsafe { mem::zeroed() };
        memory.addr = packets.at.as_ptr() as u64;
        memory.len = u64::from(CHUNKS * CHUNK);
        memory.chunk_size = CHUNK;
        set(&fd, libc::XDP_UMEM_REG, &memory)?;
        // Nothing is received, but without a fill ring there is no socket.
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_TX_RING,
        ] {
            set(&fd, ring, &CHUNKS)?;
        }
        // SAFETY: plain data, all zeros is a value of it.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
        get(&fd, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        let descriptor = size_of::<libc::xdp_desc>();
        let sending = Ring::map(&fd, libc::XDP_PGOFF_TX_RING, &offsets.tx, descriptor)?;
        let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let done = Ring::map(&fd, completion, &offsets.cr, size_of::<u64>())?;
        // SAFETY: plain data, all zeros is a value of it.
        let mut address: libc::sockaddr_xdp = unsafe { mem::zeroed() };
        address.sxdp_family = libc::AF_XDP as u16;
        address.sxdp_flags = libc::XDP_USE_NEED_WAKEUP
            | match mode {
                Mode::Copy => libc::XDP_COPY,
                Mode::ZeroCopy => libc::XDP_ZEROCOPY,
                Mode::Auto => 0,
            };
        address.sxdp_ifindex = ifindex;
        address.sxdp_queue_id = queue;
        bind(&fd, &address)?;
        let mut options = libc::xdp_options { flags: 0 };
        get(&fd, libc::XDP_OPTIONS, &mut options)?;
        Ok(Self {
            fd,
            packets,
            sending,
            done,
            free: (0..CHUNKS).collect(),
            holds: vec![None; CHUNKS as usize],
            completed: 0,
            zero_copy: options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0,
        })
    }

    /// Whether the driver sends from the socket's memory.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Packets that the kernel has given back since the socket was opened.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Whether there is memory for one more packet; the ring has as many places.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Puts a packet into the ring: `write` is given the memory, and which template it holds, and returns the length. There has
    /// to be room.
    pub fn push(&mut self, write: impl FnOnce(&mut [u8], &mut Option<usize>) -> usize) {
        let Some(chunk) = self.free.pop() else { return };
        let at = u64::from(chunk) * u64::from(CHUNK);
        // SAFETY: the chunk lies within the mapping, and only this side has it until it is in the ring.
        let memory = unsafe {
            let start = self.packets.at.as_ptr().cast::<u8>().add(at as usize);
            std::slice::from_raw_parts_mut(start, CHUNK as usize)
        };
        let length = write(memory, &mut self.holds[chunk as usize]);
        let descriptor = libc::xdp_desc {
            addr: at,
            len: length as u32,
            options: 0,
        };
        // SAFETY: the ring has places for all chunks, so this one is the kernel's no more.
        unsafe { self.sending.put(descriptor) };
    }

    /// Has the kernel send what is in the ring.
    pub fn submit(&mut self) -> io::Result<()> {
        self.sending.publish();
        if self.sending.is_empty() || !self.sending.needs_wakeup() {
            return Ok(());
        }
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: an open descriptor, no data and no address.
        let sent = unsafe { libc::sendto(fd, std::ptr::null(), 0, flags, std::ptr::null(), 0) };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // Not all at once, or not now: what is left stays in the ring for the next call.
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }

    /// Takes back what the kernel has sent.
    pub fn reclaim(&mut self) {
        // SAFETY: the completion ring holds addresses.
        while let Some(at) = unsafe { self.done.take::<u64>() } {
            self.free.push((at / u64::from(CHUNK)) as u32);
            self.completed += 1;
        }
    }
}

/// One of the kernel's rings: places for [`CHUNKS`] entries, a counter for who puts in and one for who takes out.
#[derive(Debug)]
struct Ring {
    _mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<u8>,
    /// This side's counter, which the other side sees when it is published.
    own: u32,
}

// SAFETY: the pointers lead into a mapping that the ring owns; the kernel does not care which thread uses it.
unsafe impl Send for Ring {}

impl Ring {
    fn map(
        fd: &OwnedFd,
        offset: libc::off_t,
        offsets: &libc::xdp_ring_offset,
        entry: usize,
    ) -> io::Result<Self> {
        let length = offsets.desc as usize + CHUNKS as usize * entry;
        let mapping = Mapping::of(fd, offset, length)?;
        let at = |offset: u64| {
            // SAFETY: the kernel says where in the mapping its parts are.
            unsafe { mapping.at.cast::<u8>().add(offset as usize) }
        };
        Ok(Self {
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: at(offsets.flags).cast(),
            entries: at(offsets.desc),
            own: 0,
            _mapping: mapping,
        })
    }

    /// Writes the next entry.
    ///
    /// # Safety
    /// `T` is what the ring holds, and it is not full.
    unsafe fn put<T>(&mut self, entry: T) {
        let place = (self.own % CHUNKS) as usize;
        // SAFETY: the place lies within the mapping, and the kernel does not read it before it is published.
        unsafe { self.entries.cast::<T>().add(place).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// Reads the next entry, if there is one.
    ///
    /// # Safety
    /// `T` is what the ring holds.
    unsafe fn take<T: Copy>(&mut self) -> Option<T> {
        // SAFETY: the counters live as long as the mapping.
        let (producer, consumer) = unsafe { (self.producer.as_ref(), self.consumer.as_ref()) };
        if producer.load(Ordering::Acquire) == self.own {
            return None;
        }
        let place = (self.own % CHUNKS) as usize;
        // SAFETY: the place lies within the mapping, and the kernel has published it.
        let entry = unsafe { self.entries.cast::<T>().add(place).read() };
        self.own = self.own.wrapping_add(1);
        consumer.store(self.own, Ordering::Release);
        Some(entry)
    }

    /// Shows the kernel what was put in.
    fn publish(&self) {
        // SAFETY: the counter lives as long as the mapping.
        unsafe { self.producer.as_ref() }.store(self.own, Ordering::Release);
    }

    /// Whether the kernel has taken all that was put in.
    fn is_empty(&self) -> bool {
        // SAFETY: the counter lives as long as the mapping.
        unsafe { self.consumer.as_ref() }.load(Ordering::Acquire) == self.own
    }

    /// Whether the kernel looks into the ring only when it is called.
    fn needs_wakeup(&self) -> bool {
        // SAFETY: the flags live as long as the mapping.
        let flags = unsafe { self.flags.as_ref() }.load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// Memory that is shared with the kernel; given back when dropped.
#[derive(Debug)]
struct Mapping {
    at: NonNull<libc::c_void>,
    length: usize,
}

// SAFETY: memory, owned, and the same in all threads.
unsafe impl Send for Mapping {}

impl Mapping {
    fn anonymous(length: usize) -> io::Result<Self> {
        let size = NonZeroUsize::new(length).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE;
        // SAFETY: new memory, wherever the kernel likes.
        let at = unsafe { mmap_anonymous(None, size, access, flags) }?;
        Ok(Self { at, length })
    }

    fn of(fd: &OwnedFd, offset: libc::off_t, length: usize) -> io::Result<Self> {
        let size = NonZeroUsize::new(length).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: new memory, wherever the kernel likes.
        let at = unsafe { mmap(None, size, access, flags, fd, offset) }?;
        Ok(Self { at, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this value, and nobody uses it any more. It fails for wrong addresses only.
        let _ = unsafe { munmap(self.at, self.length) };
    }
}

/// Binds the socket to its queue. That of a socket that was closed just now comes free only when a worker of the kernel has got
/// to it (`xp_put_pool()` in `net/xdp/xsk_buff_pool.c`).
fn bind(fd: &OwnedFd, address: &libc::sockaddr_xdp) -> io::Result<()> {
    let length = size_of_val(address) as libc::socklen_t;
    let begun = Instant::now();
    loop {
        // SAFETY: an open descriptor, and an address that lives until the call has returned.
        if unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EBUSY) || begun.elapsed() > PATIENCE {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// How long a queue may be taken.
const PATIENCE: Duration = Duration::from_secs(1);

fn set<T>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: an open descriptor, and a value that lives until the call has returned.
    let set = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, value, length) };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn get<T>(fd: &OwnedFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let (value, fd) = (std::ptr::from_mut(value).cast(), fd.as_raw_fd());
    // SAFETY: an open descriptor, and a value as long as it says that lives until the call has returned.
    let got = unsafe { libc::getsockopt(fd, libc::SOL_XDP, option, value, &raw mut length) };
    if got == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bytes of memory for one packet: a page, as zero copy wants it.
const CHUNK: u32 = 4096;
/// Packets that may be under way, and places of each ring: a power of two.
const CHUNKS: u32 = 1024;

const _: () = assert!(CHUNKS.is_power_of_two());
const _: () = assert!(super::super::stream::Template::FRAME_MAX <= CHUNK as usize);
