//! The addresses to look up.

use sidestep_fib::Prefix;
use sidestep_testkit::random::Random;

use super::routes::Route;

/// Distribution of the addresses. Each address lies in a prefix of the table, because other
/// addresses would time the result "no route".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All prefixes with equal probability, with a random host.
    Uniform,
    /// The n-th prefix of a random order has 1/n of the first one's probability (Zipf's law), with
    /// a random host. Most packets thus go to a few destinations.
    Zipf,
}

impl Mix {
    /// All mixes.
    pub const ALL: [Self; 2] = [Self::Uniform, Self::Zipf];

    /// Returns the name for titles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "Zipf",
        }
    }
}

/// Addresses of one mix, in both forms: as numbers, and in network order.
#[derive(Debug)]
pub struct Addresses {
    /// Numbers in host order.
    pub numbers: Vec<u128>,
    /// Addresses in network order.
    pub wire: Vec<[u8; 16]>,
    /// Position of the first address in the BPF map.
    pub place: usize,
}

impl Addresses {
    /// Returns this number of addresses for these routes (at least one).
    pub fn draw(mix: Mix, routes: &[Route], count: usize, random: &mut Random) -> Self {
        let numbers = match mix {
            Mix::Uniform => (0..count)
                .map(|_| host(random.pick(routes).prefix, random))
                .collect(),
            Mix::Zipf => {
                let ranks = Zipf::new(routes.len());
                // The routes are in a random order already.
                (0..count)
                    .map(|_| host(routes[ranks.draw(random)].prefix, random))
                    .collect()
            }
        };
        Self::of(numbers)
    }

    /// Wraps these addresses.
    pub fn of(numbers: Vec<u128>) -> Self {
        let wire = numbers.iter().map(|number| number.to_be_bytes()).collect();
        Self {
            numbers,
            wire,
            place: 0,
        }
    }

    /// Returns the number of addresses.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns true if there are no addresses.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// Returns the first and last addresses of some prefixes, their neighbors, and random addresses
/// inside. These find most errors of a table.
pub fn edges(routes: &[Route], count: usize, random: &mut Random) -> Addresses {
    let mut numbers = Vec::with_capacity(count + 4);
    while numbers.len() < count {
        let prefix = random.pick(routes).prefix;
        let (first, last) = (prefix.address, prefix.last());
        numbers.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1)]);
        numbers.push(host(prefix, random));
    }
    numbers.truncate(count);
    // Excludes addresses for which a kernel creates routes: loopback, link-local, multicast.
    numbers.retain(|number| number >> 125 == 1);
    Addresses::of(numbers)
}

/// Returns a random address in a prefix.
fn host(prefix: Prefix, random: &mut Random) -> u128 {
    let noise = u128::from(random.next()) << 64 | u128::from(random.next());
    let mask = prefix.last() - prefix.address;
    prefix.address | noise & mask
}

/// Draws ranks by Zipf's law with exponent 1.
struct Zipf {
    /// Sum of the weights up to each rank.
    sums: Vec<f64>,
}

impl Zipf {
    fn new(ranks: usize) -> Self {
        let mut sum = 0.0;
        let weights = (1..=ranks).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Self {
            sums: weights.collect(),
        }
    }

    /// Draws a rank, from 0.
    fn draw(&self, random: &mut Random) -> usize {
        let all = self.sums[self.sums.len() - 1];
        let at = (random.next() >> 11) as f64 / (1_u64 << 53) as f64 * all;
        self.sums
            .partition_point(|sum| *sum <= at)
            .min(self.sums.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Vec<Route> {
        let prefixes = super::super::routes::slash48(100, 0.5, &mut Random::new(1));
        super::super::routes::learned(&prefixes, &mut Random::new(1))
    }

    #[test]
    fn every_address_lies_in_a_prefix_of_the_table() {
        let routes = routes();
        for mix in Mix::ALL {
            let addresses = Addresses::draw(mix, &routes, 1000, &mut Random::new(2));
            assert!(addresses.numbers.iter().all(|number| {
                let host = Prefix::new(*number, 128);
                routes.iter().any(|route| route.prefix.contains(host))
            }));
            assert_eq!(addresses.wire[7], addresses.numbers[7].to_be_bytes());
        }
    }

    #[test]
    fn ranks_are_drawn_by_zipfs_law() {
        let (zipf, random) = (Zipf::new(100), &mut Random::new(3));
        let mut drawn = [0_u32; 100];
        for _ in 0..1_000_000 {
            drawn[zipf.draw(random)] += 1;
        }
        let ratio = |rank: usize| f64::from(drawn[0]) / f64::from(drawn[rank - 1]);
        assert!((1.9..2.1).contains(&ratio(2)), "{}", ratio(2));
        assert!((9.5..10.5).contains(&ratio(10)), "{}", ratio(10));
    }

    #[test]
    fn edges_are_tested_on_both_sides() {
        let routes = routes();
        let addresses = edges(&routes, 1000, &mut Random::new(4));
        let outside = addresses.numbers.iter().filter(|number| {
            let host = Prefix::new(**number, 128);
            !routes.iter().any(|route| route.prefix.contains(host))
        });
        assert!(outside.count() > 50);
    }
}
