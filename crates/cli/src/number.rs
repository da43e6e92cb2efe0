//! Numbers on the command line.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Returns a parser of numbers in a range. Its error names the range.
pub fn number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |word| {
        let number = word.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            format!("expected a number from {least} to {most}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_in_its_range() {
        let parse = number(1..=u32::MAX);
        assert_eq!(parse("7"), Ok(7));
        for word in ["", "x", "0", "-5", "4294967296", "1.5"] {
            let error = parse(word).expect_err(word);
            assert_eq!(error, "expected a number from 1 to 4294967295");
        }
    }
}
