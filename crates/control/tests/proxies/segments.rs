//! A service that sees frames and leaves segmentation to its device.

use sidestep_datapath::{Native, Verdict};

use super::bench::with;

#[test]
fn an_unsegmented_frame_has_a_reason_of_its_own() {
    for proxy in ["End.AS segs fc0a::1,fc0a::2 src fc0e::1", "End.AD"] {
        let (_, node, compiled) = with(&[format!(
            "fc0f::2e/128 encap seg6local action {proxy} oif eth2 iif eth3 inner l2 dev eth2"
        )]);
        let ifindex = |port| node.link_by_name(port).expect("a port").ifindex.0;
        let mut native = Native::new(&compiled.image);
        let frame = [
            &[2, 0, 0, 0, 0xaa, 2, 2, 0, 0, 0, 0xaa, 1, 8, 0][..],
            &[0; 50],
        ]
        .concat();
        if proxy == "End.AD" {
            let outer = hex::decode(concat!(
                "020000000000020000000010",
                "86dd",
                "60000000",
                "0068",
                "2b",
                "40",
                "fc0e0000000000000000000000000001",
                "fc0f000000000000000000000000002e",
                "8f04040101000000",
                "fc0a0000000000000000000000000001",
                "fc0f000000000000000000000000002e",
            ));
            let carried = [outer.expect("hexadecimal"), frame.clone()].concat();
            let verdict = native.run(ifindex("eth0"), &carried);
            assert!(matches!(verdict, Verdict::Forward { .. }), "{verdict:?}");
        }
        let verdict = native.run(ifindex("eth3"), &frame);
        assert!(matches!(verdict, Verdict::Forward { .. }), "{verdict:?}");
        native.set_segment_size(1400);
        let verdict = native.run(ifindex("eth3"), &frame);
        let Verdict::Drop(reason) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(reason.name, "segmentation", "{proxy}");
    }
}
