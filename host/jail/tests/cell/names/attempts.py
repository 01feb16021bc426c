# Tries in every way to make, change, move or remove protected names in the working directory, and prints what has
# succeeded: nothing. What is protected and exists was made outside: `sub/kept.toml`, `sub/.kept/inner`.
import ctypes, mmap, os, threading

libc = ctypes.CDLL(None, use_errno=True)
SYS = {'x86_64': (316, 319), 'aarch64': (276, 279)}[os.uname().machine]
CREATE, WRITE, READ, BOTH = os.O_CREAT, os.O_WRONLY, os.O_RDONLY, os.O_RDWR
top = os.getcwd()
open('harmless', 'w').write('x')
os.mkdir('folder')
tried = 0


def attempt(label, call):
    """Prints the label if a call succeeds."""
    global tried
    tried += 1
    try:
        result = call()
    except OSError:
        return
    if result is None or result >= 0:
        print(label)


def in_thread(call):
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    threading.excepthook = lambda _: None
    thread.start()
    thread.join()
    return results[0] if results else -1


def in_process(call):
    child = os.fork()
    if child == 0:
        try:
            result = call()
            os._exit(0 if result is None or result >= 0 else 1)
        except OSError:
            os._exit(1)
    return -os.waitpid(child, 0)[1]


def renameat2(old, new, flags):
    return libc.syscall(SYS[0], -100, old.encode(), -100, new.encode(), flags)


# New names, of every spelling that some file system takes for the same.
here = os.open('.', READ)
sub = os.open('sub', READ)
for folder in ('', 'folder/', 'sub/', './', 'folder/../', top + '/', '/proc/self/cwd/', f'/proc/self/fd/{here}/', f'/dev/fd/{here}/', f'/proc/{os.getpid()}/cwd/'):
    for name in ('kept.toml', '.kept', 'KEPT.toml', 'Kept.Toml', '.KEPT', 'kept.toml.', 'kept.toml ', 'ke\u200dpt.toml', '.kept.'):
        path = folder + name
        if os.path.lexists(path):
            continue
        for kind, call in {
            'open': lambda: os.open(path, CREATE | WRITE), 'open new': lambda: os.open(path, CREATE | BOTH | os.O_EXCL),
            'open to read': lambda: os.open(path, CREATE | READ), 'creat': lambda: libc.creat(path.encode(), 0o600), 'mkdir': lambda: os.mkdir(path),
            'mkdir slash': lambda: os.mkdir(path + '/'), 'symlink': lambda: os.symlink('harmless', path), 'link': lambda: os.link('harmless', path),
            'rename': lambda: os.rename('harmless', path), 'rename folder': lambda: os.rename('folder', path), 'exchange': lambda: renameat2('harmless', path, 2),
            'no replace': lambda: renameat2('folder', path, 1), 'mknod': lambda: os.mknod(path), 'fifo': lambda: os.mkfifo(path),
        }.items():
            attempt(f'{kind} {path}', call)
            attempt(f'{kind} {path} in a thread', lambda: in_thread(call))
            attempt(f'{kind} {path} in a process', lambda: in_process(call))
for name in ('kept.toml', '.kept'):
    os.symlink(name, 'to-' + name)
    os.symlink('to-' + name, 'to-to-' + name)
    os.symlink(top + '/folder/' + name, 'far-' + name)
    for link in ('to-', 'to-to-', 'far-'):
        attempt(f'open through {link}{name}', lambda: os.open(link + name, CREATE | WRITE))
    attempt(f'in descriptor {name}', lambda: os.open(name, CREATE | WRITE, dir_fd=here))
    attempt(f'mkdir in descriptor {name}', lambda: os.mkdir(name, dir_fd=here))
    attempt(f'from private {name}', lambda: os.rename('/tmp/private', name))
    unnamed = os.open('.', os.O_TMPFILE | BOTH, 0o600)
    attempt(f'unnamed {name}', lambda: libc.linkat(-100, f'/proc/self/fd/{unnamed}'.encode(), -100, name.encode(), 0x400))
    attempt(f'unnamed by descriptor {name}', lambda: libc.linkat(unnamed, b'', -100, name.encode(), 0x1000))

# What exists, at a depth.
reader = os.open('sub/kept.toml', READ)
inner = os.open('sub/.kept/inner', READ)
data = os.open('sub/.kept', READ)
for path in ('sub/kept.toml', 'sub/.kept/inner', f'/proc/self/fd/{reader}', f'/proc/self/fd/{inner}', f'/dev/fd/{reader}', f'/proc/self/fd/{data}/inner', f'/proc/thread-self/fd/{inner}', 'sub/../sub//kept.toml'):
    for flags in (WRITE, BOTH, WRITE | os.O_TRUNC, READ | os.O_TRUNC, WRITE | CREATE, WRITE | os.O_APPEND, WRITE | os.O_NOFOLLOW, CREATE | READ | os.O_TRUNC, 3):
        attempt(f'open {path} {flags}', lambda: os.open(path, flags))
    attempt(f'truncate {path}', lambda: os.truncate(path, 0))
    attempt(f'link {path}', lambda: os.link(path, 'linked', follow_symlinks=True))
    attempt(f'rename {path}', lambda: os.rename(path, 'renamed'))
    attempt(f'exchange {path}', lambda: renameat2(path, 'harmless', 2))
    attempt(f'rename over {path}', lambda: os.rename('harmless', path))
    attempt(f'unlink {path}', lambda: os.unlink(path))
for number in (reader, inner):
    attempt('truncate descriptor', lambda: os.ftruncate(number, 0))
    attempt('write descriptor', lambda: os.write(number, b'x'))
    attempt('link descriptor', lambda: libc.linkat(number, b'', -100, b'linked', 0x1000))
    attempt('link own', lambda: libc.linkat(-100, f'/proc/self/fd/{number}'.encode(), -100, b'linked', 0x400))
    attempt('map', lambda: mmap.mmap(number, 1, mmap.MAP_SHARED, mmap.PROT_WRITE) and 0)
os.symlink('sub/.kept', 'to-data')
for folder in ('sub/.kept/', 'to-data/', f'/proc/self/fd/{data}/', 'sub/.kept/deep/'):
    attempt(f'make in {folder}', lambda: os.open(folder + 'new', CREATE | WRITE))
    attempt(f'mkdir in {folder}', lambda: os.mkdir(folder + 'new'))
    attempt(f'unnamed in {folder}', lambda: os.open(folder, os.O_TMPFILE | WRITE))
    attempt(f'rename into {folder}', lambda: os.rename('harmless', folder + 'new'))
    attempt(f'link into {folder}', lambda: os.link('harmless', folder + 'new'))
    attempt(f'remove {folder}', lambda: os.rmdir(folder))
attempt('rename data', lambda: os.rename('sub/.kept', 'data'))
attempt('exchange data', lambda: renameat2('sub/.kept', 'folder', 2))
os.chdir('sub/.kept')
attempt('make in working folder', lambda: os.open('new', CREATE | WRITE))
attempt('make in folder of working folder', lambda: os.open('deep/new', CREATE | WRITE))
os.chdir(top)

# The deputy itself.
for file in ('mem', 'environ', 'fd/3', 'cwd/new', 'fd/3/new'):
    attempt(f'deputy {file}', lambda: os.open(f'/proc/1/{file}', BOTH | CREATE))
attempt('trace the deputy', lambda: libc.ptrace(16, 1, 0, 0))

# Landlock, which the deputy does not know.
landlock = libc.syscall(444, 0, 0, 1)
print(tried > 500, landlock, sorted(os.listdir('.')))
