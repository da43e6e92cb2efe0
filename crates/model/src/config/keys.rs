//! HMAC keys of a node file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{File, yaml};
use crate::error::ConfigError;
use crate::hmac::{HmacAlgorithm, HmacKey, HmacKeys, Secret};

/// `{algorithm: sha256, secret: "…"}` or `{algorithm: sha256, secret_file: PATH}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Key {
    algorithm: HmacAlgorithm,
    secret: Option<Secret>,
    secret_file: Option<PathBuf>,
}

/// Where a node file has the secret of an HMAC key.
#[derive(Clone, Copy, Debug)]
pub enum SecretSource<'a> {
    /// In the file of this name, which is relative to the folder of the node file.
    File(&'a Path),
    /// In the node file.
    Here(&'a Secret),
}

impl File {
    /// Returns true if the file contains a secret. Then the file must not be world-readable.
    pub fn holds_secrets(&self) -> bool {
        self.hmac.values().any(|key| key.value.secret.is_some())
    }

    /// Reads the secrets from the files that the node file names.
    ///
    /// # Errors
    /// The error of `read`, at the key.
    pub fn read_secrets(
        &mut self,
        read: impl Fn(&Path) -> Result<Secret, String>,
    ) -> Result<(), ConfigError> {
        for key in self.hmac.values_mut() {
            if let (None, Some(path)) = (&key.value.secret, &key.value.secret_file) {
                let secret = read(path).map_err(|why| {
                    let path = path.display().to_string();
                    yaml::wrong(key, format!("`secret_file`: {why}:"), &path, "")
                })?;
                key.value.secret = Some(secret);
            }
        }
        Ok(())
    }

    /// Returns the secrets, by key id.
    pub fn secrets(&self) -> impl Iterator<Item = (u32, &Secret)> {
        let keys = self.hmac.iter();
        keys.filter_map(|(id, key)| Some((*id, key.value.secret.as_ref()?)))
    }

    /// Returns where the file has the secret of a key with this algorithm.
    pub fn secret_source(&self, id: u32, algorithm: HmacAlgorithm) -> Option<SecretSource<'_>> {
        let key = &self.hmac.get(&id)?.value;
        let key = (key.algorithm == algorithm).then_some(key)?;
        match (&key.secret_file, &key.secret) {
            (Some(path), _) => Some(SecretSource::File(path)),
            (None, Some(secret)) => Some(SecretSource::Here(secret)),
            (None, None) => None,
        }
    }

    /// Adds the secrets that the file lacks: of files that it names, and of keys that `running` has
    /// with the same algorithm.
    pub fn add_secrets(&mut self, of_files: &BTreeMap<u32, Secret>, running: &HmacKeys) {
        for (id, key) in &mut self.hmac {
            let key = &mut key.value;
            let same = running.get(id).filter(|it| it.algorithm == key.algorithm);
            let kept = same.filter(|_| key.secret_file.is_none());
            let secret = of_files.get(id).or(kept.map(|it| &it.secret));
            key.secret = key.secret.take().or(secret.cloned());
        }
    }

    /// # Errors
    /// An invalid key: its ID is 0, or it has no secret or two.
    pub(super) fn hmac_keys(&self) -> Result<HmacKeys, ConfigError> {
        let mut keys = HmacKeys::new();
        for (id, key) in &self.hmac {
            let wrong = |problem: &str, expected: &str| {
                Err(yaml::wrong(key, problem, &id.to_string(), expected))
            };
            if *id == 0 {
                return wrong("HMAC key id", "1 to 4294967295");
            }
            let Key {
                algorithm,
                secret: Some(secret),
                ..
            } = &key.value
            else {
                return wrong(
                    "no secret is known of HMAC key",
                    "`secret` or `secret_file`",
                );
            };
            keys.insert(
                *id,
                HmacKey {
                    algorithm: *algorithm,
                    secret: secret.clone(),
                },
            );
        }
        Ok(keys)
    }
}
