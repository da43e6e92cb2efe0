//! Secrets are read from files that are not world-readable, or from standard input. The command
//! line is no source, because every user can see it.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use sidestep_model::hmac::{SECRET_MAX, Secret};

/// Reads a secret from the first line of a file.
///
/// # Errors
/// The file cannot be read, is world-readable, or has no valid secret.
pub fn read_file(path: &Path) -> Result<Secret, String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    check_mode(&file.metadata().map_err(|error| error.to_string())?)?;
    secret(&mut file)
}

/// Checks that a file with secrets is not world-readable.
///
/// # Errors
/// The file is world-readable.
pub fn check_mode(metadata: &std::fs::Metadata) -> Result<(), String> {
    let everybody = metadata.file_type().is_file() && metadata.mode() & 0o004 != 0;
    if everybody {
        return Err("the file has a secret and is world-readable (chmod o-rwx)".into());
    }
    Ok(())
}

/// Reads a secret from the first line of standard input. A terminal does not echo it.
///
/// # Errors
/// Standard input cannot be read, or has no valid secret.
pub fn read_stdin() -> Result<Secret, String> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return secret(&mut stdin.lock());
    }
    eprint!("Secret: ");
    let hidden = Hidden::begin(stdin.as_fd()).map_err(|error| error.to_string())?;
    let mut line = zeroed::Line::default();
    let read = stdin.read_line(&mut line.0);
    drop(hidden);
    read.map_err(|error| error.to_string())?;
    eprintln!();
    Secret::line(line.0.as_bytes()).map_err(|error| error.to_string())
}

fn secret(from: &mut dyn io::Read) -> Result<Secret, String> {
    // The maximum, a line end and one byte more, so that a secret that is too long is detected.
    let mut bytes = zeroed::Bytes(Vec::with_capacity(SECRET_MAX + 3));
    from.take(SECRET_MAX as u64 + 3)
        .read_to_end(&mut bytes.0)
        .map_err(|error| error.to_string())?;
    Secret::line(&bytes.0).map_err(|error| error.to_string())
}

/// Terminal without echo; dropping it restores the echo.
struct Hidden<'a>(BorrowedFd<'a>, Termios);

impl<'a> Hidden<'a> {
    fn begin(terminal: BorrowedFd<'a>) -> nix::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut silent = before.clone();
        silent.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(terminal, SetArg::TCSAFLUSH, &silent)?;
        Ok(Self(terminal, before))
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.0, SetArg::TCSAFLUSH, &self.1);
    }
}

/// Buffers for secrets, overwritten when they are dropped.
mod zeroed {
    use zeroize::Zeroize as _;

    pub struct Bytes(pub Vec<u8>);

    impl Drop for Bytes {
        fn drop(&mut self) {
            self.0.zeroize();
        }
    }

    #[derive(Default)]
    pub struct Line(pub String);

    impl Drop for Line {
        fn drop(&mut self) {
            self.0.zeroize();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_world_readable_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        fs::write(&path, "hush\n").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("set");
        assert!(read_file(&path).expect_err("readable").contains("chmod"));
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
        assert_eq!(
            read_file(&path),
            Secret::new(b"hush").map_err(|_| String::new())
        );
    }

    #[test]
    fn a_secret_of_64_bytes_fits_and_one_of_65_does_not() {
        let read =
            |length: usize, end: &str| secret(&mut format!("{:x<length$}{end}", "").as_bytes());
        for end in ["", "\n", "\r\n"] {
            assert!(read(64, end).is_ok(), "{end:?}");
            assert!(read(65, end).is_err(), "{end:?}");
        }
        assert!(read(1000, "").is_err());
    }
}
