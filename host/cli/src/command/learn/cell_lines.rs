//! Lines of a cell: the present ones, and the result of adding more.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use portcullis::config::CellConfig;
use portcullis_learn::{CellKey, CellLine};

/// Reports whether a cell has a line already.
pub(crate) fn has(cell: &CellConfig, line: &CellLine) -> bool {
    let path = Path::new(&line.value);
    match line.key {
        CellKey::Read => cell.read.iter().chain(&cell.write).any(|known| path.starts_with(known)),
        CellKey::Write => cell.write.iter().any(|known| path.starts_with(known)),
        CellKey::Network => cell.network.contains(&line.value),
    }
}

/// Adds a line to a cell. Grants within a folder that is opened now are removed, as no grant may lie within another.
pub(super) fn add(cell: &mut CellConfig, line: &CellLine) {
    let path = PathBuf::from(&line.value);
    match line.key {
        CellKey::Network => cell.network.push(line.value.clone()),
        CellKey::Read => {
            cell.read.retain(|known| !known.starts_with(&path));
            cell.read.push(path);
        }
        CellKey::Write => {
            cell.read.retain(|known| !known.starts_with(&path));
            cell.write.retain(|known| !known.starts_with(&path));
            cell.write.push(path);
        }
    }
}

/// Returns the lines that no wider line contains.
pub(super) fn minimal(lines: Vec<CellLine>) -> Vec<CellLine> {
    let covered = |line: &CellLine| {
        lines.iter().any(|other| {
            let wider = other.key >= line.key && other.key != CellKey::Network && line.key != CellKey::Network;
            let within = Path::new(&line.value).starts_with(&other.value);
            wider && within && (other.value != line.value || other.key > line.key)
        })
    };
    lines.iter().filter(|line| !covered(line)).cloned().collect()
}

/// Returns what a cell opens, in order.
pub(super) fn opens(cell: &CellConfig) -> [BTreeSet<String>; 3] {
    let paths = |paths: &[PathBuf]| paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    [paths(&cell.read), paths(&cell.write), cell.network.iter().cloned().collect()]
}
