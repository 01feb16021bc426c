//! The script that a command names, and what must not be opened because a command or a package names it.

use super::*;

/// Returns what the command reads below `project`.
fn of_project(home: &Home, argv: &[&str]) -> Vec<String> {
    let needs = home.needs(&["py/bin", "node/bin"], argv);
    home.read(&needs).into_iter().filter(|path| path.starts_with("project")).collect()
}

fn with_interpreters() -> Home {
    let home = Home::new();
    home.python("py");
    home.node("node");
    home.file("project/main.py", "");
    home.file("project/index.js", "");
    home.file("project/package.json", "{}");
    home
}

#[test]
fn what_may_run_other_code_opens_no_file_that_the_command_names() {
    let home = with_interpreters();
    home.file("py/bin/fastmcp", &format!("#!{}\n", home.at("py/bin/python3").display()));
    home.file("py/bin/server", "\x7fELF");
    for argv in [
        &["python3", "-cimport os", "~/project/main.py"][..],
        &["python3", "-mcode", "~/project/main.py"],
        &["python3", "-u", "-Xpresite=evil", "~/project/main.py"],
        &["python3", "-W", "error::evil.X", "~/project/main.py"],
        &["python3", "other.py", "~/project/main.py"],
        &["node", "--eval=1", "~/project/index.js"],
        &["node", "--import=data:text/javascript,1", "~/project/index.js"],
        &["node", "-r", "./evil.js", "~/project/index.js"],
        &["node", "-p", "~/project/index.js"],
        &["node", "--max-old-space-size=1;x", "~/project/index.js"],
        // It shows each line that it runs.
        &["/bin/sh", "-x", "~/project/main.py"],
        &["fastmcp", "dev", "~/project/main.py"],
        &["fastmcp", "run", "~/project/main.py", "--python", "/srv/evil"],
        &["fastmcp", "~/project/main.py"],
        // A binary runs no script, whatever it is given.
        &["server", "~/project/main.py"],
    ] {
        assert!(of_project(&home, argv).is_empty(), "{argv:?}");
    }
    for argv in [
        &["python3", "-uB", "-I", "~/project/main.py", "--data", "x"][..],
        &["node", "--enable-source-maps", "--max-old-space-size=4096", "~/project/index.js"],
        &["fastmcp", "run", "~/project/main.py", "--transport", "stdio", "--log-level=debug"],
    ] {
        assert_eq!(of_project(&home, argv), ["project"], "{argv:?}");
    }
}

#[test]
fn a_program_that_only_has_the_name_of_an_interpreter_runs_nothing_but_its_own_scripts() {
    let home = with_interpreters();
    home.file("bundle/bin/python3", "\x7fELF");
    home.file("bundle/node", "\x7fELF");
    home.file("bundle/pyproject/.venv/pyvenv.cfg", "");
    home.link("bundle/pyproject/.venv/bin/python", home.at("py/bin/python3").to_str().unwrap());
    home.file("bundle/mcp", &format!("#!{}\n", home.at("py/bin/python3").display()));
    home.file("bundle/pyproject/main.py", "");
    home.file("bundle/main.py", "");
    for program in ["bin/python3", "node", "pyproject/.venv/bin/python", "mcp"] {
        let program = format!("~/bundle/{program}");
        for argv in [&[&*program, "~/project/main.py"][..], &[&program, "run", "~/project/main.py"]] {
            assert!(of_project(&home, argv).is_empty(), "{argv:?}");
        }
    }
    // A way back from a folder of the system or of a version manager makes no program one of theirs.
    home.file(".nvm/alias/default", "");
    let by_system = format!("/usr/..{}", home.at("bundle/bin/python3").display());
    for program in [by_system.as_str(), "~/.nvm/../bundle/bin/python3"] {
        assert!(of_project(&home, &[program, "~/project/main.py"]).is_empty(), "{program}");
    }
    let reads = |program: &str, script: &str| home.read(&home.needs(&[], &[program, script]));
    assert!(reads("~/bundle/bin/python3", "~/bundle/main.py").contains(&"bundle".to_owned()));
    let own = reads("~/bundle/pyproject/.venv/bin/python", "~/bundle/pyproject/main.py");
    assert!(own.contains(&"bundle/pyproject".to_owned()), "{own:?}");
    // A shim of the search path counts as its program, wherever the version manager is.
    home.python("manager/versions/3.12.1");
    home.file("manager/shims/python", "#!/usr/bin/env bash\n");
    home.file("manager/version", "3.12.1\n");
    let needs = home.needs(&["manager/shims"], &["python", "~/bundle/main.py"]);
    assert!(home.read(&needs).contains(&"bundle".to_owned()), "{needs:?}");
    // A program unpacked next to other files does not get those files.
    home.file("Downloads/bin/python3", "\x7fELF");
    home.file("Downloads/taxes.txt", "");
    assert!(!reads("~/Downloads/bin/python3", "~/Downloads/taxes.txt").iter().any(|path| path.contains("taxes")));
}

#[test]
fn a_command_opens_no_credentials_and_no_file_of_the_broker_by_naming_it() {
    let home = with_interpreters();
    for name in [
        ".ssh/config",
        ".ssh/id_rsa",
        ".npmrc",
        ".zshrc",
        ".claude/.credentials.json",
        ".config/git/config",
        ".portcullis/secrets.json",
        "work/.portcullis/key",
        "work/.env",
    ] {
        home.file(name, "");
        home.link("link", home.at(name).to_str().unwrap());
        for program in ["python3", "node"] {
            for named in [&*format!("~/{name}"), "~/link"] {
                let needs = home.needs(&["py/bin", "node/bin"], &[program, named]);
                let all = home.read(&needs);
                let is_interpreter = |path: &String| path.starts_with("py/") || path.starts_with("node/");
                assert!(all.iter().all(is_interpreter), "{program} {named}: {all:?}");
                assert!(needs.notes.iter().any(|note| note.contains("credentials")), "{program} {named}");
            }
        }
        std::fs::remove_file(home.at("link")).unwrap();
    }
    // A file in a folder of installed programs is a script like any other.
    home.file(".local/bin/server.py", "");
    let reads = home.read(&home.needs(&["py/bin"], &["python3", "~/.local/bin/server.py"]));
    assert!(reads.contains(&".local/bin/server.py".to_owned()), "{reads:?}");
}

#[test]
fn no_folder_with_credentials_or_of_many_programs_is_opened_around_a_script() {
    let home = with_interpreters();
    for (script, opened) in [
        (".config/mimeapps.list", ".config/mimeapps.list"),
        (".cargo/env", ".cargo/env"),
        ("Documents/run.py", "Documents/run.py"),
        (".local/share/app/run.py", ".local/share/app"),
        (".config/app/run.py", ".config/app"),
        ("work/run.py", "work"),
    ] {
        home.file(script, "");
        let reads = home.read(&home.needs(&["py/bin"], &["python3", &format!("~/{script}")]));
        assert!(reads.contains(&opened.to_owned()), "{script}: {reads:?}");
    }
    home.file("Downloads/package.json", "{}");
    home.file("Downloads/server/index.js", "");
    let reads = home.read(&home.needs(&["node/bin"], &["node", "~/Downloads/server/index.js"]));
    assert!(reads.contains(&"Downloads/server/index.js".to_owned()), "{reads:?}");
}

#[test]
fn a_link_of_a_package_leads_to_no_other_folder() {
    let home = with_interpreters();
    home.file(".ssh/config", "");
    home.file("private/notes", "");
    for (number, target) in [".ssh", "private"].iter().enumerate() {
        let repo = format!("repo{number}");
        home.file(&format!("{repo}/package.json"), "{}");
        home.file(&format!("{repo}/index.js"), "");
        home.link(&format!("{repo}/node_modules"), &format!("../{target}"));
        home.file(&format!("{repo}/l/bin/node"), "\x7fELF");
        home.link(&format!("{repo}/l/lib"), &format!("../../{target}"));
        home.file(&format!("{repo}/v/pyvenv.cfg"), "");
        home.link(&format!("{repo}/v/bin/python3"), home.at("py/bin/python3").to_str().unwrap());
        home.link(&format!("{repo}/v/lib"), &format!("../../{target}"));
        home.file(&format!("{repo}/cli"), &format!("#!{}\n", home.at(&format!("{repo}/v/bin/python3")).display()));
        for argv in [
            &["node", &*format!("~/{repo}/index.js")][..],
            &[&format!("~/{repo}/l/bin/node")],
            &[&format!("~/{repo}/v/bin/python3")],
            &[&format!("~/{repo}/cli")],
        ] {
            let reads = home.read(&home.needs(&["node/bin", "py/bin"], argv));
            assert!(!reads.iter().any(|path| path.starts_with(target)), "{argv:?}: {reads:?}");
        }
    }
    // Nor to the folder next to it.
    home.file("tool/bin/node", "\x7fELF");
    home.file("tool/private/notes", "");
    home.link("tool/lib", "private");
    assert_eq!(home.read(&home.needs(&[], &["~/tool/bin/node"])), ["tool/bin/node"]);
}

#[test]
fn a_virtual_environment_that_is_a_project_opens_only_what_an_environment_is_made_of() {
    let home = with_interpreters();
    home.file("project/pyvenv.cfg", "");
    home.link("project/bin/python3", home.at("py/bin/python3").to_str().unwrap());
    home.file("project/lib/python3.12/os.py", "");
    home.file("project/secret.txt", "");
    assert_eq!(
        of_project(&home, &["~/project/bin/python3", "-c", "x"]),
        ["project/bin", "project/lib", "project/pyvenv.cfg"]
    );
}

#[test]
fn an_interpreter_that_a_script_names_is_no_file_with_credentials() {
    let home = with_interpreters();
    home.file(".ssh/deploy", "#!/usr/bin/env python3\n");
    home.file("bundle/run", &format!("#!{}\n", home.at(".ssh/deploy").display()));
    let error = home.try_needs(&["py/bin"], &["~/bundle/run"]).unwrap_err().to_string();
    assert!(error.contains("holds credentials"), "{error}");
}

#[test]
fn a_program_of_a_package_runs_scripts_only_if_the_package_is_known_for_that() {
    let home = with_interpreters();
    home.file("tree/bin/mcp", &format!("#!{}\n", home.at("py/bin/python3").display()));
    let argv = [home.at("tree/bin/mcp"), "run".into(), home.at("project/main.py")];
    let argv = argv.map(|word| word.into_os_string().into_string().unwrap());
    for (package, expected) in [(Some("mcp"), true), (Some("evil"), false), (None, false)] {
        let needs = ProgramNeeds::of(&argv, package, None, &home.programs(&[])).unwrap();
        assert_eq!(home.read(&needs).contains(&"project".to_owned()), expected, "{package:?}");
    }
}
