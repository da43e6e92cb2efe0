//! VPP, a process in the router's namespace, told what to do by its CLI.
//!
//! What it keeps in files (sockets, shared memory, logs) is in a `/dev/shm` that it alone has, so that all of it goes with it; and
//! it ends with the thread that started it, however that ends.

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

/// The two programs.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    vpp: PathBuf,
    vppctl: PathBuf,
}

/// How VPP is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Startup {
    /// The CPU of its one thread.
    pub cpu: usize,
    /// Routes that it gets beside those that it needs.
    pub routes: u32,
}

/// VPP, running; killed when dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    vppctl: PathBuf,
    told: File,
}

impl Programs {
    /// In this directory; without one, in those of `PATH`.
    ///
    /// # Errors
    /// One is missing.
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

    /// Starts VPP, and returns when it answers.
    ///
    /// # Errors
    /// It ends or does not answer in time; what it said. [`Error::Interrupted`].
    pub fn start(
        &self,
        namespace: &Namespace,
        startup: Startup,
        options: &Options,
    ) -> Result<Running, Error> {
        let failed = |source| Error::os(format!("start {}", self.vpp.display()), source);
        let told = file().map_err(failed)?;
        let (cpu, vpp) = (startup.cpu.to_string(), self.vpp.to_string_lossy());
        // Its CPU is one that this process has left to what it measures.
        let wrapped = ["--pdeathsig", "KILL", "taskset", "-c", &cpu, "nice", NICE];
        let child = namespace
            .command("setpriv")
            .args(wrapped)
            .args(["sh", "-c", PRIVATE, "sh", &vpp])
            .args(startup.words(DIRECTORY))
            .stdin(Stdio::null())
            .stdout(told.try_clone().map_err(failed)?)
            .stderr(told.try_clone().map_err(failed)?)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut running = Running {
            child,
            vppctl: self.vppctl.clone(),
            told,
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
    /// The words behind `vpp`; its sockets are in `directory`.
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
    /// What it answers to a command.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn ask(&self, command: &str) -> Result<String, Error> {
        let socket = format!("/proc/{}/root{DIRECTORY}/{SOCKET}", self.child.id());
        let mut vppctl = Command::new(&self.vppctl);
        vppctl.args(["-s", &socket, command]);
        let answer = output(vppctl, &format!("vppctl {command}"), "vpp")?;
        Ok(answer.trim().to_owned())
    }

    /// Gives it commands, one by one.
    ///
    /// # Errors
    /// The first that it complains about, with what it says.
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

    /// Whether it still runs.
    ///
    /// # Errors
    /// It has ended; the last of what it said.
    pub fn check(&mut self) -> Result<(), Error> {
        let ended = self.child.try_wait();
        let ended = ended.map_err(|source| Error::os("look after VPP", source))?;
        let Some(status) = ended else { return Ok(()) };
        let told = text(&self.told).unwrap_or_default();
        let last: Vec<&str> = told.lines().rev().take(LINES).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Err(Error::Wrong(format!(
            "VPP has ended, {status}\n{}",
            last.join("\n")
        )))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Either it has ended already or it ends now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a command that configures something has done so: VPP then says nothing, or what it has made. Errors have no mark.
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

/// Of VPP's buffers: huge pages if there are enough. VPP would have the kernel set more aside, and leave them so.
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

/// Gives the command behind it a `/dev/shm` of its own; the mounts are of this process already.
const PRIVATE: &str = r#"mount -t tmpfs vpp /dev/shm && exec "$@""#;
const DIRECTORY: &str = "/dev/shm";
/// Of the CLI.
pub(super) const SOCKET: &str = "cli.sock";
/// As much of a CPU as the generator's and the ports' threads.
const NICE: &str = "--adjustment=-20";
/// MiB, without routes: as VPP has it by default.
const HEAP: u32 = 1024;
/// MiB, likewise.
const STATISTICS: u32 = 96;
/// KiB that VPP's buffers take, and as much again.
const BUFFERS: u64 = 128 << 10;
/// How long VPP may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
/// Of what a VPP that has ended said last.
const LINES: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_vpp_says_is_a_complaint_unless_it_is_what_it_has_made() {
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
        let told = Programs::find(Some(Path::new("/nonexistent"))).expect_err("nothing is there");
        assert_eq!(told, "no program vpp in /nonexistent");
    }
}
