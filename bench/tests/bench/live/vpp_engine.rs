//! Engine `vpp`: with VPP if it is installed, and with stand-in programs for the code around VPP.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sidestep_bench::engine::behavior::kinds;
use sidestep_bench::engine::{Case, Engine, Flows, Options, Size, all};
use sidestep_testkit::capability::skip;
use sidestep_testkit::traffic::Load;
use sidestep_testkit::{Error, root_or_skip};

fn case(behavior: &str, sids: u32) -> Case {
    Case {
        behavior: behavior.to_owned(),
        sids,
        size: Size::Bytes(64),
        flows: Flows::Uniform(1),
        rules: 0,
        routes: 0,
        cores: 1,
    }
}

/// Returns the engine with the programs of this directory, or with those in `PATH`.
fn engine(directory: Option<&Path>) -> Box<dyn Engine> {
    let engines = all(&Options {
        vpp: directory.map(Path::to_owned),
        ..Options::default()
    });
    let found = engines.into_iter().find(|engine| engine.name() == "vpp");
    found.expect("it is among all")
}

/// A directory with two scripts that stand in for VPP, removed on drop.
struct StandIn(PathBuf);

impl StandIn {
    /// The stand-in for `vpp` runs the commands of `vpp` and then sleeps. The stand-in for `vppctl`
    /// logs its commands, replies to `show version`, prints the names of created objects, and
    /// prints an error for commands that contain `complaint`.
    fn new(name: &str, vpp: &str, complaint: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("sidestep-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let log = directory.join("log");
        let vppctl = format!(
            r#"[ "$1" = -s ] || exit 1
echo "$2 $3" >> {log}
case "$3" in
"show version") echo "vpp v0.0 that stands in" ;;
"create host-interface name "*) set -- $3; echo "host-$4" ;;
*"{complaint}"*) echo "unknown input" ;;
esac"#,
            log = log.display()
        );
        for (name, text) in [("vpp", vpp), ("vppctl", &vppctl)] {
            let file = directory.join(name);
            fs::write(&file, format!("#!/bin/sh\n{text}\n")).expect("a script");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("executable");
        }
        Self(directory)
    }

    fn engine(&self) -> Box<dyn Engine> {
        engine(Some(&self.0))
    }

    /// Returns the VPP process that received the last command, and all commands.
    fn calls(&self) -> (String, Vec<String>) {
        let log = fs::read_to_string(self.0.join("log")).unwrap_or_default();
        let lines = log
            .lines()
            .map(|line| line.split_once(' ').expect("two words"));
        let (sockets, commands): (Vec<&str>, Vec<&str>) = lines.unzip();
        let process = sockets.last().and_then(|it| it.split('/').nth(2));
        let commands = commands.into_iter().map(str::to_owned).collect();
        (process.unwrap_or_default().to_owned(), commands)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // Leftovers are in a directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes the router's kernel forward plain IPv6 only.
const FORWARDS: &str = r#"set -e
echo 0 > /proc/sys/net/ipv6/conf/all/disable_ipv6
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
ip -batch - <<END
address add fc01::2/64 dev eth1
neighbor add fc01::1 lladdr 02:00:00:00:00:12 nud permanent dev eth1
route add 2001:db8:d::/48 via fc01::1 dev eth1
END
echo "$@" > /dev/shm/words
exec sleep 1000"#;

fn error(engine: &dyn Engine, case: &Case) -> Error {
    match engine.set_up(case) {
        Ok(_) => panic!("{case} was taken for right"),
        Err(error) => error,
    }
}

#[test]
fn the_stand_in_for_vpp_is_started_configured_measured_and_stopped() {
    if !root_or_skip() {
        return;
    }
    let programs = StandIn::new("vpp-forwards", FORWARDS, "nothing");
    let vpp = programs.engine();
    assert_eq!(vpp.facts()["program"], "vpp v0.0 that stands in");
    assert_eq!(vpp.refuses(&case("ipv6", 0)), None);
    let mut standing = vpp.set_up(&case("ipv6", 0)).expect("set up and verified");
    let (process, commands) = programs.calls();
    let words = fs::read_to_string(format!("/proc/{process}/root/dev/shm/words"));
    let words = words.expect("it is alone there");
    assert!(
        words.contains("main-core 0") && words.contains("af_packet_plugin.so"),
        "{words}"
    );
    assert!(!Path::new("/dev/shm/words").exists());
    let recipe = vpp.recipe(&case("ipv6", 0));
    for command in commands.iter().filter(|it| *it != "show version") {
        let typed = format!("vppctl -s /run/vpp/cli.sock {command}");
        assert!(recipe.contains(&typed), "{typed}");
    }
    let trial = standing.trial(Load::Rate(20_000.0), Duration::from_millis(50), false);
    assert!(trial.expect("a trial").received > 0);
    drop(standing);
    assert!(!Path::new("/proc").join(&process).exists());

    // The stand-in forwards a packet that it should encapsulate.
    let message = error(&*vpp, &case("h.encaps", 2)).to_string();
    assert!(
        message.contains("h.encaps, 2 SIDs, 64 bytes on VPP: the router sent another packet"),
        "{message}"
    );
    assert!(!Path::new("/proc").join(programs.calls().0).exists());
    let why = vpp.refuses(&case("end.usd", 1)).expect("refused");
    assert_eq!(why, "VPP has no End with USD");
    let why = vpp.refuses(&case("ceiling", 0)).expect("refused");
    assert_eq!(why, "ceiling is of engine none");
}

#[test]
fn errors_and_exits_of_vpp_are_reported() {
    if !root_or_skip() {
        return;
    }
    let programs = StandIn::new("vpp-complains", "exec sleep 1000", "sr localsid");
    let message = error(&*programs.engine(), &case("end", 1)).to_string();
    let command =
        "`sr localsid address fc0f::1 behavior end` in engine vpp: refused: unknown input";
    assert_eq!(message, command);
    assert!(!Path::new("/proc").join(programs.calls().0).exists());

    let programs = StandIn::new("vpp-ends", "echo no buffers >&2; exit 3", "nothing");
    let message = error(&*programs.engine(), &case("ipv6", 0)).to_string();
    assert_eq!(message, "VPP has exited, exit status: 3\nno buffers");
}

#[test]
fn vpp_runs_every_behavior_that_it_does_not_refuse() {
    if !root_or_skip() {
        return;
    }
    let vpp = engine(None);
    if let Some(why) = vpp.refuses(&case("ipv6", 0)) {
        skip(&why);
        return;
    }
    let mut wrong = Vec::new();
    let mut done = 0;
    for kind in kinds() {
        let (least, most) = (*kind.sids.start(), *kind.sids.end());
        for sids in least..=most {
            let sizes = [Size::Bytes(1500), Size::Imix];
            let case = Case {
                size: sizes[sids as usize % sizes.len()],
                flows: Flows::Uniform(if sids > 8 { 1 } else { 8 }),
                routes: if kind.takes_rules { 300 } else { 0 },
                ..case(kind.name, sids)
            };
            if vpp.refuses(&case).is_some() {
                continue;
            }
            done += 1;
            let tried = vpp.set_up(&case).and_then(|mut standing| {
                standing.trial(Load::Rate(20_000.0), Duration::from_millis(50), false)
            });
            match tried {
                Ok(trial) if trial.received > 0 => {}
                Ok(trial) => wrong.push(format!("{case}: {trial:?}")),
                Err(error) => wrong.push(format!("{case}: {error}")),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {done}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(done > 20, "{done}");
}
