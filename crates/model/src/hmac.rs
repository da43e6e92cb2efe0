//! HMAC keys (RFC 8754 2.1.2): those of `ip sr hmac`, and Sidestep-only keys.
//!
//! A secret is never shown: it has no `Display`, is not serialized, and its `Debug` omits the
//! bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};
use zeroize::Zeroize as _;

/// LIMIT: bytes of a secret, as in Linux (`SEG6_HMAC_SECRET_LEN`).
pub const SECRET_MAX: usize = 64;

/// Keys by HMAC Key ID, 1 and up.
pub type HmacKeys = BTreeMap<u32, HmacKey>;

/// Hash algorithm of an HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HmacAlgorithm {
    /// HMAC-SHA-1: 20 bytes, padded with 12 zero bytes.
    Sha1,
    /// HMAC-SHA-256.
    Sha256,
}

impl HmacAlgorithm {
    /// Number that `ip sr hmac set` uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }
}

impl fmt::Display for HmacAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error: the text names no algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an HMAC algorithm: sha1 or sha256")]
pub struct AlgorithmError;

impl FromStr for HmacAlgorithm {
    type Err = AlgorithmError;

    fn from_str(text: &str) -> Result<Self, AlgorithmError> {
        match text {
            "sha1" => Ok(Self::Sha1),
            "sha256" => Ok(Self::Sha256),
            _ => Err(AlgorithmError),
        }
    }
}

/// A key without its ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HmacKey {
    /// Algorithm.
    pub algorithm: HmacAlgorithm,
    /// Shared secret.
    pub secret: Secret,
}

/// A secret of 1 to [`SECRET_MAX`] bytes, overwritten when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

/// Error: not a valid secret. The message does not contain the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The input is empty.
    #[error("the secret is empty")]
    Empty,
    /// The input is too long.
    #[error("the secret has {0} bytes; {SECRET_MAX} are possible")]
    Long(usize),
}

impl Secret {
    /// Returns a secret of these bytes.
    ///
    /// # Errors
    /// The input is empty or longer than [`SECRET_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        match bytes.len() {
            0 => Err(SecretError::Empty),
            1..=SECRET_MAX => Ok(Self(bytes.into())),
            length => Err(SecretError::Long(length)),
        }
    }

    /// Returns the first line of a text as a secret, without its line feed.
    ///
    /// # Errors
    /// The line is empty or longer than [`SECRET_MAX`].
    pub fn line(text: &[u8]) -> Result<Self, SecretError> {
        let end = text.iter().position(|byte| *byte == b'\n');
        let line = &text[..end.unwrap_or(text.len())];
        Self::new(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Returns the bytes, for the HMAC computation.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Parses a text. Errors do not quote it.
impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl de::Visitor<'_> for Text {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a secret")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Secret, E> {
                Secret::new(text.as_bytes()).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let key = HmacKey {
            algorithm: HmacAlgorithm::Sha1,
            secret: Secret::new(b"hush").expect("short enough"),
        };
        assert_eq!(
            format!("{key:?}"),
            "HmacKey { algorithm: Sha1, secret: Secret(…) }"
        );
    }

    #[test]
    fn a_secret_is_the_first_line_and_has_1_to_64_bytes() {
        assert_eq!(Secret::line(b"hush\r\nmore"), Secret::new(b"hush"));
        assert_eq!(Secret::line(b"hush"), Secret::new(b"hush"));
        assert_eq!(Secret::line(b"\n"), Err(SecretError::Empty));
        assert!(Secret::new(&[7; 64]).is_ok());
        assert_eq!(Secret::new(&[7; 65]), Err(SecretError::Long(65)));
    }
}
