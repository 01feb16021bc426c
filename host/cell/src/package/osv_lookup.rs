//! Looks up packages in the vulnerability database before they are installed, and before each start.

use portcullis_core::lockfile::PackageVersion;
use portcullis_osv::{OsvCheck, OsvDatabase};

use super::super::{CellError, CellFactory};
use super::PackageCommand;

/// Looks up resolved packages in the user's database. Nothing is checked if there is none.
///
/// # Errors
/// [`CellError::Malicious`] if a record calls one of them malicious; [`CellError::Package`] if the database cannot be
/// used.
pub(super) async fn look_up(
    cells: &CellFactory,
    package: &PackageCommand,
    units: &[PackageVersion],
) -> Result<OsvCheck, CellError> {
    let Some(file) = cells.osv().map(std::path::Path::to_owned) else { return Ok(OsvCheck::default()) };
    let (ecosystem, units) = (package.kind.ecosystem(), units.to_vec());
    let check = move || match OsvDatabase::open(&file)? {
        None => Ok(OsvCheck::default()),
        Some(database) => {
            database.check(ecosystem, units.iter().map(|unit| (unit.name.as_str(), unit.version.as_str())))
        }
    };
    let unchecked =
        |why: String| CellError::Package(format!("package {} cannot be checked: {why}", package.lock_key()));
    let checked = tokio::task::spawn_blocking(check).await.map_err(|error| unchecked(error.to_string()))?;
    let check = checked.map_err(|error| unchecked(error.to_string()))?;
    match (check.malicious(), &check.database) {
        (Some(record), Some(database)) => Err(CellError::Malicious {
            requested: package.lock_key(),
            record: Box::new(record.clone()),
            database: database.clone(),
        }),
        _ => Ok(check),
    }
}
