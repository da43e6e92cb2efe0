//! RFC 4648 4: how frames stand in TRex's JSON.

/// The text of these bytes, with padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = [0, 1, 2].map(|at| u32::from(group.get(at).copied().unwrap_or(0)));
        let bits = bits[0] << 16 | bits[1] << 8 | bits[2];
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) as usize % 64;
            let is_there = digit <= group.len();
            text.push(if is_there {
                ALPHABET[value].into()
            } else {
                '='
            });
        }
    }
    text
}

/// The bytes of a text; none if it is not in this alphabet. Padding may be missing.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        // One digit alone is less than a byte.
        if group.len() == 1 {
            return None;
        }
        let mut bits = 0;
        for digit in group {
            let value = ALPHABET.iter().position(|known| known == digit)?;
            bits = bits << 6 | value as u32;
        }
        let bits = bits << (6 * (4 - group.len()));
        bytes.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_rfc_4648_there_and_back() {
        // RFC 4648 10.
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in vectors {
            assert_eq!(encode(plain.as_bytes()), encoded);
            assert_eq!(decode(encoded).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(decode("//79"), Some(vec![255, 254, 253]));
        for wrong in ["Z", "Zm9vY", "Zm9-", "Zm 9"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
