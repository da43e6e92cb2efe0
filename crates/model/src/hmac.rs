//! HMAC keys (RFC 8754 2.1.2), as `ip sr hmac` has them, and Sidestep's own.
//!
//! A secret is shown by nothing here: it has no `Display`, is not serialized, and its `Debug` says only that there is one.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};
use zeroize::Zeroize as _;

/// LIMIT: bytes of a secret, as Linux has it (`SEG6_HMAC_SECRET_LEN`).
pub const SECRET_MAX: usize = 64;

/// Keys by HMAC Key ID, 1 and up.
pub type HmacKeys = BTreeMap<u32, HmacKey>;

/// What an HMAC is computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HmacAlgorithm {
    /// HMAC-SHA-1, 20 bytes and 12 of zero.
    Sha1,
    /// HMAC-SHA-256.
    Sha256,
}

impl HmacAlgorithm {
    /// As `ip sr hmac set` has it.
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

/// The text names no algorithm.
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

/// A key without its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HmacKey {
    /// What it is for.
    pub algorithm: HmacAlgorithm,
    /// What nobody else may know.
    pub secret: Secret,
}

/// 1 to [`SECRET_MAX`] bytes, overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

/// A secret is none. It does not say what was given instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Nothing was given.
    #[error("the secret is empty")]
    Empty,
    /// It is too long.
    #[error("the secret has {0} bytes; {SECRET_MAX} are possible")]
    Long(usize),
}

impl Secret {
    /// These bytes.
    ///
    /// # Errors
    /// There are none, or too many.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        match bytes.len() {
            0 => Err(SecretError::Empty),
            1..=SECRET_MAX => Ok(Self(bytes.into())),
            length => Err(SecretError::Long(length)),
        }
    }

    /// The first line of a text: what somebody typed, or an editor ended with a line feed.
    ///
    /// # Errors
    /// It is empty or too long.
    pub fn line(text: &[u8]) -> Result<Self, SecretError> {
        let end = text.iter().position(|byte| *byte == b'\n');
        let line = &text[..end.unwrap_or(text.len())];
        Self::new(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// For whoever computes with it.
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

/// From a text, which no error quotes.
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
