//! Options of `./dev differential`.

use sidestep_datapath::kernel::Target;

/// How much, and of what.
pub struct Options {
    pub packets: usize,
    pub per_node: usize,
    pub seed: u64,
    pub targets: Vec<Target>,
    /// One packet in this many also runs on XDP and TC.
    pub share: usize,
    /// Maximum number of distinct failures to shrink.
    pub shrink: usize,
}

impl Options {
    /// `DIFFERENTIAL_PACKETS` and the like, as `./dev differential` sets them; what CI runs without.
    pub fn from_environment() -> Self {
        let text = |name: &str| std::env::var(format!("DIFFERENTIAL_{name}")).ok();
        let number = |name: &str, default: u64| {
            text(name).map_or(default, |text| {
                text.parse()
                    .unwrap_or_else(|_| panic!("DIFFERENTIAL_{name}={text}: not a number"))
            })
        };
        let names = text("TARGETS").unwrap_or_else(|| "native,xdp,tc".to_owned());
        let targets = names.split(',').filter_map(|name| match name {
            "native" => None,
            "xdp" => Some(Target::Xdp),
            "tc" => Some(Target::Tc),
            other => panic!("target {other}: allowed are native, xdp, tc"),
        });
        Self {
            packets: number("PACKETS", 10_000) as usize,
            per_node: number("PER_NODE", 200) as usize,
            seed: number("SEED", 1),
            targets: targets.collect(),
            share: number("SHARE", 4).max(1) as usize,
            shrink: number("SHRINK", 3) as usize,
        }
    }
}
