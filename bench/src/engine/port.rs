//! Facts about the interfaces for the report: driver, firmware, offloads, and the interrupt CPU of
//! each queue. All of these affect the results, and Sidestep sets none of them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::network;
use sidestep_testkit::Error;

/// Script that prints the facts of interface `$1`, for [`facts`]. It omits facts that it cannot
/// find.
pub(super) const SCRIPT: &str = r#"
ethtool -i "$1" 2>/dev/null | sed -n 's/^\(driver\|version\|firmware-version\|bus-info\): /info \1 /p'
ethtool -k "$1" 2>/dev/null | sed -n 's/^\([a-z0-9-]*\): \(on\|off\).*/offload \1 \2/p'
command -v ethtool >/dev/null || echo lacks ethtool
for folder in "/sys/class/net/$1/device/msi_irqs" "/sys/class/net/$1/device/../msi_irqs"; do
	[ -d "$folder" ] || continue
	for irq in $(ls "$folder" | sort -n); do
		what=$(sed -n "s/^ *$irq: .* //p" /proc/interrupts)
		cpus=$(cat "/proc/irq/$irq/effective_affinity_list" 2>/dev/null || cat "/proc/irq/$irq/smp_affinity_list" 2>/dev/null)
		[ -z "$what" ] || echo "irq $irq $cpus $what"
	done
	break
done
"#;

/// Suffix of the name of the fact with the interrupt CPUs of a port's queues.
pub const INTERRUPTS: &str = "interrupts";

/// Parses the output of [`SCRIPT`] for an interface with this name.
pub(super) fn facts(name: &str, text: &str) -> BTreeMap<String, String> {
    let mut info = BTreeMap::new();
    let (mut on, mut offloads, mut interrupts) = (Vec::new(), 0, Vec::new());
    let mut lacks = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["info", what, ref value @ ..] => {
                info.insert(what, value.join(" "));
            }
            ["offload", what, state] => {
                offloads += 1;
                on.extend((state == "on").then_some(what));
            }
            ["irq", number, cpus, ref what @ ..] => {
                let what = what.join(" ");
                interrupts.push(format!("{what} (IRQ {number}) on CPU {cpus}"));
            }
            ["lacks", program] => lacks = Some(program),
            _ => {}
        }
    }
    let mut facts = BTreeMap::new();
    let mut add = |what: &str, fact: String| facts.insert(format!("{name} {what}"), fact);
    let of = |what: &str| info.get(what).filter(|value| !value.is_empty());
    if let Some(driver) = of("driver") {
        let more = [
            ("version", ""),
            ("firmware-version", "firmware "),
            ("bus-info", "at "),
        ];
        let more = more.map(|(what, before)| of(what).map(|value| format!("{before}{value}")));
        let words = std::iter::once(driver.clone()).chain(more.into_iter().flatten());
        add("driver", words.collect::<Vec<_>>().join(", "));
    }
    if offloads > 0 {
        let all = if on.is_empty() {
            "none".to_owned()
        } else {
            on.join(", ")
        };
        add("offloads on", all);
    }
    if let Some(program) = lacks {
        add("driver", format!("unknown: there is no {program}"));
    }
    if !interrupts.is_empty() {
        add(INTERRUPTS, interrupts.join("; "));
    }
    facts
}

/// Facts about the veth links between namespaces of this machine. All these links have the same
/// facts. Empty if none can be created.
pub(super) fn of_veth() -> BTreeMap<String, String> {
    static VETH: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    let ask = || -> Result<BTreeMap<String, String>, Error> {
        let lab = network::two_ports()?;
        let sink = lab.namespace(network::SINK)?;
        let text = sink.exec(&["sh", "-c", SCRIPT, "sh", network::PORT])?;
        Ok(facts("ports", &text))
    };
    VETH.get_or_init(|| ask().unwrap_or_default()).clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_testkit::{Namespace, root_or_skip};

    #[test]
    fn a_network_card_has_driver_firmware_offloads_and_interrupts() {
        let text = "\
info driver mlx5_core
info version 6.1.0
info firmware-version 22.31.1014 (MT_0000000359)
info bus-info 0000:3b:00.0
offload rx-checksumming on
offload tcp-segmentation-offload off
offload generic-receive-offload on
irq 45 2 mlx5_comp0@pci:0000:3b:00.0
irq 46 3-5 mlx5_comp1@pci:0000:3b:00.0
";
        let expected = [
            (
                "eth1 driver",
                "mlx5_core, 6.1.0, firmware 22.31.1014 (MT_0000000359), at 0000:3b:00.0",
            ),
            (
                "eth1 interrupts",
                "mlx5_comp0@pci:0000:3b:00.0 (IRQ 45) on CPU 2; mlx5_comp1@pci:0000:3b:00.0 (IRQ 46) on CPU 3-5",
            ),
            (
                "eth1 offloads on",
                "rx-checksumming, generic-receive-offload",
            ),
        ];
        let expected = expected.map(|(name, fact)| (name.to_owned(), fact.to_owned()));
        assert_eq!(facts("eth1", text), expected.into());
        assert_eq!(facts("eth1", ""), BTreeMap::new());
        let without = &facts("eth1", "lacks ethtool\n")["eth1 driver"];
        assert_eq!(without, "unknown: there is no ethtool");
    }

    #[test]
    fn veth_offloads_are_reported() {
        if !root_or_skip() {
            return;
        }
        let facts = of_veth();
        assert!(facts["ports driver"].starts_with("veth, "), "{facts:?}");
        let on = &facts["ports offloads on"];
        assert!(
            !on.contains("generic-receive-offload"),
            "the laboratory's have none: {on}"
        );
        // This veth pair has the kernel's default offloads.
        let namespace = Namespace::create(&format!("ss-portfacts-{}-a", std::process::id()));
        let namespace = namespace.expect("create");
        namespace
            .exec(&["ip", "link", "add", "one", "type", "veth", "peer", "other"])
            .expect("a veth");
        let text = namespace.exec(&["sh", "-c", SCRIPT, "sh", "one"]);
        let facts = self::facts("one", &text.expect("it says"));
        let on = &facts["one offloads on"];
        assert!(on.contains("tcp-segmentation-offload"), "{on}");
    }
}
