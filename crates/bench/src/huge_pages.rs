//! Huge pages for those who need them set aside; given back at the end.

use std::fs;
use std::sync::Mutex;

const FOLDER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// Bytes of one.
const PAGE: u64 = 2 << 20;

/// The pool of 2 MiB pages. Dropping it puts the pool back to what it was.
#[derive(Debug)]
pub struct HugePages {
    /// How many there were; none if nobody may change that.
    before: Mutex<Option<u64>>,
}

impl HugePages {
    /// The pool as it is.
    pub fn new() -> Self {
        Self {
            before: Mutex::new(None),
        }
    }

    /// Makes the pool longer until so many bytes are free, and some to spare; as far as the kernel lets it, and not with
    /// more than half of the memory that the machine has left.
    pub fn have_free(&self, bytes: u64) {
        let wanted = (bytes / PAGE * 5 / 4 + 32).saturating_sub(Self::free());
        let Some(all) = read("nr_hugepages").filter(|_| wanted > 0) else {
            return;
        };
        // Surplus pages go with the program that has them: a pool that somebody else has just given back.
        let now = all.saturating_sub(read("surplus_hugepages").unwrap_or(0));
        let room = available_memory() / 2 / PAGE;
        let mut before = self.before.lock().expect("nobody panics with it");
        // Without root it stays as it is.
        if fs::write(
            format!("{FOLDER}/nr_hugepages"),
            (now + wanted.min(room)).to_string(),
        )
        .is_ok()
        {
            before.get_or_insert(now);
        }
    }

    /// Pages that nobody uses.
    pub fn free() -> u64 {
        read("free_hugepages").unwrap_or(0)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let before = self.before.lock().map_or(None, |before| *before);
        if let Some(before) = before {
            // There is nobody to tell.
            let _ = fs::write(format!("{FOLDER}/nr_hugepages"), before.to_string());
        }
    }
}

fn read(file: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("{FOLDER}/{file}")).ok()?;
    text.trim().parse().ok()
}

fn available_memory() -> u64 {
    crate::memory::meminfo(&["MemAvailable"])
}
