//! Pins that survive the process, and their ownership.

use std::cell::Cell;
use std::path::Path;

use sidestep_datapath::kernel::{Action, Kernel, KernelError, Origin, TEST_RUN_IFINDEX};
use sidestep_datapath::{CounterId, Image, Limits, Target};
use sidestep_testkit::root_or_skip;

use crate::support::{LIMITS, Router, assert_holds, forwarded, image, plain};

#[test]
fn the_next_process_adopts_tables_counters_and_ports() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_adopt");
    router.run(|| {
        let port = router.ifindex("eth0");
        let content = image(TEST_RUN_IFINDEX, 7);
        let nothing = Kernel::adopt(router.pin_root()).expect_err("nothing is there");
        assert!(
            matches!(nothing, KernelError::NothingPinned { .. }),
            "{nothing}"
        );

        let mut kernel = router.load();
        assert_eq!(kernel.origin(), Origin::Fresh);
        kernel.apply(&Image::default(), &content).expect("apply");
        kernel.attach(port, Target::Tc).expect("attach");
        kernel.test_run(Target::Xdp, &plain(), 1).expect("test run");
        drop(kernel);

        let adopted = Kernel::adopt(router.pin_root()).expect("adopt");
        let limits = Limits {
            // The prefixes' is in no map.
            fib: Limits::default().fib,
            ..LIMITS
        };
        assert_eq!(adopted.limits(), limits);
        assert_eq!(adopted.attached(), [(port, Target::Tc)]);
        assert_holds(&adopted, &content);
        assert_eq!(
            adopted
                .route_counters(CounterId(1))
                .expect("counters")
                .packets,
            1
        );
        let run = adopted.test_run(Target::Tc, &plain(), 1).expect("test run");
        assert_eq!(
            (run.action, run.frame),
            (Action::Forward, forwarded(&plain()))
        );
        drop(adopted);

        // Loading does the same, with this binary's programs.
        let loaded = router.load();
        assert_eq!(loaded.origin(), Origin::Adopted);
        assert_eq!(loaded.attached(), [(port, Target::Tc)]);
        assert_holds(&loaded, &content);
        assert_eq!(
            loaded
                .route_counters(CounterId(1))
                .expect("counters")
                .packets,
            2
        );
        // All slots at once: slot 0, and as many as the limit.
        let all = loaded.all_route_counters(&(0..17).map(CounterId).collect());
        let all = all.expect("counters");
        let packets: Vec<_> = all.values().map(|it| it.packets).collect();
        assert_eq!(packets, [0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for beyond in [17, 18, 100] {
            let counters = loaded.all_route_counters(&[CounterId(1), CounterId(beyond)].into());
            assert!(counters.is_err(), "slot {beyond}: {counters:?}");
        }
    });
}

#[test]
fn other_limits_replace_the_tables_and_attach_switches_the_port() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_replace");
    router.run(|| {
        let port = router.ifindex("eth0");
        let content = image(TEST_RUN_IFINDEX, 7);
        let mut kernel = router.load();
        kernel.apply(&Image::default(), &content).expect("apply");
        kernel.attach(port, Target::Xdp).expect("attach");
        let old = xdp_program(&router);
        drop(kernel);

        let limits = Limits {
            routes: 32,
            groups: 4,
            ..LIMITS
        };
        let mut kernel = Kernel::load(limits, router.pin_root()).expect("load");
        assert_eq!(
            (kernel.origin(), kernel.limits()),
            (Origin::Replaced, limits)
        );
        assert_eq!(kernel.image(), Image::default());
        assert_eq!(kernel.attached(), [(port, Target::Xdp)]);
        assert_eq!(
            xdp_program(&router),
            old,
            "the old program forwards until the new tables are full"
        );
        kernel.apply(&Image::default(), &content).expect("apply");
        kernel.attach(port, Target::Xdp).expect("attach again");
        assert_ne!(xdp_program(&router), old);
    });
}

/// The id that `ip link` shows.
fn xdp_program(router: &Router) -> String {
    let namespace = router.lab.namespace("r").expect("r");
    let text = namespace
        .exec(&["ip", "-d", "link", "show", "eth0"])
        .expect("ip link");
    let id = text.split("prog/xdp id ").nth(1).expect("an XDP program");
    id.split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn a_live_owner_is_named_and_nothing_is_touched() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_owned");
    router.run(|| {
        let kernel = router.load();
        let refusals = [
            Kernel::load(LIMITS, router.pin_root()).map(drop),
            Kernel::adopt(router.pin_root()).map(drop),
            Kernel::remove(router.pin_root()).map(drop),
        ];
        for refusal in refusals {
            let error = refusal.expect_err("the first one lives");
            let expected = std::process::id();
            assert!(
                matches!(error, KernelError::Owned { pid, .. } if pid == expected),
                "{error}"
            );
        }
        assert_eq!(kernel.image(), Image::default());
    });
}

#[test]
fn a_search_for_orphans_does_not_block_an_adoption() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_orphans");
    router.run(|| drop(router.load()));
    let asked = Cell::new(0);
    let removed = Kernel::remove_orphans(router.pin_root(), |_| {
        asked.set(asked.get() + 1);
        router.run(|| drop(Kernel::adopt(router.pin_root()).expect("it has no owner")));
        true
    });
    assert_eq!((asked.get(), removed), (1, vec![]));
}

#[test]
fn pins_of_another_version_are_refused_and_loading_replaces_them() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_version");
    router.run(|| {
        let kernel = router.load();
        let instance = kernel.folder().join("instance");
        drop(kernel);
        // As the first bytes of the value always were: ABI version, process id.
        let map = libbpf_rs::MapHandle::from_pinned_path(&instance).expect("instance");
        let mut value = [0; 64];
        value[..4].copy_from_slice(&999u32.to_ne_bytes());
        libbpf_rs::MapCore::update(&map, &0u32.to_ne_bytes(), &value, libbpf_rs::MapFlags::ANY)
            .expect("write");
        let error = Kernel::adopt(router.pin_root()).expect_err("another version");
        assert!(
            error
                .to_string()
                .contains("pinned by another version: ABI 999, this binary has"),
            "{error}"
        );
        assert_eq!(router.load().origin(), Origin::Replaced);
        assert_eq!(router.load().origin(), Origin::Adopted);
    });
}

/// Changes of a folder of pins.
type Damage<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn damaged_pins_are_replaced_and_never_read() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_damaged");
    router.run(|| {
        let remove = |path: &Path| std::fs::remove_file(path).expect("unpin");
        let small = || {
            let options = libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
                ..Default::default()
            };
            let kind = libbpf_rs::MapType::Array;
            libbpf_rs::MapHandle::create(kind, Some("garbage"), 4, 4, 1, &options).expect("a map")
        };
        let damages: [Damage<'_>; 6] = [
            ("a table is missing", &|folder| {
                remove(&folder.join("map-routes"));
            }),
            ("a table is of another shape", &|folder| {
                remove(&folder.join("map-routes"));
                small().pin(folder.join("map-routes")).expect("pin");
            }),
            ("a table is no map", &|folder| {
                remove(&folder.join("map-fib"));
                std::fs::rename(folder.join("program-tc"), folder.join("map-fib")).expect("move");
            }),
            ("the instance is another map", &|folder| {
                remove(&folder.join("instance"));
                small().pin(folder.join("instance")).expect("pin");
            }),
            ("the instance is no map", &|folder| {
                remove(&folder.join("instance"));
                std::fs::rename(folder.join("program-tc"), folder.join("instance")).expect("move");
            }),
            ("a folder and an invalid attachment", &|folder| {
                std::fs::create_dir(folder.join("map-other")).expect("a folder");
                small().pin(folder.join("link-tc-9")).expect("pin");
                remove(&folder.join("map-fib"));
            }),
        ];
        let port = router.ifindex("eth0");
        for (what, damage) in damages {
            let mut kernel = router.load();
            kernel.attach(port, Target::Tc).expect("attach");
            let folder = kernel.folder().to_owned();
            drop(kernel);
            damage(&folder);
            let error = Kernel::adopt(router.pin_root()).expect_err(what);
            assert!(!error.to_string().is_empty());
            let mut kernel = router.load();
            assert_eq!(kernel.origin(), Origin::Replaced, "{what}");
            assert_eq!(kernel.image(), Image::default(), "{what}");
            assert_eq!(kernel.attached(), [(port, Target::Tc)], "{what}");
            kernel.attach(port, Target::Tc).expect("switch");
            kernel
                .detach_all()
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(!folder.exists(), "{what}");
        }
    });
}

#[test]
fn after_detach_all_nothing_is_left() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_end");
    router.run(|| {
        let port = router.ifindex("eth0");
        let mut kernel = router.load();
        kernel.attach(port, Target::Xdp).expect("attach");
        kernel.detach_all().expect("detach");
        assert!(!router.pin_root().exists());
        let namespace = router.lab.namespace("r").expect("r");
        let text = namespace
            .exec(&["ip", "-d", "link", "show", "eth0"])
            .expect("ip link");
        assert!(!text.contains("xdp id"), "{text}");
        assert!(
            !Kernel::remove(router.pin_root()).expect("remove"),
            "nothing to remove"
        );
    });
}
