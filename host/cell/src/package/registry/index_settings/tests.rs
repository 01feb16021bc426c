#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

/// A home folder, a file elsewhere, and variables that name them.
struct User {
    dir: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

impl User {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    fn file(self, name: &str, text: &str) -> Self {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// Sets a variable, in which `~` stands for the home folder.
    fn variable(mut self, name: &'static str, value: &str) -> Self {
        let home = self.dir.path().display().to_string();
        self.variables.push((name, value.replace('~', &home)));
        self
    }

    fn index(&self) -> Result<Option<String>, String> {
        let find = |name: &str| self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        configured(Some(self.dir.path()), &self.dir.path().join("etc"), &find).map(|configured| configured.address)
    }
}

const UV: &str = ".config/uv/uv.toml";
const PIP: &str = ".config/pip/pip.conf";
const OURS: &str = "https://ours.example.com/simple";

#[test]
fn a_private_index_is_found_in_each_common_form() {
    let tables = format!("[[index]]\nname = \"ours\"\nurl = \"{OURS}\" # the mirror\ndefault = true\n");
    let explicit = "[[index]]\nname = \"torch\"\nurl = \"https://torch.example.com\"\nexplicit = true\n";
    let line = format!("index-url = \"{OURS}\" # the mirror\n");
    let of_pip = format!("[global]\nindex-url = {OURS}\n");
    for user in [
        User::new().file(UV, &tables),
        User::new().file(UV, &format!("{explicit}{tables}")),
        User::new().file(UV, &line),
        User::new().file(UV, &format!("[pip]\n{line}")),
        User::new().file("elsewhere.toml", &tables).variable("UV_CONFIG_FILE", "~/elsewhere.toml"),
        User::new()
            .file(UV, "index-url = \"https://no.example.com\"")
            .file("x/uv/uv.toml", &tables)
            .variable("XDG_CONFIG_HOME", "~/x"),
        User::new().variable("UV_DEFAULT_INDEX", OURS),
        User::new().variable("UV_DEFAULT_INDEX", &format!("ours={OURS}")),
        User::new().variable("UV_INDEX_URL", OURS),
        User::new().variable("PIP_INDEX_URL", OURS),
        User::new().file(PIP, &of_pip),
        User::new().file(PIP, &format!("[global]\nindex_url: {OURS}\n")),
        User::new().file(PIP, &format!("[global]\nindex-url =\n    {OURS}\n")),
        User::new().file(".pip/pip.conf", &of_pip),
        User::new().file("etc/pip.conf", &of_pip),
        User::new().file("etc/uv/uv.toml", &tables),
        User::new().file("x/pip/pip.conf", &of_pip).variable("XDG_CONFIG_HOME", "~/x"),
        User::new()
            .file(PIP, "[global]\nindex-url = https://no.example.com\n")
            .file("mine", &of_pip)
            .variable("PIP_CONFIG_FILE", "~/mine"),
        User::new().file(PIP, &format!("{of_pip}find-links = /srv/wheels\n")).variable("PIP_FIND_LINKS", "/srv/wheels"),
        // The settings of pip do not count beside an index of uv.
        User::new()
            .file(PIP, "[global]\nextra-index-url = https://no.example.com\n")
            .variable("UV_DEFAULT_INDEX", OURS),
    ] {
        assert_eq!(user.index().unwrap().as_deref(), Some(OURS), "{:?}", user.variables);
    }
    let none = User::new().file(PIP, &of_pip).variable("PIP_CONFIG_FILE", "/dev/null");
    for user in [User::new(), User::new().file(UV, explicit), User::new().file(UV, "no-index = false\n"), none] {
        assert_eq!(user.index().unwrap(), None);
    }
}

#[test]
fn several_indexes_are_refused_with_the_way_out_and_no_public_index_takes_their_place() {
    let default = format!("[[index]]\nurl = \"{OURS}\"\ndefault = true\n");
    let further = "[[index]]\nurl = \"https://me:hunter2@further.example.com\"\n";
    for (user, named) in [
        (User::new().file(UV, further), "uv.toml has an `[[index]]` without `default = true`"),
        (User::new().file(UV, &format!("{default}{further}")), "without `default = true`"),
        (User::new().file(UV, further).variable("UV_DEFAULT_INDEX", OURS), "without `default = true`"),
        (User::new().file(UV, &format!("index-url = \"https://other.example.com\"\n{default}")), "several indexes"),
        (
            User::new().file(UV, "extra-index-url = [\"https://further.example.com\"]\n"),
            "uv.toml sets `extra-index-url`",
        ),
        (User::new().file(UV, "[pip]\nfind-links = [\"/srv/wheels\"]\n"), "uv.toml sets `find-links`"),
        (User::new().file(UV, "index = \"https://further.example.com\"\n"), "no `[[index]]`"),
        (User::new().file(UV, "index-url = 7\n"), "no text"),
        (User::new().file(UV, "url = hunter2\n"), "uv.toml is not valid TOML"),
        (
            User::new().file(PIP, "[global]\nextra-index-url = https://further.example.com\n"),
            "pip.conf sets `extra-index-url`",
        ),
        (
            User::new().file(PIP, "[global]\nextra_index_url:\n  https://further.example.com\n"),
            "pip.conf sets `extra-index-url`",
        ),
        (
            User::new().file(PIP, "[global]\nindex-url = https://a.example.com https://b.example.com\n"),
            "more than one word",
        ),
        (User::new().variable("UV_INDEX", OURS), "the variable `UV_INDEX` is set"),
        (User::new().variable("UV_EXTRA_INDEX_URL", OURS), "the variable `UV_EXTRA_INDEX_URL` is set"),
        (User::new().variable("PIP_EXTRA_INDEX_URL", OURS), "the variable `PIP_EXTRA_INDEX_URL` is set"),
        (User::new().variable("UV_CONFIG_FILE", "~/absent.toml"), "`UV_CONFIG_FILE` names, is not there"),
        (User::new().file(&format!("{UV}/x"), ""), "uv.toml cannot be read"),
    ] {
        let error = user.index().unwrap_err();
        assert!(error.contains(named), "{named}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
        let has_way_out = error.contains("`UV_DEFAULT_INDEX`") || error.contains("uv.toml") || error.contains("absent");
        assert!(has_way_out, "{error}");
    }
}
