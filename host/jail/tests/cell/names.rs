//! Names that a program can neither create nor change in a folder that it may write.

use std::fs;
use std::path::Path;

use portcullis_jail::{CellSpec, LaunchSpec, Mount, SyscallListener, Tier, recorded_call};

use crate::recorded::recorded;
use crate::*;

/// The protected names of these tests.
const NAMES: [&str; 2] = ["kept.toml", ".kept"];

/// Returns the launch of a Python program that may write to a folder, its working directory.
fn python(folder: &Path, script: &str) -> LaunchSpec {
    let mut launch = shell("");
    launch.program = "/usr/bin/python3".into();
    launch.arguments = vec!["-ISc".into(), script.into()];
    launch.cell.mounts.push(Mount::write(folder));
    launch.cell.protected_names = NAMES.map(str::to_owned).into();
    launch.directory = folder.to_owned();
    launch
}

/// Returns a launch in each tier that this user has here. The home is for the tier that needs one outside.
fn in_each_tier(who: As, launch: &LaunchSpec, home: &Path) -> Vec<LaunchSpec> {
    let tier = |tier| LaunchSpec { cell: CellSpec { tier, ..launch.cell.clone() }, ..launch.clone() };
    let mut launches = vec![tier(Tier::Full)];
    if who == As::Ordinary || !rustix::process::geteuid().is_root() {
        let mut reduced = tier(Tier::Reduced);
        reduced.cell.home = home.to_owned();
        launches.push(reduced);
        if Path::new("/usr/bin/bwrap").exists() {
            launches.push(tier(Tier::FullViaBwrap));
        }
    }
    launches
}

/// Runs a test with each user, if the machine has Python.
fn each_with_python(test: impl Fn(As) + Copy + Send + 'static) {
    if Path::new("/usr/bin/python3").exists() {
        each(test);
    }
}

/// Returns what there is in a folder, at any depth: paths, and the contents of files.
fn tree(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        found.push((path.display().to_string(), if kind.is_file() { fs::read(&path).unwrap() } else { Vec::new() }));
        if kind.is_dir() {
            found.extend(tree(&path));
        }
    }
    found.sort();
    found
}

#[test]
fn every_call_that_changes_files_has_the_results_that_it_has_outside() {
    each_with_python(|who| {
        if who == As::Oneself && rustix::process::geteuid().is_root() {
            // Outside, root has rights that no source has.
            return;
        }
        let script = include_str!("names/calls.py");
        let home = who.folder();
        let prepared = || {
            let folder = who.folder();
            let group = folder.path().join("group");
            fs::create_dir(&group).unwrap();
            fs::set_permissions(group, fs::Permissions::from_mode(0o2775)).unwrap();
            folder
        };
        let folder = prepared();
        let mut outside = Command::new("/usr/bin/python3");
        outside.args(["-ISc", script]).current_dir(folder.path()).env_clear().env("PATH", "/usr/bin");
        let outside = outside.output().unwrap();
        let outside = String::from_utf8(outside.stdout).unwrap() + &String::from_utf8(outside.stderr).unwrap();
        let outside = outside.replace(folder.path().to_str().unwrap(), "FOLDER");
        assert!(outside.lines().count() > 600, "{outside}");
        for index in 0..3 {
            let folder = prepared();
            let launches = in_each_tier(who, &python(folder.path(), script), home.path());
            let Some(launch) = launches.get(index) else { continue };
            let inside = output(launch).0.replace(folder.path().to_str().unwrap(), "FOLDER");
            let lines = inside.lines().zip(outside.lines());
            let different: Vec<_> = lines.filter(|(inside, outside)| inside != outside).collect();
            assert!(different.is_empty(), "{} {different:#?}", launch.cell.tier);
            assert_eq!(inside, outside, "{}", launch.cell.tier);
        }
    });
}

/// Creates the protected entries that exist in a folder.
fn keep(folder: &Path) {
    fs::create_dir_all(folder.join("sub/.kept/deep")).unwrap();
    fs::write(folder.join("sub/kept.toml"), "as it was").unwrap();
    fs::write(folder.join("sub/.kept/inner"), "as it was").unwrap();
}

#[test]
fn protected_names_are_made_changed_moved_and_removed_in_no_way() {
    each_with_python(|who| {
        let home = who.folder();
        for index in 0..4 {
            let folder = who.folder();
            keep(folder.path());
            let before = tree(&folder.path().join("sub"));
            let launch = python(folder.path(), include_str!("names/attempts.py"));
            let said = match in_each_tier(who, &launch, home.path()).get(index) {
                Some(launch) => output(launch).0,
                None if index == 3 => recorded(launch).0,
                None => continue,
            };
            let links = "'far-.kept', 'far-kept.toml', 'folder', 'harmless', 'sub', 'to-.kept', 'to-data', \
                         'to-kept.toml', 'to-to-.kept', 'to-to-kept.toml'";
            assert_eq!(said, format!("True -1 [{links}]\n"), "{index}");
            assert_eq!(tree(&folder.path().join("sub")), before, "{index}");
        }
    });
}

#[test]
fn the_home_of_a_reduced_cell_which_is_a_folder_of_the_machine_gets_no_protected_name() {
    each_with_python(|who| {
        let (folder, home) = (who.folder(), who.folder());
        let script = format!(
            "import os\nos.chdir('{}')\nopen('new', 'w').write('made')\n\
            try: os.mkdir('.kept')\nexcept OSError as e: print(e.strerror)",
            home.path().display()
        );
        for launch in in_each_tier(who, &python(folder.path(), &script), home.path()) {
            if launch.cell.tier == Tier::Reduced {
                assert_eq!(output(&launch).0, "Operation not permitted\n");
                assert_eq!(fs::read(home.path().join("new")).unwrap(), b"made");
            }
        }
    });
}

#[test]
fn a_recorder_that_ends_makes_the_deputy_of_its_cell_end_too() {
    each(|who| {
        let folder = who.folder();
        let mut launch = shell("cd \"$0\"; : > before; (mkdir stop); (: > after) || echo failed");
        launch.arguments.push(folder.path().into());
        launch.cell.mounts.push(Mount::write(folder.path()));
        launch.cell.protected_names = NAMES.map(str::to_owned).into();
        launch.cell.recorded = true;
        let mut started = start(&launch);
        let listen = |handle| {
            let listener = SyscallListener::new(handle);
            std::thread::spawn(move || {
                while let Some(call) = listener.receive().unwrap() {
                    let is_last = recorded_call(call.number).is_some_and(|call| call.name.starts_with("mkdir"));
                    listener.continue_call(&call);
                    if is_last {
                        break;
                    }
                }
            });
        };
        started.control.ready(listen).unwrap_or_else(|refusal| panic!("{refusal}"));
        let mut said = String::new();
        started.output.read_to_string(&mut said).unwrap();
        started.process.wait().unwrap();
        assert_eq!(said, "failed\n");
        assert!(folder.path().join("before").exists() && !folder.path().join("after").exists());
    });
}

#[test]
fn only_a_source_with_protected_names_has_a_deputy() {
    each(|who| {
        let folder = who.folder();
        for names in [Vec::new(), vec![NAMES[0].to_owned()]] {
            let mut launch = shell("grep Seccomp_filters /proc/self/status");
            launch.cell.mounts.push(Mount::write(folder.path()));
            launch.cell.protected_names = names.clone();
            let mut started = start(&launch);
            let enforced = started.control.ready(drop).unwrap().enforced;
            assert_eq!(enforced.protects_names, !names.is_empty());
            let mut said = String::new();
            started.output.read_to_string(&mut said).unwrap();
            started.process.wait().unwrap();
            let own: u32 = fs::read_to_string("/proc/self/status")
                .unwrap()
                .lines()
                .find_map(|line| line.strip_prefix("Seccomp_filters:"))
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            let more = u32::from(!names.is_empty());
            let usual = if cfg!(target_arch = "x86_64") { 3 } else { 2 };
            assert_eq!(said.trim_start_matches("Seccomp_filters:").trim(), (own + usual + more).to_string());
        }
    });
}

#[test]
fn a_race_about_a_path_makes_no_protected_name() {
    each_with_python(|_| {
        // The cell has a private folder in place of the one, and none around the other.
        for parent in ["/tmp", "/var/tmp"] {
            let folder = tempfile::Builder::new().prefix("jail-").tempdir_in(parent).unwrap();
            fs::create_dir(folder.path().join(".kept")).unwrap();
            let mut launch = python(folder.path(), include_str!("names/race.py"));
            launch.arguments.push("600".into());
            let (said, _) = output(&launch);
            let words: Vec<_> = said.split_whitespace().collect();
            assert!(matches!(words[..], ["made", made, "refused", refused] if made != "0" && refused != "0"), "{said}");
            assert_eq!(fs::read_dir(folder.path().join(".kept")).unwrap().count(), 0);
            assert!(!folder.path().join("kept.toml").exists());
        }
    });
}

#[test]
fn protected_names_are_free_in_private_folders_and_can_be_read_everywhere() {
    each(|who| {
        let folder = who.folder();
        keep(folder.path());
        let mut launch = shell(
            "cd \"$0\"; cat sub/kept.toml sub/.kept/inner; cd /home/source; mkdir .kept; echo mine > .kept/kept.toml; \
                                cat .kept/kept.toml; mv .kept/kept.toml kept.toml; rm kept.toml && echo gone",
        );
        launch.arguments.push(folder.path().into());
        launch.cell.mounts.push(Mount::write(folder.path()));
        launch.cell.protected_names = NAMES.map(str::to_owned).into();
        assert_eq!(output(&launch).0, "as it wasas it wasmine\ngone\n");
    });
}

#[test]
fn many_threads_and_processes_that_are_interrupted_make_each_file_once() {
    each_with_python(|who| {
        let folder = who.folder();
        let script = "import os, signal, threading\n\
            signal.signal(signal.SIGALRM, lambda *_: None)\n\
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n\
            def once(call, *arguments):\n\
            \x20 while True:\n\
            \x20   try: return call(*arguments)\n\
            \x20   except InterruptedError: pass\n\
            def make(n):\n\
            \x20 for i in range(40):\n\
            \x20   os.close(os.open(f'{n}-{i}', os.O_CREAT | os.O_EXCL | os.O_WRONLY))\n\
            \x20   once(os.mkdir, f'{n}-{i}-folder'); once(os.rename, f'{n}-{i}', f'{n}-{i}-folder/in')\n\
            threads = [threading.Thread(target=make, args=(n,)) for n in range(64)]\n\
            for t in threads: t.start()\n\
            for t in threads: t.join()\n\
            for n in range(64, 84):\n\
            \x20 if os.fork() == 0:\n\
            \x20   make(n); os._exit(0)\n\
            failed = sum(os.wait()[1] for n in range(20))\n\
            print(failed, len(os.listdir('.')), sum(len(f) for _, _, f in os.walk('.')))";
        assert_eq!(output(&python(folder.path(), script)).0, format!("0 {0} {0}\n", 84 * 40));
    });
}

#[test]
fn a_process_that_hides_its_memory_makes_files_too() {
    each_with_python(|who| {
        let folder = who.folder();
        let script = "import ctypes, os\nctypes.CDLL(None).prctl(4, 0)\nopen('new', 'w').write('made')\n\
            try: open('kept.toml', 'w')\nexcept OSError as e: print(open('new').read(), e.strerror)";
        assert_eq!(output(&python(folder.path(), script)).0, "made Operation not permitted\n");
    });
}

#[test]
fn programs_of_every_day_work_in_a_folder_with_protected_names() {
    each(|who| {
        let folder = who.folder();
        let script = "export GIT_CONFIG_NOSYSTEM=1; mkdir a && cd a && git init -q . && mkdir -p d/e && echo one > d/e/file && \
            ln -s d link && git add -A && git -c user.name=n -c user.email=e commit -qm first && git mv d/e/file d/moved && \
            git -c user.name=n -c user.email=e commit -qam second && git checkout -q HEAD~1 && cat d/e/file && git gc -q && \
            cd .. && cp -a a b && tar cf a.tar a && mkdir c && tar xf a.tar -C c && diff -r a b && diff -r a c/a && \
            rm -rf a b && sqlite3 c/base 'create table t(x); insert into t values (1); select * from t' && \
            sqlite3 c/base 'pragma journal_mode=wal; insert into t values (2); select sum(x) from t' && \
            python3 -m venv --without-pip v && v/bin/python3 -c 'print(\"ran\")' && install -m 640 -D c/base deep/er/base && \
            sed -i s/one/two/ c/a/d/e/file && cat c/a/d/e/file && find . -name '*.tar' -delete && ls";
        let mut launch = shell("");
        launch.program = "/usr/bin/sh".into();
        launch.arguments = vec!["-ec".into(), script.into()];
        launch.cell.mounts.push(Mount::write(folder.path()));
        launch.cell.protected_names = NAMES.map(str::to_owned).into();
        launch.directory = folder.path().to_owned();
        launch.environment.push(("HOME".to_owned(), "/home/source".into()));
        let programs = ["git", "sqlite3", "python3", "tar", "diff"];
        if programs.iter().all(|program| Path::new("/usr/bin").join(program).exists()) {
            assert_eq!(output(&launch).0, "one\n1\nwal\n3\nran\ntwo\nc\ndeep\nv\n");
        }
    });
}

#[test]
fn a_pipe_that_nobody_reads_does_not_stop_the_deputy() {
    each(|who| {
        let folder = who.folder();
        assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
        let script =
            "(: > pipe) 2> error || echo refused; cat pipe & until (echo read > pipe) 2> error; do :; done; wait";
        let mut launch = shell(script);
        launch.cell.mounts.push(Mount::write(folder.path()));
        launch.cell.protected_names = NAMES.map(str::to_owned).into();
        launch.directory = folder.path().to_owned();
        assert_eq!(output(&launch).0, "refused\nread\n");
    });
}
