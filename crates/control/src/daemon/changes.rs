//! Changes of the configuration by commands. A file in the directory of the instance has them, so
//! that the next instance takes them over together with the pins, after a crash or an upgrade. A stop
//! removes it.
//!
//! Changes are relative to the node file and the options of `run`, which may differ at the next
//! start. Candidate paths of controllers are not among them: a controller sends them again.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sidestep_model::config::entries::{
    Difference, Entry, difference_of_entries, entries, merged, yaml,
};
use sidestep_model::config::{File, Overlay};
use sidestep_model::hmac::{HmacKeys, Secret};
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::settings::Mode;

use super::{DaemonError, Devices, Options, config};
use crate::api::SecretText;

/// Name of the file.
const NAME: &str = "changes.json";

/// Result of the takeover of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// Number of removed and added entries.
    pub entries: usize,
    /// Entries that contradict the node file or the state of the node, each with its error.
    pub left_out: Vec<String>,
}

/// The configuration at a start.
pub(super) struct Initial {
    pub own: Overlay,
    pub devices: Devices,
    pub saved: SavedChanges,
    pub taken_over: Option<TakenOver>,
    /// Ports and overlay without the changes of the previous instance, if there are any.
    pub without: Option<(Vec<String>, Overlay)>,
}

/// The file of the changes.
pub(super) struct SavedChanges {
    path: PathBuf,
    /// Entries of the node file and the options.
    base: Vec<Entry>,
    base_keys: HmacKeys,
    /// Why the last changes are not in the file.
    error: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    #[serde(flatten)]
    changes: Difference,
    /// Secrets of the changed HMAC keys.
    secrets: Vec<(u32, SecretText)>,
    /// The instance ended by `stop --keep`. Its pins may have ended with its mount namespace.
    #[serde(default)]
    kept: bool,
}

/// Reads the configuration of the options, and the changes of an instance that died in this network
/// namespace. The ports of the options become the resulting ones.
///
/// # Errors
/// The options have an error. Changes that cannot be applied are left out.
pub(super) fn initial(
    options: &mut Options,
    node: &Node,
    directory: &Path,
    has_left_pins: impl FnOnce(&Path) -> bool,
) -> Result<Initial, DaemonError> {
    let mut devices = Devices::default();
    let mode = options.mode;
    let (mut own, names) = config::resolve(node, &devices, mode, &options.ports, &options.config)?;
    let base = entries(&options.ports, &own, &names);
    devices.extend(names.into_absent());
    devices.track(&mut own, node);
    let saved = SavedChanges {
        path: directory.join(NAME),
        base,
        base_keys: own.hmac_keys.clone(),
        error: None,
    };
    let mut initial = Initial {
        own,
        devices,
        saved,
        taken_over: None,
        without: None,
    };
    let contents = match initial.saved.read() {
        Ok(None) => return Ok(initial),
        Ok(Some(contents)) => contents,
        Err(error) => {
            let path = initial.saved.path.display();
            let left_out = vec![format!("{path}: {error}")];
            initial.taken_over = Some(TakenOver {
                entries: 0,
                left_out,
            });
            return Ok(initial);
        }
    };
    // A dead instance has left its pins, too. A namespace with the same inode may have had the file.
    if !contents.kept && !has_left_pins(&options.pin_root) {
        return Ok(initial);
    }
    let mut resolver = Resolver {
        node,
        mode,
        base_keys: &initial.saved.base_keys,
        secrets: contents.secrets(),
        devices: &initial.devices,
    };
    let (found, taken_over) = take_over(&mut resolver, &initial.saved.base, contents.changes);
    initial.taken_over = Some(taken_over);
    if let Some(Resolved { ports, own, absent }) = found {
        let ports = std::mem::replace(&mut options.ports, ports);
        initial.without = Some((ports, std::mem::replace(&mut initial.own, own)));
        initial.devices.extend(absent);
        initial.devices.track(&mut initial.own, node);
    }
    Ok(initial)
}

/// A valid configuration.
struct Resolved {
    ports: Vec<String>,
    own: Overlay,
    absent: BTreeMap<IfIndex, String>,
}

/// What entries are resolved with.
struct Resolver<'a> {
    node: &'a Node,
    mode: Mode,
    base_keys: &'a HmacKeys,
    secrets: BTreeMap<u32, Secret>,
    devices: &'a Devices,
}

impl Resolver<'_> {
    fn resolve(&self, all: &[Entry]) -> Result<Resolved, DaemonError> {
        let mut file = File::parse(&yaml(all))?;
        file.add_secrets(&self.secrets, self.base_keys);
        let ports: Vec<_> = file.port_names().map(str::to_owned).collect();
        let (own, names) = config::resolve(self.node, self.devices, self.mode, &ports, &file)?;
        let absent = names.into_absent();
        Ok(Resolved { ports, own, absent })
    }
}

/// Applies the changes as a whole, or else those that are valid beside the earlier ones.
fn take_over(
    resolver: &mut Resolver<'_>,
    base: &[Entry],
    changes: Difference,
) -> (Option<Resolved>, TakenOver) {
    let number = changes.removed.len() + changes.added.len();
    if let Ok(all) = resolver.resolve(&merged(base.to_vec(), &changes)) {
        let taken_over = TakenOver {
            entries: number.max(resolver.secrets.len()),
            left_out: Vec::new(),
        };
        return (Some(all), taken_over);
    }
    let (mut found, mut taken_over) = (None, TakenOver::default());
    let mut kept = Difference::default();
    let removed = changes.removed.into_iter().map(|entry| ('-', entry));
    let added = changes.added.into_iter().map(|entry| ('+', entry));
    for (sign, entry) in removed.chain(added) {
        let mut tried = kept.clone();
        match sign {
            '-' => tried.removed.push(entry.clone()),
            _ => tried.added.push(entry.clone()),
        }
        match resolver.resolve(&merged(base.to_vec(), &tried)) {
            Ok(valid) => {
                (found, kept) = (Some(valid), tried);
                taken_over.entries += 1;
            }
            Err(error) => taken_over.left_out.push(format!("{sign} {entry}: {error}")),
        }
    }
    (found, taken_over)
}

impl Contents {
    fn secrets(&self) -> BTreeMap<u32, Secret> {
        let secrets = self.secrets.iter();
        secrets.map(|(id, it)| (*id, it.0.clone())).collect()
    }
}

impl SavedChanges {
    /// Returns the changes of an earlier instance in this network namespace.
    fn read(&self) -> io::Result<Option<Contents>> {
        let text = match fs::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        Ok(Some(serde_json::from_slice(&text)?))
    }

    /// Sets the entries that later changes are relative to.
    pub(super) fn rebase(&mut self, base: Vec<Entry>, keys: &HmacKeys) {
        self.base = base;
        self.base_keys.clone_from(keys);
    }

    /// Returns the difference of a configuration to the node file and the options.
    pub(super) fn difference(&self, now: Vec<Entry>) -> Difference {
        difference_of_entries(self.base.clone(), now)
    }

    /// Writes the changes; without changes there is no file.
    pub(super) fn write(&mut self, changes: Difference, keys: &HmacKeys, kept: bool) {
        let is_new = |(id, key): &(&u32, _)| self.base_keys.get(id) != Some(*key);
        let secrets = keys.iter().filter(is_new);
        let contents = Contents {
            changes,
            kept,
            secrets: secrets
                .map(|(id, key)| (*id, SecretText(key.secret.clone())))
                .collect(),
        };
        if let Err(error) = self.replace(&contents) {
            self.error = Some(format!(
                "{}: {error}; an upgrade or a crash loses the changes by commands",
                self.path.display()
            ));
        }
    }

    fn replace(&self, contents: &Contents) -> io::Result<()> {
        if contents.changes.is_empty() && contents.secrets.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                result => result,
            };
        }
        let new = self.path.with_extension("new");
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(true).mode(0o600);
        open.open(&new)?.write_all(&serde_json::to_vec(contents)?)?;
        fs::rename(&new, &self.path)
    }

    /// Returns an error of [`Self::write`] once, for the log.
    pub(super) fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }
}
