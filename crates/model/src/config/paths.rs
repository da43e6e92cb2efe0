//! Checks of paths among each other.

use crate::error::ConfigError;
use crate::grammar::Words;
use crate::liveness::{Path, Paths, Reflectors, discriminators};

/// Checks a new path, or another content of one, beside all others.
///
/// # Errors
/// Another path has the same segment list or discriminator, or a reflector has the discriminator.
pub fn check_path(
    name: &str,
    path: &Path,
    words: &Words,
    others: &Paths,
    reflectors: &Reflectors,
) -> Result<(), ConfigError> {
    let mut others = others.clone();
    others.remove(name);
    let same = others.iter().find(|(_, it)| it.segments == path.segments);
    if let Some((other, _)) = same {
        return Err(ConfigError::new(
            words.place_of("segs"),
            format!("path {other} has the same segment list:"),
            "segs",
            "one path for each list",
        ));
    }
    others.insert(name.to_owned(), path.clone());
    discriminators(&others, reflectors).map_err(|conflict| {
        ConfigError::new(
            words.place_of("discriminator"),
            format!("{conflict}:"),
            name,
            "a discriminator of its own",
        )
    })?;
    Ok(())
}
