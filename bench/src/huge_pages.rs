//! Reserves huge pages, and restores the pool at the end. A note in `/run` records which process
//! changed the pool, and its previous size, so that the next run restores it after a kill.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// Path of the note that exists while the pool is enlarged.
const NOTE: &str = "/run/sidestep-bench-huge-pages";
/// Size of a huge page in bytes.
const PAGE: u64 = 2 << 20;

/// The pool of 2 MiB pages. Dropping it restores the pool.
#[derive(Debug)]
pub struct HugePages {
    folder: PathBuf,
    note: PathBuf,
}

impl HugePages {
    /// Returns the pool, after restoring its size if a dead run has enlarged it.
    pub fn new() -> Self {
        Self::at(Path::new(FOLDER), Path::new(NOTE))
    }

    fn at(folder: &Path, note: &Path) -> Self {
        let pool = Self {
            folder: folder.to_owned(),
            note: note.to_owned(),
        };
        pool.put_back(Note::is_dead);
        pool
    }

    /// Enlarges the pool until this number of bytes and a reserve are free, if the kernel allows
    /// it. Uses at most half of the machine's free memory. Without root it stays as it is.
    pub fn have_free(&self, bytes: u64) {
        let free = self.read("free_hugepages").unwrap_or(0);
        let wanted = (bytes / PAGE * 5 / 4 + 32).saturating_sub(free);
        let room = available_memory() / 2 / PAGE;
        if wanted == 0 || room == 0 {
            return;
        }
        // Do not change the pool if it cannot be restored.
        let Ok(mut file) = locked(&self.note) else {
            return;
        };
        let (Some(this), Some(now)) = (started(std::process::id()), self.length()) else {
            return;
        };
        let there = Note::read(&mut file);
        // The first run records the size before all changes, unless another process has changed it
        // since.
        let (pid, started) = match there {
            Some(there) if !there.is_dead() => (there.pid, there.started),
            _ => (std::process::id(), this),
        };
        let there = there.filter(|there| there.raised == now);
        let note = Note {
            pid,
            started,
            before: there.map_or(now, |there| there.before),
            raised: now + wanted.min(room),
        };
        // Write the note before changing the pool, because the process may be killed between any
        // two steps.
        if note.write(&mut file).is_err() {
            return;
        }
        let _ = self.set(note.raised);
        // The kernel reserves as many pages as it can.
        if let Some(raised) = self.length() {
            let _ = Note { raised, ..note }.write(&mut file);
        }
    }

    /// Returns the bytes of unused huge pages.
    pub fn free() -> u64 {
        read(Path::new(FOLDER), "free_hugepages").unwrap_or(0)
    }

    /// Restores the pool if there is a note. Does not touch a pool that another process has changed
    /// since.
    fn put_back(&self, whose: fn(&Note) -> bool) {
        if !self.note.exists() {
            return;
        }
        // Without root, the pool was never changed.
        let Ok(mut file) = locked(&self.note) else {
            return;
        };
        let note = Note::read(&mut file);
        if let Some(note) = note {
            if !whose(&note) {
                return;
            }
            if self.length() == Some(note.raised) {
                let _ = self.set(note.before);
            }
        }
        let _ = fs::remove_file(&self.note);
    }

    /// Returns the number of persistent pages of the pool. Surplus pages are not counted: they
    /// exist after another process has restored the pool, until their user frees them.
    fn length(&self) -> Option<u64> {
        let all = self.read("nr_hugepages")?;
        Some(all.saturating_sub(self.read("surplus_hugepages").unwrap_or(0)))
    }

    fn set(&self, pages: u64) -> io::Result<()> {
        fs::write(self.folder.join("nr_hugepages"), pages.to_string())
    }

    fn read(&self, file: &str) -> Option<u64> {
        read(&self.folder, file)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        self.put_back(Note::is_ours);
    }
}

/// The process that enlarged the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    pid: u32,
    /// Start time of the process in ticks since boot, because another process may get the same ID
    /// later.
    started: u64,
    /// Number of pages before the change.
    before: u64,
    /// Number of pages after the change.
    raised: u64,
}

impl Note {
    /// All notes have this length, so that one write replaces a note.
    const LENGTH: usize = 96;

    fn read(file: &mut File) -> Option<Self> {
        let mut text = String::new();
        file.rewind().ok()?;
        file.read_to_string(&mut text).ok()?;
        let words: Vec<u64> = text
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        let [pid, started, before, raised] = words[..] else {
            return None;
        };
        Some(Self {
            pid: pid.try_into().ok()?,
            started,
            before,
            raised,
        })
    }

    fn write(&self, file: &mut File) -> io::Result<()> {
        let Self {
            pid,
            started,
            before,
            raised,
        } = self;
        let text = format!("{pid} {started} {before} {raised}");
        file.rewind()?;
        file.write_all(format!("{text:<width$}\n", width = Self::LENGTH - 1).as_bytes())
    }

    fn is_ours(&self) -> bool {
        self.pid == std::process::id() && !self.is_dead()
    }

    fn is_dead(&self) -> bool {
        started(self.pid) != Some(self.started)
    }
}

/// Start time of a process in ticks since boot (`starttime` of `proc_pid_stat(5)`). `None` if it
/// does not exist or is a zombie.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name before it may contain any character.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let is_there = !matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| is_there)
}

/// Opens and locks the note's file, and creates it if needed.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false);
        let file = file.open(path)?;
        file.lock()?;
        // The previous holder may have removed it.
        let (held, there) = (file.metadata()?, fs::metadata(path));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())) {
            return Ok(file);
        }
    }
}

fn read(folder: &Path, file: &str) -> Option<u64> {
    let text = fs::read_to_string(folder.join(file)).ok()?;
    text.trim().parse().ok()
}

fn available_memory() -> u64 {
    crate::memory::meminfo(&["MemAvailable"])
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// The test that runs in the child process.
    const CHILD: &str = "huge_pages::tests::a_killed_runs_pages_are_released_by_the_next_run";
    /// Environment variable with the folder of pool and note.
    const PLACE: &str = "SIDESTEP_TEST_HUGE_PAGES";

    /// A fake pool with this number of pages.
    fn pool(pages: u64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("folder");
        let files = [
            ("nr_hugepages", pages),
            ("free_hugepages", 0),
            ("surplus_hugepages", 0),
        ];
        for (name, value) in files {
            fs::write(folder.path().join(name), value.to_string()).expect("write");
        }
        folder
    }

    fn pages(folder: &Path) -> u64 {
        read(folder, "nr_hugepages").expect("a number")
    }

    fn at(folder: &Path) -> HugePages {
        HugePages::at(folder, &folder.join("note"))
    }

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Starts a process that enlarges the pool, and returns after it has done so.
    fn run(folder: &Path) -> Killed {
        let before = pages(folder);
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", CHILD])
            .env(PLACE, folder)
            .stdout(Stdio::null())
            .spawn();
        let child = Killed(child.expect("it starts"));
        let begun = Instant::now();
        while read(folder, "nr_hugepages").is_none_or(|now| now == before) {
            assert!(begun.elapsed() < Duration::from_secs(60), "it never did");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    #[test]
    fn a_killed_runs_pages_are_released_by_the_next_run() {
        if let Some(place) = std::env::var_os(PLACE) {
            let pool = at(Path::new(&place));
            pool.have_free(PAGE);
            // The test kills the process before this ends.
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let folder = pool(7);
        let folder = folder.path();
        drop(run(folder));
        assert_eq!(pages(folder), 7 + 33, "a kill puts nothing back");
        let next = at(folder);
        assert_eq!(pages(folder), 7);
        assert!(!folder.join("note").exists());
        next.have_free(2 * PAGE);
        assert_eq!(pages(folder), 7 + 34);
        next.have_free(2 * PAGE);
        drop(next);
        assert_eq!(pages(folder), 7, "as before the first change");
        assert!(!folder.join("note").exists());
    }

    #[test]
    fn a_running_process_keeps_its_pages_and_the_original_size_is_restored() {
        let folder = pool(7);
        let folder = folder.path();
        let living = run(folder);
        let other = at(folder);
        assert_eq!(pages(folder), 7 + 33);
        other.have_free(PAGE);
        drop(other);
        assert!(folder.join("note").exists());
        drop(living);
        assert_eq!(pages(folder), 7 + 2 * 33, "by both");
        drop(at(folder));
        assert_eq!(pages(folder), 7);
    }

    #[test]
    fn a_pool_that_another_process_changed_is_not_restored() {
        let folder = pool(7);
        let folder = folder.path();
        drop(run(folder));
        fs::write(folder.join("nr_hugepages"), "64").expect("write");
        drop(at(folder));
        assert_eq!(pages(folder), 64);
        assert!(!folder.join("note").exists());
    }
}
