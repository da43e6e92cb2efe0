//! How much memory something takes: asked before and after.

use std::fs;

/// Bytes that this process has allocated on its heap, all threads', by the C library's own books.
pub fn heap_bytes() -> u64 {
    // SAFETY: it only reads the allocator's books, under their locks.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// Bytes that the kernel has allocated for itself and cannot take back: slabs, per-CPU memory, vmalloc. Whatever else
/// happens on the machine is in it.
pub fn kernel_bytes() -> u64 {
    meminfo(&["SUnreclaim", "Percpu", "VmallocUsed"])
}

/// Bytes, the sum of these lines of `/proc/meminfo`.
pub fn meminfo(names: &[&str]) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let number = rest.split_whitespace().next()?.parse::<u64>().ok()?;
        names.contains(&name).then_some(number)
    });
    kibibytes.sum::<u64>() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted_and_what_is_freed_is_not() {
        // Other tests allocate and free beside it, but far less than half of this; it is never touched, so it costs
        // nothing.
        const SIZE: u64 = 4 << 30;
        let before = heap_bytes();
        let large = std::hint::black_box(Vec::<u8>::with_capacity(SIZE as usize));
        let with = heap_bytes();
        assert!(with >= before + SIZE / 2, "{before} {with}");
        drop(std::hint::black_box(large));
        assert!(heap_bytes() + SIZE / 2 <= with);
    }

    #[test]
    fn the_kernel_says_what_it_has() {
        assert!(kernel_bytes() > 1 << 20);
    }
}
