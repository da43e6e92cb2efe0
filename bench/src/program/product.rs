//! Finds the `sidestep` program.

use std::env;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use sidestep_testkit::Error;

/// Returns the path of the `sidestep` program: `$SIDESTEP`, or else the one next to this program.
///
/// # Errors
/// The program is in neither place.
pub(crate) fn find() -> Result<PathBuf, Error> {
    let path = match env::var_os("SIDESTEP") {
        Some(path) => PathBuf::from(path),
        None => env::current_exe()
            .map_err(|source| Error::os("the path of this program", source))?
            .with_file_name("sidestep"),
    };
    if path.is_file() {
        return Ok(path);
    }
    let path = path.display();
    Err(Error::Usage(format!(
        "no sidestep program at {path} (build it with ./dev build, or set SIDESTEP)"
    )))
}

/// Returns the SHA-256 of a program's file in hexadecimal, which identifies a build.
///
/// # Errors
/// It cannot be read.
pub fn sha256(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::os(format!("read {}", path.display()), source);
    let mut file = File::open(path).map_err(failed)?;
    let mut digest = Sha256::new();
    let mut part = vec![0; 1 << 20];
    loop {
        match file.read(&mut part).map_err(failed)? {
            0 => return Ok(hex::encode(digest.finalize())),
            read => digest.update(&part[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_hash_covers_every_byte_of_the_file() {
        let path = env::temp_dir().join(format!("ss-sha256-{}", std::process::id()));
        let of = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("write");
            sha256(&path).expect("read")
        };
        // FIPS 180-2, B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of(b"abc"), abc);
        let mut long = vec![7; (1 << 20) + 1];
        let before = of(&long);
        long[1 << 20] = 8;
        assert_ne!(of(&long), before, "the last byte, behind the first part");
        fs::remove_file(&path).expect("remove");
        assert!(sha256(&path).is_err());
    }
}
