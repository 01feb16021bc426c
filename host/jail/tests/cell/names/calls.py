# Makes, changes and removes files in many ways, in the working directory, and prints what each call did. What it prints
# is the same in a cell and outside.
import ctypes, errno, os, stat, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)
RENAMEAT2 = {'x86_64': 316, 'aarch64': 276}[os.uname().machine]
AT_FDCWD, NOREPLACE, EXCHANGE = -100, 1, 2
CREATE, WRITE, READ, BOTH = os.O_CREAT, os.O_WRONLY, os.O_RDONLY, os.O_RDWR
top = os.getcwd()
sys.stdout.reconfigure(encoding='ascii', errors='backslashreplace')


def code(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), '')
    return result


def renameat2(old, new, flags):
    return code(libc.syscall(RENAMEAT2, AT_FDCWD, old, AT_FDCWD, new, flags))


def linkat(folder, old, new, flags):
    return code(libc.linkat(folder, old, AT_FDCWD, new, flags))


def say(label, call, *arguments, **named):
    try:
        result = call(*arguments, **named)
        print(label, 'done' if result is None else result)
    except OSError as error:
        print(label, errno.errorcode.get(error.errno, error.errno))


def opened(path, flags, mode=0o777, **named):
    """Opens, and returns whether the number is the lowest, and the flags and the mode of what was opened."""
    lowest = os.dup(0)
    os.close(lowest)
    number = os.open(path, flags, mode, **named)
    try:
        import fcntl
        # Of the flags that the kernel only keeps, a file that the deputy has opened lacks one, O_NOFOLLOW.
        status = fcntl.fcntl(number, fcntl.F_GETFL) & ~os.O_NOFOLLOW
        return number == lowest, oct(status), oct(os.fstat(number).st_mode), os.get_inheritable(number)
    finally:
        os.close(number)


def text(path, content, flags=WRITE):
    number = os.open(path, flags)
    try:
        os.write(number, content)
    finally:
        os.close(number)
    return open(path, 'rb').read()


def listing(path='.'):
    for folder, folders, files in sorted(os.walk(path)):
        for name in sorted(folders + files):
            at = os.path.join(folder, name)
            about = os.lstat(at)
            kind = stat.filemode(about.st_mode)
            target = os.readlink(at) if stat.S_ISLNK(about.st_mode) else ''
            print(at, kind, about.st_nlink if stat.S_ISREG(about.st_mode) else '', about.st_size if not stat.S_ISDIR(about.st_mode) else '', target)


# Opening.
for mask in (0o022, 0o077, 0):
    os.umask(mask)
    say(f'new {mask}', opened, f'new-{mask}', CREATE | WRITE, 0o666)
    say(f'folder {mask}', os.mkdir, f'folder-{mask}', 0o777)
os.umask(0o022)
os.symlink('link-made', 'dangling')
os.symlink(top + '/absolute-made', 'dangling-absolute')
os.symlink('dangling-chain', 'chain')
os.symlink('folder-0/../chain-made', 'dangling-chain')
os.symlink('loop-b', 'loop-a')
os.symlink('loop-a', 'loop-b')
os.symlink('folder-0', 'to-folder')
os.symlink('new-0', 'to-file')
os.symlink('/nowhere/at/all', 'to-nowhere')
long = 'x' * 255
for label, path in {
    'existing': 'new-0', 'absent': 'absent', 'folder': 'folder-0', 'folder/': 'folder-0/', 'absent/': 'absent-2/', 'file/': 'new-0/',
    'dot': '.', 'dots': 'folder-0/..', 'empty': '', 'root': '/', 'slashes': '///', 'link': 'dangling', 'absolute link': 'dangling-absolute',
    'chain': 'chain', 'loop': 'loop-a', 'link to folder': 'to-folder', 'through link': 'to-folder/in', 'link to file': 'to-file',
    'link nowhere': 'to-nowhere', 'no parent': 'no/parent', 'file as parent': 'new-0/in', 'longest': long, 'too long': long + 'x',
    'long path': './' * 2000 + 'long-path', 'too long path': './' * 3000 + 'y', 'absolute': top + '/absolute', 'dots within': 'folder-0/../within',
    'double slash': 'folder-0//double', 'device': '/dev/null', 'thread folder': '/proc/thread-self/cwd/thread', 'own folder': '/proc/self/cwd/own',
    'not utf-8': b'\xff\xfe', 'newline': 'a\nb', 'full': '/dev/full', 'proc': '/proc/self/new', 'nothing there': '/nothing/there',
}.items():
    for name, flags in {
        'create': CREATE | WRITE, 'exclusive': CREATE | BOTH | os.O_EXCL, 'no follow': CREATE | WRITE | os.O_NOFOLLOW, 'write': WRITE,
        'read-write': BOTH | os.O_CLOEXEC, 'truncate': WRITE | os.O_TRUNC, 'create to read': CREATE | READ, 'append': CREATE | WRITE | os.O_APPEND,
        'folder': CREATE | WRITE | os.O_DIRECTORY, 'only folder': WRITE | os.O_DIRECTORY, 'path': os.O_PATH | CREATE | WRITE, 'neither': 3,
        'no follow to write': WRITE | os.O_NOFOLLOW, 'sync': CREATE | BOTH | os.O_SYNC | os.O_NONBLOCK,
    }.items():
        if name == 'folder' and not os.path.lexists(path):
            continue  # Kernels differ.
        say(f'open {label} {name}', opened, path, flags)
listing()
say('bad address', lambda: code(libc.open(ctypes.c_void_p(1), CREATE | WRITE, 0o600)))
say('creat', lambda: os.close(code(libc.creat(b'creat', 0o640))))
say('append', text, 'new-0', b'one', WRITE | os.O_APPEND)
say('append again', text, 'new-0', b'two', WRITE | os.O_APPEND)
say('overwrite', text, 'new-0', b'X')
say('cut', text, 'new-0', b'', WRITE | os.O_TRUNC)
os.chmod('new-0', 0)
say('no right', opened, 'new-0', BOTH)
say('no right to truncate', os.truncate, 'new-0', 1)
os.chmod('new-0', 0o444)
say('read-only', opened, 'new-0', WRITE | CREATE)
os.chmod('new-0', 0o644)
os.mkdir('closed')
open('closed/in', 'w').close()
os.chmod('closed', 0o555)
for label, call in {
    'make': lambda: opened('closed/new', CREATE | WRITE), 'write': lambda: opened('closed/in', CREATE | WRITE), 'folder': lambda: os.mkdir('closed/f'),
    'remove': lambda: os.unlink('closed/in'), 'rename': lambda: os.rename('closed/in', 'out'), 'link': lambda: os.link('closed/in', 'linked-out'),
}.items():
    say(f'closed folder {label}', call)
os.chmod('closed', 0o666)
say('folder without search', opened, 'closed/in', CREATE | WRITE)
os.chmod('closed', 0o755)

# Descriptors.
folder = os.open('folder-0', os.O_RDONLY)
file = os.open('new-0', BOTH)
say('in descriptor', opened, 'in-descriptor', CREATE | WRITE, dir_fd=folder)
say('in file', opened, 'in-file', CREATE | WRITE, dir_fd=file)
say('in none', opened, 'in-none', CREATE | WRITE, dir_fd=999)
say('absolute in none', opened, top + '/absolute-in-none', CREATE | WRITE, dir_fd=999)
for path in (f'/proc/self/fd/{folder}/by-number', f'/dev/fd/{folder}/by-device', f'/proc/{os.getpid()}/fd/{folder}/by-process'):
    say(path.rsplit('/', 1)[1], opened, path, CREATE | WRITE)
reader = os.open('new-0', READ)
for path in (f'/proc/self/fd/{reader}', f'/dev/fd/{reader}'):
    say('again', text, path, b'again', WRITE | CREATE | os.O_TRUNC)
output = os.dup(1)
target = os.open('redirected', CREATE | WRITE)
sys.stdout.flush()
os.dup2(target, 1)
try:
    again = os.open('/dev/stdout', WRITE | CREATE | os.O_APPEND)
    os.write(again, b'redirected')
    os.close(again)
finally:
    os.dup2(output, 1)
print(open('redirected').read())
unnamed = os.open('.', os.O_TMPFILE | BOTH, 0o640)
os.write(unnamed, b'unnamed')
say('link of unnamed', linkat, AT_FDCWD, f'/proc/self/fd/{unnamed}'.encode(), b'named', 0x400)
say('named', open, 'named', 'rb')
sealed = os.open('folder-0', os.O_TMPFILE | WRITE | os.O_EXCL, 0o640)
say('link of sealed', linkat, AT_FDCWD, f'/proc/self/fd/{sealed}'.encode(), b'sealed', 0x400)
say('unnamed in file', os.open, 'new-0', os.O_TMPFILE | WRITE)
say('unnamed through link', opened, 'to-folder', os.O_TMPFILE | WRITE)

# Making.
os.mkdir('group/inherits')  # Made outside, as no source may set that bit.
for label, path in {'there': 'folder-0', 'slash': 'slash/', 'slashes': 'slashes///', 'link': 'dangling', 'link slash': 'dangling/', 'dot': 'new-dot/.', 'empty': '', 'deep': 'no/parent', 'file': 'new-0/x', 'dots': '..', 'long': long + 'x'}.items():
    say(f'mkdir {label}', os.mkdir, path)
    say(f'symlink {label}', os.symlink, 'target', path)
    say(f'link {label}', os.link, 'new-0', path)
    say(f'rename {label}', os.rename, path, path + '-moved')
    say(f'rename to {label}', os.rename, 'group', path)
    say(f'rmdir {label}', os.rmdir, path)
    say(f'unlink {label}', os.unlink, path)
    say(f'truncate {label}', os.truncate, path, 3)
say('empty target', os.symlink, '', 'empty-target')
say('long target', os.symlink, 'x' * 4095, 'long-target')
say('mkdir in descriptor', os.mkdir, 'made', dir_fd=folder)
say('symlink in descriptor', os.symlink, 'made', 'to-made', dir_fd=folder)
listing()

# Links.
open('a', 'w').write('a')
os.symlink('a', 'link-a')
os.mkdir('dir')
say('link', os.link, 'a', 'b')
say('link over', os.link, 'a', 'b')
say('link of link', os.link, 'link-a', 'link-b', follow_symlinks=False)
say('link through link', lambda: linkat(AT_FDCWD, b'link-a', b'c', 0x400))
say('link of folder', os.link, 'dir', 'dir-2')
say('link of nothing', os.link, 'nothing', 'd')
say('link slash', os.link, 'a/', 'e')
say('link flags', lambda: linkat(AT_FDCWD, b'a', b'f', 0x8000))
say('link of descriptor', os.link, 'in-descriptor', 'from-descriptor', src_dir_fd=folder)

# Renaming.
open('other', 'w').write('other')
os.makedirs('full/sub')
for label, old, new in [('', 'a', 'a2'), ('back', 'a2', 'a'), ('over', 'other', 'a'), ('to itself', 'a', 'a'), ('folder over file', 'dir', 'a'), ('file over folder', 'a', 'dir'), ('over full', 'dir', 'full'), ('into itself', 'full', 'full/sub/x'), ('over its parent', 'full/sub', 'full'), ('folder', 'dir', 'dir-3'), ('slashes', 'dir-3/', 'dir-4/'), ('file slash', 'a', 'a3/'), ('link', 'link-a', 'link-c'), ('link slash', 'to-folder/', 'x'), ('over folder', 'dir-4', 'full/empty'), ('nothing', 'nothing', 'x'), ('dots', '..', 'x'), ('between', 'full/empty', 'folder-0/e'), ('same inode', 'b', 'c')]:
    say(f'rename {label}', os.rename, old, new)
say('no replace', renameat2, b'a', b'named', NOREPLACE)
say('no replace new', renameat2, b'a', b'a4', NOREPLACE)
say('exchange', renameat2, b'a4', b'full', EXCHANGE)
say('exchange nothing', renameat2, b'a4', b'nothing', EXCHANGE)
say('both', renameat2, b'a4', b'full', EXCHANGE | NOREPLACE)
say('unknown flag', renameat2, b'a4', b'full', 64)
say('in descriptors', os.rename, 'in-descriptor', 'moved', src_dir_fd=folder, dst_dir_fd=folder)
listing()

# Removing and truncating.
for label, path in {'file': 'named', 'nothing': 'named', 'folder': 'group', 'full': 'folder-0', 'link': 'dangling', 'link to folder': 'to-folder', 'slash': 'new-18/', 'in none': 'no/x'}.items():
    say(f'rmdir {label}', os.rmdir, path)
    say(f'unlink {label}', os.unlink, path)
say('unlink flags', lambda: code(libc.unlinkat(AT_FDCWD, b'a4', 1)))
say('unlink in descriptor', os.unlink, 'moved', dir_fd=folder)
os.symlink('new-0', 'to-truncate')
for label, path, length in [('shorter', 'new-0', 2), ('longer', 'new-0', 5000), ('link', 'to-truncate', 7), ('negative', 'new-0', -1), ('folder', 'folder-0', 0), ('device', '/dev/null', 0)]:
    say(f'truncate {label}', os.truncate, path, length)
say('truncate opened', lambda: os.ftruncate(file, 11))
listing()

# A working directory that is gone.
os.mkdir('gone')
os.chdir('gone')
os.rmdir('../gone')
for label, call in {'open': lambda: opened('x', CREATE | WRITE), 'mkdir': lambda: os.mkdir('x'), 'symlink': lambda: os.symlink('x', 'y'), 'above': lambda: opened('../above', CREATE | WRITE), 'absolute': lambda: opened(top + '/from-gone', CREATE | WRITE)}.items():
    say(f'gone {label}', call)
os.chdir(top)

# Deep, in another process, and private folders.
for _ in range(40):
    os.mkdir('deep' * 10)
    os.chdir('deep' * 10)
say('deep', opened, 'deepest', CREATE | WRITE)
os.chdir(top)
print(subprocess.run(['/usr/bin/sh', '-c', 'umask 027; echo one > shell; echo two >> shell; mv shell "moved by shell"; cat < "moved by shell"; ls -l new-0 > /dev/null; echo three 2>&1 > /dev/null'], capture_output=True, text=True))
listing()
