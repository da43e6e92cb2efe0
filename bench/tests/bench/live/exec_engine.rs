//! An engine driven by commands: a script makes the kernel of the router's namespace forward.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use sidestep_bench::engine::exec::Commands;
use sidestep_bench::engine::{Case, Engine, Flows, Options, Size, all};
use sidestep_testkit::root_or_skip;
use sidestep_testkit::traffic::Load;

/// Forwards without SRv6, also for H.Encaps, which the verification must detect. `down` logs that
/// it ran.
const UP: &str = r#"
set -e
ip -n "$ROUTER" -6 route add 2001:db8:d::/48 via fc01::1 dev "$PORT_OUT"
"#;
const INFO: &str = r#"
case "${BEHAVIOR:-ipv6}" in
ipv6 | h.encaps) echo "program: a script"; echo "mode: sh" ;;
*) echo "no $BEHAVIOR in a script" >&2; exit 1 ;;
esac
"#;

fn case(behavior: &str, sids: u32) -> Case {
    Case {
        behavior: behavior.to_owned(),
        sids,
        size: Size::Imix,
        flows: Flows::Zipf(16),
        rules: 0,
        routes: 0,
        cores: 1,
    }
}

fn engine(up: &str, down: &str) -> Box<dyn Engine> {
    let engines = all(&Options {
        commands: vec![Commands {
            name: "script".to_owned(),
            up: up.to_owned(),
            down: down.to_owned(),
            info: Some(INFO.to_owned()),
            keeps_hop_limit: false,
        }],
        ..Options::default()
    });
    let found = engines.into_iter().find(|engine| engine.name() == "script");
    found.expect("it is among all")
}

#[test]
fn commands_set_an_engine_up_and_report_unsupported_cases() {
    if !root_or_skip() {
        return;
    }
    let log = std::env::temp_dir().join(format!("sidestep-exec-{}", std::process::id()));
    let down = format!(
        "ip -n \"$ROUTER\" link show \"$PORT_IN\" >> {} && sleep 0",
        log.display()
    );
    let script = engine(UP, &down);
    let facts = script.facts();
    assert_eq!(facts["program"], "a script");
    assert_eq!(facts["CPUs"], "generator, system and sink share CPU 0");
    let refused = script
        .refuses(&case("end.dx6", 1))
        .expect("the script has none");
    assert_eq!(refused, "no end.dx6 in a script");
    assert_eq!(script.refuses(&case("ipv6", 0)), None);
    let recipe = script.recipe(&case("ipv6", 0));
    assert!(
        recipe.iter().any(|line| line == "export BEHAVIOR='ipv6'"),
        "{recipe:?}"
    );

    let ipv6 = case("ipv6", 0);
    let mut standing = script.set_up(&ipv6).expect("set up and verified");
    let trial = standing.trial(Load::Rate(20_000.0), Duration::from_millis(100), true);
    let trial = trial.expect("a trial");
    assert!((1..=2_200).contains(&trial.sent), "{trial:?}");
    assert!(
        trial.received > 0 && trial.received <= trial.sent,
        "{trial:?}"
    );
    assert!(
        trial
            .latency
            .is_some_and(|latency| latency.samples == trial.received)
    );
    drop(standing);
    // `down` ran before and after the case, while the namespaces existed.
    let shown = fs::read_to_string(&log).expect("down wrote");
    assert_eq!(shown.matches("mtu").count(), 2, "{shown}");
    let _ = fs::remove_file(&log);
}

#[test]
fn an_engine_with_a_wrong_result_is_detected_and_undone() {
    if !root_or_skip() {
        return;
    }
    let error = |script: &dyn Engine, case: &Case| match script.set_up(case) {
        Ok(_) => panic!("it was taken for right"),
        Err(error) => error.to_string(),
    };
    let script = engine(UP, "true");
    let wrong = error(&*script, &case("h.encaps", 2));
    assert!(
        wrong.contains("h.encaps, 2 SIDs") && wrong.contains("another packet"),
        "{wrong}"
    );
    let wrong = error(&*engine("echo no >&2; exit 3", "true"), &case("ipv6", 0));
    assert!(
        wrong.contains("engine script") && wrong.contains("no"),
        "{wrong}"
    );
    let interrupted = Options::default();
    interrupted
        .interrupted
        .store(true, std::sync::atomic::Ordering::Release);
    let engines = all(&Options {
        interrupted: Arc::clone(&interrupted.interrupted),
        ..Options::default()
    });
    assert_eq!(error(&*engines[0], &case("ipv6", 0)), "interrupted");
    let left = fs::read_dir("/run/netns").expect("namespaces").flatten();
    let mine = format!("-{}-", std::process::id());
    let left: Vec<_> = left
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("engine") && name.contains(&mine))
        .collect();
    // The other test may own some namespaces at this moment.
    assert!(left.len() <= 3, "{left:?}");
}
