//! A network namespace in which closures and commands run, removed on drop.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Error;

/// Directory of named namespaces, as in iproute2: `ip netns exec NAME …` works with all of the
/// lab's namespaces.
pub const DIRECTORY: &str = "/run/netns";

/// A named network namespace that this process created. Drop kills the processes inside and removes
/// it.
#[derive(Debug)]
pub struct Namespace {
    handle: Handle,
    /// Whether drop removes the namespace.
    owned: bool,
}

/// A reference to a namespace that does not keep its name; cheap to clone, and usable after the
/// [`Namespace`] is dropped.
#[derive(Clone, Debug)]
pub struct Handle {
    name: String,
    file: Arc<File>,
}

impl Handle {
    /// As [`Namespace::run`].
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn run<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let entered = thread::scope(|scope| {
            let inside = || -> Result<T, Error> {
                self.enter()?;
                Ok(closure())
            };
            scope.spawn(inside).join()
        });
        entered.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Moves the calling thread into the namespace permanently.
    ///
    /// # Errors
    /// The kernel refuses (no `CAP_SYS_ADMIN`).
    pub fn enter(&self) -> Result<(), Error> {
        let entered = setns(&*self.file, CloneFlags::CLONE_NEWNET);
        entered.map_err(|source| Error::os(format!("enter {}", self.name), source))
    }
}

impl Namespace {
    /// Creates the namespace `name`, with its loopback interface up.
    ///
    /// # Errors
    /// The name exists, or the process may not create namespaces.
    pub fn create(name: &str) -> Result<Self, Error> {
        let words = ["ip", "netns", "add", name];
        let mut command = Command::new(words[0]);
        // A separate process group: this process handles Ctrl-C, so that no setup stops halfway.
        command.args(&words[1..]).process_group(0);
        check(&words, "the host", command.output())?;
        let mut namespace = Self::open(name)?;
        namespace.owned = true;
        namespace.exec(&["ip", "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Opens an existing namespace, which remains after the value is dropped.
    ///
    /// # Errors
    /// No namespace has this name.
    pub fn open(name: &str) -> Result<Self, Error> {
        let path = Path::new(DIRECTORY).join(name);
        let file = File::open(&path)
            .map_err(|source| Error::os(format!("open {}", path.display()), source))?;
        Ok(Self {
            handle: Handle {
                name: name.to_owned(),
                file: Arc::new(file),
            },
            owned: false,
        })
    }

    /// Returns its name in [`DIRECTORY`].
    pub fn name(&self) -> &str {
        &self.handle.name
    }

    /// Runs `closure` on a separate thread inside the namespace and returns its result. Sockets,
    /// BPF links and files of `/proc/sys/net` that it opens belong to the namespace, and may be
    /// returned.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    ///
    /// # Panics
    /// If `closure` panics.
    pub fn run<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.handle.run(closure)
    }

    /// Returns the kernel's counters of IPv6, and of IPv4, TCP and UDP with their group in front
    /// (`TcpExtTCPRcvCoalesce`). These are `snmp6`, `snmp` and `netstat` in `/proc/net`.
    ///
    /// # Errors
    /// The namespace cannot be entered, or a file is missing.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>, Error> {
        self.run(|| {
            let read = |file: &str| {
                let path = format!("/proc/thread-self/net/{file}");
                fs::read_to_string(&path)
                    .map_err(|source| Error::os(format!("read {path}"), source))
            };
            let mut all = BTreeMap::new();
            for line in read("snmp6")?.lines() {
                let mut words = line.split_whitespace();
                if let (Some(name), Some(value)) = (words.next(), words.next()) {
                    all.insert(name.to_owned(), value.parse().unwrap_or_default());
                }
            }
            for file in ["snmp", "netstat"] {
                let text = read(file)?;
                let lines: Vec<&str> = text.lines().collect();
                for pair in lines.chunks_exact(2) {
                    let mut words = pair[0].split_whitespace().zip(pair[1].split_whitespace());
                    let group = words
                        .next()
                        .map_or("", |(group, _)| group.trim_end_matches(':'));
                    all.extend(words.map(|(name, value)| {
                        (format!("{group}{name}"), value.parse().unwrap_or_default())
                    }));
                }
            }
            Ok(all)
        })?
    }

    /// Returns a reference with which other threads can enter the namespace.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns a command that runs inside, with the namespace's `/sys`. bpffs stays the outer one,
    /// so that pins outlive the command.
    pub fn command(&self, program: &str) -> Command {
        let file = Arc::clone(&self.handle.file);
        let mut command = Command::new(program);
        // SAFETY: between fork and exec the closure makes only system calls; it neither allocates nor takes a lock.
        unsafe { command.pre_exec(move || enter_with_sysfs(file.as_raw_fd())) };
        command
    }

    /// Runs a command inside and returns its output. Ctrl-C on the terminal does not reach it, so
    /// it always completes.
    ///
    /// # Errors
    /// Contains the arguments, the exit code and stderr.
    pub fn exec(&self, words: &[&str]) -> Result<String, Error> {
        let (program, arguments) = split(words)?;
        check(
            words,
            &self.handle.name,
            self.command(program)
                .args(arguments)
                .process_group(0)
                .output(),
        )
    }

    /// As [`Self::exec`], with `input` on stdin. Returns the output whether or not the command
    /// succeeds.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn exec_with_input(&self, words: &[&str], input: &str) -> Result<Output, Error> {
        let (program, arguments) = split(words)?;
        let not_started = |source| failed(words, &self.handle.name, &source);
        let mut child = self
            .command(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(not_started)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read all of its input reports the reason on stderr.
            let _ = stdin.write_all(input.as_bytes());
        }
        child.wait_with_output().map_err(not_started)
    }

    /// Runs `ip sr hmac set`, which reads the secret from the terminal, or from stdin without one.
    /// An empty secret removes the key.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_hmac(&self, id: u32, algorithm: &str, secret: &str) -> Result<(), Error> {
        let id = id.to_string();
        let words = [
            "setsid", "--wait", "ip", "sr", "hmac", "set", &id, algorithm,
        ];
        let output = self.exec_with_input(&words, &format!("{secret}\n"))?;
        check(&words, &self.handle.name, Ok(output)).map(|_| ())
    }

    /// Starts a command inside, without stdin, and with the output of this process. Dropping the
    /// guard kills it.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn spawn(&self, words: &[&str]) -> Result<Process, Error> {
        let (program, arguments) = split(words)?;
        let child = self
            .command(program)
            .args(arguments)
            .stdin(Stdio::null())
            .spawn();
        child
            .map(Process)
            .map_err(|source| failed(words, &self.handle.name, &source))
    }

    /// Writes a sysctl. `path` is below `/proc/sys`, with slashes, because an interface name may
    /// contain a dot.
    ///
    /// # Errors
    /// The sysctl does not exist, or does not accept the value.
    pub fn sysctl(&self, path: &str, value: &str) -> Result<(), Error> {
        let file = Path::new("/proc/sys").join(path);
        self.run(|| fs::write(&file, value))?
            .map_err(|source| Error::os(format!("{}: {path} = {value}", self.handle.name), source))
    }

    /// Returns the index of an interface of this namespace.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn ifindex(&self, ifname: &str) -> Result<u32, Error> {
        self.run(|| nix::net::if_::if_nametoindex(ifname))?
            .map_err(|source| {
                Error::os(
                    format!("interface {ifname} of {}", self.handle.name),
                    source,
                )
            })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The next sweep removes leftovers: their names carry this process' ID.
        if self.owned {
            let _ = remove(&self.handle.name);
        }
    }
}

/// A command running in a namespace, killed on drop.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Returns the child process, to wait for it or to read its ID.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Removes a named namespace and the processes inside, which would keep it alive.
pub fn remove(name: &str) -> io::Result<()> {
    let path = Path::new(DIRECTORY).join(name);
    for pid in processes_inside(&path) {
        let _ = kill(pid, Signal::SIGKILL);
    }
    match umount2(&path, MntFlags::MNT_DETACH) {
        // A file that is not mounted remains from an interrupted creation.
        Ok(()) | Err(Errno::EINVAL) => fs::remove_file(&path),
        Err(error) => Err(error.into()),
    }
}

/// Returns the other processes whose network namespace is mounted at `path`.
fn processes_inside(path: &Path) -> Vec<Pid> {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |path: PathBuf| fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
    let Some(namespace) = identity(path.to_owned()) else {
        return Vec::new();
    };
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(|pid| *pid != Pid::this())
        .filter(|pid| identity(format!("/proc/{pid}/ns/net").into()) == Some(namespace))
        .collect()
}

/// Splits a command line into the program and its arguments.
fn split<'a>(words: &'a [&'a str]) -> Result<(&'a str, &'a [&'a str]), Error> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| Error::Usage("an empty command".into()))?;
    Ok((program, arguments))
}

/// Returns the text of stdout if the command exited with 0.
fn check(words: &[&str], namespace: &str, output: io::Result<Output>) -> Result<String, Error> {
    let output = output.map_err(|source| failed(words, namespace, &source))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Command {
        command: words.join(" "),
        namespace: namespace.to_owned(),
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr)
            .trim_end()
            .to_owned(),
    })
}

fn failed(words: &[&str], namespace: &str, source: &io::Error) -> Error {
    Error::Command {
        command: words.join(" "),
        namespace: namespace.to_owned(),
        status: "cannot be started".to_owned(),
        stderr: source.to_string(),
    }
}

/// Enters the namespace in the child between fork and exec: makes system calls only.
fn enter_with_sysfs(namespace: RawFd) -> io::Result<()> {
    const NONE: *const libc::c_char = std::ptr::null();
    let checked = |result: libc::c_int| {
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: system calls on an open descriptor and on constant, terminated strings.
    unsafe {
        checked(libc::setns(namespace, libc::CLONE_NEWNET))?;
        // Unshare the mounts for this command: /sys shows the devices of the namespace in which it
        // was mounted.
        checked(libc::unshare(libc::CLONE_NEWNS))?;
        checked(libc::mount(
            NONE,
            c"/".as_ptr(),
            NONE,
            libc::MS_SLAVE | libc::MS_REC,
            std::ptr::null(),
        ))?;
        let bpffs = clone_bpffs();
        checked(libc::mount(
            c"sysfs".as_ptr(),
            c"/sys".as_ptr(),
            c"sysfs".as_ptr(),
            0,
            std::ptr::null(),
        ))?;
        if let Some(tree) = bpffs {
            let target = BPFFS.as_ptr();
            let moved = libc::syscall(
                libc::SYS_move_mount,
                tree,
                c"".as_ptr(),
                libc::AT_FDCWD,
                target,
                libc::MOVE_MOUNT_F_EMPTY_PATH,
            );
            libc::close(tree);
            checked(moved as libc::c_int)?;
        }
    }
    Ok(())
}

/// Returns a detached copy of the bpffs mount, if there is one.
///
/// # Safety
/// Makes system calls only.
unsafe fn clone_bpffs() -> Option<RawFd> {
    // SAFETY: statfs is plain data; both calls take a constant, terminated string.
    unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        if libc::statfs(BPFFS.as_ptr(), &raw mut stat) != 0 || stat.f_type != libc::BPF_FS_MAGIC {
            return None;
        }
        let tree = libc::syscall(
            libc::SYS_open_tree,
            libc::AT_FDCWD,
            BPFFS.as_ptr(),
            libc::OPEN_TREE_CLONE,
        );
        (tree >= 0).then_some(tree as RawFd)
    }
}

const BPFFS: &CStr = c"/sys/fs/bpf";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root_or_skip;

    fn create(topic: &str) -> Namespace {
        Namespace::create(&format!("ss-netns-{}-{topic}", std::process::id())).expect("create")
    }

    #[test]
    fn a_closure_runs_in_the_namespace_and_the_caller_does_not() {
        if !root_or_skip() {
            return;
        }
        let outside = fs::read_link("/proc/thread-self/ns/net").expect("own namespace");
        let namespace = create("closure");
        let inside = namespace
            .run(|| fs::read_link("/proc/thread-self/ns/net"))
            .expect("run")
            .expect("readlink");
        assert_ne!(outside, inside);
        assert_eq!(
            outside,
            fs::read_link("/proc/thread-self/ns/net").expect("own namespace")
        );
        assert_eq!(namespace.ifindex("lo").expect("lo"), 1);
    }

    #[test]
    fn a_command_sees_the_sysfs_of_the_namespace() {
        if !root_or_skip() {
            return;
        }
        let namespace = create("sysfs");
        let listed = namespace.exec(&["ls", "/sys/class/net"]).expect("ls");
        // In each namespace, the bonding driver has a file of its own among the interfaces.
        let interfaces = listed.split_whitespace();
        let interfaces: Vec<_> = interfaces.filter(|it| *it != "bonding_masters").collect();
        assert_eq!(interfaces, ["lo"]);
    }

    #[test]
    fn the_error_of_a_command_has_its_arguments_exit_code_and_stderr() {
        if !root_or_skip() {
            return;
        }
        let namespace = create("failure");
        let error = namespace
            .exec(&["ip", "link", "show", "eth9"])
            .expect_err("there is no eth9")
            .to_string();
        assert!(
            error.starts_with("`ip link show eth9` in ss-netns-"),
            "{error}"
        );
        assert!(
            error.contains("exit status: 1") && error.contains("eth9\" does not exist"),
            "{error}"
        );
    }

    #[test]
    fn dropping_removes_the_namespace_and_ends_what_runs_inside() {
        if !root_or_skip() {
            return;
        }
        let namespace = create("drop");
        let path = Path::new(DIRECTORY).join(namespace.name());
        let mut child = namespace.command("sleep").arg("60").spawn().expect("sleep");
        drop(namespace);
        assert!(!path.exists());
        assert!(!child.wait().expect("wait").success());
    }
}
