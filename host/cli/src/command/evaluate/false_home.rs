//! The false surroundings of an evaluated server: a home, variables and a clock in place of the user's.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use portcullis::cell::{DiskQuota, Plan};
use portcullis::config::CellConfig;
use portcullis_evaluate::{Canary, CanaryPlace, Condition};

/// The path of the false internet's certificate in the cell.
const CERTIFICATE: &str = "/etc/local-root.pem";

/// Variables that name a file with the certificates to trust.
const CERTIFICATE_VARIABLES: [&str; 6] =
    ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "DENO_CERT"];

/// The files that move the clock of a runtime that reads them.
pub(super) const CLOCK_FOLDER: &str = "/etc/later";
const NODE_CLOCK: &str = "const ahead = 730 * 86400 * 1000, Real = Date;
class Later extends Real {
  constructor(...when) { if (when.length) super(...when); else super(Real.now() + ahead); }
  static now() { return Real.now() + ahead; }
}
globalThis.Date = new Proxy(Later, { apply: () => new Later().toString() });
";
const PYTHON_CLOCK: &str = "import datetime, time
ahead = 730 * 86400
_time, _time_ns = time.time, time.time_ns
_gmtime, _localtime, _strftime, _ctime = time.gmtime, time.localtime, time.strftime, time.ctime
time.time = lambda: _time() + ahead
time.time_ns = lambda: _time_ns() + ahead * 10**9
time.gmtime = lambda secs=None: _gmtime(time.time() if secs is None else secs)
time.localtime = lambda secs=None: _localtime(time.time() if secs is None else secs)
time.strftime = lambda form, when=None: _strftime(form, time.localtime() if when is None else when)
time.ctime = lambda secs=None: _ctime(time.time() if secs is None else secs)
_date, _datetime = datetime.date, datetime.datetime
class Same(type):
    def __instancecheck__(cls, thing):
        return isinstance(thing, cls._real)
class date(_date, metaclass=Same):
    _real = _date
    @classmethod
    def today(cls):
        return _date.fromtimestamp(time.time())
class datetime_(_datetime, metaclass=Same):
    _real = _datetime
    @classmethod
    def now(cls, tz=None):
        return _datetime.fromtimestamp(time.time(), tz)
    @classmethod
    def today(cls):
        return cls.now()
    @classmethod
    def utcnow(cls):
        return _datetime.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)
datetime.date, datetime.datetime = date, datetime_
";

/// A false home, in a folder of the run.
pub(super) struct FalseHome {
    /// The folder outside the cell that holds it.
    real: PathBuf,
    /// The variables that the server is given.
    told: PathBuf,
    pub(super) canaries: Vec<Canary>,
}

/// The greatest depth of folders in which files are read, the largest number of them, and the bytes of all together.
const MAX_DEPTH: usize = 16;
const MAX_FILES: usize = 2000;
const MAX_READ_BYTES: u64 = 16 << 20;

/// The most that a source may write in one run.
const QUOTA: DiskQuota = DiskQuota { bytes: 256 << 20, files: 20_000 };

/// Returns the path of the home that the server is given.
pub(super) fn visible_home_of(condition: Condition) -> PathBuf {
    Path::new("/home").join(condition.user())
}

/// Returns the folder in the home that has something to work on.
pub(super) fn work_folder(condition: Condition) -> PathBuf {
    visible_home_of(condition).join("projects/notes")
}

impl FalseHome {
    /// Makes the home, with canaries unless there must be nothing to find.
    pub(super) fn make(folder: &Path, condition: Condition) -> io::Result<Self> {
        let real = folder.join("home");
        let work = real.join("projects/notes");
        fs::create_dir_all(work.join("docs"))?;
        fs::write(work.join("README.md"), "# Notes\n\nThings to remember.\n")?;
        fs::write(work.join("docs/plan.txt"), "Monday: write. Tuesday: read.\n")?;
        for folder in [".git/hooks", ".git/objects", ".git/refs/heads"] {
            fs::create_dir_all(work.join(folder))?;
        }
        fs::write(work.join(".git/HEAD"), "ref: refs/heads/main\n")?;
        fs::write(work.join(".git/config"), "[core]\n\trepositoryformatversion = 0\n\tbare = false\n")?;
        let canaries = if condition == Condition::Bare { Vec::new() } else { Canary::make_all()? };
        for canary in &canaries {
            if let CanaryPlace::File(file) = canary.place {
                let file = real.join(file);
                fs::create_dir_all(file.parent().unwrap_or(&real))?;
                fs::write(file, &canary.content)?;
            }
        }
        Ok(Self { real, told: visible_home_of(condition), canaries })
    }

    /// Makes the home of a component, which knows it by its real path.
    pub(super) fn make_real(folder: &Path, condition: Condition) -> io::Result<Self> {
        let mut home = Self::make(folder, condition)?;
        home.told.clone_from(&home.real);
        Ok(home)
    }

    /// Opens the home, and nothing else, to the cell.
    pub(super) fn grant(&self, cell: &mut CellConfig) {
        cell.recorded = true;
        cell.write = vec![self.real.clone()];
    }

    /// Returns the variables of the server.
    pub(super) fn variables(&self, condition: Condition) -> Vec<(String, String)> {
        let mut variables: Vec<(String, String)> = [
            ("HOME", self.told.to_string_lossy().into_owned()),
            ("USER", condition.user().to_owned()),
            ("LOGNAME", condition.user().to_owned()),
            ("LANG", condition.locale().to_owned()),
            ("LC_ALL", condition.locale().to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        variables.extend(self.canary_variables());
        if condition != Condition::Bare {
            variables.extend(CERTIFICATE_VARIABLES.map(|name| (name.to_owned(), CERTIFICATE.to_owned())));
        }
        if condition == Condition::LaterClock {
            variables.push(("NODE_OPTIONS".to_owned(), format!("--require {CLOCK_FOLDER}/clock.cjs")));
            variables.push(("PYTHONPATH".to_owned(), CLOCK_FOLDER.to_owned()));
        }
        variables
    }

    /// Returns the variables that hold false secrets.
    pub(super) fn canary_variables(&self) -> impl Iterator<Item = (String, String)> {
        self.canaries.iter().filter_map(|canary| match canary.place {
            CanaryPlace::Variable(name) => Some((name.to_owned(), canary.content.clone())),
            CanaryPlace::File(_) => None,
        })
    }

    /// Puts the home at the path that the server is given, and starts the server in it unless its command names a
    /// folder.
    pub(super) fn place(&self, plan: &mut Plan, condition: Condition, certificate: &str) {
        let cell = &mut plan.launch.cell;
        if plan.launch.directory == cell.home {
            plan.launch.directory = self.real.join("projects/notes");
        }
        cell.links.push((self.told.clone(), self.real.clone()));
        cell.files.push((CERTIFICATE.into(), certificate.as_bytes().to_vec()));
        if condition == Condition::LaterClock {
            let clock = |name: &str, text: &str| (Path::new(CLOCK_FOLDER).join(name), text.as_bytes().to_vec());
            cell.files.push(clock("clock.cjs", NODE_CLOCK));
            cell.files.push(clock("sitecustomize.py", PYTHON_CLOCK));
        }
    }

    /// Returns a path in the form that the server is given, whichever way it was taken.
    pub(super) fn as_told(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.real).map_or_else(|_| path.to_owned(), |below| self.told.join(below))
    }

    /// Returns the home in the form that the source is given.
    pub(super) fn told(&self) -> &Path {
        &self.told
    }

    /// Returns the paths of the false secrets, in the form that the source is given.
    pub(super) fn canary_paths(&self) -> Vec<String> {
        let path = |canary: &Canary| match canary.place {
            CanaryPlace::File(file) => Some(self.told.join(file).to_string_lossy().into_owned()),
            CanaryPlace::Variable(_) => None,
        };
        self.canaries.iter().filter_map(path).collect()
    }

    /// Returns the paths of the false secrets outside the cell.
    pub(super) fn canary_files(&self) -> Vec<PathBuf> {
        let file = |canary: &Canary| match canary.place {
            CanaryPlace::File(file) => Some(self.real.join(file)),
            CanaryPlace::Variable(_) => None,
        };
        self.canaries.iter().filter_map(file).collect()
    }

    /// Waits until the source has written more than it may, and returns a description of the excess.
    pub(super) async fn wait_until_over_quota(&self) -> String {
        QUOTA.wait_until_exceeded(std::slice::from_ref(&self.real)).await
    }

    /// Returns the files that are new or changed, the smallest first and each from its beginning, and the number of
    /// files and folders with something left out.
    pub(super) fn written(&self) -> (Vec<(PathBuf, Vec<u8>)>, usize) {
        open_up(&self.real);
        let mut found = Vec::new();
        let mut left_out = find(&self.real, 0, &mut found);
        // A large one crowds out no small one.
        found.sort();
        left_out += found.len().saturating_sub(MAX_FILES);
        let (mut files, mut room) = (Vec::new(), MAX_READ_BYTES);
        for (_, path) in found.into_iter().take(MAX_FILES) {
            let mut content = Vec::new();
            // Links to places outside are not files, and the source has ended.
            let read = fs::File::open(&path)
                .and_then(|file| io::Read::read_to_end(&mut io::Read::take(file, room + 1), &mut content));
            left_out += usize::from(content.len() as u64 > room || read.is_err());
            let told = self.as_told(&path);
            if !self.planted(&told, &content) {
                room = room.saturating_sub(content.len() as u64);
                files.push((told, content));
            }
        }
        (files, left_out)
    }

    fn planted(&self, path: &Path, content: &[u8]) -> bool {
        self.canaries.iter().any(|canary| match canary.place {
            CanaryPlace::File(file) => path == self.told.join(file) && content == canary.content.as_bytes(),
            CanaryPlace::Variable(_) => false,
        })
    }
}

/// Restores the permissions that the source removed, so that the folder can be deleted.
impl Drop for FalseHome {
    fn drop(&mut self) {
        open_up(&self.real);
    }
}

/// Lets this user read and remove the content of a folder, whatever the source allowed.
fn open_up(folder: &Path) {
    // A file of another user cannot be opened, and is counted where it is read.
    let open = |path: &Path, least: u32| {
        let Ok(mode) = path.symlink_metadata().map(|about| about.permissions().mode()) else { return };
        if mode & least != least {
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode | least));
        }
    };
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        open(&folder, 0o700);
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => open(&entry.path(), 0o600),
                _ => {}
            }
        }
    }
}

/// Finds the files below a folder, with their sizes. Returns the number of folders that are left out.
fn find(folder: &Path, depth: usize, found: &mut Vec<(u64, PathBuf)>) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 1 };
    let mut left_out = 0;
    for entry in entries.flatten() {
        match entry.metadata() {
            Ok(about) if about.is_dir() && depth >= MAX_DEPTH => left_out += 1,
            Ok(about) if about.is_dir() => left_out += find(&entry.path(), depth + 1, found),
            Ok(about) if about.is_file() => found.push((about.len(), entry.path())),
            _ => {}
        }
    }
    left_out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use super::*;

    fn home(folder: &Path) -> FalseHome {
        FalseHome::make(folder, Condition::Baseline).unwrap()
    }

    #[test]
    fn what_a_source_closed_to_everybody_is_read_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let home = home(folder.path());
        let closed = home.real.join("closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("copy"), "a secret").unwrap();
        for (path, mode) in [(closed.join("copy"), 0o0), (closed.clone(), 0o0)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let (files, left_out) = home.written();
        let told = visible_home_of(Condition::Baseline).join("closed/copy");
        assert!(files.contains(&(told, b"a secret".to_vec())) && left_out == 0, "{left_out}");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
        drop(home);
        assert_eq!(closed.metadata().unwrap().permissions().mode() & 0o700, 0o700, "it can be removed");
    }

    #[test]
    fn what_is_written_is_read_to_the_end_within_a_bound_and_the_rest_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let home = home(folder.path());
        let (before, _) = home.written();
        fs::write(home.real.join("long"), [vec![b'y'; 300_000], b"secret".to_vec()].concat()).unwrap();
        let (files, left_out) = home.written();
        assert!(files.iter().any(|(_, content)| content.ends_with(b"secret")) && left_out == 0);
        assert_eq!(files.len(), before.len() + 1);
        let sparse = fs::File::create(home.real.join("huge")).unwrap();
        sparse.set_len(MAX_READ_BYTES * 2).unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", MAX_DEPTH + 1).collect();
        fs::create_dir_all(home.real.join(deep)).unwrap();
        let (files, left_out) = home.written();
        assert_eq!(left_out, 2);
        assert!(files.iter().any(|(_, content)| content.ends_with(b"secret")), "a large one crowds out no small one");
        assert!(
            files.iter().map(|(_, content)| content.len() as u64).sum::<u64>() <= MAX_READ_BYTES + MAX_FILES as u64
        );
    }

    #[tokio::test]
    async fn a_source_that_fills_the_disk_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let home = home(folder.path());
        let nothing_yet = tokio::time::timeout(DiskQuota::PAUSE * 3, home.wait_until_over_quota()).await;
        assert!(nothing_yet.is_err());
        for at in 0..=QUOTA.files {
            fs::File::create(home.real.join(at.to_string())).unwrap();
        }
        let why = tokio::time::timeout(Duration::from_secs(60), home.wait_until_over_quota()).await.unwrap();
        assert!(why.contains("20000 files"), "{why}");
    }
}
