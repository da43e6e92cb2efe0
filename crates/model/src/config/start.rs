//! Keys of a node file that only a start applies: `group`, `pin_root`, `mode` and `limits`.

use std::fmt::Display;
use std::path::Path;

use serde_saphyr::Spanned;

use super::{File, yaml};
use crate::error::ConfigError;
use crate::settings::Mode;

/// Values of these keys in a running daemon, without the sizes of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// Group id of the control socket.
    pub group: Option<u32>,
    /// Directory of the pins.
    pub pin_root: &'a Path,
    /// Target of the ports.
    pub mode: Mode,
}

impl File {
    /// Returns the id of the group of the control socket. `gid` returns that of a name.
    ///
    /// # Errors
    /// The error of `gid`, at the key.
    pub fn group(
        &self,
        gid: impl Fn(&str) -> Result<u32, String>,
    ) -> Result<Option<u32>, ConfigError> {
        let Some(name) = &self.group else {
            return Ok(None);
        };
        let wrong = |why| yaml::wrong(name, format!("`group`: {why}:"), &name.value, "");
        gid(&name.value).map(Some).map_err(wrong)
    }

    /// Returns the directory of the pins.
    pub fn pin_root(&self) -> Option<&Path> {
        self.pin_root.as_ref().map(|it| it.value.as_path())
    }

    /// Returns the target of the ports.
    pub fn mode(&self) -> Option<Mode> {
        self.mode.as_ref().map(|mode| mode.value)
    }

    /// Calls `set` with each table and its size.
    ///
    /// # Errors
    /// The first error of `set`, with its line and column.
    pub fn limits(
        &self,
        mut set: impl FnMut(&str, u32) -> Result<(), String>,
    ) -> Result<(), ConfigError> {
        self.limits.iter().try_for_each(|(table, size)| {
            set(table, size.value)
                .map_err(|why| yaml::wrong(size, format!("limit {table}: {why}"), "", ""))
        })
    }

    /// Checks that these keys have the running values. `gid` returns the id of a group's name, and
    /// `size` the size of a table.
    ///
    /// # Errors
    /// The key that needs a restart, with its line and column.
    pub fn check_restart(
        &self,
        running: Running<'_>,
        gid: impl Fn(&str) -> Result<u32, String>,
        mut size: impl FnMut(&str) -> Option<u32>,
    ) -> Result<(), ConfigError> {
        if let Some(it) = self.mode.as_ref().filter(|it| it.value != running.mode) {
            return Err(differs(it, "`mode`", running.mode, it.value));
        }
        if let (Some(it), Some(id)) = (&self.group, self.group(gid)?)
            && running.group != Some(id)
        {
            let now = running.group.map_or("none".into(), |id| id.to_string());
            return Err(differs(it, "`group`", now, &it.value));
        }
        if let (Some(it), Some(path)) = (&self.pin_root, self.pin_root())
            && path != running.pin_root
        {
            let now = running.pin_root.display();
            return Err(differs(it, "`pin_root`", now, path.display()));
        }
        for (table, it) in &self.limits {
            let now = size(table).unwrap_or_default();
            if now != it.value {
                return Err(differs(it, &format!("`limits`: {table}"), now, it.value));
            }
        }
        Ok(())
    }
}

/// Returns the error that a key has another value than the running daemon.
fn differs<T>(at: &Spanned<T>, what: &str, now: impl Display, value: impl Display) -> ConfigError {
    yaml::wrong(
        at,
        format!("{what} is {now} while the daemon runs, not"),
        &value.to_string(),
        "a restart of the daemon to change it",
    )
}
