//! Formats numbers for readers, with at most four significant digits.

/// Formats `value` with thousands separators: `213,000`, `36.21`, `0.0042`.
pub fn rounded(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let size = value.abs();
    if size >= 1e15 || (size > 0.0 && size < 1e-4) {
        return format!("{value:.3e}");
    }
    if size >= 1000.0 || value.fract() == 0.0 {
        return grouped(value);
    }
    // Configured values have fewer digits than measured ones: 0.2, not 0.2000.
    let exact = trimmed(&format!("{value:.9}")).to_string();
    if exact.trim_start_matches(['-', '0', '.']).len() <= 4 {
        return exact;
    }
    let decimals = 3 - size.log10().floor() as i32;
    let text = format!("{value:.*}", decimals.max(0) as usize);
    // Rounding turns 999.96 into 1000.0.
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    if whole.trim_start_matches('-').len() > 3 {
        grouped(value)
    } else {
        format!("{whole}.{fraction}")
    }
}

/// Formats `value` for a tick of an axis: `100`, `10k`, `2.5M`.
pub fn short(value: f64) -> String {
    let (divisor, suffix) = match value.abs() {
        size if size >= 1e9 => (1e9, "G"),
        size if size >= 1e6 => (1e6, "M"),
        size if size >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    // Six decimals hide rounding errors of the division and of the axis steps.
    let text = format!("{:.6}", value / divisor);
    let text = trimmed(&text);
    if text == "-0" {
        "0".into()
    } else {
        format!("{text}{suffix}")
    }
}

/// Returns the packets per second in one unit of an axis. `None` if the axis shows another
/// quantity.
pub fn rate_factor(unit: &str) -> Option<f64> {
    match unit {
        "pps" | "packets/s" => Some(1.0),
        "kpps" => Some(1e3),
        "Mpps" => Some(1e6),
        _ => None,
    }
}

/// Formats packets per second as a tick of an axis, with its unit: `200 kpps`, `1.5 Mpps`.
pub fn short_rate(packets: f64) -> String {
    let text = short(packets);
    match text.strip_suffix(['k', 'M', 'G']) {
        _ if text == "0" => text,
        Some(value) => format!("{value} {}pps", &text[value.len()..]),
        None => format!("{text} pps"),
    }
}

/// Removes zeros at the end of a fraction.
fn trimmed(text: &str) -> &str {
    text.trim_end_matches('0').trim_end_matches('.')
}

/// Rounds to a whole number and inserts a comma before every three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && digits != "0" {
        format!("-{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (36.2149, "36.21"),
            (30.1, "30.1"),
            (3.0 * 0.2, "0.6"),
            (30.0999, "30.10"),
            (450.26, "450.3"),
            (0.004_217_8, "0.004218"),
            (999.96, "1,000"),
            (1234.56, "1,235"),
            (2_000_000.0, "2,000,000"),
            (-1234.0, "-1,234"),
            (0.000_012_345, "1.234e-5"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(rounded(value), text);
        }
    }

    #[test]
    fn ticks_of_packet_rates_have_their_unit() {
        for (packets, text) in [
            (0.0, "0"),
            (500.0, "500 pps"),
            (200_000.0, "200 kpps"),
            (1_500_000.0, "1.5 Mpps"),
            (2e9, "2 Gpps"),
        ] {
            assert_eq!(short_rate(packets), text);
        }
        assert_eq!(rate_factor("kpps"), Some(1e3));
        assert_eq!(rate_factor("ns"), None);
    }

    #[test]
    fn ticks_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.1 + 0.2, "0.3"),
            (200.0, "200"),
            (1000.0, "1k"),
            (2_500_000.0, "2.5M"),
            (0.001, "0.001"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
