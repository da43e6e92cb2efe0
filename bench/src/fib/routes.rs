//! Routes of the measured tables, read from a file or generated from a seed.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use ipnet::Ipv6Net;
use sidestep_fib::Prefix;
use sidestep_testkit::random::Random;
use thiserror::Error;

/// Number of next hops, which routes get in turn.
pub const HOPS: u32 = 6;

/// A whole Internet table; bench/data/README.md describes it.
const FULL_VIEW: &[u8] = include_bytes!("../../data/internet-full-view-ipv6.txt.gz");

/// A route of a measured table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub prefix: Prefix,
    /// Next hop, 1 to [`HOPS`].
    pub hop: u32,
}

/// Error of a file of routes.
#[derive(Debug, Error)]
pub enum RoutesError {
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A line is not an IPv6 prefix.
    #[error("{}:{line}: {text:?} is not an IPv6 prefix such as 2001:db8::/32", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Content.
        text: String,
    },
    /// The file contains no prefix.
    #[error("{} contains no prefix", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the prefixes of a file, sorted and without duplicates, or of the embedded table. Each line
/// has one prefix; text after it is ignored, as are empty lines and `#` comments. Output of `ip -6
/// route` is thus accepted if it contains only prefixes. Gzip files are decompressed.
///
/// # Errors
/// [`RoutesError`], with the line.
pub fn read(path: Option<&Path>) -> Result<Vec<Prefix>, RoutesError> {
    match path {
        None => parse(Path::new("the full view"), FULL_VIEW),
        Some(path) => {
            let file = File::open(path).map_err(|source| RoutesError::Read {
                path: path.to_owned(),
                source,
            })?;
            parse(path, file)
        }
    }
}

fn parse(path: &Path, source: impl Read) -> Result<Vec<Prefix>, RoutesError> {
    let failed = |source| RoutesError::Read {
        path: path.to_owned(),
        source,
    };
    let mut source = BufReader::new(source);
    let packed = source
        .fill_buf()
        .map_err(failed)?
        .starts_with(&[0x1f, 0x8b]);
    let lines: Box<dyn BufRead> = if packed {
        Box::new(BufReader::new(MultiGzDecoder::new(source)))
    } else {
        Box::new(source)
    };
    let mut prefixes = Vec::new();
    for (number, line) in lines.lines().enumerate() {
        let line = line.map_err(failed)?;
        let Some(word) = line
            .split_whitespace()
            .next()
            .filter(|word| !word.starts_with('#'))
        else {
            continue;
        };
        let net: Ipv6Net = word.parse().map_err(|_| RoutesError::Line {
            path: path.to_owned(),
            line: number + 1,
            text: line.clone(),
        })?;
        prefixes.push(Prefix::new(net.addr().to_bits(), net.prefix_len()));
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    if prefixes.is_empty() {
        let path = path.to_owned();
        return Err(RoutesError::Empty { path });
    }
    Ok(prefixes)
}

/// Returns this number of prefixes of a table, or a grown table. A larger table is sampled at an
/// even stride. A smaller one grows by siblings of its prefixes, and each length keeps its share.
pub fn scaled(table: &[Prefix], count: usize, random: &mut Random) -> Vec<Prefix> {
    if count <= table.len() {
        return (0..count).map(|i| table[i * table.len() / count]).collect();
    }
    let mut by_length: BTreeMap<u8, Vec<Prefix>> = BTreeMap::new();
    for prefix in table {
        by_length.entry(prefix.length).or_default().push(*prefix);
    }
    let mut taken: HashSet<Prefix> = table.iter().copied().collect();
    // Sums from the shortest length on: the next length gets what one length loses by rounding.
    let (mut seen, mut grown) = (0, 0);
    for of_length in by_length.values() {
        seen += of_length.len();
        let wanted = (seen as u128 * count as u128 / table.len() as u128) as usize - grown;
        grown += wanted;
        add_siblings(of_length, wanted - of_length.len(), &mut taken, random);
    }
    sorted(taken)
}

/// Adds prefixes that differ from one of these in some of the last bits: eight, or more if those
/// are taken. Adds fewer than requested if there are not enough.
fn add_siblings(
    of_length: &[Prefix],
    mut missing: usize,
    taken: &mut HashSet<Prefix>,
    random: &mut Random,
) {
    let length = u32::from(of_length[0].length);
    let mut bits = length.min(8);
    let mut in_vain = 0;
    while missing > 0 && in_vain < 1000 + 64 * of_length.len() {
        let near = random.pick(of_length);
        let noise = u128::from(random.next()) & ((1 << bits) - 1);
        let address = near.address ^ noise.checked_shl(128 - length).unwrap_or(0);
        let sibling = Prefix::new(address, near.length);
        if taken.insert(sibling) {
            (missing, in_vain) = (missing - 1, 0);
        } else {
            in_vain += 1;
            bits = (bits + u32::from(in_vain % 16 == 0)).min(length).min(63);
        }
    }
}

/// Returns this number of /48s from `2001:db8:a::` on, with the given density (above 0, up to 1).
pub fn slash48(count: usize, density: f64, random: &mut Random) -> Vec<Prefix> {
    let base = 0x2001_0db8_000a_u128;
    let among = (count as f64 / density).round() as usize;
    let chosen = choose(count, among, random);
    sorted(chosen.map(|n| Prefix::new((base + n as u128) << 80, 48)))
}

/// Returns this number of addresses of `2001:db8:b:0:5254:ff:fe00:0/104`: virtual machines of one
/// vendor on one link.
pub fn slash128(count: usize, random: &mut Random) -> Vec<Prefix> {
    let base = 0x2001_0db8_000b_0000_5254_00ff_fe00_0000_u128;
    let chosen = choose(count, 1 << 24, random);
    sorted(chosen.map(|n| Prefix::new(base + n as u128, 128)))
}

/// Returns this number of random prefixes in `2000::/3` with the length distribution of a table.
pub fn anywhere(table: &[Prefix], count: usize, random: &mut Random) -> Vec<Prefix> {
    let mut taken = HashSet::new();
    while taken.len() < count {
        let high = random.next() >> 3 | 0x2000 << 48;
        let address = u128::from(high) << 64 | u128::from(random.next());
        taken.insert(Prefix::new(address, random.pick(table).length));
    }
    sorted(taken)
}

/// Returns distinct random numbers below `among`.
fn choose(count: usize, among: usize, random: &mut Random) -> Box<dyn Iterator<Item = usize>> {
    assert!(count <= among, "{count} of {among}");
    // To choose most numbers, it is cheaper to draw those that are left out.
    let fewer = count.min(among - count);
    let mut drawn = HashSet::with_capacity(fewer);
    while drawn.len() < fewer {
        drawn.insert(random.below(among));
    }
    if fewer == count {
        Box::new(drawn.into_iter())
    } else {
        Box::new((0..among).filter(move |n| !drawn.contains(n)))
    }
}

fn sorted(prefixes: impl IntoIterator<Item = Prefix>) -> Vec<Prefix> {
    let mut prefixes: Vec<_> = prefixes.into_iter().collect();
    prefixes.sort_unstable();
    prefixes
}

/// Assigns next hops to the prefixes in turn, and shuffles them, because a router learns routes in
/// any order.
pub fn learned(prefixes: &[Prefix], random: &mut Random) -> Vec<Route> {
    let hops = (1..=HOPS).cycle();
    let mut routes: Vec<_> = (prefixes.iter().zip(hops))
        .map(|(&prefix, hop)| Route { prefix, hop })
        .collect();
    for i in (1..routes.len()).rev() {
        routes.swap(i, random.below(i + 1));
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(prefixes: &[Prefix], length: u8) -> f64 {
        let of_length = prefixes.iter().filter(|prefix| prefix.length == length);
        of_length.count() as f64 / prefixes.len() as f64
    }

    #[test]
    fn the_embedded_table_is_a_whole_internet_table() {
        let table = read(None).expect("read");
        assert_eq!(table.len(), 160_147);
        assert!(table.is_sorted());
    }

    #[test]
    fn a_grown_table_has_the_old_prefixes_and_the_old_shares_of_lengths() {
        let table = read(None).expect("read");
        for count in [213_000, 500_000] {
            let grown = scaled(&table, count, &mut Random::new(1));
            assert_eq!(grown.len(), count);
            assert!(grown.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(
                grown
                    .iter()
                    .all(|it| Prefix::new(it.address, it.length) == *it)
            );
            assert!(table.iter().all(|it| grown.binary_search(it).is_ok()));
            for length in 0..=128 {
                let (was, is) = (share(&table, length), share(&grown, length));
                assert!((was - is).abs() < 1e-4, "/{length}: {was} became {is}");
            }
        }
    }

    #[test]
    fn a_sampled_table_covers_the_whole_range() {
        let table = read(None).expect("read");
        let part = scaled(&table, 1000, &mut Random::new(1));
        assert_eq!(part.len(), 1000);
        assert_eq!(part[0], table[0]);
        assert!(part[999] > table[table.len() - 200]);
    }

    #[test]
    fn slash48s_have_the_requested_density() {
        for density in [1.0, 0.5, 0.1, 0.001] {
            let prefixes = slash48(1000, density, &mut Random::new(1));
            assert_eq!(prefixes.len(), 1000);
            assert!(prefixes.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(prefixes.iter().all(|prefix| prefix.length == 48));
            let first = 0x2001_0db8_000a_u128 << 80;
            assert!(prefixes[0].address >= first);
            let span = ((prefixes[999].address - first) >> 80) as f64 + 1.0;
            assert!(
                (0.9..=1.0).contains(&(span * density / 1000.0)),
                "{density}"
            );
        }
    }

    #[test]
    fn slash128s_lie_in_one_slash104() {
        let all = Prefix::new(0x2001_0db8_000b_0000_5254_00ff_fe00_0000, 104);
        let prefixes = slash128(1000, &mut Random::new(1));
        assert!(prefixes.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(
            prefixes
                .iter()
                .all(|it| it.length == 128 && all.contains(*it))
        );
    }

    #[test]
    fn equal_seeds_give_equal_routes_and_others_differ() {
        let table = read(None).expect("read");
        let made = |seed| {
            let random = &mut Random::new(seed);
            learned(&anywhere(&table, 100, random), random)
        };
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
    }

    #[test]
    fn next_hops_are_assigned_evenly() {
        let random = &mut Random::new(1);
        let routes = learned(&slash48(600, 1.0, random), random);
        for hop in 1..=HOPS {
            assert_eq!(routes.iter().filter(|route| route.hop == hop).count(), 100);
        }
        assert!(!routes.is_sorted_by_key(|route| route.prefix));
    }

    #[test]
    fn an_invalid_line_of_a_file_is_reported() {
        let parsed = |text: &str| parse(Path::new("routes.txt"), text.as_bytes());
        let good = parsed("# a table\n\n2001:db8::1/32 via fe80::1\n2001:db8::/32\n::/0\n");
        let expected = [Prefix::new(0, 0), Prefix::new(0x2001_0db8 << 96, 32)];
        assert_eq!(good.expect("read"), expected);
        let error = parsed("2001:db8::/32\n10.0.0.0/8\n").expect_err("IPv4");
        let error = error.to_string();
        assert!(
            error.starts_with("routes.txt:2: \"10.0.0.0/8\" is not an IPv6 prefix"),
            "{error}"
        );
        assert_eq!(
            parsed("").expect_err("empty").to_string(),
            "routes.txt contains no prefix"
        );
    }
}
