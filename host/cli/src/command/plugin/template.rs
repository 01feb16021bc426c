//! The templates of `plugin new`. Each is a whole project: the WIT files are in it, so that it builds anywhere.

use std::path::{Path, PathBuf};

use super::new::{Kind, Language};

/// The configuration of a new plugin's folder, with which a broker uses the plugin.
pub(super) const CONFIG: &str = "portcullis.toml";

macro_rules! template {
    ($file:literal) => {
        include_str!(concat!("../../../templates/plugin/", $file))
    };
}

macro_rules! wit {
    ($($name:literal),*) => {
        [$((concat!("wit/", $name), include_str!(concat!("../../../wit/", $name)))),*]
    };
}

/// The contract, as a guest needs it.
const WIT: [(&str, &str); 10] = wit!(
    "approval.wit",
    "audit.wit",
    "caller.wit",
    "calls.wit",
    "key-value.wit",
    "policy.wit",
    "resources.wit",
    "session.wit",
    "tools.wit",
    "transform.wit"
);

/// The version of componentize-py that the template for Python was tested with.
const COMPONENTIZE_PY: &str = "0.25.1";

/// The files of a new plugin, of one kind and in one language.
pub(super) struct Template {
    language: Language,
    kind: Kind,
    /// The source files, with their paths.
    sources: &'static [(&'static str, &'static str)],
}

impl Template {
    /// Returns the template for this language and kind.
    pub(super) fn of(language: Language, kind: Kind) -> Self {
        let sources: &[_] = match (language, kind) {
            (Language::Rust, Kind::Policy) => &[("src/lib.rs", template!("rust/policy.rs.txt"))],
            (Language::Rust, Kind::Transform) => &[("src/lib.rs", template!("rust/transform.rs.txt"))],
            (Language::Rust, Kind::Approval) => &[("src/lib.rs", template!("rust/approval.rs.txt"))],
            (Language::Rust, Kind::Audit) => &[("src/lib.rs", template!("rust/audit.rs.txt"))],
            (Language::Rust, Kind::Tools) => &[("src/lib.rs", template!("rust/tools.rs.txt"))],
            (Language::JavaScript, Kind::Policy) => &[("plugin.js", template!("javascript/policy.js.txt"))],
            (Language::JavaScript, Kind::Transform) => &[("plugin.js", template!("javascript/transform.js.txt"))],
            (Language::JavaScript, Kind::Approval) => &[("plugin.js", template!("javascript/approval.js.txt"))],
            (Language::JavaScript, Kind::Audit) => &[("plugin.js", template!("javascript/audit.js.txt"))],
            (Language::JavaScript, Kind::Tools) => &[("plugin.js", template!("javascript/tools.js.txt"))],
            (Language::Python, Kind::Policy) => &[("plugin.py", template!("python/policy.py.txt"))],
            (Language::Python, Kind::Transform) => &[("plugin.py", template!("python/transform.py.txt"))],
            (Language::Python, Kind::Approval) => &[("plugin.py", template!("python/approval.py.txt"))],
            (Language::Python, Kind::Audit) => &[("plugin.py", template!("python/audit.py.txt"))],
            (Language::Python, Kind::Tools) => &[
                ("plugin.py", template!("python/tools.py.txt")),
                ("tools.py", template!("python/tools_session.py.txt")),
            ],
        };
        Self { language, kind, sources }
    }

    /// Returns the path of the file that an author edits first.
    pub(super) fn source_file(&self) -> &'static str {
        self.sources.first().map_or("", |(path, _)| path)
    }

    /// Returns every file of a plugin of this name, with its path in the folder.
    pub(super) fn files(&self, name: &str) -> Vec<(PathBuf, String)> {
        let sources = self.sources.iter().chain(self.project()).chain(&WIT);
        let mut files: Vec<_> = sources.map(|(path, text)| (*path, (*text).to_owned())).collect();
        files.push((CONFIG, self.config().to_owned()));
        files.extend(self.fixtures().map(|text| ("fixtures/cases.toml", text.to_owned())));
        files.push(("README.md", self.readme(name)));
        let filled = |(path, text): (&str, String)| (PathBuf::from(path), self.filled(&text, name, path));
        files.into_iter().map(filled).collect()
    }

    /// Returns the commands that build the plugin and try it, in its folder.
    pub(super) fn steps(&self, name: &str) -> Vec<String> {
        let mut steps = match self.language {
            Language::Rust => vec!["cargo build --release --target wasm32-unknown-unknown".to_owned()],
            Language::JavaScript => vec!["npm install".to_owned(), "npm run build".to_owned()],
            Language::Python => vec![
                format!("pip install componentize-py=={COMPONENTIZE_PY}"),
                format!(
                    "componentize-py -d wit -w {}-plugin componentize plugin -o {name}.wasm --stub-wasi",
                    self.kind_word()
                ),
            ],
        };
        steps.push(match self.fixtures() {
            Some(_) => "portcullis plugin test".to_owned(),
            None => format!("portcullis plugin inspect {}", self.component(name)),
        });
        steps.push(match self.kind {
            Kind::Policy | Kind::Audit => "portcullis call calculator__divide '{\"a\":1,\"b\":2}'".to_owned(),
            Kind::Transform => "portcullis call calculator__add '{\"a\":1,\"b\":2,\"token\":\"abc\"}'".to_owned(),
            Kind::Approval => "portcullis call calculator__add '{\"a\":1,\"b\":2}'".to_owned(),
            Kind::Tools => format!("portcullis call {name}__count '{{\"text\":\"one two three\"}}'"),
        });
        steps
    }

    fn project(&self) -> &'static [(&'static str, &'static str)] {
        match self.language {
            Language::Rust => &[
                ("Cargo.toml", template!("rust/Cargo.toml.txt")),
                (".gitignore", "/target\n/.portcullis\n"),
                ("rust-toolchain.toml", "[toolchain]\ntargets = [\"wasm32-unknown-unknown\"]\n"),
            ],
            Language::JavaScript => &[
                ("package.json", template!("javascript/package.json.txt")),
                (".gitignore", "/node_modules\n/*.wasm\n/.portcullis\n"),
            ],
            Language::Python => &[(".gitignore", "__pycache__\n/*.wasm\n/.portcullis\n")],
        }
    }

    fn config(&self) -> &'static str {
        match self.kind {
            Kind::Policy => template!("config/policy.toml.txt"),
            Kind::Transform => template!("config/transform.toml.txt"),
            Kind::Approval => template!("config/approval.toml.txt"),
            Kind::Audit => template!("config/audit.toml.txt"),
            Kind::Tools => template!("config/tools.toml.txt"),
        }
    }

    fn fixtures(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Policy => Some(template!("fixtures/policy.toml.txt")),
            Kind::Transform => Some(template!("fixtures/transform.toml.txt")),
            Kind::Approval | Kind::Audit | Kind::Tools => None,
        }
    }

    fn readme(&self, name: &str) -> String {
        let commands = self.steps(name).join("\n");
        format!(
            "# {name}\n\nA Portcullis plugin. `{}` is the plugin, and `wit/` the contract that it implements.\n\n```sh\n{commands}\n```\n",
            self.source_file()
        )
    }

    /// Returns the path of the built component, in the folder of the plugin.
    fn component(&self, name: &str) -> String {
        match self.language {
            Language::Rust => format!("target/wasm32-unknown-unknown/release/{}.wasm", name.replace('-', "_")),
            Language::JavaScript | Language::Python => format!("{name}.wasm"),
        }
    }

    /// Returns a text with the names of this plugin. The WIT files have no such places.
    fn filled(&self, text: &str, name: &str, path: &str) -> String {
        if Path::new(path).starts_with("wit") {
            return text.to_owned();
        }
        let wasm = self.component(name);
        text.replace("{wasm}", &wasm).replace("{name}", name).replace("{kind}", self.kind_word())
    }

    fn kind_word(&self) -> &'static str {
        match self.kind {
            Kind::Policy => "policy",
            Kind::Transform => "transform",
            Kind::Approval => "approval",
            Kind::Audit => "audit",
            Kind::Tools => "tools",
        }
    }
}
