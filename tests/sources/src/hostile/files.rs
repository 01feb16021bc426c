//! Attacks on files and on named shared memory.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::attack::{AttackArguments, Probe};
use crate::raw::{Word, call};

pub(crate) fn secrets(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let mut probes: Vec<_> =
        arguments.texts("secrets").map(|path| Probe::of(shown(arguments, path), read(path))).collect();
    for path in [
        "/etc/shadow",
        "/etc/sudoers",
        "/proc/kcore",
        "/proc/cmdline",
        "/proc/interrupts",
        "/proc/keys",
        "/proc/sys/kernel/random/boot_id",
        "/dev/mem",
        "/dev/kmsg",
        "/proc/self/root/../etc/shadow",
    ] {
        probes.push(Probe::of(format!("`{path}`"), read(path)));
    }
    probes.push(Probe::of("the list of a folder that is not given", list(&arguments.path("folder"))));
    if arguments.caged() {
        let given = read(arguments.path("folder").join("given/readme"));
        probes.push(Probe::new("NOT what it is given", given.is_err(), format!("{given:?}")));
    }
    probes
}

/// Reads through a symbolic link that is part of a granted path.
pub(crate) fn through_a_link(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    vec![Probe::of("a secret behind a link", read(arguments.path("link").join("id_rsa")))]
}

/// Lists a folder. Seeing only the entries that lead to granted paths is not a leak.
fn list(folder: &Path) -> io::Result<u8> {
    let mut names = fs::read_dir(folder)?.flatten().map(|entry| entry.file_name());
    if names.any(|name| name == "portcullis.toml") { Ok(0) } else { Err(io::Error::other("only what is given")) }
}

/// Returns a path without the part that differs in every run.
fn shown(arguments: &AttackArguments<'_>, path: &str) -> String {
    format!("`{}`", path.strip_prefix(arguments.text("folder")).map_or(path, |rest| rest.trim_start_matches('/')))
}

fn read(path: impl AsRef<Path>) -> io::Result<u8> {
    let mut byte = [0];
    File::open(path)?.read_exact(&mut byte)?;
    let [byte] = byte;
    Ok(byte)
}

fn append(path: impl AsRef<Path>) -> io::Result<()> {
    File::options().append(true).create(true).open(path)?.write_all(b"# was here\n")
}

pub(crate) fn shell(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    arguments.texts("rc").map(|path| Probe::of(shown(arguments, path), append(path))).collect()
}

pub(crate) fn programs(_: &AttackArguments<'_>) -> Vec<Probe> {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.with_file_name("was-here");
    let mut probes = vec![Probe::of("beside its own program", append(&beside))];
    probes.push(Probe::of("its own program", File::options().append(true).open(&own)));
    // Removed again if it could be created.
    let _ = fs::remove_file(beside);
    for path in ["/usr/bin/was-here", "/usr/lib/was-here", "/etc/was-here"] {
        probes.push(Probe::of(format!("`{path}`"), append(path)));
        let _ = fs::remove_file(path);
    }
    let preload = "/etc/ld.so.preload";
    probes.push(Probe::of(
        format!("`{preload}`"),
        File::options().append(true).create(!Path::new(preload).exists()).open(preload),
    ));
    probes
}

pub(crate) fn links(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let out = arguments.path("out");
    let Some(secret) = arguments.texts("secrets").next() else { return Vec::new() };
    let (soft, hard, folder) = (out.join("soft"), out.join("hard"), out.join("folder"));
    let tried = [
        ("a symbolic link to a file", symlink(secret, &soft).and_then(|()| read(&soft))),
        ("a symbolic link to a folder", symlink(arguments.path("folder"), &folder).and_then(|()| list(&folder))),
        ("a hard link", fs::hard_link(secret, &hard).and_then(|()| read(&hard))),
        ("`..`", read(out.join("../home/.ssh/id_rsa"))),
        ("moving a file in", fs::rename(arguments.path("movable"), out.join("moved")).map(|()| 0)),
    ];
    for path in [soft, hard, folder] {
        let _ = fs::remove_file(path);
    }
    let mut probes: Vec<_> = tried.into_iter().map(|(what, tried)| Probe::of(what, tried)).collect();
    if arguments.caged() {
        let wrote = append(out.join("work"));
        probes.push(Probe::new("NOT the folder that it may write", wrote.is_err(), format!("{wrote:?}")));
    }
    probes
}

pub(crate) fn caches(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    arguments
        .texts("caches")
        .map(|path| Probe::of(shown(arguments, path), append(Path::new(path).join("poison"))))
        .collect()
}

/// Attacks the configuration and the data folder of a broker at the top of a writable folder, where brokers find them
/// by name. Every change but the last is undone.
pub(crate) fn configurations(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let out = arguments.path("out");
    let (file, data) = (out.join("portcullis.toml"), out.join(".portcullis"));
    let (beside, aside) = (out.join("beside"), out.join("aside"));
    let replaced = |path: &Path| {
        // Exchanged and not renamed, because the old folder is not empty.
        if path.is_dir() { fs::create_dir_all(&beside) } else { fs::write(&beside, "# was here\n") }?;
        let [old, new] = [path, &*beside].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default());
        let here = Word::from(libc::AT_FDCWD);
        let exchange = || {
            let flags = libc::RENAME_EXCHANGE;
            call(libc::SYS_renameat2, [here, (&*new).into(), here, (&*old).into(), flags.into()])
        };
        let done = exchange().and_then(|_| exchange()).map(drop);
        let _ = fs::remove_file(&beside).or_else(|_| fs::remove_dir_all(&beside));
        done
    };
    let moved = |path: &Path| fs::rename(path, &aside).and_then(|()| fs::rename(&aside, path));
    let either = |what: &str, [file, data]: [io::Result<()>; 2]| Probe::of(what, file.or(data));
    vec![
        either("changing it", [append(&file), append(data.join("trust"))]),
        either("exchanging it", [replaced(&file), replaced(&data)]),
        either("moving it", [moved(&file), moved(&data)]),
        either("removing it", [fs::remove_file(&file), fs::remove_dir_all(&data)]),
    ]
}

/// A way to make a configuration or a data folder.
type Planting<'a> = Box<dyn Fn() -> io::Result<()> + 'a>;

/// Makes a configuration and a data folder of a broker in a folder in which there was none. Anything that was created
/// is removed again.
pub(crate) fn plants(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let project = arguments.path("out").join("project");
    let (file, data) = (project.join("portcullis.toml"), project.join(".portcullis"));
    let (harmless, folder, link) = (project.join("harmless"), project.join("folder"), project.join("link"));
    let prepared = fs::create_dir_all(&folder).and_then(|()| append(&harmless));
    let tries: [(&str, Planting<'_>); 9] = [
        ("opening a new file", Box::new(|| File::create_new(&file).map(drop))),
        ("making a folder", Box::new(|| fs::create_dir(&data))),
        ("renaming a file", Box::new(|| fs::rename(&harmless, &file))),
        ("renaming a folder", Box::new(|| fs::rename(&folder, &data))),
        ("linking a file", Box::new(|| fs::hard_link(&harmless, &file))),
        ("a symbolic link", Box::new(|| symlink(&harmless, &file).and_then(|()| symlink(&folder, &data)))),
        ("opening through a link", Box::new(|| symlink("portcullis.toml", &link).and_then(|()| append(&link)))),
        (
            "in a thread",
            Box::new(|| std::thread::scope(|scope| scope.spawn(|| append(&file)).join().unwrap_or(Ok(())))),
        ),
        ("a race about the path", Box::new(|| raced(&file))),
    ];
    let mut probes = Vec::new();
    for (what, attempt) in tries {
        let done = attempt();
        probes.push(Probe::of(what, done.and_then(|()| fs::symlink_metadata(&file).or(fs::symlink_metadata(&data)))));
        let _ = (fs::remove_file(&file), fs::remove_file(&data), fs::remove_dir(&data), fs::remove_file(&link));
        let _ = (fs::create_dir(&folder), append(&harmless));
    }
    if arguments.caged() {
        probes.push(Probe::new("NOT the folder that it may write", prepared.is_err(), format!("{prepared:?}")));
    }
    let _ = fs::remove_dir_all(project);
    probes
}

/// Has a thread change the last byte of a path while another opens it, until the file is there.
fn raced(file: &Path) -> io::Result<()> {
    let mut path = file.as_os_str().as_bytes().to_vec();
    path.push(0);
    let last = path.len() - 2;
    let path: Vec<_> = path.into_iter().map(AtomicU8::new).collect();
    let Some(byte) = path.get(last) else { return Ok(()) };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                byte.store(b'x', Ordering::Relaxed);
                byte.store(b'l', Ordering::Relaxed);
            }
        });
        for _ in 0..2000 {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
            let pointer = Word::from(path.as_ptr() as usize);
            if let Ok(number) = call(libc::SYS_openat, [libc::AT_FDCWD.into(), pointer, flags.into(), 0o600_i32.into()])
            {
                let _ = call(libc::SYS_close, [i32::try_from(number).unwrap_or(-1).into()]);
            }
            let _ = fs::remove_file(file.with_extension("tomx"));
            if file.exists() {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    file.symlink_metadata().map(drop)
}

/// Returns the name of the queue that [`plant`] creates and [`shared`] looks for.
fn queue(bait_name: &str) -> CString {
    CString::new(bait_name).unwrap_or_default()
}

pub(crate) fn shared(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let name = arguments.text("shared");
    let key = i32::try_from(arguments.number("key")).unwrap_or_default();
    let segment = call(libc::SYS_shmget, [key.into(), 0_i32.into(), 0o600_i32.into()]);
    let open = call(libc::SYS_mq_open, [Word::from(&*queue(name)), libc::O_RDONLY.into(), 0_i32.into(), 0_i32.into()]);
    vec![
        Probe::of("a file in `/dev/shm`", read(Path::new("/dev/shm").join(name))),
        Probe::of("a System V segment", segment),
        Probe::of("a message queue", open),
    ]
}

/// Creates shared memory and a queue under the given names, reports it, and removes them when its input ends.
pub(crate) fn plant() -> ! {
    let mut words = std::env::args().skip(2);
    let (name, key) =
        (words.next().unwrap_or_default(), words.next().and_then(|key| key.parse().ok()).unwrap_or(0_i32));
    let file = Path::new("/dev/shm").join(&name);
    let made = (|| {
        fs::write(&file, "planted")?;
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
        let segment = call(libc::SYS_shmget, [key.into(), 4096_i32.into(), flags.into()])?;
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let mode = Word::from(0o600_i32);
        call(libc::SYS_mq_open, [Word::from(&*queue(&name)), flags.into(), mode, 0_i32.into()])?;
        Ok::<_, io::Error>(segment)
    })();
    println!("{}", if made.is_ok() { "planted" } else { "not planted" });
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let _ = fs::remove_file(file);
    if let Ok(segment) = made {
        let segment = i32::try_from(segment).unwrap_or_default();
        let _ = call(libc::SYS_shmctl, [segment.into(), libc::IPC_RMID.into(), 0_i32.into()]);
        let _ = call(libc::SYS_mq_unlink, [Word::from(&*queue(&name))]);
    }
    std::process::exit(i32::from(made.is_err()))
}
