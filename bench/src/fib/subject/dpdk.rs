//! DPDK's tables. Its libraries are not linked: `c/dpdk.c` is a separate shared object, loaded on
//! demand.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use libloading::Library;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Pid;
use sidestep_fib::Prefix;

use super::{Environment, Order, Reader, Stop, Subject, Trouble, Way};
use crate::fib::routes::Route;
use crate::fib::traffic::Addresses;
use crate::huge_pages::HugePages;

/// The shared object. Empty if libdpdk was missing at build time.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dpdk.so"));
/// Routes that may be added to a full table.
const SPARE: usize = 1024;
/// Number of routes inserted between two checks for an interrupt.
const STEP: usize = 4096;
/// Bytes of the table for the first 24 bits, and of each table for eight further bits, with 4-byte
/// next hops.
const FIRST_TABLE: u64 = 64 << 20;
const NEXT_TABLE: u64 = 1 << 10;
/// Maximum number of bytes that a rule needs in addition.
const RULE: u64 = 512;

type Open = unsafe extern "C" fn(u32, u32) -> *mut c_void;
type Close = unsafe extern "C" fn(*mut c_void);
type Insert = unsafe extern "C" fn(*mut c_void, *const u8, u8, u32) -> c_int;
type Remove = unsafe extern "C" fn(*mut c_void, *const u8, u8) -> c_int;
/// Arguments: table, addresses, which the call does not change, and their number.
type Loop = unsafe extern "C" fn(*mut c_void, *const [u8; 16], u32) -> u32;
type Dependent = unsafe extern "C" fn(*mut c_void, *const [u8; 16], u32, u64) -> u32;
type Answers = unsafe extern "C" fn(*mut c_void, *const [u8; 16], u32, *mut u32);
type UseVectors = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

/// The loaded library, which is never unloaded.
struct Dpdk {
    fib6: Functions,
    lpm6: Functions,
    error: unsafe extern "C" fn() -> *const c_char,
    memory: unsafe extern "C" fn() -> u64,
}

/// The functions of `c/dpdk.c` for one kind of table.
struct Functions {
    open: Open,
    close: Close,
    insert: Insert,
    remove: Remove,
    independent: Loop,
    dependent: Dependent,
    bulk: Loop,
    answers: Answers,
    /// Options of `rte_fib6` only.
    use_vectors: Option<UseVectors>,
}

/// Loads and initializes DPDK once.
fn dpdk() -> Result<&'static Dpdk, Trouble> {
    static STARTED: OnceLock<Result<Dpdk, String>> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        if OBJECT.is_empty() {
            return Err(MISSING.to_owned());
        }
        Dpdk::start()
    });
    started
        .as_ref()
        .map_err(|why| Trouble::Refused(why.clone()))
}

const MISSING: &str = "built without DPDK: install libdpdk-dev (Debian), then `cargo clean -p sidestep-bench` and build again";

impl Dpdk {
    fn start() -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("DPDK cannot be loaded: {error}");
        let mut file = memfd_create(c"sidestep-dpdk", MFdFlags::MFD_CLOEXEC)
            .map(std::fs::File::from)
            .map_err(|error| failed(&error))?;
        file.write_all(OBJECT).map_err(|error| failed(&error))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: the build script created this object. Its constructors are those of DPDK, which
        // may run at any time.
        let library = unsafe { Library::new(path) }.map_err(|error| failed(&error))?;
        let library: &'static Library = Box::leak(Box::new(library));
        Self::begin(library)?;
        Self::functions(library).map_err(|error| failed(&error))
    }

    /// Initializes DPDK, which pins the calling thread to one processor.
    fn begin(library: &'static Library) -> Result<(), String> {
        type Start = unsafe extern "C" fn(c_int, *mut *mut c_char) -> c_int;
        let this = Pid::from_raw(0);
        let before = sched_getaffinity(this).map_err(|error| error.to_string())?;
        let first = (0..CpuSet::count()).find(|cpu| before.is_set(*cpu) == Ok(true));
        let first = first.unwrap_or(0).to_string();
        let mut words = vec![
            "sidestep",
            "--in-memory",
            "--no-pci",
            "--no-telemetry",
            "--log-level=3",
            "--force-max-simd-bitwidth=512",
            "--iova-mode=va",
            "-l",
            &first,
        ];
        if HugePages::free() == 0 {
            words.extend(["--no-huge", "-m", "4096"]);
        }
        let words: Vec<_> = words
            .into_iter()
            .map(|word| CString::new(word).expect("no word has a zero"))
            .collect();
        let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr().cast_mut()).collect();
        // SAFETY: the type matches c/dpdk.c. DPDK only reorders the arguments, and keeps no pointer
        // beyond their lifetime.
        let result = unsafe {
            let start = library
                .get::<Start>(b"dpdk_start")
                .map_err(|error| error.to_string())?;
            start(pointers.len() as c_int, pointers.as_mut_ptr())
        };
        // If this fails, the thread remains on one processor, which is acceptable here.
        let _ = sched_setaffinity(this, &before);
        if result < 0 {
            return Err("DPDK does not start here; it needs root and free memory".into());
        }
        Ok(())
    }

    fn functions(library: &'static Library) -> Result<Self, libloading::Error> {
        // SAFETY: c/dpdk.c defines each symbol with the type given here.
        unsafe {
            let of = |kind: &str| -> Result<Functions, libloading::Error> {
                let name = |what: &str| format!("{kind}_{what}");
                Ok(Functions {
                    open: *library.get(name("open").as_bytes())?,
                    close: *library.get(name("close").as_bytes())?,
                    insert: *library.get(name("insert").as_bytes())?,
                    remove: *library.get(name("remove").as_bytes())?,
                    independent: *library.get(name("independent").as_bytes())?,
                    dependent: *library.get(name("dependent").as_bytes())?,
                    bulk: *library.get(name("bulk").as_bytes())?,
                    answers: *library.get(name("answers").as_bytes())?,
                    use_vectors: library
                        .get(name("use_vectors").as_bytes())
                        .ok()
                        .map(|it| *it),
                })
            };
            Ok(Self {
                fib6: of("fib6")?,
                lpm6: of("lpm6")?,
                error: *library.get(b"dpdk_error")?,
                memory: *library.get(b"dpdk_memory")?,
            })
        }
    }

    fn last_error(&self) -> String {
        // SAFETY: DPDK returns a static, terminated string, never null.
        let text = unsafe { CStr::from_ptr((self.error)()) };
        text.to_string_lossy().into_owned()
    }
}

/// A table of DPDK's.
pub struct Table {
    handle: *mut c_void,
    dpdk: &'static Dpdk,
    functions: &'static Functions,
    /// Whether AVX-512 can be chosen.
    vectors: bool,
    before: u64,
}

// SAFETY: DPDK's tables allow lookups by several threads; changes need `&mut`.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    pub fn fib6(environment: &Environment, routes: &[Route]) -> Result<Self, Trouble> {
        Self::open(environment, routes, reserved_tables(routes), |dpdk| {
            &dpdk.fib6
        })
    }

    pub fn lpm6(environment: &Environment, routes: &[Route]) -> Result<Self, Trouble> {
        Self::open(environment, routes, next_tables(routes), |dpdk| &dpdk.lpm6)
    }

    fn open(
        environment: &Environment,
        routes: &[Route],
        tables: usize,
        kind: fn(&Dpdk) -> &Functions,
    ) -> Result<Self, Trouble> {
        let tables = tables + SPARE;
        let rules = routes.len() + SPARE;
        let bytes = FIRST_TABLE + NEXT_TABLE * tables as u64 + RULE * rules as u64;
        environment.huge_pages.have_free(bytes);
        let dpdk = dpdk()?;
        let functions = kind(dpdk);
        // SAFETY: plain numbers.
        let (before, table) = unsafe {
            (
                (dpdk.memory)(),
                (functions.open)(rules as u32, tables as u32),
            )
        };
        if table.is_null() {
            let why = dpdk.last_error();
            return Err(Trouble::Refused(format!(
                "DPDK cannot create a table for {rules} rules with {tables} tables of eight bits: {why}"
            )));
        }
        // SAFETY: an open table.
        let vectors = functions
            .use_vectors
            .is_some_and(|choose| unsafe { choose(table, 1) } == 0);
        Ok(Self {
            handle: table,
            dpdk,
            functions,
            vectors,
            before,
        })
    }
}

/// Returns the number of tables that `rte_fib6` reserves for eight further bits before it accepts
/// the routes. It counts the tables of each route separately, although routes share them.
fn reserved_tables(routes: &[Route]) -> usize {
    let steps = |route: &Route| usize::from(route.prefix.length.saturating_sub(24)).div_ceil(8);
    // A change may reserve the same number again before it releases any, and DPDK's count is not
    // exact.
    routes.iter().map(steps).sum::<usize>() * 5 / 4 + 13 * SPARE
}

/// Returns the number of tables for eight further bits that the routes need beyond the first 24
/// bits.
fn next_tables(routes: &[Route]) -> usize {
    let mut count = 0;
    for depth in (24..128).step_by(8) {
        let mut parts: Vec<_> = (routes.iter())
            .filter(|route| route.prefix.length > depth)
            .map(|route| route.prefix.address >> (128 - depth))
            .collect();
        parts.sort_unstable();
        parts.dedup();
        count += parts.len();
    }
    count
}

impl Reader for Table {
    fn answers(&self, addresses: &Addresses) -> Result<Vec<u32>, Trouble> {
        let mut answers = vec![0; addresses.len()];
        // SAFETY: an open table, and as many addresses as answers.
        unsafe {
            let count = addresses.len() as u32;
            (self.functions.answers)(
                self.handle,
                addresses.wire.as_ptr(),
                count,
                answers.as_mut_ptr(),
            );
        }
        Ok(answers)
    }

    fn time(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        way: Way,
    ) -> Result<Duration, Trouble> {
        let wire = &addresses.wire[range];
        let (at, count) = (wire.as_ptr(), wire.len() as u32);
        // SAFETY: an open table, which one implementation searches at a time, and addresses that
        // live for the call.
        unsafe {
            if let Some(choose) = self.functions.use_vectors {
                choose(self.handle, (way.variant == AVX512).into());
            }
            let begun = Instant::now();
            match way.order {
                Order::Independent => (self.functions.independent)(self.handle, at, count),
                Order::Dependent => (self.functions.dependent)(self.handle, at, count, 0),
                Order::Batch => (self.functions.bulk)(self.handle, at, count),
            };
            Ok(begun.elapsed())
        }
    }
}

const AVX512: &str = "AVX-512";

impl Subject for Table {
    fn ways(&self) -> Vec<Way> {
        let mut ways = Way::SINGLE.to_vec();
        if self.functions.use_vectors.is_some() {
            ways.push(Way {
                order: Order::Batch,
                variant: "scalar",
            });
            if self.vectors {
                ways.push(Way {
                    order: Order::Batch,
                    variant: AVX512,
                });
            }
        } else {
            ways.push(Way::plain(Order::Batch));
        }
        ways
    }

    fn load(&mut self, routes: &[Route], stop: &Stop) -> Result<(), Trouble> {
        for some in routes.chunks(STEP) {
            stop.check()?;
            for route in some {
                self.insert(route.prefix, route.hop)?;
            }
        }
        Ok(())
    }

    fn insert(&mut self, prefix: Prefix, hop: u32) -> Result<(), Trouble> {
        let address = prefix.address.to_be_bytes();
        // SAFETY: an open table and 16 bytes.
        let result =
            unsafe { (self.functions.insert)(self.handle, address.as_ptr(), prefix.length, hop) };
        checked(result)
    }

    fn remove(&mut self, prefix: Prefix) -> Result<(), Trouble> {
        let address = prefix.address.to_be_bytes();
        // SAFETY: an open table and 16 bytes.
        let result =
            unsafe { (self.functions.remove)(self.handle, address.as_ptr(), prefix.length) };
        checked(result)
    }

    fn outside_heap(&self) -> u64 {
        // SAFETY: no arguments.
        unsafe { (self.dpdk.memory)() }.saturating_sub(self.before)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: an open table, which is not used afterwards.
        unsafe { (self.functions.close)(self.handle) }
    }
}

fn checked(result: c_int) -> Result<(), Trouble> {
    match result {
        0.. => Ok(()),
        error => Err(Trouble::of("DPDK", io::Error::from_raw_os_error(-error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_routes_share_are_counted_once() {
        let route = |address: u128, length| Route {
            prefix: Prefix::new(address << 64, length),
            hop: 1,
        };
        let (first, second) = (0x2001_0db8_0001_0000, 0x2001_0db8_0002_0000);
        assert_eq!(next_tables(&[route(first, 24)]), 0);
        // Each route has its own table for the bits 24 to 32, and both share none below.
        assert_eq!(next_tables(&[route(first, 48), route(second, 48)]), 3);
        assert_eq!(next_tables(&[route(first, 48), route(second, 64)]), 5);
    }
}
