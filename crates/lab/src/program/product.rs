//! Where the product is.

use std::env;
use std::path::PathBuf;

use crate::Error;

/// The `sidestep` program: `$SIDESTEP`, else the one next to this program.
///
/// # Errors
/// It is at neither place.
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
