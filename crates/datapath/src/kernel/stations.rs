//! Stations of bridges, in a hash table.

use std::collections::BTreeSet;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::{Kernel, KernelError, Table};
use crate::abi::{sidestep_station, sidestep_station_key};
use crate::delta::Changes;
use crate::image::StationKey;

/// Bytes of a key and of a value.
const KEY: usize = size_of::<sidestep_station_key>();
const VALUE: usize = size_of::<sidestep_station>();

impl Kernel {
    /// Returns the stations that have sent frames past their bridge since the last call.
    ///
    /// # Errors
    /// [`KernelError::Map`].
    pub fn take_used_stations(&self) -> Result<BTreeSet<StationKey>, KernelError> {
        let map = self.maps.handle(Table::Stations);
        let mut used = BTreeSet::new();
        for (key, station) in entries(map) {
            if station.used == 0 {
                continue;
            }
            write(map, key, station.port)?;
            used.insert(key);
        }
        Ok(used)
    }
}

/// Returns the stations of the table, with the ports toward them.
pub(super) fn read(map: &MapHandle) -> impl Iterator<Item = (StationKey, u32)> + '_ {
    entries(map).map(|(key, station)| (key, station.port))
}

/// Makes these changes.
///
/// # Errors
/// [`KernelError::Map`]; nothing is changed then.
pub(super) fn change(
    map: &MapHandle,
    changes: &Changes<StationKey, u32>,
) -> Result<(), KernelError> {
    let made = changes
        .iter()
        .try_for_each(|(key, _, after)| set(map, *key, after.copied()));
    if made.is_err() {
        undo(map, changes);
    }
    made
}

/// Restores the content from before these changes, as far as possible.
pub(super) fn undo(map: &MapHandle, changes: &Changes<StationKey, u32>) {
    for (key, before, _) in changes.iter() {
        let _ = set(map, *key, before.copied());
    }
}

fn set(map: &MapHandle, key: StationKey, port: Option<u32>) -> Result<(), KernelError> {
    match port {
        Some(port) => write(map, key, port),
        None => match map.delete(&bytes(key)) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(failed("delete", error))
            }
            _ => Ok(()),
        },
    }
}

/// Writes a station that has not been used.
fn write(map: &MapHandle, key: StationKey, port: u32) -> Result<(), KernelError> {
    let mut value = [0; VALUE];
    value[..4].copy_from_slice(&port.to_ne_bytes());
    map.update(&bytes(key), &value, MapFlags::ANY)
        .map_err(|error| failed("write", error))
}

fn failed(operation: &'static str, source: libbpf_rs::Error) -> KernelError {
    KernelError::Map {
        operation,
        table: Table::Stations,
        source,
    }
}

/// The bytes of `struct sidestep_station_key`.
fn bytes(key: StationKey) -> [u8; KEY] {
    let mut bytes = [0; KEY];
    bytes[..4].copy_from_slice(&key.bridge.to_ne_bytes());
    bytes[4..10].copy_from_slice(&key.mac);
    bytes
}

fn entries(map: &MapHandle) -> impl Iterator<Item = (StationKey, sidestep_station)> + '_ {
    map.keys().filter_map(move |key| {
        let value = map.lookup(&key, MapFlags::ANY).ok()??;
        let (bridge, mac) = key.split_first_chunk()?;
        let (port, used) = value.split_first_chunk()?;
        Some((
            StationKey {
                bridge: u32::from_ne_bytes(*bridge),
                mac: *mac.first_chunk()?,
            },
            sidestep_station {
                port: u32::from_ne_bytes(*port),
                used: u32::from_ne_bytes(*used.first_chunk()?),
            },
        ))
    })
}
