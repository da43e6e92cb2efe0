//! Memory in use, read before and after an operation.

use std::fs;

/// Returns the heap bytes of all threads of this process, from the statistics of the C library.
pub fn heap_bytes() -> u64 {
    // SAFETY: the call only reads the allocator's statistics, under their locks.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// Returns the bytes of unreclaimable kernel memory: slabs, per-CPU memory, vmalloc. Other activity
/// of the machine changes it too.
pub fn kernel_bytes() -> u64 {
    meminfo(&["SUnreclaim", "Percpu", "VmallocUsed"])
}

/// Returns the sum of these lines of `/proc/meminfo` in bytes.
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
    fn allocated_bytes_are_counted_and_freed_ones_are_not() {
        // Other tests allocate and free concurrently, but far less than half of this. The memory is
        // never touched, so it is never populated.
        const SIZE: u64 = 4 << 30;
        let before = heap_bytes();
        let large = std::hint::black_box(Vec::<u8>::with_capacity(SIZE as usize));
        let with = heap_bytes();
        assert!(with >= before + SIZE / 2, "{before} {with}");
        drop(std::hint::black_box(large));
        assert!(heap_bytes() + SIZE / 2 <= with);
    }

    #[test]
    fn kernel_memory_is_reported() {
        assert!(kernel_bytes() > 1 << 20);
    }
}
