//! VPP as a process in the router's namespace, configured through its CLI.
//!
//! Its files (sockets, shared memory, logs) are in a private `/dev/shm`, which disappears with the
//! process. VPP is killed when the thread that started it ends for any reason.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::super::Options;
use super::super::exec::{file, output, text};
use sidestep_testkit::{Error, Namespace};

/// Paths of the two programs.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    vpp: PathBuf,
    vppctl: PathBuf,
}

/// Parameters of VPP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Startup {
    /// The CPU of its one thread.
    pub cpu: usize,
    /// Number of additional routes.
    pub routes: u32,
}

/// A running VPP, killed on drop.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    vppctl: PathBuf,
    log: File,
}

impl Programs {
    /// Finds the programs in this directory, or in `PATH`.
    ///
    /// # Errors
    /// A program is missing.
    pub fn find(directory: Option<&Path>) -> Result<Self, String> {
        let directories: Vec<PathBuf> = match directory {
            Some(directory) => vec![directory.to_owned()],
            None => env::var_os("PATH").map_or_else(Vec::new, |it| env::split_paths(&it).collect()),
        };
        let find = |name: &str| {
            let mut files = directories.iter().map(|it| it.join(name));
            let place = directory.map_or_else(|| "PATH".to_owned(), |it| it.display().to_string());
            files
                .find(|file| executable(file))
                .ok_or_else(|| format!("no program {name} in {place}"))
        };
        Ok(Self {
            vpp: find("vpp")?,
            vppctl: find("vppctl")?,
        })
    }

    /// Starts VPP, and returns when it responds.
    ///
    /// # Errors
    /// VPP exits or does not respond in time, with its output, or [`Error::Interrupted`].
    pub fn start(
        &self,
        namespace: &Namespace,
        startup: Startup,
        options: &Options,
    ) -> Result<Running, Error> {
        let failed = |source| Error::os(format!("start {}", self.vpp.display()), source);
        let log = file().map_err(failed)?;
        let (cpu, vpp) = (startup.cpu.to_string(), self.vpp.to_string_lossy());
        // This process does not use the CPU of VPP.
        let wrapped = ["--pdeathsig", "KILL", "taskset", "-c", &cpu, "nice", NICE];
        let child = namespace
            .command("setpriv")
            .args(wrapped)
            .args(["sh", "-c", PRIVATE, "sh", &vpp])
            .args(startup.words(DIRECTORY))
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log.try_clone().map_err(failed)?)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut running = Running {
            child,
            vppctl: self.vppctl.clone(),
            log,
        };
        let started = Instant::now();
        loop {
            options.check()?;
            running.check()?;
            match running.ask("show version") {
                Ok(_) => return Ok(running),
                Err(error) if started.elapsed() > PATIENCE => {
                    return Err(Error::Wrong(format!("VPP does not answer: {error}")));
                }
                Err(_) => thread::sleep(LOOK),
            }
        }
    }
}

impl Startup {
    /// Returns the arguments of `vpp`. Its sockets are in `directory`.
    pub fn words(self, directory: &str) -> Vec<String> {
        let Self { cpu, routes } = self;
        let (heap, statistics) = (HEAP + routes / 256, STATISTICS + routes / 2048);
        let pages = pages();
        let sections = [
            format!(
                "unix {{ nodaemon nosyslog cli-no-pager coredump-size 0 runtime-dir {directory} \
                 cli-listen {directory}/{SOCKET} }}"
            ),
            format!("cpu {{ main-core {cpu} }}"),
            format!("memory {{ main-heap-size {heap}M }}"),
            format!("statseg {{ size {statistics}M }}"),
            format!("buffers {{ page-size {pages} }}"),
            "plugins { plugin default { disable } plugin af_packet_plugin.so { enable } }".into(),
        ];
        sections
            .iter()
            .flat_map(|section| section.split_whitespace())
            .map(str::to_owned)
            .collect()
    }
}

impl Running {
    /// Returns the output of a command.
    ///
    /// # Errors
    /// The command cannot be sent to VPP.
    pub fn ask(&self, command: &str) -> Result<String, Error> {
        let socket = format!("/proc/{}/root{DIRECTORY}/{SOCKET}", self.child.id());
        let mut vppctl = Command::new(&self.vppctl);
        vppctl.args(["-s", &socket, command]);
        let answer = output(vppctl, &format!("vppctl {command}"), "vpp")?;
        Ok(answer.trim().to_owned())
    }

    /// Runs commands, one by one.
    ///
    /// # Errors
    /// The first command that fails, with its output.
    pub fn configure(&mut self, commands: &[String]) -> Result<(), Error> {
        for command in commands {
            let answer = self.ask(command)?;
            self.check()?;
            if !silent(command, &answer) {
                return Err(Error::Command {
                    command: command.clone(),
                    namespace: "engine vpp".into(),
                    status: "refused".into(),
                    stderr: answer,
                });
            }
        }
        Ok(())
    }

    /// Checks that VPP still runs.
    ///
    /// # Errors
    /// VPP has exited, with the last lines of its output.
    pub fn check(&mut self) -> Result<(), Error> {
        let ended = self.child.try_wait();
        let ended = ended.map_err(|source| Error::os("wait for VPP", source))?;
        let Some(status) = ended else { return Ok(()) };
        let log = text(&self.log).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(LINES).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Err(Error::Wrong(format!(
            "VPP has exited, {status}\n{}",
            last.join("\n")
        )))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // VPP may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a configuration command succeeded. VPP then prints nothing, or the name of the
/// created object. Errors have no common prefix.
fn silent(command: &str, answer: &str) -> bool {
    let made = command.strip_prefix("create host-interface name ");
    let made = made.and_then(|it| it.split(' ').next());
    answer.is_empty()
        || made.is_some_and(|port| answer == format!("host-{port}"))
        || command.contains(" count ") && answer.ends_with("routes/sec")
}

fn executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Page size of VPP's buffers: huge pages if enough are free. Otherwise VPP would reserve more huge
/// pages and never release them.
pub(super) fn pages() -> &'static str {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let (free, size) = (kilobytes("HugePages_Free:"), kilobytes("Hugepagesize:"));
    match (free, size) {
        (Some(free), Some(size)) if free * size >= BUFFERS => "default-hugepage",
        _ => "default",
    }
}

/// Script that runs a command with a private `/dev/shm`. The process already has its own mount
/// namespace.
const PRIVATE: &str = r#"mount -t tmpfs vpp /dev/shm && exec "$@""#;
const DIRECTORY: &str = "/dev/shm";
/// Socket of the CLI.
pub(super) const SOCKET: &str = "cli.sock";
/// The same priority as the threads of the generator and the ports.
const NICE: &str = "--adjustment=-20";
/// Heap in MiB without routes: the default of VPP.
const HEAP: u32 = 1024;
/// Statistics segment in MiB without routes: the default of VPP.
const STATISTICS: u32 = 96;
/// Free huge pages in KiB that VPP's buffers require: twice their size.
const BUFFERS: u64 = 128 << 10;
/// Time limit for the start of VPP on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
/// Number of output lines to report after VPP has exited.
const LINES: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_an_error_unless_it_names_the_created_object() {
        let create = "create host-interface name eth0 hw-addr 02:00:00:00:00:01";
        for (command, answer, expected) in [
            ("set interface state host-eth0 up", "", true),
            (create, "host-eth0", true),
            (create, "Interface already exists", false),
            (
                "ip route add fd01::/48 count 3 via fc01::1 host-eth1",
                "1.2e6 routes/sec",
                true,
            ),
            (
                "sr policy add bsid fc0e::1 encap",
                "No Segment List specified",
                false,
            ),
        ] {
            assert_eq!(silent(command, answer), expected, "{command}: {answer}");
        }
    }

    #[test]
    fn memory_grows_with_the_routes() {
        let words = |routes| Startup { cpu: 3, routes }.words("/run/vpp").join(" ");
        let few = words(0);
        assert!(
            few.contains("cpu { main-core 3 } memory { main-heap-size 1024M }"),
            "{few}"
        );
        assert!(few.contains("cli-listen /run/vpp/cli.sock }"), "{few}");
        assert!(words(1 << 20).contains("main-heap-size 5120M } statseg { size 608M }"));
    }

    #[test]
    fn a_missing_program_is_named_with_the_place() {
        let error = Programs::find(Some(Path::new("/nonexistent"))).expect_err("nothing is there");
        assert_eq!(error, "no program vpp in /nonexistent");
    }
}
