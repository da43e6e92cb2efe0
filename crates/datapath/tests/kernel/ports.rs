//! Ports: attaching, refusing, and a real frame from wire to wire.

use std::time::Duration;

use sidestep_datapath::kernel::{Kernel, KernelError};
use sidestep_datapath::{Image, Target};
use sidestep_testkit::Napi;
use sidestep_testkit::{FrameSocket, root_or_skip};

use crate::support::{Router, ended, forwarded, image, plain, to_end};

const SECOND: Duration = Duration::from_secs(1);

/// Sends frames into `a` and returns the frames that leave from `b`.
fn across(router: &Router, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (a, b) = (
        router.lab.namespace("a").expect("a"),
        router.lab.namespace("b").expect("b"),
    );
    // An XDP redirect into a veth needs NAPI on the far end.
    let _napi = Napi::attach(b, "eth0").expect("NAPI");
    let (into, out) = (
        FrameSocket::open(a, "eth0").expect("a"),
        FrameSocket::open(b, "eth0").expect("b"),
    );
    frames
        .iter()
        .filter_map(|frame| {
            into.send(frame).expect("send");
            out.receive(SECOND).expect("receive")
        })
        .collect()
}

/// Tables whose port has the MAC of `eth0`.
fn image_of(router: &Router) -> Image {
    let mut image = image(router.ifindex("eth0"), router.ifindex("eth1"));
    for port in image.ports.values_mut() {
        port.mac = router.lab.mac("r", "eth0").expect("MAC");
    }
    image
}

fn addressed(router: &Router, mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&router.lab.mac("r", "eth0").expect("MAC"));
    frame
}

#[test]
fn every_target_forwards_frames_also_after_the_process_ends() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_cross");
    router.run(|| {
        let port = router.ifindex("eth0");
        let mut kernel = router.load();
        kernel
            .apply(&Image::default(), &image_of(&router))
            .expect("apply");
        let frames = [addressed(&router, plain()), addressed(&router, to_end())];
        let expected = [forwarded(&plain()), ended()];
        for target in Target::ALL {
            // Without detaching in between: the new target takes over.
            kernel.attach(port, target).expect("attach");
            kernel
                .attach(port, target)
                .expect("attach again: nothing happens");
            assert_eq!(kernel.attached(), [(port, target)]);
            assert_eq!(across(&router, &frames), expected, "{target}");
        }
        let before = kernel.port_counters(port).expect("counters");
        assert_eq!(
            (before.forwarded, before.received_packets - before.punted),
            (4, 4)
        );
        drop(kernel);
        assert_eq!(across(&router, &frames), expected, "it has no owner");
        let mut kernel = Kernel::adopt(router.pin_root()).expect("adopt");
        kernel.detach(port).expect("detach");
        assert_eq!(
            across(&router, &frames[..1]),
            [] as [Vec<u8>; 0],
            "detached"
        );
        assert_eq!(kernel.port_counters(port).expect("counters").forwarded, 6);
    });
}

#[test]
fn an_xdp_program_of_someone_else_stays_and_is_named() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_foreign");
    router.run(|| {
        let port = router.ifindex("eth0");
        let _napi = Napi::attach(router.lab.namespace("r").expect("r"), "eth0").expect("NAPI");
        let mut kernel = router.load();
        let error = kernel.attach(port, Target::Xdp).expect_err("taken");
        assert!(
            matches!(&error, KernelError::ForeignXdp { id, name, mode: "native", .. } if *id > 0 && name.contains("pass")),
            "{error}"
        );
        assert_eq!(kernel.attached(), []);
        // TC is free.
        kernel.attach(port, Target::Tc).expect("attach");
    });
}

#[test]
fn an_interface_that_goes_takes_its_port_with_it() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_gone");
    router.run(|| {
        let namespace = router.lab.namespace("r").expect("r");
        let mut kernel = router.load();
        let error = kernel
            .attach(4000, Target::Xdp)
            .expect_err("no such interface");
        assert!(error.to_string().contains("interface 4000"), "{error}");
        let (first, second) = (router.ifindex("eth0"), router.ifindex("eth1"));
        kernel.attach(first, Target::Xdp).expect("attach");
        kernel.attach(second, Target::Tc).expect("attach");
        namespace.exec(&["ip", "link", "del", "eth0"]).expect("del");
        namespace.exec(&["ip", "link", "del", "eth1"]).expect("del");
        kernel.detach(first).expect("detach what is gone");
        drop(kernel);
        let kernel = Kernel::adopt(router.pin_root()).expect("adopt");
        assert_eq!(kernel.attached(), []);
    });
}
