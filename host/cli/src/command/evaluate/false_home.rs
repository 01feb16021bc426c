//! The false surroundings of an evaluated server: a home, variables and a clock in place of the user's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use portcullis::cell::Plan;
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

/// Returns the home as the server is told it.
pub(super) fn told_home(condition: Condition) -> PathBuf {
    Path::new("/home").join(condition.user())
}

/// Returns the folder in the home that has something to work on.
pub(super) fn work_folder(condition: Condition) -> PathBuf {
    told_home(condition).join("projects/notes")
}

impl FalseHome {
    /// Makes the home, with canaries unless there is to be nothing to find.
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
        Ok(Self { real, told: told_home(condition), canaries })
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
        for canary in &self.canaries {
            if let CanaryPlace::Variable(name) = canary.place {
                variables.push((name.to_owned(), canary.content.clone()));
            }
        }
        if condition != Condition::Bare {
            variables.extend(CERTIFICATE_VARIABLES.map(|name| (name.to_owned(), CERTIFICATE.to_owned())));
        }
        if condition == Condition::LaterClock {
            variables.push(("NODE_OPTIONS".to_owned(), format!("--require {CLOCK_FOLDER}/clock.cjs")));
            variables.push(("PYTHONPATH".to_owned(), CLOCK_FOLDER.to_owned()));
        }
        variables
    }

    /// Puts the home where the server is told that it is, and starts the server in it unless its command says where.
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

    /// Returns a path as the server is told it, whichever way it was taken.
    pub(super) fn as_told(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.real).map_or_else(|_| path.to_owned(), |below| self.told.join(below))
    }

    /// Returns the files that are new or changed, with the beginning of each.
    pub(super) fn written(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        self.collect(&self.real, 0, &mut found);
        found
    }

    fn collect(&self, folder: &Path, depth: usize, found: &mut Vec<(PathBuf, Vec<u8>)>) {
        const MAX_DEPTH: usize = 16;
        const MAX_FILES: usize = 2000;
        const MAX_BYTES: u64 = 256 * 1024;
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() && depth < MAX_DEPTH {
                self.collect(&path, depth + 1, found);
            } else if kind.is_file() && found.len() < MAX_FILES {
                let mut content = Vec::new();
                // What cannot be read was written by somebody else.
                let read = fs::File::open(&path)
                    .and_then(|file| io::Read::read_to_end(&mut io::Read::take(file, MAX_BYTES), &mut content));
                let told = self.as_told(&path);
                if read.is_ok() && !self.planted(&told, &content) {
                    found.push((told, content));
                }
            }
        }
    }

    fn planted(&self, path: &Path, content: &[u8]) -> bool {
        self.canaries.iter().any(|canary| match canary.place {
            CanaryPlace::File(file) => path == self.told.join(file) && content == canary.content.as_bytes(),
            CanaryPlace::Variable(_) => false,
        })
    }
}
