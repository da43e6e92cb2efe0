//! Checks of paths among each other.

use crate::error::ConfigError;
use crate::grammar::Words;
use crate::liveness::{Path, Paths, Reflectors, SESSIONS_MAX, configured_discriminators};

/// Checks a new path, or another content of one, beside all others.
///
/// # Errors
/// Another path has the same segment list or discriminator, a reflector has the discriminator, or there
/// are too many flows.
pub fn check_path(
    name: &str,
    path: &Path,
    words: &Words,
    others: &Paths,
    reflectors: &Reflectors,
) -> Result<(), ConfigError> {
    let others = others.iter().map(|(other, it)| (other.as_str(), it));
    let others = others.filter(|(other, _)| *other != name);
    let same = others.clone().find(|(_, it)| it.segments == path.segments);
    if let Some((other, _)) = same {
        return Err(ConfigError::new(
            words.place_of("segs"),
            format!("path {other} has the same segment list:"),
            "segs",
            "one path for each list",
        ));
    }
    let all = others.chain([(name, path)]);
    let flows: u32 = all.clone().map(|(_, path)| path.flows).sum();
    if flows > SESSIONS_MAX {
        return Err(ConfigError::new(
            words.place_of("flows"),
            "too many flows with path",
            name,
            format!("at most {SESSIONS_MAX} flows of all paths"),
        ));
    }
    configured_discriminators(all, reflectors).map_err(|conflict| {
        ConfigError::new(
            words.place_of("discriminator"),
            format!("{conflict}:"),
            name,
            "a discriminator of its own",
        )
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::File;

    #[test]
    fn the_flows_of_all_paths_fit_into_the_table() {
        let path = |number: u32| {
            let line = format!("p{number} segs fc00::{number:x} loopback flows 8");
            let file = File::parse(&format!("ports: [eth0]\npaths: [\"{line}\"]"));
            let node = file.and_then(|file| file.node()).expect("a node file");
            node.paths.into_iter().next().expect("a path")
        };
        let others: Paths = (1..=1023).map(path).collect();
        let words = Words::from_line("p segs fc00:1::1 loopback flows 8");
        let (name, last) = path(1024);
        let error = check_path(&name, &last, &words, &others, &Reflectors::new());
        let error = error.expect_err("8192 flows").to_string();
        assert!(
            error.contains("too many flows with path \"p1024\"; expected at most 8191 flows"),
            "{error}"
        );
        let seven = Path { flows: 7, ..last };
        assert!(check_path(&name, &seven, &words, &others, &Reflectors::new()).is_ok());
    }
}
