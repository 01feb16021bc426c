//! Runs the commands of an installer, each in its own cell.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis_jail::{CellLimits, Tier};
use portcullis_net::egress::{AllowedDestinations, ProxyListeners, Reach};

use super::super::registry::PackageRegistry;
use super::super::store::InstallLock;
use super::super::{PackageManager, npm, uv};
use super::Installer;
use crate::plan::PlanContext;
use crate::program_search::is_program;
use crate::{CellError, CellGrant, DiskQuota, Plan, ProgramNeeds, run_to_end};

/// The longest time that one step of an installation may take. The largest servers bring 200 MB, over a slow
/// connection.
const DEADLINE: Duration = Duration::from_secs(300);

/// The limits of an installer. Where no cache is given, npm keeps every archive in `/tmp`
/// until it is unpacked, and no archive is larger.
const LIMITS: CellLimits =
    CellLimits { memory: 2 << 30, processes: 256, cpu: None, files: 4096, file_size: 1 << 30, tmp: 1 << 30 };

/// The most that one step of an installation may write, with the cache. The largest servers bring 200 MB.
const QUOTA: DiskQuota = DiskQuota { bytes: 8 << 30, files: 500_000 };

/// The number of characters of an installer's error output that are shown, from its end.
const COMPLAINT_CHARS: usize = 400;

impl Installer<'_> {
    /// Returns the installer: npm next to npx, uv next to uvx.
    pub(super) fn tool(&self, name: &str) -> Result<PathBuf, CellError> {
        let beside = Path::new(&self.package.runner).parent().map(|folder| folder.join(name));
        match beside.filter(|path| path.is_absolute() && is_program(path)) {
            Some(path) => Ok(path),
            None => self.programs.resolve(name),
        }
    }

    pub(super) fn python(&self) -> Result<PathBuf, CellError> {
        Ok(ProgramNeeds::of(&["python3".to_owned()], None, None, &self.programs)?.program)
    }

    /// Runs the commands of a step with the registry in reach. The process with the turn to install uses the cache of
    /// the source; others fetch everything again.
    pub(super) async fn reach(
        &self,
        step: &str,
        commands: &[Vec<String>],
        folder: &Path,
        turn: Option<&InstallLock>,
    ) -> Result<(), CellError> {
        let registry = self.registry().await?;
        let cache = turn.map(|turn| self.store.cache(turn).and_then(|cache| cache.canonicalize())).transpose();
        let cache = cache.map_err(|error| self.failed(&format!("cannot be installed: {error}")))?;
        let ended = self.run(commands, folder, Some(registry), cache.as_deref()).await?;
        ended.map(drop).map_err(|said| self.complaint(step, &said, registry))
    }

    /// Runs commands one after another, in cells that may write to one folder, to the cache and reach the registry, if
    /// given. Returns the output of the last command, or why one failed.
    pub(super) async fn run(
        &self,
        commands: &[Vec<String>],
        folder: &Path,
        registry: Option<&PackageRegistry>,
        cache: Option<&Path>,
    ) -> Result<Result<String, String>, CellError> {
        let folder = folder.canonicalize().map_err(|error| self.failed(&error.to_string()))?;
        let (environment, needed) = match self.package.kind {
            PackageManager::Npm => (npm::environment(registry, cache), None),
            PackageManager::Uv => (uv::environment(registry, cache), Some(self.python()?)),
        };
        let network = registry.map(|registry| registry.hosts.clone()).unwrap_or_default();
        let certificates = registry.and_then(|registry| registry.certificates.as_deref());
        let mut said = String::new();
        for argv in commands {
            let mut needs = ProgramNeeds::of(argv, None, Some(&folder), &self.programs)?;
            if let Some(python) = &needed {
                needs.take_in(ProgramNeeds::of(&[python.to_string_lossy().into_owned()], None, None, &self.programs)?);
            }
            let write = std::iter::once(folder.clone()).chain(cache.map(Path::to_owned)).collect();
            let mut grant = CellGrant { write, network: network.clone(), ..CellGrant::nothing() };
            grant.directory = Some(folder.clone());
            grant.limits = LIMITS;
            grant.read.extend(certificates.and_then(|file| file.canonicalize().ok()));
            let tiers = self.cells.tiers().await;
            let (tier, enforced) = tiers.tier_for(&grant)?;
            debug_assert_ne!(tier, Tier::Reduced, "a cell with a network is never reduced");
            let setting = PlanContext {
                tier,
                enforced,
                outside_home: &folder,
                proxy_listeners: ProxyListeners::wanted(&AllowedDestinations::of_entries(&grant.network)),
                recorded: false,
            };
            let arguments = argv.get(1..).unwrap_or_default();
            let mut plan = Plan::new(&grant, &needs, arguments, &environment, setting);
            // No broker is started in an installed package, which may contain files of any name.
            plan.launch.cell.protected_names.clear();
            // The user's own configuration names the registry, which may be at a private address. A registry on the
            // public internet must not lead to one.
            let must_be_public = registry.map(|registry| registry.must_be_public.as_slice()).unwrap_or_default();
            let declared = AllowedDestinations::of_entries(&grant.network).public(must_be_public);
            let serve = |ready| self.cells.serve(self.source, declared, Reach::Private, ready, None, Arc::default());
            let ended = tokio::select! {
                ended = run_to_end(plan.launch, self.cells.launcher.clone(), DEADLINE, serve) => ended,
                // The installer is killed by then.
                why = QUOTA.wait_until_exceeded(&grant.write) => return Err(self.over_quota(&why, cache).await),
            };
            match ended {
                Ok(output) => said = output,
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(said))
    }

    /// Removes what an installer has fetched, with which the next installation would begin.
    async fn over_quota(&self, why: &str, cache: Option<&Path>) -> CellError {
        if let Some(cache) = cache.map(Path::to_owned) {
            // A file that cannot be removed does no harm but to take room.
            let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(cache)).await;
        }
        self.failed(&format!("cannot be installed: {why}; install it yourself and name its program"))
    }

    fn complaint(&self, step: &str, said: &str, registry: &PackageRegistry) -> CellError {
        let hint = hint(said, registry.has_credentials, registry.has_proxy);
        let said = end_on_one_line(said);
        let hosts = registry.hosts.join(" ");
        self.failed(&format!("did not {step} from {hosts} in its cell: {said}{hint}"))
    }
}

/// The words of npm, pip and uv for a package that a registry does not have.
const NOT_THERE: [&str; 4] = [
    "npm error code E404",
    "npm ERR! code E404",
    "No matching distribution found",
    "was not found in the package registry",
];

/// Returns the likely remedy for an installer's failure, from its output.
fn hint(said: &str, has_credentials: bool, has_proxy: bool) -> &'static str {
    let unknown = NOT_THERE.iter().any(|words| said.contains(words));
    // To those without credentials, a private package is one that is not there.
    if has_credentials && (unknown || ["401", "403"].iter().any(|code| said.contains(code))) {
        "; your credentials for this registry are kept out of the cell, so packages that need them are not supported: \
         install it yourself and name its program"
    } else if unknown {
        "; the registry shows no such package and version to everybody: is the name right?"
    } else if has_proxy {
        "; a proxy is configured, which is not used from a cell: if only the proxy reaches the registry, install the \
         package yourself and name its program"
    } else {
        ""
    }
}

/// Returns the end of what an installer wrote, from the beginning of a word, its lines joined and without what a terminal
/// would act on.
fn end_on_one_line(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = portcullis_core::escape::escape_hidden(&lines.join("; ")).into_owned();
    let Some((start, _)) = said.char_indices().rev().nth(COMPLAINT_CHARS) else { return said };
    let end = said.get(start..).unwrap_or_default();
    format!("… {}", end.split_once(' ').map_or(end, |(_, words)| words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_is_not_there_is_said_to_have_another_name_or_to_need_credentials() {
        for said in [
            "npm error code E404\nnpm error 404 Not Found",
            "  × No solution found … was not found in the package registry",
        ] {
            assert!(hint(said, false, true).contains("is the name right?"), "{said}");
            assert!(hint(said, true, false).contains("your credentials"), "{said}");
        }
        assert!(hint("npm error code E401", true, true).contains("your credentials"));
        assert!(hint("npm error code ETIMEDOUT", false, true).contains("a proxy is configured"));
        assert_eq!(hint("npm error code ETIMEDOUT", true, false), "");
    }

    #[test]
    fn lines_of_an_installer_are_joined_and_escapes_are_shown() {
        let said = "\n  npm error code E404\r\n\nnpm error 404 Not Found\u{1b}[2J\n";
        assert_eq!(end_on_one_line(said), "npm error code E404; npm error 404 Not Found\\u{1b}[2J");
        let long = "word ".repeat(COMPLAINT_CHARS) + "the end";
        let end = end_on_one_line(&long);
        assert!(end.starts_with("… word word") && end.ends_with("word the end"), "{end}");
        assert!(end.chars().count() <= COMPLAINT_CHARS + 2, "{end}");
        assert!(end_on_one_line(&"x".repeat(2 * COMPLAINT_CHARS)).chars().count() <= COMPLAINT_CHARS + 3);
    }
}
