//! For unit tests: a namespace and a pin root of their own, removed afterwards, also after a panic.

use std::path::PathBuf;

use sidestep_testkit::Namespace;

use super::Kernel;
use crate::image::Limits;

pub(super) struct Scratch {
    pub(super) namespace: Namespace,
    pin_root: PathBuf,
}

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        let id = std::process::id();
        let namespace = Namespace::create(&format!("ss-dp_{name}-{id}")).expect("namespace");
        let pin_root = format!("/sys/fs/bpf/sidestep-test-{id}-{name}").into();
        Self {
            namespace,
            pin_root,
        }
    }

    /// Runs a test's body inside the namespace.
    pub(super) fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(body).expect("enter the namespace")
    }

    /// Small tables.
    pub(super) fn load(&self) -> Kernel {
        let limits = Limits {
            fib: 4,
            routes: 4,
            groups: 4,
            adjacencies: 4,
            policies: 4,
            route_counters: 4,
        };
        Kernel::load(limits, &self.pin_root).expect("load")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let removed = self.run(|| Kernel::remove(&self.pin_root));
        if !std::thread::panicking() {
            removed.expect("remove the pins");
        }
    }
}
